"""Convolution, pooling, normalization, resizing and recurrent layers."""

from __future__ import annotations

import math
from typing import Any

from engine.nn import functional
from engine.onnx.functions.registry import implements, ints
from engine.ops import functions as torch
from engine.tensor import Tensor


def _sides(
    x: Tensor, auto_pad: str, pads: Any, kernel: list[int], strides: list[int], dilations: list[int]
) -> tuple[list[int], list[int]]:
    """Padding before and after each spatial dim."""
    n = len(kernel)
    if auto_pad in ("NOTSET", ""):
        given = ints(pads) or [0] * (2 * n)
        return given[:n], given[n:]
    before, after = [], []
    for i in range(n):
        size = int(x.shape[i + 2])
        reach = dilations[i] * (kernel[i] - 1) + 1
        total = max((math.ceil(size / strides[i]) - 1) * strides[i] + reach - size, 0) if auto_pad != "VALID" else 0
        small = total // 2
        first = total - small if auto_pad == "SAME_LOWER" else small
        before.append(first)
        after.append(total - first)
    return before, after


def _padded(x: Tensor, before: list[int], after: list[int]) -> tuple[Tensor, list[int]]:
    """(the input, padding that is left): what is uneven is padded now."""
    if before == after:
        return x, before
    pairs = tuple(p for pair in zip(before[::-1], after[::-1]) for p in pair)
    return functional.pad(x, pairs), [0] * len(before)


_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


@implements("Conv")
def _conv(
    x: Tensor,
    weight: Tensor,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    n = x.dim() - 2
    kernel = [int(k) for k in weight.shape[2:]]
    stride, dilation = ints(strides) or [1] * n, ints(dilations) or [1] * n
    x, padding = _padded(x, *_sides(x, auto_pad, pads, kernel, stride, dilation))
    return _CONV[n](x, weight, bias, tuple(stride), tuple(padding), tuple(dilation), group)


@implements("ConvTranspose")
def _conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    n = x.dim() - 2
    if auto_pad != "NOTSET" or output_shape:
        raise NotImplementedError("ONNX ConvTranspose with auto_pad or output_shape is not supported")
    stride, dilation, extra = ints(strides) or [1] * n, ints(dilations) or [1] * n, ints(output_padding) or [0] * n
    given = ints(pads) or [0] * (2 * n)
    before, after = given[:n], given[n:]
    if before == after:
        return _TRANSPOSED[n](x, weight, bias, tuple(stride), tuple(before), tuple(extra), group, tuple(dilation))
    made = _TRANSPOSED[n](x, weight, bias, tuple(stride), 0, tuple(extra), group, tuple(dilation))
    index = [slice(None)] * 2 + [slice(b, int(made.shape[i + 2]) - a) for i, (b, a) in enumerate(zip(before, after))]
    return made[tuple(index)]


# --- pooling

_MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


@implements("MaxPool")
def _max_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    outputs: int,
) -> Any:
    if outputs > 1:
        raise NotImplementedError("ONNX MaxPool with indices is not supported")
    del storage_order
    kernel = ints(kernel_shape)
    n = len(kernel)
    stride, dilation = ints(strides) or [1] * n, ints(dilations) or [1] * n
    before, after = _sides(x, auto_pad, pads, kernel, stride, dilation)
    if before != after or any(2 * p > k for p, k in zip(before, kernel)):
        pairs = tuple(p for pair in zip(before[::-1], after[::-1]) for p in pair)
        x, before = functional.pad(x, pairs, value=-math.inf), [0] * n
    return _MAX[n](x, tuple(kernel), tuple(stride), tuple(before), tuple(dilation), ceil_mode=bool(ceil_mode))


@implements("AveragePool")
def _average_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    kernel = ints(kernel_shape)
    n = len(kernel)
    stride = ints(strides) or [1] * n
    if any(d != 1 for d in ints(dilations)):
        raise NotImplementedError("ONNX AveragePool with dilations is not supported")
    before, after = _sides(x, auto_pad, pads, kernel, stride, [1] * n)
    pool = _AVERAGE[n]
    if before == after:
        return pool(x, tuple(kernel), tuple(stride), tuple(before), bool(ceil_mode), bool(count_include_pad))
    if ceil_mode:
        raise NotImplementedError("ONNX AveragePool with ceil_mode and uneven pads is not supported")
    wide, _ = _padded(x, before, after)
    made = pool(wide, tuple(kernel), tuple(stride))
    if count_include_pad:
        return made
    inside, _ = _padded(torch.ones_like(x[:1, :1]), before, after)
    return made / pool(inside, tuple(kernel), tuple(stride))


@implements("GlobalAveragePool")
def _global_average(x: Tensor) -> Any:
    return torch.mean(x, tuple(range(2, x.dim())), keepdim=True)


@implements("GlobalMaxPool")
def _global_max(x: Tensor) -> Any:
    return torch.amax(x, tuple(range(2, x.dim())), keepdim=True)


# --- normalization


@implements("BatchNormalization")
def _batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Any:
    del momentum
    if training_mode or not spatial:
        raise NotImplementedError("ONNX BatchNormalization in training mode is not supported")
    return functional.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


@implements("InstanceNormalization")
def _instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Any:
    return functional.group_norm(x, int(x.shape[1]), scale, bias, epsilon)


@implements("GroupNormalization")
def _group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1, opset: int
) -> Any:
    del stash_type
    if opset < 21:  # a number for each group
        each = int(x.shape[1]) // num_groups
        scale, bias = (torch.repeat_interleave(v, each) for v in (scale, bias))
    return functional.group_norm(x, num_groups, scale, bias, epsilon)


@implements("LayerNormalization")
def _layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int,
) -> Any:
    del stash_type
    if outputs > 1:
        raise NotImplementedError("ONNX LayerNormalization with its statistics is not supported")
    shape = tuple(int(n) for n in x.shape[axis % x.dim() :])
    weight = torch.broadcast_to(scale, shape)
    return functional.layer_norm(x, shape, weight, None if bias is None else torch.broadcast_to(bias, shape), epsilon)


@implements("RMSNormalization")
def _rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    del stash_type
    shape = tuple(int(n) for n in x.shape[axis % x.dim() :])
    return functional.rms_norm(x, shape, torch.broadcast_to(scale, shape), epsilon)


@implements("LpNormalization")
def _lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Any:
    return functional.normalize(x, p=float(p), dim=axis)


@implements("LRN")
def _lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    if size % 2 == 0:
        raise NotImplementedError("ONNX LRN of an even size is not supported")
    return functional.local_response_norm(x, size, alpha, beta, bias)


# --- images


@implements("DepthToSpace")
def _depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    if mode == "CRD":
        return functional.pixel_shuffle(x, blocksize)
    n, c, h, w = (int(s) for s in x.shape)
    parts = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(n, c // blocksize**2, h * blocksize, w * blocksize)


@implements("SpaceToDepth")
def _space_to_depth(x: Tensor, *, blocksize: int) -> Any:
    n, c, h, w = (int(s) for s in x.shape)
    parts = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    return parts.permute(0, 3, 5, 1, 2, 4).reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@implements("GridSample")
def _grid_sample(
    x: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> Any:
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return functional.grid_sample(x, grid, kind, padding_mode, bool(align_corners))


@implements("Col2Im")
def _col2im(x: Tensor, image: Any, block: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None) -> Any:
    size, kernel = tuple(ints(image)), tuple(ints(block))
    given = ints(pads) or [0] * (2 * len(size))
    if given[: len(size)] != given[len(size) :]:
        raise NotImplementedError("ONNX Col2Im with uneven pads is not supported")
    dilation, stride = tuple(ints(dilations)) or 1, tuple(ints(strides)) or 1
    return functional.fold(x, size, kernel, dilation, tuple(given[: len(size)]), stride)


@implements("Resize")
def _resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    del roi, extrapolation_value, cubic_coeff_a
    where = coordinate_transformation_mode
    nearest = {("asymmetric", "floor"): "nearest", ("half_pixel", "round_prefer_ceil"): "nearest-exact"}
    n = x.dim() - 2
    if mode == "nearest":
        kind = nearest.get((where, nearest_mode))
    else:
        kind = {
            ("linear", 1): "linear",
            ("linear", 2): "bilinear",
            ("linear", 3): "trilinear",
            ("cubic", 2): "bicubic",
        }.get((mode, n))
        kind = kind if where in ("align_corners", "half_pixel", "pytorch_half_pixel") else None
    if kind is None or axes or exclude_outside or keep_aspect_ratio_policy != "stretch":
        raise NotImplementedError(f"ONNX Resize({mode}, {where}, {nearest_mode}) is not supported")
    more: dict[str, Any] = {} if mode == "nearest" else {"align_corners": where == "align_corners"}
    if antialias:
        more["antialias"] = True
    if len(ints(sizes)):
        return functional.interpolate(x, tuple(ints(sizes)[2:]), mode=kind, **more)
    factors = [float(s) for s in scales.tolist()]
    if factors[:2] != [1.0, 1.0]:
        raise NotImplementedError("ONNX Resize of batch or channels is not supported")
    return functional.interpolate(x, scale_factor=tuple(factors[2:]), mode=kind, **more)


# --- recurrent layers: ONNX's gates in torch's order

_BACK = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}


def _gates(kind: str, x: Tensor) -> Tensor:
    parts = torch.chunk(x, len(_BACK[kind]), 0)
    return parts[0] if len(parts) == 1 else torch.cat([parts[i] for i in _BACK[kind]], 0)


def _recurrent(
    kind: str,
    x: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Any,
    lengths: Any,
    states: list[Any],
    direction: str,
    function: Any,
    layout: int,
    outputs: int,
) -> Any:
    if lengths is not None or layout:
        raise NotImplementedError(f"ONNX {kind} with sequence_lens or layout=1 is not supported")
    count = int(weight.shape[0])
    size = int(recurrent.shape[2])
    if direction == "reverse":
        x = torch.flip(x, [0])
    weights: list[Tensor] = []
    for d in range(count):
        weights += [_gates(kind, weight[d]), _gates(kind, recurrent[d])]
        if bias is not None:
            half = int(bias.shape[1]) // 2
            weights += [_gates(kind, bias[d, :half]), _gates(kind, bias[d, half:])]
    shape = (count, int(x.shape[1]), size)
    given = [torch.zeros(shape, dtype=x.dtype) if s is None else s for s in states]
    made = function(
        x, tuple(given) if len(given) > 1 else given[0], weights, bias is not None, 1, 0.0, False, count == 2, False
    )
    y = made[0]
    if direction == "reverse":
        y = torch.flip(y, [0])
    y = y.reshape(int(y.shape[0]), int(y.shape[1]), count, size).permute(0, 2, 1, 3)
    return (y, *made[1:])[: max(outputs, 1)]


@implements("LSTM")
def _lstm(
    x: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    peepholes: Any = None,
    *,
    direction: str = "forward",
    hidden_size: Any = None,
    layout: int = 0,
    input_forget: int = 0,
    activations: Any = None,
    outputs: int,
) -> Any:
    usual = [b"Sigmoid", b"Tanh", b"Tanh"]
    if peepholes is not None or input_forget or list(activations or usual)[:3] != usual:
        raise NotImplementedError("ONNX LSTM with peepholes, input_forget or other activations is not supported")
    return _recurrent("LSTM", x, weight, recurrent, bias, lengths, [h, c], direction, torch.lstm, layout, outputs)


@implements("GRU")
def _gru(
    x: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Any = None,
    lengths: Any = None,
    h: Any = None,
    *,
    direction: str = "forward",
    hidden_size: Any = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    activations: Any = None,
    outputs: int,
) -> Any:
    usual = [b"Sigmoid", b"Tanh"]
    if not linear_before_reset or list(activations or usual)[:2] != usual:
        raise NotImplementedError("ONNX GRU is supported with linear_before_reset=1 and its usual activations")
    return _recurrent("GRU", x, weight, recurrent, bias, lengths, [h], direction, torch.gru, layout, outputs)


@implements("RNN")
def _rnn(
    x: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Any = None,
    lengths: Any = None,
    h: Any = None,
    *,
    direction: str = "forward",
    hidden_size: Any = None,
    layout: int = 0,
    activations: Any = None,
    outputs: int,
) -> Any:
    kinds = {bytes(a) for a in (activations or [b"Tanh"])}
    functions = {b"Tanh": torch.rnn_tanh, b"Relu": torch.rnn_relu}
    if len(kinds) != 1 or not kinds <= set(functions):
        raise NotImplementedError("ONNX RNN is supported with Tanh or Relu")
    return _recurrent(
        "RNN", x, weight, recurrent, bias, lengths, [h], direction, functions[kinds.pop()], layout, outputs
    )
