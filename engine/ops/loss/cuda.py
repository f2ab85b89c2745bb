"""Cross-entropy: softmax, losses and weights in one kernel per row; the gradient in another."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.dispatch import kernel
from engine.kernels import rows
from engine.ops.cuda import _faults, _rows
from engine.ops.cuda._launch import Unfit, strides_of
from engine.ops.loss import cross_entropy
from engine.ops.reduction.cuda import known, serving


def _class_dim(array: Any) -> int:
    return 1 if array.ndim > 1 else 0


def _sum(xp: Any, name: str, array: Any) -> Any:
    if not array.ndim:
        return array
    plain = lambda xp, x: x
    kept = lambda xp, count, total: total
    (found,) = _rows.reduce(xp, name, ["sum"], plain, kept, [array], tuple(range(array.ndim)), [array.dtype])
    return found


def _check(input: Any, target: Any, weight: Any) -> Any:
    """(wide dtype, dim of the classes, shape of the rows).  Raises Unfit."""
    known(input, target, weight)
    wide = np.dtype("float32") if input.dtype.itemsize == 2 else input.dtype
    dim = _class_dim(input)
    shape = tuple([n for d, n in enumerate(input.shape) if d != dim])
    if input.dtype.kind not in "fV" or target.shape != shape or target.dtype.kind not in "iu":
        raise Unfit("operands")
    if weight is not None and weight.dtype != input.dtype:
        raise Unfit("the weight's type")
    return wide, dim, shape


def _forward(xp: Any, input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, smoothing: float) -> Any:
    wide, dim, shape = _check(input, target, weight)
    classes = input.shape[dim]
    p = xp.empty(input.shape, input.dtype)
    losses, weights, bad = xp.empty(shape, wide), xp.empty(shape, wide), xp.empty(shape, "int32")
    more = [xp.empty(shape, wide)] if smoothing else []
    given = [] if weight is None else [weight]
    none = (0,)
    strides = [_rows.parted(input, (dim,)), (strides_of(target), none)]
    strides += [((0,) * len(shape), strides_of(a)) for a in given]
    strides += [_rows.parted(p, (dim,)), *[(strides_of(a), none) for a in (losses, weights, bad, *more)]]
    flags = bool(given), bool(smoothing)
    _rows.run(
        "cross_entropy",
        lambda r: rows.softmax_losses(r, *flags),
        [input, target, *given, p, losses, weights, bad, *more],
        4 + len(more),
        shape,
        (classes,),
        strides,
        [("int64", ignore_index)],
        flags,
    )
    _faults.look(bad, lambda: _out_of_bounds(xp, target, bad))
    if smoothing:
        losses = losses * wide.type(1 - smoothing) + more[0] * wide.type(smoothing / classes)
    total = _sum(xp, "total_weight", weights)
    if reduction == "none":
        result = losses
    else:
        result = _sum(xp, "losses", losses)
        result = result / total if reduction == "mean" else result
    return result.astype(input.dtype, copy=False), total, p


def _out_of_bounds(xp: Any, target: Any, bad: Any) -> IndexError:
    first = int(xp.argmax(bad.reshape(-1)))
    return IndexError(f"Target {int(target.reshape(-1)[first])} is out of bounds.")


def _register(op: Any) -> None:
    @kernel(op, "cuda")
    @serving
    def _(xp, input, target, weight=None, ignore_index=-100, reduction="mean", smoothing=0.0):
        return _forward(xp, input, target, weight, ignore_index, reduction, smoothing)


_register(cross_entropy.softmax_nll_rows)
_register(cross_entropy.softmax_nll_maps)
_register(cross_entropy.softmax_nll_smoothed)


@kernel(cross_entropy.softmax_nll_backward, "cuda")
@serving
def _backward(
    xp, output, grad_output, target, total_weight, weight=None, ignore_index=-100, reduction="mean", smoothing=0.0
):
    wide, dim, shape = _check(output, target, weight)
    known(grad_output, total_weight)
    classes = output.shape[dim]
    each = grad_output.astype(wide, copy=False)
    if reduction == "mean":
        each = (each / total_weight).astype(wide, copy=False)
    if reduction != "none" or each.shape != shape:
        each = xp.broadcast_to(xp.asarray(each), shape)
    made = xp.empty(output.shape, output.dtype)
    given = [] if weight is None else [weight]
    none = (0,)
    strides = [_rows.parted(output, (dim,)), (strides_of(each), none), (strides_of(target), none)]
    strides += [((0,) * len(shape), strides_of(a)) for a in given]
    strides += [_rows.parted(made, (dim,))]
    flags = bool(given), bool(smoothing)
    numbers = [("int64", ignore_index), (wide.name, 1 - smoothing), (wide.name, smoothing / classes)]
    _rows.run(
        "cross_entropy_backward",
        lambda r: rows.softmax_losses_backward(r, *flags),
        [output, each, target, *given, made],
        1,
        shape,
        (classes,),
        strides,
        numbers,
        flags,
    )
    return made
