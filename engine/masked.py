"""`torch.masked`: reductions and normalizations of the elements that a mask lets through.

A mask is a bool tensor (*m) that broadcasts to the input (*), True where an element counts; None counts all.  What is
masked out takes the value that changes nothing (0 for sums, -inf for maxima), so that a slice of which nothing counts
gives that value, nan for `mean`, `var`, `std` and `median`.  There is no tensor that carries its mask.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.core.layouts import strided
from engine.dispatch import PUBLIC
from engine.dispatch.arguments import checked
from engine.ops.linalg.norms import linalg_vector_norm
from engine.tensor import Tensor
from engine.torch_names.refused import names as _refused

__all__ = [
    "MaskedTensor",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "as_masked_tensor",
    "cumprod",
    "cumsum",
    "is_masked_tensor",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "masked_tensor",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]

MaskedTensor, as_masked_tensor, masked_tensor = _refused(
    "masked", "MaskedTensor as_masked_tensor masked_tensor", "there are no tensors that carry a mask"
).values()
_Dims = int | Sequence[int] | None


def is_masked_tensor(obj: Any, /) -> bool:
    """Return whether `obj` carries a mask: nothing does here."""
    return False


# --- what stands in place of an element that is masked out


def _lowest(input: Tensor, name: str) -> Any:
    if input.dtype.is_floating_point:
        return -math.inf
    if input.dtype.is_complex and name == "logsumexp":
        return complex(-math.inf, 0)
    if input.dtype.is_complex or input.dtype is dtypes.bool:
        raise NotImplementedError(f"identity of {name} on {input.dtype} input")
    return dtypes.iinfo(input.dtype).min


def _highest(input: Tensor, name: str) -> Any:
    low = _lowest(input, name)
    return math.inf if isinstance(low, float) else dtypes.iinfo(input.dtype).max


def _mask_of(input: Tensor, mask: Tensor) -> Tensor:
    """The mask in the shape of the input, as bool."""
    if mask.dim() > input.dim():
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return PUBLIC["broadcast_to"](mask, input.shape).to(dtypes.bool)


def _filled(input: Tensor, mask: Tensor | None, value: Any, name: str, which: str = "strided") -> Tensor:
    """The input with `value` where the mask is False.  ValueError for a sparse input."""
    if input.layout is not strided:
        raise ValueError(f"masked {name} expects {which} tensor (got {input.layout} tensor)")
    if mask is None:
        return input
    if mask._array.shape != input._array.shape and input.requires_grad:
        mask = mask.clone()  # which is saved: the mask of the caller may be written to
    return PUBLIC["where"](_mask_of(input, mask), input, input.new_full((), value))


def _dims(dim: _Dims, ndim: int) -> tuple[int, ...]:
    """The dims in order, all for None and for none; IndexError and RuntimeError for those that do not fit."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    found: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if d in found:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        found.append(wrap_dim(d, builtins.max(ndim, 1)))
    return tuple(sorted(found))


def _whole(dtype: Any) -> Any:
    """The type of sums of integers and bools."""
    return dtype if dtype.is_floating_point or dtype.is_complex else dtypes.int64


# --- reductions


def sum(
    input: Tensor, dim: _Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The sum over `dim` (all) of what counts; 0 of nothing.  input (*) -> (* without dim)."""
    return PUBLIC["sum"](
        _filled(input, mask, 0, "sum"),
        _dims(dim, input.dim()),
        builtins.bool(keepdim),
        dtype=_whole(input.dtype) if dtype is None else dtype,
    )


def prod(
    input: Tensor, dim: _Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The product over `dim` (all) of what counts; 1 of nothing.  input (*) -> (* without dim)."""
    result = _filled(input, mask, 1, "prod")
    for d in reversed(_dims(dim, input.dim())):
        result = PUBLIC["prod"](result, d, builtins.bool(keepdim))
    return result.to(_whole(input.dtype) if dtype is None else dtype)


def amax(
    input: Tensor, dim: _Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The largest of what counts over `dim` (all); the lowest value of the dtype of nothing.

    input (*) -> (* without dim).  NotImplementedError for a mask with bool or complex input.
    """
    filled = _filled(input, mask, None if mask is None else _lowest(input, "amax"), "amax")
    return PUBLIC["amax"](filled, _dims(dim, input.dim()), builtins.bool(keepdim)).to(dtype or input.dtype)


def amin(
    input: Tensor, dim: _Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The smallest of what counts over `dim` (all); the highest value of the dtype of nothing.

    input (*) -> (* without dim).  NotImplementedError for a mask with bool or complex input.
    """
    filled = _filled(input, mask, None if mask is None else _highest(input, "amin"), "amin")
    return PUBLIC["amin"](filled, _dims(dim, input.dim()), builtins.bool(keepdim)).to(dtype or input.dtype)


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The index of `amax` along `dim`, or in the flat input, of its dtype.  input (*) -> (* without dim)."""
    filled = _filled(input, mask, None if mask is None else _lowest(input, "argmax"), "argmax")
    return PUBLIC["argmax"](filled, dim, builtins.bool(keepdim)).to(dtype or input.dtype)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The index of `amin` along `dim`, or in the flat input, of its dtype.  input (*) -> (* without dim)."""
    filled = _filled(input, mask, None if mask is None else _highest(input, "argmin"), "argmin")
    return PUBLIC["argmin"](filled, dim, builtins.bool(keepdim)).to(dtype or input.dtype)


def _count(input: Tensor, dim: _Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    """Count the elements whose mask is set."""
    every = input.new_ones(input.shape, dtype=dtypes.int64) if mask is None else _mask_of(input, mask)
    return PUBLIC["sum"](every, _dims(dim, input.dim()), keepdim)


def mean(
    input: Tensor, dim: _Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The mean over `dim` (all) of what counts; nan of nothing.  input (*) -> (* without dim).

    ValueError where neither `dtype` nor the input's is floating or complex.
    """
    target = input.dtype if dtype is None else dtype
    if not (target.is_floating_point or target.is_complex):
        source = "Input" if dtype is None else "Optional"
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating point or complex dtype. "
            f"Got: {target}"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=target, mask=mask)
    return total / _count(input, dim, builtins.bool(keepdim), mask)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The lower median along `dim` of what counts; nan of nothing.  input (*) -> (* without dim).

    ValueError for integers where nothing counts.
    """
    target = input.dtype if dtype is None else dtype
    (axis,) = _dims(dim, input.dim())
    real = input if input.dtype.is_floating_point else input.to(dtypes.float32)
    found = PUBLIC["nanmedian"](_filled(real, mask, math.nan, "median"), axis, keepdim)[0]
    if input.dtype.is_floating_point:
        return found
    if builtins.bool(found.isnan().any()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return found.to(target)


def logsumexp(
    input: Tensor, dim: _Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """log(sum(exp(x))) over `dim` (all) of what counts; -inf of nothing.  input (*) -> (* without dim)."""
    filled = _filled(input, mask, None if mask is None else _lowest(input, "logsumexp"), "logsumexp")
    return PUBLIC["logsumexp"](filled, _dims(dim, input.dim()), keepdim).to(dtype or input.dtype)


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The vector norm over `dim` (all) of what counts; 0 of nothing, inf for ord -inf.

    input (*) floating or complex -> (* without dim).
    """
    filled = _filled(input, mask, math.inf if ord == -math.inf else 0, "norm")
    return linalg_vector_norm(filled, ord, _dims(dim, input.dim()), builtins.bool(keepdim), dtype=dtype or input.dtype)


def _spread(
    input: Tensor, dim: _Dims, unbiased: bool | None, correction: Any, keepdim: Any, dtype: Any, mask: Any
) -> Tensor:
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    less = float(correction) if correction is not None else 1.0 if unbiased is None or unbiased else 0.0
    inexact = input.dtype.is_floating_point or input.dtype.is_complex
    target = dtype or (input.dtype if inexact else dtypes.float32)
    work = target if target.is_floating_point or target.is_complex else dtypes.float32
    count = _count(input, dim, True, mask)
    gap = input - sum(input, dim, keepdim=True, dtype=target, mask=mask) / count
    total = sum(gap * gap.conj(), dim, keepdim=keepdim, dtype=work, mask=mask)
    count = count.reshape(total.shape)
    if less:
        count = (count.to(work.to_real()) - less).clamp(min=0)
    return (total / count).to(target)


def var(
    input: Tensor,
    dim: _Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance over `dim` (all) of what counts, divided by its number less `correction` (1); nan of nothing.

    input (*) -> (* without dim).
    """
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask)


def std(
    input: Tensor,
    dim: _Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The square root of `var`.  input (*) -> (* without dim)."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


# --- along a dim


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Running sums along `dim` of what counts.  input (*) -> (*)."""
    (axis,) = _dims(dim, input.dim())
    return PUBLIC["cumsum"](_filled(input, mask, 0, "cumsum"), axis, dtype=dtype or input.dtype)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Running products along `dim` of what counts.  input (*) -> (*)."""
    (axis,) = _dims(dim, input.dim())
    return PUBLIC["cumprod"](_filled(input, mask, 1, "cumprod"), axis, dtype=dtype or input.dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim` of what counts, 0 elsewhere.  input (*) -> (*)."""
    (axis,) = _dims(dim, input.dim())
    filled = _filled(input, mask, None if mask is None else _lowest(input, "amax"), "softmax")
    return PUBLIC["softmax"](filled, axis, dtype=dtype or input.dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The logarithm of `softmax`, -inf where nothing counts.  input (*) -> (*)."""
    (axis,) = _dims(dim, input.dim())
    filled = _filled(input, mask, None if mask is None else _lowest(input, "amax"), "log_softmax")
    return PUBLIC["log_softmax"](filled, axis, dtype=dtype or input.dtype)


def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """`softmax` of -x.  input (*) -> (*)."""
    (axis,) = _dims(dim, input.dim())
    filled = _filled(input, mask, None if mask is None else _highest(input, "amin"), "softmin")
    return PUBLIC["softmax"](-filled, axis, dtype=dtype or input.dtype)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """x / max(norm of what counts along `dim`, eps), 0 where masked out.  input (*) -> (*)."""
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0, "normalize") / PUBLIC["maximum"](size, size.new_full((), eps))


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)) of what counts of each.  input (*a), other (*b) -> (broadcast of a and b)."""
    operands = []
    for x, mask in ((input, input_mask), (other, other_mask)):
        value = None if mask is None else _lowest(x, "logaddexp")
        operands.append(_filled(x, mask, value, "logaddexp", "strided tensors"))
    return PUBLIC["logaddexp"](*operands).to(dtype or input.dtype)


for _name in __all__:
    if _name not in ("MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"):
        globals()[_name] = checked(globals()[_name])
