"""Kernels of ops on CUDA; imported when the first array on a GPU is computed with.

What is recorded from an op's own code (`elementwise`) needs no line here; the others stand by family.  A kernel returns
NotImplemented for what it does not serve, and the op's own code runs on CuPy.
"""

import engine.ops.loss.cuda
import engine.ops.norm.cuda
import engine.ops.products.cuda
import engine.ops.random.cuda
import engine.ops.reduction.cuda
import engine.ops.softmax.cuda  # noqa: F401
from engine.ops.cuda import _routes, indexing, pointwise  # noqa: F401
