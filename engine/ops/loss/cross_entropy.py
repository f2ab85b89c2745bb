"""Negative log likelihood and cross entropy.

`softmax_nll` fuses log-softmax and the choice of the target class.  The softmax is all it keeps for its gradient,
softmax(input) - onehot(target) in one pass, and a differentiable output of its own: so is that gradient.
"""

from __future__ import annotations

from math import nan, prod

from engine.autograd.versions import own
from engine.core import dtypes
from engine.dispatch import composite, derivative, op, samples
from engine.ops.dependence import depending
from engine.ops.softmax import log_softmax, softmax_backward
from engine.tensor import Tensor, raw_array

_FEW = 1024  # elements from which oneDNN's softmax is the faster
_LARGE = 1 << 17  # elements worth several blocks


def _wide(array):
    return array.astype("float32") if array is not None and array.dtype.itemsize == 2 else array


def _flat(array, target):
    """Class scores as (N, C, L), target as (N, L)."""
    if array.ndim == 1:
        return array.reshape(1, -1, 1), target.reshape(1, 1)
    count, classes, length = array.shape[0], array.shape[1], prod(array.shape[2:])
    return array.reshape(count, classes, length), target.reshape(count, length)


def _chosen(xp, target, weight, classes, ignore_index, dtype):
    """(class or 0 where ignored, weight of each place or None for 1 everywhere, which count or None for all).

    target (N, L) -> each (N, L); weights are 0 where ignored.
    """
    if target.dtype.itemsize != 8:
        target = target.astype("int64")
    inside = target.size and int(target.view("uint64").max()) < classes  # a negative one is huge
    if inside and not 0 <= ignore_index < classes:
        return target, None if weight is None else xp.take(weight.astype(dtype), target), None
    valid = target != ignore_index
    where = xp.where(valid, target, 0)
    bad = (where < 0) | (where >= classes)
    if bool(bad.any()):
        raise IndexError(f"Target {int(where.reshape(-1)[int(xp.argmax(bad.reshape(-1)))])} is out of bounds.")
    if weight is None:
        return where, valid.astype(dtype), valid
    return where, xp.where(valid, xp.take(weight.astype(dtype), where), 0).astype(dtype), valid


def _total(xp, weights, where, dtype):
    """The sum of the weights of all places."""
    return xp.asarray(where.size if weights is None else weights.sum(), dtype=dtype)


def _reduced(losses, total, shape, reduction):
    """The result of losses (N, L), already weighted."""
    if reduction == "none":
        return losses.reshape(shape)
    return losses.sum() / total if reduction == "mean" else losses.sum()


def _at(xp, where, classes):
    """The places of the target classes (N, L) in the memory of (N, C, L)."""
    count, length = where.shape
    if length == 1:
        return where[:, 0] + xp.arange(0, count * classes, classes or 1)
    rows = (xp.arange(count) * (classes * length)).reshape(-1, 1)
    return where * length + rows + xp.arange(length)


def _spread(grad, total, shape, reduction):
    """The gradient of each place's loss before its weight: (N, L), or one for all."""
    if reduction == "none":
        return grad.reshape(shape)
    return grad / total if reduction == "mean" else grad


def _weighted(xp, each, weights, valid):
    """Gradients times weights; 0 where a target is ignored, also where all are and the mean's is not a number."""
    if weights is None:
        return each
    made = each * weights
    return made if valid is None else xp.where(valid, made, 0).astype(made.dtype)


def _nll_gradient(grad0, input, input_shape, target, weight, result1, ignore_index, reduction):
    gradient = nll_loss_backward(grad0, target, result1.detach(), tuple(input_shape), weight, ignore_index, reduction)
    return depending((gradient,), (input,), zero=True)[0]


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
    where, weights, _ = _chosen(xp, t, weight, x.shape[1], ignore_index, x.dtype)
    losses = -x.reshape(-1)[_at(xp, where, x.shape[1])].reshape(where.shape)
    if weights is not None:
        losses = xp.where(weights == 0, 0, losses * weights).astype(x.dtype)
    total = _total(xp, weights, where, x.dtype)
    return xp.asarray(_reduced(losses, total, target.shape, reduction), dtype=input.dtype), total


@op(
    public=False,
    out=False,
    method=False,
    returns=("output", "total_weight"),
    nondifferentiable=("total_weight",),
    node="NllLossBackward0",
    autocast="float32",
    large=512,
    generated="many",
)
@derivative(input=_nll_gradient)
@samples(lambda t: _nll_samples(t, [(4, 3)]))
def nll_loss_rows(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    """-weight[target] * input[target], reduced.  input (N, C) or (C), target (N) -> () or (N); sum of weights ()."""
    return _nll(xp, input, target, weight, ignore_index, reduction)


@op(
    public=False,
    out=False,
    method=False,
    returns=("output", "total_weight"),
    nondifferentiable=("total_weight",),
    node="NllLoss2DBackward0",
    autocast="float32",
)
@derivative(input=_nll_gradient)
@samples(lambda t: _nll_samples(t, [(2, 3, 4), (2, 3, 2, 2)]))
def nll_loss_maps(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    """-weight[target] * input[target], reduced.  input (N, C, *), target (N, *) -> () or (N, *); sum of weights ()."""
    return _nll(xp, input, target, weight, ignore_index, reduction)


@op(public=False, out=False, method=False, tensors=("total_weight",), generated="many")
@derivative(
    grad_output=lambda grad, target, total_weight, weight, ignore_index, reduction: (
        nll_loss_maps(grad, target, weight, ignore_index, "sum")[0] / total_weight
        if reduction == "mean"
        else nll_loss_maps(grad, target, weight, ignore_index, reduction)[0]
    )
)
@samples(
    lambda t: [
        (t(), t.of([0, 2, 1]), t.of(2.5), (3, 4), None, -100, "mean"),
        (t(3), t.of([0, 2, 1]), t.of(1.0), (3, 4), t.constant(t.positive(4)), 2, "none"),
    ]
)
def nll_loss_backward(xp, grad_output, target, total_weight, size, weight=None, ignore_index=-100, reduction="mean"):
    """The gradient of nll_loss.  grad_output () or (N, *), target (N, *) -> size (N, C, *)."""
    g = _wide(grad_output)
    result = xp.zeros(tuple(size), g.dtype)
    rows, t = _flat(result, target)
    where, weights, valid = _chosen(xp, t, weight, rows.shape[1], ignore_index, g.dtype)
    each = _weighted(xp, -_spread(g, total_weight, where.shape, reduction), weights, valid)
    places = _at(xp, where, rows.shape[1])
    result.reshape(-1)[places] = each.reshape(places.shape) if each.ndim else each
    return result.astype(grad_output.dtype, copy=False)


# --- with the softmax


def _share(xp, work, shape):
    """work(rows, columns) over the slices of (N, C, L) that are independent, blockwise where the array is large."""
    count, classes, length = shape
    whole = slice(None)
    if count * classes * length < _LARGE or not hasattr(xp, "share"):
        work(whole, whole)
    elif count > 1 or length == 1:
        xp.share(lambda rows: work(rows, whole), count, count * classes * length)
    else:
        xp.share(lambda columns: work(whole, columns), length, classes * length)


def softmax_losses(xp, x, places, weight, smoothing):
    """softmax of x (N, C, L) over C; -log of it at the target `places` (N, L); with smoothing the sum of weight times
    -log of it over C (N, L), else None."""
    p = xp.empty(x.shape, x.dtype)
    lse = xp.empty((x.shape[0], x.shape[2]), x.dtype)
    smooth = xp.empty(lse.shape, x.dtype) if smoothing else None
    w = None if weight is None else weight.astype(x.dtype).reshape(-1, 1)
    sum_w = x.shape[1] if w is None else w.sum()

    def work(rows, columns):
        part, out = x[rows, :, columns], p[rows, :, columns]
        top = part.max(axis=1, keepdims=True)
        xp.subtract(part, top, out=out)
        if smoothing:
            shifted = out.sum(axis=1) if w is None else (out * w).sum(axis=1)
        xp.exp(out, out=out)
        sums = out.sum(axis=1, keepdims=True)
        out /= sums
        log = xp.log(sums)[:, 0]
        xp.add(log, top[:, 0], out=lse[rows, columns])
        if smoothing:
            smooth[rows, columns] = log * sum_w - shifted

    if x.size:
        _share(xp, work, x.shape)
    lse -= x.reshape(-1)[places].reshape(lse.shape)
    return p, lse, smooth


def softmax_nll(xp, input, target, weight, ignore_index, reduction, smoothing=0.0, losses_of=softmax_losses):
    """The loss, the sum of weights and the softmax: what the ops below return.  `losses_of`: as `softmax_losses`."""
    x, t = _flat(xp.ascontiguousarray(_wide(input)), target)
    classes = x.shape[1]
    where, weights, valid = _chosen(xp, t, weight, classes, ignore_index, x.dtype)
    found = losses_of(xp, x, _at(xp, where, classes), weight, smoothing)
    if found is NotImplemented:
        return found
    p, losses, smooth = found
    if weights is not None:
        losses = xp.where(weights == 0, 0, losses * weights)
    if smoothing:
        smooth = smooth if valid is None else xp.where(valid, smooth, 0)
        losses = losses * (1 - smoothing) + smooth * (smoothing / (classes or nan))
    total = _total(xp, weights, where, x.dtype)
    result = xp.asarray(_reduced(losses, total, target.shape, reduction), dtype=input.dtype)
    return result, total, p.reshape(input.shape).astype(input.dtype, copy=False)


def _class_dim(tensor):
    return 1 if tensor.dim() > 1 else 0


def _of_grad(grad, output, grad_output, *rest):
    """The gradient of softmax_nll_backward's second input: it is linear in that."""
    found = grad * softmax_nll_backward(output, _ones(grad_output), *rest)
    return found.sum() if not grad_output.dim() else found.sum(_class_dim(output))


def _of_output(grad, output, grad_output, target, total, weight, ignore_index, reduction, smoothing):
    """The gradient of its first: what the softmax is multiplied with, minus that of a gradient at the targets."""
    if smoothing:
        some = output.detach().new_ones(output.shape[_class_dim(output)]) if weight is None else weight
        weight = some * (1 - smoothing) + some.sum() * (smoothing / some.numel())
    at_target = nll_loss_backward(grad_output, target, total, tuple(output.shape), weight, ignore_index, reduction)
    return -grad * at_target.sum(_class_dim(output), True)


def _ones(tensor):
    return tensor.detach().new_ones(tensor.shape)


@op(public=False, out=False, method=False, tensors=("total_weight",), large=1 << 16, generated="many")
@derivative(
    output=lambda grad, output, grad_output, target, total_weight, weight, ignore_index, reduction, smoothing: (
        _of_output(
            grad,
            output,
            grad_output,
            target,
            total_weight,
            weight,
            ignore_index,
            reduction,
            smoothing,
        )
    ),
    grad_output=lambda grad, output, grad_output, target, total_weight, weight, ignore_index, reduction, smoothing: (
        _of_grad(
            grad,
            output,
            grad_output,
            target,
            total_weight,
            weight,
            ignore_index,
            reduction,
            smoothing,
        )
    ),
)
@samples(
    lambda t: [
        (t(3, 4), t(), t.of([0, 2, 1]), t.of(2.5)),
        (t(3, 4), t(3), t.of([0, 2, 1]), t.of(1.0), t.constant(t.positive(4)), 2, "none", 0.2),
        (t(2, 4, 3), t(), t.integers(0, 4, 2, 3), t.of(2.5), None, 1, "mean", 0.1),
    ]
)
def softmax_nll_backward(
    xp, output, grad_output, target, total_weight, weight=None, ignore_index=-100, reduction="mean", smoothing=0.0
):
    """The gradient of softmax_nll.  output: softmax (N, C, *), grad_output () or (N, *), target (N, *) -> (N, C, *)."""
    return softmax_minus_target(
        xp, output, grad_output, target, total_weight, weight, ignore_index, reduction, smoothing
    )


def softmax_minus_target(
    xp, output, grad_output, target, total_weight, weight, ignore_index, reduction, smoothing, scaled=None
):
    """The kernel of softmax_nll_backward; `scaled(p, factor, out)`, if given, writes p times a number and says so."""
    p, t = _flat(xp.ascontiguousarray(_wide(output)), target)
    classes = p.shape[1]
    where, weights, valid = _chosen(xp, t, weight, classes, ignore_index, p.dtype)
    each = _spread(_wide(grad_output), total_weight, where.shape, reduction).astype(p.dtype)
    uniform, w = None, None
    at_target = factor = _weighted(xp, each, weights, valid)
    if smoothing:
        w = None if weight is None else weight.astype(p.dtype).reshape(-1, 1)
        uniform = each * p.dtype.type(smoothing / (classes or nan))
        if valid is not None:
            uniform = xp.where(valid, uniform, 0).astype(p.dtype)
        at_target = at_target * p.dtype.type(1 - smoothing)
        factor = at_target + uniform * (p.dtype.type(classes) if w is None else w.sum())
    result = xp.empty(output.shape, p.dtype)
    maps, line = result.reshape(p.shape), result.reshape(-1)

    def work(rows, columns):
        part = maps[rows, :, columns]
        xp.multiply(p[rows, :, columns], _part(factor, rows, columns), out=part)
        if smoothing:
            even = _part(uniform, rows, columns)
            part -= even if w is None else even * w

    if result.size and (scaled is None or smoothing or factor.ndim or not scaled(p, factor, maps)):
        _share(xp, work, p.shape)
    places = _at(xp, where, classes)
    line[places] -= at_target.reshape(places.shape) if at_target.ndim else at_target
    return result.astype(output.dtype, copy=False)


def _part(factor, rows, columns):
    return factor[rows, None, columns] if factor.ndim else factor


def _fused_formula(grad0, grad2, target, weight, result1, result2, ignore_index, reduction, smoothing=0.0):
    found = None
    if grad0 is not None:
        found = softmax_nll_backward(
            result2, own(grad0), target, result1.detach(), weight, ignore_index, reduction, smoothing
        )
    if grad2 is not None:
        second = softmax_backward(grad2, result2, _class_dim(result2))
        found = second if found is None else found + second
    return found


_PLAIN = lambda grad0, grad2, target, weight, result1, result2, ignore_index, reduction: _fused_formula(
    grad0, grad2, target, weight, result1, result2, ignore_index, reduction
)
_FUSED = {
    "public": False,
    "out": False,
    "method": False,
    "returns": ("output", "total_weight", "softmax"),
    "nondifferentiable": ("total_weight",),
    "large": _FEW,
}


@op(**_FUSED, node="NllLossBackward0", generated="many", autocast="float32")
@derivative(input=_PLAIN)
@samples(lambda t: _nll_samples(t, [(4, 3)]))
def softmax_nll_rows(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    """nll_loss of log_softmax(input).  input (N, C) or (C), target (N) -> () or (N); weights (); softmax (N, C)."""
    return softmax_nll(xp, input, target, weight, ignore_index, reduction)


@op(**_FUSED, node="NllLoss2DBackward0", generated="many", autocast="float32")
@derivative(input=_PLAIN)
@samples(lambda t: _nll_samples(t, [(2, 3, 4)]))
def softmax_nll_maps(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    """nll_loss of log_softmax(input).  input (N, C, *), target (N, *) -> () or (N, *); weights (); (N, C, *)."""
    return softmax_nll(xp, input, target, weight, ignore_index, reduction)


@op(**_FUSED, node="AddBackward0", generated="many", autocast="float32")
@derivative(
    input=lambda grad0, grad2, target, weight, result1, result2, ignore_index, reduction, smoothing: _fused_formula(
        grad0, grad2, target, weight, result1, result2, ignore_index, reduction, smoothing
    )
)
@samples(lambda t: [(*s, 0.2) for s in _nll_samples(t, [(4, 3), (2, 3, 4)])])
def softmax_nll_smoothed(xp, input, target, weight=None, ignore_index=-100, reduction="mean", smoothing=0.0):
    """The same with `smoothing` of each target's weight spread evenly over all classes (arXiv:1512.00567).

    input (N, C, *), target (N, *) -> () or (N, *); weights (); (N, C, *).
    """
    return softmax_nll(xp, input, target, weight, ignore_index, reduction, smoothing)


def _check(input, target, weight):
    """torch's conditions; returns whether input has dims beyond (N, C)."""
    scores, classes = raw_array(input), raw_array(target)
    if (
        scores.ndim == 2
        and classes.ndim == 1
        and weight is None
        and scores.shape[0] == classes.shape[0]
        and target.dtype is dtypes.int64
    ):
        return False  # the usual case
    ndim, shape, size = input.dim(), list(input.shape), list(target.shape)
    if ndim < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {ndim})")
    if ndim != 1 and shape[0] != (size[0] if size else 0):
        raise ValueError(
            f"Expected input batch_size ({shape[0]}) to match target batch_size ({size[0] if size else 0})."
        )
    if ndim == 1 and len(size) == 1 and size[0] != 1:
        raise ValueError(f"For 1D input, 1D target must have size 1, but got target size: {size[0]}")
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
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {dtypes.scalar_name(target.dtype)}")
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
def nll_loss_nd(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction="mean",
):
    """-weight[target] * input[target], reduced.  input (N, C, *), target (N, *) -> () or (N, *)."""
    function = nll_loss_maps if _check(input, target, weight) else nll_loss_rows
    if not input.is_floating_point():
        raise NotImplementedError(f"\"nll_loss_out_frame\" not implemented for '{dtypes.scalar_name(input.dtype)}'")
    if input.dim() == 1 and target.dim() == 1:  # one sample: the loss is a scalar
        return function(input, target.reshape(()), weight, ignore_index, reduction)[0]
    return function(input, target, weight, ignore_index, reduction)[0]


def _probabilities(input, target, weight, ignore_index, reduction, label_smoothing):
    if not target.is_floating_point():
        raise RuntimeError(
            f"Expected floating point type for target with class probabilities, got {dtypes.scalar_name(target.dtype)}"
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
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got "
            f"weight tensor of shape: {list(weight.shape)}"
        )


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
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction="mean",
    label_smoothing: float = 0.0,
):
    """nll_loss of log_softmax; target classes (N, *) or probabilities (N, C, *).  input (N, C, *) -> () or (N, *)."""
    shape = raw_array(input).shape
    if shape and shape == raw_array(target).shape:
        return _probabilities(input, target, weight, ignore_index, reduction, label_smoothing)
    if label_smoothing and not 0.0 < label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    more = _check(input, target, weight)
    if not input.is_floating_point():
        kernel = "log_softmax_lastdim_kernel_impl" if input.dim() < 3 else "log_softmax_kernel_impl"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_name(input.dtype)}'")
    if len(shape) == 1 and target.dim() == 1:
        target = target.reshape(())
    if label_smoothing:
        return softmax_nll_smoothed(input, target, weight, ignore_index, reduction, label_smoothing)[0]
    function = softmax_nll_maps if more else softmax_nll_rows
    return function(input, target, weight, ignore_index, reduction)[0]
