"""Repeated elements as generated kernels (the extra `jit`).

A view with strides of 0 shows them, which a kernel copies: for numpy that is several calls on views, and a loop for
each line.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from engine.dispatch import kernel
from engine.kernels import copies
from engine.ops import rearranging
from engine.ops.generated.layers import run

_DIMS = 5  # of an array, once those that are one run of memory are joined
_WRITTEN = 4  # elements of a line that are written out
_NEAR = 64  # bytes: neighbours that are farther apart are left to copies that read lines whole


def _lines(shape: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Sizes and strides with dims that are one run, or one step, joined."""
    sizes: list[int] = []
    steps: list[int] = []
    for n, s in zip(shape, strides):
        if n == 1:
            continue
        if sizes and steps[-1] == n * s:
            sizes[-1] *= n
            steps[-1] = s
        else:
            sizes.append(n)
            steps.append(s)
    return sizes or [1], steps or [0]


def _arranged(xp: Any, x: Any, shape: Sequence[int], strides: Sequence[int], made_shape: Sequence[int]) -> Any:
    """The elements of `x`, read with a shape and strides in bytes from its first one, in a new array."""
    item = x.itemsize
    if item not in (1, 2, 4, 8) or 0 in shape or any(s % item for s in strides):
        return NotImplemented
    sizes, steps = _lines(shape, strides)
    if len(sizes) > _DIMS or abs(steps[-1]) > _NEAR:
        return NotImplemented
    *outer, n = sizes
    *apart, step = [s // item for s in steps]
    outer, apart = outer or [1], apart or [0]
    made = xp.empty(tuple(made_shape), x.dtype)
    write = copies.copied(len(outer), n if n <= _WRITTEN else 0)
    run(write, [x, made], [*outer[1:], *apart, n, step], prod(outer), n, f"uint{8 * item}")
    return made


@kernel(rearranging.repeat, "cpu", only_launches=True)
def _repeat(xp, input, repeats):
    lead = len(repeats) - input.ndim
    if lead < 0 or min(repeats, default=1) < 1:
        return NotImplemented
    own, strides = (1,) * lead + input.shape, (0,) * lead + input.strides
    shape = [size for pair in zip(repeats, own) for size in pair]
    steps = [step for s in strides for step in (0, s)]
    return _arranged(xp, input, shape, steps, [r * n for r, n in zip(repeats, own)])


@kernel(rearranging.repeat_each, "cpu", only_launches=True)
def _repeat_each(xp, input, repeats, dim):
    shape = (*input.shape[: dim + 1], repeats, *input.shape[dim + 1 :])
    return _arranged(xp, input, shape, (*input.strides[: dim + 1], 0, *input.strides[dim + 1 :]), shape)
