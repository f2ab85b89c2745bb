"""Kernels of ops that call cuDNN; imported when the first array on a GPU is computed with.

They need no compiler of kernels, unlike those of `engine/ops/cuda`.  Each returns NotImplemented where cuDNN is absent,
its route is off or it has no engine; the op's own code then runs on CuPy.
"""

from engine.ops.cudnn import attention, convolution, pooling, recurrent  # noqa: F401
