"""torch's errors for the operands and the geometry of a convolution."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from engine.core import dtypes
from engine.core.arrays import Array
from engine.core.geometry import ConvGeometry, Sizes
from engine.tensor import Tensor

__all__ = ["check", "dims_of", "each", "transposed_shape"]


def dims_of(weight: Array | Tensor) -> int:
    """The dims a weight of shape (O, C, *kernel) slides along."""
    if weight.ndim < 3:
        raise RuntimeError("weight should have at least three dimensions")
    return weight.ndim - 2


def each(value: int | Iterable[int], n: int, label: str) -> Sizes:
    """`value` as a tuple of n ints."""
    if value.__class__ is int:
        return (value,) * n
    if value.__class__ is tuple and len(value) == n:
        return value
    if not isinstance(value, Iterable):
        return (operator.index(value),) * n
    values = tuple(map(operator.index, value))
    if len(values) == 1:
        return values * n
    if len(values) != n:
        raise RuntimeError(
            f"expected {label} to be a single integer value or a list of {n} values to match the convolution "
            f"dimensions, but got {label}={list(values)}"
        )
    return values


def _cross(sizes: Sequence[int]) -> str:
    return "(" + " x ".join(map(str, sizes)) + ")"


def _named(label: str, values: Sequence[int]) -> str:
    names = ("depth", "height", "width")[-len(values) :]
    return " ".join(f"{label}_{n}: {v}" for n, v in zip(names, values))


def _check_types(input: Array, weight: Array, bias: Array | None, transposed: bool) -> None:
    """torch's errors for a weight or a bias of another type."""
    a, b = dtypes.from_numpy(input.dtype), dtypes.from_numpy(weight.dtype)
    c = a if bias is None else dtypes.from_numpy(bias.dtype)
    if not transposed and c is not a:
        raise RuntimeError(f"Input type ({dtypes.cpp_name(a)}) and bias type ({dtypes.cpp_name(c)}) should be the same")
    if a is dtypes.bool or (transposed and input.dtype == "int32"):
        label = "slow_conv_transpose2d_out_cpu" if transposed else "slow_conv2d_cpu"
        raise NotImplementedError(f"\"{label}\" not implemented for '{dtypes.scalar_name(a)}'")
    if a is b is c:
        return
    if a is b and input.ndim == 4:
        raise RuntimeError(
            f"result type {dtypes.scalar_name(c)} can't be cast to the desired output type {dtypes.scalar_name(a)}"
        )
    b = c if a is b else b
    if a.is_complex or a is dtypes.bfloat16:
        dense = " or input should be a MKLDNN tensor and weight is a dense tensor" * (not a.is_complex)
        raise RuntimeError(f"Input type ({_legacy(a)}) and weight type ({_legacy(b)}) should be the same{dense}")
    raise RuntimeError(f"expected scalar type {dtypes.scalar_name(a)} but found {dtypes.scalar_name(b)}")


def _legacy(dtype: dtypes.dtype) -> str:
    """The name of a dtype among the tensor types of torch 0.4, or how torch 2 calls one that is younger."""
    if dtype.is_complex or dtype is dtypes.bfloat16 or dtype is dtypes.bool:
        return f"CPU{dtypes.scalar_name(dtype)}Type"
    return dtypes.tensor_type(dtype)


def _check_empty(size: Sequence[int], n: int) -> None:
    if 0 in size[2:] and size[0] and size[1]:
        whole = [*size[:2], *(1,) * (n == 1), *size[2:]]
        raise RuntimeError(f"Only zero batch or zero channel inputs are supported, but got input shape: {whole}")


def check(
    input: Array,
    weight: Array,
    bias: Array | None,
    geometry: ConvGeometry,
    transposed: bool,
    output_padding: Sequence[int],
) -> None:
    """torch's errors for operands and a geometry that do not fit together."""
    stride, padding, dilation, groups = geometry
    shape, size = weight.shape, input.shape
    n = dims_of(weight)
    for label, values in (
        ("stride", stride),
        ("padding", padding),
        ("dilation", dilation),
        ("output_padding", output_padding),
    ):
        each(tuple(values), n, label)
    if any(p < 0 for p in padding):
        raise RuntimeError("negative padding is not supported")
    if any(p < 0 for p in output_padding):
        raise RuntimeError("negative output_padding is not supported")
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if len(size) != n + 2:
        raise RuntimeError(
            f"Expected {n + 2}-dimensional input for {n + 2}-dimensional weight {list(shape)}, but got "
            f"{len(size)}-dimensional input of size {list(size)} instead"
        )
    if shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size "
            f"{list(shape)} instead"
        )
    if shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
            f"size [{list(shape)}] instead"
        )
    outputs, label = (shape[1] * groups, "transposed=1") if transposed else (shape[0], f"groups={groups}")
    wanted = shape[0] if transposed else shape[1] * groups
    if size[1] != wanted:
        raise RuntimeError(
            f"Given {label}, weight of size {list(shape)}, expected input{list(size)} to have {wanted} channels, but "
            f"got {size[1]} channels instead"
        )
    if bias is not None and (bias.ndim != 1 or bias.shape[0] != outputs):
        which = "Given transposed=1, weight" if transposed else "Given weight"
        raise RuntimeError(
            f"{which} of size {list(shape)}, expected bias to be 1-dimensional with {outputs} elements, but got bias "
            f"of size {list(bias.shape)} instead"
        )
    _check_types(input, weight, bias, transposed)
    kernel = shape[2:]
    if not all(kernel):
        shown = f" {_named('kernel', (1,) * (n == 1) + kernel)}"
        if n == 3:
            shown = f": {_cross(kernel)[1:-1]} (TxHxW)"
        raise RuntimeError(f"kernel size should be greater than zero, but got{shown}")
    if transposed:
        if any(o >= s and o >= d for o, s, d in zip(output_padding, stride, dilation)):
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got "
                f"{_named('output_padding', output_padding)} {_named('stride', stride)} {_named('dilation', dilation)}"
            )
        _check_empty(size, n)
        return
    reach = [n + 2 * p for n, p in zip(size[2:], padding)]
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    if any(n < k for n, k in zip(reach, spans)):
        raise RuntimeError(
            f"Calculated padded input size per channel: {_cross(reach)}. Kernel size: {_cross(spans)}. Kernel size "
            "can't be greater than actual input size"
        )
    _check_empty(size, n)


def transposed_shape(input: Array, weight: Array, geometry: ConvGeometry, output_padding: Sequence[int]) -> Sizes:
    """The shape of a transposed convolution.  RuntimeError where nothing would be left."""
    size = input.shape[2:]
    out = geometry.transposed_size(size, weight.shape[2:], output_padding)
    if any(n < 1 for n in out):
        raise RuntimeError(
            f"Given input size per channel: {_cross(size)}. Calculated output size per channel: {_cross(out)}. Output "
            "size is too small"
        )
    return (input.shape[0], weight.shape[1] * geometry.groups, *out)
