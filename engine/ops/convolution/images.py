"""Convolutions of channels-last images where there is no oneDNN: see `engine/ops/generated/images.py`.

Each geometry is tried: Winograd's algorithm (generated_winograd.py) against windows (generated_windows.py), these
against the op's own kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.cpu.fast import fast
from engine.backends.cpu.relayout import as_channels_last, empty_channels_last, empty_image, follow, in_torch_order
from engine.core.arrays import Array, ArrayModule
from engine.core.geometry import ConvGeometry
from engine.core.layouts import ChannelsLast, asks_channels_last, lies_channels_last
from engine.core.lru import LRU
from engine.dispatch import kernel
from engine.kernels import processor
from engine.ops import convolution
from engine.ops.convolution import generated_windows as windows
from engine.ops.convolution import generated_winograd as winograd
from engine.ops.convolution import numpy as by_numpy
from engine.ops.convolution import pointwise
from engine.ops.convolution.checks import check, transposed_shape
from engine.ops.generated.images import own, usable

_FEWEST = 1 << 17  # multiplications below which another layout is not worth its calls
_RELAID = 128  # multiplications an element for which an image in torch's order is relaid
_F32 = np.dtype("float32")

_known: LRU[Hashable, Any] = LRU(1024)  # by geometry


def _worth(outputs: int, multiplications: int, groups: int) -> bool:
    """Return whether windows may serve a convolution with `outputs` output channels."""
    enough = multiplications >= _FEWEST or (processor.always() and multiplications > 0)
    return groups == 1 and enough and windows.serves(outputs)


def _taken(image: Array, weight: Sequence[int], multiplications: int) -> bool:
    """Return whether an image is laid out channels-last, or there is much to do with it.

    One in torch's order may be wanted so: by convolutions in groups, between which 1x1 ones stand.
    """
    much = tuple(weight[2:]) != (1, 1) and multiplications >= _RELAID * image.size
    return much or lies_channels_last(image) or processor.always()


@kernel(convolution.convolution, "images")
def _convolution(
    xp: ArrayModule,
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> Array:
    if not usable(input, weight, bias) or input.ndim != 4 or weight.ndim != 4:
        return NotImplemented
    if not transposed and (few := pointwise.few(input, weight, bias, stride, padding, dilation, groups)) is not None:
        return few(input, weight, bias)
    geometry, output_padding = ConvGeometry.of(stride, padding, dilation, groups), tuple(output_padding)
    converted = not asks_channels_last(input) and not asks_channels_last(weight)
    biased = bias is None or bias.shape
    is_relaid = lies_channels_last(input)
    key = (
        "forward",
        is_relaid,
        input.shape,
        weight.shape,
        biased,
        geometry,
        transposed,
        output_padding,
        converted,
    )
    make = lambda: _layer(input, weight, bias, geometry, transposed, output_padding, converted)
    found = _known.made((*key, threads.get_num_threads()), make)
    return found(input, weight, bias) if found else NotImplemented


def _layer(
    x: Array,
    w: Array,
    bias: Array | None,
    geometry: ConvGeometry,
    transposed: bool,
    output_padding: Sequence[int],
    converted: bool,
) -> Any:
    """Build the object that computes a convolution; False where the op's own kernel does."""
    check(x, w, bias, geometry, transposed, output_padding)
    if transposed:
        shape = transposed_shape(x, w, geometry, output_padding)
        return functools.partial(_transposed, shape, geometry) if geometry.groups == 1 else False
    out = geometry.output_size(x.shape[2:], w.shape[2:])
    multiplications = x.shape[0] * math.prod(out) * w.size
    if not _worth(w.shape[0], multiplications, geometry.groups):
        return False
    if not _taken(x, w.shape, multiplications) and not winograd.serves(x.shape, w.shape, geometry):
        return False
    return _Layer(x.shape, w.shape, out, geometry, converted)


class _Layer:
    """A convolution by windows once they have proved themselves, by Winograd's algorithm once that has."""

    used = True

    def __init__(
        self, x: Sequence[int], w: Sequence[int], out: Sequence[int], geometry: ConvGeometry, converted: bool
    ) -> None:
        self.shape, self.converted = (x[0], w[0], *out), converted
        self.windows, self.geometry = windows.Forward(x, w, out, geometry), geometry
        self.first = self._by_windows
        if winograd.serves(x, w, geometry):
            self.first = winograd.Forward(self._by_windows, x, w, geometry.padding, converted)

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        return self.first(x, w, bias)

    def _by_windows(self, x: Array, w: Array, bias: Array | None) -> Array:
        trial = self.windows
        if trial.proven:
            return self._run(x, w, bias)
        if trial.disabled:
            return own(convolution.convolution, x, w, bias, *self.geometry[:3], False, (0, 0), 1)
        other = w.view(ChannelsLast) if type(w) is ChannelsLast else w  # each route packs it for itself
        return trial.chosen(lambda: self._run(x, w, bias), lambda: self._plain(x, other, bias), (x, w), w)

    def _plain(self, x: Array, w: Array, bias: Array | None) -> Array:
        """By numpy: the products of tiles have a trial of their own, which windows would make vain."""
        return follow(fast, by_numpy.plain(fast, in_torch_order(x), w, bias, self.geometry), x, w)

    def _run(self, x: Array, w: Array, bias: Array | None) -> Array:
        made = self.windows.run(as_channels_last(x), w, bias, empty_channels_last(self.shape, _F32))
        return made if self.converted else made.view(np.ndarray)


def _transposed(shape: Sequence[int], geometry: ConvGeometry, x: Array, w: Array, bias: Array | None) -> Array:
    made = _convolution_backward_input(np, x, w, shape, *geometry)
    if made is not NotImplemented and bias is not None:
        made += bias.reshape(-1, 1, 1)
    return made


def _first(
    routes: Sequence[tuple[Any, Callable[[], Array]]],
    plain: Callable[[], Array],
    operands: Sequence[Array],
    layer: Array | None = None,
) -> Array:
    """The result of the first route, (its trial, what it does), that serves; each is tried against those after it."""
    if not routes:
        return plain()
    (trial, run), *rest = routes
    if trial.proven:
        return run()
    others: Callable[[], Array] = lambda: _first(rest, plain, operands, layer)
    return others() if trial.disabled else trial.chosen(run, others, operands, layer)


@kernel(convolution.convolution_backward_input, "images")
def _convolution_backward_input(
    xp: ArrayModule,
    grad_output: Array,
    weight: Array,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    given = stride, padding, dilation, groups
    steps = pointwise.of_gradient(grad_output, weight, size, weight.shape[0], weight.shape[2:], given)
    if steps is not None:
        return steps.input(grad_output, weight)
    geometry = ConvGeometry.of(*given)
    if not usable(grad_output, weight) or grad_output.ndim != 4 or weight.ndim != 4 or not math.prod(size):
        return NotImplemented
    g, w, size = grad_output, weight, tuple(size)
    multiplications = g.size // g.shape[1] * w.size
    if not windows.Input.fits(geometry) or not _worth(size[1], multiplications, groups):
        return NotImplemented
    by_winograd = winograd.serves(size, w.shape, geometry)
    if not by_winograd and not _taken(g, w.shape, multiplications):
        return NotImplemented
    key = "input", size, w.shape, g.shape, geometry, threads.get_num_threads()
    tried = [_known.made(key, lambda: windows.Input(size, w.shape, g.shape, geometry))]
    if by_winograd:
        tried.insert(0, winograd.tried(winograd.Input, g.shape, w.shape, geometry.padding))
    routes = [(t, lambda t=t: t.run(as_channels_last(g), w, empty_image(size, g, w))) for t in tried]
    plain = lambda: own(convolution.convolution_backward_input, g, w, size, *geometry)
    return _first(routes, plain, (g, w), w)


@kernel(convolution.convolution_backward_weight, "images")
def _convolution_backward_weight(
    xp: ArrayModule,
    grad_output: Array,
    input: Array,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    given = stride, padding, dilation, groups
    steps = pointwise.of_gradient(grad_output, input, input.shape, size[0], size[2:], given)
    if steps is not None:
        return steps.weight(grad_output, input)
    geometry = ConvGeometry.of(*given)
    if not usable(grad_output, input) or grad_output.ndim != 4 or input.ndim != 4 or not math.prod(size):
        return NotImplemented
    g, x, size = grad_output, input, tuple(size)
    if not _worth(size[0], g.size // g.shape[1] * math.prod(size), groups):
        return NotImplemented
    key = "weight", x.shape, size, g.shape, geometry, threads.get_num_threads()
    tried = [_known.made(key, lambda: windows.Weight(x.shape, size, g.shape, geometry))]
    if winograd.serves(x.shape, size, geometry):
        tried.insert(0, winograd.tried(winograd.Weight, x.shape, g.shape, geometry.padding))
    routes = [(t, lambda t=t: t.run(as_channels_last(x), as_channels_last(g), np.empty(size, _F32))) for t in tried]
    plain = lambda: own(convolution.convolution_backward_weight, g, x, size, *geometry)
    return _first(routes, plain, (x, g))
