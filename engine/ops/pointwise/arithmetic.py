"""Elementwise arithmetic: sums, products, quotients."""

from __future__ import annotations

import builtins
from typing import Any

from engine import backends
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch import (
    array_derivative,
    composite,
    derivative,
    kernel,
    moving,
    op,
    overload,
    samples,
)
from engine.tensor import Tensor, wrap

_BINARY = "input (*a), other (*b) or number -> (broadcast of a and b)."


# --- what formulas share


def conj_if_complex(x: Any) -> Any:
    """`x`, conjugated if it is complex: the factor of a gradient.  Free for real tensors and numbers."""
    if isinstance(x, Tensor):
        return x.conj() if x._array.dtype.kind in "cW" else x
    return x.conjugate() if x.__class__ is complex else x


_conj = conj_if_complex


def _guarded(result: Tensor, input: Any, other: Any) -> Tensor:
    """`result`, whose node saves both operands, unless one is a number."""
    return guard(result, input, other) if isinstance(other, Tensor) and isinstance(input, Tensor) else result


@op(public=False, method=False, blocks="elements", generated="some")
@derivative(input=lambda grad, mask: keep_where(grad, mask))
@samples(lambda t: [(t(3, 4), t.boolean(3, 4)), (t(), t.boolean())])
def keep_where(xp, input, mask):
    """input where mask, else 0 (also where input is inf or nan).  input (*), mask (*) -> (*)."""
    return xp.where(mask, input, input.dtype.type(0))


def zeros_of(x: Tensor) -> Tensor:
    """Zeros like `x`, without history."""
    return wrap(backends.xp_of(x._array).zeros_like(x._array))


def not_implemented(kernel: str, array: Any) -> NotImplementedError:
    """torch's error of a kernel that lacks a dtype."""
    return NotImplementedError(
        f"\"{kernel}\" not implemented for '{dtypes.scalar_name(dtypes.from_numpy(array.dtype))}'"
    )


def refuse(kernel: str, array: Any, kinds: str) -> None:
    """torch's error for an array of a numpy kind ("b", "iu", "c") that its kernel lacks."""
    if array.dtype.kind in kinds:
        raise not_implemented(kernel, array)


def dtype_of(x: Any) -> Any:
    """The dtype of an array or, for a Python number, of the 0-dim tensor it would make."""
    return dtypes.from_numpy(x.dtype) if hasattr(x, "dtype") else dtypes.of_number(x)


# --- addition and subtraction

_SUB_BOTH = (
    "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator "
    "instead."
)
_SUB_BOOL = (
    "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the "
    "`~` or `logical_not()` operator instead."
)


_ONE = 1  # the default `alpha`; `True` is another object


def _scaled(xp: Any, input: Any, other: Any, alpha: Any) -> Any:
    """alpha * other, after torch's checks of alpha."""
    kind = dtype_of(input)
    if alpha is True or alpha is False:
        if kind is not dtypes.bool:
            raise RuntimeError("Boolean alpha only supported for Boolean results.")
    elif kind.category < dtypes.FLOATING and not isinstance(alpha, int):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    elif kind.category < dtypes.COMPLEX and isinstance(alpha, complex):
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if kind is dtypes.bool:
        return xp.logical_and(other, builtins.bool(alpha))
    if alpha == 1:
        return other
    if hasattr(other, "dtype"):
        return xp.multiply(other, other.dtype.type(alpha))
    return other * alpha  # of numbers of Python, which give way to the dtype of a tensor


_ALONE = 1 << 15  # elements of a gradient that numpy has computed before a Tensor has found its kernel


@moving
def _passed(grad: Any) -> Any:
    return grad


@moving
def _turned(grad: Any, alpha: Any) -> Any:
    """The gradient of what is subtracted."""
    if grad.size > _ALONE:
        return NotImplemented
    return -grad if alpha == 1 else grad * -alpha


@moving
def _times_other(grad: Any, other: Any) -> Any:
    return grad * other if grad.size <= _ALONE else NotImplemented


@moving
def _times_input(grad: Any, input: Any) -> Any:
    return grad * input if grad.size <= _ALONE else NotImplemented


@op(
    broadcast=True,
    inplace=True,
    channels_last=True,
    several=((2, 4),),
    direct=True,
    number_first=True,
    only_numbers=True,
    generated="one",
    commutative=True,
)
@derivative(
    input=lambda grad: grad,
    other=lambda grad, alpha: grad if alpha == 1 else grad * _conj(alpha),
)
@array_derivative(input=_passed, other=moving(lambda grad, alpha: grad if alpha == 1 else NotImplemented))
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t(2)), (t(3), 2.5), (t(3), t(3), {"alpha": 2}),
                    (t(0, 3), t(3)), (t.complex(3), t(2, 1), {"alpha": 2j})])  # fmt: skip
def add(xp, input, other, *, alpha: complex = 1):
    """input + alpha * other.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    if alpha is not _ONE:
        other = _scaled(xp, input, other, alpha)
    return xp.add(input, other)


def _check_sub(arrays: list[Any]) -> None:
    for a in arrays:
        if a.dtype.kind == "b" if hasattr(a, "dtype") else a is True or a is False:
            raise RuntimeError(_SUB_BOOL)


@op(
    broadcast=True,
    inplace=True,
    names=("subtract",),
    check=_check_sub,
    channels_last=True,
    several=((2, 4),),
    direct=True,
    number_first=True,
    only_numbers=True,
    generated="one",
)
@derivative(
    input=lambda grad: grad,
    other=lambda grad, alpha: -grad if alpha == 1 else grad * _conj(-alpha),
)
@array_derivative(input=_passed, other=_turned)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t(2)), (t(3), 2.5), (t(3), t(3), {"alpha": 2}),
                    (t(0, 3), t(3)), (t.complex(3), t(2, 1), {"alpha": 2j})])  # fmt: skip
def sub(xp, input, other, *, alpha: complex = 1):
    """input - alpha * other.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    if alpha is not _ONE:
        other = _scaled(xp, input, other, alpha)
    try:
        return xp.subtract(input, other)
    except TypeError:
        raise RuntimeError(_SUB_BOTH) from None


# Of the nodes of a tensor and a number that torch gives one edge: which operand is the tensor.
_SIDE = {
    "RsubBackward1": 0, "PowBackward0": 0, "PowBackward2": 1, "FmodBackward0": 0, "RemainderBackward0": 0,
    "XlogyBackward1": 1, "XlogyBackward2": 0, "CopysignBackward1": 0, "ClampMinBackward0": 0, "ClampMaxBackward0": 0,
    "ClampBackward1": 0,
}  # fmt: skip


def one_edge(name: str, *edges: Any) -> tuple[Any, ...]:
    """`shows=` of an op whose form with a number has other inputs in torch."""
    which = _SIDE.get(name)
    return edges if which is None else (edges[which],)


@op(
    shows=one_edge,
    node={"isinstance(other, Tensor)": "RsubBackward0", "": "RsubBackward1"},
    broadcast=True,
    check=_check_sub,
    numbers=("other",),
    channels_last=True,
    several=((2, 3), (2, 3)),
    generated="one",
)
@derivative(
    input=lambda grad, alpha: -grad if alpha == 1 else grad * _conj(-alpha),
    other=lambda grad: grad,
)
@array_derivative(input=_turned, other=_passed)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(3), 2.5), (t(3), t(3), {"alpha": 2})])
def rsub(xp, input, other, *, alpha: complex = 1):
    """other - alpha * input.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    if alpha is not _ONE:
        input = _scaled(xp, other, input, alpha)
    try:
        return xp.subtract(other, input)
    except TypeError:
        raise RuntimeError(_SUB_BOTH) from None


@op(inplace=True, names=("negative",), channels_last=True, blocks="elements", direct=True, generated="one")
@derivative(input=lambda grad: -grad)
@array_derivative()
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def neg(xp, input):
    """-input.  input (*) -> (*)."""
    try:
        return xp.negative(input)
    except TypeError:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead."
        ) from None


@composite(keeps_zero=True, elementwise=True)
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def positive(input: Tensor):
    """+input: `input` itself.  RuntimeError for bool.  input (*) -> (*)."""
    if input.dtype is dtypes.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


# --- products


@op(
    broadcast=True,
    inplace=True,
    names=("multiply",),
    channels_last=True,
    direct=True,
    only_numbers=True,
    generated="one",
    commutative=True,
)
@derivative(
    input=lambda grad, other: grad * _conj(other),
    other=lambda grad, input: grad * _conj(input),
)
@array_derivative(input=_times_other, other=_times_input)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t(2)), (t(3), 2.5), (t(0, 3), t(3)),
                    (t.complex(2, 1), t(3)), (t.complex(3), t.complex(3)), (t(3), 2j)])  # fmt: skip
def mul(xp, input, other):
    """input * other.  input (*a), other (*b) or number -> (broadcast of a and b)."""
    return xp.multiply(input, other)


def square_slope(grad: Tensor, input: Tensor) -> Tensor:
    """`grad * 2 * input`, which saves `input` itself where it is recorded."""
    slope = grad * (_conj(input) * 2)
    return slope if slope._edge is None else guard(slope, input)


@op(node="PowBackward0", inplace=True, channels_last=True, blocks="elements", direct=True, generated="one")
@derivative(input=square_slope)
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.complex(3),)])
def square(xp, input):
    """input ** 2; bools give int64.  input (*) -> (*)."""
    return xp.square(input if input.dtype.kind != "b" else input.astype("int64"))


@op(
    broadcast=True,
    inplace=True,
    not_tensors=("value",),
    half=True,
    several=((3, 5),),
    numbers=(),
    direct=True,
    number_first=True,
    generated="one",
)
@derivative(
    input=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: grad * _conj(tensor2 if value == 1 and not mode.enabled else tensor2 * value),
    tensor2=lambda grad, tensor1, value: grad * _conj(tensor1 if value == 1 and not mode.enabled else tensor1 * value),
)
@samples(
    lambda t: [
        (t(3, 4), t(3, 4), t(3, 4)),
        (t(), t(2, 1), t(3), {"value": 0.5}),
        (t(0), t(0), t(0)),
    ]
)
def addcmul(xp, input, tensor1, tensor2, *, value: complex = 1):
    """input + value * tensor1 * tensor2.  input (*a), tensor1 (*b), tensor2 (*c) -> (broadcast of a, b, c)."""
    if value != 1:
        tensor1 = xp.multiply(tensor1, tensor1.dtype.type(value))
    return xp.add(input, xp.multiply(tensor1, tensor2))


def _check_addcdiv(input: Any, tensor1: Any, tensor2: Any) -> None:
    if tensor1.dtype.kind in "iub" and tensor2.dtype.kind in "iub":
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a "
            "true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value "
            "* torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / "
            "tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: (input + value "
            "* tensor1 / tensor2), for all dtypes."
        )


@op(
    broadcast=True, inplace=True, not_tensors=("value",), check=lambda arrays: _check_addcdiv(*arrays), half=True,
    several=((3, 5),), numbers=(), direct=True, number_first=True,
    generated="one",)  # fmt: skip
@derivative(
    input=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: grad * _conj(value / tensor2),
    tensor2=lambda grad, tensor1, tensor2, value: grad * _conj(tensor1 * -value / (tensor2 * tensor2)),
)
@samples(
    lambda t: [(t(3, 4), t(3, 4), t.positive(3, 4)), (t(), t(2, 1), t.positive(3), {"value": 0.5}), (t(0), t(0), t(0))]
)
def addcdiv(xp, input, tensor1, tensor2, *, value: complex = 1):
    """input + value * tensor1 / tensor2.  input (*a), tensor1 (*b), tensor2 (*c) -> (broadcast of a, b, c)."""
    _check_addcdiv(input, tensor1, tensor2)
    if value != 1:
        tensor1 = xp.multiply(tensor1, tensor1.dtype.type(value))
    return xp.add(input, xp.true_divide(tensor1, tensor2))


# --- quotients


@op(
    shows=one_edge, broadcast=True, promote="float", inplace=True, form="div", channels_last=True, direct=True,
    only_numbers=True,
    generated="one",)  # fmt: skip
@derivative(
    input=lambda grad, other: true_div(grad, _conj(other)),
    other=lambda grad, input, other: -grad * _conj(true_div(true_div(input, other), other)),
)
@array_derivative(
    input=lambda grad, other: grad / other,
    other=lambda grad, input, other: -grad * (input / other / other),
)
@samples(lambda t: [(t(3, 4), t.positive(3, 4)), (t(2, 1), t.positive(3)), (t(), t.positive(2)), (t(3), 2.5),
                    (1.5, t.positive(3)), (t(0, 3), t(3)), (t.complex(2, 1), t.complex(3)),
                    (t.integers(1, 9, 3), t.integers(1, 9, 3)), (t.integers(1, 9, 3), 2)])  # fmt: skip
def true_div(xp, input, other):
    """input / other; integers divide as the default float.  input (*a), other (*b) or number -> (broadcast)."""
    return xp.true_divide(input, other)


def _check_divisor(xp: Any, other: Any, integer: bool) -> None:
    if integer and (other == 0 if not hasattr(other, "ndim") else (other == 0).any()):
        raise RuntimeError("ZeroDivisionError")


def _integer(input: Any, other: Any) -> bool:
    return (input if hasattr(input, "dtype") else other).dtype.kind in "iub"


def _check_divisible(name: str, input: Any, other: Any) -> None:
    kind = (input if hasattr(input, "dtype") else other).dtype
    if kind.kind in "bc":
        raise not_implemented(name, input if hasattr(input, "dtype") else other)


def no_derivative(name: str) -> Any:
    """The formula of an input that torch has no derivative of: an error at backward."""

    def refuse(grad: Tensor) -> Tensor:
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return refuse


@op(broadcast=True, inplace=True, several=((2, 2), (2, 3)), only_numbers=True, generated="some")
@derivative(input=no_derivative("floor_divide"), other=no_derivative("floor_divide"))
@samples(
    lambda t: [
        (t.constant(t.uniform(2.1, 2.9, 3, 4)), t.constant(t.uniform(0.8, 0.9, 4))),
        (t.constant(t(2, 1)), 0.7),
        (t.integers(-9, 9, 5), t.integers(1, 4, 5)),
    ]
)
def floor_divide(xp, input, other):
    """floor(input / other).  RuntimeError "ZeroDivisionError" for integers over 0.

    input (*a), other (*b) -> (broadcast).
    """
    _check_divisible("div_floor_cpu", input, other)
    _check_divisor(xp, other, _integer(input, other))
    return xp.floor_divide(input, other)


@op(
    broadcast=True,
    inplace=True,
    public=False,
    method=False,
    node="DivBackward2",
    only_numbers=True,
    generated="some",
)
@derivative(input=lambda grad: zeros_of(grad), other=lambda grad: zeros_of(grad))
@samples(lambda t: [(t.uniform(2.1, 2.9, 3, 4), t.uniform(0.8, 0.9, 3, 4)), (t.uniform(-2.9, -2.1, 2, 1), 0.7),
                    (t.integers(-9, 9, 5), t.integers(1, 4, 5)), (t(0), t(0))])  # fmt: skip
def floor_div(xp, input, other):
    """floor(input / other).  RuntimeError "ZeroDivisionError" for integers over 0.

    input (*a), other (*b) -> (broadcast).
    """
    _check_divisible("div_floor_cpu", input, other)
    _check_divisor(xp, other, _integer(input, other))
    return xp.floor_divide(input, other)


@op(
    broadcast=True,
    inplace=True,
    form="div",
    half=True,
    node="DivBackward2",
    only_numbers=True,
)
@derivative(input=lambda grad: zeros_of(grad), other=lambda grad: zeros_of(grad))
@samples(lambda t: [(t.uniform(2.1, 2.9, 3, 4), t.uniform(0.8, 0.9, 3, 4)), (t.uniform(-2.9, -2.1, 2, 1), 0.7),
                    (t.integers(-9, 9, 5), t.integers(1, 4, 5)), (t(0), t(0))])  # fmt: skip
def trunc_divide(xp, input, other):
    """trunc(input / other).  RuntimeError "ZeroDivisionError" for integers over 0.

    input (*a), other (*b) -> (broadcast).
    """
    _check_divisible("div_trunc_cpu", input, other)
    if not _integer(input, other):
        return xp.trunc(xp.true_divide(input, other))
    _check_divisor(xp, other, True)
    return xp.floor_divide(xp.subtract(input, xp.fmod(input, other)), other)


def _rounding(rounding_mode: Any) -> Any:
    if rounding_mode == "floor":
        return floor_div
    if rounding_mode == "trunc":
        return trunc_divide
    raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")


@overload(names=("divide",), several=((2, 3), (3, 3), (3, 4)), elementwise=True)
@samples(
    lambda t: [
        (t(3), t.positive(3)),
        (t.uniform(2.1, 2.9, 3), 0.8, {"rounding_mode": "floor"}),
        (t.uniform(-2.9, -2.1, 3), 0.8, {"rounding_mode": "trunc"}),
    ]
)
def div(input, other, *, rounding_mode: str | None = None, out=None):
    """input / other, rounded by `rounding_mode` "trunc" or "floor" (then integers stay integers).

    input (*a), other (*b) or number -> (broadcast of a and b).
    """
    if rounding_mode is None:
        return true_div(input, other) if out is None else true_div(input, other, out=out)
    result = _rounding(rounding_mode)(input, other, out=out)
    return _guarded(result, input, other)


@composite(elementwise=True)
def true_divide(input, other, *, out=None):
    """As `div` without rounding."""
    return true_div(input, other, out=out)


_true_div_ = true_div.op.inplace_function


@composite(names=("divide_",), public=False, several=((2, 3), (3, 3), (3, 4)), elementwise=True)
def div_(input, other, *, rounding_mode: str | None = None):
    """In place: see `div`."""
    if rounding_mode is None:
        return _true_div_(input, other)
    return _rounding(rounding_mode).op.inplace_function(input, other)


@composite(public=False)
def true_divide_(input, other):
    """In place: see `true_divide`."""
    return _true_div_(input, other)


@op(
    shows=one_edge,
    node={"isinstance(other, Tensor)": "RemainderBackward1", "": "RemainderBackward0"},
    broadcast=True,
    inplace=True,
    several=((2, 2), (2, 3), (2, 3)),
    generated="some",
)
@derivative(
    input=lambda grad: grad,
    other=lambda grad, input, other: _guarded(-grad * floor_div(input, other), input, other),
)
@samples(lambda t: [(t.uniform(2.1, 2.9, 3, 4), t.uniform(0.8, 0.9, 3, 4)), (t.uniform(-2.9, -2.1, 2, 1), 0.8),
                    (t.integers(-9, 9, 5), t.integers(1, 4, 5)), (2.5, t.uniform(0.9, 1.1, 3)),
                    (t(0), t(0))])  # fmt: skip
def remainder(xp, input, other):
    """input - other * floor(input / other): the sign of `other`, as Python's %.

    input (*a), other (*b) -> (broadcast).
    """
    _check_divisible("remainder_cpu", input, other)
    _check_divisor(xp, other, _integer(input, other))
    return xp.remainder(input, other)


@op(
    shows=one_edge,
    node={"isinstance(other, Tensor)": "FmodBackward1", "": "FmodBackward0"},
    broadcast=True,
    inplace=True,
    numbers=("other",),
    several=((2, 3), (2, 3)),
    generated="some",
)
@derivative(
    input=lambda grad: grad,
    other=lambda grad, input, other: _guarded(-grad * trunc_divide(input, other), input, other),
)
@samples(lambda t: [(t.uniform(2.1, 2.9, 3, 4), t.uniform(0.8, 0.9, 3, 4)), (t.uniform(-2.9, -2.1, 2, 1), 0.8),
                    (t.integers(-9, 9, 5), t.integers(1, 4, 5)), (t(0), t(0))])  # fmt: skip
def fmod(xp, input, other):
    """input - other * trunc(input / other): the sign of `input`, as C's fmod.

    input (*a), other (*b) -> (broadcast).
    """
    _check_divisible("fmod_cpu", input, other)
    _check_divisor(xp, other, _integer(input, other))
    return xp.fmod(input, other)


def _of_floats(public: Any) -> None:
    """Give an op the kernel of engine/ops/generated/remainders.py."""

    @kernel(public, "cpu")
    def _(xp, input, other):
        from engine.ops.generated import remainders  # for the weight: few programs ask

        return getattr(remainders, public.__name__)(xp, input, other)


for _public in (floor_divide, floor_div, remainder, fmod):
    _of_floats(_public)
