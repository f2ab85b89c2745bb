"""3x3 convolutions of stride 1 and their gradients by Winograd's F(4x4, 3x3) (the extra `jit`).

Note [Winograd's convolutions]
A quarter of the multiplications (engine/kernels/llvm_winograd.py says how, and how exact that is).  Pictures are
channels-last.  Forward takes some tiles at a time, so that their values at points and the products stay in the cache;
the gradient of the input is the convolution of the result's gradient with kernels turned round, padded by what 2 has
more; the gradient of the weight sums products over tiles.  Weights are transformed in each call, but those of a
converted tensor, which are kept with it as packed ones are.
In plans weights are transformed once, and what follows a layer (an addition, a rectifier) is done as results are made.
Which geometries gain depends on the processor, so each is tried in a layer's third call, against the way there was
(oneDNN's; windows.py without it) and for values, as other generated kernels are: Note [Generated kernels on the CPU].
Few tiles, few channels and those that fill no vectors are left to that way unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

import numpy as np

from engine.backends.cpu import empty, keeping, threads, turned
from engine.backends.onednn import _abi, library
from engine.kernels import llvm_winograd, processor
from engine.kernels.llvm_winograd import POINTS
from engine.layouts import (
    INNER,
    ChannelsLast,
    empty_channels_last,
    lies_channels_last,
    to_channels_last,
)
from engine.ops.generated import launch
from engine.ops.generated.trial import Trial, address, lanes, linked, packed, registers, run, several, shared

__all__ = ["Convolution", "Forward", "Gradient", "Input", "Weight", "prepared", "serves", "tried"]

_BLOCK = 48  # tiles whose values are held at a time
_HELD, _LEAST = 3 << 20, 64  # elements of the values that a gradient of the weight holds at a time; tiles at least
_FEWEST = 1 << 22  # multiplications, below which nothing is gained
_WORK = 32  # multiplications that take the time of one element of other kernels
_MANY = 1024  # geometries of gradients and of plans, then all are forgotten
_F32 = np.dtype("float32")

_entries: dict[Any, launch.Entry] = {}
_known: dict[Any, Any] = {}


def serves(shape: Sequence[int], weight: Sequence[int], stride: Any, padding: Any, dilation: Any, groups: int) -> bool:
    """Whether a convolution of (N, C, H, W) with (O, C, 3, 3) is worth a trial."""
    if len(shape) != 4 or tuple(weight[2:]) != (3, 3) or groups != 1 or not processor.available():
        return False
    if tuple(stride) != (1, 1) or tuple(dilation) != (1, 1) or max(padding) > 2:
        return False
    outputs, channels = weight[:2]
    if 2 * lanes(gcd(channels, outputs)) < lanes():  # less than half a vector
        return False
    down, across = _tiles([n + 2 * p - 2 for n, p in zip(shape[2:], padding)])
    return shape[0] * down * across * outputs * channels * POINTS >= (1 if processor.always() else _FEWEST)


def _tiles(out: Sequence[int]) -> tuple[int, int]:
    return -(-out[0] // 4), -(-out[1] // 4)


def _apart(count: int) -> int:
    """Elements from one row to the next of `count`: not a power of two, whose rows share places of the cache."""
    return count + 16 if count % 256 == 0 else count


class Convolution:
    """Pictures (N, C, H, W) convolved with (O, C, 3, 3), to (N, O, P, Q).  padding: of both dims."""

    def __init__(self, count: int, channels: int, size: Sequence[int], outputs: int, padding: Sequence[int]) -> None:
        self.channels, self.outputs = channels, outputs
        self.out = tuple([n + 2 * p - 2 for n, p in zip(size, padding)])
        down, across = _tiles(self.out)
        self.tiles = count * down * across
        self.work = POINTS * self.tiles * channels * outputs
        self.lanes = lanes(gcd(channels, outputs))
        self.rows, self.vectors = llvm_winograd.shape(self.lanes, registers(), outputs)
        self.share = -(-self.tiles // several(self.work))
        block = -(-self.share // -(-self.share // _BLOCK))
        block = -(-block // self.rows) * self.rows
        self.plane, self.made_plane = block * channels + 16, block * outputs + 16
        self.places = dict(
            height=size[0], width=size[1], channels=channels, above=padding[0], left=padding[1], down=down,
            across=across, rows=self.out[0], columns=self.out[1], outputs=outputs, block=block,
            plane=self.plane, made_plane=self.made_plane,
        )  # fmt: skip
        self._weights: Any = None
        self._forward: dict[bool, Any] = {}

    @property
    def kind(self) -> Any:
        """What machine code it is."""
        return "forward", self.lanes, self.rows, self.vectors

    def build(self) -> Any:
        """The machine code."""
        self._weights = linked(llvm_winograd.weights, self.lanes, self.vectors * self.lanes)
        self._forward[False] = linked(llvm_winograd.forward, self.lanes, self.rows, self.vectors, False)
        return self._forward

    def at_points(self, w: Any, turned_round: bool, room: Any = None) -> Any:
        """The weight (O, C, 3, 3) at the points; turned_round: (C, O, 3, 3), as the gradient of the input takes it."""
        if self._weights is None:
            self.build()
        plane = self.channels * self.outputs
        taps = empty((3, 3, self.channels, self.outputs), _F32)
        turned.copy(taps, w.view(np.ndarray).transpose(2, 3, *((0, 1) if turned_round else (1, 0))))
        made = empty((POINTS * plane,), _F32) if room is None else room
        args = packed(
            llvm_winograd.WEIGHTS, taps=address(taps) + 4 * 8 * plane * turned_round, made=address(made),
            step=-plane if turned_round else plane, channels=self.channels, outputs=self.outputs,
        )  # fmt: skip
        shared(self._weights, args, 0, self.channels, several(plane * POINTS))
        return made

    def calls(self, rectified: bool) -> tuple[Any, Any, list[tuple[dict[str, int], int, int]]]:
        """(the code, memory that must live until it has run, for each thread what is given beside operands and results,
        and its first and last tile)."""
        code = self._forward.get(rectified)
        if code is None:
            code = self._forward[rectified] = linked(
                llvm_winograd.forward, self.lanes, self.rows, self.vectors, rectified
            )
        rooms, most = -(-self.tiles // self.share), max(self.channels, self.outputs)
        each = POINTS * (self.plane + self.made_plane)
        room = empty((rooms * each + 2 * most,), _F32)
        at = address(room)
        zeros = at + 4 * rooms * each
        room[rooms * each : rooms * each + most] = 0
        given = dict(self.places, zeros=zeros, spare=zeros + 4 * most)
        starts = range(0, self.tiles, self.share)
        pieces = [
            ({**given, "room": at + 4 * n * each}, first, min(first + self.share, self.tiles))
            for n, first in enumerate(starts)
        ]
        return code, room, pieces

    def run(self, picture: int, weights: int, result: int, bias: int, added: int, rectified: bool) -> None:
        """At addresses; bias and added: 0 for none."""
        code, _room, pieces = self.calls(rectified)
        arrays = dict(picture=picture, weights=weights, result=result, added=added)
        run(code, [
            (packed(llvm_winograd.FORWARD, **given, **arrays, bias=bias or given["zeros"]), first, last)
            for given, first, last in pieces
        ])  # fmt: skip


class Gradient:
    """The gradient of the weight (O, C, 3, 3) of such a convolution."""

    def __init__(self, count: int, channels: int, size: Sequence[int], outputs: int, padding: Sequence[int]) -> None:
        self.channels, self.outputs = channels, outputs
        out = tuple([n + 2 * p - 2 for n, p in zip(size, padding)])
        down, across = _tiles(out)
        self.tiles = count * down * across
        self.work = POINTS * self.tiles * channels * outputs
        self.lanes = lanes(gcd(channels, outputs))
        self.vectors = next(v for v in (4, 3, 2, 1) if outputs // self.lanes % v == 0 and (v < 4 or registers() == 32))
        self.rows = 8 if self.vectors < 3 and registers() == 32 and channels % 8 == 0 else 4
        self.pieces = several(self.work)
        chunk = min(self.tiles, max(_LEAST, _HELD // (POINTS * (channels + outputs))))
        self.chunk = -(-self.tiles // -(-self.tiles // chunk))
        self.sides = [
            dict(height=h, width=w, channels=c, above=above, left=left, down=down, across=across, pitch=_apart(c),
                 plane=self.chunk * _apart(c) + 16)
            for (h, w), c, (above, left) in ((size, channels, padding), (out, outputs, (0, 0)))
        ]  # fmt: skip
        self.codes: Any = None

    @property
    def kind(self) -> Any:
        """What machine code it is."""
        return "weight", self.lanes, self.rows, self.vectors

    def build(self) -> Any:
        """The machine code."""
        self.codes = (
            linked(llvm_winograd.values, self.lanes, False), linked(llvm_winograd.values, self.lanes, True),
            linked(llvm_winograd.product, self.lanes, self.rows, self.vectors),
            linked(llvm_winograd.gradient, self.lanes),
        )  # fmt: skip
        return self.codes

    def run(self, x: Any, g: Any, out: Any) -> None:
        """x (N, C, H, W) and g (N, O, P, Q), channels-last, out (O, C, 3, 3)."""
        of_picture, of_slope, product, gradient = self.codes or self.build()
        channels, outputs, plane = self.channels, self.outputs, self.channels * self.outputs
        rooms = [empty((POINTS * side["plane"],), _F32) for side in self.sides]
        zeros, made = np.zeros(max(channels, outputs), _F32), empty((POINTS * plane,), _F32)
        taps = empty((3, 3, channels, outputs), _F32)
        for first in range(0, self.tiles, self.chunk):
            last = min(first + self.chunk, self.tiles)
            for code, side, array, room in zip((of_picture, of_slope), self.sides, (x, g), rooms):
                args = packed(
                    llvm_winograd.VALUES, **side, picture=address(array), room=address(room), zeros=address(zeros),
                    first=first,
                )  # fmt: skip
                shared(code, args, first, last, self.pieces)
            args = packed(
                llvm_winograd.PRODUCT, left=address(rooms[0]), right=address(rooms[1]), made=address(made),
                tiles=last - first, channels=channels, outputs=outputs, left_pitch=self.sides[0]["pitch"],
                right_pitch=self.sides[1]["pitch"], left_plane=self.sides[0]["plane"],
                right_plane=self.sides[1]["plane"], fresh=first == 0,
            )  # fmt: skip
            shared(product, args, 0, POINTS, self.pieces if self.pieces == 1 else min(POINTS, self.pieces * 3))
        args = packed(
            llvm_winograd.GRADIENT, made=address(made), taps=address(taps), channels=channels, outputs=outputs
        )
        shared(gradient, args, 0, channels, several(plane * POINTS))
        turned.copy(out, taps.transpose(3, 2, 0, 1))


class _Tried(Trial):
    """A geometry's choice between this way and oneDNN's."""

    used = True

    def __init__(self, way: Convolution | Gradient, name: str = "convolution") -> None:
        super().__init__(name, _entries.setdefault(way.kind, launch.Entry()), way.work // _WORK, way.build)
        self.way = way


class Forward:
    """A convolution, called with x (N, C, H, W), w (O, C, 3, 3) and a bias (O) or None, in front of `plain`.

    Threads share what a trial decides.
    """

    used = True

    def __init__(self, plain: Any, x: Sequence[int], w: Sequence[int], padding: Any, converted: bool) -> None:
        self.trial = tried(_Outputs, x, w, tuple(padding))
        self.way = self.trial.way
        self.plain, self.converted = plain, converted
        self.shape = (x[0], w[0], *self.way.out)

    def __call__(self, x: Any, w: Any, bias: Any) -> Any:
        trial = self.trial
        if trial.proven:
            return self.run(x, w, bias)
        if trial.off:
            return self.plain(x, w, bias)
        other = w.view(ChannelsLast) if type(w) is ChannelsLast else w  # what each way keeps of it is its own
        return trial.chosen(lambda: self.run(x, w, bias), lambda: self.plain(x, other, bias), (x, w), w)

    def run(self, x: Any, w: Any, bias: Any) -> Any:
        """This way; the other for a converted weight beyond those that are kept."""
        way = self.way
        if type(w) is ChannelsLast:
            size = 4 * POINTS * way.channels * way.outputs
            kept = keeping.kept(w, way.kind, size, lambda room: way.at_points(w, False, room))
            if kept is None:
                return self.plain(x, w, bias)
            weights = kept.buffer
        else:
            weights = way.at_points(w, False)
        source = x if lies_channels_last(x) else to_channels_last(x)
        made = empty_channels_last(self.shape, _F32)
        shift = None if bias is None else np.ascontiguousarray(bias)
        way.run(address(source), address(weights), address(made), 0 if shift is None else address(shift), 0, False)
        return made if self.converted else made.view(np.ndarray)


class _Outputs(_Tried):
    """The convolution itself."""

    def __init__(self, x: Sequence[int], w: Sequence[int], padding: Any) -> None:
        super().__init__(Convolution(x[0], x[1], x[2:], w[0], padding))


class Input(_Tried):
    """The gradient of the input, into an array that lies channels-last."""

    def __init__(self, g: Sequence[int], w: Sequence[int], padding: Any) -> None:
        way = Convolution(g[0], g[1], g[2:], w[1], [2 - p for p in padding])
        super().__init__(way, "the gradient of a convolution's input")

    def run(self, g: Any, w: Any, out: Any) -> Any:
        """out (N, C, H, W) of g (N, O, P, Q) and w (O, C, 3, 3)."""
        weights = self.way.at_points(w, True)
        self.way.run(address(g), address(weights), address(out), 0, 0, False)
        return out


class Weight(_Tried):
    """The gradient of the weight."""

    def __init__(self, x: Sequence[int], g: Sequence[int], padding: Any) -> None:
        super().__init__(Gradient(x[0], x[1], x[2:], g[1], padding), "the gradient of a convolution's weight")

    def run(self, x: Any, g: Any, out: Any) -> Any:
        """out (O, C, 3, 3) of x (N, C, H, W) and g (N, O, P, Q)."""
        self.way.run(x, g, out)
        return out


class Prepared:
    """A convolution with its weight at the points, for plans: called as oneDNN's `Prepared` is."""

    def __init__(self, way: Convolution, w: Any, bias: Any, added: str, rectified: bool, kept: Any) -> None:
        self.way, self.added, self.rectified = way, added, rectified
        self.kept, self.bias = kept, bias
        way.at_points(w, False, kept.buffer)

    def __call__(self, x: Any, out: Any, *others: Any) -> None:
        place = library.state.ffi.cast
        at = int(place("uintptr_t", out))
        added = {"": 0, "sum": at, "binary": int(place("uintptr_t", others[0])) if others else 0}[self.added]
        shift = 0 if self.bias is None else address(self.bias)
        self.way.run(int(place("uintptr_t", x)), address(self.kept.buffer), at, shift, added, self.rectified)

    def always(self, *pointers: Any) -> Callable[..., None]:
        """The call with these addresses, whatever it is given."""
        return lambda *_: self(*pointers)


def prepared(
    plain: Any, x: Any, w: Any, bias: Any, out: Any, padding: Any, post: Sequence[tuple], work: Callable[..., Any]
) -> Any:
    """`plain`, oneDNN's convolution of a plan, or this one where a trial finds it faster.

    x and out: arrays as those of the calls, which are written to.  post: what follows, as of `prepared.convolution`;
    work: what makes the address of an array.
    """
    steps = [p[0] for p in post]
    rectified = steps[-1:] == ["eltwise"] and tuple(post[-1][1:]) == (_abi.RELU, 0.0, 0.0)
    added = steps[:-1] if rectified else steps
    if added not in ([], ["sum"], ["binary"]):
        return plain
    way = Convolution(x.shape[0], x.shape[1], x.shape[2:], w.shape[0], padding)
    key = "plan", x.shape, w.shape, tuple(padding), tuple(steps), threads.get_num_threads()
    chosen, trial = _known.get(key), _Tried(way)
    if chosen is False or (chosen is None and not trial.proven and not trial.ready(paid=True)):
        return plain
    kept = keeping.room(way.kind, 4 * POINTS * way.channels * way.outputs)
    if kept is None:  # so many weights at the points are too much memory
        return plain
    mine = Prepared(way, w, bias, "".join(added), rectified, kept)
    if chosen is None and not trial.proven:
        other = np.empty_like(out)
        for array in (x, other):
            array.transpose(INNER[4])[...] = _drawn(array)
        given = work(x), work(out), *([work(other)] if added == ["binary"] else [])

        def result(layer: Any) -> Any:
            if added == ["sum"]:
                out[...] = other
            layer(*given)
            return out

        made = result(mine).copy()
        trial.settled(made, result(plain), lambda: mine(*given), lambda: plain(*given), (x, w))
        chosen = _remember(key, trial.proven)
    return mine if chosen or trial.proven else plain


def _drawn(array: Any) -> Any:
    """Numbers for the memory of an array (N, C, H, W) that is channels-last; few, again and again."""
    few = np.random.default_rng(0).standard_normal(1 << 16, np.float32)
    return np.resize(few, array.transpose(INNER[4]).shape)


def _remember(key: Any, value: Any) -> Any:
    if len(_known) >= _MANY:
        _known.clear()
    _known[key] = value
    return value


def tried(kind: type, *shapes: Any) -> Any:
    """The trial of `_Outputs(x, w, padding)`, `Input(g, w, padding)` or `Weight(x, g, padding)`, of these shapes."""
    key = kind, shapes, threads.get_num_threads()
    found = _known.get(key)
    return _remember(key, kind(*shapes)) if found is None else found
