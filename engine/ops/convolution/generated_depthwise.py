"""Convolutions of each channel with a kernel of its own and their gradients, of images in torch's order, by generated
code (the extra `jit`), in front of the library's and numpy's: engine/kernels/depthwise.py.

One to three dims, in any steps.  oneDNN has code for channels-last images, to which all of these would be converted.
Each geometry is tried: engine/kernels/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import TypeVar, cast

import numpy as np

from engine.backends.cpu import empty, threads
from engine.core.arrays import Array
from engine.core.geometry import ConvGeometry
from engine.core.lru import LRU
from engine.kernels import depthwise, processor
from engine.ops.generated import launch
from engine.ops.generated.route import GeneratedRoute, address, lanes, linked, packed, registers, several, shared

__all__ = ["Forward", "backward_input", "backward_weight", "serves"]

_PLACES = 64  # of a kernel, which is written out
_PADDED = 1 << 16  # elements of a padded image, which the second-level cache holds
_WORK = 8  # multiplications that take the time of one element of other kernels
Sizes = tuple[int, int, int]
_F32 = np.dtype("float32")

_entries: dict[Hashable, launch.Entry] = {}
_known: LRU[Hashable, _Route] = LRU(1024)  # by geometry


def serves(size: Sequence[int], w: Sequence[int], geometry: ConvGeometry, *arrays: Array) -> bool:
    """Return whether the convolution of images (N, C, *size) with w (C, 1, *kernel) is worth a trial, and the arrays
    are float32 in torch's order."""
    stride, padding, dilation, groups = geometry
    if not 1 < groups == size[1] == w[0] or w[1] != 1 or len(size) not in (3, 4, 5) or not prod(size):
        return False
    if not 1 < prod(w[2:]) <= _PLACES or not processor.available():
        return False
    if any(p > d * (n - 1) for p, d, n in zip(padding, dilation, w[2:])):
        return False
    out = geometry.output_size(size[2:], w[2:])
    padded = [n + 2 * p + s for n, p, s in zip(size[2:], padding, stride)]
    if min(out) < 1 or min(size[-1] // stride[-1], out[-1]) < 4 or prod(padded) > _PADDED:
        return False
    return all(a.dtype == _F32 and a.flags.c_contiguous for a in arrays)


def _of_three(sizes: Sequence[int], one: int) -> Sizes:
    """Sizes of three dims; of fewer, as of planes, or rows, that are one behind the other."""
    front, above, left = (*(one,) * (3 - len(sizes)), *sizes)
    return front, above, left


class _Route(GeneratedRoute):
    """The kernel `function` for images (N, C, *size) with weights (C, 1, *kernel)."""

    def __init__(
        self,
        name: str,
        function: Callable[..., str],
        size: Sequence[int],
        w: Sequence[int],
        geometry: ConvGeometry,
    ) -> None:
        kernel, dilation, stride = (_of_three(each, 1) for each in (w[2:], geometry.dilation, geometry.stride))
        image, padding = _of_three(size[2:], 1), _of_three(geometry.padding, 0)
        out = _of_three(geometry.output_size(size[2:], w[2:]), 1)
        self.images, self.channels = size[:2]
        self.sizes = dict(zip(("depth", "height", "width", "layers", "rows", "columns"), (*image, *out)))
        self.sizes["channels"] = self.channels
        narrow = min(-(-image[2] // stride[2]), out[2]) if function is depthwise.spread else image[2] // stride[2]
        width_of_vectors = next(n for n in (16, 8, 4) if n <= min(lanes(), narrow, out[2]))
        self.options: tuple[Hashable, ...] = (width_of_vectors, kernel, dilation, stride)
        self._lay_out(image, out, kernel, dilation, stride, padding)
        self.function, self.multiplications = function, self.images * self.channels * prod(out) * prod(kernel)
        self._codes: dict[tuple[int, ...], Callable[..., None]] = {}
        entry = _entries.setdefault((function, *self.options), launch.Entry())
        super().__init__(name, entry, self.multiplications // _WORK, self.built)

    def _lay_out(self, image: Sizes, out: Sizes, kernel: Sizes, dilation: Sizes, stride: Sizes, padding: Sizes) -> None:
        """Add the sizes of the padded image, of which each thread has one: `step` elements."""
        phase = -(-(image[2] + 2 * padding[2]) // stride[2])
        pitch = phase * stride[2]
        plane = pitch * (image[1] + 2 * padding[1])
        self.step = plane * (image[0] + 2 * padding[0])
        self.sizes.update(zip(("front", "above", "left", "phase", "pitch", "plane"), (*padding, phase, pitch, plane)))

    def built(self, *more: int) -> Callable[..., None]:
        """The machine code."""
        more = more or self.first
        if more not in self._codes:
            self._codes[more] = linked(self.function, *self.options, *more)
        return self._codes[more]

    first: tuple[int, ...] = (False, False)  # the options of the code that is compiled first

    def jobs(self, parameters: Sequence[str], count: int, more: tuple[int, ...], **given: int) -> None:
        """Do all of `count` jobs, each thread with memory of its own."""
        pieces = min(several(2 * self.multiplications), count)  # which read and write as much as they multiply
        share = -(-count // pieces)
        scratch = np.zeros(self.step * pieces, _F32)
        args = packed(parameters, **self.sizes, **given, scratch=address(scratch), share=share, step=self.step)
        shared(self.built(*more), args, 0, count, pieces)


class _Outputs(_Route):
    """The convolution of x (N, C, *size) with w (C, 1, *kernel), to (N, C, *out)."""

    def __init__(self, size: Sequence[int], w: Sequence[int], geometry: ConvGeometry) -> None:
        name = "a convolution of each channel"
        super().__init__(name, depthwise.forward, size, w, geometry)
        self.made = (*size[:2], *geometry.output_size(size[2:], w[2:]))

    def run(self, x: Array, w: Array, bias: Array | None) -> Array:
        """The result."""
        out = empty(self.made, _F32)
        shift = w if bias is None else np.ascontiguousarray(bias)
        given = dict(image=address(x), weights=address(w), bias=address(shift), result=address(out))
        self.jobs(depthwise.FORWARD, self.images * self.channels, (bias is not None, False), **given)
        return out


_OF_INPUT = "the gradient of the input of a convolution of each channel"


class _Input(_Route):
    """The gradient of the input (N, C, *size): of g (N, C, *out) with the kernels' places in the opposite order."""

    first = (False, True)

    def __init__(self, size: Sequence[int], w: Sequence[int], geometry: ConvGeometry) -> None:
        out = geometry.output_size(size[2:], w[2:])
        around = tuple([d * (n - 1) - p for d, n, p in zip(geometry.dilation, w[2:], geometry.padding)])
        super().__init__(_OF_INPUT, depthwise.forward, (*size[:2], *out), w, geometry._replace(padding=around))
        self.made = tuple(size)

    def run(self, g: Array, w: Array) -> Array:
        """The gradient."""
        out = empty(self.made, _F32)
        given = dict(image=address(g), weights=address(w), bias=address(w), result=address(out))
        self.jobs(depthwise.FORWARD, self.images * self.channels, self.first, **given)
        return out


class _Steps(_Route):
    """The gradient of the input (N, C, *size) of a convolution in steps."""

    first = ()

    def __init__(self, size: Sequence[int], w: Sequence[int], geometry: ConvGeometry) -> None:
        super().__init__(_OF_INPUT, depthwise.spread, size, w, geometry)
        self.made = tuple(size)

    def _lay_out(self, image: Sizes, out: Sizes, kernel: Sizes, dilation: Sizes, stride: Sizes, padding: Sizes) -> None:
        self.options = (*self.options, padding)
        padded = []
        for d in range(3):
            reads = depthwise.reads(kernel[d], dilation[d], stride[d], padding[d])
            reached = [before for place in reads for _, before in place]
            padded.append(max(0, *reached) + max(out[d], -(-image[d] // stride[d]) - min(reached)))
        line = -(-image[2] // stride[2]) * stride[2]
        plane = padded[1] * padded[2]
        self.step = plane * padded[0] + line * depthwise.lines(kernel, stride)
        self.sizes.update(pitch=padded[2], plane=plane, line=line)

    def run(self, g: Array, w: Array) -> Array:
        """The gradient."""
        out = empty(self.made, _F32)
        given = dict(slope=address(g), weights=address(w), result=address(out))
        self.jobs(depthwise.SPREAD, self.images * self.channels, (), **given)
        return out


class _Weight(_Route):
    """The gradient of the weight (C, 1, *kernel), of x (N, C, *size) and g (N, C, *out)."""

    def __init__(self, size: Sequence[int], w: Sequence[int], geometry: ConvGeometry) -> None:
        self.first = (min(24 if registers() > 16 else 9, prod(w[2:])),)
        name = "the gradient of the weight of a convolution of each channel"
        super().__init__(name, depthwise.gradient, size, w, geometry)
        self.made = tuple(w)

    def run(self, g: Array, x: Array) -> Array:
        """The gradient."""
        out = empty(self.made, _F32)
        given = dict(image=address(x), slope=address(g), made=address(out), images=self.images)
        self.jobs(depthwise.GRADIENT, self.channels, self.first, **given)
        return out


_Kind = TypeVar("_Kind", _Outputs, _Input, _Steps, _Weight)


def _tried(kind: type[_Kind], size: Sequence[int], w: Sequence[int], geometry: ConvGeometry) -> _Kind:
    """The trial of `kind` for the convolution of images (N, C, *size) with w (C, 1, *kernel)."""
    key = kind, size, w, geometry, threads.get_num_threads()
    return cast(_Kind, _known.made(key, lambda: kind(size, w, geometry)))


class Forward:
    """A convolution that `serves` serves, called with x, w and a bias (C) or None, in front of `plain`."""

    __slots__ = ("_plain", "_trial", "used")

    def __init__(self, x: Sequence[int], w: Sequence[int], geometry: ConvGeometry, plain: Callable[..., Array]) -> None:
        self.used, self._plain = True, plain
        self._trial = _tried(_Outputs, tuple(x), tuple(w), geometry)

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        trial = self._trial
        if trial.proven:
            return trial.run(x, w, bias)
        made: Array = trial.chosen(lambda: trial.run(x, w, bias), lambda: self._plain(x, w, bias), (x, w), w)
        return made


def backward_input(
    g: Array, w: Array, size: Sequence[int], geometry: ConvGeometry, plain: Callable[[], Array]
) -> Array:
    """The gradient of the input of such a convolution, by `plain` until this code has proved itself."""
    key = tuple(size), w.shape, geometry
    trial = _tried(_Input, *key) if all(s == 1 for s in geometry.stride) else _tried(_Steps, *key)
    made: Array = trial.chosen(lambda: trial.run(g, w), plain, (g, w), w)
    return made


def backward_weight(
    g: Array, x: Array, size: Sequence[int], geometry: ConvGeometry, plain: Callable[[], Array]
) -> Array:
    """The gradient of the weight of shape `size`, as `backward_input`."""
    trial = _tried(_Weight, x.shape, tuple(size), geometry)
    made: Array = trial.chosen(lambda: trial.run(g, x), plain, (g, x))
    return made
