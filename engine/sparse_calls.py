"""What the engine's functions do with sparse tensors: `call` is where `SparseTensor.__torch_function__` leads.

What is neither in `FUNCTIONS` nor a method of `SparseTensor` runs its own Python code; where that reaches a kernel,
`SparseTensor._array` refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

from engine._checks import wrap_dim
from engine.dispatch import PUBLIC, import_lazy
from engine.dispatch.overriding import plain
from engine.sparse import SparseTensor, addmm, hspmm, mm, smm, sspaddmm
from engine.sparse import _make as make
from engine.tensor import Tensor

__all__ = ["call", "names"]

# Functions of single numbers whose result of zero is zero
_ZERO_STAYS = frozenset(
    "abs absolute asin arcsin asinh arcsinh atan arctan atanh arctanh ceil deg2rad erf erfinv expm1 floor frac log1p "
    "neg negative rad2deg relu round sgn sign sin sinh sqrt square tan tanh trunc fix positive conj_physical".split()
)


def call(func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function called with sparse tensors among its arguments."""
    if not all(issubclass(SparseTensor, t) for t in types):
        return NotImplemented
    name = func.__name__
    own = FUNCTIONS.get(name)
    if own is None and args and isinstance(args[0], SparseTensor):
        own = vars(SparseTensor).get(name)
        if own is None and name in _ZERO_STAYS and len(args) == 1 and not kwargs:
            a = args[0].coalesce()
            return a._with(func(a._v))
    if isinstance(own, FunctionType) and own is not func:
        return own(*args, **kwargs)
    return plain(func)(*args, **kwargs)


def _add(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    if isinstance(input, SparseTensor):
        return input.add(other, alpha=alpha)
    dense = other.to_dense()
    return input + (dense if alpha == 1 else dense * alpha)


def _add_(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    if isinstance(input, SparseTensor):
        return input.add_(other, alpha=alpha)
    return input.add_(other.to_dense(), alpha=alpha)


def _bmm(input: Any, mat2: Any) -> Tensor:
    """The products of a batch.  input (B, n, k) sparse, mat2 (B, k, m) -> (B, n, m): one product of blocks."""
    if not isinstance(input, SparseTensor) or isinstance(mat2, SparseTensor) or input.sparse_dim() != 3:
        raise RuntimeError("bmm: Expected all tensors to be sparse in input and dense in mat2, of three sparse dims")
    (count, n, k), i = input._size, input._i
    if tuple(mat2.shape[:2]) != (count, k):
        raise RuntimeError(
            f"bmm: Argument #2: Expected dims (0, 1) of size ({count}, {k}), got {tuple(mat2.shape[:2])}"
        )
    at = PUBLIC["stack"]([i[0] * n + i[1], i[0] * k + i[2]])
    return mm(make(at, input._v, (count * n, count * k)), mat2.reshape(count * k, -1)).view(count, n, -1)


def _cat(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    first = tensors[0]
    if not all(isinstance(t, SparseTensor) for t in tensors):
        raise RuntimeError("Concatenating sparse tensors, but a dense tensor was found among them")
    d = wrap_dim(dim, first.ndim)
    if d >= first.sparse_dim():
        raise NotImplementedError("cat of sparse tensors along a dense dim: use to_dense() first")
    indices, start = [], 0
    for t in tensors:
        if (*t._size[:d], *t._size[d + 1 :]) != (*first._size[:d], *first._size[d + 1 :]):
            raise RuntimeError(f"torch.cat: sizes must match except in dim {d}: {first._size} and {t._size}")
        moved = t._i.clone()
        moved[d] += start
        indices.append(moved)
        start += t._size[d]
    cat = PUBLIC["cat"]
    return make(cat(indices, 1), cat([t._v for t in tensors]), (*first._size[:d], start, *first._size[d + 1 :]))


def _zeros_like(input: SparseTensor, **options: Any) -> SparseTensor:
    return make(input._i[:, :0], PUBLIC["zeros_like"](input._v[:0], **options), input._size, True)


# What functions do with sparse tensors among their arguments, where that is no method of the first one.
FUNCTIONS: dict[str, Any] = {
    "mm": mm, "matmul": mm, "mv": mm, "__matmul__": mm, "smm": smm, "hspmm": hspmm, "bmm": _bmm, "addmm": addmm,
    "sspaddmm": sspaddmm, "add": _add, "add_": _add_, "cat": _cat, "concat": _cat, "zeros_like": _zeros_like,
    "sub": lambda input, other, *, alpha=1: _add(input, other, alpha=-alpha),
    "sub_": lambda input, other, *, alpha=1: _add_(input, other, alpha=-alpha),
    "mul": lambda input, other: input * other if isinstance(input, SparseTensor) else other * input,
}  # fmt: skip


def names() -> set[str]:
    """The functions of dense tensors that have something for sparse ones."""
    import_lazy()
    own = {n for n, f in vars(SparseTensor).items() if isinstance(f, FunctionType)}
    return {n for n in own | FUNCTIONS.keys() | _ZERO_STAYS if n in PUBLIC} | {"__matmul__"}
