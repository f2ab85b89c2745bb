"""Cross-entropy of pixels and connectionist temporal classification as generated kernels (the extra `jit`).

They are the kernels "cpu" of their ops; what they do not serve, targets that are no class as well, is left to the other
route.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine.dispatch import kernel
from engine.kernels import losses
from engine.ops.generated.layers import plain, run
from engine.ops.loss import cross_entropy, ctc

_WORK = 8  # passes of an element
_CLASSES = 1 << 10  # whose exponentials are added one after the other: of more the rounding grows


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


def _paths(xp: Any, input: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Any:
    """(the arrays of `losses._Paths`, its numbers, the work of a row); None for what is left to the other route."""
    if input.ndim != 3 or not plain(input) or 0 in input_lengths:
        return None
    length, count, classes = input.shape
    most = max(target_lengths)
    rows = targets if min(target_lengths) == most else [(*row, *(blank,) * (most - len(row))) for row in targets]
    labels = np.array(rows, np.int64).reshape(count, most)
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
