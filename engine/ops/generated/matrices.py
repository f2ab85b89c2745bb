"""Determinants and linear systems of many small matrices, and triangular ones, as generated kernels (the extra `jit`).

They are the kernels "cpu" of their ops; what they do not serve is left to LAPACK, a call for each matrix.
"""

from __future__ import annotations

from math import prod
from typing import Any

from engine.dispatch import kernel
from engine.kernels import matrices
from engine.kernels.scans import BAND, bands
from engine.ops.generated.layers import plain, run
from engine.ops.linalg import systems

_LARGEST = 4  # rows and columns whose steps are written out
_FEW = 16  # matrices
_TRIANGLE = 128  # rows up to which substitution is not slower than products of blocks


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


@kernel(systems.linalg_solve_triangular, "cpu", only_launches=True)
def _solve_triangular(xp, A, B, *, upper, left=True, unitriangular=False):
    n = A.shape[-1]
    if not 0 < n <= _TRIANGLE or A.dtype != B.dtype or A.shape[:-2] != B.shape[:-2] or not B.size or A.ndim > 3:
        return NotImplemented
    made = xp.empty(B.shape, B.dtype)
    if not plain(made):
        return NotImplemented
    of_a, of_b = ([s // x.itemsize for s in (*[0] * (3 - x.ndim), *x.strides)] for x in (A, B))
    arrays, columns = [A, B, made], B.shape[-1]
    if not left:
        of_a[1:], of_b[1:], columns, upper = of_a[:0:-1], of_b[:0:-1], B.shape[-2], not upper
        arrays.append(xp.empty(B.shape, B.dtype))
    write = matrices.solved_triangles(upper, unitriangular, not left)
    numbers, count = [n, columns, *of_a, *of_b], made.size // (n * columns) * bands(columns)
    run(write, arrays, numbers, count, n * n * min(columns, BAND))
    return made
