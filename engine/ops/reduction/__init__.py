"""Reductions over dims: sums, products, moments, logsumexp."""

from __future__ import annotations

import builtins
import warnings
from typing import Any

import numpy as np

from engine.autograd.graph import name_node
from engine.backends.cpu.exact import summed
from engine.core import dtypes
from engine.core.checks import numel, wrap_dim, wrap_dims
from engine.core.dtypes import NATIVE
from engine.core.tensor_messages import outside
from engine.dispatch import PUBLIC, array_derivative, composite, derivative, moving, op, overload, samples
from engine.dispatch.out import store
from engine.dispatch.runtime import SMALL
from engine.ops.pointwise.arithmetic import conj_if_complex as _conj
from engine.ops.pointwise.arithmetic import keep_where
from engine.tensor import Tensor

# --- what reductions share


def axis_of(dim: Any, ndim: int) -> Any:
    """numpy's `axis` for torch's `dim`: None for all dims."""
    if dim is None:
        return None
    axes = wrap_dims(dim, ndim)
    return axes if ndim else ()  # a 0-dim array has no axis; `dim` may be 0 or -1


def unreduce(grad: Tensor, shape: Any, dim: Any, keepdim: bool) -> Tensor:
    """The gradient (or result) of a reduction with its reduced dims as size 1 again."""
    if not keepdim and shape and dim is not None:
        for d in sorted(wrap_dims(dim, len(shape))):
            grad = grad.unsqueeze(d)
    return grad


def spread(grad: Tensor, shape: Any, dim: Any, keepdim: bool) -> Tensor:
    """The gradient of a reduction spread over the reduced dims again."""
    grad = unreduce(grad, shape, dim, keepdim)
    return grad if grad._array.shape == shape else grad.expand(shape)


def cast_back(grad: Tensor, dtype: Any) -> Tensor:
    """The gradient in the dtype of the input."""
    return grad if grad.dtype is dtype else grad.to(dtype)


def _spread_array(grad: Any, shape: Any, dim: Any, keepdim: bool) -> Any:
    """`spread` of an array: of few elements a copy, which is faster than a view here."""
    if grad.ndim and not keepdim:
        sizes = list(shape)
        for d in wrap_dims(dim, len(shape)):
            sizes[d] = 1
        grad = grad.reshape(sizes)
    if numel(shape) > SMALL:
        if not grad.flags.c_contiguous:
            return NotImplemented
        steps = [0 if m != n else s for m, n, s in zip(grad.shape, shape, grad.strides)] or [0] * len(shape)
        return np.ndarray(shape, grad.dtype, grad, 0, steps)
    result = np.empty(shape, grad.dtype)
    result[...] = grad
    return result


def count_of(shape: Any, dim: Any) -> int:
    """Return the number of elements that one result is reduced from."""
    n = 1
    for d in wrap_dims(dim, len(shape)) if shape else ():
        n *= shape[d]
    return n


def wide(array: Any) -> Any:
    """The dtype to accumulate in: float32 for 16-bit floats, complex64 for complex32, else None."""
    if array.dtype is _FLOAT32:
        return None
    if array.dtype.kind == "W":
        return "complex64"
    return "float32" if array.dtype.itemsize == 2 and array.dtype.kind in "fV" else None


def int64_if_integer(array: Any) -> Any:
    """int64 for integers and bools, in which they add and multiply; else None."""
    return "int64" if array.dtype.kind in "iub" else None


_FLOAT32 = np.dtype(np.float32)
_FEW = 1 << 9  # elements that numpy adds as they are
_MANY = 1 << 14  # elements from which sums of rows are worth a look at how they lie
_MANY_IN_ONE = 1 << 16  # the same of one sum of all


def total(xp: Any, array: Any, axis: Any, keepdim: bool) -> Any:
    """The sum along axes, accumulated in float32 for 16-bit floats."""
    to = wide(array)
    if to is None:
        if array.size <= _FEW:
            return array.sum(axis=axis, keepdims=keepdim)
        many = _MANY_IN_ONE if axis is None else _MANY
        if xp is np and array.size >= many and type(array) is np.ndarray:
            from engine.backends.cpu.reduce import sum_of_last

            dims = range(array.ndim) if axis is None else wrap_dims(axis, array.ndim)
            found = sum_of_last(array, tuple(dims), keepdim)
            if found is not None:
                return found
        return summed(array, axis, keepdim)
    return _wide_total(array, axis, keepdim, to).astype(array.dtype)


def _wide_total(array: Any, axis: Any, keepdim: bool, to: str) -> Any:
    """The sum of 16-bit floats along axes in the wide type `to`."""
    if not isinstance(array, np.ndarray) or (array.size < _MANY_IN_ONE and axis is None):
        return array.sum(axis=axis, keepdims=keepdim, dtype=to)
    most = 1 << 20  # elements that are made wide at once
    if array.size <= most or array.shape[0] < 2:
        return summed(array.astype(to), axis, keepdim)
    axes = tuple(range(array.ndim)) if axis is None else wrap_dims(axis, array.ndim)
    step = builtins.max(1, most // (array.size // array.shape[0]))
    parts = [_wide_total(array[i : i + step], tuple(axes), True, to) for i in range(0, array.shape[0], step)]
    found = np.concatenate(parts)
    if 0 in axes:
        found = summed(found, 0, True)
    return found if keepdim else found.reshape([n for d, n in enumerate(array.shape) if d not in axes])


def nonempty(name: str, array: Any, dim: Any, error: Any = RuntimeError) -> None:
    """torch's errors for a reduction without identity over nothing."""
    if array.size:
        return
    if dim is None or dim == ():
        tail = "" if error is IndexError else " Specify the reduction dim with the 'dim' argument."
        raise error(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.{tail}")
    for d in wrap_dims(dim, array.ndim):
        if not array.shape[d]:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


# --- sums


@op(
    node={"dim is None": "SumBackward0", "": "SumBackward1"},
    channels_last=True,
    several=((1, 2), (2, 5)),
    autocast={"cuda": "float32"},
    out_as="dtype",
    generated="many",
)
@derivative(
    input=lambda grad, input_shape, input_dtype, dim, keepdim: cast_back(
        spread(grad, input_shape, dim, keepdim), input_dtype
    )
)
@array_derivative(input=moving(lambda grad, input_shape, dim, keepdim: _spread_array(grad, input_shape, dim, keepdim)))
@samples(
    lambda t: [
        (t(3, 4),),
        (t(),),
        (t(3, 4), 1),
        (t(2, 3, 4), (0, 2), True),
        (t(0, 2), 0),
        (t(3), ()),
        (t(), 0),
        (t.integers(0, 9, 3),),
        (t.boolean(3),),
        (t.complex(3),),
    ]
)
def sum(xp, input, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, *, dtype=None):
    """Sum over `dim` (int, tuple or None = all); integers and bools sum in int64.  input (*) -> (* without dim)."""
    if dim is None and dtype is None and input.dtype in NATIVE and input.size < _MANY_IN_ONE:
        return xp.add.reduce(input, None, keepdims=keepdim)
    axis = axis_of(dim, input.ndim)
    if dtype is not None:
        input = input.astype(dtypes.to_numpy(dtype))
        if input.dtype.kind in "iub":
            return input.sum(axis=axis, keepdims=keepdim, dtype=input.dtype)
        return total(xp, input, axis, keepdim)
    to = int64_if_integer(input)
    if to is not None:
        return input.sum(axis=axis, keepdims=keepdim, dtype=to)
    return total(xp, input, axis, keepdim)


def summed_dims(shape: Any, size: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(leading dims, dims of size 1) to sum so that `shape` becomes `size`.  RuntimeError if it cannot."""
    lead = len(shape) - len(size)
    ok = lead >= 0 and builtins.all(s in (1, shape[lead + i]) for i, s in enumerate(size))
    if not ok:
        raise RuntimeError(f"size {{{list(size)}}} is not expandable to size {{{list(shape)}}}.")
    ones = tuple(lead + i for i, s in enumerate(size) if s == 1 and shape[lead + i] != 1)
    return tuple(range(lead)), ones


@op(
    node={
        "not size": "SumBackward0",
        "len(size) < _a_input.ndim": "ViewBackward0",
        "": "SumBackward1",
    },
    varargs="size",
    itself="size",
    generated="many",
)
@derivative(input=lambda grad, input_shape: grad.expand(input_shape))
@samples(
    lambda t: [
        (t(2, 3, 4), (3, 1)),
        (t(2, 3), (1,)),
        (t(2, 3), ()),
        (t(0, 3), (1, 3)),
    ]
)
def sum_to_size(xp, input, size):
    """input summed to the shape `size`, which must broadcast to its own: the reverse of `expand`.

    An input of that size is returned itself.  input (*) -> (*size).
    """
    lead, ones = summed_dims(input.shape, size)
    to = int64_if_integer(input)
    if not lead and not ones:  # no dims at all
        return input.copy() if to is None else input.astype(to)
    if to is not None:
        result = input.sum(axis=lead + ones, keepdims=True, dtype=to)
    else:
        result = total(xp, input, lead + ones, True)
    return result.reshape(size)


@op(out_as="dtype", out_label="nansum_cpu")
@derivative(
    input=lambda grad, input, dim, keepdim: keep_where(
        cast_back(spread(grad, input._array.shape, dim, keepdim), input.dtype), ~input.isnan()
    )
)
@samples(
    lambda t: [
        (t(3, 4),),
        (t(),),
        (t(3, 4), 1),
        (t(2, 3, 4), (0, 2), True),
        (t.of([1.0, float("nan")]),),
    ]
)
def nansum(xp, input, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, *, dtype=None):
    """Sum over `dim`, nan counted as 0.  input (*) -> (* without dim)."""
    if input.dtype.kind == "c":
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if input.dtype.kind in "fV":
        input = xp.where(input == input, input, input.dtype.type(0))
    return sum.op.kernel(xp, input, dim, keepdim, dtype=dtype)


def _floating_result(name: str, input: Any, dtype: Any) -> Any:
    if dtype is not None:
        if dtype.category < dtypes.FLOATING:
            raise RuntimeError(
                f"{name}(): could not infer output dtype. Optional dtype must be either a floating point or complex "
                f"dtype. Got: {dtypes.scalar_name(dtype)}"
            )
        return input.astype(dtypes.to_numpy(dtype))
    if input.dtype.kind in "iub":
        raise RuntimeError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {dtypes.scalar_name(dtypes.from_numpy(input.dtype))}"
        )
    return input


def _mean_backward(grad: Tensor, input_shape: Any, input_dtype: Any, dim: Any, keepdim: bool) -> Tensor:
    share = grad / (count_of(input_shape, dim) or 1)
    return cast_back(spread(share, input_shape, dim, keepdim), input_dtype)


@op(
    node={"dim is None": "MeanBackward0", "": "MeanBackward1"},
    channels_last=True,
    several=((1, 3), (2, 5)),
    large=1 << 13,
    generated="many",
)
@derivative(input=_mean_backward)
@array_derivative(
    input=moving(
        lambda grad, input_shape, dim, keepdim: (
            _spread_array(grad / (count_of(input_shape, dim) or 1), input_shape, dim, keepdim)
            if grad.size <= SMALL
            else NotImplemented
        )
    )
)
@samples(
    lambda t: [
        (t(3, 4),),
        (t(),),
        (t(3, 4), 1),
        (t(2, 3, 4), (0, 2), True),
        (t(2, 0), 0),
        (t.complex(3),),
        (t.integers(0, 9, 3), {"dtype": dtypes.float64}),
    ]
)
def mean(xp, input, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, *, dtype=None):
    """The mean over `dim` (int, tuple or None = all).  RuntimeError for integers.  input (*) -> (* without dim)."""
    input = _floating_result("mean", input, dtype)
    axis = axis_of(dim, input.ndim)
    to = wide(input)
    if to is None:
        found = total(xp, input, axis, keepdim)
    else:
        found = _wide_total(input, axis, keepdim, to)
    count = found.dtype.type(input.size if axis is None else count_of(input.shape, axis or None))
    found = xp.true_divide(found, count)
    return found if to is None else found.astype(input.dtype)


@composite(out_label="nansum_cpu")
@samples(lambda t: [(t(3, 4),), (t(3, 4), 1, True)])
def nanmean(input: Tensor, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, *, dtype=None, out=None):
    """The mean over `dim` of what is not nan.  input (*) -> (* without dim)."""
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            f"{dtypes.scalar_name(input.dtype)}"
        )
    if out is not None:
        return store(out, "nanmean", nanmean, input, dim, keepdim, dtype=dtype)
    count = (~input.detach().isnan()).sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype).div(count)


@op(several=((1, 2), (2, 2)))
@samples(
    lambda t: [
        (t(3, 4),),
        (t.integers(0, 2, 3, 4), 1),
        (t.integers(0, 2, 2, 3, 4), (0, 2)),
        (t(0),),
    ]
)
def count_nonzero(xp, input, dim: tuple[int, ...] | int | None = None):
    """Count the elements that are not 0. input (*) -> (* without dim) int64."""
    return (input != 0).sum(axis=axis_of(dim, input.ndim), dtype="int64")


# --- products


def _prod_all_backward(grad: Tensor, input: Tensor, result: Tensor, input_dtype: Any) -> Tensor:
    if not input._array.ndim:
        return cast_back(grad, input_dtype)
    flat = _prod_dim_backward(grad.reshape(1), input.reshape(-1), result.reshape(1), 0, True, input_dtype)
    return flat.reshape(input._array.shape)


def _prod_dim_backward(
    grad: Tensor, input: Tensor, result: Tensor, dim: int, keepdim: bool, input_dtype: Any
) -> Tensor:
    """grad * result / input; where a factor is 0, the product of the others from both sides."""
    if not input._array.ndim:
        return cast_back(grad, input_dtype)
    dim = wrap_dim(dim, input._array.ndim)
    if not keepdim:
        grad, result = grad.unsqueeze(dim), result.unsqueeze(dim)
    if (input._array == 0).any():
        others = _product_of_others(input if input.dtype is result.dtype else input.to(result.dtype), dim)
        return cast_back(grad * _conj(others), input_dtype)
    return cast_back(grad * _conj(result / input), input_dtype)


def _product_of_others(input: Tensor, dim: int) -> Tensor:
    """For each element the product of all others along `dim`, without division."""
    cumprod = PUBLIC["cumprod"]
    n = input._array.shape[dim]
    ones = input.narrow(dim, 0, 1).detach() * 0 + 1
    before = cumprod(_cat([ones, input.narrow(dim, 0, n - 1)], dim), dim)
    behind = cumprod(_cat([ones, input.narrow(dim, 1, n - 1).flip(dim)], dim), dim).flip(dim)
    return before * behind


def _cat(parts: list[Tensor], dim: int) -> Tensor:
    return PUBLIC["cat"](parts, dim)


def _product(xp: Any, input: Any, axis: Any, keepdim: bool, dtype: Any) -> Any:
    if dtype is not None:
        input = input.astype(dtypes.to_numpy(dtype))
    to = int64_if_integer(input) if dtype is None else None
    found = input.prod(axis=axis, keepdims=keepdim, dtype=to or wide(input) or input.dtype)
    return found if to else found.astype(input.dtype)


@op(form="prod", node="ProdBackward0", autocast="float32", out_as="dtype", generated="many")
@derivative(input=_prod_all_backward)
@samples(
    lambda t: [
        (t(3, 4),),
        (t(),),
        (t(0),),
        (t.integers(1, 4, 3),),
        (t.uniform(0, 0, 1),),
        (t.complex(3),),
    ]
)
def prod_all(xp, input, *, dtype=None):
    """The product of all elements.  input (*) -> ()."""
    return _product(xp, input, None, False, dtype)


@op(form="prod", node="ProdBackward1", large=512, blocks="rows", generated="many", autocast="float32", out_as="dtype")
@derivative(input=_prod_dim_backward)
@samples(lambda t: [(t(3, 4), 1), (t(3, 4), 0, True), (t(), 0), (t(2, 0), 1), (t.uniform(0, 0, 3, 1), 1)])
def prod_dim(xp, input, dim: int, keepdim: bool = False, *, dtype=None):
    """The product along `dim`.  input (*) -> (* without dim)."""
    return _product(xp, input, axis_of(dim, input.ndim), keepdim, dtype)


@overload(several=((1, 2), (2, 5)))
@samples(lambda t: [(t(3, 4),), (t(3, 4), 1)])
def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype=None, axis=None, keepdims=None, out=None
):
    """The product of all elements, or along `dim`; integers in int64; exact gradient at zeros.

    input (*) -> (* without dim).
    """
    dim = axis if axis is not None else dim
    keepdim = keepdims if keepdims is not None else keepdim
    if dim is None:
        return prod_all(input, dtype=dtype, out=out)
    return prod_dim(input, dim, keepdim, dtype=dtype, out=out)


# --- variance


def _var_backward(grad: Tensor, input: Tensor, dim: Any, correction: Any, keepdim: bool) -> Tensor:
    shape = input._array.shape
    n = count_of(shape, dim) if dim is not None and dim != () else input.numel()
    divisor = n - correction
    grad = unreduce(grad, shape, dim if dim != () else None, keepdim)
    factor = 2.0 / divisor if divisor > 0 else float("nan") if n == correction else float("inf") * n
    return grad * factor * (input - mean(input, dim, True))


def _std_backward(grad: Tensor, input: Tensor, result: Tensor, dim: Any, correction: Any, keepdim: bool) -> Tensor:
    slope = keep_where(grad / (result * 2), result != 0)
    return _var_backward(slope, input, dim, correction, keepdim)


_LARGE = 1 << 17  # elements from which buffers are worth their calls


def _squared_deviations(input: Any, center: Any, axis: Any, keepdim: bool) -> Any:
    """Return the sums of `(input - center) ** 2` over axis, in buffers where the array is large."""
    if input.size < _LARGE:
        gap = input - center
        return summed(gap * gap, axis, keepdim)
    from engine.backends.cpu.deviations import squared_deviations  # with the first large array

    return squared_deviations(input, center, (axis,) if isinstance(axis, int) else axis, keepdim)


def _moments(xp: Any, input: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    """(variance, mean) along dims, in float32 for 16-bit floats."""
    if input.dtype.kind in "iub":
        raise RuntimeError("std and var only support floating point and complex dtypes")
    kind = input.dtype
    if to := wide(input):
        input = input.astype(to)
    axis = axis_of(dim, input.ndim)
    n = input.size if axis is None else count_of(input.shape, axis or None)
    one = input.dtype.type
    whole = input.sum(axis=axis, keepdims=True) if input.size <= _FEW else total(xp, input, axis, True)
    center = xp.true_divide(whole, one(n))
    if input.dtype.kind == "c":
        gap = input - center
        found = summed(xp.real(gap * xp.conj(gap)), axis, keepdim)
    else:
        found = _squared_deviations(input, center, axis, keepdim)
    found = xp.true_divide(found, found.dtype.type(builtins.max(n - correction, 0)))
    if not keepdim:
        center = center.reshape(found.shape)
    if kind is not input.dtype and kind != input.dtype:
        return found.astype(kind), center.astype(kind)
    return found, center


def _moment_samples(t: Any) -> list[Any]:
    return [(t(3, 4),), (t(3, 4), 1), (t(2, 3, 4), (0, 2), 0, True), (t.complex(3, 2), 0)]


@op(form="var", node="VarBackward0")
@derivative(input=_var_backward)
@samples(_moment_samples)
def var_of(xp, input, dim: int | tuple[int, ...] | None = None, correction: complex | None = 1, keepdim: bool = False):
    """The variance along `dim`.  input (*) -> (* without dim)."""
    return _moments(xp, input, dim, correction, keepdim)[0]


@op(form="std", node="StdBackward0")
@derivative(input=_std_backward)
@samples(_moment_samples)
def std_of(xp, input, dim: int | tuple[int, ...] | None = None, correction: complex | None = 1, keepdim: bool = False):
    """The standard deviation along `dim`; gradient 0 where it is 0.  input (*) -> (* without dim)."""
    return xp.sqrt(_moments(xp, input, dim, correction, keepdim)[0])


def _moment_arguments(name: str, dim: Any, unbiased: Any, keepdim: Any, correction: Any) -> tuple[Any, Any, bool]:
    """(dim, correction, keepdim) of the forms (unbiased), (dim, unbiased, keepdim) and (dim, correction=, keepdim=)."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments")
    if unbiased is not None:
        correction = 1 if unbiased else 0
    if dim is not None and dim.__class__ is not int and isinstance(dim, list | tuple) and not dim:
        dim = None
    return dim, 1 if correction is None else correction, builtins.bool(keepdim)


def _with_freedom(name: str, input: Tensor, correction: Any, spread: Tensor) -> Tensor:
    """`spread`, the variances or deviations of `input`, with a warning where nothing is left to divide by."""
    if input._array.size <= correction * spread._array.size:
        warnings.warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
            "(input numel divided by output numel).",
            stacklevel=outside(),
        )
    return spread


@overload(several=((1, 2), (1, 5), (2, 5)))
@samples(lambda t: [(t(3, 4),), (t(3, 4), 1, False), (t(3, 4), False), (t(3, 4), 0, {"correction": 2})])
def var(
    input: Tensor,
    dim: int | tuple[int, ...] | bool | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: complex | None = None,
    out=None,
):
    """The variance over `dim`, divided by N - correction (1; 0 with unbiased=False).  input (*) -> (* without dim)."""
    dim, correction, keepdim = _moment_arguments("var", dim, unbiased, keepdim, correction)
    return _with_freedom("var", input, correction, var_of(input, dim, correction, keepdim, out=out))


@overload(several=((1, 2), (1, 5), (2, 5)))
@samples(lambda t: [(t(3, 4),), (t(3, 4), 1, False), (t(3, 4), False), (t(3, 4), 0, {"correction": 2})])
def std(
    input: Tensor,
    dim: int | tuple[int, ...] | bool | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: complex | None = None,
    out=None,
):
    """The standard deviation over `dim`, see `var`.  input (*) -> (* without dim)."""
    dim, correction, keepdim = _moment_arguments("std", dim, unbiased, keepdim, correction)
    return _with_freedom("std", input, correction, std_of(input, dim, correction, keepdim, out=out))


def _check_moments(name: str, input: Tensor) -> None:
    if input.dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"{name} only support floating point and complex dtypes")


def _named(name: str, spread: Tensor, input: Tensor, dim: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    """(spread, mean), both under the name of torch's one node."""
    return name_node(spread, name), name_node(mean(input, dim, keepdim), name)


@overload(method=False, several=((1, 2), (1, 4), (2, 4)))
@samples(lambda t: [(t(3, 4), 1)])
def var_mean(
    input: Tensor,
    dim: int | tuple[int, ...] | bool | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: complex | None = None,
) -> tuple[Tensor, Tensor]:
    """(variance, mean) over `dim`, see `var`.  input (*) -> (* without dim), (* without dim)."""
    dim, correction, keepdim = _moment_arguments("var_mean", dim, unbiased, keepdim, correction)
    _check_moments("var_mean", input)
    spread = _with_freedom("var_mean", input, correction, var_of(input, dim, correction, keepdim))
    return _named("VarMeanBackward0", spread, input, dim, keepdim)


@overload(method=False, several=((1, 2), (1, 4), (2, 4)))
@samples(lambda t: [(t(3, 4), 1)])
def std_mean(
    input: Tensor,
    dim: int | tuple[int, ...] | bool | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: complex | None = None,
) -> tuple[Tensor, Tensor]:
    """(standard deviation, mean) over `dim`, see `var`.  input (*) -> (* without dim), (* without dim)."""
    dim, correction, keepdim = _moment_arguments("std_mean", dim, unbiased, keepdim, correction)
    _check_moments("std_mean", input)
    spread = _with_freedom("std_mean", input, correction, std_of(input, dim, correction, keepdim))
    return _named("StdMeanBackward0", spread, input, dim, keepdim)


# --- logsumexp


def _logsumexp_backward(grad: Tensor, input: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    shape = input._array.shape
    grad, result = unreduce(grad, shape, dim, keepdim), unreduce(result, shape, dim, keepdim)
    return grad * _conj((input - result).exp())


@op(promote="float", names=("special_logsumexp",), large=512, blocks="rows", generated="many")
@derivative(input=_logsumexp_backward)
@samples(
    lambda t: [
        (t(3, 4), 1),
        (t(2, 3, 4), (0, 2), True),
        (t(), 0),
        (t(0, 3), 1),
        (t.integers(0, 9, 3), 0),
    ]
)
def logsumexp(xp, input, dim: int | tuple[int, ...], keepdim: bool = False):
    """log of the sum of exp over `dim`, without overflow.  input (*) -> (* without dim)."""
    kind = input.dtype
    if to := wide(input):
        input = input.astype(to)
    axis = axis_of(dim, input.ndim)
    if not input.size and builtins.any(not input.shape[d] for d in wrap_dims(axis, input.ndim)):
        return xp.log(xp.exp(input).sum(axis=axis, keepdims=keepdim)).astype(kind)
    top = input.max(axis=axis, keepdims=True) if input.dtype.kind != "c" else input.real.max(axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, top.dtype.type(0))
    found = xp.log(summed(xp.exp(input - top), axis, True)) + top
    if not keepdim:
        found = found.squeeze(axis=axis) if axis is not None else found.reshape(())
    return found.astype(kind)
