"""Elementwise logic: bitwise and logical operations, shifts, gcd and lcm."""

from __future__ import annotations

from typing import Any

from engine.dispatch import op, operator_form, samples
from engine.ops.pointwise.arithmetic import not_implemented
from engine.tensor import Tensor


def _integers(name: str, *operands: Any, bools: bool = True) -> None:
    """torch's error unless the operands are integers (or bools)."""
    for x in operands:
        if hasattr(x, "dtype") and x.dtype.kind not in ("iub" if bools else "iu"):
            raise not_implemented(name, x)


def _bit_samples(t: Any) -> list[Any]:
    return [
        (t.integers(-9, 9, 3, 4), t.integers(-9, 9, 4)),
        (t.boolean(3), t.boolean(3)),
        (t.integers(0, 9, 3), 5),
        (t.integers(0, 9), t.integers(0, 9)),
        (t.integers(0, 9, 0), 1),
    ]


@op(broadcast=True, inplace=True, several=((2, 2), (2, 3), (2, 3)), commutative=True, generated="one")
@samples(_bit_samples)
def bitwise_and(xp, input, other):
    """input & other, of integers or bools.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    _integers("bitwise_and_cpu", input, other)
    return xp.bitwise_and(input, other)


@op(broadcast=True, inplace=True, several=((2, 2), (2, 3), (2, 3)), commutative=True, generated="one")
@samples(_bit_samples)
def bitwise_or(xp, input, other):
    """input | other, of integers or bools.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    _integers("bitwise_or_cpu", input, other)
    return xp.bitwise_or(input, other)


@op(broadcast=True, inplace=True, several=((2, 2), (2, 3), (2, 3)), commutative=True, generated="one")
@samples(_bit_samples)
def bitwise_xor(xp, input, other):
    """input ^ other, of integers or bools.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    _integers("bitwise_xor_cpu", input, other)
    return xp.bitwise_xor(input, other)


@op(inplace=True, blocks="elements")
@samples(
    lambda t: [
        (t.integers(-9, 9, 3, 4),),
        (t.boolean(3),),
        (t.integers(0, 9),),
        (t.integers(0, 9, 0),),
    ]
)
def bitwise_not(xp, input):
    """~input, of integers or bools.  input (*) -> (*)."""
    _integers("bitwise_not_cpu", input)
    return xp.invert(input)


@op(broadcast=True, inplace=True, several=((2, 2), (2, 3), (2, 3)))
@samples(
    lambda t: [
        (t.integers(-9, 9, 3, 4), t.integers(0, 9, 4)),
        (t.integers(0, 9, 3), 2),
        (t.integers(0, 9, 0), 1),
    ]
)
def bitwise_left_shift(xp, input, other):
    """input * 2 ** other, of integers.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    _integers("lshift_cpu", input, other, bools=False)
    return xp.left_shift(input, other)


@op(broadcast=True, inplace=True, several=((2, 2), (2, 3), (2, 3)))
@samples(
    lambda t: [
        (t.integers(-9, 9, 3, 4), t.integers(0, 9, 4)),
        (t.integers(0, 9, 3), 2),
        (t.integers(0, 9, 0), 1),
    ]
)
def bitwise_right_shift(xp, input, other):
    """input / 2 ** other rounded down, of integers.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    _integers("rshift_cpu", input, other, bools=False)
    return xp.right_shift(input, other)


@op(broadcast=True, inplace=True, numbers=())
@samples(
    lambda t: [
        (t.integers(-99, 99, 3, 4), t.integers(1, 30, 4)),
        (t.integers(0, 9), t.integers(0, 9)),
        (t.integers(0, 9, 0), t.integers(0, 9, 0)),
    ]
)
def gcd(xp, input, other):
    """The greatest common divisor of integers.  input (*a), other (*b) -> (broadcast of a and b)."""
    _integers("gcd_cpu", input, other, bools=False)
    return xp.gcd(input, other)


@op(broadcast=True, inplace=True, numbers=())
@samples(
    lambda t: [
        (t.integers(-99, 99, 3, 4), t.integers(1, 30, 4)),
        (t.integers(0, 9), t.integers(0, 9)),
        (t.integers(0, 9, 0), t.integers(0, 9, 0)),
    ]
)
def lcm(xp, input, other):
    """The least common multiple of integers, not negative.  input (*a), other (*b) -> (broadcast of a and b)."""
    _integers("lcm_cpu", input, other, bools=False)
    return xp.lcm(input, other)


def _logic_samples(t: Any) -> list[Any]:
    return [
        (t.boolean(3, 4), t.boolean(4)),
        (t.integers(0, 2, 3), t(3)),
        (t(), t.boolean()),
        (t(0), t(0)),
    ]


@op(broadcast=True, promote="compare", inplace=True, numbers=())
@samples(_logic_samples)
def logical_and(xp, input, other):
    """Return whether both are not 0.  input (*a), other (*b) -> (broadcast of a and b) bool."""
    return xp.logical_and(input, other)


@op(broadcast=True, promote="compare", inplace=True, numbers=())
@samples(_logic_samples)
def logical_or(xp, input, other):
    """Return whether one is not 0.  input (*a), other (*b) -> (broadcast of a and b) bool."""
    return xp.logical_or(input, other)


@op(broadcast=True, promote="compare", inplace=True, numbers=())
@samples(_logic_samples)
def logical_xor(xp, input, other):
    """Return whether exactly one is not 0.  input (*a), other (*b) -> (broadcast of a and b) bool."""
    return xp.logical_xor(input, other)


@op(inplace=True, blocks="elements")
@samples(lambda t: [(t.boolean(3, 4),), (t(3),), (t(),), (t(0),)])
def logical_not(xp, input):
    """Return whether input is 0.  input (*) -> (*) bool."""
    return xp.logical_not(input)


def _invert(self: Tensor) -> Tensor:
    """~self, of integers or bools."""
    if self._array.dtype.kind not in "iub":
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return bitwise_not(self)


Tensor.__invert__ = _invert
Tensor.__and__ = Tensor.__rand__ = operator_form("bitwise_and")
Tensor.__or__ = Tensor.__ror__ = operator_form("bitwise_or")
Tensor.__xor__ = Tensor.__rxor__ = operator_form("bitwise_xor")
_left, _right = operator_form("bitwise_left_shift"), operator_form("bitwise_right_shift")
Tensor.__lshift__, Tensor.__rshift__ = _left, _right
Tensor.__rlshift__ = lambda self, other: _left(other, self)
Tensor.__rrshift__ = lambda self, other: _right(other, self)
Tensor.__iand__ = operator_form("bitwise_and", inplace=True)
Tensor.__ior__ = operator_form("bitwise_or", inplace=True)
Tensor.__ixor__ = operator_form("bitwise_xor", inplace=True)
Tensor.__ilshift__ = operator_form("bitwise_left_shift", inplace=True)
Tensor.__irshift__ = operator_form("bitwise_right_shift", inplace=True)
