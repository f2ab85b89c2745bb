"""Group and instance normalization."""

from __future__ import annotations

from math import prod

from engine.autograd.graph import name_node
from engine.autograd.versions import own
from engine.backends.cpu.exact import summed
from engine.core.grad_mode import no_grad
from engine.dispatch import composite, joint_derivative, op, samples
from engine.ops._vjp import WHY, vjp
from engine.ops.norm import (
    _dot,
    _floating,
    _same_type,
    _share,
    _standardize_rows,
    _wide,
    batch_norm_eval,
    update_running,
)
from engine.tensor import Tensor


def _group_twin(grad, input, weight, groups, eps):
    shape = input.shape
    rows = input.reshape(shape[0], groups, prod(shape[1:]) // groups)
    centred = rows - rows.mean(-1, True)
    rstd = ((centred * centred).mean(-1, True) + eps).rsqrt()
    hat = centred * rstd
    ones = (1,) * (len(shape) - 2)
    g = grad if weight is None else grad * weight.reshape(-1, *ones)
    g = g.reshape(rows.shape)
    of_input = rstd * (g - g.mean(-1, True) - hat * (g * hat).mean(-1, True))
    dims = (0, *range(2, len(shape)))
    return of_input.reshape(shape), (grad * hat.reshape(shape)).sum(dims), grad.sum(dims)


@op(
    public=False,
    method=False,
    out=False,
    returns=("input", "weight", "bias"),
    tensors=("mean", "rstd"),
    why=WHY,
    large=1 << 14,
    generated="many",
)
@joint_derivative(
    "grad_output",
    "input",
    "weight",
    by=lambda grads, grad_output, input, weight, needs, groups, eps: vjp(
        lambda g, x, w: _group_twin(g, x, w, groups, eps), (grad_output, input, weight), grads, needs
    ),
)
def native_group_norm_backward(xp, grad_output, input, mean, rstd, weight=None, groups=1, eps=1e-5):
    """The gradients of group norm.  grad_output, input (N, C, *), mean, rstd (N, G) -> (N, C, *), (C), (C)."""
    shape = input.shape
    count, channels, length = shape[0], shape[1], prod(shape[2:])
    x, g = (
        _wide(input).reshape(count, channels, length),
        _wide(grad_output).reshape(count, channels, length),
    )
    w = None if weight is None else _wide(weight)
    per = channels // groups
    of_input = xp.empty(shape, x.dtype)
    maps = of_input.reshape(x.shape)
    all_products, all_sums = (
        xp.empty((count, channels), x.dtype),
        xp.empty((count, channels), x.dtype),
    )

    def work(block):
        part = g[block]
        n = part.shape[0]
        r = xp.repeat(rstd[block], per, axis=1)[:, :, None]
        hat = x[block] - xp.repeat(mean[block], per, axis=1)[:, :, None]
        hat *= r
        products, sums = _dot(xp, part, hat), part.sum(axis=2)  # (n, C)
        all_products[block], all_sums[block] = products, sums
        if w is not None:
            products, sums = products * w, sums * w
        size = per * length
        along = products.reshape(n, groups, per).sum(axis=2) / size
        level = sums.reshape(n, groups, per).sum(axis=2) / size
        hat *= xp.repeat(along, per, axis=1)[:, :, None]
        target = maps[block]
        xp.subtract(part if w is None else part * w[:, None], hat, out=target)
        target -= xp.repeat(level, per, axis=1)[:, :, None]
        target *= r

    _share(xp, work, count, x.size)
    of_weight, of_bias = summed(all_products, 0), summed(all_sums, 0)
    narrow = input.dtype
    like = narrow if weight is None else weight.dtype
    return (
        of_input.astype(narrow, copy=False),
        of_weight.astype(like, copy=False),
        of_bias.astype(like, copy=False),
    )


@op(
    public=False,
    returns=("output", "mean", "rstd"),
    nondifferentiable=("mean", "rstd"),
    out=False,
    method=False,
    node="NativeGroupNormBackward0",
    large=16,
    generated="many",
    autocast={"cuda": "float32"},
)
@joint_derivative(
    "input",
    "weight",
    "bias",
    by=lambda grad0, input, result1, result2, weight, groups, eps: (
        native_group_norm_backward(grad0, input, result1.detach(), result2.detach(), weight, groups, eps)
        if grad0 is not None
        else (None, None, None)
    ),
)
@samples(
    lambda t: [
        (t(2, 4, 3), 2, t(4), t(4), 1e-5),
        (t(3, 4, 2, 2), 4, None, None, 0.1),
        (t(3, 6), 2, t(6), None, 1e-5),
    ]
)
def normalize_groups(xp, input, groups, weight=None, bias=None, eps=1e-5):
    """Each group of channels of each sample normalized (arXiv:1803.08494).

    input (N, C, *), weight (C), bias (C) -> (N, C, *), mean (N, G), rstd (N, G).
    """
    count, channels = input.shape[:2]
    length = prod(input.shape[2:])
    per = channels // groups
    rows = _wide(input).reshape(count * groups, per * length)
    out = xp.empty(input.shape, rows.dtype)
    flat, maps = out.reshape(rows.shape), out.reshape(count * groups, per, length)
    mean, rstd = xp.empty(count * groups, out.dtype), xp.empty(count * groups, out.dtype)
    scale, shift = (
        None if v is None else xp.tile(_wide(v), count).reshape(count * groups, per, 1) for v in (weight, bias)
    )

    def work(part):
        mean[part], rstd[part] = _standardize_rows(xp, rows[part], flat[part], eps)
        if scale is not None:
            maps[part] *= scale[part]
        if shift is not None:
            maps[part] += shift[part]

    _share(xp, work, count * groups, out.size)
    stats = (mean.reshape(count, groups), rstd.reshape(count, groups))
    return out.astype(input.dtype, copy=False), *stats


@composite(method=False)
@samples(lambda t: [(t(2, 4, 3), 2, t(4), t(4))])
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
):
    """Channels normalized in num_groups groups.  input (N, C, *), weight (C), bias (C) -> (N, C, *)."""
    shape = list(input.shape)
    if len(shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if shape[1] % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {shape} and "
            f"num_groups={num_groups}"
        )
    for label, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and (tensor.dim() != 1 or tensor.numel() != shape[1]):
            shown = bias if bias is not None and label == "bias" else tensor
            raise RuntimeError(
                f"Expected {label} to be a vector of size equal to the number of channels in input, but got {label} of "
                f"shape {list(shown.shape)} and input of shape {shape}"
            )
    _same_type(input._array, *(None if x is None else x._array for x in (weight, bias)))
    _floating(input._array, "GroupNormKernelImpl")
    return normalize_groups(input, num_groups, weight, bias, eps)[0]


@composite(method=False)
@samples(lambda t: [(t(2, 3, 4), t(3), t(3), None, None, True, 0.1, 1e-5)])
def instance_norm(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
):
    """Each channel of each sample normalized (arXiv:1607.08022).  input (N, C, *), others (C) -> (N, C, *)."""
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        return batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
    if running_mean is not None or running_var is not None:
        with no_grad():
            rows = input.detach().reshape(input.shape[0], input.shape[1], -1)
            if running_mean is not None:
                update_running(running_mean, rows.mean((0, 2)), 1, momentum, True)
            if running_var is not None:
                update_running(running_var, rows.var(2).mean(0), 1, momentum, True)
    weight = None if weight is None else own(weight)  # torch repeats it: it may be written to
    result = normalize_groups(input, input.shape[1], weight, bias, eps)[0]
    return name_node(result, "ViewBackward0")  # of a batch normalization, in torch
