"""The functions behind `nn`: torch.nn.functional's names, served from the ops."""

from __future__ import annotations

import math
from typing import Any

from engine.encoded.scaled_products import ScalingType, SwizzleType, scaled_mm  # noqa: F401
from engine.nn import _reduction as _Reduction  # noqa: F401
from engine.nn import grad as grad
from engine.nn._functional_activation import (  # noqa: F401
    _get_softmax_dim,
    alpha_dropout,
    celu,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    elu,
    feature_alpha_dropout,
    gelu,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    rrelu,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
)
from engine.nn._functional_loss import (  # noqa: F401
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    linear_cross_entropy,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from engine.nn._functional_pooling import (  # noqa: F401
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from engine.ops import functions as torch
from engine.ops.attention import (  # noqa: F401
    _canonical_mask,
    _in_projection,
    _in_projection_packed,
    _mha_shape_check,
    _none_or_dtype,
    multi_head_attention_forward,
    scaled_dot_product_attention,
)
from engine.ops.convolution import (  # noqa: F401
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from engine.ops.distance import pdist  # noqa: F401
from engine.ops.loss import cosine_similarity, pairwise_distance  # noqa: F401
from engine.ops.nn.bags import embedding_bag  # noqa: F401
from engine.ops.nn.embedding import embedding_rows as embedding  # noqa: F401
from engine.ops.nn.interpolation import (  # noqa: F401
    interpolate,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from engine.ops.nn.padding import pad  # noqa: F401
from engine.ops.nn.vision import (  # noqa: F401  # noqa: F401
    affine_grid,
    channel_shuffle,
    grid_sample,
    pixel_shuffle,
    pixel_unshuffle,
)
from engine.ops.nn.vision import fold_blocks as fold  # noqa: F401
from engine.ops.nn.vision import unfold_blocks as unfold  # noqa: F401
from engine.ops.norm.local_response import local_response_norm  # noqa: F401
from engine.ops.norm.rms import rms_norm  # noqa: F401
from engine.ops.products import bilinear, linear  # noqa: F401
from engine.ops.rearranging import one_hot  # noqa: F401
from engine.tensor import Tensor
from engine.tensor import raw_array as _raw_array

native_channel_shuffle = channel_shuffle


def _in_place(name: str) -> Any:
    """The in-place twin of an activation op, looked up when called: `relu_`, ..."""

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return getattr(torch, name)(input, *args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{name[:-1]}` in place.  input (*) -> (*)."
    return function


relu_ = _in_place("relu_")
threshold_ = _in_place("threshold_")
selu_ = _in_place("selu_")
celu_ = _in_place("celu_")
rrelu_ = _in_place("rrelu_")


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place.  input (*) -> (*)."""
    return elu(input, alpha, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place.  input (*) -> (*)."""
    return hardtanh(input, min_val, max_val, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place.  input (*) -> (*)."""
    return leaky_relu(input, negative_slope, inplace=True)


def _verify_batch_size(size: Any) -> None:
    if size[0] * math.prod(size[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


def batch_norm(
    input: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch normalization (arXiv:1502.03167).  input (N, C, *), all others (C) or None -> (N, C, *)."""
    if training:
        size = _raw_array(input).shape if input.__class__ is Tensor else input.size()
        if size[0] * math.prod(size[2:]) == 1:
            _verify_batch_size(input.size())
        if eps <= 0.0:
            raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    elif eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    return torch.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def instance_norm(
    input: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each sample normalized (arXiv:1607.08022).  input (N, C, *), others (C) -> (N, C, *)."""
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.size()}")
    return torch.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)


def layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Normalized over the last dims (arXiv:1607.06450).  input (*, S), weight (S), bias (S) -> (*, S)."""
    return torch.layer_norm(input, normalized_shape, weight, bias, eps, True)


def group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Channels normalized in groups (arXiv:1803.08494).  input (N, C, *), weight (C), bias (C) -> (N, C, *)."""
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    shape = list(input.shape)
    if shape[0] * (shape[1] // num_groups) * math.prod(shape[2:]) == 1:
        raise ValueError(
            "Expected more than 1 value per channel when training, got input size "
            f"{[shape[0] * shape[1] // num_groups, num_groups, *shape[2:]]}"
        )
    return torch.group_norm(input, num_groups, weight, bias, eps, True)


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> Tensor:
    """input / max(|input|_p, eps) along `dim`.  input (*) -> (*)."""
    denom = input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    return input / denom if out is None else torch.div(input, denom, out=out)


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """AssertionError unless `arg` is an int or a pair."""
    assert isinstance(arg, int) or len(arg) == 2, message.format(arg_name)


def _no_grad_embedding_renorm_(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    torch.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
