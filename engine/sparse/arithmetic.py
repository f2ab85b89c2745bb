"""Sums, products, quotients and powers of sparse tensors, element by element, and the same in place.

What torch's kernels promise of coordinates holds here too: an operand that is coalesced gives a coalesced result where
the order of coordinates stays; what has to see each element once (`pow`, floor division) coalesces first.
"""

from __future__ import annotations

from typing import Any

from engine import backends
from engine.core import dtypes
from engine.dispatch import PUBLIC
from engine.ops.coo import linear_index
from engine.sparse.coordinates import SparseTensor, for_writing, make
from engine.sparse.shapes import expanded
from engine.tensor import Tensor, wrap

__all__ = ["METHODS", "joined", "legacy_alpha"]


def _same_coordinates(a: SparseTensor, b: SparseTensor) -> bool:
    if a._i is b._i:
        return True
    first, second = a._i._array, b._i._array
    return first.shape == second.shape and bool((first == second).all())


def joined(a: SparseTensor, b: SparseTensor, alpha: Any = 1) -> SparseTensor:
    """a + alpha * b: values added where the coordinates are equal one by one, else one list after the other.

    RuntimeError for other sizes or another number of sparse dims.
    """
    if a._size != b._size:
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but {list(a._size)} != {list(b._size)}"
        )
    dtype = dtypes.promote_types(a.dtype, b.dtype)
    if not b._nnz() and a._nnz():
        return a._with(a._v.clone().to(dtype))
    if not a._nnz() and b._nnz():
        return b._with((b._v.clone() if alpha == 1 else b._v * alpha).to(dtype))
    if a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same density, but 'self' has {a.sparse_dim()} sparse dimensions "
            f"while 'other' has {b.sparse_dim()} sparse dimensions"
        )
    coalesced = a._coalesced and b._coalesced
    values = b._v if alpha == 1 else b._v * alpha
    if _same_coordinates(a, b):
        return make(a._i, a._v + values, a._size, coalesced)
    cat = PUBLIC["cat"]
    both = make(cat([a._i, b._i], 1), cat([a._v.to(dtype), values.to(dtype)], 0), a._size)
    return both.coalesce() if coalesced else both


def _dense_plus(dense: Tensor, other: SparseTensor, alpha: Any) -> Tensor:
    if tuple(dense.shape) != tuple(other._size):
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(dense.shape)} while other "
            f"has size {list(other._size)} (FYI: dense-sparse addition does not currently support broadcasting)"
        )
    more = other.to_dense()
    return dense + (more if alpha == 1 else more * alpha)


def legacy_alpha(other: Any, more: tuple[Any, ...], alpha: Any) -> tuple[Any, Any]:
    """The operand and alpha of `add(input, other, *, alpha)` and of the old `add(input, alpha, other)`."""
    return (more[0], other) if more else (other, alpha)


def add(input: Any, other: Any, *more: Any, alpha: Any = 1) -> Any:
    """input + alpha * other, where one or both are sparse.  input (*), other (*) -> (*)."""
    other, alpha = legacy_alpha(other, more, alpha)
    if isinstance(input, SparseTensor):
        if isinstance(other, SparseTensor):
            return joined(input, other, alpha)
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return _dense_plus(input if isinstance(input, Tensor) else PUBLIC["tensor"](input), other, alpha)


def add_(input: Any, other: Any, *more: Any, alpha: Any = 1) -> Any:
    """`add` in place."""
    other, alpha = legacy_alpha(other, more, alpha)
    if isinstance(input, SparseTensor):
        return _written(input, add(input, other, alpha=alpha), "add")
    if tuple(input.shape) != tuple(other._size):
        _dense_plus(input, other, alpha)
    return input.add_(other.to_dense(), alpha=alpha)


def sub(input: Any, other: Any, *more: Any, alpha: Any = 1) -> Any:
    """input - alpha * other, where one or both are sparse.  input (*), other (*) -> (*)."""
    other, alpha = legacy_alpha(other, more, alpha)
    return add(input, other, alpha=-alpha)


def sub_(input: Any, other: Any, *more: Any, alpha: Any = 1) -> Any:
    """`sub` in place."""
    other, alpha = legacy_alpha(other, more, alpha)
    return add_(input, other, alpha=-alpha)


def _written(target: SparseTensor, result: SparseTensor, name: str) -> SparseTensor:
    """`target`, which becomes `result` in its own dtype.  RuntimeError where that dtype cannot take it."""
    for_writing(target)
    if not dtypes.can_cast(result.dtype, target.dtype):
        known = {dtypes.bool: "Bool", dtypes.bfloat16: "BFloat16"}
        found, own = (
            known.get(t) or dtypes.tensor_type(t).removeprefix("torch.").removesuffix("Tensor")
            for t in (result.dtype, target.dtype)
        )
        if name == "div":
            raise RuntimeError(f"result type {found} can't be cast to the desired output type {own}")
        raise RuntimeError(f"Can't convert result type {found} to output {own} in {name} operation")
    return target._become(result if result.dtype is target.dtype else result.to(target.dtype))


def _intersection(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """a * b: the coordinates that both have, in the order of the operand that need not be coalesced."""
    d = a.sparse_dim()
    if d != b.sparse_dim() or a._size[:d] != b._size[:d] or a.ndim != b.ndim:
        raise RuntimeError(
            "sparse_binary_op_intersection_cpu(): expects sparse inputs with equal dimensionality, number of sparse "
            "dimensions, and shape of sparse dimensions"
        )
    if a._coalesced != b._coalesced:
        table, source = (a, b) if a._coalesced else (b, a)
    else:
        table, source = (a, b) if a._nnz() >= b._nnz() else (b, a)
    coalesced = a._coalesced and b._coalesced
    table = table.coalesce()
    xp = backends.xp_of(table._i._array)
    sizes = a._size[:d]
    known, wanted = (linear_index(xp, t._i._array, sizes) for t in (table, source))
    size = (*sizes, *PUBLIC["broadcast_shapes"](a._size[d:], b._size[d:]))
    if not known.shape[0]:
        some, at = xp.zeros(0, xp.int64), xp.zeros(0, xp.int64)
    else:
        place = xp.minimum(xp.searchsorted(known, wanted), known.shape[0] - 1)
        some = xp.nonzero(known[place] == wanted)[0]
        at = place[some]
    some, at = wrap(some), wrap(at)
    values = source._v.index_select(0, some) * table._v.index_select(0, at)
    return make(source._i.index_select(1, some), values, size, coalesced)


def mul(input: Any, other: Any) -> SparseTensor:
    """input * other: a sparse tensor and a number, a dense tensor or a sparse one.  input (*), other (*) -> (*)."""
    if not isinstance(input, SparseTensor):
        input, other = other, input
    for number, tensor in ((other, input), (input, other)):
        if isinstance(number, SparseTensor) and not number.ndim:
            return tensor._with(tensor._v * number.to_dense())
    if isinstance(other, SparseTensor):
        return _intersection(input, other)
    if isinstance(other, Tensor) and other.ndim:
        shape = PUBLIC["broadcast_shapes"](input._size, tuple(other.shape))
        a = expanded(input, shape)
        return a._with(a._v * other.expand(shape)[tuple(a._i)])
    return input._with(input._v * other)


def mul_(input: Any, other: Any) -> Any:
    """`mul` in place."""
    if not isinstance(input, SparseTensor):
        return input.mul_(other.to_dense())
    if (found := _scaled(input, other, "mul")) is not None:
        return found
    return _written(input, mul(input, other), "mul")


def _scaled(input: SparseTensor, other: Any, name: str) -> SparseTensor | None:
    """The values multiplied or divided by a number where they are; None if `other` is none or changes the dtype."""
    if isinstance(other, SparseTensor) or (isinstance(other, Tensor) and other.ndim):
        return None
    for_writing(input)
    if input._v.requires_grad or not input.dtype.is_floating_point:
        return None
    getattr(input._v, f"{name}_")(other)
    return input


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> SparseTensor:
    """input / other for a number or a tensor without dims.  input (*) -> (*).  RuntimeError for others."""
    if isinstance(other, SparseTensor) and isinstance(input, SparseTensor) and not other.ndim:
        other = other.to_dense()
    if not isinstance(input, SparseTensor):
        raise NotImplementedError("a dense value divided by a sparse tensor is not sparse: use to_dense() first")
    if isinstance(other, Tensor) and (other.ndim or isinstance(other, SparseTensor)):
        raise RuntimeError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{list(other.shape)} for divisor)"
        )
    if rounding_mode is None:
        return input._with(input._v / other)
    a = input.coalesce()
    return a._with(PUBLIC["div"](a._v, other, rounding_mode=rounding_mode))


def div_(input: SparseTensor, other: Any, *, rounding_mode: str | None = None) -> SparseTensor:
    """`div` in place."""
    if rounding_mode is None and (found := _scaled(input, other, "div")) is not None:
        return found
    return _written(input, div(input, other, rounding_mode=rounding_mode), "div")


def floor_divide(input: SparseTensor, other: Any) -> SparseTensor:
    """The quotient rounded down.  input (*) -> (*)."""
    return div(input, other, rounding_mode="floor")


def floor_divide_(input: SparseTensor, other: Any) -> SparseTensor:
    """`floor_divide` in place."""
    return div_(input, other, rounding_mode="floor")


def pow(input: SparseTensor, exponent: Any) -> SparseTensor:
    """Values to a power that is a number and not zero.  input (*) -> (*)."""
    if not isinstance(input, SparseTensor) or isinstance(exponent, Tensor):
        raise NotImplementedError("powers of sparse tensors have a number as exponent: use to_dense() first")
    if exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    a = input.coalesce()
    return a._with(a._v**exponent)


def square(input: SparseTensor) -> SparseTensor:
    """The squares.  input (*) -> (*)."""
    return pow(input, 2)


def neg(input: SparseTensor) -> SparseTensor:
    """The values with the other sign.  input (*) -> (*)."""
    return input._with(-input._v)


def neg_(input: SparseTensor) -> SparseTensor:
    """`neg` in place."""
    return for_writing(input)._become(neg(input))


def _reflected_sub(input: SparseTensor, other: Any) -> Tensor:
    return sub(other, input)


def _reflected_div(input: SparseTensor, other: Any) -> Any:
    return div(other, input)


METHODS: dict[str, Any] = {
    "add": add, "add_": add_, "sub": sub, "sub_": sub_, "subtract": sub, "mul": mul, "mul_": mul_, "multiply": mul,
    "div": div, "div_": div_, "divide": div, "true_divide": div, "true_divide_": div_, "floor_divide": floor_divide,
    "floor_divide_": floor_divide_, "pow": pow, "square": square, "neg": neg, "neg_": neg_, "negative": neg,
    "__add__": add, "__radd__": lambda self, other: add(other, self), "__sub__": sub, "__rsub__": _reflected_sub,
    "__mul__": mul, "__rmul__": mul, "__truediv__": div, "__rtruediv__": _reflected_div, "__floordiv__": floor_divide,
    "__neg__": neg, "__pow__": pow, "__iadd__": add_, "__isub__": sub_, "__imul__": mul_, "__itruediv__": div_,
}  # fmt: skip
