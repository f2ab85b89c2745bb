"""Gradients of the weights of convolutions of images in torch's order by generated code (the extra `jit`), where there
is no library: the kernel `weights` of engine/kernels/tiles.py.

Images and the gradients of results are copied to rows of one pitch once: what a place of the kernel meets is then one
run of memory, without columns.  Steps of one, one or two dims.  Each geometry is tried: engine/kernels/README.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import empty, threads
from engine.core.arrays import Array
from engine.core.geometry import ConvGeometry
from engine.core.lru import LRU
from engine.kernels import tiles
from engine.ops.convolution.generated import code, side
from engine.ops.generated import launch
from engine.ops.generated.route import GeneratedRoute, address, finite, lanes, packed, registers, several, shared

__all__ = ["backward_weight", "serves"]

_WORK = 32  # multiplications that take the time of one element of other kernels
_FEWEST = 1 << 17  # multiplications below which the plain route is not worth leaving
_F32 = np.dtype("float32")

_entries: dict[Hashable, launch.Entry] = {}
_known: LRU[Hashable, _Weight] = LRU(1024)  # by geometry


def serves(g: Array, x: Array, size: Sequence[int], geometry: ConvGeometry) -> bool:
    """Return whether the gradient of a weight of shape `size` is worth a trial, of float32 in torch's order."""
    stride, padding, dilation, _ = geometry
    kernel, out = size[2:], g.shape[2:]
    if any(s != 1 for s in stride) or len(kernel) not in (1, 2) or prod(kernel) == 1 or not prod(size):
        return False
    if g.shape[0] * prod(size) * prod(out) < _FEWEST or not all(
        a.dtype == _F32 and a.flags.c_contiguous for a in (g, x)
    ):
        return False
    fits = all(m == n + 2 * p - d * (k - 1) for m, n, p, d, k in zip(out, x.shape[2:], padding, dilation, kernel))
    return fits and bool(side(_F32, x.shape[2:], stride) and side(_F32, out, stride))


class _Weight(GeneratedRoute):
    """The gradient of the weight of one geometry."""

    def __init__(self, x: Sequence[int], size: Sequence[int], g: Sequence[int], geometry: ConvGeometry) -> None:
        _, padding, dilation, groups = geometry
        self.made, self.out, self.images = tuple(size), tuple(g[2:]), x[0]
        per_out, depth = size[0] // groups, prod(size[1:])
        rows, columns = (4, 6) if registers() > 16 else (3, 3)
        self.tile = min(rows, per_out), min(columns, depth)
        reach = [n + 2 * p for n, p in zip(x[2:], padding)]
        pitch = reach[-1]
        length = (prod(self.out[:-1]) - 1) * pitch + self.out[-1]
        step, slope_step = (16 * (-(-n // 16) | 1) for n in (prod(reach), length))
        taps = [
            sum(i * d * m for i, d, m in zip(at, dilation, (pitch, 1)[-len(reach) :]))
            for at in itertools.product(*map(range, size[2:]))
        ]
        self.offsets = np.add.outer(np.arange(size[1]) * step, np.array(taps)).astype(np.int64).reshape(-1)
        self.sides = [
            (side(_F32, n, (1,) * len(n)), n, at, pitch, apart, channels)
            for n, at, apart, channels in (
                (x[2:], tuple(padding), step, x[1]),
                (self.out, (0,) * len(self.out), slope_step, g[1]),
            )
        ]
        self.numbers = dict(length=length, depth=depth, outputs=per_out, channels=size[1], groups=groups)
        self.numbers.update(images=self.images, step=step, slope_step=slope_step)
        self.units = groups * -(-per_out // self.tile[0])
        self.multiplications = self.images * prod(self.out) * prod(size)
        entry = _entries.setdefault((lanes(), *self.tile), launch.Entry())
        super().__init__("the gradient of a convolution's weight", entry, self.multiplications // _WORK, self.built)

    def built(self) -> Any:
        """The machine code."""
        return code(tiles.weights, lanes(), *self.tile)

    def _padded(self, array: Array, number: int) -> Array:
        """The channels of all images, padded; what a vector reads beyond their end is there."""
        wide, size, padding, pitch, step, channels = self.sides[number]
        count = self.images * channels
        made = empty((count * step + lanes(),), _F32)
        made[count * step :] = 0
        height, above = (size[0], padding[0]) if len(size) > 1 else (1, 0)
        given = dict(height=height, width=size[-1], above=above, left=padding[-1], pitch=pitch, step=step)
        args = packed(tiles.PADDED, image=address(array), result=address(made), **given)
        shared(code(tiles.padded, wide), args, 0, count, min(count, several(2 * made.size)))
        return made

    def run(self, g: Array, x: Array) -> Array:
        """The gradient."""
        image, slope, made = self._padded(x, 0), self._padded(g, 1), empty(self.made, _F32)
        arrays = dict(image=address(image), slope=address(slope), offset=address(self.offsets), made=address(made))
        args = packed(tiles.WEIGHTS, **arrays, **self.numbers)
        shared(self.built(), args, 0, self.units, min(self.units, several(self.multiplications)))
        return made


def backward_weight(
    g: Array, x: Array, size: Sequence[int], geometry: ConvGeometry, plain: Callable[[], Array]
) -> Array:
    """The gradient, by `plain` until this code has proved itself, and where something is not finite: times a zero
    between rows that is nan."""
    key = x.shape, tuple(size), geometry, threads.get_num_threads()
    trial = _known.made(key, lambda: _Weight(x.shape, size, g.shape, geometry))
    made: Array = trial.chosen(lambda: trial.run(g, x), plain, (g, x))
    return made if finite(made) else plain()
