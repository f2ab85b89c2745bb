"""oneDNN's kernels of ops, in front of their own for large float32 arrays; imported when the library is there.

A kernel here returns NotImplemented for what oneDNN lacks or does more slowly; its twin in the op's own file answers.
Activations (N, C, *size) are computed channels-last: see Note [Channels-last tensors] in layouts.py.
"""

import engine.ops.activation.onednn
import engine.ops.attention.onednn
import engine.ops.convolution.onednn
import engine.ops.loss.onednn
import engine.ops.norm.onednn
import engine.ops.pointwise.onednn
import engine.ops.pooling.onednn
import engine.ops.products.onednn
import engine.ops.recurrent.onednn
import engine.ops.reduction.onednn
import engine.ops.softmax.onednn  # noqa: F401
