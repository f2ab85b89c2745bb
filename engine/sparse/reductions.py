"""Sums, norms and softmax of sparse tensors."""

from __future__ import annotations

from typing import Any

from engine import backends
from engine.core.checks import wrap_dim
from engine.dispatch import PUBLIC
from engine.ops.coo import group_sum, linear_index
from engine.sparse.coordinates import SparseTensor, make
from engine.tensor import Tensor, wrap

__all__ = ["METHODS", "log_softmax", "softmax", "sum"]


def _dims(dim: Any, ndim: int) -> list[int]:
    """The dims in order.  RuntimeError for one that is given twice."""
    found = [wrap_dim(x, ndim) for x in ([dim] if isinstance(dim, int) else dim)]
    for x in found:
        if found.count(x) > 1:
            raise RuntimeError(f"dim {x} appears multiple times in the list of dims")
    return sorted(found)


def _sum(input: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum over all or some dims; sparse while a sparse dim is left.  input (*) -> (* without dim)."""
    if dim is None or (not isinstance(dim, int) and not tuple(dim)):
        found = input._v.sum(dtype=dtype)
        return found.view((1,) * input.ndim) if keepdim else found
    d, dims = input.sparse_dim(), _dims(dim, input.ndim)
    values = input._v if dtype is None else input._v.to(dtype)
    dense = [x - d + 1 for x in dims if x >= d]
    kept = [x for x in range(d) if x not in dims]
    if dense or not kept:
        values = values.sum([*dense, *([] if kept else [0])])
    elif not (values.is_floating_point() or values.is_complex()):
        values = values.to(values[:0].sum().dtype)
    size = tuple(n for x, n in enumerate(input._size) if x not in dims)
    found = values
    if kept:
        found = make(input._i[kept], values, size, input._coalesced and len(kept) == d).coalesce()
    if keepdim:
        for x in dims:
            found = found.unsqueeze(x)
    return found


def sum(input: SparseTensor, dim: Any = None, dtype: Any = None) -> Any:
    """The sum over all or some dims; sparse while a sparse dim is left.  input (*) -> (* without dim)."""
    return _sum(input, dim, dtype=dtype)


def norm(
    input: SparseTensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None, out: Any = None
) -> Tensor:
    """The norm of all values.  input (*) -> ().  RuntimeError for some of the dims, `keepdim` or a dtype."""
    if dim is not None and len(_dims(dim, input.ndim)) not in (0, input.ndim):
        raise RuntimeError(
            "norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all "
            "dimensions of the input"
        )
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    if dtype is not None:
        raise RuntimeError("norm_sparse currently does not support 'dtype' argument")
    values = input.coalesce()._v.reshape(-1)
    return PUBLIC["norm"](values, 2 if p in (None, "fro") else p)


def any(input: SparseTensor) -> Tensor:
    """Return whether an element is not zero.  input (*) -> ()."""
    return input.coalesce()._v.any()


def _normalised(input: SparseTensor, dim: int, dtype: Any, log: bool) -> SparseTensor:
    a = input.coalesce()
    d = wrap_dim(dim, a.ndim)
    values = a._v if dtype is None else a._v.to(dtype)
    if d >= a.sparse_dim():
        inner = d - a.sparse_dim() + 1
        return a._with(values.log_softmax(inner) if log else values.softmax(inner))
    array = a._i._array
    xp = backends.xp_of(array)
    kept = [x for x in range(a.sparse_dim()) if x != d]
    flat = linear_index(xp, array[kept], tuple(a._size[x] for x in kept))
    unique, groups = xp.unique(flat, return_inverse=True)
    groups = groups.reshape(-1)
    n = int(unique.shape[0])
    top = xp.full((n, *values._array.shape[1:]), -xp.inf, values._array.dtype)
    xp.maximum.at(top, groups, values._array)
    where = wrap(groups)
    shifted = values - wrap(top[groups])
    weights = shifted.exp()
    total = group_sum(weights, where, n).index_select(0, where)
    return a._with(shifted - total.log() if log else weights / total)


def softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """softmax along `dim` over the elements present (absent ones count as -inf).  input (*) -> (*)."""
    return _normalised(input, dim, dtype, False)


def log_softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """log_softmax along `dim` over the elements present (absent ones count as -inf).  input (*) -> (*)."""
    return _normalised(input, dim, dtype, True)


METHODS: dict[str, Any] = {"sum": _sum} | {f.__name__: f for f in (norm, any, softmax, log_softmax)}
