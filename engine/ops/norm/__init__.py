"""Batch, layer and RMS normalization.

The backward of each is one fused op; its own gradient comes from a composite twin (`_vjp.py`).
"""

from __future__ import annotations

import builtins
from math import prod

import numpy as np

from engine.autograd.versions import guard, guard_again
from engine.backends.cpu.exact import dots, summed
from engine.backends.cpu.relayout import follow
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch import OPS, composite, joint_derivative, op, samples
from engine.dispatch.choosing import run_direct
from engine.ops._vjp import WHY, vjp
from engine.ops.dependence import depending
from engine.tensor import Tensor, raw_array

_LARGE = 1 << 16
_BLOCK = 1 << 17  # elements worked on at a time


def _wide(array):
    return array if array is None or array.dtype.itemsize != 2 else array.astype("float32")


def _floating(array, kernel):
    found = dtypes.from_numpy(array.dtype)
    if found.category < dtypes.FLOATING:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_name(found)}'")


def _same_type(input, *others):
    """torch's errors for parameters of another type; beside 16-bit floats they may be float32."""
    given = [x for x in others if x is not None]
    if not given:
        return
    if given[0].dtype != input.dtype:
        if any(x.dtype != "float32" for x in given):
            raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
        if input.dtype.itemsize != 2:
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
        return
    for x in given[1:]:
        if x.dtype != input.dtype:
            have, want = dtypes.from_numpy(x.dtype), dtypes.from_numpy(input.dtype)
            raise RuntimeError(f"expected scalar type {dtypes.scalar_name(want)} but found {dtypes.scalar_name(have)}")


def _dot(xp, a, b):
    """Sums of products along the last dim: (*, n), (*, n) -> (*)."""
    if a.shape[-1] < 32:
        return (a * b).sum(axis=-1)
    return dots(a, b, xp)


def _blocks(rows, width):
    step = builtins.max(1, _BLOCK // builtins.max(1, width))
    return [slice(i, builtins.min(i + step, rows)) for i in range(0, rows, step)]


def _share(xp, work, count, elements):
    """work(slice) over `count` rows of `elements` in all: at once, or large ones in pieces on a few threads."""
    if elements < _LARGE or not hasattr(xp, "share"):
        work(slice(None))
    else:
        xp.share(work, count, elements)


# --- rows: (x - mean) / sqrt(var + eps) of each row, what layer and group norm share


def _standardize_rows(xp, rows, out, eps):
    """out[i] = (rows[i] - mean) * rstd; returns mean, rstd (n)."""
    count, width = rows.shape
    mean, rstd = xp.empty(count, out.dtype), xp.empty(count, out.dtype)
    for block in _blocks(count, width):
        part, target = rows[block], out[block]
        m = part.mean(axis=1, dtype=out.dtype)
        xp.subtract(part, m[:, None], out=target)
        r = 1 / xp.sqrt(_dot(xp, target, target) / width + eps)
        target *= r[:, None].astype(out.dtype)
        mean[block], rstd[block] = m, r
    return mean, rstd


# --- layer norm


def _layer_sizes(shape, normalized_shape):
    n = len(normalized_shape)
    return prod(shape[: len(shape) - n]), prod(normalized_shape)


def _layer_twin(grad, input, weight, normalized_shape, eps):
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, True)
    rstd = ((centred * centred).mean(dims, True) + eps).rsqrt()
    hat = centred * rstd
    g = grad if weight is None else grad * weight
    of_input = rstd * (g - g.mean(dims, True) - hat * (g * hat).mean(dims, True))
    lead = tuple(range(input.dim() - len(normalized_shape)))
    product = grad * hat
    return (
        of_input,
        product.sum(lead) if lead else product * 1,
        grad.sum(lead) if lead else grad * 1,
    )


@op(
    public=False,
    method=False,
    out=False,
    returns=("input", "weight", "bias"),
    tensors=("mean", "rstd"),
    why=WHY,
    large=16,
    generated="many",
)
@joint_derivative(
    "grad_output",
    "input",
    "weight",
    by=lambda grads, grad_output, input, weight, needs, normalized_shape, eps: vjp(
        lambda g, x, w: _layer_twin(g, x, w, normalized_shape, eps), (grad_output, input, weight), grads, needs
    ),
)
def native_layer_norm_backward(
    xp, grad_output, input, mean, rstd, weight=None, normalized_shape=(), eps=1e-5, parameters=True
):
    """The gradients of layer norm, those of its parameters (0) unless asked for.

    grad_output, input (*, S), mean, rstd (*), weight (S) -> (*, S), (S), (S).
    """
    count, width = _layer_sizes(input.shape, normalized_shape)
    x, g = _wide(input).reshape(count, width), _wide(grad_output).reshape(count, width)
    m, r = mean.reshape(count), rstd.reshape(count)
    w = None if weight is None else _wide(weight).reshape(width)
    of_input = xp.empty((count, width), x.dtype)
    of_weight, of_bias = (xp.zeros(width if parameters else 0, x.dtype) for _ in range(2))
    for block in _blocks(count, width):
        part, col = g[block], r[block][:, None]
        hat = x[block] - m[block][:, None]
        hat *= col
        target = of_input[block]
        if parameters:
            xp.multiply(part, hat, out=target)
            of_weight += summed(target, 0)
            of_bias += summed(part, 0)
        scaled = part if w is None else part * w
        hat *= (_dot(xp, scaled, hat) / width)[:, None]
        xp.subtract(scaled, hat, out=target)
        target -= scaled.mean(axis=1)[:, None]
        target *= col
    narrow, shape = input.dtype, normalized_shape if parameters else (0,)
    return (
        of_input.reshape(input.shape).astype(narrow, copy=False),
        of_weight.reshape(shape).astype(weight.dtype if weight is not None else narrow, copy=False),
        of_bias.reshape(shape).astype(weight.dtype if weight is not None else narrow, copy=False),
    )


def _layer_slopes(needs, grad, input, mean, rstd, *more):
    found = native_layer_norm_backward(grad, input, mean, rstd, *more, needs[1] or needs[2])
    if found[0]._edge is not None:
        guard(found[0], mean, rstd)
    return found


@op(
    returns=("output", "mean", "rstd"),
    nondifferentiable=("mean", "rstd"),
    out=False,
    method=False,
    large=16,
    keeps=("bias",),
    generated="many",
    autocast={"cuda": "float32"},
)
@joint_derivative(
    "input",
    "weight",
    "bias",
    by=lambda grad0, input, result1, result2, weight, normalized_shape, eps, needs: (
        _layer_slopes(needs, grad0, input, result1.detach(), result2.detach(), weight, tuple(normalized_shape), eps)
        if grad0 is not None
        else (None, None, None)
    ),
)
@samples(
    lambda t: [
        (t(3, 4), (4,), t(4), t(4), 1e-5),
        (t(2, 3, 4), (3, 4), t(3, 4), None, 1e-5),
        (t(5, 3), (3,), None, None, 0.1),
        (t(0, 3), (3,), t(3), t(3), 0.1),
    ]
)
def native_layer_norm(xp, input, normalized_shape: tuple[int, ...], weight=None, bias=None, eps: float = 1e-5):
    """(input - mean) / sqrt(var + eps) * weight + bias over the last dims (arXiv:1607.06450).

    input (*, S), weight (S), bias (S) -> (*, S), mean (*, 1), rstd (*, 1).
    """
    normalized_shape = tuple(normalized_shape)
    check_layer(input, normalized_shape, weight, bias)
    count, width = _layer_sizes(input.shape, normalized_shape)
    rows = _wide(input).reshape(count, width)
    out = xp.empty((count, width), rows.dtype)
    mean, rstd = _standardize_rows(xp, rows, out, eps)
    w = None if weight is None else weight.reshape(width).astype(out.dtype, copy=False)
    b = None if bias is None else bias.reshape(width).astype(out.dtype, copy=False)
    for block in _blocks(count, width) if w is not None or b is not None else ():
        if w is not None:
            out[block] *= w
        if b is not None:
            out[block] += b
    lead = (*input.shape[: input.ndim - len(normalized_shape)], *(1,) * len(normalized_shape))
    result = out.reshape(input.shape)
    results = (result, mean.reshape(lead), rstd.reshape(lead))
    return tuple(r.astype(input.dtype, copy=False) for r in results)


@op(public=False, out=False, method=False, large=16, generated="many", autocast={"cuda": "float32"})
@samples(
    lambda t: [
        (t.constant(t(3, 4)), (4,), t.constant(t(4)), t.constant(t(4)), 1e-5),
        (t.constant(t(2, 3, 4)), (3, 4), None, None, 0.1),
    ]
)
def layer_norm_inference(xp, input, normalized_shape: tuple[int, ...], weight=None, bias=None, eps: float = 1e-5):
    """`native_layer_norm` without gradients and statistics.  input (*, S), weight (S), bias (S) -> (*, S)."""
    return OPS["native_layer_norm"].kernel(xp, input, normalized_shape, weight, bias, eps)[0]


def check_layer(input, normalized_shape, weight, bias, ending="[*, "):
    dtype = input.dtype
    if (
        normalized_shape
        and input.shape[-len(normalized_shape) :] == normalized_shape
        and dtype.kind == "f"
        and (weight is None or (weight.shape == normalized_shape and weight.dtype is dtype))
        and (bias is None or (bias.shape == normalized_shape and bias.dtype is dtype))
    ):
        return  # the usual case
    if not normalized_shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    for label, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.shape != normalized_shape:
            raise RuntimeError(
                f"Expected {label} to be of same shape as normalized_shape, but got {label} of shape "
                f"{list(tensor.shape)} and normalized_shape = {list(normalized_shape)}"
            )
    n = len(normalized_shape)
    if input.ndim < n or tuple(input.shape[input.ndim - n :]) != normalized_shape:
        inner = ", ".join(map(str, normalized_shape))
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape {ending}{inner}], but got "
            f"input of size{list(input.shape)}"
        )
    if ending == "[*, ":
        _same_type(input, weight, bias)
        _floating(input, "LayerNormKernelImpl")


@composite(method=False, recorded="inference")
@samples(lambda t: [(t(3, 4), (4,), t(4), t(4)), (t(2, 3, 4), (3, 4))])
def layer_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
):
    """(input - mean) / sqrt(var + eps) * weight + bias over the last dims.  input (*, S), weight (S) -> (*, S)."""
    shape = tuple(normalized_shape)
    if mode.enabled:
        return native_layer_norm(input, shape, weight, bias, eps)[0]
    return layer_norm_inference(input, shape, weight, bias, eps)


# --- batch norm


def _per_channel(vector, ndim):
    return vector.reshape(1, -1, *(1,) * (ndim - 2))


def _batch_twin(grad, input, weight, eps):
    n = input.dim()
    dims = (0, *range(2, n))
    centred = input - input.mean(dims, True)
    rstd = ((centred * centred).mean(dims, True) + eps).rsqrt()
    hat = centred * rstd
    of_bias = grad.sum(dims)
    of_weight = (grad * hat).sum(dims)
    size = builtins.max(1, input.numel() // builtins.max(1, input.shape[1]))
    of_input = rstd * (grad - _per_channel(of_bias, n) / size - hat * _per_channel(of_weight, n) / size)
    return of_input if weight is None else of_input * _per_channel(weight, n), of_weight, of_bias


@op(
    public=False,
    method=False,
    out=False,
    returns=("input", "weight", "bias"),
    tensors=("mean", "rstd"),
    why=WHY,
    channels_last=True,
    large=16,
    generated="many",
    image_kernel=True,
)
@joint_derivative(
    "grad_output",
    "input",
    "weight",
    by=lambda grads, grad_output, input, weight, needs, eps: vjp(
        lambda g, x, w: _batch_twin(g, x, w, eps), (grad_output, input, weight), grads, needs
    ),
)
def batch_norm_backward(xp, grad_output, input, mean, rstd, weight=None, eps=1e-5):
    """The gradients of batch norm in training.  grad_output, input (N, C, *), mean, rstd (C) -> (N, C, *), (C), (C)."""
    shape = input.shape
    count, channels, length = shape[0], shape[1], prod(shape[2:])
    x, g = (
        _wide(input).reshape(count, channels, length),
        _wide(grad_output).reshape(count, channels, length),
    )
    m, r = _wide(mean)[:, None], _wide(rstd)
    products, sums = xp.zeros(channels, x.dtype), xp.zeros(channels, x.dtype)
    blocks = _blocks(count, channels * length)
    of_input = xp.empty((count, channels, length), x.dtype)
    for block in blocks:
        target = of_input[block]
        xp.subtract(x[block], m, out=target)
        products += _channel_dot(xp, g[block], target)
        sums += _channel_sum(xp, g[block])
    size = builtins.max(1, count * length)
    of_weight = products * r
    scale = r if weight is None else r * _wide(weight)
    slope, level = (-scale * r * of_weight / size)[:, None], (-scale * sums / size)[:, None]
    scale = scale[:, None]
    for block in blocks:
        target = of_input[block]
        target *= slope
        target += level
        target += g[block] * scale
    like = input.dtype if weight is None else weight.dtype
    return (
        follow(xp, of_input.reshape(shape).astype(input.dtype, copy=False), input),
        of_weight.astype(like, copy=False),
        sums.astype(like, copy=False),
    )


_SHORT = 1 << 12  # numbers that einsum, which does not sum pairwise, adds up


def _channel_sum(xp, a):
    """Sums over all but channels: (N, C, L) -> (C)."""
    if 32 <= a.shape[2] <= _SHORT and isinstance(a, np.ndarray):
        return summed(np.einsum("ncl->nc", a), 0)  # half of the time of numpy's sum
    return summed(a, (0, 2))


def _channel_dot(xp, a, b):
    """Sums of products over all but channels: (N, C, L), (N, C, L) -> (C)."""
    if a.shape[2] < 32:
        return summed(a * b, (0, 2))
    return summed(_dot(xp, a, b), 0)


@op(
    public=False,
    returns=("output", "mean", "rstd", "var"),
    nondifferentiable=("mean", "rstd", "var"),
    out=False,
    method=False,
    node="NativeBatchNormBackward0",
    channels_last=True,
    large=16,
    generated="many",
    image_kernel=True,
)
@joint_derivative(
    "input",
    "weight",
    "bias",
    by=lambda grad0, input, result1, result2, weight, eps: (
        batch_norm_backward(grad0, input, result1.detach(), result2.detach(), weight, eps)
        if grad0 is not None
        else (None, None, None)
    ),
)
@samples(
    lambda t: [
        (t(4, 3, 2), t(3), t(3), 1e-5),
        (t(5, 3), None, None, 0.1),
        (t(2, 3, 2, 2), t(3), None, 1e-5),
    ]
)
def batch_norm_train(xp, input, weight=None, bias=None, eps=1e-5):
    """Each channel normalized by the batch's own statistics (arXiv:1502.03167); var is the biased variance.

    input (N, C, *), weight (C), bias (C) -> (N, C, *), mean (C), rstd (C), var (C).
    """
    shape = input.shape
    count, channels, length = shape[0], shape[1], prod(shape[2:])
    x = _wide(input).reshape(count, channels, length)
    size = count * length
    blocks = _blocks(count, channels * length)
    mean = xp.zeros(channels, x.dtype)
    for block in blocks:
        mean += _channel_sum(xp, x[block])
    mean /= builtins.max(1, size)
    out = xp.empty((count, channels, length), x.dtype)
    var = xp.zeros(channels, x.dtype)
    for block in blocks:
        target = out[block]
        xp.subtract(x[block], mean[:, None], out=target)
        var += _channel_dot(xp, target, target)
    var /= builtins.max(1, size)
    rstd = (1 / xp.sqrt(var + eps)).astype(x.dtype)
    scale = (rstd if weight is None else rstd * _wide(weight))[:, None]
    for block in blocks:
        out[block] *= scale
        if bias is not None:
            out[block] += _wide(bias)[:, None]
    out = follow(xp, out.reshape(shape).astype(input.dtype, copy=False), input)
    return out, mean, rstd, var


def _eval_twin(grad, input, mean, var, weight, eps):
    n = input.dim()
    dims = (0, *range(2, n))
    rstd = (var + eps).rsqrt()
    of_weight = (grad * (input - _per_channel(mean, n)) * _per_channel(rstd, n)).sum(dims)
    of_input = grad * _per_channel(rstd if weight is None else rstd * weight, n)
    return of_input, of_weight, grad.sum(dims)


@op(
    public=False,
    method=False,
    out=False,
    returns=("input", "weight", "bias"),
    tensors=("mean", "var"),
    why=WHY,
    channels_last=True,
    large=16,
    generated="many",
    image_kernel=True,
)
@joint_derivative(
    "grad_output",
    "input",
    "weight",
    by=lambda grads, grad_output, input, mean, var, weight, needs, eps: vjp(
        lambda g, x, w: _eval_twin(g, x, mean.detach(), var.detach(), w, eps),
        (grad_output, input, weight),
        grads,
        needs,
    ),
)
def batch_norm_eval_backward(xp, grad_output, input, mean, var, weight=None, eps=1e-5):
    """The gradients of batch norm by given statistics.  grad_output, input (N, C, *), mean, var (C) -> (N, C, *),
    (C), (C)."""
    shape = input.shape
    count, channels, length = shape[0], shape[1], prod(shape[2:])
    x, g = (
        _wide(input).reshape(count, channels, length),
        _wide(grad_output).reshape(count, channels, length),
    )
    m, r = _wide(mean)[:, None], (1 / xp.sqrt(_wide(var) + eps)).astype(x.dtype)
    products, sums = xp.zeros(channels, x.dtype), xp.zeros(channels, x.dtype)
    scale = (r if weight is None else r * _wide(weight))[:, None]
    of_input = xp.empty((count, channels, length), x.dtype)
    for block in _blocks(count, channels * length):
        target = of_input[block]
        xp.subtract(x[block], m, out=target)
        products += _channel_dot(xp, g[block], target)
        sums += _channel_sum(xp, g[block])
        xp.multiply(g[block], scale, out=target)
    like = input.dtype if weight is None else weight.dtype
    return (
        follow(xp, of_input.reshape(shape).astype(input.dtype, copy=False), input),
        (products * r).astype(like, copy=False),
        sums.astype(like, copy=False),
    )


def _eval_grads(grad, input, weight, running_mean, running_var, needs, eps):
    if needs[1] or needs[2]:
        return batch_norm_eval_backward(grad, input, running_mean.detach(), running_var.detach(), weight, eps)
    n = input.dim()
    rstd = (running_var.detach() + eps).rsqrt()
    scale = rstd if weight is None else rstd * weight
    return depending((grad * _per_channel(scale, n).to(grad.dtype), None, None), (input, weight))


def scale_and_shift(xp, mean, var, weight, bias, eps):
    """The factor and the summand of each channel that batch norm by given statistics amounts to.  All (C)."""
    scale = xp.add(_wide(var), eps)
    xp.sqrt(scale, out=scale)
    scale = xp.divide(1 if weight is None else _wide(weight), scale)
    shift = xp.multiply(_wide(mean), scale)
    return scale, xp.negative(shift) if bias is None else xp.subtract(_wide(bias), shift)


FEW = 1 << 14  # elements up to which two passes by numpy cost less than a call of oneDNN
FEW_ROWS = 1 << 15  # the same of (N, C)


@op(
    public=False,
    out=False,
    method=False,
    node="NativeBatchNormBackward0",
    channels_last=True,
    large=2048,
    generated="many",
    image_kernel=True,
)
@joint_derivative("input", "weight", "bias", by=_eval_grads)
@samples(
    lambda t: [
        (t(4, 3, 2), t.of([0.1, 0.2, 0.3]), t.of([1.0, 0.5, 2.0]), t(3), t(3), 1e-5),
        (t(4, 2), t.of([0.1, 0.2]), t.of([1.0, 0.5]), None, None, 0.1),
    ]
)
def batch_norm_eval(xp, input, running_mean, running_var, weight=None, bias=None, eps=1e-5):
    """Each channel normalized by given statistics.  input (N, C, *), the others (C) -> (N, C, *)."""
    x = _wide(input)
    scale, shift = scale_and_shift(xp, running_mean, running_var, weight, bias, eps)
    if (x.size <= FEW or (x.ndim == 2 and x.size <= FEW_ROWS)) and x.dtype == scale.dtype == shift.dtype:
        if x.ndim > 2:
            each = (-1, *(1,) * (x.ndim - 2))
            scale, shift = scale.reshape(each), shift.reshape(each)
        out = xp.multiply(x, scale)
        xp.add(out, shift, out=out)
        return out if out.dtype == input.dtype else out.astype(input.dtype)
    out = xp.empty_like(x)
    many = x.shape[0] > 1 and x.ndim > 2 and x.flags.c_contiguous  # (N C, 1, *): small samples share a block
    shape = (-1, 1, *x.shape[2:]) if many else x.shape
    times = x.shape[0] if many else 1
    scale, shift = (
        xp.tile(v.astype(x.dtype, copy=False), times).reshape(-1, *(1,) * (x.ndim - 2 + many)) for v in (scale, shift)
    )
    x, made = x.reshape(shape), out.reshape(shape)
    axis = 0 if many else 1

    def work(rows):
        at = (slice(None),) * axis + (rows,)
        xp.multiply(x[at], scale[rows], out=made[at])
        made[at] += shift[rows]

    _share(xp, work, shape[axis] if axis else made.shape[0], x.size)
    return out.astype(input.dtype, copy=False)


def _check_batch(array, channels, running_mean, running_var, weight, bias, training):
    wanted, dtype = (channels,), array.dtype
    if training or (running_mean is not None and running_var is not None):
        for tensor in (running_mean, running_var, weight, bias):
            if tensor is not None and (tensor._array.shape != wanted or tensor._array.dtype is not dtype):
                break
        else:  # the usual case
            if dtype.kind != "f":
                _floating(array, "batch_norm")
            return
    if not training:
        for label, tensor in (("running_mean", running_mean), ("running_var", running_var)):
            if tensor is None:
                raise RuntimeError(f"{label} must be defined in evaluation mode")
    named = (
        ("running_mean", running_mean),
        ("running_var", running_var),
        ("weight", weight),
        ("bias", bias),
    )
    for label, tensor in named:
        if tensor is not None and tensor.numel() != channels:
            raise RuntimeError(f"{label} should contain {channels} elements not {tensor.numel()}")
    _floating(array, "batch_norm")
    parameters = (running_mean, weight, bias, running_var)
    _same_type(array, *(None if x is None else x._array for x in parameters))


@op(public=False, method=False, out=False, tensors=("running", "value"), blocks="elements", generated="many")
@samples(lambda t: [(t.constant(t(3)), t.constant(t(3)), 0.9, 0.1)])
def blended(xp, running, value, keep: float, share: float):
    """keep * running + share * value.  running, value (C) -> (C)."""
    return running * keep + (value * share).astype(running.dtype, copy=False)


def update_running(running, value, factor, momentum, seen=False):
    """running = (1 - momentum) running + momentum factor value, in place and without history.  Tensors (C).

    seen: the version shows it; else only what looks for `.data` that was set does.
    """
    array, found = running._array, value._array
    moved = run_direct(blended, array, found, 1 - momentum, factor * momentum)
    if moved is not NotImplemented:
        array[...] = moved
    else:
        array *= 1 - momentum
        array += (found * (factor * momentum)).astype(array.dtype, copy=False)
    if seen:
        running._vc[0] += 1
    else:
        running._replaced += 1


@composite(method=False)
@samples(lambda t: [(t(4, 3, 2), t(3), t(3), None, None, True, 0.1, 1e-5, True)])
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
):
    """Batch normalization (arXiv:1502.03167); in training updates the running statistics in place.

    input (N, C, *), all others (C) or None -> (N, C, *).
    """
    array = raw_array(input)
    channels = array.shape[1] if array.ndim > 1 else 0 if array.ndim else input.size(1)
    _check_batch(array, channels, running_mean, running_var, weight, bias, training)
    if array.ndim == 1:  # of no channels
        return batch_norm(input.reshape(0, 0), weight, bias, None, None, True, momentum, eps).sum(0)
    if not training:
        return batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
    output, mean, _, var = batch_norm_train(input, weight, bias, eps)
    track(running_mean, running_var, mean, var, array.size // builtins.max(1, channels), momentum)
    return output if running_mean is None and running_var is None else guard_again(output, running_mean, running_var)


def track(running_mean, running_var, mean, var, size, momentum):
    """Move the statistics, leaving their versions as torch does: a module may be called twice before one backward."""
    if not size:
        return
    if running_mean is not None:
        update_running(running_mean, mean, 1, momentum)
    if running_var is not None:
        update_running(running_var, var, size / builtins.max(1, size - 1), momentum)
