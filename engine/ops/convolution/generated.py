"""Convolutions by generated products of tiles (the extra `jit`), where no library serves: no oneDNN, or float64.

The padded input of a sample is copied once, its elements sorted by their place in a step (`stride`): what an element of
the kernel meets is then, for all outputs of a channel, one run of memory from some offset on, with a few places at the
ends of rows that nobody reads.  So the convolution is the product of `engine/kernels/tiles.py`, without columns.
Names as in `engine/ops/convolution/numpy.py`; K = C/G * prod(kernel), M the rows of a tile.

The first result for a geometry is compared with the plain route, and its time: engine/kernels/README.md.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import empty, packing, threads
from engine.backends.cpu.relayout import in_torch_order
from engine.core.arrays import Array
from engine.core.geometry import ConvGeometry
from engine.core.layouts import ChannelsLast
from engine.core.lru import LRU
from engine.core.trials import Standing
from engine.kernels import cpu, processor, tiles
from engine.ops.generated import comparison, guard, launch
from engine.ops.generated.route import address, lanes, linked, packed

__all__ = ["code", "forward", "side"]

_SCRATCH = 1 << 16  # results that wait in the cache
_FEWEST = 1 << 17  # multiplications of a sample below which the plain route is not worth leaving
_PIECES = 2  # a thread
_WORK = 32  # multiplications that take the time of one element of other kernels
_MARGIN = 1.25  # of time: a busy machine says little of less, and this route was faster wherever it was measured quiet

_known: LRU[Hashable, Any] = LRU(1024)  # by geometry
_entries: dict[Hashable, launch.Entry] = {}


def forward(
    x: Array, w: Array, bias: Array | None, out: Sequence[int], geometry: ConvGeometry, plain: Callable[..., Array]
) -> Array | None:
    """x (N, C, *size) and w (O, C/G, *kernel) contiguous, bias (O) or None -> (N, O, *out), or None for what is left to
    `plain(x, w, bias)`.
    """
    kept = type(w) is ChannelsLast
    key = x.dtype.char, x.shape, w.shape, kept, geometry, threads.get_num_threads()
    found = _known.get(key)
    if found is None:
        if w.size * prod(out) < _FEWEST and not processor.always():
            return None
        found = _known[key] = _Convolution(x, w, out, geometry)
    if found is guard.DISABLED or found.entry.disabled:
        return None
    if found.proven:
        return found(x, w, bias)
    made = found.first(x, w, bias, plain)
    if found.disabled:
        _known[key] = guard.DISABLED
    return made


class _Convolution(Standing):
    """The convolution of one geometry."""

    name = "convolution"

    def __init__(self, x: Array, w: Array, out: Sequence[int], geometry: ConvGeometry) -> None:
        super().__init__()
        stride, self.padding, dilation, groups = geometry
        self.dtype, self.out, self.groups = x.dtype, tuple(out), groups
        self.count, self.channels, *self.size = x.shape
        self.outputs, kernel = w.shape[0], w.shape[2:]
        self.stride = stride
        self.rows, self.vectors, self.lanes = _shape(self.outputs // groups, x.dtype)
        self.proven = processor.always()
        self.entry = _entries.setdefault((x.dtype.char, self.rows), launch.Entry())
        self.built: Any = None
        # where the elements of the kernel find theirs
        steps = [[divmod(i * d, s) for i in range(k)] for k, d, s in zip(kernel, dilation, stride)]
        self.phases = [sorted({rest for _, rest in each}) for each in steps]
        self.reach = tuple([n + max(at for at, _ in each) for n, each in zip(self.out, steps)])
        plane, phases = prod(self.reach), prod(map(len, self.phases))
        # lines of the cache that belong to neighbouring channels must not all be the same ones
        line = 64 // x.dtype.itemsize
        self.channel_step = line * (-(-phases * plane // line) | 1)
        inner = [prod(self.reach[d + 1 :]) for d in range(len(self.reach))]
        taps = []
        for each in itertools.product(*steps):
            phase = 0
            for (_, rest), some in zip(each, self.phases):
                phase = phase * len(some) + some.index(rest)
            taps.append(phase * plane + sum(at * n for (at, _), n in zip(each, inner)))
        per = self.channels // groups
        self.offsets = np.add.outer(np.arange(per) * self.channel_step, np.array(taps)).astype(np.int64).reshape(-1)
        self.tiles = -(-self.outputs // groups // self.rows)  # of a group
        self.strides = tuple([n * x.dtype.itemsize for n in inner])
        self.row = inner[0]
        self.extent = 1 + sum((n - 1) * m for n, m in zip(self.out[1:], inner[1:]))
        # of vectors that pad rows in steps of one, 0 where numpy does
        self.side = side(x.dtype, self.size, stride)
        self._cut()

    def _cut(self) -> None:
        """`pieces`: (first tile, last tile, first row, last row) that a thread takes at once."""
        rows, all_tiles = self.out[0], self.tiles * self.groups
        if self.groups > 1:
            step, unit = rows, self.tiles
            some = unit * max(1, _SCRATCH // (rows * self.row * self.rows * unit))
        else:
            step, unit, some = max(1, _SCRATCH // (all_tiles * self.rows * self.row)), 1, all_tiles
        wanted = threads.get_num_threads() * _PIECES
        self.alone = self.count < wanted  # all threads at one sample
        if self.alone and wanted > 1:
            bands = -(-rows // step)
            while some > unit and bands * -(-all_tiles // some) < wanted:
                some = max(unit, unit * -(-some // unit // 2))
        self.pieces = [
            (tile, min(tile + some, all_tiles), row, min(row + step, rows))
            for row in range(0, rows, step)
            for tile in range(0, all_tiles, some)
        ]

    def build(self) -> Any:
        """The machine code."""
        return cpu.tiles(self.dtype.name, self.lanes, self.rows, self.vectors)

    def first(self, x: Array, w: Array, bias: Array | None, plain: Callable[..., Array]) -> Array | None:
        """A call that proves it, or leaves it; None where nothing is compiled yet."""
        entry, trials = self.entry, launch.trials
        trials.paid = False
        work = x.shape[0] * prod(self.out) * self.offsets.size * self.outputs // self.groups // _WORK
        try:
            self.built = launch.ready(entry, work, self.build)
        except launch.Unfit:
            self.disabled = entry.disabled
            return None
        finally:
            trials.fresh.clear()
        made, other = self(x, w, bias), w.view(ChannelsLast) if type(w) is ChannelsLast else w
        want = plain(x, other, bias)  # its packed weight does not displace the one cached here
        largest = comparison.size_of(x) * comparison.size_of(w.view(np.ndarray)) * self.offsets.size**0.5
        if not launch.proven("convolution", [entry], comparison.difference(want, made, largest)):
            self.disabled = True
            return want
        if launch.slower(lambda: self(x, w, bias), lambda: plain(x, other, bias), _MARGIN, [self]):
            self.disabled = True
            return want
        self.proven = True
        return made

    def weights(self, w: Array) -> Array:
        """w packed, (G * tiles, K, M); of a converted one it is cached: Note [Channels-last tensors] in layouts.py."""
        return packing.packed_array(w, ("tiles", self.rows, self.groups), lambda: self._packed(w))

    def _packed(self, w: Array) -> Array:
        plain = in_torch_order(w).reshape(self.groups, self.outputs // self.groups, -1)
        per, depth = plain.shape[1:]
        tiled = empty((self.groups * self.tiles, depth, self.rows), self.dtype)
        if per == self.tiles * self.rows:
            tiled[...] = plain.reshape(-1, self.rows, depth).swapaxes(1, 2)
        else:
            whole = np.zeros((self.groups, self.tiles * self.rows, depth), self.dtype)
            whole[:, :per] = plain
            tiled[...] = whole.reshape(-1, self.rows, depth).swapaxes(1, 2)
        return tiled

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        result = empty((self.count, self.outputs, *self.out), self.dtype)
        packed, built = self.weights(w), self.built
        if built is None:
            built = self.built = self.build()
        pool: list[Array] = []  # what threads are done with

        def sample(n: int) -> None:
            buffer = pool.pop() if pool else self.buffer()
            self.spread(x[n], buffer, slice(None))
            for piece in self.pieces:
                self.compute(built, packed, buffer, result[n], bias, piece)
            pool.append(buffer)

        if not self.alone:
            threads.run(sample, list(range(self.count)))
            return result
        buffer, few = self.buffer(), max(1, -(-self.channels // (threads.get_num_threads() * _PIECES)))
        parts = [slice(c, c + few) for c in range(0, self.channels, few)]
        if x[0].size < cpu.SHARE:
            parts = [slice(None)]
        for one, target in zip(x, result):
            threads.run(lambda part, one=one: self.spread(one, buffer, part), parts)  # type: ignore[misc]
            threads.run(
                lambda piece, target=target: self.compute(built, packed, buffer, target, bias, piece),  # type: ignore[misc]
                self.pieces,
            )
        return result

    def buffer(self) -> Array:
        """Memory for the input of a sample; what a vector reads beyond its end is there."""
        made = empty((self.channels * self.channel_step + self.lanes,), self.dtype)
        made[self.channels * self.channel_step :] = 0
        return made

    def spread(self, x: Array, buffer: Array, part: slice) -> None:
        """The channels `part` of x (C, *size), padded and sorted, into the memory."""
        if self.side and x.flags.c_contiguous:
            first, last, _ = part.indices(self.channels)
            _pad(self.side, x, buffer, self.padding, self.reach[-1], self.channel_step, first, last)
            return
        whole = buffer[: self.channels * self.channel_step].reshape(self.channels, self.channel_step)[part]
        used = prod(map(len, self.phases)) * prod(self.reach)
        whole[:, used:] = 0
        target = whole[:, :used].reshape(len(whole), *map(len, self.phases), *self.reach)
        source, every = x[part], (slice(None),)
        for at in itertools.product(*[range(len(p)) for p in self.phases]):
            image = target[every + at]
            takes, puts = [], []
            for d, i in enumerate(at):
                phase, s, p, n = self.phases[d][i], self.stride[d], self.padding[d], self.size[d]
                before = min(max(0, -(-(p - phase) // s)), self.reach[d])  # places that are padding
                begin = before * s + phase - p
                many = min(max(0, -(-(n - begin) // s)), self.reach[d] - before)
                takes.append(slice(begin, begin + (many - 1) * s + 1 if many else begin, s))
                puts.append((before, before + many))
            for d, (begin, end) in enumerate(puts):
                lead = (slice(None),) * (1 + d)
                image[(*lead, slice(0, begin))] = 0
                image[(*lead, slice(end, None))] = 0
            image[(slice(None), *[slice(*put) for put in puts])] = source[(slice(None), *takes)]

    def compute(
        self,
        built: Any,
        packed: Array,
        buffer: Array,
        result: Array,
        bias: Array | None,
        piece: tuple[int, int, int, int],
    ) -> None:
        """result (O, *out) of one sample: the rows and tiles of one piece."""
        tile, last, row, end = piece
        size, lanes = self.dtype.itemsize, self.lanes
        places = -(-((end - row - 1) * self.row + self.extent) // lanes)
        made = np.empty(((last - tile) * self.rows, places * lanes), self.dtype)
        groups = tile // self.tiles
        shift = row * self.row + groups * self.channels // self.groups * self.channel_step
        built(
            packed[tile:].ctypes.data,
            buffer.ctypes.data + shift * size,
            self.offsets.ctypes.data,
            made.ctypes.data,
            self.offsets.size,
            places,
            self.tiles,
            self.channels // self.groups * self.channel_step,
            last - tile,
        )
        per, pitch = self.outputs // self.groups, made.strides[0]
        if self.groups == 1:
            first = tile * self.rows
            shape = 1, min(last * self.rows, per) - first
            target = result[first : first + shape[1], row:end][None]
            line = 0
            added = None if bias is None else bias[first : first + shape[1]]
        else:
            first, shape = groups, ((last - tile) // self.tiles, per)
            target = result.reshape(self.groups, per, *self.out)[first : first + shape[0], :, row:end]
            line = self.tiles * self.rows * pitch
            added = None if bias is None else bias[first * per : (first + shape[0]) * per]
        shown = np.ndarray((*shape, end - row, *self.out[1:]), self.dtype, made, 0, (line, pitch, *self.strides))
        if added is None:
            target[...] = shown
        else:
            np.add(shown, added.reshape(*shape, *(1,) * len(self.out)), out=target)


def side(dtype: np.dtype[Any], size: Sequence[int], stride: Sequence[int]) -> int:
    """The lanes of vectors that pad images of a size; 0 where numpy does."""
    if dtype != np.float32 or len(size) > 2 or any(s != 1 for s in stride):
        return 0
    return next((n for n in (16, 8, 4) if n <= min(lanes(), size[-1])), 0)


@functools.cache
def code(function: Callable[..., str], *options: int) -> Any:
    """The machine code of a kernel with such options."""
    return linked(function, *options)


def _pad(
    side: int,
    image: Array,
    result: Array,
    padding: Sequence[int],
    pitch: int,
    step: int,
    first: int,
    last: int,
) -> None:
    """The channels first..last of an image (C, *size), in rows of `pitch` elements and `step` for each channel."""
    height, above = (image.shape[1], padding[0]) if image.ndim > 2 else (1, 0)
    args = packed(
        tiles.PADDED,
        image=address(image),
        result=address(result),
        height=height,
        width=image.shape[-1],
        above=above,
        left=padding[-1],
        pitch=pitch,
        step=step,
    )
    code(tiles.padded, side)(args, first, last)


def _shape(outputs: int, dtype: np.dtype[Any]) -> tuple[int, int, int]:
    """Rows and vectors of a tile, and the elements of a vector, for that many outputs of a group."""
    found = processor.target()
    assert found is not None
    wide = {"AVX-512": 64, "AVX2": 32}.get(found.level, 16)
    lanes = wide // dtype.itemsize
    rows, vectors = (8, 3) if found.level in ("AVX-512", "NEON") else (6, 2)
    for few, many in ((1, 8), (2, 4), (4, 3 if rows == 6 else 4)):
        if outputs <= few:
            return few, many, lanes
    return rows, vectors, lanes
