"""oneDNN's kernels of convolution, and Winograd's in front of them."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu.relayout import empty_image, image, in_torch_order, to_channels_last
from engine.backends.onednn import convolution as conv
from engine.backends.onednn.primitives import primitive, ready, usable
from engine.core.arrays import Array, ArrayModule
from engine.core.geometry import ConvGeometry
from engine.core.layouts import ChannelsLast, asks_channels_last, lies_channels_last
from engine.core.lru import LRU
from engine.dispatch import OPS, kernel
from engine.dispatch.choosing import worth_loading
from engine.ops import convolution
from engine.ops.convolution import numpy as by_numpy
from engine.ops.convolution import pointwise
from engine.ops.convolution.checks import check, transposed_shape
from engine.ops.products.onednn import fast_products, linear_of_rows

_refused: LRU[Hashable, bool] = LRU(1024)  # gradients that oneDNN has no fast code for


def _own(op: Any, *args: Any) -> Array:
    """Run the op's own kernel on arrays in torch's order, with oneDNN's products: BLAS's threads stay asleep."""
    given = [in_torch_order(a) if isinstance(a, np.ndarray) and a.ndim > 2 else a for a in args]
    result: Array = OPS[op.__name__].kernel(fast_products, *given)  # type: ignore[assignment]  # one array
    return result


def _read_as_it_lies(x: Array, outputs: int, kernel: Sequence[int], padding: Sequence[int], groups: int) -> bool:
    """Return whether a product of the picture x in torch's order is quicker than to turn x: of its elements alone, to
    few.
    """
    pointwise = groups == 1 and all(k == 1 for k in kernel) and not any(padding)
    return pointwise and 2 * outputs <= x.shape[1] and not lies_channels_last(x)


def _taken(x: Array, stride: Sequence[int]) -> Array:
    """Return the elements that a convolution of single elements in steps reads, laid out as x is."""
    every: tuple[slice, ...] = tuple([slice(None, None, s) for s in stride])
    view = x[(slice(None), slice(None), *every)]
    if not (asks_channels_last(x) or lies_channels_last(x)):
        return view
    found = to_channels_last(view)
    return found if type(x) is ChannelsLast else found.view(np.ndarray)


_BY_BLAS = 1 << 17  # multiplications that BLAS does sooner than other code is found


class _Stepped:
    """A convolution of single elements in steps: of those that are read, one after the other."""

    used = True

    def __init__(self, stride: Sequence[int], groups: int) -> None:
        ones = (1,) * len(stride)
        self._stride, self._rest = stride, (ones, (0,) * len(stride), ones, False, (0,) * len(stride), groups)

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        return _convolution(np, _taken(x, self._stride), w, bias, *self._rest)


def _one_place(shape: Sequence[int], kernel: Sequence[int], padding: Sequence[int], groups: int) -> bool:
    """Return whether images of a shape are one element of each channel, of which a convolution is a product."""
    return groups == 1 and not any(padding) and math.prod(shape[2:]) == math.prod(kernel) == 1


class _Linear:
    """A convolution of images of one element of each channel, by `linear`, which converts nothing."""

    used = True

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        rows, matrix = x.view(np.ndarray).reshape(x.shape[:2]), w.view(np.ndarray).reshape(w.shape[:2])
        made = linear_of_rows(np, rows, matrix, bias)
        if made is NotImplemented:
            made = OPS["linear"].kernel(np, rows, matrix, bias)
        return _one_element(made, x, w)


def _product(rows: Array, matrix: Array) -> Array:
    """rows @ matrix, of one row by BLAS."""
    made: Array = (np if len(rows) == 1 else fast_products).matmul(rows, matrix)
    return made


def _one_element(made: Array, *operands: Array) -> Array:
    """(N, C) as images of one element of each channel, which are in both orders: converted where the first operand is,
    but where users lay operands out."""
    if made.ndim == 2:
        made = made.reshape(*made.shape, *(1,) * (operands[0].ndim - 2))
    if any(map(asks_channels_last, operands)):
        return image(made)
    return made.view(ChannelsLast) if operands[0].__class__ is ChannelsLast else made


class _Product:
    """A convolution of single elements, by products."""

    used = True

    def __init__(self, *geometry: Any) -> None:
        self._geometry = geometry

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        return _own(convolution.convolution, x, w, bias, *self._geometry)


def _gradient(op: Any, run: Callable[[], Array], a: Array, b: Array, *rest: Any) -> Array:
    """The gradient `op(a, b, *rest)` by `run`, which makes nothing of it where oneDNN has no fast code."""
    key = op.__name__, a.shape, b.shape, rest
    if not _refused.get(key):
        if (made := run()) is not NotImplemented or not ready():
            return made
        _refused[key] = True
    return _own(op, a, b, *rest)


@kernel(convolution.convolution, "onednn")
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
    if not usable(input, weight, bias) or input.ndim != weight.ndim:
        return NotImplemented
    few = input.shape[1:] == weight.shape[1:] and not transposed and len(input) * weight.size <= _BY_BLAS
    if few and by_numpy.of_one_place(input, weight, bias, stride, padding, dilation, groups):
        plain = input.view(np.ndarray), weight.view(np.ndarray)
        return _one_element(by_numpy.product_of_one_place(np, *plain, bias), input, weight)
    given = tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups
    key = (
        "convolution",
        input.__class__,
        input.shape,
        input.strides,
        weight.__class__,
        weight.shape,
        weight.strides,
        bias is None or bias.shape,
        given,
    )

    def make() -> _Layer | _Linear | _Product | pointwise.Steps | _Stepped | _Transposed:
        geometry = ConvGeometry(*given[:3], groups)
        check(input, weight, bias, geometry, transposed, output_padding)
        if transposed:
            return _Transposed(geometry, output_padding)
        if _one_place(input.shape, weight.shape[2:], padding, groups):
            return _Linear()
        if geometry.pointwise(weight.shape[2:]):
            in_order = not asks_channels_last(input) and not asks_channels_last(weight)
            if in_order and pointwise.Steps.serve(input.shape, geometry.stride, weight.shape[0], groups, input, weight):
                return pointwise.Steps(input.shape, geometry.stride, weight.shape[0])
        if pointwise.in_steps(geometry, weight.shape[2:]):
            return _Stepped(given[0], groups)
        if _read_as_it_lies(input, weight.shape[0], weight.shape[2:], padding, groups):
            return _Product(*given)
        out = geometry.output_size(input.shape[2:], weight.shape[2:])
        converted = not asks_channels_last(input) and not asks_channels_last(weight)
        plain = conv.forward(key, input, weight, bias, out, converted, geometry)
        in_order = converted and input.flags.c_contiguous and weight.flags.c_contiguous
        return _Layer(plain, input.shape, weight.shape, geometry, converted, in_order)

    found = primitive(key, make)
    if found is not None:
        return found(input, weight, bias)
    return _own(convolution.convolution, input, weight, bias, *given) if ready() else NotImplemented


class _Layer:
    """A convolution by oneDNN, then by what may be in front of it once that is worth loading."""

    __slots__ = ("_given", "_plain", "_run", "used")

    def __init__(
        self,
        plain: conv.Forward | conv.Slices,
        x: tuple[int, ...],
        w: tuple[int, ...],
        geometry: ConvGeometry,
        converted: bool,
        in_order: bool,
    ) -> None:
        """`x` and `w` are the shapes of input and weight; in_order: both lie in torch's order."""
        self.used, self._plain = True, plain
        self._run: Callable[..., Array] | None = None
        self._given = x, w, geometry, converted, in_order

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        run = self._run
        if run is None:
            if not worth_loading(x.size):
                return self._plain(x, w, bias)
            run = self._run = self._chosen()
        return run(x, w, bias)

    def _chosen(self) -> Callable[..., Array]:
        x, w, geometry, converted, in_order = self._given
        if (
            in_order
            and geometry.groups > 1
            and (each := _generated("generated_depthwise"))
            and each.serves(x, w, geometry)
        ):
            return each.Forward(x, w, geometry, self._plain)
        if (code := _generated("generated_winograd")) and code.serves(x, w, geometry):
            return code.Forward(self._plain, x, w, geometry.padding, converted)
        return self._plain


def _in_front(size: int) -> Any:
    """`_winograd`, once that is worth loading."""
    return _generated("generated_winograd") if worth_loading(size) else None


@functools.cache
def _generated(name: str) -> Any:
    """A module of generated convolutions; None without the extra `jit`."""
    from engine.kernels import processor

    return importlib.import_module(f"engine.ops.convolution.{name}") if processor.available() else None


def _each_channel(size: Sequence[int], w: Sequence[int], geometry: ConvGeometry, *arrays: Array) -> Any:
    """`generated_depthwise` where it serves the gradients of a convolution, of arrays in torch's order; else None."""
    if geometry.groups == 1 or not worth_loading(arrays[0].size) or not (code := _generated("generated_depthwise")):
        return None
    return code if code.serves(size, w, geometry, *arrays) else None


def _grouped(g: Array, x: Array, size: Sequence[int], geometry: ConvGeometry) -> Any:
    """`generated_weights` where it serves the gradient of weights of groups, whose channels are few for oneDNN's
    vectors, of arrays in torch's order; else None."""
    code = _generated("generated_weights") if worth_loading(g.size) else None
    return code if code and code.serves(g, x, size, geometry) else None


class _Transposed:
    """A checked transposed convolution: the gradient of a convolution with respect to its input."""

    used = True

    def __init__(self, geometry: ConvGeometry, output_padding: Sequence[int]) -> None:
        self.geometry, self.output_padding = geometry, output_padding

    def __call__(self, input: Array, weight: Array, bias: Array | None) -> Array:
        shape = transposed_shape(input, weight, self.geometry, self.output_padding)
        made = _convolution_backward_input(np, input, weight, shape, *self.geometry)
        if made is not NotImplemented and bias is not None:
            made += bias.reshape(-1, *(1,) * len(self.geometry.stride))
        return made


@kernel(convolution.convolution_backward_input, "onednn")
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
    if not usable(grad_output, weight) or not math.prod(size):
        return NotImplemented
    if by_numpy.gradients_of_one_place(grad_output, weight, size, padding, groups):
        rows, matrix = (a.view(np.ndarray).reshape(a.shape[:2]) for a in (grad_output, weight))
        return _one_element(_product(rows, matrix), grad_output, weight)
    given = stride, padding, dilation, groups
    steps = pointwise.of_gradient(grad_output, weight, size, weight.shape[0], weight.shape[2:], given)
    if steps is not None:
        return steps.input(grad_output, weight)
    size, geometry = tuple(size), ConvGeometry.of(stride, padding, dilation, groups)
    g = grad_output  # relaid once, where that is needed
    if pointwise.in_steps(geometry, weight.shape[2:]):
        ones = (1,) * len(geometry.stride)
        few = (*size[:2], *g.shape[2:])
        part = _convolution_backward_input(np, g, weight, few, ones, geometry.padding, ones, groups)
        if part is NotImplemented:
            return part
        whole = empty_image(size, grad_output, weight) if lies_channels_last(part) else np.empty(size, "float32")
        whole.view(np.ndarray).fill(0)
        every: tuple[slice, ...] = tuple([slice(0, (n - 1) * s + 1, s) for n, s in zip(g.shape[2:], geometry.stride)])
        whole[(slice(None), slice(None), *every)] = part
        return whole

    def run() -> Array:
        made = empty_image(size, grad_output, weight)
        return made if conv.backward_input(image(g), weight, made, geometry) else NotImplemented

    def plain() -> Array:
        return _gradient(convolution.convolution_backward_input, run, grad_output, weight, size, *geometry)

    if not asks_channels_last(weight) and (each := _each_channel(size, weight.shape, geometry, g, weight)):
        return each.backward_input(g, weight, size, geometry, plain)
    if _read_as_it_lies(g, size[1], weight.shape[2:], padding, groups):
        return _own(convolution.convolution_backward_input, g, weight, size, *geometry)
    if (code := _in_front(g.size)) and code.serves(size, weight.shape, geometry):
        g, trial = image(g), code.tried(code.Input, g.shape, weight.shape, geometry.padding)
        return trial.chosen(
            lambda: trial.run(g, weight, empty_image(size, grad_output, weight)), plain, (g, weight), weight
        )
    return plain()


@kernel(convolution.convolution_backward_weight, "onednn")
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
    if not usable(grad_output, input) or not math.prod(size):
        return NotImplemented
    if by_numpy.gradients_of_one_place(grad_output, input, size, padding, groups):
        return by_numpy.weight_of_one_place(fast_products, grad_output.view(np.ndarray), input.view(np.ndarray))
    given = stride, padding, dilation, groups
    steps = pointwise.of_gradient(grad_output, input, input.shape, size[0], size[2:], given)
    if steps is not None:
        return steps.weight(grad_output, input)
    size, geometry = tuple(size), ConvGeometry.of(stride, padding, dilation, groups)
    g, x = grad_output, input  # relaid once, where that is needed
    if pointwise.in_steps(geometry, size[2:]):
        ones = (1,) * len(geometry.stride)
        x = _taken(x, geometry.stride)
        return _convolution_backward_weight(np, g, x, size, ones, geometry.padding, ones, groups)

    def run() -> Array:
        made = np.empty(size, "float32")
        return made if conv.backward_weight(image(g), image(x), made, geometry) else NotImplemented

    def plain() -> Array:
        return _gradient(convolution.convolution_backward_weight, run, grad_output, input, size, *geometry)

    if each := _each_channel(x.shape, size, geometry, g, x):
        return each.backward_weight(g, x, size, geometry, plain)
    if groups > 1 and (found := _grouped(g, x, size, geometry)):
        return found.backward_weight(g, x, size, geometry, plain)
    if any(_read_as_it_lies(a, outputs, size[2:], padding, groups) for a, outputs in ((x, size[0]), (g, size[1]))):
        return _own(convolution.convolution_backward_weight, g, x, size, *geometry)
    if (code := _in_front(g.size)) and code.serves(x.shape, size, geometry):
        g, x, trial = image(g), image(x), code.tried(code.Weight, x.shape, g.shape, geometry.padding)
        return trial.chosen(lambda: trial.run(x, g, np.empty(size, "float32")), plain, (x, g))
    return plain()
