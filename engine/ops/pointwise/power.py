"""Elementwise powers: reciprocal, pow, float_power, square roots."""

from __future__ import annotations

import builtins
from typing import Any

from engine.core import dtypes
from engine.dispatch import array_derivative, composite, derivative, op, samples
from engine.dispatch.out import store
from engine.ops.pointwise.arithmetic import conj_if_complex as _conj
from engine.ops.pointwise.arithmetic import dtype_of, keep_where, not_implemented, one_edge, square_slope, zeros_of
from engine.tensor import Tensor


@op(
    promote="float",
    inplace=True,
    half=True,
    blocks="elements",
    direct=True,
    generated="one",
    autocast={"cuda": "float32"},
)
@derivative(input=lambda grad, result: -grad * _conj(result * result))
@samples(lambda t: [(t.positive(3, 4),), (t.positive(),), (t(0, 2),), (t.complex(3),)])
def reciprocal(xp, input):
    """1 / input.  input (*) -> (*)."""
    return xp.reciprocal(input)


# --- powers


_NUMBERS = frozenset([int, float, complex, bool])


def _power_of_number(xp: Any, input: Any, exponent: Any) -> Any:
    """input ** number by products and roots where those are exact enough (as torch does); else xp.power."""
    if input.dtype.kind in "fcV":
        if exponent == 2:
            return xp.multiply(input, input)
        if exponent == 3:
            return xp.multiply(xp.multiply(input, input), input)
        if exponent == 0.5:
            return xp.sqrt(input)
        if exponent == -1:
            return xp.reciprocal(input)
        if exponent == -2:
            return xp.reciprocal(xp.multiply(input, input))
        if exponent == -0.5:
            return xp.reciprocal(xp.sqrt(input))
    elif exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    elif input.dtype.kind == "b":
        return xp.logical_or(input, not exponent)
    elif exponent == 2:
        return xp.multiply(input, input)
    return xp.power(input, exponent)


def _integer_power(xp: Any, input: Any, exponent: Any) -> Any:
    """Integers to integer powers; to a negative one 1, -1 or 0."""
    negative = exponent < 0
    if not negative.any():
        return xp.power(input, exponent)
    sign = xp.where(xp.bitwise_and(exponent, 1) == 1, input, 1)  # of +-1 ** odd, +-1 ** even
    small = xp.where(xp.abs(input) == 1, sign, 0)
    return xp.where(negative, small, xp.power(input, xp.where(negative, 0, exponent))).astype(exponent.dtype)


def _pow_input(grad: Tensor, input: Tensor, exponent: Any) -> Tensor:
    if not isinstance(exponent, Tensor):
        if exponent == 0:
            return zeros_of(grad)
        if exponent == 2:
            return square_slope(grad, input)
        return grad * _conj(pow(input, exponent - 1) * exponent)
    factor = _conj(exponent * pow(input, exponent - 1))
    return keep_where(*_same(grad * factor, exponent != 0))


def _same(value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the shape of `value` (which the mask broadcasts to)."""
    return value, mask if mask._array.shape == value._array.shape else mask.expand(value._array.shape)


def _pow_exponent(grad: Tensor, input: Any, exponent: Tensor, result: Tensor) -> Tensor:
    """Gradient of the exponent: 0 where 0 ** y with y >= 0."""
    if not isinstance(input, Tensor):
        if input == 0:
            factor = _conj(result * float("-inf"))
            return keep_where(grad * factor, ~(_real(exponent) >= 0))
        return grad * _conj(result * _log_number(input))
    mask = ~((input == 0) & (_real(exponent) >= 0))
    if exponent._array.dtype.kind == "c" and input._array.dtype.kind != "c":
        input = input.to(exponent.dtype)
    return keep_where(*_same(grad * _conj(result * input.log()), mask))


def _real(x: Tensor) -> Tensor:
    return x.real if x._array.dtype.kind == "c" else x


def _log_number(value: Any) -> Any:
    import cmath
    import math

    if isinstance(value, complex):
        return cmath.log(value)
    return math.log(value) if value > 0 else float("nan")


def _check_pow(arrays: list[Any]) -> None:
    base, exponent = arrays
    if isinstance(exponent, int) and exponent < 0 and dtype_of(base).category < dtypes.FLOATING:
        raise RuntimeError("Integers to negative integer powers are not allowed.")


@op(
    shows=one_edge,
    broadcast=True,
    inplace=True,
    tensors=("exponent",),
    check=_check_pow,
    node={
        "not isinstance(exponent, Tensor)": "PowBackward0",
        "isinstance(input, Tensor)": "PowBackward1",
        "": "PowBackward2",
    },
    several=((2, 3), (2, 3), (2, 3)),
    generated="one",
    autocast={"cuda": "float32"},
)
@derivative(input=_pow_input, exponent=_pow_exponent)
@samples(lambda t: [(t.positive(3, 4), t(3, 4)), (t.positive(2, 1), t(3)), (t(3), 2), (t.positive(3), 2.5),
                    (t(3), 3), (t(3), 0), (t.positive(3), -1), (t.positive(3), 0.5), (t.positive(3), -0.5),
                    (2.5, t(3)), (t.positive(), t()), (t(0), t(0)), (t.integers(-3, 3, 4), t.integers(0, 4, 4)),
                    (t.complex(3), t.complex(3)), (t.complex(3), 2)])  # fmt: skip
def pow(xp, input, exponent):
    """input ** exponent.  input (*a) or number, exponent (*b) or number -> (broadcast of a and b).

    RuntimeError for an integer tensor to a negative number.
    """
    if exponent.__class__ in _NUMBERS or xp.isscalar(exponent):
        return _power_of_number(xp, input, exponent)
    kind = exponent.dtype.kind
    if kind in "iub":
        if kind == "b":
            raise not_implemented("pow", exponent)
        if kind == "i":
            return _integer_power(xp, input, exponent)
    return xp.power(input, exponent)


@composite(several=((2, 3), (2, 3), (2, 3)), elementwise=True)
@samples(lambda t: [(t.positive(3), t(3)), (t.positive(3), 2), (2, t(3))])
def float_power(input: Tensor | complex, exponent: Tensor | complex, *, out=None):
    """input ** exponent in float64 (complex128 if one is complex).  input (*a), exponent (*b) -> (broadcast)."""
    if out is not None:
        return store(out, "float_power", float_power, input, exponent)
    wide = dtypes.float64
    if builtins.any(dtype_of(getattr(x, "_array", x)).is_complex for x in (input, exponent)):
        wide = dtypes.complex128
    if isinstance(input, Tensor):
        input = input.to(wide)
    if isinstance(exponent, Tensor):
        exponent = exponent.to(wide)
    return pow(input, exponent)


@composite(public=False, several=((2, 3), (2, 3), (2, 3)))
def float_power_(input: Tensor, exponent: Tensor | complex):
    """In place: see `float_power`.  RuntimeError unless `input` has the type of the result."""
    result = float_power(input.detach(), exponent)
    if result.dtype is not input.dtype:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {dtypes.scalar_name(input.dtype)} but the operation's result "
            f"requires dtype {dtypes.scalar_name(result.dtype)}"
        )
    return input.pow_(exponent if not isinstance(exponent, Tensor) else exponent.to(result.dtype))


@op(promote="float", inplace=True, channels_last=True, blocks="elements", direct=True, generated="one", keeps_zero=True)
@derivative(input=lambda grad, result: grad / (_conj(result) * 2))
@array_derivative()
@samples(lambda t: [(t.positive(3, 4),), (t.positive(),), (t(0, 2),), (t.complex(3),)])
def sqrt(xp, input):
    """The square root; nan for negative input.  input (*) -> (*)."""
    return xp.sqrt(input)


@op(
    promote="float",
    inplace=True,
    half=True,
    channels_last=True,
    blocks="elements",
    direct=True,
    generated="one",
    autocast={"cuda": "float32"},
)
@derivative(input=lambda grad, result: grad * -0.5 * _conj(result * result * result))
@samples(lambda t: [(t.positive(3, 4),), (t.positive(),), (t(0, 2),), (t.complex(3),)])
def rsqrt(xp, input):
    """1 / sqrt(input).  input (*) -> (*)."""
    return xp.reciprocal(xp.sqrt(input))
