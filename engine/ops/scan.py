"""Running sums, products and extremes along a dim; differences and the trapezoidal rule."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, own
from engine.backends.cpu.scan import LARGE, running_sums
from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.dispatch import PUBLIC, composite, derivative, kernel, op, samples
from engine.dispatch.out import store, store_result
from engine.ops.extremes import add_along
from engine.ops.pointwise.arithmetic import conj_if_complex as _conj
from engine.ops.pointwise.arithmetic import not_implemented
from engine.ops.reduction import cast_back, int64_if_integer, wide
from engine.tensor import Tensor


def _accumulate(xp: Any, name: str, input: Any, dim: int, dtype: Any) -> Any:
    axis = wrap_dim(dim, input.ndim)
    if dtype is not None:
        input = input.astype(dtypes.to_numpy(dtype))
        to = None
    else:
        to = int64_if_integer(input)
    if not input.ndim:
        return input.astype(to) if to else input.copy()
    work = to or wide(input) or input.dtype
    if dtype is None and work == np.float32 and isinstance(input, np.ndarray):
        work = np.dtype(np.float64)  # rounded once, as torch does on the CPU
    found = getattr(xp, name)(input, axis=axis, dtype=work)
    return found if to else found.astype(input.dtype, copy=False)


def _scan_samples(t: Any) -> list[Any]:
    return [
        (t(3, 4), 1),
        (t(2, 3, 4), 0),
        (t(3), -1),
        (t(), 0),
        (t(0, 2), 0),
        (t.integers(0, 9, 3), 0),
        (t(3), 0, {"dtype": dtypes.float64}),
    ]


def _many(xp: Any, input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Running sums of many floats; NotImplemented for the rest."""
    if dtype is not None or input.__class__ is not np.ndarray or input.size < LARGE or not input.ndim:
        return NotImplemented
    found = running_sums(input, wrap_dim(dim, input.ndim))
    return NotImplemented if found is None else found


@op(inplace=True, large=512, blocks="rows", generated="many", autocast={"cuda": "float32"}, out_as="dtype")
@derivative(
    input=lambda grad, input_dtype, dim: cast_back(
        grad if not grad._array.ndim else grad.flip(dim).cumsum(dim).flip(dim), input_dtype
    )
)
@samples(_scan_samples)
def cumsum(xp, input, dim: int, *, dtype=None):
    """Running sums along `dim`; integers in int64.  input (*) -> (*)."""
    found = _many(xp, input, dim, dtype=dtype)
    return _accumulate(xp, "cumsum", input, dim, dtype) if found is NotImplemented else found


kernel(cumsum, "blocks")(_many)


def _after(x: Tensor, dim: int) -> Tensor:
    """For each element the sum of itself and all behind it along `dim`."""
    return x.flip(dim).cumsum(dim).flip(dim)


def _cumprod_backward(grad: Tensor, input: Tensor, result: Tensor, input_dtype: Any, dim: int) -> Tensor:
    """(sum of grad * result behind each element) / element; without division where an element is 0."""
    if not input._array.ndim or input._array.shape[dim] == 1:
        return cast_back(grad, input_dtype)
    wide_input = input if input.dtype is result.dtype else input.to(result.dtype)
    if not (input._array == 0).any():
        return cast_back(_after(grad * _conj(result), dim) / _conj(wide_input), input_dtype)
    dim = wrap_dim(dim, input._array.ndim)
    n = input._array.shape[dim]
    pieces = []
    before = None  # the product of the elements before the k-th
    for k in range(n):
        ahead = wide_input.narrow(dim, k + 1, n - k - 1)
        one = wide_input.narrow(dim, k, 1)
        ones = (one * 0 + 1).detach()
        run = ones if k == n - 1 else PUBLIC["cat"]([ones, ahead.cumprod(dim)], dim)
        if before is not None:
            run = run * before
        pieces.append((grad.narrow(dim, k, n - k) * _conj(run)).sum(dim, True))
        before = one if before is None else before * one
    return cast_back(PUBLIC["cat"](pieces, dim), input_dtype)


@op(inplace=True, large=512, blocks="rows", generated="many", autocast={"cuda": "float32"}, out_as="dtype")
@derivative(input=_cumprod_backward)
@samples(lambda t: [*_scan_samples(t)[:4], (t.uniform(0, 0, 1, 2), 0), (t.complex(3), 0)])
def cumprod(xp, input, dim: int, *, dtype=None):
    """Running products along `dim`; integers in int64; exact gradient at zeros.  input (*) -> (*)."""
    return _accumulate(xp, "cumprod", input, dim, dtype)


def _running_extreme(xp: Any, input: Any, dim: int, largest: bool) -> tuple[Any, Any]:
    """(running extremes, index of the last element that attained them)."""
    axis = wrap_dim(dim, input.ndim)
    if not input.ndim or not input.size:
        return input.copy(), xp.zeros(input.shape, "int64")
    values = (xp.maximum if largest else xp.minimum).accumulate(input, axis=axis)
    shape = [1] * input.ndim
    shape[axis] = input.shape[axis]
    places = xp.arange(shape[axis]).reshape(shape)
    attained = (input == values) | (input != input)
    return values, xp.maximum.accumulate(xp.where(attained, places, 0), axis=axis)


def _extreme_backward(grad0: Tensor, result1: Tensor, input_shape: Any, dim: int) -> Tensor:
    if not input_shape:
        return guard(own(grad0), result1)
    return add_along(grad0, result1, input_shape, dim)


def _distinct_samples(t: Any) -> list[Any]:
    return [
        (t.distinct(3, 4), 1),
        (t.distinct(2, 3, 4), 0),
        (t(), 0),
        (t(0, 2), 0),
        (t.integers(0, 3, 6), 0),
    ]


@op(
    returns=("values", "indices"),
    nondifferentiable=("indices",),
    refuse="c",
    keeps=("input",),
    large=512,
    generated="many",
)
@derivative(input=_extreme_backward)
@samples(_distinct_samples)
def cummax(xp, input, dim: int):
    """(values, indices) of the running largest along `dim`, the last of equals.  input (*) -> (*), (*)."""
    return _running_extreme(xp, input, dim, True)


@op(
    returns=("values", "indices"),
    nondifferentiable=("indices",),
    refuse="c",
    keeps=("input",),
    large=512,
    generated="many",
)
@derivative(input=_extreme_backward)
@samples(_distinct_samples)
def cummin(xp, input, dim: int):
    """(values, indices) of the running smallest along `dim`, the last of equals.  input (*) -> (*), (*)."""
    return _running_extreme(xp, input, dim, False)


def _transposed(grad: Tensor, input: Tensor, output: Tensor, dim: int) -> Tensor:
    """The sum of grad_i exp(input_i - output_j) over i <= j."""
    if not input._array.size:
        return grad * input
    top = input.detach().amax(dim, True)
    return (top - output).exp() * (grad * (input - top).exp()).cumsum(dim)


@op(public=False, method=False)
@derivative(
    grad_output=lambda grad, input, output, dim: _transposed(grad, input, output, dim),
    input=lambda grad, result: grad * result,
    output=lambda grad, grad_output, input, output, dim: -grad_output * _transposed(grad, input, output, dim),
)
@samples(lambda t: [(t(3, 4), t(3, 4), t(3, 4), 1), (t(2, 3), t(2, 3), t(2, 3), 0)])
def logcumsumexp_backward(xp, grad_output, input, output, dim):
    """For each i the sum of grad_output_j exp(input_i - output_j) over j >= i.

    Positive and negative parts apart, in logarithms (as torch): nothing overflows.
    grad_output (*), input (*), output (*) -> (*).
    """
    axis = wrap_dim(dim, input.ndim)
    if not input.size:
        return input.copy()
    size = xp.log(xp.absolute(grad_output))
    found = []
    for part in (grad_output > 0, grad_output < 0):
        logs = xp.flip(xp.where(part, size, -math.inf) - output, axis)
        found.append(xp.exp(xp.flip(xp.logaddexp.accumulate(logs, axis=axis), axis) + input))
    return (found[0] - found[1]).astype(output.dtype, copy=False)


def _log_running(xp: Any, x: Any, axis: int) -> Any:
    """log of the running sums of exp of complex numbers, one after the other, each scaled by its larger real part.

    The order decides which multiple of 2 pi i a result has.
    """
    rows = xp.moveaxis(x.copy(), axis, 0)  # a view of the copy
    for later in range(1, len(rows)):
        a, b = rows[later - 1], rows[later]
        high, low = xp.where(a.real >= b.real, a, b), xp.where(a.real >= b.real, b, a)
        rows[later] = high + xp.log1p(xp.exp(low - high))
    return xp.moveaxis(rows, 0, axis)


def _logcumsumexp_slope(grad: Tensor, input: Tensor, result: Tensor, dim: int) -> Tensor:
    if not input._array.ndim:
        return grad
    if not input.is_complex():
        return logcumsumexp_backward(grad, input, result, dim)
    return (grad * (-result).exp().conj()).flip(dim).cumsum(dim).flip(dim) * input.exp().conj()


@op()
@derivative(input=lambda grad, input, result, dim: _logcumsumexp_slope(grad, input, result, dim))
@samples(lambda t: [(t(3, 4), 1), (t(2, 3), 0), (t(), 0), (t(0, 2), 0), (t.complex(2, 3), 1)])
def logcumsumexp(xp, input, dim: int):
    """log of the running sums of exp along `dim`, without overflow.  input (*) -> (*)."""
    if input.dtype.kind in "iub":
        raise not_implemented("logcumsumexp_out_cpu", input)
    axis = wrap_dim(dim, input.ndim)
    if not input.ndim or not input.size:
        return input.copy()
    if input.dtype.kind == "c":
        return _log_running(xp, input, axis)
    if wide(input):
        return xp.logaddexp.accumulate(input.astype("float32"), axis=axis).astype(input.dtype)
    return xp.logaddexp.accumulate(input, axis=axis)


# --- differences


@composite()
@samples(lambda t: [(t(3, 5),), (t(3, 5), 2, 0), (t(4), {"prepend": t(1), "append": t(2)}), (t(3), 5)])
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | None = None,
):
    """The n-th differences of neighbours along `dim`; n = 0: a copy of `input`.  input (*) -> (*, shorter by n)."""
    if out is not None:
        return (store if n else store_result)(out, "diff", diff, input, n, dim, prepend, append)
    if not input._array.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if not n:
        return input.clone()
    dim = wrap_dim(dim, input._array.ndim)
    parts = [p for p in (prepend, input, append) if p is not None]
    if len(parts) > 1:
        input = PUBLIC["cat"](parts, dim)
    for _ in range(builtins.min(n, input._array.shape[dim])):
        size = input._array.shape[dim]
        later, earlier = input.narrow(dim, 1, size - 1), input.narrow(dim, 0, size - 1)
        input = later.logical_xor(earlier) if input._array.dtype.kind == "b" else later - earlier
    return input


def _neighbours(y: Tensor, dim: int) -> Tensor:
    size = y.size(dim)
    if not size:
        return y
    return y.narrow(dim, 1, size - 1) + y.narrow(dim, 0, size - 1)


def _spacing(y: Tensor, x: Any, dx: Any, dim: int) -> Any:
    if x is None:
        return dx
    if x._array.ndim == 1:
        gap = diff(x)
        return gap.reshape([-1 if d == dim else 1 for d in range(y._array.ndim)])
    return diff(x, 1, dim)


def _no_bool(name: str, y: Tensor, x: Any) -> None:
    for label, value in (("y", y), ("x", x)):
        if isinstance(value, Tensor) and value._array.dtype.kind == "b":
            raise RuntimeError(f"{name}: received a bool input for `{label}`, but bool is not supported")


@composite(method=False, names=("trapz",), several=((1, 3), (2, 3)))
@samples(lambda t: [(t(3, 5),), (t(3, 5), t(5)), (t(3, 5), {"dx": 0.5, "dim": 0})])
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: complex | None = None, dim: int = -1):
    """The integral along `dim` by the trapezoidal rule, at points `x` or spaced by `dx` (1).

    y (*) -> (* without dim).
    """
    _no_bool("trapezoid", y, x)
    dim = wrap_dim(dim, y._array.ndim)
    total = (_neighbours(y, dim) * _spacing(y, x, 1 if dx is None else dx, dim)).sum(dim) / 2
    return name_node(total, "MulBackward1" if x is None else "DivBackward1")


@composite(method=False, several=((1, 3), (2, 3)))
@samples(lambda t: [(t(3, 5),), (t(3, 5), t(5)), (t(3, 5), {"dx": 0.5, "dim": 0})])
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: complex | None = None, dim: int = -1):
    """The running integral along `dim`, see `trapezoid`.  y (*) -> (*, shorter by 1 along dim)."""
    _no_bool("cumulative_trapezoid", y, x)
    dim = wrap_dim(dim, y._array.ndim)
    total = (_neighbours(y, dim) * _spacing(y, x, 1 if dx is None else dx, dim)).cumsum(dim) / 2
    return name_node(total, "CumsumBackward0" if x is None else "DivBackward1")
