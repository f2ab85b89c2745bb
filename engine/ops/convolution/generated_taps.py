"""Weights of generated convolutions of channels-last images by places of the kernel, and back: engine/kernels/taps.py.

Copies of squares in registers, which numpy makes element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import relayout
from engine.core.arrays import Array
from engine.kernels import taps
from engine.ops.generated.route import address, lanes, linked, packed, several, shared

__all__ = ["join", "spread"]

_F32 = np.dtype("float32")
_WORK = 8  # multiplications that take the time of an element


@functools.cache
def _code(function: Callable[..., str], side: int) -> Any:
    return linked(function, side)


def _lanes(places: int, panel: int) -> int:
    """The side of the squares, 0 where there are none."""
    return next((n for n in (16, 8, 4) if n <= min(lanes(), places) and panel % n == 0), 0)


def spread(w: Array, parts: Array, panel: int, of_input: bool) -> None:
    """parts (outputs / panel, *kernel, depth, panel) of a weight (O, C, *kernel): O outputs of the depth C, or for the
    gradient of the input (of_input) C outputs of the depth O."""
    w = w.view(np.ndarray)
    (made, summed), kernel = w.shape[:2], w.shape[2:]
    places = prod(kernel)
    depth, outputs = (made, summed) if of_input else (summed, made)
    side = _lanes(places, panel)
    if not side or not w.flags.c_contiguous:
        rows = np.moveaxis(w, (0, 1), (-2, -1) if of_input else (-1, -2))
        rows = rows.reshape(*kernel, depth, outputs // panel, panel)
        relayout.copy(parts.reshape(outputs // panel, *kernel, depth, panel), np.moveaxis(rows, -2, 0))
        return
    steps = (summed * places, places)
    args = packed(
        taps.SPREAD,
        whole=address(w),
        parts=address(parts),
        depth=depth,
        outputs=outputs,
        taps=places,
        panel=panel,
        step_depth=steps[0 if of_input else 1],
        step_outputs=steps[1 if of_input else 0],
    )
    shared(_code(taps.spread, side), args, 0, depth, min(depth, several(w.size * _WORK)))


def join(parts: Array, out: Array) -> None:
    """out (outputs, depth, *kernel), contiguous, of parts (*kernel, depth, outputs)."""
    outputs, depth, *kernel = out.shape
    side = _lanes(prod(kernel), outputs)
    if not side:
        relayout.copy(out, np.moveaxis(parts, (-1, -2), (0, 1)))
        return
    args = packed(
        taps.JOINED, parts=address(parts), whole=address(out), depth=depth, outputs=outputs, taps=prod(kernel)
    )
    shared(_code(taps.joined, side), args, 0, depth, min(depth, several(out.size * _WORK)))
