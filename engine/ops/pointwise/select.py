"""Elementwise choices: clamp, where, maximum and minimum; nan_to_num."""

from __future__ import annotations

import builtins
import math
import warnings
from typing import Any

from engine import backends
from engine.autograd.graph import name_node
from engine.core import dtypes
from engine.core.checks import broadcast_shapes
from engine.core.grad_mode import mode
from engine.dispatch import composite, derivative, op, overload, samples
from engine.dispatch.arguments import combination_error
from engine.dispatch.promotion import result_dtype
from engine.ops.pointwise.arithmetic import conj_if_complex as _conj
from engine.ops.pointwise.arithmetic import keep_where, not_implemented, one_edge
from engine.tensor import Tensor, wrap

# --- clamp


def _no_complex_clamp(*arrays: Any) -> None:
    for a in arrays:
        if hasattr(a, "dtype") and a.dtype.kind in "cW":
            raise NotImplementedError("clamp is not supported for complex types")


def _within(grad: Tensor, input: Tensor, min: Any, max: Any) -> Tensor:
    """`grad` where min <= input <= max, else 0."""
    if min is None:
        return keep_where(grad, input <= max)
    if max is None:
        return keep_where(grad, input >= min)
    return keep_where(grad, (input >= min) & (input <= max))


@op(inplace=True, form="clamp", node="ClampBackward1", channels_last=True, blocks="elements", generated="some")
@derivative(input=_within)
@samples(
    lambda t: [
        (t.distinct(3, 4), -0.3, 0.3),
        (t.distinct(3), None, 0.3),
        (t.distinct(), -0.1, None),
        (t.integers(-5, 5, 6), -2, 2),
        (t(0), 0, 1),
    ]
)
def clamp_numbers(xp, input, min: complex | Tensor | None = None, max: complex | Tensor | None = None):
    """input limited to [min, max]; gradient 1 at the bounds.  input (*) -> (*)."""
    _no_complex_clamp(input)
    if input.dtype.kind == "V":  # bfloat16 beside a Python number would become float32
        min, max = (x if x is None else input.dtype.type(x) for x in (min, max))
    if min is not None:
        input = xp.maximum(input, min)
    if max is not None:
        input = xp.minimum(input, max)
    return input


@op(broadcast=True, inplace=True, tensors=("min", "max"), form="clamp", generated="one")
@derivative(
    input=lambda grad, input, min, max: keep_where(grad, _all_of(grad, input >= min, input <= max)),
    min=lambda grad, input, min, max: keep_where(grad, _all_of(grad, input < min, min < max)),
    max=lambda grad, input, min, max: keep_where(grad, ~_all_of(grad, ~((input > max) | (max < min)))),
)
@samples(
    lambda t: [
        (t.distinct(3, 4), t.uniform(-0.5, -0.4, 3, 4), t.uniform(0.3, 0.34, 3, 4)),
        (t.distinct(3, 4), t.uniform(-0.5, -0.4, 4), t.uniform(0.3, 0.34, 3, 1)),
        (t(0), t(0), t(0)),
    ]
)
def clamp_tensors(xp, input, min, max):
    """input limited to [min, max].  input (*a), min (*b), max (*c) -> (broadcast of a, b, c)."""
    _no_complex_clamp(input)
    return xp.minimum(xp.maximum(input, min), max)


def _all_of(grad: Tensor, *masks: Tensor) -> Tensor:
    """The masks together, in the shape of `grad`."""
    result = masks[0] if len(masks) == 1 else masks[0] & masks[1]
    return result if result._array.shape == grad._array.shape else result.expand(grad._array.shape)


@op(
    shows=one_edge,
    node={"isinstance(min, Tensor)": "ClampMinBackward1", "": "ClampMinBackward0"},
    broadcast=True,
    inplace=True,
    tensors=("min",),
    numbers=("min",),
    channels_last=True,
    several=((2, 3), (2, 3)),
    blocks="elements",
    direct=True,
    generated="one",
)
@derivative(
    input=lambda grad, input, min: keep_where(grad, _all_of(grad, input >= min)),
    min=lambda grad, input, min: keep_where(grad, _all_of(grad, input < min)),
)
@samples(
    lambda t: [
        (t.distinct(3, 4), t.uniform(-0.05, -0.04, 3, 1)),
        (t.distinct(3), 0.1),
        (t(), -9),
        (t(0), 1.0),
    ]
)
def clamp_min(xp, input, min):
    """The larger of input and `min`.  input (*a), min (*b) or number -> (broadcast of a and b)."""
    _no_complex_clamp(input)
    return xp.maximum(input, min)


@op(
    shows=one_edge,
    node={"isinstance(max, Tensor)": "ClampMaxBackward1", "": "ClampMaxBackward0"},
    broadcast=True,
    inplace=True,
    tensors=("max",),
    numbers=("max",),
    channels_last=True,
    several=((2, 3), (2, 3)),
    blocks="elements",
    direct=True,
    generated="one",
)
@derivative(
    input=lambda grad, input, max: keep_where(grad, _all_of(grad, input <= max)),
    max=lambda grad, input, max: keep_where(grad, _all_of(grad, input > max)),
)
@samples(
    lambda t: [
        (t.distinct(3, 4), t.uniform(-0.05, -0.04, 3, 1)),
        (t.distinct(3), 0.1),
        (t(), 9),
        (t(0), 1.0),
    ]
)
def clamp_max(xp, input, max):
    """The smaller of input and `max`.  input (*a), max (*b) or number -> (broadcast of a and b)."""
    _no_complex_clamp(input)
    return xp.minimum(input, max)


def _clamp_form(input: Any, min: Any, max: Any) -> tuple[Any, tuple[Any, ...]]:
    """The op for these bounds, and its arguments."""
    if max is None:
        if min is None:
            raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
        return clamp_min, (input, min)
    if min is None:
        return clamp_max, (input, max)
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if isinstance(min, Tensor) and isinstance(max, Tensor):
            return clamp_tensors, (input, min, max)
        bound = min if isinstance(min, Tensor) else max
        if bound.dim() or bound.requires_grad:
            raise combination_error("clamp", (input, min, max), clamp_numbers.op.arguments)
        min, max = (x.item() if isinstance(x, Tensor) else x for x in (min, max))
    kind = input._array.dtype
    if kind in dtypes.NATIVE:
        return clamp_numbers, (input, min, max)
    target = result_dtype([input, min, max])
    if target is not input.dtype:
        input = input.to(target)
    return clamp_numbers, (input, min, max)


_PLAIN = (int, float)


@overload(names=("clip",), several=((1, 4), (1, 4)), elementwise=True)
@samples(
    lambda t: [
        (t.distinct(3), -0.1, 0.1),
        (t.distinct(3), {"min": 0.0}),
        (t.distinct(3), {"max": t.uniform(-0.02, 0.02, 3)}),
    ]
)
def clamp(input: Tensor, min: Tensor | complex | None = None, max: Tensor | complex | None = None, *, out=None):
    """input limited to [min, max], each a number, a Tensor or None.  input (*) -> (*).

    RuntimeError when both are None.
    """
    if (
        (min is None or min.__class__ in _PLAIN)
        and (max is None or max.__class__ in _PLAIN)
        and input._array.dtype in dtypes.NATIVE
        and (min is not None or max is not None)
    ):
        return clamp_numbers(input, min, max, out=out)
    function, args = _clamp_form(input, min, max)
    if out is not None:
        return function(*args, out=out)
    return _as_clamp(function(*args), function, args[-1])


@overload(public=True, names=("clip_",), several=((1, 4), (1, 4)), elementwise=True)
def clamp_(input: Tensor, min: Tensor | complex | None = None, max: Tensor | complex | None = None):
    """In place: see `clamp`."""
    function, args = _clamp_form(input, min, max)
    if args[0] is not input:
        args = (input, *args[1:])
    return _as_clamp(function.op.inplace_function(*args), function, args[-1])


def _as_clamp(result: Tensor, function: Any, bound: Any) -> Tensor:
    """A result of `clamp` with one bound under the name that torch gives its node."""
    if function is clamp_min or function is clamp_max:
        name_node(result, "ClampBackward0" if isinstance(bound, Tensor) else "ClampBackward1")
    return result


# --- maximum and minimum


def _no_complex(name: str, input: Any) -> None:
    if input.dtype.kind == "c":
        raise RuntimeError(f"{name} not implemented for complex tensors.")


@op(public=False, method=False, blocks="elements", generated="some")
@derivative(grad_output=lambda grad, input, other: share_larger(grad, input, other))
@samples(lambda t: [(t(3, 4), t.constant(t(3, 4)), t.constant(t(4)))])
def share_larger(xp, grad_output, input, other):
    """The part of a gradient that goes to the larger `input`: half where equal.

    grad_output (*), input (*a), other (*b) -> (*).
    """
    one = grad_output.dtype.type
    return xp.where(input == other, grad_output * one(0.5), xp.where(input < other, one(0), grad_output))


def _of_larger(grad: Tensor, input: Tensor, other: Tensor) -> Tensor:
    """`share_larger`, by masks where it is recorded: then neither operand is saved, as in torch."""
    if not (mode.enabled and grad._requires_grad):
        return share_larger(grad, input, other)
    return where(input == other, grad / 2, grad).masked_fill(input < other, 0)


@op(broadcast=True, numbers=(), direct=True, generated="one")
@derivative(
    input=lambda grad, input, other: _of_larger(grad, input, other),
    other=lambda grad, input, other: _of_larger(grad, other, input),
)
@samples(lambda t: [(t.distinct(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t()), (t(0), t(0))])
def maximum(xp, input, other):
    """The larger of each pair; nan if one is; a tie shares its gradient.  input (*a), other (*b) -> (broadcast)."""
    _no_complex("maximum", input)
    return xp.maximum(input, other)


@op(broadcast=True, numbers=(), direct=True, generated="one")
@derivative(
    input=lambda grad, input, other: _of_larger(grad, other, input),
    other=lambda grad, input, other: _of_larger(grad, input, other),
)
@samples(lambda t: [(t.distinct(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t()), (t(0), t(0))])
def minimum(xp, input, other):
    """The smaller of each pair; nan if one is; a tie shares its gradient.  input (*a), other (*b) -> (broadcast)."""
    _no_complex("minimum", input)
    return xp.minimum(input, other)


@op(broadcast=True, numbers=())
@derivative(
    input=lambda grad, input, other: keep_where(grad, _all_of(grad, (input >= other) | other.isnan())),
    other=lambda grad, input, other: keep_where(grad, _all_of(grad, ~((input >= other) | other.isnan()))),
)
@samples(lambda t: [(t.distinct(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t()), (t(0), t(0))])
def fmax(xp, input, other):
    """The larger of each pair, nan only if both are.  input (*a), other (*b) -> (broadcast of a and b)."""
    _no_complex("fmax", input)
    return xp.fmax(input, other)


@op(broadcast=True, numbers=())
@derivative(
    input=lambda grad, input, other: keep_where(grad, _all_of(grad, (input <= other) | other.isnan())),
    other=lambda grad, input, other: keep_where(grad, _all_of(grad, ~((input <= other) | other.isnan()))),
)
@samples(lambda t: [(t.distinct(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t()), (t(0), t(0))])
def fmin(xp, input, other):
    """The smaller of each pair, nan only if both are.  input (*a), other (*b) -> (broadcast of a and b)."""
    _no_complex("fmin", input)
    return xp.fmin(input, other)


# --- where


def _chosen(grad: Tensor, mask: Tensor, shape: Any) -> Tensor:
    """`grad` where `mask`, summed to the operand's shape."""
    found = keep_where(grad, _all_of(grad, mask))
    return found if found._array.shape == shape else found.sum_to_size(shape)


@op(tensors=("condition",), form="where", node="WhereBackward0", blocks="elements", generated="some")
@derivative(
    input=lambda grad, condition, input_shape: _chosen(grad, condition, input_shape),
    other=lambda grad, condition, other_shape: _chosen(grad, ~condition, other_shape),
)
@samples(
    lambda t: [
        (t.boolean(3, 4), t(3, 4), t(3, 4)),
        (t.boolean(3, 1), t(4), t()),
        (t.boolean(0), t(0), t(0)),
    ]
)
def where_tensors(xp, condition, input, other):
    """input where condition, else other.  condition (*c), input (*a), other (*b) -> (broadcast of c, a, b)."""
    return xp.where(condition, input, other)


def _operand(name: str, position: int, like: Any, x: Any, dtype: dtypes.dtype) -> Tensor:
    """`x` as a Tensor of `dtype` on the device of the array `like`."""
    if isinstance(x, Tensor):
        return x if x.dtype is dtype else x.to(dtype)
    return wrap(backends.xp_of(like).asarray(x, dtypes.to_numpy(dtype)))


@overload(method=False, several=((1, 1), (3, 3), (3, 3), (3, 3), (3, 4)), elementwise=True)
@samples(lambda t: [(t.boolean(3), t(3), t(3)), (t.boolean(3), t(3), 0.0), (t.boolean(3), 1.5, t(2, 1))])
def where(
    condition: Tensor, input: Tensor | complex | None = None, other: Tensor | complex | None = None, *, out=None
) -> Any:
    """input where condition (bool), else other.

    condition (*c), input (*a) or number, other (*b) or number -> (broadcast).

    With the condition alone: the indices of its true elements, a tuple of one Tensor a dim.
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    array = condition._array
    if array.dtype.kind != "b":
        if array.dtype != "uint8":
            raise RuntimeError(
                "where expected condition to be a boolean tensor, but got a tensor with dtype "
                f"{dtypes.scalar_name(condition.dtype)}"
            )
        warnings.warn(
            "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future "
            "version of PyTorch. Use a boolean condition instead.",
            UserWarning,
            stacklevel=2,
        )
        condition = condition != 0
    if not (isinstance(input, Tensor) and isinstance(other, Tensor) and input._array.dtype is other._array.dtype):
        target = result_dtype([input, other])
        input, other = (
            _operand("input", 2, array, input, target),
            _operand("other", 3, array, other, target),
        )
    try:
        return (
            where_tensors(condition, input, other) if out is None else where_tensors(condition, input, other, out=out)
        )
    except ValueError:
        broadcast_shapes(array.shape, input._array.shape, other._array.shape)
        raise


def _where_method(self: Tensor, condition: Any, other: Any) -> Tensor:
    """`engine.where(condition, self, other)`."""
    return where(condition, self, other)


Tensor.where = _where_method  # type: ignore[attr-defined]


# --- replacing nan and infinity


@op(inplace=True, blocks="elements", keeps_zero=True, generated="one")
@derivative(input=lambda grad, input: keep_where(grad, input.isfinite()))
@samples(
    lambda t: [
        (t(3, 4),),
        (t.of([1.0, float("nan"), float("inf"), float("-inf")]), 0.5, 3.0, -3.0),
        (t(), 1.0, 2.0, 3.0),
        (t(0),),
        (t.integers(0, 3, 2),),
    ]
)
def nan_to_num(xp, input, nan: float | None = None, posinf: float | None = None, neginf: float | None = None):
    """nan replaced by `nan` (0), the infinities by `posinf` and `neginf` (the limits of the dtype).

    input (*) -> (*).
    """
    if input.dtype.kind in "iub":
        return input.copy()
    if input.dtype.kind == "c":
        real = nan_to_num.op.kernel(xp, input.real, nan, posinf, neginf)
        imag = nan_to_num.op.kernel(xp, input.imag, nan, posinf, neginf)
        return (real + 1j * imag).astype(input.dtype)
    limits = dtypes.finfo(dtypes.from_numpy(input.dtype))
    of = input.dtype.type
    result = xp.where(input != input, of(0.0 if nan is None else nan), input)
    result = xp.where(input == float("inf"), of(limits.max if posinf is None else posinf), result)
    return xp.where(input == float("-inf"), of(limits.min if neginf is None else neginf), result)


@op(
    public=False,
    method=False,
    broadcast=True,
    promote="float",
    numbers=(),
    node="LdexpBackward0",
    keeps=("result",),
)
@derivative(
    input=lambda grad, other: grad * _conj(2.0 ** other.to(grad.dtype)),
    other=lambda grad, result: grad * _conj(result * math.log(2)),
)
@samples(lambda t: [(t.distinct(3), t.integers(-3, 3, 3)), (t.distinct(3, 1), t(3)), (t.complex(2), t.complex(2))])
def scaled_by_power(xp, input, other):
    """input * 2 ** other.  input (*a), other (*b) -> (broadcast of a and b)."""
    return input * 2.0**other if other.dtype.kind == "c" else input * xp.exp2(other)  # bfloat16 has no kind of its own


@composite()
@samples(lambda t: [(t.distinct(3), t.integers(-3, 3, 3)), (t.distinct(3), t(3))])
def ldexp(input: Tensor, other: Tensor, *, out=None):
    """input * 2 ** other.  input (*a), other (*b) -> (broadcast of a and b)."""
    if out is not None:
        return _ldexp(input, other).mul(_power_of_two(input, other), out=out)
    return scaled_by_power(_ldexp(input, other), other)


@composite()
def ldexp_(input: Tensor, other: Tensor):
    """In place: see `ldexp`."""
    return name_node(_ldexp(input, other).mul_(_power_of_two(input, other)), "LdexpBackward0")


def _ldexp(input: Any, other: Any) -> Tensor:
    if other.dtype is dtypes.bool and input.is_floating_point():
        raise not_implemented("ldexp_cpu_exp", other._array)
    return input


def _power_of_two(input: Tensor, other: Tensor) -> Tensor:
    target = input.dtype if other._array.dtype.kind in "iub" else result_dtype([input, other])
    if target.is_floating_point:
        other = other.to(target)
    return 2.0**other


# --- interpolation


def _check_same_dtype(input: Any, end: Any, name: str) -> None:
    if end.dtype != input.dtype:
        have, want = dtypes.from_numpy(end.dtype), dtypes.from_numpy(input.dtype)
        raise RuntimeError(f"expected dtype {dtypes.cpp_name(want)} for `{name}` but got dtype {dtypes.cpp_name(have)}")


@op(
    broadcast=True,
    inplace=True,
    form="lerp",
    not_tensors=("weight",),
    half=True,
    node="LerpBackward0",
    generated="one",
)
@derivative(
    input=lambda grad, weight: grad * _conj(1 - weight),
    end=lambda grad, weight: grad * _conj(weight),
)
@samples(lambda t: [(t(3, 4), t(3, 4), 0.3), (t(2, 1), t(3), 0.8), (t(0), t(0), 0.5)])
def lerp_number(xp, input, end, weight: complex | Tensor):
    """input + weight * (end - input).  input (*a), end (*b) -> (broadcast of a and b)."""
    if input.dtype.kind in "iub":
        raise not_implemented("lerp_kernel_scalar", input)
    gap = xp.subtract(end, input)
    if builtins.abs(weight) < 0.5:
        return xp.add(input, gap * weight)
    return xp.subtract(end, gap * (1 - weight))


@op(broadcast=True, inplace=True, form="lerp", half=True, node="LerpBackward1", generated="one")
@derivative(
    input=lambda grad, weight: grad * _conj(1 - weight),
    end=lambda grad, weight: grad * _conj(weight),
    weight=lambda grad, input, end: grad * _conj(end - input),
)
@samples(lambda t: [(t(3, 4), t(3, 4), t(3, 4)), (t(2, 1), t(3), t()), (t(0), t(0), t())])
def lerp_tensor(xp, input, end, weight):
    """input + weight * (end - input).  input (*a), end (*b), weight (*c) -> (broadcast of a, b, c)."""
    if input.dtype.kind in "iub":
        raise not_implemented("lerp_kernel_tensor", input)
    gap = xp.subtract(end, input)
    return xp.where(xp.abs(weight) < 0.5, input + weight * gap, end - gap * (1 - weight))


def _lerp_form(input: Any, end: Any, weight: Any) -> Any:
    _check_same_dtype(input._array, end._array, "end")
    if isinstance(weight, Tensor):
        _check_same_dtype(input._array, weight._array, "weight")
        return lerp_tensor
    return lerp_number


@overload(several=((3, 4), (3, 4)), elementwise=True)
@samples(lambda t: [(t(3), t(3), 0.3), (t(3), t(3), t(3))])
def lerp(input: Tensor, end: Tensor, weight: Tensor | complex, *, out=None):
    """input + weight * (end - input).  input (*a), end (*b), weight (*c) or number -> (broadcast)."""
    return _lerp_form(input, end, weight)(input, end, weight, out=out)


@overload(public=False, several=((3, 4), (3, 4)), elementwise=True)
def lerp_(input: Tensor, end: Tensor, weight: Tensor | complex):
    """In place: see `lerp`."""
    return _lerp_form(input, end, weight).op.inplace_function(input, end, weight)
