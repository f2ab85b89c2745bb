"""The vector norm behind `torch.linalg.norm`; subgradient 0 where the norm is 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.backends.cpu.exact import summed
from engine.core import dtypes
from engine.core.checks import wrap_dims
from engine.dispatch import derivative, op, samples
from engine.ops.products import scalar_name
from engine.tensor import Tensor

_MANY = 1 << 15  # elements from which it is worth a look at how they lie


def _masked(value: Tensor, norm: Tensor) -> Tensor:
    return value.masked_fill(norm == 0, 0)


@op(public=False, out=False, method=False, broadcast=True, numbers=(), generated="some")
@derivative(
    input=lambda grad, norm, grad_: _masked(grad * grad_, norm) / norm,  # nan where that is 0, as torch's
    norm=lambda grad, input, norm, grad_: -_masked(grad * grad_, norm) * input / (norm * norm),
    grad_=lambda grad, input, norm: euclidean_slope(input, norm, grad),
)
@samples(lambda t: [(t(3, 4), t.positive(3, 1), t(3, 4)), (t(2), t.positive(1), t(1))])
def euclidean_slope(xp, input, norm, grad_):
    """The gradient of a Euclidean norm, 0 where that is 0.

    input (*a), norm (*b), grad_ (*c) -> (broadcast of a, b, c).
    """
    return xp.multiply(grad_, xp.where(norm == 0, 0, input / norm))


def _slope(grad: Tensor, x: Tensor, ord: float, dim: Any, keepdim: bool, norm: Tensor, shape: Any) -> Tensor | None:
    """The gradient of a p-norm, case by case as torch has it; None for the count of elements."""
    if ord == 0:
        return None
    if grad.dtype is not x.dtype and not x.dtype.is_complex:
        x = x.to(grad.dtype)
    if not keepdim and shape:
        for d in sorted(wrap_dims(dim, len(shape))):
            grad, norm = grad.unsqueeze(d), norm.unsqueeze(d)
    if ord == 1:
        return x.sgn() * grad
    if ord == 2 and not x.dtype.is_complex:
        return euclidean_slope(x, norm, grad)
    if ord == 2:
        return grad * (x / norm).masked_fill(norm == 0, 0)
    if math.isinf(ord):
        size = x.abs()
        mask = (size == norm) | ((size != size) & (norm != norm))
        count = mask.sum(dim, True)
        return x.sgn() * (grad / count * mask)
    if ord < 1:
        rest = x.sgn() * (x.abs() ** (ord - 1)).masked_fill(x == 0, 0)
        return rest * grad * norm ** (1 - ord)
    scale = (grad / norm ** (ord - 1)).masked_fill(norm == 0, 0)
    if ord < 2:
        return x.sgn() * x.abs() ** (ord - 1) * scale
    return x * x.abs() ** (ord - 2) * scale


def _cast_back(slope: Tensor | None, dtype: Any) -> Tensor | None:
    return slope if slope is None or slope.dtype is dtype else slope.to(dtype)


@op(
    public=False,
    method=False,
    aliases={"x": "input"},
    integer_result=False,
    autocast={"cuda": "float32"},
    large=1 << 10,
    generated="some",
)
@derivative(
    input=lambda grad, input, ord, dim, keepdim, result, input_shape, input_dtype: _cast_back(
        _slope(grad, input, ord, dim, keepdim, result, input_shape), input_dtype
    )
)
@samples(
    lambda t: [
        (t(3, 4),),
        (t(3, 4), 1, 0),
        (t(3, 4), 3, (0, 1), True),
        (t.distinct(3, 4), math.inf, 1),
        (t(3, 4), 1.5, 1),
        (t(3), 0.5),
        (t.distinct(2, 3), -math.inf),
        (t(), 2),
        (t(0, 3), 2, 0),
        (t.complex(3), 2),
        (t(3), 0),
    ]
)
def linalg_vector_norm(
    xp, input, ord: complex = 2, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, *, dtype=None
):
    """The p-norm of the elements along `dim` (all by default).  input (*) -> (* without dim), real.

    ord 0 counts what is not 0.  RuntimeError for integers, or an empty dim where the norm has no identity.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.vector_norm.html
    """
    name = "linalg.vector_norm"
    found = dtypes.from_numpy(input.dtype)
    if found.category < dtypes.FLOATING:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {scalar_name(input)}")
    if dtype is not None:
        if dtype.category < dtypes.FLOATING:
            raise RuntimeError(
                f"{name}: dtype should be floating point or complex, but got {dtypes.scalar_name(dtype)}"
            )
        if dtype.is_complex != found.is_complex:
            kind = "complex" if found.is_complex else "real"
            raise RuntimeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {dtypes.scalar_name(dtype)}")
        if dtypes.promote_types(found, dtype) is not dtype:
            raise RuntimeError(
                f"{name}: the dtype of the input ({scalar_name(input)}) should be convertible without narrowing to "
                f"the specified dtype ({dtypes.scalar_name(dtype)})"
            )
        input = input.astype(dtypes.to_numpy(dtype))
        found = dtype
    axes = wrap_dims(dim, input.ndim)
    if not input.ndim:  # it has one dim, as elsewhere, of which numpy does not know
        axes = ()
    if (ord < 0 or ord == math.inf) and not all(input.shape[d] for d in axes):
        label = {math.inf: "inf", -math.inf: "-inf"}.get(ord, f"{ord:g}")
        whole = "tensor" if len(axes) == input.ndim else "dimension"
        if whole == "tensor":
            raise RuntimeError(
                f"{name} cannot compute the {label} norm on an empty tensor because the operation does not have an "
                "identity"
            )
        empty = next(d for d in axes if not input.shape[d])
        raise RuntimeError(
            f"{name} cannot compute the {label} norm on the dimension {empty} because this dimension is empty and the "
            "operation does not have an identity"
        )
    target = dtypes.to_numpy(found.to_real())
    if ord == 2 and type(input) is np.ndarray and input.size >= _MANY:
        from engine.backends.cpu.reduce import sum_of_last

        squares = sum_of_last(input, tuple(axes), keepdim, True)
        if squares is not None:
            return np.asarray(np.sqrt(squares))
    size = abs(input)
    if size.dtype.itemsize == 2:
        size = size.astype("float32")
    options = {"axis": axes, "keepdims": keepdim}
    if ord == math.inf:
        result = size.max(**options)
    elif ord == -math.inf:
        result = size.min(**options)
    elif ord == 0:
        result = (size != 0).sum(**options)
    elif ord == 1:
        result = summed(size, axes, keepdim)
    elif ord == 2:
        result = xp.sqrt(summed(size * size, axes, keepdim))
    else:
        result = summed(size ** size.dtype.type(ord), axes, keepdim) ** size.dtype.type(1 / ord)
    return xp.asarray(result).astype(target, copy=False)
