"""Matrix products by cublasLt: half precision accumulates in float32, batches and transposes cost no copy, `linear`'s
bias is added by the product itself."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine.backends.cuda import blaslt
from engine.backends.cuda.flags import matmul as settings
from engine.dispatch import kernel
from engine.ops.linalg import products


def _served(*arrays: Any) -> blaslt.Blas | None:
    """The library, if it serves operands of these types and sizes."""
    first = arrays[0]
    if any(a.dtype != first.dtype or not a.size for a in arrays) or first.dtype.name not in blaslt.TYPES:
        return None
    return blaslt.used()


@kernel(products.mm, "cuda")
def _mm(xp, input, mat2):
    blas = _served(input, mat2)
    if blas is None or input.ndim != 2 or mat2.ndim != 2 or input.shape[1] != mat2.shape[0]:
        return NotImplemented
    return blaslt.product(blas, xp, input, mat2, tf32=settings.allow_tf32)


@kernel(products.bmm, "cuda")
def _bmm(xp, input, mat2):
    blas = _served(input, mat2)
    if blas is None or input.ndim != 3 or mat2.ndim != 3 or input.shape[0] != mat2.shape[0]:
        return NotImplemented
    if input.shape[2] != mat2.shape[1]:
        return NotImplemented
    return blaslt.product(blas, xp, input, mat2, tf32=settings.allow_tf32)


@kernel(products.batched, "cuda")
def _batched(xp, input, other):
    blas = _served(input, other)
    if blas is None or input.ndim < 2 or other.ndim < 2 or input.shape[-1] != other.shape[-2]:
        return NotImplemented
    if other.ndim == 2:  # one matrix for all batches: one large product
        rows = input.reshape(prod(input.shape[:-1]), input.shape[-1])
        made = blaslt.product(blas, xp, rows, other, tf32=settings.allow_tf32)
        return made.reshape(*input.shape[:-1], other.shape[1])
    try:
        lead = np.broadcast_shapes(input.shape[:-2], other.shape[:-2])
    except ValueError:
        return NotImplemented
    a, b = (xp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (input, other))
    return blaslt.product(blas, xp, a, b, tf32=settings.allow_tf32)


@kernel(products.linear, "cuda")
def _linear(xp, input, weight, bias=None):
    blas = _served(input, weight, *([] if bias is None else [bias]))
    if blas is None or weight.ndim != 2 or not input.ndim or input.shape[-1] != weight.shape[1]:
        return NotImplemented
    if bias is not None and (bias.shape != weight.shape[:1] or bias.dtype == np.float64):
        return NotImplemented  # cublasLt documents no bias for float64
    rows = input.reshape(prod(input.shape[:-1]), input.shape[-1])
    made = blaslt.product(blas, xp, rows, weight.T, bias, tf32=settings.allow_tf32)
    return made.reshape(*input.shape[:-1], weight.shape[0])
