"""Products of two matrices of 8-bit floats, with scales for each matrix or for its rows and columns.

The values are multiplied and summed in float32, scaled, the bias is added, and the sum is rounded once.  A sum beyond
an 8-bit result's range becomes its largest value.
https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.scaled_mm.html
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.encoded import float8
from engine.tensor import Tensor, wrap

__all__ = ["ScalingType", "SwizzleType", "_scaled_mm", "_scaled_mm_v2", "scaled_mm"]


class _ScalingType(enum.Enum):
    """How many elements have a scale in common."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class _SwizzleType(enum.Enum):
    """In which order the scales of blocks are stored."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


ScalingType, SwizzleType = _ScalingType, _SwizzleType


def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    *,
    out: Any = None,
) -> Any:
    """(input * scale_a) @ (mat2 * scale_b) + bias.  input (n, k) and mat2 (k, m) of 8-bit floats, bias (m) -> (n, m).

    Args:
        scale_a: One float32, or one for each row (n, 1).
        scale_b: One float32, or one for each column (1, m).
        scale_result: What the result is divided by, if `out_dtype` is given and has 8 bits.
        out_dtype: The dtype of the result; else that of `input`.
        use_fast_accum: Accepted; sums are float32's.
        out: A tensor that takes the result.

    Raises:
        RuntimeError, ValueError: For sizes, dtypes or scales that do not fit.
    """
    if input.dim() != 2 or mat2.dim() != 2:
        raise RuntimeError(f"mat{1 + (input.dim() == 2)} must be a matrix")
    _check_sizes(input, mat2, RuntimeError)
    recipes = [0, 0] if scale_a.numel() == scale_b.numel() == 1 else [1, 1]
    _check_scales(input, mat2, [scale_a], recipes[:1], [scale_b], recipes[1:])
    _check_bias(bias, mat2, RuntimeError)
    divisor = scale_result if out_dtype is not None and _is_8_bits(out_dtype) else None
    return _into(out, _product(input, mat2, scale_a, scale_b, bias, divisor, out_dtype))


def _scaled_mm_v2(
    input: Tensor,
    mat2: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[Any],
    swizzle_a: Sequence[Any],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[Any],
    swizzle_b: Sequence[Any],
    bias: Tensor | None,
    out_dtype: Any,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    out: Any = None,
) -> Any:
    """`_scaled_mm` with lists of scales, and of members of `ScalingType` (or their numbers) that say what they are for.

    ValueError for scales of blocks, which the CPU does not have, and for sizes, dtypes or scales that do not fit.
    """
    for which, x in (("mat_a", input), ("mat_b", mat2)):
        if x.dim() != 2:
            raise ValueError(f"{which} must be a matrix")
    _check_sizes(input, mat2, ValueError, contraction_dim)
    _check_bias(bias, mat2, ValueError)
    if any(map(_number, (*swizzle_a, *swizzle_b))):
        raise ValueError("CPU does not support swizzle.")
    _check_scales(input, mat2, scale_a, [*map(_number, recipe_a)], scale_b, [*map(_number, recipe_b)])
    return _into(out, _product(input, mat2, scale_a[0], scale_b[0], bias, None, out_dtype))


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Tensor | None = None,
    output_dtype: Any = dtypes.bfloat16,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Any:
    """(mat_a * scale_a) @ (mat_b * scale_b) + bias.  mat_a (n, k), mat_b (k, m) of 8-bit floats, bias (m) -> (n, m).

    Args:
        scale_a, scale_b: float32: one number, or one for each row (n, 1) and each column (1, m); or lists of such.
        scale_recipe_a, scale_recipe_b: Members of `ScalingType`: TensorWise, RowWise; or lists of such.
        swizzle_a, swizzle_b: Members of `SwizzleType`: NO_SWIZZLE.
        output_dtype: The dtype of the result; None for that of `mat_a`.
        contraction_dim: Which dims are k; (1, 0) if not given.

    Raises:
        ValueError: For scales of blocks, which the CPU does not have, and for what does not fit.
    """
    recipes_a, recipes_b = _listed(scale_recipe_a), _listed(scale_recipe_b)
    return _scaled_mm_v2(
        mat_a,
        mat_b,
        _listed(scale_a),
        recipes_a,
        _listed(swizzle_a),
        _listed(scale_b),
        recipes_b,
        _listed(swizzle_b),
        bias,
        output_dtype,
        contraction_dim,
        use_fast_accum,
    )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _number(value: Any) -> int:
    return int(value.value if isinstance(value, enum.Enum) else value)


def _is_8_bits(dtype: dtypes.dtype) -> bool:
    return dtype.name in float8.NAMES


def _check_sizes(a: Tensor, b: Tensor, error: type[Exception], dims: Sequence[int] = ()) -> None:
    if dims and len(dims) != 2:
        raise error("contraction_dim must have exactly 2 elements")
    i, j = dims or (1, 0)
    if a.shape[i] != b.shape[j] or (i % 2, j % 2) != (1, 0):
        shapes = " and ".join("x".join(map(str, x.shape)) for x in (a, b))
        place = f" with contraction dims mat_a: {i}, mat_b: {j}" if dims else ""
        raise error(f"mat_a and mat_b shapes cannot be multiplied ({shapes}){place}")


def _check_bias(bias: Tensor | None, b: Tensor, error: type[Exception]) -> None:
    if bias is not None and bias.numel() != b.shape[1]:
        raise error(f"Bias must be size {b.shape[1]} but got {bias.numel()}")


def _check_scales(
    a: Tensor, b: Tensor, scale_a: Sequence[Tensor], recipe_a: list[int], scale_b: Sequence[Tensor], recipe_b: list[int]
) -> None:
    n, m = a.shape[0], b.shape[1]
    if (
        len(scale_a) != 1
        or len(scale_b) != 1
        or recipe_a not in ([0], [1])
        or recipe_a != recipe_b
        or any(not _is_8_bits(x.dtype) for x in (a, b))
        or any(x.dtype is not dtypes.float32 for x in (*scale_a, *scale_b))
    ):
        raise ValueError(
            "Invalid scaling configuration: both matrices must be of 8-bit floats, with one tensor of float32 scales "
            f"each, either TensorWise (one number) or RowWise ({n}, 1) and (1, {m}); got {a.dtype}, {b.dtype}, recipes "
            f"{recipe_a} and {recipe_b}, scales of {[tuple(x.shape) for x in scale_a]} {[x.dtype for x in scale_a]} "
            f"and {[tuple(x.shape) for x in scale_b]} {[x.dtype for x in scale_b]}"
        )
    for which, scale, wanted in (("scale_a", scale_a[0], (n, 1)), ("scale_b", scale_b[0], (1, m))):
        if recipe_a == [0] and scale.numel() != 1:
            raise ValueError(f"{which} must have 1 Float element")
        if recipe_a == [1] and tuple(scale.shape) != wanted:
            raise ValueError(f"{which} must have shape {list(wanted)}, got {list(scale.shape)}")


def _product(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, divisor: Any, out_dtype: Any) -> Any:
    found = np.matmul(a._q.astype(np.float32), b._q.astype(np.float32))
    scales = [x._array.reshape(()) if x.numel() == 1 else x._array for x in (scale_a, scale_b)]
    found = found * (scales[0] * scales[1])
    if bias is not None:
        found = found + bias.float()._array
    if divisor is not None:
        found = found / divisor._array.reshape(())
    dtype = a.dtype if out_dtype is None else out_dtype
    if not _is_8_bits(dtype):
        return wrap(found.astype(np.float32, copy=False)).to(dtype)
    import ml_dtypes

    kind = float8.numpy_dtype(dtype.name)
    most = float(ml_dtypes.finfo(kind).max)
    return float8.from_array(float8.rounded(np.clip(found, -most, most).astype(np.float32), dtype.name))


def _into(out: Any, found: Any) -> Any:
    if out is None:
        return found
    if out.dtype is not found.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {found.dtype}, but got {out.dtype} instead")
    if isinstance(out, float8.Float8Tensor):
        if tuple(out.shape) != tuple(found.shape):
            raise RuntimeError(f"Expected out tensor to have shape {list(found.shape)}, but got {list(out.shape)}")
        out._q[...] = found._q
        return out
    if tuple(out.shape) != tuple(found.shape):
        out.resize_(found.shape)
    return out.copy_(found)
