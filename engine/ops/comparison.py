"""Comparisons, tests of values, `any` and `all`."""

from __future__ import annotations

from typing import Any

from engine.core import dtypes
from engine.core.checks import broadcast_shapes, wrap_dim, wrap_dims
from engine.dispatch import composite, op, operator_form, samples
from engine.ops.pointwise.arithmetic import not_implemented
from engine.tensor import Tensor


def _pairs(t: Any) -> list[Any]:
    return [
        (t(3, 4), t(3, 4)),
        (t.integers(0, 3, 2, 1), t.integers(0, 3, 3)),
        (t(3), 0.5),
        (t(), t()),
        (t(0), 1),
        (t.boolean(3), t(3)),
    ]


def _ordered(name: str, input: Any, other: Any) -> None:
    for x in (input, other):
        if hasattr(x, "dtype") and x.dtype.kind in "cW":
            raise not_implemented(f"{name}_cpu", x)


@op(
    node={"isinstance(other, Tensor)": "EqBackward1"},
    broadcast=True,
    promote="compare",
    inplace=True,
    numbers=("other",),
    several=((2, 3), (2, 3)),
    generated="one",
)
@samples(_pairs)
def eq(xp, input, other):
    """input == other.  input (*a), other (*b) or number -> (broadcast of a and b) bool."""
    return xp.equal(input, other)


@op(
    node={"isinstance(other, Tensor)": "NeBackward1"},
    broadcast=True,
    promote="compare",
    inplace=True,
    names=("not_equal",),
    numbers=("other",),
    several=((2, 3), (2, 3)),
    generated="one",
)
@samples(_pairs)
def ne(xp, input, other):
    """input != other.  input (*a), other (*b) or number -> (broadcast of a and b) bool."""
    return xp.not_equal(input, other)


@op(
    node={"isinstance(other, Tensor)": "LtBackward1"},
    broadcast=True,
    promote="compare",
    inplace=True,
    names=("less",),
    numbers=("other",),
    several=((2, 3), (2, 3)),
    generated="one",
)
@samples(_pairs)
def lt(xp, input, other):
    """input < other.  input (*a), other (*b) or number -> (broadcast of a and b) bool."""
    _ordered("lt", input, other)
    return xp.less(input, other)


@op(
    node={"isinstance(other, Tensor)": "LeBackward1"},
    broadcast=True,
    promote="compare",
    inplace=True,
    names=("less_equal",),
    numbers=("other",),
    several=((2, 3), (2, 3)),
    generated="one",
)
@samples(_pairs)
def le(xp, input, other):
    """input <= other.  input (*a), other (*b) or number -> (broadcast of a and b) bool."""
    _ordered("le", input, other)
    return xp.less_equal(input, other)


@op(
    node={"isinstance(other, Tensor)": "GtBackward1"},
    broadcast=True,
    promote="compare",
    inplace=True,
    names=("greater",),
    numbers=("other",),
    several=((2, 3), (2, 3)),
    generated="one",
)
@samples(_pairs)
def gt(xp, input, other):
    """input > other.  input (*a), other (*b) or number -> (broadcast of a and b) bool."""
    _ordered("gt", input, other)
    return xp.greater(input, other)


@op(
    node={"isinstance(other, Tensor)": "GeBackward1"},
    broadcast=True,
    promote="compare",
    inplace=True,
    names=("greater_equal",),
    numbers=("other",),
    several=((2, 3), (2, 3)),
    generated="one",
)
@samples(_pairs)
def ge(xp, input, other):
    """input >= other.  input (*a), other (*b) or number -> (broadcast of a and b) bool."""
    _ordered("ge", input, other)
    return xp.greater_equal(input, other)


Tensor.__eq__ = operator_form("eq")
Tensor.__ne__ = operator_form("ne")
Tensor.__lt__ = operator_form("lt")
Tensor.__le__ = operator_form("le")
Tensor.__gt__ = operator_form("gt")
Tensor.__ge__ = operator_form("ge")

# --- tests of values


def _values(t: Any) -> list[Any]:
    return [
        (t(3, 4),),
        (t.of([1.0, float("nan"), float("inf"), float("-inf")]),),
        (t(),),
        (t(0),),
        (t.integers(0, 3, 2),),
    ]


@op(blocks="elements", keeps_zero=True)
@samples(_values)
def isnan(xp, input):
    """Return whether an element is not a number.  input (*) -> (*) bool."""
    return xp.not_equal(input, input)


@op(blocks="elements", keeps_zero=True)
@samples(_values)
def isinf(xp, input):
    """Return whether an element is infinite.  input (*) -> (*) bool."""
    return xp.isinf(input)


@op(blocks="elements")
@samples(_values)
def isfinite(xp, input):
    """Return whether an element is neither infinite nor nan.  input (*) -> (*) bool."""
    return xp.isfinite(input)


def _no_complex(name: str, input: Any) -> None:
    if input.dtype.kind == "c":
        raise RuntimeError(f"{name} does not support complex inputs.")


@op(blocks="elements", keeps_zero=True)
@samples(_values)
def isposinf(xp, input):
    """Return whether an element is +inf.  input (*) -> (*) bool."""
    _no_complex("isposinf", input)
    return xp.equal(input, float("inf"))


@op(blocks="elements", keeps_zero=True)
@samples(_values)
def isneginf(xp, input):
    """Return whether an element is -inf.  input (*) -> (*) bool."""
    _no_complex("isneginf", input)
    return xp.equal(input, float("-inf"))


@op(blocks="elements")
@samples(lambda t: [(t(3, 4),), (t.complex(3),), (t(0),)])
def isreal(xp, input):
    """Return whether the imaginary part of an element is 0.  input (*) -> (*) bool."""
    return xp.equal(input.imag, 0) if input.dtype.kind == "c" else xp.ones(input.shape, "bool")


def _match(input: Any, other: Any) -> None:
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{dtypes.scalar_name(input.dtype)} did not match {dtypes.scalar_name(other.dtype)}")


@op(public=False, method=False, blocks="elements")
@samples(lambda t: [(t(3), t(3), 0.5, 0.1, False), (t(), t(2), 0.5, 0.1, True)])
def close_within(xp, input, other, rtol, atol, equal_nan):
    """|input - other| <= atol + rtol * |other|, or equal.  input (*a), other (*b) -> (broadcast of a and b) bool."""
    close = xp.equal(input, other)
    if equal_nan and input.dtype.kind in "fcVW":
        close = close | ((input != input) & (other != other))
    if rtol == 0 and atol == 0:
        return close
    if input.dtype.kind in "iub":
        input, other = input.astype("float64"), other.astype("float64")
    allowed = atol + xp.absolute(other * rtol)
    gap = xp.absolute(xp.subtract(input, other))
    return close | (xp.isfinite(gap) & (gap <= allowed))


@composite(elementwise=True)
@samples(lambda t: [(t.constant(t(3)), t.constant(t(3)))])
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False):
    """|input - other| <= atol + rtol * |other|, elementwise.

    input (*a), other (*b) -> (broadcast of a and b) bool.
    """
    _match(input, other)
    if rtol < 0 or atol < 0:
        name, value = ("rtol", rtol) if rtol < 0 else ("atol", atol)
        raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    broadcast_shapes(input._array.shape, other._array.shape)
    return close_within(input, other, rtol, atol, equal_nan)


@composite()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return whether `isclose` holds for all elements: a bool."""
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


@composite()
def equal(input: Tensor, other: Tensor) -> bool:
    """Return whether both have the same shape and elements: a bool."""
    if input._array.shape != other._array.shape:
        return False
    return bool(eq(input, other)._array.all())


# --- any, all


def _bool_result(array: Any, found: Any) -> Any:
    return found.astype("uint8") if array.dtype == "uint8" else found


def _check_logic_dim(dim: Any, ndim: int) -> Any:
    if dim is None:
        return None
    if isinstance(dim, int):
        return wrap_dim(dim, ndim) if ndim else ()
    return wrap_dims(dim, ndim) if len(dim) else ()  # no dim at all: each element by itself


def _truths(t: Any) -> list[Any]:
    return [
        (t.boolean(3, 4),),
        (t.boolean(3, 4), 1),
        (t.integers(0, 2, 2, 3), 0, True),
        (t.boolean(),),
        (t(0),),
        (t.boolean(2, 3, 4), (0, 2)),
        (t.integers(0, 2, 2, 3), (), True),
    ]


@op(several=((1, 2), (1, 4), (2, 4)), generated="many")
@samples(_truths)
def any(xp, input, dim: int | tuple[int, ...] | None = None, keepdim: bool = False):
    """Return whether one element (along `dim`) is not 0.  input (*) -> (* without dim) bool (uint8 of uint8)."""
    if input.dtype.kind == "V":
        input = input != 0
    axis = _check_logic_dim(dim, input.ndim)
    return _bool_result(input, xp.any(input, axis=axis, keepdims=keepdim))


@op(several=((1, 2), (1, 4), (2, 4)), generated="many")
@samples(_truths)
def all(xp, input, dim: int | tuple[int, ...] | None = None, keepdim: bool = False):
    """Return whether all elements (along `dim`) are not 0.  input (*) -> (* without dim) bool (uint8 of uint8)."""
    if input.dtype.kind == "V":
        input = input != 0
    axis = _check_logic_dim(dim, input.ndim)
    return _bool_result(input, xp.all(input, axis=axis, keepdims=keepdim))
