"""3x3 convolutions of stride 1 and their gradients by Winograd's F(4x4, 3x3) (the extra `jit`).

A quarter of the multiplications (engine/kernels/llvm_winograd.py says how, and how exact that is).  Pictures are
channels-last.  Forward takes some tiles at a time, so that their values at points and the products stay in the cache;
the gradient of the input is the convolution of the result's gradient with kernels turned round, padded by what 2 has
more; the gradient of the weight sums products over tiles.  Weights are transformed in each call, but those of a
converted tensor, which are cached with it as packed ones are.
In plans weights are transformed once, and what follows a layer (an addition, a rectifier) is done as results are made.
Which geometries gain depends on the processor, so each is tried in a layer's third call, against the existing route
(oneDNN's; windows.py without it) and for values, as other generated kernels are: engine/kernels/README.md.
Few tiles, few channels and those that fill no vectors are left to that route untried.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import gcd
from typing import Any, Generic, TypeVar

import numpy as np

from engine.backends.cpu import empty, packing, threads
from engine.backends.cpu.relayout import empty_channels_last, to_channels_last
from engine.backends.onednn import _abi, library
from engine.core.arrays import Array
from engine.core.geometry import ConvGeometry
from engine.core.layouts import INNER, ChannelsLast, lies_channels_last
from engine.core.lru import LRU
from engine.kernels import llvm_winograd, processor
from engine.kernels.llvm_winograd import POINTS
from engine.ops.convolution import generated_taps
from engine.ops.generated import launch
from engine.ops.generated.route import GeneratedRoute, address, lanes, linked, packed, registers, run, several, shared

__all__ = ["Convolution", "Forward", "Gradient", "Input", "Weight", "prepared", "serves", "tried"]

_BLOCK = 48  # tiles whose values are held at a time
_HELD, _LEAST = 3 << 20, 64  # elements of the values that a gradient of the weight holds at a time; tiles at least
_FEWEST = 1 << 22  # multiplications, below which nothing is gained
_READING = 12  # tiles whose products with a value take as long as it takes to read it from memory
_WORK = 32  # multiplications that take the time of one element of other kernels
_F32 = np.dtype("float32")

_entries: dict[Hashable, launch.Entry] = {}
_known: LRU[Hashable, Any] = LRU(1024)  # by geometry, of gradients and of plans


def serves(shape: Sequence[int], weight: Sequence[int], geometry: ConvGeometry) -> bool:
    """Return whether a convolution of (N, C, H, W) with (O, C, 3, 3) is worth a trial."""
    stride, padding, dilation, groups = geometry
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


def _pitch(count: int) -> int:
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
            height=size[0],
            width=size[1],
            channels=channels,
            above=padding[0],
            left=padding[1],
            down=down,
            across=across,
            rows=self.out[0],
            columns=self.out[1],
            outputs=outputs,
            block=block,
            plane=self.plane,
            made_plane=self.made_plane,
        )
        self._weights: Any = None
        self._forward: dict[bool, Any] = {}

    @property
    def kind(self) -> Hashable:
        """The key of the machine code."""
        return "forward", self.lanes, self.rows, self.vectors

    def build(self) -> Any:
        """The machine code."""
        self._weights = linked(llvm_winograd.weights, self.lanes, self.vectors * self.lanes)
        self._forward[False] = linked(llvm_winograd.forward, self.lanes, self.rows, self.vectors, False)
        return self._forward

    def at_points(self, w: Array, flipped: bool, buffer: Array | None = None) -> Array:
        """The weight (O, C, 3, 3) at the points; flipped: (C, O, 3, 3), as the gradient of the input takes it."""
        if self._weights is None:
            self.build()
        plane = self.channels * self.outputs
        taps = empty((3, 3, self.channels, self.outputs), _F32)
        generated_taps.spread(w, taps, self.outputs, flipped)
        made = empty((POINTS * plane,), _F32) if buffer is None else buffer
        args = packed(
            llvm_winograd.WEIGHTS,
            taps=address(taps) + 4 * 8 * plane * flipped,
            made=address(made),
            step=-plane if flipped else plane,
            channels=self.channels,
            outputs=self.outputs,
        )
        shared(self._weights, args, 0, self.channels, several(plane * POINTS))
        return made

    def calls(self, rectified: bool) -> tuple[Any, Array, list[tuple[dict[str, int], int, int]]]:
        """(the code, memory that must live until it has run, for each thread what is given beside operands and results,
        and its first and last tile)."""
        code = self._forward.get(rectified)
        if code is None:
            code = self._forward[rectified] = linked(
                llvm_winograd.forward, self.lanes, self.rows, self.vectors, rectified
            )
        buffers, most = -(-self.tiles // self.share), max(self.channels, self.outputs)
        each = POINTS * (self.plane + self.made_plane)
        buffer = empty((buffers * each + 2 * most,), _F32)
        at = address(buffer)
        zeros = at + 4 * buffers * each
        buffer[buffers * each : buffers * each + most] = 0
        given = dict(self.places, zeros=zeros, spare=zeros + 4 * most)
        starts = range(0, self.tiles, self.share)
        pieces = [
            ({**given, "buffer": at + 4 * n * each}, first, min(first + self.share, self.tiles))
            for n, first in enumerate(starts)
        ]
        return code, buffer, pieces

    def run(self, image: int, weights: int, result: int, bias: int, added: int, rectified: bool) -> None:
        """At addresses; bias and added: 0 for none."""
        code, _buffer, pieces = self.calls(rectified)
        arrays = dict(image=image, weights=weights, result=result, added=added)
        run(
            code,
            [
                (packed(llvm_winograd.FORWARD, **given, **arrays, bias=bias or given["zeros"]), first, last)
                for given, first, last in pieces
            ],
        )


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
            dict(
                height=h,
                width=w,
                channels=c,
                above=above,
                left=left,
                down=down,
                across=across,
                pitch=_pitch(c),
                plane=self.chunk * _pitch(c) + 16,
            )
            for (h, w), c, (above, left) in ((size, channels, padding), (out, outputs, (0, 0)))
        ]
        self.codes: Any = None

    @property
    def kind(self) -> Hashable:
        """The key of the machine code."""
        return "weight", self.lanes, self.rows, self.vectors

    def build(self) -> Any:
        """The machine code."""
        self.codes = (
            linked(llvm_winograd.values, self.lanes, False),
            linked(llvm_winograd.values, self.lanes, True),
            linked(llvm_winograd.product, self.lanes, self.rows, self.vectors),
            linked(llvm_winograd.gradient, self.lanes),
        )
        return self.codes

    def run(self, x: Array, g: Array, out: Array) -> None:
        """x (N, C, H, W) and g (N, O, P, Q), channels-last, out (O, C, 3, 3)."""
        of_image, of_slope, product, gradient = self.codes or self.build()
        channels, outputs, plane = self.channels, self.outputs, self.channels * self.outputs
        buffers = [empty((POINTS * side["plane"],), _F32) for side in self.sides]
        zeros, made = np.zeros(max(channels, outputs), _F32), empty((POINTS * plane,), _F32)
        taps = empty((3, 3, channels, outputs), _F32)
        for first in range(0, self.tiles, self.chunk):
            last = min(first + self.chunk, self.tiles)
            for code, side, array, buffer in zip((of_image, of_slope), self.sides, (x, g), buffers):
                args = packed(
                    llvm_winograd.VALUES,
                    **side,
                    image=address(array),
                    buffer=address(buffer),
                    zeros=address(zeros),
                    first=first,
                )
                shared(code, args, first, last, self.pieces)
            args = packed(
                llvm_winograd.PRODUCT,
                left=address(buffers[0]),
                right=address(buffers[1]),
                made=address(made),
                tiles=last - first,
                channels=channels,
                outputs=outputs,
                left_pitch=self.sides[0]["pitch"],
                right_pitch=self.sides[1]["pitch"],
                left_plane=self.sides[0]["plane"],
                right_plane=self.sides[1]["plane"],
                fresh=first == 0,
            )
            shared(product, args, 0, POINTS, self.pieces if self.pieces == 1 else min(POINTS, self.pieces * 3))
        args = packed(
            llvm_winograd.GRADIENT, made=address(made), taps=address(taps), channels=channels, outputs=outputs
        )
        shared(gradient, args, 0, channels, several(plane * POINTS))
        generated_taps.join(taps, out)


Route = TypeVar("Route", Convolution, Gradient)


class _Tried(GeneratedRoute, Generic[Route]):
    """A geometry's choice between this route and oneDNN's."""

    used = True

    def __init__(self, route: Route, name: str = "convolution") -> None:
        super().__init__(name, _entries.setdefault(route.kind, launch.Entry()), route.work // _WORK, route.build)
        self.route: Route = route
        # A trial finds the weight in the cache, a network seldom does: 36 values for 9, which few tiles share.
        if isinstance(route, Convolution):
            self.margin = GeneratedRoute.margin / (1 + _READING / route.tiles)


class Forward:
    """A convolution, called with x (N, C, H, W), w (O, C, 3, 3) and a bias (O) or None, in front of `plain`.

    Threads share what a trial decides.
    """

    used = True

    def __init__(
        self, plain: Callable[..., Array], x: Sequence[int], w: Sequence[int], padding: Sequence[int], converted: bool
    ) -> None:
        self.trial: _Outputs = tried(_Outputs, x, w, tuple(padding))
        self.route = self.trial.route
        self.plain, self.converted = plain, converted
        self.shape = (x[0], w[0], *self.route.out)

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        trial = self.trial
        if trial.proven:
            return self.run(x, w, bias)
        if trial.disabled:
            return self.plain(x, w, bias)
        other = w.view(ChannelsLast) if type(w) is ChannelsLast else w  # each route packs it for itself
        return trial.chosen(lambda: self.run(x, w, bias), lambda: self.plain(x, other, bias), (x, w), w)

    def run(self, x: Array, w: Array, bias: Array | None) -> Array:
        """This route; the other for a converted weight beyond those that are packed."""
        route = self.route
        if type(w) is ChannelsLast:
            size = 4 * POINTS * route.channels * route.outputs
            packed_weights = packing.packed_with(w, route.kind, size, lambda buffer: route.at_points(w, False, buffer))
            if packed_weights is None:
                return self.plain(x, w, bias)
            weights = packed_weights.buffer
        else:
            weights = route.at_points(w, False)
        source = x if lies_channels_last(x) else to_channels_last(x)
        made = empty_channels_last(self.shape, _F32)
        shift = None if bias is None else np.ascontiguousarray(bias)
        route.run(address(source), address(weights), address(made), 0 if shift is None else address(shift), 0, False)
        return made if self.converted else made.view(np.ndarray)


class _Outputs(_Tried[Convolution]):
    """The convolution itself."""

    def __init__(self, x: Sequence[int], w: Sequence[int], padding: Sequence[int]) -> None:
        super().__init__(Convolution(x[0], x[1], x[2:], w[0], padding))


class Input(_Tried[Convolution]):
    """The gradient of the input, into an array that is laid out channels-last."""

    def __init__(self, g: Sequence[int], w: Sequence[int], padding: Sequence[int]) -> None:
        route = Convolution(g[0], g[1], g[2:], w[1], [2 - p for p in padding])
        super().__init__(route, "the gradient of a convolution's input")

    def run(self, g: Array, w: Array, out: Array) -> Array:
        """out (N, C, H, W) of g (N, O, P, Q) and w (O, C, 3, 3)."""
        weights = self.route.at_points(w, True)
        self.route.run(address(g), address(weights), address(out), 0, 0, False)
        return out


class Weight(_Tried[Gradient]):
    """The gradient of the weight."""

    def __init__(self, x: Sequence[int], g: Sequence[int], padding: Sequence[int]) -> None:
        super().__init__(Gradient(x[0], x[1], x[2:], g[1], padding), "the gradient of a convolution's weight")

    def run(self, x: Array, g: Array, out: Array) -> Array:
        """out (O, C, 3, 3) of x (N, C, H, W) and g (N, O, P, Q)."""
        self.route.run(x, g, out)
        return out


class Prepared:
    """A convolution with its weight at the points, for plans: called as oneDNN's `Prepared` is."""

    def __init__(
        self,
        route: Convolution,
        w: Array,
        bias: Array | None,
        added: str,
        rectified: bool,
        packed_weights: packing.PackedWeight,
    ) -> None:
        self.route, self.added, self.rectified = route, added, rectified
        self.packed_weights, self.bias = packed_weights, bias
        route.at_points(w, False, packed_weights.buffer)

    def __call__(self, x: Any, out: Any, *others: Any) -> None:
        place = library.state.ffi.cast
        at = int(place("uintptr_t", out))
        added = {"": 0, "sum": at, "binary": int(place("uintptr_t", others[0])) if others else 0}[self.added]
        shift = 0 if self.bias is None else address(self.bias)
        self.route.run(
            int(place("uintptr_t", x)), address(self.packed_weights.buffer), at, shift, added, self.rectified
        )

    def always(self, *pointers: Any) -> Callable[..., None]:
        """The call with these addresses, whatever it is given."""
        return lambda *_: self(*pointers)


def prepared(
    plain: Callable[..., Array],
    x: Array,
    w: Array,
    bias: Array | None,
    out: Array,
    padding: Sequence[int],
    post: Sequence[tuple[Any, ...]],
    work: Callable[..., Any],
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
    route = Convolution(x.shape[0], x.shape[1], x.shape[2:], w.shape[0], padding)
    key = "plan", x.shape, w.shape, tuple(padding), tuple(steps), threads.get_num_threads()
    chosen, trial = _known.get(key), _Tried(route)
    if chosen is False or (chosen is None and not trial.proven and not trial.ready(paid=True)):
        return plain
    packed_weights = packing.reserve(route.kind, 4 * POINTS * route.channels * route.outputs)
    if packed_weights is None:  # the packed weights would take too much memory
        return plain
    mine = Prepared(route, w, bias, "".join(added), rectified, packed_weights)
    if chosen is None and not trial.proven:
        other = np.empty_like(out)
        for array in (x, other):
            array.transpose(INNER[4])[...] = _drawn(array)
        given = work(x), work(out), *([work(other)] if added == ["binary"] else [])

        def result(layer: Callable[..., object]) -> Array:
            if added == ["sum"]:
                out[...] = other
            layer(*given)
            return out

        made = result(mine).copy()
        trial.decide(made, result(plain), lambda: mine(*given), lambda: plain(*given), (x, w))
        chosen = _known[key] = trial.proven
    return mine if chosen or trial.proven else plain


def _drawn(array: Array) -> Array:
    """Numbers for the memory of an array (N, C, H, W) that is channels-last; few, again and again."""
    few = np.random.default_rng(0).standard_normal(1 << 16, np.float32)
    return np.resize(few, array.transpose(INNER[4]).shape)


def tried(kind: type, *shapes: Any) -> Any:
    """The trial of `_Outputs(x, w, padding)`, `Input(g, w, padding)` or `Weight(x, g, padding)`, of these shapes."""
    key = kind, shapes, threads.get_num_threads()
    return _known.made(key, lambda: kind(*shapes))
