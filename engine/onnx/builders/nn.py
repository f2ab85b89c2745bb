"""Convolution, pooling, normalization, padding and resizing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.onnx.builders.reduction import reduced
from engine.onnx.builders.registry import builds, expanded
from engine.onnx.errors import OnnxExporterError
from engine.onnx.writer import Value, Writer


@builds("convolution")
def _convolution(
    w: Writer,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: Any,
) -> Any:
    n = weight.rank - 2
    x = input if input.rank == weight.rank else w.op("Unsqueeze", input, w.ints([0]))
    sides = [int(p) for p in padding]
    sides = sides * n if len(sides) == 1 else sides
    given: dict[str, Any] = dict(
        kernel_shape=weight.static[2:],
        strides=expanded(stride, n),
        pads=sides * 2,
        group=int(groups),
        dilations=expanded(dilation, n),
    )
    if transposed:
        if any(o >= s for o, s in zip(expanded(output_padding, n), expanded(stride, n)) if o):
            raise OnnxExporterError("output_padding that is not below the stride has no ONNX form")
        made = w.op("ConvTranspose", x, weight, bias, output_padding=expanded(output_padding, n), **given)
    else:
        made = w.op("Conv", x, weight, bias, **given)
    return made if x is input else w.op("Squeeze", made, w.ints([0]))


@builds("batch_norm_eval")
def _batch_norm(w: Writer, input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, eps: Any) -> Any:
    n = running_mean.static
    scale = w.const(np.ones(n), input.dtype) if weight is None else weight
    shift = w.const(np.zeros(n), input.dtype) if bias is None else bias
    return w.op("BatchNormalization", input, scale, shift, running_mean, running_var, epsilon=float(eps))


@builds("layer_norm")
def _layer_norm(w: Writer, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: Any) -> Any:
    scale = w.const(np.ones(tuple(normalized_shape)), input.dtype) if weight is None else weight
    return w.op("LayerNormalization", input, scale, bias, axis=-len(normalized_shape), epsilon=float(eps))


@builds("rms_norm")
def _rms_norm(w: Writer, input: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
    dims = tuple(range(-len(normalized_shape), 0))
    small = np.finfo(dtypes.to_numpy(input.dtype)).eps if eps is None else eps
    mean = reduced(w, "ReduceMean", w.op("Mul", input, input, shape=input.shape), dims, True)
    made = w.op("Div", input, w.op("Sqrt", w.op("Add", mean, w.const(small, input.dtype))))
    return made if weight is None else w.op("Mul", made, weight)


def _groups(w: Writer, x: Value, groups: int, weight: Any, bias: Any, eps: float) -> Value:
    """Normalization of groups of channels, by that of instances: channels of a group side by side."""
    flat = w.op("Reshape", x, w.ints([0, groups, -1]))
    scale, shift = (w.const(np.full(groups, v), x.dtype) for v in (1, 0))
    made = w.op("InstanceNormalization", flat, scale, shift, epsilon=float(eps))
    made = w.op("Reshape", made, w.shape_of(x))
    shape = w.ints([-1] + [1] * (x.rank - 2))
    if weight is not None:
        made = w.op("Mul", made, w.op("Reshape", weight, shape))
    return made if bias is None else w.op("Add", made, w.op("Reshape", bias, shape))


@builds("group_norm")
def _group_norm(w: Writer, input: Any, num_groups: Any, weight: Any, bias: Any, eps: Any) -> Any:
    return _groups(w, input, num_groups, weight, bias, eps)


@builds("instance_norm")
def _instance_norm(
    w: Writer, input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, use_input_stats: Any, eps: Any
) -> Any:
    if not use_input_stats:
        return _batch_norm(w, input, running_mean, running_var, weight, bias, eps)
    return _groups(w, input, input.dim(1), weight, bias, eps)


@builds("local_response_norm")
def _local_response_norm(w: Writer, input: Any, size: Any, alpha: Any, beta: Any, k: Any) -> Any:
    if size % 2 == 0:
        raise OnnxExporterError("an even size is centred otherwise in ONNX")
    if input.rank == 3:
        made = w.op(
            "LRN", w.op("Unsqueeze", input, w.ints([3])), size=size, alpha=float(alpha), beta=float(beta), bias=float(k)
        )
        return w.op("Squeeze", made, w.ints([3]))
    return w.op("LRN", input, size=size, alpha=float(alpha), beta=float(beta), bias=float(k))


# --- pooling


def _spatial(w: Writer, x: Value, n: int) -> tuple[Value, bool]:
    """The input with a batch; whether one was added."""
    if x.rank == n + 2:
        return x, False
    shape = None if x.shape is None else (1, *x.shape)
    return w.op("Unsqueeze", x, w.ints([0]), shape=shape), True


def _window(n: int, kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    return dict(
        kernel_shape=expanded(kernel, n),
        pads=expanded(padding, n) * 2,
        strides=expanded(kernel if stride is None or stride == [] or stride == () else stride, n),
    )


def _overhang(w: Writer, x: Value, n: int, given: dict[str, Any], dilations: list[int], ceil_mode: Any) -> bool:
    """Return whether ceil_mode makes a window more than floor does; it then must begin inside, which torch asks for."""
    if not ceil_mode:
        return False
    more = False
    for i in range(n):
        size, k, s, p = x.dim(i - n), given["kernel_shape"][i], given["strides"][i], given["pads"][i]
        span = size + 2 * p - dilations[i] * (k - 1) - 1
        up, down = -(-span // s), span // s
        if up != down and up * s >= size + p:
            raise OnnxExporterError("ceil_mode with a window that begins in the padding counts otherwise in ONNX")
        more = more or up != down
    return more


def _max_pool(n: int) -> None:
    def build(
        w: Writer,
        input: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: Any,
        return_indices: Any = False,
    ) -> Any:
        x, added = _spatial(w, input, n)
        given, dilations = _window(n, kernel_size, stride, padding), expanded(dilation, n)
        ceil = _overhang(w, x, n, given, dilations, ceil_mode)
        more = dict(dilations=dilations, ceil_mode=int(ceil), **given)
        if not return_indices:
            made = w.op("MaxPool", x, **more)
            return w.op("Squeeze", made, w.ints([0])) if added else made
        raise OnnxExporterError("return_indices=True has no ONNX form")

    builds(f"max_pool{n}d")(build)


def _average_pool(n: int) -> None:
    def build(
        w: Writer,
        input: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: Any,
        count_include_pad: Any,
        divisor_override: Any = None,
    ) -> Any:
        x, added = _spatial(w, input, n)
        given = _window(n, kernel_size, stride, padding)
        ceil = _overhang(w, x, n, given, [1] * n, ceil_mode)
        inside = not (count_include_pad and any(given["pads"]))
        if ceil and not inside:
            raise OnnxExporterError("ceil_mode with padding that counts differs between versions of ONNX")
        made = w.op("AveragePool", x, ceil_mode=int(ceil), count_include_pad=int(not inside), **given)
        if divisor_override:
            factor = math.prod(given["kernel_shape"]) / divisor_override
            made = w.op("Mul", made, w.const(factor, input.dtype))
        return w.op("Squeeze", made, w.ints([0])) if added else made

    builds(f"avg_pool{n}d")(build)


def _adaptive(n: int) -> None:
    def build(w: Writer, input: Any, output_size: Any, kind: Any = "Average") -> Any:
        x, added = _spatial(w, input, n)
        wanted = [output_size] * n if isinstance(output_size, int) else list(output_size)
        if all(s == 1 for s in wanted):
            made = w.op(f"Global{kind}Pool", x)
        else:
            sizes = [x.dim(i - n) for i in range(n)]
            wanted = [size if s is None else s for s, size in zip(wanted, sizes)]
            made = (
                _regular(w, x, kind, sizes, wanted) if _divides(sizes, wanted) else _windows(w, x, kind, sizes, wanted)
            )
        return w.op("Squeeze", made, w.ints([0])) if added else made

    def largest(w: Writer, input: Any, output_size: Any, result: Any, return_indices: Any = False) -> Any:
        if return_indices or result.dtype is None:
            raise OnnxExporterError("return_indices=True has no ONNX form")
        return build(w, input, output_size, "Max")

    def average(w: Writer, input: Any, output_size: Any) -> Any:
        return build(w, input, output_size)

    builds(f"adaptive_avg_pool{n}d")(average)
    builds(f"adaptive_max_pool{n}d")(largest)


def _divides(sizes: list[int], wanted: list[int]) -> bool:
    return all(size % s == 0 for size, s in zip(sizes, wanted))


def _regular(w: Writer, x: Value, kind: str, sizes: list[int], wanted: list[int]) -> Value:
    kernel = [size // s for size, s in zip(sizes, wanted)]
    made: Value = w.op(f"{kind}Pool", x, kernel_shape=kernel, strides=kernel)
    return made


def _windows(w: Writer, x: Value, kind: str, sizes: list[int], wanted: list[int]) -> Value:
    """Windows of different lengths, one dim after the other."""
    n, value = len(sizes), x
    for i, (size, s) in enumerate(zip(sizes, wanted)):
        d = x.rank - n + i
        parts = []
        for j in range(s):
            first, last = j * size // s, -(-(j + 1) * size // s)
            piece = w.op("Slice", value, w.ints([first]), w.ints([last]), w.ints([d]), shape=x.shape)
            parts.append(reduced(w, "ReduceMean" if kind == "Average" else "ReduceMax", piece, d, True))
        value = w.op("Concat", *parts, axis=d, shape=x.shape)
    return value


for _n in (1, 2, 3):
    _max_pool(_n)
    _average_pool(_n)
    _adaptive(_n)


# --- padding and resizing


def _padded(w: Writer, x: Value, pad: Any, mode: str, value: Any) -> Value:
    sides = list(pad)
    n = len(sides) // 2
    before, after = [0] * (x.rank - n), [0] * (x.rank - n)
    before += sides[0::2][::-1]
    after += sides[1::2][::-1]
    if mode == "circular":
        return _wrapped(w, x, before, after)
    fill = w.const(0 if value is None else value, x.dtype) if mode == "constant" else None
    made: Value = w.op("Pad", x, w.sizes([*before, *after]), fill, mode={"replicate": "edge"}.get(mode, mode))
    return made


def _wrapped(w: Writer, x: Value, before: list[int], after: list[int]) -> Value:
    value = x
    for d, (first, last) in enumerate(zip(before, after)):
        if first or last:
            parts = [value]
            if first:
                parts.insert(0, w.op("Slice", value, w.ints([-first]), w.ints([2**62]), w.ints([d])))
            if last:
                parts.append(w.op("Slice", value, w.ints([0]), w.ints([last]), w.ints([d])))
            value = w.op("Concat", *parts, axis=d)
    return value


@builds("pad")
def _pad(w: Writer, input: Any, pad: Any, mode: Any, value: Any) -> Any:
    return _padded(w, input, pad, mode, value)


@builds("constant_pad_nd")
def _constant_pad_nd(w: Writer, input: Any, pad: Any, value: Any) -> Any:
    return _padded(w, input, pad, "constant", value)


@builds("pad_by_copy")
def _pad_by_copy(w: Writer, input: Any, pad: Any, how: Any) -> Any:
    return _padded(w, input, pad, how, None)


@builds("interpolate")
def _interpolate(
    w: Writer,
    input: Any,
    size: Any,
    scale_factor: Any,
    mode: Any,
    align_corners: Any,
    recompute_scale_factor: Any,
    antialias: Any,
    result: Any,
) -> Any:
    n = input.rank - 2
    if mode == "area":
        raise OnnxExporterError("mode='area' has no ONNX form; use adaptive_avg_pool")
    if antialias:
        raise OnnxExporterError("antialias=True has another filter in ONNX runtimes")
    kind = {"nearest": "nearest", "nearest-exact": "nearest", "bicubic": "cubic"}.get(mode, "linear")
    where = "align_corners" if align_corners else "half_pixel" if mode == "nearest-exact" else "pytorch_half_pixel"
    if mode == "nearest":
        where = "asymmetric"
    more: dict[str, Any] = dict(mode=kind, coordinate_transformation_mode=where)
    if kind == "nearest":
        more["nearest_mode"] = "round_prefer_floor" if mode == "nearest-exact" else "floor"
        if mode == "nearest-exact":
            more["nearest_mode"] = "round_prefer_ceil"
    if kind == "cubic":
        more["cubic_coeff_a"] = -0.75
    if scale_factor is not None and not recompute_scale_factor:
        factors = (
            [float(scale_factor)] * n if isinstance(scale_factor, int | float) else [float(s) for s in scale_factor]
        )
        scales = w.const(np.asarray([1.0, 1.0, *factors], np.float32))
        return w.op("Resize", input, None, scales, **more)
    given = [size] * n if isinstance(size, int | Value) else list(size or result.shape[2:])
    if any(s is None for s in given):
        raise OnnxExporterError("a size that varies with recompute_scale_factor=True has no ONNX form")
    sizes = w.sizes([w.size(input, 0), w.size(input, 1), *given])
    return w.op("Resize", input, None, None, sizes, **more)


@builds("pixel_shuffle")
def _pixel_shuffle(w: Writer, input: Any, upscale_factor: Any) -> Any:
    x, added = _spatial(w, input, 2)
    made = w.op("DepthToSpace", x, blocksize=int(upscale_factor), mode="CRD")
    return w.op("Squeeze", made, w.ints([0])) if added else made


@builds("grid_sample")
def _grid_sample(w: Writer, input: Any, grid: Any, mode: Any, padding_mode: Any, align_corners: Any) -> Any:
    if input.rank != 4 and w.opset < 20:
        raise OnnxExporterError("volumes need opset 20")
    if w.opset >= 20:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return w.op("GridSample", input, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners))


@builds("col2im")
def _col2im(w: Writer, input: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if w.opset < 18:
        raise OnnxExporterError("fold needs opset 18")
    x, added = _spatial(w, input, 1)
    sides = dict(dilations=expanded(dilation, 2), pads=expanded(padding, 2) * 2, strides=expanded(stride, 2))
    made = w.op("Col2Im", x, w.ints(expanded(output_size, 2)), w.ints(expanded(kernel_size, 2)), **sides)
    return w.op("Squeeze", made, w.ints([0])) if added else made


@builds("im2col")
def _im2col(w: Writer, input: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    x, added = _spatial(w, input, 2)
    kernel, dil, pad, step = (expanded(v, 2) for v in (kernel_size, dilation, padding, stride))
    value = _padded(w, x, (pad[1], pad[1], pad[0], pad[0]), "constant", 0) if any(pad) else x
    count = [(x.dim(2 + i) + 2 * pad[i] - dil[i] * (kernel[i] - 1) - 1) // step[i] + 1 for i in (0, 1)]
    rows, columns = (w.const(np.arange(kernel[i])[:, None] * dil[i] + np.arange(count[i]) * step[i]) for i in (0, 1))
    made = w.op("Gather", w.op("Gather", value, rows, axis=2), columns, axis=4)  # (N, C, kH, H', kW, W')
    made = w.op("Transpose", made, perm=[0, 1, 2, 4, 3, 5])
    made = w.op("Reshape", made, w.ints([-1, x.dim(1) * kernel[0] * kernel[1], count[0] * count[1]]))
    return w.op("Squeeze", made, w.ints([0])) if added else made


@builds("glu")
def _glu(w: Writer, input: Any, dim: Any) -> Any:
    half = input.dim(dim) // 2
    first, gate = w.op("Split", input, w.ints([half, half]), axis=dim % input.rank, outputs=2)
    return w.op("Mul", first, w.op("Sigmoid", gate))
