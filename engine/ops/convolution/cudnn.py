"""Convolution by cuDNN: forward, and the gradients of input and weight; transposed ones are gradients of the input.

float16, bfloat16 and float32 (TF32 where `torch.backends.cudnn.allow_tf32`), one to three dims, groups, dilation,
channels-last memory as it is laid out.  What cuDNN has no engine for goes to im2col and products; so does float64: the
frontend hands over the factors alpha and beta in float32, which cuDNN reads as float64 there, so that results are
scaled by 5e-315 or by whatever follows them in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backends import cudnn as settings
from engine.backends.cuda import compile as compiling
from engine.backends.cuda import cudnn_graph as graphs
from engine.backends.cuda import routes
from engine.backends.cuda.cudnn import PLANS
from engine.backends.cuda.cudnn_arrays import FORMATS, dense, graphs_there, guarded, on, served, used
from engine.core.arrays import Array, ArrayModule
from engine.core.geometry import ConvGeometry
from engine.core.layouts import channels_last, empty_in_format, is_channels_last, memory_format
from engine.core.lru import LRU
from engine.dispatch import kernel
from engine.ops import convolution as conv
from engine.ops.convolution import numpy as by_numpy
from engine.ops.convolution.checks import check, transposed_shape

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


def _check(xp: ArrayModule) -> Iterator[tuple[Array, Array]]:
    """Each of the three, with groups, strides and paddings that differ by dim, in both memory formats."""
    x, w = routes.numbers(2, 8, 9, 7) * np.float32(2), routes.numbers(16, 4, 3, 2, seed=1) * np.float32(2)
    geometry = ConvGeometry((2, 1), (1, 0), (1, 2), 2)
    wanted = by_numpy.forward(np, x, w, None, geometry)
    g = routes.numbers(*wanted.shape, seed=2) * np.float32(2)
    for type, last in (("float32", False), ("float16", True), ("bfloat16", True)):
        a, b, c = (xp.asarray(t).astype(type) for t in (x, w, g))
        if last:
            a, b, c = (dense(t, channels_last) for t in (a, b, c))
        for kind, shape, expected in (
            ("forward", wanted.shape, wanted),
            ("input", x.shape, by_numpy.backward_input(np, g, w, x.shape, geometry)),
            ("weight", w.shape, by_numpy.backward_weight(np, g, x, w.shape, geometry)),
        ):
            operands = {"forward": (a, b), "input": (c, b), "weight": (a, c)}[kind]
            found = _by_cudnn(xp, kind, *operands, shape, geometry)
            if found is None and type == "float32":
                raise RuntimeError(f"cuDNN has no engine for the check's convolution ({kind})")
            if found is not None:  # 24 (with TF32 11), 11 and 8 bits: brought to the scale of the tolerance
                scale = {"float32": 1, "float16": 1 / 8, "bfloat16": 1 / 64}[type]
                yield found.astype("float32") * scale, expected.astype(np.float32) * np.float32(scale)


ROUTE = routes.route(
    "cudnn convolution", check=_check, fallback="im2col and products", tolerance=2e-3, ready=graphs_there
)


def _fits(*arrays: Array) -> bool:
    """Return whether cuDNN's graphs serve arrays of this type."""
    return served(*arrays) and arrays[0].dtype != np.float64 and on(ROUTE)


def _by_cudnn(
    xp: ArrayModule,
    kind: str,
    first: Array,
    second: Array,
    shape: Sequence[int],
    geometry: ConvGeometry,
    bias: Array | None = None,
) -> Array | None:
    """The result of `shape`; None where cuDNN has no engine.  first, second: as `graphs.Convolution` says by kind."""
    stride, padding, dilation, _ = geometry  # the channels of the weight say the groups
    cudnn = used()
    if cudnn is None or cudnn.frontend is None:
        return None
    tf32, deterministic = bool(settings.allow_tf32), bool(settings.deterministic)
    operands = first.dtype, first.shape, first.strides, second.shape, second.strides
    key = kind, *operands, tuple(shape), geometry, bias is None, tf32, deterministic
    known = _results.get(key)  # of operands that went in as they lie
    if known is not None:
        made = known(xp)
        arrays = _by_uid(kind, first, second, made, bias)
        if (bias is None or bias.flags.c_contiguous) and graphs.run_again(cudnn, key, arrays):
            return made
    wanted = FORMATS.get(first.ndim) if is_channels_last(first) or is_channels_last(second) else None
    a, b = dense(first, wanted), dense(second, wanted)
    result = functools.partial(_empty, shape=tuple(shape), dtype=first.dtype, wanted=wanted)
    made = result(xp)
    arrays = _by_uid(kind, a, b, made, None if bias is None else dense(bias))
    layouts = [graphs.layout(arrays[uid], wanted is not None) for uid in (graphs.X, graphs.W, graphs.Y)]
    if len(stride) == 1:
        layouts = [graphs.spatial(one) for one in layouts]
    of_x, of_w, of_y = layouts
    problem = graphs.Convolution(
        kind,
        first.dtype.name,
        of_x,
        of_w,
        of_y,
        graphs.each(stride, 1),
        graphs.each(padding, 0),
        graphs.each(dilation, 1),
        bias is not None,
        tf32,
        deterministic,
    )
    same = _lies_as(a, first) and _lies_as(b, second)
    if not graphs.run(cudnn, problem, arrays, key if same else None):
        return None
    if same:
        _results[key] = result
    return made


# by what a call is made of: what makes the array that it writes
_results: LRU[tuple[object, ...], Callable[[ArrayModule], Array]] = LRU(PLANS)


def _lies_as(array: Array, given: Array) -> bool:
    return compiling.address(array) == compiling.address(given) and array.strides == given.strides


def _empty(xp: ArrayModule, shape: tuple[int, ...], dtype: DTypeLike, wanted: memory_format | None) -> Array:
    made: Array = xp.empty(shape, dtype) if wanted is None else empty_in_format(xp, shape, dtype, wanted)
    return made


def _by_uid(kind: str, first: Array, second: Array, made: Array, bias: Array | None) -> dict[int, Array]:
    x, w, y = {"forward": (first, second, made), "input": (made, second, first), "weight": (first, made, second)}[kind]
    found = {graphs.X: x, graphs.W: w, graphs.Y: y}
    if bias is not None:
        found[graphs.BIAS] = bias
    return found


@kernel(conv.convolution, "cudnn")
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
    geometry = ConvGeometry.of(stride, padding, dilation, groups)
    arrays = (input, weight) if bias is None else (input, weight, bias)
    if weight.ndim < 3 or not _fits(*arrays):
        return NotImplemented
    check(input, weight, bias, geometry, transposed, output_padding)
    if transposed:
        whole = transposed_shape(input, weight, geometry, output_padding)
        if not _reaches(whole, weight, input, geometry):
            return NotImplemented
        found = guarded(ROUTE, _by_cudnn, xp, "input", input, weight, whole, geometry)
    else:
        out = geometry.output_size(input.shape[2:], weight.shape[2:])
        given = xp, "forward", input, weight, (input.shape[0], weight.shape[0], *out), geometry
        if bias is not None and input.itemsize == 2:  # engines for 16-bit types add it themselves
            found = guarded(ROUTE, _by_cudnn, *given, bias=bias)
            if found is not NotImplemented or not ROUTE.on():
                return found
        found = guarded(ROUTE, _by_cudnn, *given)
    if found is not NotImplemented and bias is not None:
        found += bias.reshape(-1, *(1,) * len(stride))
    return found


def _reaches(whole: Sequence[int], weight: Array, input: Array, geometry: ConvGeometry) -> bool:
    """Return whether a convolution of something of the shape `whole` gives the size of `input`, as cuDNN wants it."""
    return geometry.output_size(whole[2:], weight.shape[2:]) == tuple(input.shape[2:])


@kernel(conv.convolution_backward_input, "cudnn")
def _backward_input(
    xp: ArrayModule,
    grad_output: Array,
    weight: Array,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    if 0 in size or not _fits(grad_output, weight):
        return NotImplemented
    geometry = ConvGeometry.of(stride, padding, dilation, groups)
    if not _reaches(tuple(size), weight, grad_output, geometry):
        return NotImplemented
    return guarded(ROUTE, _by_cudnn, xp, "input", grad_output, weight, tuple(size), geometry)


@kernel(conv.convolution_backward_weight, "cudnn")
def _backward_weight(
    xp: ArrayModule,
    grad_output: Array,
    input: Array,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    if 0 in size or not _fits(grad_output, input):
        return NotImplemented
    geometry = ConvGeometry.of(stride, padding, dilation, groups)
    if geometry.output_size(input.shape[2:], tuple(size)[2:]) != tuple(grad_output.shape[2:]):
        return NotImplemented
    return guarded(ROUTE, _by_cudnn, xp, "weight", input, grad_output, tuple(size), geometry)
