"""Determinants and linear systems of many small matrices as generated kernels (the extra `jit`).

They are the kernels "cpu" of their ops; what they do not serve is left to LAPACK, a call for each matrix.
"""

from __future__ import annotations

from math import prod
from typing import Any

from engine.dispatch import kernel
from engine.kernels import matrices
from engine.ops.generated.layers import plain, run
from engine.ops.linalg import systems

_LARGEST = 4  # rows and columns whose steps are written out
_FEW = 16  # matrices


def _small(A: Any) -> bool:
    return A.ndim > 2 and A.shape[-1] == A.shape[-2] and 0 < A.shape[-1] <= _LARGEST and prod(A.shape[:-2]) >= _FEW


@kernel(systems.linalg_slogdet, "cpu", only_launches=True)
def _slogdet(xp, A):
    if not _small(A) or not plain(A):
        return NotImplemented
    batch, n = A.shape[:-2], A.shape[-1]
    signs, sizes = xp.empty(batch, A.dtype), xp.empty(batch, A.dtype)
    run(matrices.determinants(n, True), [A, signs, sizes], [], prod(batch), n * n * n)
    return signs, sizes


@kernel(systems.linalg_det, "cpu", only_launches=True)
def _det(xp, A):
    if not _small(A) or not plain(A):
        return NotImplemented
    made, n = xp.empty(A.shape[:-2], A.dtype), A.shape[-1]
    run(matrices.determinants(n, False), [A, made], [], made.size, n * n * n)
    return made


@kernel(systems.inverse, "cpu")
def _inverse(xp, input):
    if not _small(input) or not plain(input):
        return NotImplemented
    made, bad, n = xp.empty(input.shape, input.dtype), xp.empty(input.shape[:-2], input.dtype), input.shape[-1]
    run(matrices.systems(n, 0, False), [input, input, made, bad], [], bad.size, n * n * n)
    return NotImplemented if bad.any() else made


@kernel(systems.linalg_solve_system, "cpu")
def _solve(xp, A, B, *, left=True, check=True):
    if not left or not _small(A) or A.shape[:-2] != B.shape[:-2] or not 0 < B.shape[-1] <= _LARGEST:
        return NotImplemented
    transposed = not A.flags.c_contiguous
    given = A.swapaxes(-1, -2) if transposed else A
    if not plain(given, B):
        return NotImplemented
    batch, n = A.shape[:-2], A.shape[-1]
    made, bad = xp.empty(B.shape, A.dtype), xp.empty(batch, A.dtype)
    run(matrices.systems(n, B.shape[-1], transposed), [given, B, made, bad], [], prod(batch), n * n * n)
    return NotImplemented if bad.any() else made
