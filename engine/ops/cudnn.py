"""Kernels of ops that call cuDNN; imported when the first array on a GPU is computed with.

They need no compiler of kernels, unlike those of `engine/ops/cuda`.  Each returns NotImplemented where cuDNN is absent,
its route is disabled or it has no engine; the op's own code then runs on CuPy.
"""

import engine.ops.attention.cudnn
import engine.ops.convolution.cudnn
import engine.ops.pooling.cudnn
import engine.ops.recurrent.cudnn  # noqa: F401
