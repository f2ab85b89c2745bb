"""oneDNN's kernels of ops, in front of their own for large float32 arrays; imported when the library is there.

A kernel here returns NotImplemented for what oneDNN lacks or does more slowly; its twin in the op's own file answers.
Activations (N, C, *size) are computed channels-last: see Note [Channels-last tensors] in layouts.py.
"""

from engine.ops.onednn import activation, attention, blas, conv, loss, norm, reduction, rnn  # noqa: F401
