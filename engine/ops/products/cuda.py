"""`linear` by cublasLt: the product adds the bias itself; `mm` once more, without its checks.  The other products reach
it through the array module (`engine/backends/cuda/array_module.py`)."""

from __future__ import annotations

from math import prod

import numpy as np

from engine.backends.cuda import blaslt
from engine.backends.cuda.flags import matmul as settings
from engine.dispatch import kernel
from engine.ops import products


@kernel(products.mm, "cuda")
def _mm(xp, input, mat2):
    found = blaslt.repeated(xp, input, mat2)  # what passed the checks of `mm` once
    return NotImplemented if found is None else found


@kernel(products.linear, "cuda")
def _linear(xp, input, weight, bias=None):
    if bias is None or weight.ndim != 2 or not input.ndim or input.shape[-1] != weight.shape[1]:
        return NotImplemented
    if bias.shape != weight.shape[:1] or bias.dtype != input.dtype or bias.dtype == np.float64:
        return NotImplemented  # cublasLt documents no bias for float64
    if not input.size or not weight.size or not blaslt.serves(weight, weight) or weight.dtype != input.dtype:
        return NotImplemented
    blas = blaslt.used()
    assert blas is not None
    rows = input if input.ndim == 2 else input.reshape(prod(input.shape[:-1]), input.shape[-1])
    made = blaslt.product(blas, xp, rows, weight.T, bias, tf32=settings.tf32())
    return made if input.ndim == 2 else made.reshape(*input.shape[:-1], weight.shape[0])
