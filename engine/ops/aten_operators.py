"""Operators of aten that programs written by torch's compilers call, and that its documents do not name.

`ATEN` has those that are attributes of `torch.ops.aten` alone; the others are also functions of `torch`.
"""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable
from math import prod
from typing import Any

from engine.autograd.graph import name_node
from engine.autograd.versions import guard_again
from engine.core import dtypes
from engine.core.checks import wrap_dim, wrap_dims
from engine.core.layouts import strided
from engine.dispatch import composite, derivative, op, samples
from engine.dispatch.out import store
from engine.ops import pooling
from engine.ops.indexing import index_put
from engine.ops.joining import cat
from engine.ops.linalg.norms import linalg_vector_norm
from engine.ops.masking import masked_fill
from engine.ops.nn import interpolation
from engine.ops.norm import native as _norm
from engine.ops.pointwise.arithmetic import not_implemented
from engine.ops.pointwise.bits import logical_not
from engine.ops.shape import PREFIX, basic_index
from engine.ops.statistics import norm
from engine.ops.strides import as_strided
from engine.tensor import Tensor

ATEN: dict[str, Callable[..., Any]] = {}


def _aten(function: Any) -> Any:
    """Register an operator of `torch.ops.aten`, with its arguments checked."""
    function = ATEN[function.__name__] = composite(public=False, method=False)(function)
    return function


# --- views and copies


@_aten
@samples(lambda t: [(t(5, 3),), (t(5, 3), 0, 1, None, 2), (t(2, 7), -1, -5, 99, 3)])
def slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1):
    """The view `input[start:end:step]` of one dim.  input (*, n, *) -> (*, m, *)."""
    ndim = input._array.ndim
    if not ndim:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    at = PREFIX[wrap_dim(dim, ndim)]
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    return name_node(basic_index(input, (*at, builtins.slice(start, end, step), ...)), "SliceBackward0")


@composite(method=False)
def slice_inverse(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
):
    """The view of the memory of `input` with the sizes, strides and offset of `src`.  input (*), src (*s) -> (*s)."""
    return as_strided(input, src.size(), src.stride(), src.storage_offset())


@_aten
@samples(lambda t: [(t(2, 3),)])
def _to_copy(
    input: Tensor, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None
):
    """A copy of another dtype, device or memory format, of the same where they are not given.  input (*) -> (*)."""
    if layout not in (None, input.layout):
        raise NotImplementedError(f"aten._to_copy(): layout {layout} of a tensor of {input.layout} is not supported")
    named = {} if memory_format is None else {"memory_format": memory_format}
    return input.to(device=device, dtype=dtype, non_blocking=bool(non_blocking), copy=True, **named)


@composite(method=False)
@samples(
    lambda t: [([t(3, 2), t(5, 1)], 0, 2), ([t(2, 4), t(2, 3, 2)], 1, 3), ([t(2, 4), t(2, 3)], -1, 3), ([t(3)], 0, 5)]
)
def _chunk_cat(tensors, dim: int, num_chunks: int, *, out=None):
    """Each tensor padded with zeros to `num_chunks` pieces of one size along `dim`, and the pieces joined.

    tensors: list of (*lead, n, *) -> (*lead, num_chunks, pieces of all side by side).
    """
    if out is not None:
        return store(out, "_chunk_cat", _chunk_cat, tensors, dim, num_chunks)
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    first = tensors[0]
    for x in tensors:
        if not x.numel():
            raise RuntimeError("_chunk_cat expects non-empty tensor")
        if x.dtype is not first.dtype:
            raise RuntimeError("_chunk_cat expects all input tensors with the same dtype")
    ranks = [x._array.ndim for x in tensors]
    if min(ranks) == max(ranks):
        dim = wrap_dim(dim, ranks[0])
    elif dim < 0:
        raise RuntimeError("_chunk_cat expects non-negative dim when input tensors have different ndims")
    elif dim >= min(ranks):
        raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
    lead = first._array.shape[:dim]
    pieces = []
    for x in tensors:
        shape = x._array.shape
        if shape[:dim] != lead:
            raise RuntimeError("_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors")
        n, rest = shape[dim], shape[dim + 1 :]
        size = -(-n // num_chunks)
        missing = size * num_chunks - n
        if missing:
            x = cat([x, x.new_zeros((*lead, missing, *rest))], dim)
        pieces.append(x.reshape(*lead, num_chunks, size * prod(rest)))
    return cat(pieces, -1)


# --- by index and mask


def _clamped(input: Tensor, indices: Any) -> tuple[Any, ...]:
    """Index tensors brought into the range of their dims."""
    sizes = input._array.shape
    return tuple(i if i is None else i.clamp(-n, n - 1) for i, n in zip(indices, sizes))


def _at(input: Tensor, indices: Any) -> Tensor:
    return input[tuple(builtins.slice(None) if i is None else i for i in indices)]


@composite(method=False)
@samples(lambda t: [(t(3, 4), [t.of([0, 2, 0])]), (t(3, 4), [None, t.of([1, 1])])])
def _unsafe_index(input: Tensor, indices):
    """`input[indices]`, None standing for a whole dim.  input (*) -> (*)."""
    return name_node(_at(input, indices), "UnsafeIndexBackward0")


@composite(method=False)
@samples(lambda t: [(t(3, 4), [t.of([0, 2])], t(4)), (t(3, 4), [None, t.of([1, 1])], t(3, 2), True)])
def _unsafe_index_put(input: Tensor, indices, values: Tensor, accumulate: bool = False):
    """`index_put`.  input (*), values (*b) -> (*)."""
    return name_node(index_put(input, indices, values, accumulate), "UnsafeIndexPutBackward0")


@composite(method=False)
@samples(lambda t: [(t(3, 4), t.of([True, False]), [t.of([0, 9]), t.of([1, 2])], 7.0)])
def _unsafe_masked_index(input: Tensor, mask: Tensor, indices, fill: complex):
    """`input[indices]` where `mask`, the number `fill` elsewhere: there an index may lie outside.

    input (*), mask (*b) -> (broadcast of the indices and mask).
    """
    if not input._array.size:
        grown = input.new_zeros([n or 1 for n in input._array.shape])
        return _at(grown, _clamped(grown, indices)).fill_(fill)
    found = _at(input, _clamped(input, indices))
    found = masked_fill(found, logical_not(mask), fill)
    return guard_again(name_node(found, "UnsafeMaskedIndexBackward0"), mask, *indices)


@composite(method=False)
@samples(lambda t: [(t(3, 4), t.of([True, False]), [t.of([0, 9]), t.of([1, 2])], t(2))])
def _unsafe_masked_index_put_accumulate(input: Tensor, mask: Tensor, indices, values: Tensor):
    """A copy of `input` with `values` added at the indices where `mask`.  input (*), mask, values (*b) -> (*)."""
    if not input._array.size:
        return input.clone()
    added = masked_fill(values, logical_not(mask), 0)
    found = index_put(input, _clamped(input, indices), added, True)
    return guard_again(name_node(found, "UnsafeMaskedIndexPutAccumulateBackward0"), mask, *indices)


# --- reductions


@op(out=True, label="xor_sum_cpu", refuse="c")
@samples(lambda t: [(t(3, 4),), (t(2, 3, 4), (0, 2), {"keepdim": True}), (t.integers(-9, 9, 3), 0), (t.boolean(3),)])
def hash_tensor(xp, input, dim: int | tuple[int, ...] = (), *, keepdim: bool = False, mode: int = 0):
    """The exclusive or over `dim` (all by default) of the elements' bits: floats as float64, integers as int64.

    input (*) -> (* without dim), uint64.
    """
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    if input.dtype.kind == "u" and input.dtype.itemsize > 1:
        raise not_implemented("xor_sum_cpu", input)
    if not input.size and dim == ():
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
            "with the 'dim' argument."
        )
    axes = wrap_dims(dim if dim != () else None, input.ndim)
    for d in axes:
        if input.ndim and not input.shape[d]:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    bits = input.astype("int64" if input.dtype.kind in "iub" else "float64").view("uint64")
    for d in sorted(axes, reverse=True) if input.ndim else ():
        bits = xp.moveaxis(bits, d, 0)
        while len(bits) > 1:  # CuPy has no `bitwise_xor.reduce`
            half = len(bits) // 2
            folded = bits[:half] ^ bits[half : 2 * half]
            bits = folded if len(bits) % 2 == 0 else xp.concatenate((folded, bits[-1:]))
        bits = xp.moveaxis(bits, 0, d) if keepdim else bits[0]
    return bits if isinstance(bits, xp.ndarray) else xp.asarray(bits)


@composite(method=False)
def native_norm(input: Tensor, p=2, dim=None, keepdim: bool = False, dtype=None):
    """The p-norm of all elements of a sparse tensor.  input (*) -> ()."""
    if input.layout is strided:
        raise NotImplementedError(
            "Could not run 'aten::native_norm' with arguments from the 'CPU' backend: it is for sparse tensors; use "
            "torch.linalg.vector_norm for dense ones"
        )
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    if dim and len(wrap_dims(dim, input.dim())) != input.dim():
        raise RuntimeError(
            "norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all "
            "dimensions of the input"
        )
    found = linalg_vector_norm(input.coalesce().values(), 2 if p is None else p)
    return found if dtype is None else found.to(dtype)


@composite(method=False)
@samples(lambda t: [(t(2, 3), 1), (t(2, 3), (0, 1), True), (t(2, 3), ())])
def frobenius_norm(input: Tensor, dim: int | tuple[int, ...], keepdim: bool = False, *, out: Tensor | None = None):
    """The 2-norm over at most two dims, with torch's warning: `linalg.vector_norm`.  input (*) -> (* without dim)."""
    warnings.warn(
        "at::frobenius_norm is deprecated and it is just left for JIT compatibility. It will be removed in a future "
        "PyTorch release. Please use `linalg.vector_norm(A, 2., dim, keepdim)` instead",
        stacklevel=2,
    )
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) > 2:
        raise RuntimeError(f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead.")
    return linalg_vector_norm(input, 2, dims or None, keepdim, out=out)


@composite(method=False)
@samples(lambda t: [(t(2, 3),), (t(2, 3, 2), (0, 1), True)])
def nuclear_norm(input: Tensor, dim=(-2, -1), keepdim: bool = False, *, out: Tensor | None = None):
    """The sum of singular values, with torch's warning: `linalg.matrix_norm`.  input (*) -> (* without dim)."""
    warnings.warn(
        "at::nuclear_norm is deprecated and it is just left for JIT compatibility. It will be removed in a future "
        "PyTorch release. Please use `linalg.matrix_norm(A, 'nuc', dim, keepdim)` instead",
        stacklevel=2,
    )
    if isinstance(dim, bool):  # nuclear_norm(input, keepdim)
        dim, keepdim = (-2, -1), dim
    return norm(input, "nuc", dim, keepdim, out=out)


# --- of layers


@op(public=False, method=False, out=False, tensors=("mask",), keeps=("grad_output",))
@derivative(grad_output=lambda grad, mask, scale: grad * (mask.to(grad.dtype) * scale))
@samples(lambda t: [(t(2, 3), t.boolean(2, 3), 2.0)])
def native_dropout_backward(xp, grad_output, mask, scale: float):
    """grad_output * mask * scale.  grad_output (*), mask (*) bool -> (*)."""
    kind = grad_output.dtype if grad_output.dtype.kind not in "iub" else dtypes.to_numpy(dtypes.get_default_dtype())
    return grad_output.astype(kind, copy=False) * (mask.astype(kind) * kind.type(scale))


def _upsampling(name: str, kind: str, cornered: bool) -> None:
    def upsample(input: Tensor, output_size: Any, *rest: Any, **more: Any) -> Tensor:
        return interpolation.upsampled(name, kind, cornered, input, output_size, *rest, **more)

    upsample.__name__ = upsample.__qualname__ = name
    upsample.__doc__ = (
        f"{kind} resampling to `output_size`, or by a list of factors.  input (N, C, *) -> (N, C, *size)."
    )
    ATEN[name] = upsample


for _name, _kind, _cornered in (
    ("upsample_nearest1d", "nearest", False),
    ("upsample_nearest2d", "nearest", False),
    ("upsample_nearest3d", "nearest", False),
    ("upsample_linear1d", "linear", True),
    ("upsample_bilinear2d", "linear", True),
    ("upsample_bicubic2d", "cubic", True),
    ("upsample_trilinear3d", "linear", True),
    ("_upsample_nearest_exact1d", "nearest-exact", False),
    ("_upsample_nearest_exact2d", "nearest-exact", False),
    ("_upsample_nearest_exact3d", "nearest-exact", False),
    ("_upsample_bilinear2d_aa", "linear-aa", True),
    ("_upsample_bicubic2d_aa", "cubic-aa", True),
    ("_upsample_lanczos2d_aa", "lanczos-aa", True),
):
    _upsampling(_name, _kind, _cornered)
for _one in (
    native_dropout_backward,
    pooling.max_pool2d_with_indices_backward,
    pooling.max_pool3d_with_indices_backward,
    _norm._batch_norm_with_update,
    _norm._batch_norm_no_update,
):
    ATEN[_one.__name__] = _one
