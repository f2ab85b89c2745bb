"""Losses between an input and a target, and distances, with `reduction` "mean", "sum" or "none"."""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, guard_again, own
from engine.backends.cpu import empty, threads
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, wrap_dim
from engine.core.grad_mode import no_grad
from engine.dispatch import composite, derivative, op, samples
from engine.ops.activation import choose, logsigmoid
from engine.ops.pointwise.arithmetic import keep_where, not_implemented
from engine.tensor import Tensor


def reduced(loss, reduction):
    """The mean, the sum or all of `loss`."""
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _reduce(xp, loss, reduction, dtype):
    if reduction == "mean":
        loss = loss.mean() if loss.size else loss.sum() * float("nan")
    elif reduction == "sum":
        loss = loss.sum()
    return xp.asarray(loss, dtype=dtype)


_SEVERAL = 1 << 15  # elements from which a loss is worth computing in pieces


def _over(xp, each, arrays, reduction, dtype):
    """each(xp, *arrays) of one shape, element by element, then reduced; what it makes of many stays in the cache."""
    first = arrays[0]
    fit = first.size >= _SEVERAL and all(a.shape == first.shape and a.flags.c_contiguous for a in arrays)
    if xp is not np or not fit:
        return _reduce(xp, each(xp, *arrays), reduction, dtype)
    flat, made = [a.reshape(-1) for a in arrays], empty(first.shape, dtype) if reduction == "none" else None
    pieces = [slice(i, i + _SEVERAL) for i in range(0, first.size, _SEVERAL)]
    sums = np.empty(len(pieces), "float64" if dtype == "float64" else "float32")

    def work(at):
        with np.errstate(all="ignore"):
            loss = each(xp, *(a[pieces[at]] for a in flat))
            if made is None:
                sums[at] = loss.sum()
            else:
                made.reshape(-1)[pieces[at]] = loss

    threads.run(work, list(range(len(pieces))))
    if made is not None:
        return made
    return np.asarray(sums.sum() / first.size if reduction == "mean" else sums.sum(), dtype=dtype)


def _share(grad, shape, reduction):
    """Return the gradient of each element before reduction."""
    if reduction != "mean":
        return grad
    return grad / math.prod(shape) if math.prod(shape) else grad


def _wide(array):
    return array.astype("float32") if array.dtype.itemsize == 2 else array


def _floating(array, kernel):
    found = dtypes.from_numpy(array.dtype)
    if found.category < dtypes.FLOATING:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_name(found)}'")


def _real(array, kernel):
    """`_floating`, and not complex."""
    _floating(array, kernel)
    if array.dtype.kind == "c":
        raise not_implemented(kernel, array)


def _single(input, kernel):
    """`_real`, and of 32 bits at least."""
    _real(input._array, kernel)
    if input._array.dtype.itemsize == 2:
        raise not_implemented(kernel, input._array)


def _pairs(t, make=None):
    make = make or (lambda: (t(3, 4), t(3, 4)))
    return [(*make(), how) for how in ("mean", "sum", "none")]


def _difference_slope(grad, bound, factor, *others):
    """The gradient of what `clamped_difference` clamps."""
    grad_output, input, target = others
    slope = grad * grad_output * factor
    return slope if bound == math.inf else keep_where(slope, (input - target).abs() <= bound)


@op(broadcast=True, public=False, method=False, out=False, tensors=("grad_output", "input", "target"), generated="some")
@derivative(
    grad_output=lambda grad, input, target, bound, factor: clamped_difference(grad, input, target, bound, factor),
    input=lambda grad, grad_output, input, target, bound, factor: _difference_slope(
        grad, bound, factor, grad_output, input, target
    ),
    target=lambda grad, grad_output, input, target, bound, factor: (
        -_difference_slope(grad, bound, factor, grad_output, input, target)
    ),
)
@samples(
    lambda t: [
        (t(3, 4), t(3, 4), t(3, 4), 0.7, 2.0),
        (t(), t(3, 4), t(3, 4), math.inf, 2.0),
    ]
)
def clamped_difference(xp, grad_output, input, target, bound: float, factor: float):
    """grad_output * factor * (input - target, from -bound to bound): the gradient of squares and of what is near them.

    All (*), or broadcast -> (*).
    """
    difference = input - target
    if bound != math.inf:
        difference = xp.minimum(xp.maximum(difference, -bound), bound)
    return (grad_output * (difference * factor)).astype(grad_output.dtype, copy=False)


def _slope(grad, input, target, reduction, bound, factor):
    """The gradient of a loss of the difference with respect to the input."""
    share = _share(grad, input.shape, reduction)
    if input.dtype is target.dtype is share.dtype:
        made = clamped_difference(share, input, target, bound, factor)
    else:
        difference = input - target
        made = share * factor * (difference if bound == math.inf else difference.clamp(-bound, bound))
    return guard(made, grad, input, target)


def squared(xp, x, t):
    """The loss of each element, as that of the functions below."""
    d = _wide(x) - _wide(t)
    return d * d


@op(
    public=False,
    out=False,
    method=False,
    promote="default",
    node="MseLossBackward0",
    autocast="float32",
    generated="many",
    large=1 << 15,
)
@derivative(
    input=lambda grad, input, target, reduction: _slope(grad, input, target, reduction, math.inf, 2.0),
    target=lambda grad, input, target, reduction: -_slope(grad, input, target, reduction, math.inf, 2.0),
)
@samples(lambda t: _pairs(t))
def mse_loss(xp, input, target, reduction="mean"):
    """(input - target)^2, reduced.  input (*), target (*) -> () or (*)."""
    _real(input, "mse_cpu")

    return _over(xp, squared, (input, target), reduction, input.dtype)


def _smooth_slope(grad, input, target, reduction, beta):
    if beta:
        return _slope(grad, input, target, reduction, beta, 1 / beta)
    return guard(_share(grad, input.shape, reduction) * ((input - target) / beta).clamp(-1, 1), grad, input, target)


def smooth_l1(beta, xp, x, t):
    """|d| - beta / 2, or a parabola between -beta and beta."""
    d = xp.abs(_wide(x) - _wide(t))
    return choose(xp, d < beta, d * d * (0.5 / beta), d - 0.5 * beta)


@op(
    public=False,
    out=False,
    method=False,
    promote="default",
    node="SmoothL1LossBackward0",
    autocast="float32",
    generated="many",
    large=1 << 15,
)
@derivative(
    input=lambda grad, input, target, reduction, beta: _smooth_slope(grad, input, target, reduction, beta),
    target=lambda grad, input, target, reduction, beta: -_smooth_slope(grad, input, target, reduction, beta),
)
@samples(lambda t: [(*p, 0.7) for p in _pairs(t)])
def smooth_l1_loss(xp, input, target, reduction="mean", beta: float = 1.0):
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2.  input (*), target (*) -> () or (*)."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    _real(input, "smooth_l1_cpu")

    return _over(xp, functools.partial(smooth_l1, beta), (input, target), reduction, input.dtype)


def _check_huber(arrays):
    input, target = (dtypes.from_numpy(a.dtype) for a in arrays)
    if input.category < dtypes.FLOATING <= target.category:
        raise RuntimeError(f"result type {_scalar(target)} can't be cast to the desired output type {_scalar(input)}")


def huber(delta, xp, x, t):
    """delta (|d| - delta / 2), or a parabola between -delta and delta."""
    d = xp.abs(_wide(x) - _wide(t))
    return choose(xp, d <= delta, d * d * 0.5, delta * (d - 0.5 * delta))


@op(
    public=False,
    out=False,
    method=False,
    promote="default",
    node="HuberLossBackward0",
    check=_check_huber,
    autocast="float32",
    generated="many",
    large=1 << 15,
)
@derivative(
    input=lambda grad, input, target, reduction, delta: _slope(grad, input, target, reduction, delta, 1.0),
    target=lambda grad, input, target, reduction, delta: -_slope(grad, input, target, reduction, delta, 1.0),
)
@samples(lambda t: [(*p, 0.7) for p in _pairs(t)])
def huber_loss(xp, input, target, reduction="mean", delta: float = 1.0):
    """d^2 / 2 where d = |input - target| <= delta, else delta (d - delta / 2).  input (*), target (*) -> () or (*)."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    _real(input, "huber_cpu")

    return _over(xp, functools.partial(huber, delta), (input, target), reduction, input.dtype)


def _soft_margin_slope(grad, input, target, reduction):
    return guard(-_share(grad, input.shape, reduction) * target * (-target * input).sigmoid(), grad, input)


def soft_margin(xp, x, t):
    """log(1 + exp(-t x)), whose exponential is at most 1."""
    z = -_wide(t) * _wide(x)
    return xp.maximum(z, 0) + xp.log1p(xp.exp(-xp.abs(z)))


@op(
    public=False,
    out=False,
    method=False,
    promote="default",
    node="SoftMarginLossBackward0",
    autocast="float32",
    generated="many",
    large=1 << 15,
)
@derivative(input=lambda grad, input, target, reduction: _soft_margin_slope(grad, input, target, reduction))
@samples(lambda t: _pairs(t, lambda: (t(3, 4), t.constant(t(3, 4)))))
def soft_margin_loss(xp, input, target, reduction="mean"):
    """log(1 + exp(-target * input)).  input (*), target (*) of +-1 -> () or (*)."""
    if input.dtype.kind == "b" or target.dtype.kind == "b":
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead."
        )
    if input.dtype.kind in "iu":
        name = _scalar(dtypes.from_numpy(input.dtype))
        raise RuntimeError(f"result type Float can't be cast to the desired output type {name}")

    return _over(xp, soft_margin, (input, target), reduction, input.dtype)


def _check_logits(input, target):
    _real(input, "log_sigmoid_cpu")
    if target.dtype.kind in "iub":
        have, want = (_scalar(dtypes.from_numpy(x.dtype)) for x in (input, target))
        raise RuntimeError(f"result type {have} can't be cast to the desired output type {want}")


def _bce_weighted(grad, input, weight, reduction):
    g = _share(grad, input.shape, reduction)
    return g if weight is None else g * weight


def crossed(xp, x, t, *weight):
    """-w (t log(x) + (1 - t) log(1 - x)), logs not below -100."""
    x, t = _wide(x), _wide(t)
    loss = (t - 1) * xp.maximum(xp.log1p(-x), -100) - t * xp.maximum(xp.log(x), -100)
    return loss * _wide(weight[0]) if weight else loss


@op(public=False, out=False, method=False, node="BinaryCrossEntropyBackward0", autocast={"cpu": "float32"})
@derivative(
    input=lambda grad, input, target, weight, reduction: guard(
        _bce_weighted(grad, input, weight, reduction) * (input - target) / ((1 - input) * input).clamp(min=1e-12),
        grad,
        target,
    ),
    target=lambda grad, input, weight, reduction: (
        _bce_weighted(grad, input, weight, reduction)
        * ((1 - input).log().clamp(min=-100) - input.log().clamp(min=-100))
    ),
)
@samples(
    lambda t: [
        (t.uniform(0.1, 0.9, 3, 4), t.uniform(0, 1, 3, 4), None, "mean"),
        (t.uniform(0.1, 0.9, 3, 4), t.uniform(0, 1, 3, 4), t.constant(t.positive(3, 4)), "sum"),
        (t.uniform(0.1, 0.9, 3), t.uniform(0, 1, 3), None, "none"),
    ]
)
def binary_cross_entropy(xp, input, target, weight=None, reduction="mean"):
    """-weight (target log(input) + (1 - target) log(1 - input)), logs not below -100.  three (*) -> () or (*)."""
    if input.dtype != target.dtype:
        have, want = dtypes.from_numpy(target.dtype), dtypes.from_numpy(input.dtype)
        raise RuntimeError(f"Found dtype {dtypes.scalar_name(have)} but expected {dtypes.scalar_name(want)}")
    _real(input, "binary_cross_entropy")
    x = _wide(input)
    if x.size and not bool(((x >= 0) & (x <= 1)).all()):
        raise RuntimeError("all elements of input should be between 0 and 1")

    return _over(xp, crossed, (input, target) if weight is None else (input, target, weight), reduction, input.dtype)


def crossed_logits(xp, x, t):
    """`crossed` of sigmoid(x), from exponentials that are at most 1."""
    x, t = _wide(x), _wide(t)
    return (1 - t) * x + (xp.log1p(xp.exp(-xp.abs(x))) + xp.maximum(-x, 0))


@op(
    public=False,
    out=False,
    method=False,
    promote="default",
    node="BinaryCrossEntropyWithLogitsBackward0",
    check=lambda arrays: _check_logits(*arrays),
    autocast="float32",
    generated="many",
    large=1 << 15,
)
@derivative(
    input=lambda grad, input, target, reduction: guard(
        _share(grad, input.shape, reduction) * (input.sigmoid() - target), grad
    ),
    target=lambda grad, input, reduction: -_share(grad, input.shape, reduction) * own(input),
)
@samples(lambda t: _pairs(t))
def bce_with_logits(xp, input, target, reduction="mean"):
    """binary_cross_entropy of sigmoid(input), stably.  input (*), target (*) -> () or (*)."""
    _real(input, "log_sigmoid_cpu")

    return _over(xp, crossed_logits, (input, target), reduction, input.dtype)


@composite(public=False, method=False)
@samples(
    lambda t: [
        (t(3, 4), t.uniform(0, 1, 3, 4), None, None, "mean"),
        (
            t(3, 4),
            t.uniform(0, 1, 3, 4),
            t.constant(t.positive(4)),
            t.constant(t.positive(4)),
            "sum",
        ),
    ]
)
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction="mean"
):
    """binary_cross_entropy of sigmoid(input), stably; pos_weight multiplies positive targets.  (*), (*) -> ()."""
    if weight is None and pos_weight is None:
        return bce_with_logits(input, target, reduction)
    softplus = -logsigmoid(input)  # one op, so that its slope is also right where its two halves meet, at 0
    if pos_weight is not None:
        softplus = ((pos_weight - 1) * target + 1) * softplus
    loss = guard_again(guard((1 - target) * input + softplus, target), weight, pos_weight)
    return reduced(loss if weight is None else loss * weight, reduction)


@composite(public=False, method=False, autocast="float32")
@samples(lambda t: [(t(3, 4), t.positive(3, 4)), (t(3), t(3), "none", True)])
def kl_div(input: Tensor, target: Tensor, reduction="mean", log_target: bool = False):
    """target * (log(target) - input), input in log space.  input (*), target (*) -> () or (*)."""
    kinds = input.dtype.category, target.dtype.category
    if dtypes.COMPLEX in kinds:
        raise RuntimeError("kl_div: Complex inputs not supported.")
    if min(kinds) < dtypes.FLOATING:
        raise RuntimeError("kl_div: Integral inputs not supported.")
    if log_target:
        return reduced(target.exp() * (target - input), reduction)
    return reduced(target.xlogy(target) - target * input, reduction)


@composite(public=False, method=False, autocast="float32")
@samples(
    lambda t: [
        (t(3, 4), t.constant(t.positive(3, 4))),
        (t.positive(3), t.constant(t.positive(3)), False, True),
    ]
)
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction="mean"
):
    """exp(input) - target * input, or input - target * log(input + eps).  input (*), target (*) -> () or (*)."""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced(loss, reduction)


@composite(method=False)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 3), t(3), -1)])
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8):
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along dim.  x1 (*, D, *), x2 broadcast with it -> (*, *)."""
    common = dtypes.promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise RuntimeError("expected common dtype to be floating point, yet common dtype is " + _scalar(common))
    shape = broadcast_shapes(x1.shape, x2.shape)
    along = wrap_dim(dim, len(shape)) if shape else 0
    unit = []
    for x in (x1, x2):  # each as it is but for the dim itself: of all pairs of vectors a length is found once
        sizes = [1] * (len(shape) - x.dim()) + list(x.shape)
        if shape:
            sizes[along] = shape[along]
        x = x.to(common).expand(sizes)
        size = x.norm(2, dim=dim, keepdim=True).clone() if x.dim() else x.abs().clone()
        with no_grad():
            size.clamp_(min=eps)
        unit.append(x / size)
    return (unit[0] * unit[1]).sum(dim)


def _scalar(dtype):
    return dtypes.scalar_name(dtype)


@composite(method=False)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(3, 4), t(4), 1.0, 1e-6, True)])
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
    """p-norm of x1 - x2 + eps along the last dim.  x1 (*, D), x2 (*, D) -> (*)."""
    return name_node((x1 - x2 + eps).norm(p, dim=-1, keepdim=keepdim), "NormBackward1")


def warn_sizes(input, target):
    """torch's warning where a loss broadcasts."""
    if target.size() != input.size():
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). This will "
            "likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=3,
        )
