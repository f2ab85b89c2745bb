"""What networks are made of: activations, convolution, pooling, normalization, losses, recurrence, attention.

Files with a leading underscore hold the arithmetic over arrays that the ops of a family share.
"""

from engine.ops.nn import (  # noqa: F401
    activation,
    adaptive_pooling,
    attention,
    conv,
    cross_entropy,
    ctc,
    dropout,
    embedding,
    fake_quantize,
    fused_attention,
    gated,
    local_response,
    loss,
    margin_loss,
    norm,
    norm_groups,
    padding,
    pooling,
    recurrent,
    resample,
    rnn,
    softmax,
    vision,
    weight_norm,
)
