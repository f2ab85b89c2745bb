"""Negative log likelihood and cross entropy.

`softmax_nll` fuses log-softmax and the choice of the target class; its gradient is softmax(input) - onehot(target).
"""

from __future__ import annotations

from math import prod

from engine import dtypes
from engine.dispatch import composite, derivative, joint_derivative, op, samples
from engine.ops._vjp import WHY, vjp
from engine.ops.softmax import log_softmax, softmax


def _wide(array):
    return array.astype("float32") if array is not None and array.dtype.itemsize == 2 else array


def _flat(array, target):
    """Class scores as (N, C, L), target as (N, L)."""
    if array.ndim == 1:
        return array.reshape(1, -1, 1), target.reshape(1, 1)
    count, classes, length = array.shape[0], array.shape[1], prod(array.shape[2:])
    return array.reshape(count, classes, length), target.reshape(count, length)


def _chosen(xp, target, weight, classes, ignore_index, dtype):
    """(class or 0 where ignored, weight of each place: 0 where ignored).  target (N, L) -> both (N, L)."""
    target = target.astype("int64")
    valid = target != ignore_index
    where = xp.where(valid, target, 0)
    bad = (where < 0) | (where >= classes)
    if bool(bad.any()):
        raise IndexError(
            f"Target {int(where.reshape(-1)[int(xp.argmax(bad.reshape(-1)))])} is out of bounds."
        )
    if weight is None:
        return where, valid.astype(dtype)
    return where, xp.where(valid, xp.take(weight.astype(dtype), where), 0).astype(dtype)


def _reduced(xp, losses, weights, shape, reduction):
    """(result, sum of weights) of losses (N, L), already weighted."""
    total = weights.sum()
    if reduction == "none":
        return losses.reshape(shape), total
    result = losses.sum()
    return (result / total if reduction == "mean" else result), total


def _places(xp, where):
    count, length = where.shape
    return xp.arange(count).reshape(-1, 1), where, xp.arange(length).reshape(1, -1)


def _spread(xp, grad, weights, total, reduction):
    """The gradient of each place's loss: (N, L)."""
    if reduction == "none":
        return grad.reshape(weights.shape) * weights
    return weights * (grad / total if reduction == "mean" else grad)


_FORMULA = lambda grad0, target, weight, input_shape, result1, ignore_index, reduction: (
    nll_loss_backward(
        grad0, target, result1.detach(), tuple(input_shape), weight, ignore_index, reduction
    )
)


def _nll_samples(t, shapes):
    made = []
    for shape in shapes:
        target = t.integers(0, shape[1], shape[0], *shape[2:])
        made += [
            (t(*shape), target, None, -100, "mean"),
            (t(*shape), target, t.constant(t.positive(shape[1])), 1, "sum"),
            (t(*shape), target, t.constant(t.positive(shape[1])), 0, "none"),
        ]
    return made


def _nll(xp, input, target, weight, ignore_index, reduction):
    x, t = _flat(_wide(input), target)
    where, weights = _chosen(xp, t, weight, x.shape[1], ignore_index, x.dtype)
    picked = x[_places(xp, where)]
    losses = xp.where(weights == 0, 0, -picked * weights).astype(x.dtype)
    result, total = _reduced(xp, losses, weights, target.shape, reduction)
    return xp.asarray(result, dtype=input.dtype), xp.asarray(total, dtype=x.dtype)


@op(
    public=False, out=False, method=False, returns=("output", "total_weight"), nondifferentiable=("total_weight",),
    node="NllLossBackward0",
)  # fmt: skip
@derivative(input=_FORMULA)
@samples(lambda t: _nll_samples(t, [(4, 3)]))
def nll_loss_rows(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    """-weight[target] * input[target], reduced.  input (N, C) or (C), target (N) -> () or (N); sum of weights ()."""
    return _nll(xp, input, target, weight, ignore_index, reduction)


@op(
    public=False, out=False, method=False, returns=("output", "total_weight"), nondifferentiable=("total_weight",),
    node="NllLoss2DBackward0",
)  # fmt: skip
@derivative(input=_FORMULA)
@samples(lambda t: _nll_samples(t, [(2, 3, 4), (2, 3, 2, 2)]))
def nll_loss_maps(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    """-weight[target] * input[target], reduced.  input (N, C, *), target (N, *) -> () or (N, *); sum of weights ()."""
    return _nll(xp, input, target, weight, ignore_index, reduction)


@op(public=False, out=False, method=False, tensors=("total_weight",))
@derivative(
    grad_output=lambda grad, target, weight, ignore_index, reduction: nll_loss_maps(
        grad, target, weight, ignore_index, reduction
    )[0]
)
@samples(
    lambda t: [
        (t(), t.of([0, 2, 1]), t.of(3.0), (3, 4), None, -100, "mean"),
        (t(3), t.of([0, 2, 1]), t.of(1.0), (3, 4), t.constant(t.positive(4)), 2, "none"),
    ]
)
def nll_loss_backward(
    xp, grad_output, target, total_weight, size, weight=None, ignore_index=-100, reduction="mean"
):
    """The gradient of nll_loss.  grad_output () or (N, *), target (N, *) -> size (N, C, *)."""
    g = _wide(grad_output)
    result = xp.zeros(tuple(size), g.dtype)
    rows, t = _flat(result, target)
    where, weights = _chosen(xp, t, weight, rows.shape[1], ignore_index, g.dtype)
    rows[_places(xp, where)] = -_spread(xp, g, weights, total_weight, reduction)
    return result.astype(grad_output.dtype, copy=False)


def _fused_twin(grad, input, target, weight, total, ignore_index, reduction):
    """The gradient of softmax_nll out of small ops: softmax times the place's weight, minus it at the target."""
    size = tuple(input.shape)
    at_target = nll_loss_backward(grad, target, total, size, weight, ignore_index, reduction)
    dim = 1 if len(size) > 1 else 0
    return at_target - softmax(input, dim) * at_target.sum(dim, True)


@op(public=False, out=False, method=False, tensors=("total_weight", "lse"), why=WHY)
@joint_derivative(
    "grad_output", "input",
    by=lambda grad, grad_output, input, target, weight, total_weight, needs, ignore_index, reduction: vjp(
        lambda g, x: _fused_twin(g, x, target, weight, total_weight, ignore_index, reduction),
        (grad_output, input), (grad,), needs,
    ),
)  # fmt: skip
def softmax_nll_backward(
    xp,
    grad_output,
    input,
    target,
    total_weight,
    lse,
    weight=None,
    ignore_index=-100,
    reduction="mean",
):
    """The gradient of softmax_nll.  grad_output () or (N, *), input (N, C, *), lse (N, *) -> (N, C, *)."""
    x, t = _flat(_wide(input), target)
    where, weights = _chosen(xp, t, weight, x.shape[1], ignore_index, x.dtype)
    scale = _spread(xp, _wide(grad_output), weights, total_weight, reduction).astype(
        x.dtype, copy=False
    )
    result = x - lse.reshape(where.shape)[:, None, :]
    xp.exp(result, out=result)
    result *= scale[:, None, :]
    result[_places(xp, where)] -= scale
    return result.reshape(input.shape).astype(input.dtype, copy=False)


def _fused_formula(grad0, input, target, weight, result1, result2, ignore_index, reduction):
    return softmax_nll_backward(
        grad0, input, target, result1.detach(), result2.detach(), weight, ignore_index, reduction
    )


def _fused(xp, input, target, weight, ignore_index, reduction):
    x, t = _flat(_wide(input), target)
    where, weights = _chosen(xp, t, weight, x.shape[1], ignore_index, x.dtype)
    if x.shape[1] == 0 or x.shape[0] == 0:
        lse = xp.zeros(where.shape, x.dtype)
    else:
        top = x.max(axis=1)
        shifted = x - top[:, None, :]
        xp.exp(shifted, out=shifted)
        lse = top + xp.log(shifted.sum(axis=1))
    picked = x[_places(xp, where)]
    losses = xp.where(weights == 0, 0, (lse - picked) * weights).astype(x.dtype)
    result, total = _reduced(xp, losses, weights, target.shape, reduction)
    shape = target.shape
    return (
        xp.asarray(result, dtype=input.dtype),
        xp.asarray(total, dtype=x.dtype),
        lse.reshape(shape),
    )


@op(
    public=False, out=False, method=False, returns=("output", "total_weight", "lse"),
    nondifferentiable=("total_weight", "lse"), node="NllLossBackward0",
)  # fmt: skip
@derivative(input=_fused_formula)
@samples(lambda t: _nll_samples(t, [(4, 3)]))
def softmax_nll_rows(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    """nll_loss of log_softmax(input).  input (N, C) or (C), target (N) -> () or (N); sum of weights (); lse (N)."""
    return _fused(xp, input, target, weight, ignore_index, reduction)


@op(
    public=False, out=False, method=False, returns=("output", "total_weight", "lse"),
    nondifferentiable=("total_weight", "lse"), node="NllLoss2DBackward0",
)  # fmt: skip
@derivative(input=_fused_formula)
@samples(lambda t: _nll_samples(t, [(2, 3, 4)]))
def softmax_nll_maps(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    """nll_loss of log_softmax(input).  input (N, C, *), target (N, *) -> () or (N, *); weights (); lse (N, *)."""
    return _fused(xp, input, target, weight, ignore_index, reduction)


def _check(input, target, weight):
    """torch's conditions; returns whether input has dims beyond (N, C)."""
    ndim, shape, size = input.dim(), list(input.shape), list(target.shape)
    if ndim < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {ndim})")
    if ndim != 1 and shape[0] != (size[0] if size else shape[0]):
        raise ValueError(
            f"Expected input batch_size ({shape[0]}) to match target batch_size ({size[0]})."
        )
    if ndim == 1 and len(size) == 1 and size[0] != 1:
        raise ValueError(
            f"For 1D input, 1D target must have size 1, but got target size: {size[0]}"
        )
    classes = shape[0] if ndim == 1 else shape[1]
    if ndim <= 2:
        if len(size) > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    elif ndim == 4:
        if len(size) != 3:
            raise RuntimeError(
                f"only batches of spatial targets supported (3D tensors) but got targets of dimension: {len(size)}"
            )
        if shape[2:] != size[1:]:
            raise RuntimeError(f"size mismatch (got input: {shape} , target: {size}")
    elif [shape[0], *shape[2:]] != size:
        raise RuntimeError(f"Expected target size {[shape[0], *shape[2:]]}, got {size}")
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {dtypes.scalar_name(target.dtype)}"
        )
    if weight is not None:
        if weight.dim() != 1 or weight.numel() != classes:
            raise RuntimeError(
                f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor "
                f"of shape: {list(weight.shape)}"
            )
        if weight.dtype is not input.dtype:
            raise RuntimeError(
                f"expected scalar type {dtypes.scalar_name(input.dtype)} but found {dtypes.scalar_name(weight.dtype)}"
            )
    return ndim > 2


@composite(public=False, method=False)
@samples(
    lambda t: [
        (t(4, 3), t.of([0, 2, 1, 1])),
        (t(2, 3, 2, 2), t.integers(0, 3, 2, 2, 2), None, 0, "sum"),
    ]
)
def nll_loss_nd(input, target, weight=None, ignore_index=-100, reduction="mean"):
    """-weight[target] * input[target], reduced.  input (N, C, *), target (N, *) -> () or (N, *)."""
    function = nll_loss_maps if _check(input, target, weight) else nll_loss_rows
    if input.dim() == 1 and target.dim() == 1:  # one sample: the loss is a scalar
        return function(input, target.reshape(()), weight, ignore_index, reduction)[0]
    return function(input, target, weight, ignore_index, reduction)[0]


def _probabilities(input, target, weight, ignore_index, reduction, label_smoothing):
    if not target.is_floating_point():
        raise RuntimeError(
            "Expected floating point type for target with class probabilities, got "
            f"{dtypes.scalar_name(target.dtype)}"
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    _check_class_weight(weight, classes)
    if label_smoothing > 0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    losses = log_softmax(input, dim) * target
    if weight is not None:
        losses = losses * weight.reshape(-1, *(1,) * (input.dim() - dim - 1))
    if reduction == "none":
        return -losses.sum(dim)
    total = -losses.sum()
    return (
        total / (input.numel() // classes)
        if reduction == "mean" and input.numel()
        else (total / 0 if reduction == "mean" else total)
    )


def _check_class_weight(weight, classes):
    if weight is not None and (weight.dim() != 1 or weight.numel() != classes):
        raise RuntimeError(
            "cross_entropy: weight tensor should be defined either for all "
            f"{classes} classes or no classes but got weight tensor of shape: {list(weight.shape)}"
        )


def _smoothed(input, target, weight, ignore_index, reduction, label_smoothing):
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    scores = log_softmax(input, dim)
    nll = nll_loss_nd(scores, target, weight, ignore_index, reduction)
    if weight is not None:
        smooth = -(scores * weight.reshape(-1, *(1,) * (input.dim() - dim - 1))).sum(dim)
    else:
        smooth = -scores.sum(dim)
    ignored = target == ignore_index
    smooth = smooth.masked_fill(ignored, 0.0)
    if reduction == "mean":
        kept = target[~ignored]
        smooth = smooth.sum() / (kept.numel() if weight is None else weight.detach()[kept].sum())
    elif reduction == "sum":
        smooth = smooth.sum()
    return nll * (1 - label_smoothing) + smooth * (label_smoothing / classes)


@composite(public=False, method=False)
@samples(
    lambda t: [
        (t(4, 3), t.of([0, 2, 1, 1])),
        (t(4, 3), t.of([0, 2, 1, 1]), t.constant(t.positive(3)), 1, "mean", 0.2),
        (t(4, 3), t.uniform(0.1, 1, 4, 3), None, -100, "sum", 0.1),
        (t(3), t.of(1)),
        (t(2, 3, 2), t.integers(0, 3, 2, 2), None, -100, "none"),
    ]
)
def cross_entropy_loss(
    input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0
):
    """nll_loss of log_softmax; target classes (N, *) or probabilities (N, C, *).  input (N, C, *) -> () or (N, *)."""
    if input.dim() and tuple(input.shape) == tuple(target.shape):
        return _probabilities(input, target, weight, ignore_index, reduction, label_smoothing)
    if label_smoothing:
        if not 0.0 < label_smoothing <= 1.0:
            raise RuntimeError(
                f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}"
            )
        return _smoothed(input, target, weight, ignore_index, reduction, label_smoothing)
    more = _check(input, target, weight)
    if not input.is_floating_point():
        raise NotImplementedError(
            f"\"log_softmax_lastdim_kernel_impl\" not implemented for '{dtypes.scalar_name(input.dtype)}'"
        )
    if input.dim() == 1 and target.dim() == 1:
        return softmax_nll_rows(input, target.reshape(()), weight, ignore_index, reduction)[0]
    function = softmax_nll_maps if more else softmax_nll_rows
    return function(input, target, weight, ignore_index, reduction)[0]
