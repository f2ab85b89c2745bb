"""Copies of views in memory of their own (`*_copy`), `unsafe_split` and `as_strided_scatter`.

Graphs without aliases are written with these; their gradients are those of the views.
"""

from __future__ import annotations

from typing import Any

from engine.autograd.graph import name_node
from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.core.layouts import contiguous_format
from engine.dispatch import PUBLIC, composite, derivative, op, samples
from engine.dispatch.out import store_detached, store_result
from engine.ops.joining import (
    check_lengths,
    chunk_size,
    pieces,
    split,
    split_backward,
    split_lengths,
    split_with_sizes,
    unbind,
)
from engine.ops.shape import (
    PREFIX,
    alias,
    basic_index,
    expand,
    permute,
    select,
    squeeze,
    t,
    transpose,
    unsqueeze,
    view,
)
from engine.ops.strides import as_strided, diagonal, unfold
from engine.tensor import Tensor


def _copied(name: str, out: Any, shown: Any) -> Any:
    """`shown`, a view or a tuple of views, copied; torch's names for the nodes end in _copy."""
    if out is not None:
        if isinstance(shown, tuple):  # torch gives nothing for several
            store_detached(out, name, _copied, name, None, shown)
            return None
        return store_result(out, name, _copied, name, None, shown)
    if isinstance(shown, tuple):
        return tuple(_copied(name, None, x) for x in shown)
    result = shown.clone(memory_format=contiguous_format)
    return result if shown.grad_fn is None else name_node(result, shown.grad_fn.name() + "_copy")


@composite(method=False)
@samples(lambda t: [(t(2, 3),)])
def alias_copy(input: Tensor, *, out: Any = None):
    """A copy.  input (*) -> (*)."""
    return _copied("alias_copy", out, alias(input))


@composite(method=False)
def as_strided_copy(
    input: Tensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    storage_offset: int | None = None,
    *,
    out: Any = None,
):
    """A copy of `as_strided`.  input (*) -> (*size)."""
    return _copied("as_strided_copy", out, as_strided(input, size, stride, storage_offset))


@composite(method=False)
@samples(lambda t: [(t.constant(t(2, 3)),)])
def detach_copy(input: Tensor, *, out: Any = None):
    """A copy without history.  input (*) -> (*)."""
    return _copied("detach_copy", out, input.detach())


@composite(method=False)
@samples(lambda t: [(t.constant(t(2, 3)),)])
def detach(input: Tensor):
    """`input.detach()`: the same memory without history.  input (*) -> (*)."""
    return input.detach()


@composite(method=False)
def detach_(input: Tensor):
    """`input.detach_()`.  input (*) -> (*)."""
    return input.detach_()


@composite(method=False)
@samples(lambda t: [(t(3, 3),), (t(2, 3, 4), 1, -1, 0)])
def diagonal_copy(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1, *, out: Any = None):
    """A copy of `diagonal`.  input (*, n, *, m, *) -> (*, k)."""
    return _copied("diagonal_copy", out, diagonal(input, offset, dim1, dim2))


@composite(method=False)
@samples(lambda t: [(t(3), (2, 3)), (t(2, 1), (-1, 4))])
def expand_copy(input: Tensor, size: tuple[int, ...], *, implicit: bool = False, out: Any = None):
    """A copy of `expand`.  input (*a) -> (*size)."""
    return _copied("expand_copy", out, expand(input, size))


@composite(method=False)
@samples(lambda t: [(t(2, 3, 4), (2, 0, 1))])
def permute_copy(input: Tensor, dims: tuple[int, ...], *, out: Any = None):
    """A copy of `permute`.  input (*) -> (*)."""
    return _copied("permute_copy", out, permute(input, dims))


@composite(method=False)
@samples(lambda t: [(t(2, 3), 1, -1)])
def select_copy(input: Tensor, dim: int, index: int, *, out: Any = None):
    """A copy of `select`.  input (*, n, *) -> (*, *)."""
    return _copied("select_copy", out, select(input, dim, index))


@composite(method=False)
@samples(lambda t: [(t(4, 3), 0, 1, 3), (t(4, 3), 1, None, None, 2)])
def slice_copy(
    input: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Any = None,
):
    """A copy of the slice start:end:step of `dim`.  input (*, n, *) -> (*, m, *)."""
    at = PREFIX[wrap_dim(dim, input._array.ndim)]
    return _copied("slice_copy", out, basic_index(input, (*at, slice(start, end, step), ...)))


@composite(method=False)
@samples(lambda t: [(t(5, 2), 2), (t(2, 4), 3, 1)])
def split_copy(input: Tensor, split_size: int, dim: int = 0, *, out: Any = None) -> tuple[Tensor, ...]:
    """Copies of the pieces of `split`.  input (*, n, *) -> (*, split_size, *) ..."""
    return _copied("split_copy", out, split(input, split_size, dim))


@composite(method=False)
@samples(lambda t: [(t(4, 2), (1, 3))])
def split_with_sizes_copy(
    input: Tensor, split_sizes: tuple[int, ...], dim: int = 0, *, out: Any = None
) -> tuple[Tensor, ...]:
    """Copies of the pieces of `split_with_sizes`.  input (*, n, *) -> (*, size, *) ..."""
    return _copied("split_with_sizes_copy", out, split_with_sizes(input, split_sizes, dim))


@composite(method=False)
@samples(lambda t: [(t(1, 3, 1),), (t(1, 3, 1), 0), (t(1, 3, 1), (0, 2))])
def squeeze_copy(input: Tensor, dim: int | tuple[int, ...] | None = None, *, out: Any = None):
    """A copy of `squeeze`.  input (*) -> (*)."""
    return _copied("squeeze_copy", out, squeeze(input) if dim is None else squeeze(input, dim))


@composite(method=False)
@samples(lambda t: [(t(2, 3),)])
def t_copy(input: Tensor, *, out: Any = None):
    """A copy of `t`.  input (n, m) -> (m, n)."""
    return _copied("t_copy", out, t(input))


@composite(method=False)
@samples(lambda t: [(t(2, 3, 4), 0, 2)])
def transpose_copy(input: Tensor, dim0: int, dim1: int, *, out: Any = None):
    """A copy of `transpose`.  input (*) -> (*)."""
    return _copied("transpose_copy", out, transpose(input, dim0, dim1))


@composite(method=False)
@samples(lambda t: [(t(2, 3),), (t(2, 3), 1)])
def unbind_copy(input: Tensor, dim: int = 0, *, out: Any = None) -> tuple[Tensor, ...]:
    """Copies of the slices of `unbind`.  input (*, n, *) -> n of (*, *)."""
    return _copied("unbind_copy", out, unbind(input, dim))


@composite(method=False)
@samples(lambda t: [(t(5, 2), 0, 2, 1)])
def unfold_copy(input: Tensor, dimension: int, size: int, step: int, *, out: Any = None):
    """A copy of `Tensor.unfold`.  input (*, n, *) -> (*, m, *, size)."""
    return _copied("unfold_copy", out, unfold(input, dimension, size, step))


@composite(method=False)
@samples(lambda t: [(t(2, 3), -1)])
def unsqueeze_copy(input: Tensor, dim: int, *, out: Any = None):
    """A copy of `unsqueeze`.  input (*) -> (*, 1, *)."""
    return _copied("unsqueeze_copy", out, unsqueeze(input, dim))


@composite(method=False)
@samples(lambda t: [(t(4, 3), (2, 6))])
def view_copy(input: Tensor, size: Any = None, *, dtype: Any = None, out: Any = None):
    """A copy of `Tensor.view`.  input (*) -> (*size)."""
    if isinstance(size, dtypes.dtype):
        size, dtype = None, size
    return _copied("view_copy", out, view(input, size) if dtype is None else view(input, dtype))


@composite(method=False)
@samples(lambda t: [(t(3, 2),)])
def view_as_complex_copy(input: Tensor, *, out: Any = None):
    """A copy of `view_as_complex`.  input (*, 2) -> (*) complex."""
    return _copied("view_as_complex_copy", out, PUBLIC["view_as_complex"](input))


@composite(method=False)
@samples(lambda t: [(t.complex(3),)])
def view_as_real_copy(input: Tensor, *, out: Any = None):
    """A copy of `view_as_real`.  input (*) complex -> (*, 2)."""
    return _copied("view_as_real_copy", out, PUBLIC["view_as_real"](input))


# --- pieces that may be written to


@op(returns="many", form="unsafe_split", method=False, node="UnsafeSplitBackward0", shares=True)
@derivative(
    input=lambda grads, input_shape, split_size, dim: split_backward(
        grads, input_shape, split_lengths(input_shape, split_size, dim), dim
    )
)
@samples(lambda t: [(t(5, 2), 2), (t(2, 4), 3, 1)])
def unsafe_split_every(xp, input, split_size, dim=0):
    """The pieces of `split`, not as views.  input (*, n, *) -> (*, split_size, *) ..."""
    dim = wrap_dim(dim, input.ndim)
    return pieces(input, split_lengths(input.shape, split_size, dim), dim)


@op(returns="many", shares=True)
@derivative(input=lambda grads, input_shape, split_sizes, dim: split_backward(grads, input_shape, split_sizes, dim))
@samples(lambda t: [(t(4, 2), (1, 3)), (t(2, 3), (0, 3), -1)])
def unsafe_split_with_sizes(xp, input, split_sizes: tuple[int, ...], dim: int = 0):
    """As `split_with_sizes`, see `unsafe_split`.  input (*, n, *) -> (*, size, *) ..."""
    dim = wrap_dim(dim, input.ndim)
    check_lengths(input.shape[dim], split_sizes, dim)
    return pieces(input, split_sizes, dim)


@composite(method=False)
def unsafe_split(tensor: Tensor, split_size_or_sections, dim: int = 0) -> tuple[Tensor, ...]:
    """As `split`, but each piece may be written to in place: they share the memory, which no graph records.

    tensor (*, n, *) -> (*, size, *) ...
    """
    if isinstance(split_size_or_sections, list | tuple):
        return unsafe_split_with_sizes(tensor, tuple(split_size_or_sections), dim)
    return unsafe_split_every(tensor, split_size_or_sections, dim)


def _unsafe_split_method(self: Tensor, split_size: Any, dim: int = 0) -> Any:
    return unsafe_split(self, split_size, dim)


_unsafe_split_method.__name__ = "unsafe_split"
_unsafe_split_method.__doc__ = unsafe_split.__doc__
Tensor.unsafe_split = _unsafe_split_method


@composite()
@samples(lambda t: [(t(5, 2), 2), (t(2, 4), 3, -1), (t(0, 2), 2)])
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """As `chunk`, see `unsafe_split`.  input (*, n, *) -> (*, size, *) ..."""
    size = chunk_size(input._array.shape, chunks, dim)
    if not size:
        return unsafe_split_with_sizes(input, (0,) * chunks, dim)
    return unsafe_split_every(input, size, dim)


# --- elements replaced


@composite()
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    storage_offset: int | None = None,
):
    """A copy of `input` with `src` as what `as_strided` shows.  input (*), src (*size) -> (*)."""
    result = input.clone()
    spot = as_strided(result, size, stride, storage_offset)
    if spot._array.shape != src._array.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src._array.shape)}, slice "
            f"size = {list(spot._array.shape)}"
        )
    spot.copy_(src)
    return name_node(result, "AsStridedScatterBackward0")
