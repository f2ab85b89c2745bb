"""oneDNN's kernels of ops, in front of their own for large float32 arrays; imported when the library is there.

A kernel here returns NotImplemented for what oneDNN lacks or does more slowly; its twin in the op's own file answers.
Activations (N, C, *size) are computed channels-last: see Note [Laid tensors] in layouts.py.
"""

from engine.ops import (  # noqa: F401
    onednn_activation,
    onednn_attention,
    onednn_blas,
    onednn_conv,
    onednn_loss,
    onednn_norm,
    onednn_reduction,
    onednn_rnn,
)
