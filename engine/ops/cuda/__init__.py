"""Kernels of ops on CUDA; imported when the first array on a GPU is computed with.

What is recorded from an op's own code (`elementwise`) needs no line here; the others stand by family.  A kernel returns
NotImplemented for what it does not serve, and the op's own code runs on CuPy.
"""

from engine.ops.cuda import _routes, blas, indexing, loss, norm, pointwise, random, reduction, softmax  # noqa: F401
