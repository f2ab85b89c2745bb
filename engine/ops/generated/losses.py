"""Losses as generated kernels (the extra `jit`): of elements, cross-entropy of pixels, connectionist temporal
classification.

They are the kernels "cpu" of their ops; what they do not serve, targets that are no class as well, is left to the other
route.
"""

from __future__ import annotations

import functools
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from engine.dispatch import kernel
from engine.kernels import losses
from engine.ops import loss
from engine.ops.cuda import _rows
from engine.ops.cuda.elementwise import kernel_from
from engine.ops.generated import launch
from engine.ops.generated.layers import FLOATS, plain, run
from engine.ops.loss import cross_entropy, ctc
from engine.ops.reduction.cuda import serving

_WORK = 8  # passes of an element
_PARAMETERS = 4
_FEW = 1 << 15  # elements that one thread adds up in float64, in one kernel
_RUN = 1 << 12  # elements whose losses are added in a few lanes
_CLASSES = 1 << 10  # whose exponentials are added one after the other: of more the rounding grows

_known: dict[str, dict[tuple[float, ...], Any]] = {}


def _elements(op: Any, each: Any) -> None:
    """The losses of elements, added up: each(xp, input, target), behind the op's parameter if it has one.

    A parameter is a constant of the code, so that there are kernels for the first few alone.
    """
    kernels: dict[tuple[float, ...], Any] = {}  # for what is not added up

    @kernel(op, "cpu")
    @serving
    def _(xp, input, target, reduction="mean", *given):
        runs, apart = input.size // _RUN, reduction == "none"
        if not apart and (not plain(input, target) or input.shape != target.shape):
            return NotImplemented
        if input.dtype not in FLOATS or target.dtype != input.dtype:
            return NotImplemented
        known = _known.setdefault(op.__name__, {})
        if given not in known:
            if len(known) >= _PARAMETERS or any(n <= 0 for n in given):
                return NotImplemented
            known[given] = functools.partial(each, *given) if given else each
        code = known[given]
        if apart:
            if given not in kernels:
                written = lambda xp, x, t: code(xp, x, t).astype(x.dtype, copy=False)
                kernels[given] = kernel_from(f"{op.__name__}_each", written)
            return kernels[given](xp, input, target)
        if input.size <= _FEW:
            share = lambda xp, count, total: (total / count if reduction == "mean" else total).astype(input.dtype)
            wide = lambda xp, x, t: code(xp, x, t).astype("float64")
            arrays, key = [a.reshape(1, -1) for a in (input, target)], (given, reduction)
            name = f"{op.__name__}_of_few"
            (found,) = _rows.reduce(xp, name, ["sum"], wide, share, arrays, (1,), [input.dtype], key=key)
            return found.reshape(())
        total = 0.0
        with np.errstate(all="ignore"):
            if rest := input.size - runs * _RUN:
                total = code(np, *[a.reshape(-1)[-rest:] for a in (input, target)]).sum(dtype="float64")
            arrays = [a.reshape(-1)[: runs * _RUN].reshape(runs, _RUN) for a in (input, target)]
            whole = lambda xp, count, total: total
            (sums,) = _rows.reduce(xp, op.__name__, ["sum"], code, whole, arrays, (1,), [input.dtype], key=given)
            total += sums.sum(dtype="float64")
            return np.asarray(total / input.size if reduction == "mean" else total, input.dtype)


_elements(loss.mse_loss, loss.squared)
_elements(loss.smooth_l1_loss, loss.smooth_l1)
_elements(loss.huber_loss, loss.huber)
_elements(loss.soft_margin_loss, loss.soft_margin)
_elements(loss.bce_with_logits, loss.crossed_logits)


@kernel(cross_entropy.softmax_nll_maps, "cpu")
def _softmax_nll_maps(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    if weight is not None or input.ndim < 3 or not plain(input) or target.dtype != np.int64:
        return NotImplemented
    (count, classes), length, kind = input.shape[:2], prod(input.shape[2:]), input.dtype
    if classes > _CLASSES or target.shape != (count, *input.shape[2:]) or not target.flags.c_contiguous:
        return NotImplemented
    pieces = -(-length // losses.WIDTH)
    p, each, sums = xp.empty(input.shape, kind), xp.empty(target.shape, kind), xp.empty(target.shape, kind)
    total, counted = xp.empty((count * pieces,), kind), xp.empty((count * pieces,), kind)
    wrong = xp.empty((count * pieces,), "int32")
    arrays = [input, target, p, each, sums, total, counted, wrong]
    work = classes * min(length, losses.WIDTH) * _WORK
    run(losses.softmax_losses_of_maps, arrays, [classes, length, pieces, ignore_index], count * pieces, work)
    if wrong.any():
        return NotImplemented
    weights = np.asarray(counted.sum(dtype="float64"), kind)
    if reduction == "none":
        return each, weights, p
    lost = total.sum(dtype="float64")
    with np.errstate(all="ignore"):
        found = lost / weights if reduction == "mean" else lost
    return np.asarray(found, kind), weights, p


def _classes(input: Any, target: Any, *others: Any) -> bool:
    return bool(
        plain(input, *others)
        and target.dtype == np.int64
        and target.flags.c_contiguous
        and target.ndim == 1
        and 0 < target.size <= _RUN
    )


@kernel(cross_entropy.nll_loss_rows, "cpu")
def _nll_loss_rows(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    if reduction == "none" or input.ndim != 2 or not _classes(input, target, weight):
        return NotImplemented
    if target.size != len(input) or (weight is not None and weight.shape != input.shape[1:]):
        return NotImplemented
    loss, total, wrong = xp.empty((), input.dtype), xp.empty((), input.dtype), xp.empty((1,), "int32")
    given = [] if weight is None else [weight]
    write = losses.chosen_losses(bool(given), reduction == "mean")
    numbers = [*input.shape, ignore_index]
    run(write, [input, target, *given, loss, total, wrong], numbers, 1, target.size * _PARAMETERS)
    launch.refuse_if(wrong)
    return loss, total


@kernel(cross_entropy.nll_loss_backward, "cpu", only_launches=True)
def _nll_loss_backward(xp, grad_output, target, total_weight, size, weight=None, ignore_index=-100, reduction="mean"):
    if reduction == "none" or len(size) != 2 or not _classes(grad_output, target, total_weight, weight):
        return NotImplemented
    if target.size != size[0] or not size[1] or (weight is not None and weight.shape != tuple(size[1:])):
        return NotImplemented
    made, given = xp.empty(tuple(size), grad_output.dtype), [] if weight is None else [weight]
    write = losses.chosen_gradient(bool(given), reduction == "mean")
    run(write, [grad_output, target, total_weight, *given, made], [size[1], ignore_index], size[0], size[1])
    return made


def _paths(xp: Any, input: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Any:
    """(the arrays of `losses._Paths`, its numbers, the work of a row); None for what is left to the other route."""
    if input.ndim != 3 or not plain(input) or 0 in input_lengths:
        return None
    length, count, classes = input.shape
    most = max(target_lengths)
    rows = targets if min(target_lengths) == most else [(*row, *(blank,) * (most - len(row))) for row in targets]
    labels = np.fromiter(chain.from_iterable(rows), np.int64, count * most).reshape(count, most)
    if most and int(labels.view("uint64").max()) >= classes:  # a negative one is huge
        return None
    states = -(-(2 * most + 1) // losses.ALIGNED) * losses.ALIGNED
    scratch = [
        xp.empty((count, states), "int32"),
        xp.empty((count, states + 2), input.dtype),
        xp.empty((count, length, states + 2), input.dtype),
    ]
    arrays = [input, labels, np.array(input_lengths, np.int64), np.array(target_lengths, np.int64), *scratch]
    return arrays, [count, classes, length, states, most, blank], length * states * _WORK


@kernel(ctc.ctc_rows, "cpu")
def _ctc_rows(xp, input, targets, input_lengths, target_lengths, blank, zero_infinity):
    found = _paths(xp, input, targets, input_lengths, target_lengths, blank)
    if found is None:
        return NotImplemented
    arrays, numbers, work = found
    made = xp.empty((input.shape[1],), input.dtype)
    run(losses.ctc_losses, [*arrays, made], numbers, made.size, work)
    if zero_infinity:
        made[made == np.inf] = 0
    return made


@kernel(ctc.ctc_backward, "cpu")
def _ctc_backward(xp, grad_output, input, targets, input_lengths, target_lengths, blank, zero_infinity):
    found = _paths(xp, input, targets, input_lengths, target_lengths, blank)
    if found is None or grad_output.dtype != input.dtype:
        return NotImplemented
    arrays, numbers, work = found
    count, states = arrays[4].shape
    made, kind = xp.empty(input.shape, input.dtype), input.dtype
    given = xp.ascontiguousarray(grad_output)
    scratch = [xp.empty((count, states + 2), kind), xp.empty((count, states), kind)]
    work += input.shape[0] * (states + input.shape[2]) * _WORK
    run(losses.ctc_gradient(bool(zero_infinity)), [*arrays, given, made, *scratch], numbers, count, work)
    return made
