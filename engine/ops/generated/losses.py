"""Cross-entropy of pixels as a generated kernel (the extra `jit`).

It is the kernel "cpu" of its op; what it does not serve, targets that are no class as well, is left to the other route.
"""

from __future__ import annotations

from math import prod

import numpy as np

from engine.dispatch import kernel
from engine.kernels import losses
from engine.ops.generated.layers import plain, run
from engine.ops.loss import cross_entropy

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
