"""Dims of sparse tensors: swapped, inserted, narrowed, selected, joined, resized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import backends
from engine.core.checks import numel, wrap_dim
from engine.dispatch import PUBLIC
from engine.sparse.coordinates import SparseTensor, checked_size, for_writing, make
from engine.tensor import Tensor, wrap

__all__ = ["METHODS", "cat", "expanded", "nothing"]


def nothing(like: SparseTensor, size: Sequence[int], sparse_dim: int, **options: Any) -> SparseTensor:
    """A sparse tensor of that size without elements, in the dtype and on the device of `like` unless given."""
    options = {name: value for name, value in options.items() if value is not None}
    values = like._v.detach().new_zeros((0, *size[sparse_dim:]), **options)
    return make(like._i.new_zeros((sparse_dim, 0), device=values.device), values, size, True)


def transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """Two sparse dims swapped.  input (*) -> (*).  RuntimeError for dense dims."""
    a, b = wrap_dim(dim0, input.ndim), wrap_dim(dim1, input.ndim)
    if a == b:
        return input
    if max(a, b) >= input.sparse_dim():
        raise RuntimeError(
            f"sparse transpose: transposed dimensions must be sparse Got sparse_dim: {input.sparse_dim()}, d0: {a}, "
            f"d1: {b}"
        )
    order = list(range(input.sparse_dim()))
    order[a], order[b] = b, a
    size = list(input._size)
    size[a], size[b] = size[b], size[a]
    return make(input._i[order], input._v, tuple(size), input._nnz() == 0)


def transpose_(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """`transpose` in place."""
    return for_writing(input)._become(transpose(input, dim0, dim1))


def t(input: SparseTensor) -> SparseTensor:
    """The transposed matrix.  input (n, m) -> (m, n)."""
    _check_matrix(input, "t")
    return input if input.ndim < 2 else transpose(input, 0, 1)


def t_(input: SparseTensor) -> SparseTensor:
    """`t` in place."""
    _check_matrix(input, "t_")
    return input if input.ndim < 2 else transpose_(input, 0, 1)


def _check_matrix(input: SparseTensor, name: str) -> None:
    d, dense = input.sparse_dim(), input.dense_dim()
    if d > 2 or dense:
        raise RuntimeError(
            f"{name}() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {d} sparse and {dense} dense "
            "dimensions"
        )


def permute(input: SparseTensor, *dims: Any) -> SparseTensor:
    """The sparse dims in another order, the dense ones in theirs.  input (*) -> (*)."""
    given = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    order, d = [wrap_dim(x, input.ndim) for x in given], input.sparse_dim()
    if sorted(order) != list(range(input.ndim)):
        raise RuntimeError(f"permute(dims): the dims {tuple(given)} are not those of {input.ndim} each once")
    if max(order[:d], default=0) >= max(d, 1):
        raise RuntimeError("permute of sparse and dense dims among each other is not supported")
    values = input._v.permute(0, *[x - d + 1 for x in order[d:]])
    size = tuple(input._size[x] for x in order)
    return make(input._i[order[:d]], values, size, order[:d] == list(range(d)) and input._coalesced)


def movedim(input: SparseTensor, source: Any, destination: Any) -> SparseTensor:
    """Dims moved to other places, the others in their order.  input (*) -> (*)."""
    old, new = ([x] if isinstance(x, int) else list(x) for x in (source, destination))
    old, new = [wrap_dim(x, input.ndim) for x in old], [wrap_dim(x, input.ndim) for x in new]
    rest = iter([x for x in range(input.ndim) if x not in old])
    return permute(input, [old[new.index(x)] if x in new else next(rest) for x in range(input.ndim)])


def unsqueeze(input: SparseTensor, dim: int) -> SparseTensor:
    """A dim of size 1 at `dim`: dense behind the sparse dims, else sparse.  input (*) -> (*, 1, *)."""
    at, d = wrap_dim(dim, input.ndim + 1), input.sparse_dim()
    size = (*input._size[:at], 1, *input._size[at:])
    if at > d:
        return make(input._i, input._v.unsqueeze(at - d + 1), size)
    row = input._i.new_zeros((1, input._nnz()))
    return make(PUBLIC["cat"]([input._i[:at], row, input._i[at:]]), input._v, size)


def expanded(input: SparseTensor, shape: Sequence[int]) -> SparseTensor:
    """The tensor repeated along dims of size 1 and along new dims in front, as a product with a dense one needs it."""
    shape = tuple(shape)
    if input._size == shape:
        return input
    new = len(shape) - input.ndim
    d, ones = input.sparse_dim() + new, (1,) * new
    size = (*ones, *input._size)
    array = input._i._array
    xp = backends.xp_of(array)
    repeated = [x for x in range(d) if size[x] != shape[x]]
    counts = [shape[x] for x in repeated]
    copies = numel(counts)
    places = xp.indices(counts).reshape(len(counts), -1) if counts else xp.zeros((0, 1), xp.int64)
    rows = []
    for x in range(d):
        if x in repeated:
            rows.append(xp.repeat(places[repeated.index(x)], array.shape[1]))
        else:
            rows.append(xp.tile(array[x - new], copies))
    indices = xp.stack(rows).astype(xp.int64) if rows else xp.zeros((0, array.shape[1] * copies), xp.int64)
    values = input._v.expand(input._nnz(), *shape[d:])
    if copies != 1:
        values = values.repeat(copies, *[1] * (values.ndim - 1))
    front = repeated == list(range(len(repeated)))
    return make(wrap(xp.ascontiguousarray(indices)), values, shape, input._coalesced and front)


def narrow_copy(input: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """The elements from `start` to `start + length` along `dim`.  input (*) -> (*).  RuntimeError outside of it."""
    if not 0 <= dim < input.ndim:
        raise RuntimeError(f"narrow_copy(): dim {dim} is out of range of {input.ndim} dimensions")
    n = input._size[dim]
    if not 0 <= start <= n or length < 0 or start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    size = (*input._size[:dim], length, *input._size[dim + 1 :])
    if dim >= input.sparse_dim():
        return make(input._i, input._v.narrow(dim - input.sparse_dim() + 1, start, length), size, input._coalesced)
    row = input._i._array[dim]
    some = wrap(backends.xp_of(row).nonzero((row >= start) & (row < start + length))[0])
    indices = input._i.index_select(1, some)
    indices[dim] -= start
    return make(indices, input._v.index_select(0, some), size, input._coalesced)


def select(input: SparseTensor, dim: int, index: int) -> Any:
    """One position of a dim, which goes: dense once no sparse dim is left.  input (*) -> (* without dim)."""
    at, d = wrap_dim(dim, input.ndim), input.sparse_dim()
    n = input._size[at]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input._size)} at dimension {at}"
        )
    index = index + n if index < 0 else index
    size = (*input._size[:at], *input._size[at + 1 :])
    if at >= d:
        return make(input._i, input._v.select(at - d + 1, index), size, input._coalesced)
    one = narrow_copy(input, at, index, 1)
    if d == 1:
        return one._v.sum(0).to(input.dtype)
    kept = [x for x in range(d) if x != at]
    return make(one._i[kept], one._v, size, input._coalesced or one._nnz() < 2)


def index_select(input: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """Chosen positions of a dim.  input (*), index (n) -> (*, n, *)."""
    at, d = wrap_dim(dim, input.ndim), input.sparse_dim()
    n, count = input._size[at], index.numel()
    chosen = index.reshape(-1)._array
    xp = backends.xp_of(chosen)
    if chosen.size and not (int(chosen.min()) >= -n and int(chosen.max()) < n):
        raise IndexError(f"index_select(): index contains a value out of range for a dim of size {n}")
    chosen = xp.where(chosen < 0, chosen + n, chosen)
    size = (*input._size[:at], count, *input._size[at + 1 :])
    if at >= d:
        return make(input._i, input._v.index_select(at - d + 1, wrap(chosen)), size, input._coalesced)
    row = input._i._array[at]
    order = xp.argsort(row, kind="stable")
    first, last = (xp.searchsorted(row[order], chosen, side=side) for side in ("left", "right"))
    many = last - first
    where = xp.repeat(xp.arange(count), many)
    offset = xp.arange(int(many.sum())) - xp.repeat(xp.cumsum(many) - many, many)
    some = wrap(order[xp.repeat(first, many) + offset])
    indices = input._i.index_select(1, some)
    indices[at] = wrap(where.astype(xp.int64))
    return make(indices, input._v.index_select(0, some), size)


def getitem(input: SparseTensor, index: Any) -> Any:
    """Single positions of dims, `None` and whole dims; NotImplementedError for other indices."""
    parts = index if isinstance(index, tuple) else (index,)
    named = sum(p is not None and p is not Ellipsis for p in parts)
    spread: list[Any] = []
    for part in parts:
        spread += [slice(None)] * (input.ndim - named) if part is Ellipsis else [part]
    result, at = input, 0
    for part in spread:
        if isinstance(part, Tensor) and not part.ndim and not part.is_floating_point():
            part = int(part)
        if part is None:
            result, at = result.unsqueeze(at), at + 1
        elif isinstance(part, int) and not isinstance(part, bool):
            n = result.shape[at]
            if not -n <= part < n:
                raise IndexError(f"index {part} is out of bounds for dimension {at} with size {n}")
            result = result.select(at, part)
        elif isinstance(part, slice) and part in (slice(None), slice(0, result.shape[at])):
            at += 1
        elif isinstance(part, slice) and part.step in (None, 1) and isinstance(result, SparseTensor):
            start, stop, _ = part.indices(result.shape[at])
            result, at = narrow_copy(result, at, start, max(stop - start, 0)), at + 1
        elif isinstance(part, Tensor | list) and isinstance(result, SparseTensor):
            places = PUBLIC["as_tensor"](part)
            if places.ndim != 1:
                raise NotImplementedError("a sparse tensor is indexed by one list for a dim: use to_dense() first")
            places = places.nonzero()[:, 0] if places.dtype.itemsize == 1 else places
            result, at = index_select(result, at, places), at + 1
        else:
            raise NotImplementedError(f"a sparse tensor has no index of {type(part).__name__}: use to_dense() first")
    return result


def unbind(input: SparseTensor, dim: int = 0) -> tuple[Any, ...]:
    """The parts along a dim.  input (*) -> n tensors (* without dim)."""
    return tuple(select(input, dim, k) for k in range(input._size[wrap_dim(dim, input.ndim)]))


def cat(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    """Sparse tensors joined along a sparse or a dense dim.  tensors (*) -> (*).

    RuntimeError for other sizes, another number of sparse dims, or a dense tensor among them.
    """
    for position, tensor in enumerate(tensors):
        if not isinstance(tensor, SparseTensor):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {position}.")
    first = tensors[0]
    at, d = wrap_dim(dim, first.ndim), first.sparse_dim()
    rest = (*first._size[:at], *first._size[at + 1 :])
    indices, values, start, total = [], [], 0, sum(t._size[at] for t in tensors if t.ndim == first.ndim)
    for position, tensor in enumerate(tensors):
        if (tensor.sparse_dim(), tensor.dense_dim()) != (d, first.dense_dim()):
            raise RuntimeError(
                f"All tensors must have the same sparse_dim and dense_dim: {d}, {first.dense_dim()}, but tensor at "
                f"position {position} has {tensor.sparse_dim()}, {tensor.dense_dim()}."
            )
        size = tensor._size
        if (*size[:at], *size[at + 1 :]) != rest:
            raise RuntimeError(
                f"All tensors must have the same shape: {list(first._size)} (except in the concatenating dimension), "
                f"but found shape: {list(size)} at position {position}."
            )
        if at < d:
            moved = tensor._i.clone()
            moved[at] += start
            indices.append(moved)
            values.append(tensor._v)
        else:
            behind = (0, 0) * (tensor.ndim - 1 - at)
            indices.append(tensor._i)
            values.append(PUBLIC["constant_pad_nd"](tensor._v, [*behind, start, total - start - size[at]]))
        start += size[at]
    join = PUBLIC["cat"]
    return make(join(indices, 1), join(values), (*first._size[:at], total, *first._size[at + 1 :]))


def hstack(tensors: Any) -> SparseTensor:
    """Tensors beside each other: `cat` along dim 1, of vectors along dim 0."""
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


def vstack(tensors: Any) -> SparseTensor:
    """Tensors below each other; a vector is a row."""
    return cat([t.unsqueeze(0) if t.ndim == 1 else t for t in tensors])


def stack(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    """Sparse tensors joined along a new dim.  n tensors (*) -> (*, n, *)."""
    return cat([t.unsqueeze(dim) for t in tensors], dim)


def sparse_resize_(input: SparseTensor, size: Sequence[int], sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Another size in place.  RuntimeError where elements that are there would no longer fit."""
    size = checked_size(size)
    d, dense = input.sparse_dim(), input.dense_dim()
    if sparse_dim + dense_dim != len(size):
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = "
            f"{sparse_dim}, dense_dim = {dense_dim}"
        )
    for_writing(input)
    if not input._nnz():
        return input._become(nothing(input, size, sparse_dim))
    for kind, old, new in (("sparse", d, sparse_dim), ("dense", dense, dense_dim)):
        if old != new:
            raise RuntimeError(
                f"changing the number of {kind} dimensions (from {old} to {new}) on a non-empty sparse tensor is not "
                "supported."
            )
    for kind, was, wanted in (("sparse", input._size[:d], size[:d]), ("dense", input._size[d:], size[d:])):
        if any(new < old for old, new in zip(was, wanted)):
            raise RuntimeError(
                f"shrinking the size of {kind} dimensions (from {list(was)} to {list(wanted)}) on a non-empty sparse "
                "tensor is not supported."
            )
    values = input._v
    if size[d:] != input._size[d:]:
        values = values.new_zeros(input._nnz() * numel(size[d:]))  # the memory grows, its elements stay in their order
        values = values.index_add(0, PUBLIC["arange"](input._v.numel()), input._v.reshape(-1))
        values = values.view(input._nnz(), *size[d:])
    return input._become(make(input._i, values, size, input._coalesced))


def sparse_resize_and_clear_(input: SparseTensor, size: Sequence[int], sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Another size in place, and no elements."""
    if sparse_dim + dense_dim != len(tuple(size)):
        raise RuntimeError(f"number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim})")
    return for_writing(input)._become(nothing(input, checked_size(size), sparse_dim))


def resize_as_(input: SparseTensor, template: SparseTensor, memory_format: Any = None) -> SparseTensor:
    """The size and the number of sparse dims of `template`, in place."""
    if not isinstance(template, SparseTensor):
        raise RuntimeError("resize_as_sparse_(): a sparse tensor takes the size of a sparse tensor only")
    return sparse_resize_(input, template._size, template.sparse_dim(), template.dense_dim())


def zero_(input: SparseTensor) -> SparseTensor:
    """Drop all elements."""
    return for_writing(input)._become(nothing(input, input._size, input.sparse_dim()))


def copy_(input: Any, src: Any, non_blocking: bool = False) -> Any:
    """Take the coordinates and values of a sparse tensor, in the own dtype; its size too where that is possible."""
    if not (isinstance(input, SparseTensor) and isinstance(src, SparseTensor)):
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{input.type()} and src type = {src.type()}"
        )
    if input._size != src._size or input.sparse_dim() != src.sparse_dim():
        sparse_resize_(input, src._size, src.sparse_dim(), src.dense_dim())
    for_writing(input)
    values = src._v.clone().to(input.dtype).to(input.device)
    return input._become(make(src._i.clone().to(input.device), values, src._size, src._coalesced))


def _refused(name: str, text: str) -> Any:
    def refuse(input: SparseTensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(text)

    refuse.__name__ = name
    return refuse


_OWN = (
    transpose,
    transpose_,
    t,
    t_,
    permute,
    movedim,
    unsqueeze,
    narrow_copy,
    select,
    index_select,
    unbind,
    zero_,
    copy_,
    sparse_resize_,
    sparse_resize_and_clear_,
    resize_as_,
)
METHODS: dict[str, Any] = {
    **{f.__name__: f for f in _OWN},
    **dict.fromkeys(("swapaxes", "swapdims"), transpose),
    "moveaxis": movedim,
    "__getitem__": getitem,
    "resize_as_sparse_": resize_as_,
    "__iter__": lambda self: iter(unbind(self)),
}
for _dense in (Tensor.reshape, Tensor.flatten, Tensor.view):
    METHODS[_dense.__name__] = _refused(_dense.__name__, "reshape is not implemented for sparse tensors")
for _dense in (Tensor.expand, Tensor.broadcast_to, Tensor.repeat):
    METHODS[_dense.__name__] = _refused(_dense.__name__, "expand is unsupported for Sparse tensors")
