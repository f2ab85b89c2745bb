"""3x3 convolutions of stride 1 with fewer multiplications: Winograd's F(2x2, 3x3) (arXiv:1509.09308).

The output is cut into tiles of 2x2, each made of 4x4 elements of the padded input with 16 multiplications where 36
would do; summed over channels these are 16 matrix products.  Here the input is split by the parity of row and column:
element (i, j) of a tile is then a plane moved by a whole number of elements, and every step of the transforms is one
operation on contiguous memory.  Where a move crosses the end of a row it makes tiles that nobody reads.
Names: T tiles (with those), N samples, C channels, O outputs.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from math import prod

import numpy as np

from engine.backends.cpu.packing import packed_array
from engine.core.arrays import Array, ArrayModule

_FACTORS = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
# Measured on two cores: from which the transforms cost less than what they save.
_CHANNELS, _PIXELS = 32, 192
_PRODUCTS = 1 << 21  # elements of the transformed input at a time


def weights(xp: ArrayModule, w: Array) -> Array:
    """w (O, C, 3, 3) -> (16, O, C)."""
    factors = xp.asarray(_FACTORS, dtype=w.dtype)
    planes = xp.ascontiguousarray(w.transpose(2, 3, 0, 1)).reshape(3, -1)
    rows = xp.matmul(factors, planes).reshape(4, 3, -1)
    return xp.matmul(factors, rows).reshape(16, *w.shape[:2])


class _Tiles:
    """The layout of the tiles of `count` samples.

    Samples outside: (C, N, rows, columns), with a row and a column more than are read.  Where these would be many, in
    small images, samples inside: (C, rows, columns, N), and only the tiles that are read.
    """

    def __init__(self, count: int, size: Sequence[int]) -> None:
        self.count = count
        self.tall, self.wide = (n // 2 + n % 2 + 1 for n in size)
        self.inside = count >= 8 and builtins.max(size) <= 16
        self.area = (self.tall - 1) * (self.wide - 1) if self.inside else self.tall * self.wide
        self.total = count * self.area

    def planes(self, channels: int) -> tuple[int, ...]:
        """The shape of one parity of the input."""
        if self.inside:
            return (channels, self.tall, self.wide, self.count)
        return (channels, self.count, self.tall, self.wide)

    def images(self, planes: Array) -> Array:
        """(N, C, rows, columns) of such planes."""
        return planes.transpose(3, 0, 1, 2) if self.inside else planes.swapaxes(0, 1)

    def results(self, products: Array) -> Array:
        """(N, O, rows, columns) of (O * T)."""
        if self.inside:
            shape = (-1, self.tall - 1, self.wide - 1, self.count)
        else:
            shape = (-1, self.count, self.tall, self.wide)
        return self.images(products.reshape(shape))


def serves(xp: ArrayModule, x: Array, w: Array, result: Array, kept: bool) -> bool:
    """Return whether fewer multiplications are worth the transforms; `kept`: that of the weights is there already."""
    outputs, channels = w.shape[:2]
    size = result.shape[2:]
    return (
        hasattr(xp, "share")
        and x.dtype.kind == "f"
        and builtins.min(outputs, channels) >= _CHANNELS
        and 16 * _Tiles(x.shape[0], size).area < 0.7 * 9 * prod(size)
        and x.shape[0] * prod(size) >= (_PIXELS if kept else 4 * _PIXELS)
    )


def forward(xp: ArrayModule, x: Array, w: Array, padding: Sequence[int], result: Array) -> bool:
    """result (N, O, H, W) = the convolution of x (N, C, *) with w (O, C, 3, 3).

    False, and nothing of use in `result`, where infinities or nan in x would spread to what they do not touch.
    The transformed form of a converted `w` is cached with it: see Note [Channels-last tensors] in layouts.py.
    """
    transformed = packed_array(w, "winograd", lambda: weights(xp, w.view(np.ndarray)))
    count, channels = x.shape[:2]
    outputs, *size = result.shape[1:]
    step = builtins.max(1, builtins.min(count, _PRODUCTS // (16 * channels * _Tiles(count, size).area)))
    inputs: Array | None = None
    spoilt: list[bool] = []
    for start in range(0, count, step):
        samples = slice(start, builtins.min(start + step, count))
        tiles = _Tiles(samples.stop - samples.start, size)
        if inputs is None or inputs.shape[2] != tiles.total:
            inputs = xp.empty((16, channels, tiles.total), x.dtype)
            products = xp.empty((16, outputs, tiles.total), x.dtype)

        def spread(part: slice, given: Array = x[samples], tiles: _Tiles = tiles, inputs: Array = inputs) -> None:
            _spread(xp, given[:, part], padding, tiles, inputs[:, part])

        def gather(
            part: slice, made: Array = result[samples], tiles: _Tiles = tiles, products: Array = products
        ) -> None:
            if not _gather(products[:, part], tiles, made[:, part]):
                spoilt.append(True)

        xp.share(spread, channels, channels * tiles.total)
        xp.matmul(transformed, inputs, out=products)
        xp.share(gather, outputs, outputs * tiles.total)
        if spoilt:
            return False
    return True


def _spread(xp: ArrayModule, x: Array, padding: Sequence[int], tiles: _Tiles, target: Array) -> None:
    """The tiles of x (N, C, H, W), transformed, into target (16, C, T)."""
    shape = tiles.planes(x.shape[1])
    length = prod(shape)
    right = tiles.count if tiles.inside else 1  # how far the next column and the next row are
    below = right * tiles.wide
    planes = []
    for a in (0, 1):
        for b in (0, 1):
            flat = xp.empty(length + right + below, x.dtype)
            flat[length:] = 0
            images = tiles.images(flat[:length].reshape(shape))
            (rows, from_row), (columns, from_column) = (
                _parity(p, parity, most) for p, parity, most in zip(padding, (a, b), (tiles.tall, tiles.wide))
            )
            part = x[:, :, from_row::2, from_column::2]
            part = part[:, :, : tiles.tall - rows, : tiles.wide - columns]
            end, edge = rows + part.shape[2], columns + part.shape[3]
            images[:, :, :rows] = images[:, :, end:] = 0
            images[:, :, rows:end, :columns] = images[:, :, rows:end, edge:] = 0
            images[:, :, rows:end, columns:edge] = part
            planes.append(flat)
    here, down = slice(0, length + right), slice(below, below + length + right)
    halves = []
    for even, odd in ((planes[0], planes[2]), (planes[1], planes[3])):
        lower, beyond = even[down], odd[down]
        even, odd = even[here], odd[here]
        halves.append((even - lower, odd + lower, lower - odd, odd - beyond))
    for k in range(4):
        (even, next_even), (odd, next_odd) = ((half[k][:length], half[k][right : right + length]) for half in halves)
        made = [target[4 * k + i].reshape(-1) for i in range(4)]
        if tiles.inside:
            even, next_even, odd, next_odd = (v.reshape(shape)[:, :-1, :-1] for v in (even, next_even, odd, next_odd))
            made = [m.reshape(even.shape) for m in made]
        xp.subtract(even, next_even, out=made[0])
        xp.add(odd, next_even, out=made[1])
        xp.subtract(next_even, odd, out=made[2])
        xp.subtract(odd, next_odd, out=made[3])


def _parity(padding: int, parity: int, most: int) -> tuple[int, int]:
    """Of every second row of the padded input from `parity` on: (how many are padding, the first real one)."""
    before = builtins.max(0, -(-(padding - parity) // 2))
    return builtins.min(before, most), parity + 2 * before - padding


def _gather(products: Array, tiles: _Tiles, target: Array) -> bool:
    """products (16, O, T) transformed back, into target (N, O, H, W); whether all are finite."""
    m = [products[i].reshape(-1) for i in range(16)]
    upper, lower = [], []
    for i in range(4):
        middle, last = m[4 + i], m[8 + i]
        one = middle + last
        one += m[i]
        two = middle - last
        two -= m[12 + i]
        upper.append(one)
        lower.append(two)
    finite = True
    for a, (first, second, third, fourth) in enumerate((upper, lower)):
        first += second
        first += third
        second -= third
        second -= fourth
        for b, found in enumerate((first, second)):
            finite = finite and math.isfinite(float(found.sum()))
            part = target[:, :, a::2, b::2]
            part[...] = tiles.results(found)[:, :, : part.shape[2], : part.shape[3]]
    return finite
