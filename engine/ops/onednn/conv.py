"""oneDNN's kernels of convolution and pooling."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.onednn import _abi, arrays
from engine.backends.onednn import convolution as conv
from engine.backends.onednn.primitives import primitive, ready, usable
from engine.dispatch import OPS, kernel
from engine.dispatch.choosing import worth_loading
from engine.layouts import (
    asks_channels_last,
    empty_channels_last,
    in_torch_order,
    lies_channels_last,
    to_channels_last,
)
from engine.ops.nn import _conv, _pool, pooling
from engine.ops.nn import conv as convolution
from engine.ops.onednn.blas import fast_products
from engine.ops.onednn.reduction import column_sums, rows_of_channels


def activation(array: Any) -> Any:
    """The array in channels-last made, as a plain numpy array; a copy unless it lies so."""
    found = array if lies_channels_last(array) else to_channels_last(array)
    return found.view(np.ndarray)


def result(shape: Any, *operands: Any) -> Any:
    """A channels-last array for a result: converted, or the user's own layout where an operand has it."""
    made = empty_channels_last(shape, "float32")
    return made.view(np.ndarray) if any(asks_channels_last(a) for a in operands) else made


# --- convolution

_MANY = 1024  # geometries, then all are forgotten
_refused: set[Any] = set()  # gradients that oneDNN has no fast code for


def _own(op: Any, *args: Any) -> Any:
    """What the op's own kernel gives of arrays in torch's order, with oneDNN's products: BLAS's threads stay asleep."""
    given = [in_torch_order(a) if isinstance(a, np.ndarray) and a.ndim > 2 else a for a in args]
    return OPS[op.__name__].kernel(fast_products, *given)


def _read_as_it_lies(x: Any, outputs: int, kernel: Any, padding: Any, groups: int) -> bool:
    """Whether a product of the picture x in torch's order is quicker than to turn x: of its elements alone, to few."""
    pointwise = groups == 1 and all(k == 1 for k in kernel) and not any(padding)
    return pointwise and 2 * outputs <= x.shape[1] and not lies_channels_last(x)


class _Product:
    """A convolution of single elements, by products."""

    used = True

    def __init__(self, *geometry: Any) -> None:
        self._geometry = geometry

    def __call__(self, x: Any, w: Any, bias: Any) -> Any:
        return _own(convolution.convolution, x, w, bias, *self._geometry)


def _gradient(op: Any, run: Callable[[], Any], a: Any, b: Any, *rest: Any) -> Any:
    """The gradient `op(a, b, *rest)` by `run`, which makes nothing of it where oneDNN has no fast code."""
    key = op.__name__, a.shape, b.shape, rest
    if key not in _refused:
        if (made := run()) is not NotImplemented or not ready():
            return made
        if len(_refused) >= _MANY:
            _refused.clear()
        _refused.add(key)
    return _own(op, a, b, *rest)


@kernel(convolution.convolution, "onednn")
def _convolution(xp, input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), transposed=False,
                 output_padding=(0,), groups=1):  # fmt: skip
    if not usable(input, weight, bias) or input.ndim != weight.ndim:
        return NotImplemented
    geometry = tuple(stride), tuple(padding), tuple(dilation)
    given = *geometry, transposed, tuple(output_padding), groups
    key = (
        "convolution", input.__class__, input.shape, input.strides, weight.__class__, weight.shape, weight.strides,
        bias is None or bias.shape, given,
    )  # fmt: skip

    def make() -> Any:
        convolution.check(input, weight, bias, *geometry, transposed, output_padding, groups)
        if transposed:
            return _Transposed(output_padding, *geometry, groups)
        if _read_as_it_lies(input, weight.shape[0], weight.shape[2:], padding, groups):
            return _Product(*given)
        out = _conv.output_size(input.shape[2:], weight.shape[2:], *geometry)
        converted = not asks_channels_last(input) and not asks_channels_last(weight)
        plain = conv.forward(key, input, weight, bias, out, converted, *geometry, groups)
        return _Layer(plain, input.shape, weight.shape, geometry, groups, converted)

    found = primitive(key, make)
    if found is not None:
        return found(input, weight, bias)
    return _own(convolution.convolution, input, weight, bias, *given) if ready() else NotImplemented


class _Layer:
    """A convolution by oneDNN, then by what may be in front of it once that is worth loading."""

    __slots__ = ("_given", "_plain", "_run", "used")

    def __init__(
        self, plain: conv.Forward | conv.Slices, x: Any, w: Any, geometry: Any, groups: int, converted: bool
    ) -> None:
        self.used, self._plain, self._run = True, plain, None
        self._given = x, w, geometry, groups, converted

    def __call__(self, x: Any, w: Any, bias: Any) -> Any:
        run = self._run
        if run is None:
            if not worth_loading(x.size):
                return self._plain(x, w, bias)
            run = self._run = self._chosen()
        return run(x, w, bias)

    def _chosen(self) -> Any:
        x, w, geometry, groups, converted = self._given
        if (code := _generated()) and code[0].serves(x, w, *geometry, groups):
            return code[0].Forward(self._plain, x, w, geometry[1], converted)
        return self._plain


def _in_front(size: int) -> Any:
    """`_generated`, once that is worth loading."""
    return _generated() if worth_loading(size) else None


@functools.cache
def _generated() -> Any:
    """The modules of generated convolutions and of passes in front of oneDNN's; None without the extra `jit`."""
    from engine.kernels import processor

    if not processor.available():
        return None
    from engine.ops.generated import channels, winograd

    return winograd, channels


class _Transposed:
    """A checked transposed convolution: the gradient of a convolution with respect to its input."""

    used = True

    def __init__(self, output_padding: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
        self.output_padding = output_padding
        self.geometry = stride, padding, dilation
        self.groups = groups

    def __call__(self, input: Any, weight: Any, bias: Any) -> Any:
        shape = convolution.transposed_shape(input, weight, *self.geometry, self.output_padding, self.groups)
        made = _convolution_backward_input(np, input, weight, shape, *self.geometry, self.groups)
        if made is not NotImplemented and bias is not None:
            made += bias.reshape(-1, *(1,) * len(self.geometry[0]))
        return made


@kernel(convolution.convolution_backward_input, "onednn")
def _convolution_backward_input(xp, grad_output, weight, size, stride, padding, dilation, groups):
    if not usable(grad_output, weight) or not math.prod(size):
        return NotImplemented
    size, stride, padding, dilation = map(tuple, (size, stride, padding, dilation))
    geometry, g = (stride, padding, dilation, groups), grad_output  # g is turned once, where that is needed

    def run() -> Any:
        made = result(size, grad_output, weight)
        return made if conv.backward_input(activation(g), weight, made, *geometry) else NotImplemented

    def plain() -> Any:
        return _gradient(convolution.convolution_backward_input, run, grad_output, weight, size, *geometry)

    if (code := _in_front(g.size)) and code[0].serves(size, weight.shape, *geometry):
        g, trial = activation(g), code[0].tried(code[0].Input, g.shape, weight.shape, padding)
        return trial.chosen(lambda: trial.run(g, weight, result(size, grad_output, weight)), plain, (g, weight), weight)
    return plain()


@kernel(convolution.convolution_backward_weight, "onednn")
def _convolution_backward_weight(xp, grad_output, input, size, stride, padding, dilation, groups):
    if not usable(grad_output, input) or not math.prod(size):
        return NotImplemented
    size, stride, padding, dilation = map(tuple, (size, stride, padding, dilation))
    geometry, g, x = (stride, padding, dilation, groups), grad_output, input  # turned once, where that is needed

    def run() -> Any:
        made = np.empty(size, "float32")
        return made if conv.backward_weight(activation(g), activation(x), made, *geometry) else NotImplemented

    def plain() -> Any:
        return _gradient(convolution.convolution_backward_weight, run, grad_output, input, size, *geometry)

    if _read_as_it_lies(x, size[0], size[2:], padding, groups):
        return _own(convolution.convolution_backward_weight, g, x, size, *geometry)
    if (code := _in_front(g.size)) and code[0].serves(x.shape, size, *geometry):
        g, x, trial = activation(g), activation(x), code[0].tried(code[0].Weight, x.shape, g.shape, padding)
        return trial.chosen(lambda: trial.run(x, g, np.empty(size, "float32")), plain, (x, g))
    return plain()


# --- pooling

_FEW = 1 << 15  # elements up to which numpy's own sum is the fastest


@functools.lru_cache(1024)
def _pooled(shape: Any, geometry: Any, ceil_mode: bool) -> Any:
    """The shape (N, C, *out) of what is pooled from (N, C, *size)."""
    out = [_pool.out_size(n, *g, ceil_mode) for n, g in zip(shape[2:], zip(*geometry))]
    return (*shape[:2], *out)


def _finite(array: Any) -> bool:
    """Whether no element is nan or infinite: oneDNN's maximum overlooks nan.  (Or its sum overflows, by chance.)"""
    if lies_channels_last(array):
        rows = rows_of_channels(array)
        array = rows if array.size < _FEW else column_sums(rows)
    return math.isfinite(float(np.add.reduce(array, axis=None)))


def _max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    if not usable(input):
        return NotImplemented
    geometry = (tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation))
    shape, x = _pooled(input.shape, geometry, ceil_mode), activation(input)

    def plain() -> Any:
        if not _finite(input):
            return NotImplemented
        made = result(shape, input)
        return made if arrays.pooling(x, made, _abi.POOLING_MAX, *geometry) else NotImplemented

    if not (code := _in_front(x.size)):
        return plain()
    return code[1].pooled(x, shape, lambda: result(shape, input), geometry, plain)


kernel(pooling.max_pool2d_values, "onednn")(_max_pool)
kernel(pooling.max_pool3d_values, "onednn")(_max_pool)


@kernel(pooling.max_pool_gradient, "onednn")
def _max_pool_gradient(xp, grad_output, input, output, kernel_size, stride, padding, dilation):
    if not usable(grad_output, input, output):
        return NotImplemented
    geometry = (tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation))
    x, g = activation(input), activation(grad_output)

    def plain() -> Any:
        if not _finite(input):
            return NotImplemented
        again = empty_channels_last(output.shape, "float32").view(np.ndarray)
        kept = arrays.pooling(x, again, _abi.POOLING_MAX, *geometry, keep=True)
        if kept is False:
            return NotImplemented
        made = result(input.shape, input)
        return made if arrays.pooling_backward(g, made, _abi.POOLING_MAX, *geometry, kept) else NotImplemented

    if not (code := _in_front(x.size)):
        return plain()
    return code[1].unpooled(g, x, lambda: result(input.shape, input), geometry, plain)


def average(kernel_size, padding, ceil_mode, count_include_pad, divisor_override):
    """The algorithm, or None where oneDNN counts otherwise."""
    if divisor_override is not None or (ceil_mode and count_include_pad):
        return None
    return _abi.AVERAGE_WITH_PADDING if count_include_pad else _abi.AVERAGE_WITHOUT_PADDING


def _avg_pool(xp, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):  # fmt: skip
    algorithm = average(kernel_size, padding, ceil_mode, count_include_pad, divisor_override)
    if algorithm is None or not usable(input):
        return NotImplemented
    ones = (1,) * len(kernel_size)
    geometry = (tuple(kernel_size), tuple(stride), tuple(padding), ones)
    made = result(_pooled(input.shape, geometry, ceil_mode), input)
    served = arrays.pooling(activation(input), made, algorithm, *geometry)
    return made if served else NotImplemented


kernel(pooling.avg_pool2d_values, "onednn")(_avg_pool)
kernel(pooling.avg_pool3d_values, "onednn")(_avg_pool)


@kernel(pooling.avg_pool_backward, "onednn")
def _avg_pool_backward(xp, grad_output, size, kernel_size, stride, padding, count_include_pad, divisor_override):
    geometry = (tuple(kernel_size), tuple(stride), tuple(padding), (1,) * len(size))
    floor = [_pool.out_size(n, *g, False) for n, g in zip(size, zip(*geometry))]
    ceil_mode = floor != list(grad_output.shape[2:])
    algorithm = average(kernel_size, padding, ceil_mode, count_include_pad, divisor_override)
    if algorithm is None or not usable(grad_output):
        return NotImplemented
    made = result((*grad_output.shape[:2], *size), grad_output)
    served = arrays.pooling_backward(activation(grad_output), made, algorithm, *geometry)
    return made if served else NotImplemented
