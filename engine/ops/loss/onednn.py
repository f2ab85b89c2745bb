"""Cross entropy with oneDNN's softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.cpu.fast import fast
from engine.backends.onednn import arrays
from engine.backends.onednn.primitives import usable
from engine.dispatch import kernel
from engine.ops.loss import cross_entropy

_TINY = np.float32(1e-30)  # of a probability: below, its logarithm comes from the scores


def _losses(xp: Any, x: Any, places: Any, weight: Any, smoothing: float) -> Any:
    count, classes, length = x.shape
    p = empty(x.shape, x.dtype)
    if length != 1 or not arrays.softmax(x, p, 1, False):
        return NotImplemented
    rows = x.reshape(count, classes)
    chosen = p.reshape(-1)[places]
    losses = -np.log(chosen)
    low = np.flatnonzero(~(chosen > _TINY))
    if low.size:
        few = rows[low]
        top = few.max(axis=1)
        lse = top + np.log(np.exp(few - top[:, None]).sum(axis=1))
        losses[low] = lse - x.reshape(-1)[places[low]]
        if not math.isfinite(float(np.add.reduce(losses[low]))):
            return NotImplemented  # of a row with nan or inf oneDNN makes nan in some places only
    losses = losses.reshape(count, 1)
    if not smoothing:
        return p, losses, None
    w = np.ones(classes, np.float32) if weight is None else np.ascontiguousarray(weight)
    sums = np.empty((count, 1), np.float32)
    if not arrays.sgemm(rows, w.reshape(-1, 1), sums):
        return NotImplemented
    lse = losses + x.reshape(-1)[places].reshape(count, 1)
    return p, losses, lse * w.sum() - sums


def _forward(op: Any) -> None:
    @kernel(op, "onednn")
    def _(xp, input, target, weight=None, ignore_index=-100, reduction="mean", smoothing=0.0):
        if not usable(input, weight):
            return NotImplemented
        return cross_entropy.softmax_nll(fast, input, target, weight, ignore_index, reduction, smoothing, _losses)


_forward(cross_entropy.softmax_nll_rows)
_forward(cross_entropy.softmax_nll_maps)
_forward(cross_entropy.softmax_nll_smoothed)


@kernel(cross_entropy.softmax_nll_backward, "onednn")
def _backward(
    xp, output, grad_output, target, total_weight, weight=None, ignore_index=-100, reduction="mean", smoothing=0.0
):
    if not usable(output, grad_output, weight):
        return NotImplemented
    return cross_entropy.softmax_minus_target(
        fast, output, grad_output, target, total_weight, weight, ignore_index, reduction, smoothing, arrays.scale
    )
