"""The one source form of generated kernels, what is written in it, and its printers.

`form` holds loops, loads and arithmetic; `trace` records array code (an op's own kernel, an optimizer's update) in it;
`rows` has reductions, softmax, norms and losses; `tables` lookups and scatters.  `cuda_c` prints it for a GPU.
"""
