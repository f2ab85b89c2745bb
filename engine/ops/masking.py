"""Elements under a mask, where elements are, and slices replaced.

See Note [Writes by index] in gathering.py.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from engine import backends
from engine.autograd.graph import name_node
from engine.autograd.versions import own
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, numel, wrap_dim
from engine.dispatch import composite, derivative, op, samples
from engine.dispatch.out import store
from engine.ops.copying import number_for
from engine.ops.gathering import flat_of, places_of, scalar_name, widen, zeros_of
from engine.ops.shape import PREFIX, basic_index, select
from engine.tensor import Tensor, wrap

_LONG = np.dtype(np.int64)


# --- by mask


def _fill_mask(mask: Any) -> None:
    if mask.dtype.kind != "b":
        from engine.ops.products import cpp_name

        name = {"uint8": "unsigned char"}.get(mask.dtype.name) or cpp_name(mask)
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {name}")


@op(
    inplace=True,
    expanded="masked_fill_",
    form="masked_fill",
    node="MaskedFillBackward0",
    not_tensors=("value",),
    blocks="elements",
    generated="many",
)
@derivative(input=lambda grad, mask, input_shape: back_to(masked_fill_value(grad, mask, 0), input_shape))
@samples(
    lambda t: [
        (t(3, 4), t.boolean(3, 4), 2.5),
        (t(3, 4), t.boolean(4), 2.5),
        (t(), t.of(True), 1.0),
        (t(3), t.boolean(2, 3), 1.0),
    ]
)
def masked_fill_value(xp, input, mask, value: complex | Tensor, *, out=None):
    """A number where the mask is true.  input (*), mask (*b) -> (broadcast)."""
    _fill_mask(mask)
    value = number_for(value, input.dtype)
    result = _masked_target(xp, input, mask, out)
    if type(result) is np.ndarray:
        np.copyto(result, value, where=mask, casting="unsafe")
    else:
        result[xp.broadcast_to(mask, result.shape)] = value
    return result


def _masked_target(xp: Any, input: Any, mask: Any, out: Any) -> Any:
    if out is None and mask.shape == input.shape:
        return input.copy("C")
    both = (mask.shape, input.shape) if out is None else (input.shape, mask.shape)
    shape = broadcast_shapes(*both)
    if out is not None:
        if shape != out.shape:
            raise RuntimeError(f"output with shape {list(out.shape)} doesn't match the broadcast shape {list(shape)}")
        return out
    if shape == input.shape:
        return input.copy("C")
    return xp.broadcast_to(input, shape).copy("C")


def back_to(grad, shape):
    """A gradient summed back to the shape before broadcasting."""
    return grad if grad._array.shape == tuple(shape) else grad.sum_to_size(shape)


@op(
    inplace=True,
    expanded="masked_fill_",
    form="masked_fill",
    node="MaskedFillBackward1",
    tensors=("value",),
    large=512,
    generated="many",
)
@derivative(
    input=lambda grad, mask, input_shape: back_to(masked_fill_value(grad, mask, 0), input_shape),
    value=lambda grad, mask: masked_select(grad, mask).sum(),
)
@samples(lambda t: [(t(3, 4), t.boolean(3, 4), t()), (t(3, 4), t.boolean(4), t())])
def masked_fill_tensor(xp, input, mask, value, *, out=None):
    """A 0-dim tensor where the mask is true.  input (*), mask (*b), value () -> (broadcast)."""
    if value.ndim:
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    _fill_mask(mask)
    result = _masked_target(xp, input, mask, out)
    mask = xp.broadcast_to(mask, result.shape)
    result[mask] = value.astype(result.dtype)
    return result


def _masked_fill(input, mask, value, inplace):
    if isinstance(value, Tensor):
        if value.dtype is not input.dtype and not value._array.ndim:
            if not dtypes.can_cast(value.dtype, input.dtype):
                raise RuntimeError(
                    f"value cannot be converted to type {dtypes.scalar_name(input.dtype)} without overflow"
                )
            value = value.to(input.dtype)
        if type(value._array) is not type(input._array) and not value._array.ndim:
            value = value.to(input.device)
        function = masked_fill_tensor
    else:
        function = masked_fill_value
    return (function.op.inplace_function if inplace else function)(input, mask, value)


@composite(several=((3, 3), (3, 3)), elementwise=True)
def masked_fill(input: Tensor, mask: Tensor, value: complex | Tensor):
    """`value` (a number or 0-dim tensor) where the mask is true.  input (*), mask (*b) -> (broadcast)."""
    return _masked_fill(input, mask, value, False)


@composite(public=False, several=((3, 3), (3, 3)), elementwise=True)
def masked_fill_(input: Tensor, mask: Tensor, value: complex | Tensor):
    """In place: `masked_fill`.  input (*), mask (*b) -> (*)."""
    return _masked_fill(input, mask, value, True)


@op(keeps=("input",), out_as="disjoint unexpanded", size_by_values=True)
@derivative(input=lambda grad, input_shape, mask: masked_select_backward(grad, input_shape, mask))
@samples(lambda t: [(t(3, 4), t.boolean(3, 4)), (t(3, 4), t.boolean(4)), (t(3), t.boolean(2, 3))])
def masked_select(xp, input, mask):
    """The elements where the mask is true, in one dim.  input (*), mask (*b) -> (count)."""
    if mask.dtype.kind != "b":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    if mask.shape != input.shape:
        shape = broadcast_shapes(mask.shape, input.shape)
        input, mask = xp.broadcast_to(input, shape), xp.broadcast_to(mask, shape)
    if input.__class__ is np.ndarray and input.flags.c_contiguous:  # numpy's walks all dims at once
        return input.reshape(-1).take(np.flatnonzero(mask))
    return input[mask]


def masked_select_backward(grad, shape, mask):
    """Zeros with `grad` where the mask is true, summed back to `shape`."""
    full = broadcast_shapes(tuple(shape), mask._array.shape)
    return back_to(masked_scatter(zeros_of(grad, full), mask, grad), shape)


@op(inplace=True)
@derivative(
    input=lambda grad, mask, input_shape: back_to(masked_fill_value(grad, mask, 0), input_shape),
    source=lambda grad, mask, source_shape: masked_scatter_backward(own(grad), mask, source_shape),
)
@samples(
    lambda t: [
        (t(3, 4), t.boolean(3, 4), t(12)),
        (t(3, 4), t.boolean(4), t(3, 4)),
        (t(3), t.boolean(2, 3), t(6)),
    ]
)
def masked_scatter(xp, input, mask, source, *, out=None):
    """The elements of `source`, in order, where the mask is true.  input (*), mask (*b), source (*s) -> (broadcast)."""
    if mask.dtype.kind != "b":
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {scalar_name(mask)}")
    if input.dtype != source.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got{scalar_name(input)} and "
            f"{scalar_name(source)}"
        )
    shape = broadcast_shapes(mask.shape, input.shape)
    wide = xp.broadcast_to(mask, shape)
    count = int(wide.sum())
    if source.size < count:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    result = _masked_target(xp, input, mask, out)
    result[wide] = flat_of(xp, source)[:count]
    return result


def masked_scatter_backward(grad, mask, shape):
    """The gradients of the elements that were used, zeros for the rest."""
    used = masked_select(grad, mask).reshape(-1)
    return widen(used, (numel(shape),)).reshape(shape)


# --- where elements are


@op(public=False, method=False, size_by_values=True)
@samples(lambda t: [(t.of([[0, 1], [2, 0]]),), (t.of(5),), (t.of([]),)])
def nonzero_rows(xp, input):
    """The indices of elements other than zero, one row each.  input (*) -> (count, ndim)."""
    if not input.ndim:
        return xp.zeros((int(bool(input)), 0), _LONG)
    return places_of(xp, input).T


@composite()
def nonzero(input: Tensor, *, as_tuple=False, out=None) -> Any:
    """The indices of elements other than zero: a row each, or a tuple of vectors.  input (*) -> (count, ndim)."""
    if as_tuple:
        array = input._array
        if not array.ndim:
            array = array.reshape(1)
        return tuple(wrap(part.copy()) for part in places_of(backends.xp_of(array), array))
    return nonzero_rows(input) if out is None else nonzero_rows(input, out=out)


@composite()
@samples(lambda t: [(t.of([[0, 1], [2, 3]]), {"size": 5}), (t.of([0.0, 1, 2]), {"size": 1, "fill_value": 7})])
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out=None):
    """`size` rows of `nonzero`: the first ones, or all of them and rows of `fill_value`.  input (*) -> (size, ndim)."""
    if out is not None:
        return store(out, "nonzero_static", nonzero_static, input, size=size, fill_value=fill_value)
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    if input.device.type == "meta":
        return input.new_empty((size, input.dim()), dtype=dtypes.int64)
    rows = nonzero_rows(input)
    found = rows.new_full((size, rows._array.shape[1]), fill_value)
    count = builtins.min(size, rows._array.shape[0])
    found[:count] = rows[:count]
    return found


@composite(method=True)
def argwhere(input: Tensor):
    """The indices of elements other than zero, one row each.  input (*) -> (count, ndim)."""
    return nonzero_rows(input)


# --- slices replaced


@composite()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int):
    """A copy of `input` with `src` as the slice at `index` of `dim`.  input (*, n, *), src (*, *) -> (*, n, *)."""
    result = input.clone()
    spot = select(result, dim, index)
    if spot._array.shape != src._array.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src._array.shape)}, slice size "
            f"= {list(spot._array.shape)}"
        )
    spot.copy_(src)
    return name_node(result, "SelectScatterBackward0")


@composite(out_as="graph")
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Tensor | None = None,
):
    """A copy of `input` with `src` as a slice of `dim`.  input (*, n, *), src (*, m, *) -> (*, n, *)."""
    if out is not None:
        return store(out, "slice_scatter", slice_scatter, input, src, dim, start, end, step)
    result = input.clone()
    spot = basic_index(result, (*PREFIX[wrap_dim(dim, input._array.ndim)], slice(start, end, step), ...))
    if spot._array.shape != src._array.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src._array.shape)}, slice size "
            f"= {list(spot._array.shape)}"
        )
    spot.copy_(src)
    return name_node(result, "SliceScatterBackward0")


@composite()
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """A copy of `input` with `src` as a diagonal.  input (*), src (*, k) -> (*)."""
    result = input.clone()
    spot = result.diagonal(offset, dim1, dim2)
    if spot._array.shape != src._array.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src._array.shape)}, slice size "
            f"= {list(spot._array.shape)}"
        )
    spot.copy_(src)
    return name_node(result, "DiagonalScatterBackward0")
