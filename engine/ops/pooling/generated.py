"""Maximum pooling of channels-last images and its gradient in generated code (the extra `jit`), in front of oneDNN's.

oneDNN overlooks nan in a maximum, so that its input is read once more before; its gradient needs the places of the
maxima, which forward does not keep.  engine/kernels/README.md says how they are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.cpu.relayout import empty_channels_last, to_channels_last
from engine.kernels import pooling
from engine.ops.generated.channels import Pass, known
from engine.ops.generated.route import MANY, address, finite, lanes, packed, several, shared

__all__ = ["Rectified", "pooled", "serves", "unpooled"]

_UNROLLED = 16  # places of a window up to which its code has no loop
_F32 = np.dtype("float32")


def _windows(x: Any, out: Sequence[int], geometry: Any) -> dict[str, int]:
    (tall, wide), (down, across), (above, left), (dilation_down, dilation_across) = geometry
    return dict(
        height=x.shape[2],
        width=x.shape[3],
        channels=x.shape[1],
        rows=out[2],
        columns=out[3],
        tall=tall,
        wide=wide,
        step_down=down,
        step_across=across,
        above=above,
        left=left,
        dilation_down=dilation_down,
        dilation_across=dilation_across,
    )


def serves(x: Any) -> bool:
    """Return whether images have channels enough to fill vectors."""
    return lanes(x.shape[1]) >= 4


def _pooling(name: str, function: Any, x: Any, out: Sequence[int], geometry: Any) -> Any:
    """The pass of a geometry; None for channels that fill no vectors, and other than two dims."""
    key = function, x.shape, out, geometry, threads.get_num_threads()

    def make() -> Any:
        width = lanes(x.shape[1])
        if x.ndim != 4 or width < 4:
            return False
        found = Pass(name, function, width, x.size)
        found.given = _windows(x, out, geometry)
        return found

    return known.made(key, make) or None


def _tiles(name: str, function: Any, x: Any, rows: int, columns: int, *options: Any) -> Any:
    """The pass of windows (options[0], options[1]) that lie side by side; None for channels that fill no vectors."""
    key = function, x.shape, rows, columns, options, threads.get_num_threads()

    def make() -> Any:
        width = lanes(x.shape[1])
        if width < 4:
            return False
        found = Pass(name, function, width, x.size, *options)
        found.given = dict(
            height=x.shape[2],
            width=x.shape[3],
            channels=x.shape[1],
            rows=rows,
            columns=columns,
            image=0,
            slope=0,
            result=0,
            chosen=0,
            sums=0,
        )
        return found

    return known.made(key, make) or None


def _run(found: Pass, count: int, size: int, **arrays: Any) -> None:
    """A pass of windows side by side, over `count` rows or images."""
    args = packed(pooling.TILES, **{**found.given, **{p: address(a) for p, a in arrays.items()}})
    shared(found.compiled(), args, 0, count, min(count, several(size * 4)))


def pooled(x: Any, shape: Sequence[int], made: Callable[[], Any], geometry: Any, plain: Callable[[], Any]) -> Any:
    """The maxima of windows of x (N, C, H, W), in an array of `shape` that `made()` gives; both lie channels-last.

    geometry: kernel_size, stride, padding, dilation.
    """
    kernel, stride, padding, dilation = geometry
    near = kernel == stride and not any(padding) and set(dilation) == {1}
    tiles = x.ndim == 4 and near and prod(kernel) <= _UNROLLED  # windows side by side
    if tiles:
        found = _tiles("max pooling", pooling.tile_max, x, *shape[2:], *kernel, False, False)
    else:
        found = _pooling("max pooling", pooling.max_pool, x, shape, geometry)
    if found is None:
        return plain()

    def mine() -> Any:
        out, count = made(), shape[0] * shape[2]
        if tiles:
            _run(found, count, x.size, image=x, result=out)
            return out
        args = packed(pooling.POOL, **found.given, image=address(x), result=address(out))
        shared(found.compiled(), args, 0, count, several(x.size * 4))
        return out

    return found.chosen(mine, plain, (x,))


class Rectified:
    """max(0, maxima) of windows side by side, which hold each place of the images, and its gradient.

    Channels-last arrays; what the gradient needs is the number of each maximum's place in its window, a byte each.
    """

    def __init__(self, shape: Sequence[int], kernel: tuple[int, int]) -> None:
        self.shape, self.kernel = tuple(shape), kernel
        self.out = (*self.shape[:2], *(n // k for n, k in zip(self.shape[2:], kernel)))

    def _passes(self, x: Any, summed: bool = False) -> Any:
        forward = _tiles("pooling of a rectifier", pooling.tile_max, x, *self.out[2:], *self.kernel, True, True)
        name, function = "the gradient of pooling of a rectifier", pooling.tile_gradient
        return forward, _tiles(name, function, x, *self.out[2:], *self.kernel, summed)

    def forward(self, x: Any, plain: Callable[[Any], Any]) -> Any:
        """(maxima, numbers) of x (N, C, H, W); None until it has proved itself, with its gradient, against
        plain(slope): (maxima, gradient of x, its sums over all but channels (C))."""
        found, other = self._passes(x, True)
        if found is None or found.disabled:
            return None
        if not found.proven:
            found.calls += 1
            if found.calls < MANY or not found.ready() or not other.ready(True):
                return None
            slope = to_channels_last(np.linspace(-1, 1, prod(self.out), dtype=_F32).reshape(self.out))
            want = plain(slope)
            if not finite(want):
                return None
            both = lambda: (made := self._forward(found, x))[:1] + self.backward(slope, made[1], True)
            if not found.decide(both(), want, both, lambda: plain(slope), (x, slope)):
                return None
        return self._forward(found, x)

    def _forward(self, found: Pass, x: Any) -> tuple[Any, Any]:
        made = empty_channels_last(self.out, "float32")
        numbers = np.empty(made.size, np.uint8)
        _run(found, self.out[0] * self.out[2], x.size, image=x, result=made, chosen=numbers)
        return made, numbers

    def backward(self, slope: Any, numbers: Any, summed: bool) -> Any:
        """The gradient of x from that of the maxima; summed: (it, its sums)."""
        made = empty_channels_last(self.shape, "float32")
        found = self._passes(made, summed)[1]
        arrays = dict(slope=slope, result=made, chosen=numbers)
        if summed:
            arrays["sums"] = np.zeros(self.shape[:2], _F32)
        _run(found, self.shape[0], made.size, **arrays)
        return (made, np.add.reduce(arrays["sums"], axis=0)) if summed else made


def unpooled(g: Any, x: Any, made: Callable[[], Any], geometry: Any, plain: Callable[[], Any]) -> Any:
    """The gradient of x (N, C, H, W) from that of the maxima, g, in an array that `made()` gives."""
    found = _pooling("the gradient of max pooling", pooling.max_pool_gradient, x, g.shape, geometry)
    if found is None:
        return plain()
    whole = all(n == m * k for n, m, k in zip(x.shape[2:], g.shape[2:], geometry[0]))
    covered = whole and geometry[0] == geometry[1] and not any(geometry[2]) and set(geometry[3]) == {1}

    def mine() -> Any:
        out = made()
        args = packed(
            pooling.POOL_GRADIENT,
            **found.given,
            image=address(x),
            slope=address(g),
            result=address(out),
            covered=covered,
        )
        shared(found.compiled(), args, 0, len(x), min(len(x), several(x.size * 4)))
        return out

    return found.chosen(mine, plain, (x, g))
