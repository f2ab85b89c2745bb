"""Convolutions and transposed convolutions, with forward, backward-data and backward-weight as ops of their own.

The files of this folder are what computes them: numpy, oneDNN, cuDNN, generated code.
"""

from __future__ import annotations

import warnings

from engine.autograd import flops
from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.backends.cpu.relayout import follow, in_torch_order
from engine.core import dtypes
from engine.core.geometry import ConvGeometry
from engine.core.grad_mode import mode
from engine.dispatch import array_derivative, composite, joint_derivative, moving, op, samples
from engine.ops.convolution import numpy as by_numpy
from engine.ops.convolution import pointwise
from engine.ops.convolution.checks import check, dims_of, each, transposed_shape
from engine.ops.convolution.weights import lay_weight
from engine.ops.dependence import depending
from engine.tensor import Tensor, raw_array

_WORTH = 64  # elements of a weight from which packing it for every use is felt


def _conj(tensor):
    return tensor.conj() if raw_array(tensor).dtype.kind in "cW" else tensor


def _channel_sum(grad):
    """The sum over all dims but the channels; in torch's order over the last ones first, which lie together."""
    inner = tuple(range(2, grad.dim()))
    halves = raw_array(grad).dtype.itemsize == 2  # are rounded once
    if halves or grad._channels_last is not None or grad.is_cuda or not grad.is_contiguous():
        return grad.sum((0, *inner))
    return grad.sum(inner).sum(0)


def _cropped(tensor, size):
    """`tensor` without what it has beyond `size` (an output padding wider than the stride)."""
    for d, (have, want) in enumerate(zip(tensor.shape, size)):
        if have != want:
            tensor = tensor.narrow(d, 0, want)
    return tensor


def convolution_grads(grad, input, weight, needs, stride, padding, dilation, transposed, output_padding, groups):
    """The gradients of input, weight and bias from that of the output; None for those that `needs` does not ask for."""
    geometry = (stride, padding, dilation, groups)
    of_input = of_weight = None
    if needs[0]:
        factor = _conj(weight)
        if transposed:
            of_input = convolution(grad, factor, None, stride, padding, dilation, False, output_padding, groups)
            of_input = _cropped(of_input, input.shape)
        else:
            of_input = convolution_backward_input(grad, factor, tuple(input.shape), *geometry)
    if needs[1]:
        factor = _conj(input)
        pair = (factor, grad) if transposed else (grad, factor)
        of_weight = convolution_backward_weight(*pair, tuple(weight.shape), *geometry)
    return depending((of_input, of_weight, _channel_sum(grad) if needs[2] else None), (input, weight))


def _wide(xp, *arrays):
    """Half precision arrays as float32; others as they are."""
    return [
        a.astype("float32") if a is not None and a.dtype.itemsize == 2 and a.dtype.kind in "fV" else a for a in arrays
    ]


def _narrow(array, dtype):
    return array if array.dtype == dtype else array.astype(dtype)


def _geometries(t):
    """(spatial dims, kernel, stride, padding, dilation, groups, C/G, O) of the samples."""
    return [
        ((7, 6), (3, 2), (1, 1), (1, 0), (1, 1), 1, 2, 3),
        ((7, 8), (3, 3), (2, 2), (1, 1), (1, 2), 2, 2, 4),
        ((5, 5), (1, 1), (2, 2), (0, 0), (1, 1), 1, 3, 2),
        ((6, 6), (3, 3), (2, 1), (1, 1), (1, 1), 3, 1, 6),
        ((9,), (4,), (3,), (2,), (1,), 1, 2, 2),
        ((4, 4, 5), (2, 1, 3), (1, 2, 1), (0, 0, 1), (1, 1, 1), 1, 1, 2),
    ]


def _zeros(values):
    return (0,) * len(values)


@op(
    out=False,
    node="ConvolutionBackward0",
    method=False,
    channels_last=True,
    large=256,
    image_kernel=True,
    autocast="lower",
    flops=("convolution", flops.convolution),
)
@joint_derivative("input", "weight", "bias", by=convolution_grads)
@array_derivative(by=moving(pointwise.gradients))
@samples(
    lambda t: (
        [
            (t(2, cg * g, *n), t(o, cg, *k), t(o), s, p, d, False, _zeros(n), g)
            for n, k, s, p, d, g, cg, o in _geometries(t)
        ]
        + [
            (
                t(2, o, *ConvGeometry(s, p, d).output_size(n, k)),
                t(o, cg, *k),
                t(cg * g),
                s,
                p,
                d,
                True,
                _zeros(n),
                g,
            )
            for n, k, s, p, d, g, cg, o in _geometries(t)
        ]
        + [
            (t(1, 2, 3, 3), t(2, 3, 3, 3), None, (2, 2), (1, 1), (1, 1), True, (1, 0), 1),
            (t(1, 2, 4), t(2, 1, 3), None, (1,), (0,), (2,), True, (1,), 1),
            (t(1, 2, 3, 2), t(2, 3, 1, 1), None, (1, 1), (0, 0), (1, 3), True, (0, 2), 1),
            (t(0, 2, 5), t(3, 2, 3), t(3), (1,), (0,), (1,), False, (0,), 1),
        ]
    )
)
def convolution(
    xp,
    input,
    weight,
    bias=None,
    stride: tuple[int, ...] = (1,),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    transposed: bool = False,
    output_padding: tuple[int, ...] = (0,),
    groups: int = 1,
):
    """Cross-correlation, or (transposed) its gradient with respect to the input, in any number of dims.

    input (N, C, *size), weight (O, C/groups, *kernel), bias (O) -> (N, O, *out); transposed: weight
    (C, O/groups, *kernel).  out = floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1, transposed
    out = (size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.
    """
    if not transposed and by_numpy.of_one_place(input, weight, bias, stride, padding, dilation, groups):
        result = by_numpy.product_of_one_place(xp, input, weight, bias)
        return follow(xp, result, input, weight)
    if not transposed and (few := pointwise.few(input, weight, bias, stride, padding, dilation, groups)) is not None:
        return few(input, weight, bias)
    geometry = ConvGeometry.of(stride, padding, dilation, groups)
    check(input, weight, bias, geometry, transposed, output_padding)
    x, w, b = _wide(xp, input, weight, bias)
    if not transposed:
        x = in_torch_order(x)
        result = by_numpy.forward(xp, x, w, b, geometry)
        return _narrow(follow(xp, result, input, weight), input.dtype)
    whole = transposed_shape(input, weight, geometry, output_padding)
    result = by_numpy.backward_input(xp, x, w, whole, geometry)
    if b is not None:
        result += b.reshape(-1, *(1,) * len(stride))
    return _narrow(follow(xp, result, input, weight), input.dtype)


def _backward_input_grads(grad, grad_output, weight, needs, stride, padding, dilation, groups):
    geometry = (stride, padding, dilation, groups)
    of_grad = of_weight = None
    if needs[0]:
        factor = _conj(weight)
        of_grad = convolution(grad, factor, None, stride, padding, dilation, False, _zeros(stride), groups)
        of_grad = _cropped(of_grad, grad_output.shape)
    if needs[1]:
        of_weight = convolution_backward_weight(_conj(grad_output), grad, tuple(weight.shape), *geometry)
    return of_grad, of_weight


@op(
    out=False,
    public=False,
    method=False,
    channels_last=True,
    large=256,
    image_kernel=True,
    flops=("convolution_backward", flops.convolution_by_input),
)
@joint_derivative(
    "grad_output",
    "weight",
    by=_backward_input_grads,
)
@samples(
    lambda t: [
        (t(2, o, *ConvGeometry(s, p, d).output_size(n, k)), t(o, cg, *k), (2, cg * g, *n), s, p, d, g)
        for n, k, s, p, d, g, cg, o in _geometries(t)
    ]
)
def convolution_backward_input(xp, grad_output, weight, size, stride, padding, dilation, groups):
    """The gradient of a convolution with respect to its input of shape `size`.

    grad_output (N, O, *out), weight (O, C/groups, *kernel) -> (N, C, *size).
    """
    if by_numpy.gradients_of_one_place(grad_output, weight, size, padding, groups):
        return follow(xp, by_numpy.input_of_one_place(xp, grad_output, weight), grad_output, weight)
    g, w = _wide(xp, grad_output, weight)
    geometry = ConvGeometry.of(stride, padding, dilation, groups)
    result = by_numpy.backward_input(xp, g, w, tuple(size), geometry)
    return _narrow(follow(xp, result, grad_output, weight), grad_output.dtype)


@op(
    out=False,
    public=False,
    method=False,
    channels_last=True,
    large=256,
    image_kernel=True,
    flops=("convolution_backward", flops.convolution_by_weight),
)
@joint_derivative(
    "grad_output",
    "input",
    by=lambda grad, grad_output, input, needs, stride, padding, dilation, groups: (
        _cropped(
            convolution(_conj(input), grad, None, stride, padding, dilation, False, _zeros(stride), groups),
            grad_output.shape,
        )
        if needs[0]
        else None,
        convolution_backward_input(_conj(grad_output), grad, tuple(input.shape), stride, padding, dilation, groups)
        if needs[1]
        else None,
    ),
)
@samples(
    lambda t: [
        (t(2, o, *ConvGeometry(s, p, d).output_size(n, k)), t(2, cg * g, *n), (o, cg, *k), s, p, d, g)
        for n, k, s, p, d, g, cg, o in _geometries(t)
    ]
)
def convolution_backward_weight(xp, grad_output, input, size, stride, padding, dilation, groups):
    """The gradient of a convolution with respect to its weight of shape `size`.

    grad_output (N, O, *out), input (N, C, *size) -> (O, C/groups, *kernel).
    """
    if by_numpy.gradients_of_one_place(grad_output, input, size, padding, groups):
        return by_numpy.weight_of_one_place(xp, grad_output, input)
    g, x = _wide(xp, grad_output, input)
    geometry = ConvGeometry.of(stride, padding, dilation, groups)
    return _narrow(by_numpy.backward_weight(xp, g, x, tuple(size), geometry), input.dtype)


# --- the public functions


def _batched(name, n, input, weight):
    ndim = input.dim()
    if ndim == n + 2:
        return True
    if ndim != n + 1:
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    return False


def _match(weight, n, stride):
    if dims_of(weight) != n:
        raise RuntimeError(
            f"expected stride to be a single integer value or a list of {weight.dim() - 2} values to match the "
            f"convolution dimensions, but got stride={list(stride)}"
        )


def _conv_nd(name, n, input, weight, bias, stride, padding, dilation, groups):
    batched = _batched(name, n, input, weight)
    if not batched:
        input = input.unsqueeze(0)
    stride, dilation = each(stride, n, "stride"), each(dilation, n, "dilation")
    _match(weight, n, stride)
    if isinstance(padding, str):
        input, padding = _string_padding(input, weight, padding, stride, dilation)
    else:
        padding = each(padding, n, "padding")
    if not mode.enabled and weight._channels_last is None:
        lay_weight(weight, _WORTH)
    result = convolution(input, weight, bias, stride, padding, dilation, False, (0,) * n, groups)
    return result if batched else result.squeeze(0)


def _string_padding(input, weight, padding, stride, dilation):
    if padding == "valid":
        return input, (0,) * len(stride)
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
    if all(t % 2 == 0 for t in total):
        return input, tuple(t // 2 for t in total)
    warnings.warn(
        "Using padding='same' with even kernel lengths and odd dilation may require a zero-padded copy of the input be "
        "created (Triggered internally at /__w/pytorch/pytorch/aten/src/ATen/native/Convolution.cpp:1101.)",
        stacklevel=4,
    )
    from engine.ops.nn.padding import constant_pad_nd

    more = [x for t in reversed(total) for x in (0, t % 2)]
    return constant_pad_nd(input, more, 0), tuple(t // 2 for t in total)


def _conv_transpose_nd(name, n, input, weight, bias, stride, padding, output_padding, groups, dilation):
    batched = _batched(name, n, input, weight)
    if not batched:
        input = input.unsqueeze(0)
    stride = each(stride, n, "stride")
    _match(weight, n, stride)
    if bias is not None and n < 3 and dtypes.can_cast(bias.dtype, input.dtype):
        bias = bias.to(input.dtype)
    result = convolution(
        input,
        weight,
        bias,
        stride,
        each(padding, n, "padding"),
        each(dilation, n, "dilation"),
        True,
        each(output_padding, n, "output_padding"),
        groups,
    )
    return result if batched else result.squeeze(0)


@composite(method=False, several=((2, 7), (2, 7)))
@samples(lambda t: [(t(2, 3, 7), t(4, 3, 2), t(4), 2, 1), (t(2, 5), t(1, 2, 3), None, 1, "same")])
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
):
    """Cross-correlation.  input (N, C, L) or (C, L), weight (O, C/groups, K), bias (O) -> (N, O, L')."""
    return _conv_nd("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@composite(method=False, several=((2, 7), (2, 7)))
@samples(
    lambda t: [
        (t(2, 3, 5, 6), t(4, 3, 3, 2), t(4), 1, (1, 0)),
        (t(2, 5, 5), t(2, 1, 3, 3), t(2), 2, 0, 1, 2),
        (t(1, 1, 4, 4), t(1, 1, 3, 3), None, 1, "same", 2),
    ]
)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
):
    """Cross-correlation; padding also "valid", "same".

    input (N, C, H, W) or (C, H, W), weight (O, C/groups, kH, kW), bias (O) -> (N, O, H', W').
    """
    return _conv_nd("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@composite(method=False, several=((2, 7), (2, 7)))
@samples(lambda t: [(t(1, 2, 3, 4, 4), t(2, 2, 2, 2, 2), t(2), 1, 1)])
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] | str = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
):
    """Cross-correlation.  input (N, C, D, H, W), weight (O, C/groups, kD, kH, kW), bias (O) -> (N, O, D', H', W')."""
    return _conv_nd("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@composite(method=False)
@samples(lambda t: [(t(2, 3, 5), t(3, 2, 4), t(2), 2, 1)])
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    groups: int = 1,
    dilation: int | tuple[int, ...] = 1,
):
    """Transposed convolution.  input (N, C, L), weight (C, O/groups, K), bias (O) -> (N, O, L')."""
    return _conv_transpose_nd(
        "conv_transpose1d",
        1,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )


@composite(method=False)
@samples(lambda t: [(t(1, 2, 3, 3), t(2, 2, 3, 3), t(4), 2, 1, 1, 2), (t(2, 3, 3), t(2, 1, 2, 2))])
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    groups: int = 1,
    dilation: int | tuple[int, ...] = 1,
):
    """Transposed convolution.  input (N, C, H, W), weight (C, O/groups, kH, kW), bias (O) -> (N, O, H', W')."""
    return _conv_transpose_nd(
        "conv_transpose2d",
        2,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )


@composite(method=False)
@samples(lambda t: [(t(1, 2, 2, 2, 2), t(2, 1, 2, 2, 2), t(1), 2)])
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    output_padding: int | tuple[int, ...] = 0,
    groups: int = 1,
    dilation: int | tuple[int, ...] = 1,
):
    """Transposed convolution.  input (N, C, D, H, W), weight (C, O/groups, kD, kH, kW) -> (N, O, D', H', W')."""
    return _conv_transpose_nd(
        "conv_transpose3d",
        3,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )


@composite(method=False)
@samples(lambda t: [(t(5, 2, 3), t(3, 3, 4), t(4), 1)])
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0):
    """1-d convolution, time first.  input (T, N, C), weight (K, C, O), bias (O) -> (T', N, O)."""
    result = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return guard(name_node(result.permute(2, 0, 1), "ConvTbcBackward0"), bias)
