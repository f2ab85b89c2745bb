"""LAPACK under the names of torch 0.4 to 1.8: `gesv`, `symeig`, `eig`, `gels`, `potrf`, `trtrs`, `btrifact`, `lu`."""

from __future__ import annotations

import builtins
from collections import namedtuple
from typing import Any

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, guard_again
from engine.core.checks import broadcast_shapes
from engine.dispatch import PUBLIC, composite, op, samples
from engine.ops.linalg.eigen import (
    eigenvalues,
    hermitian_values,
    linalg_eig,
    linalg_eigh,
    linalg_lstsq,
)
from engine.ops.linalg.factor import cholesky, cholesky_inverse, cholesky_solve, geqrf
from engine.ops.linalg.systems import (
    linalg_lu_factor_ex,
    linalg_lu_solve,
    linalg_solve_system,
    linalg_solve_triangular,
    lu_unpack,
    old_check,
    refuse_info,
    warn_of_old,
)
from engine.ops.products import mH, store
from engine.tensor import Tensor

_LU = namedtuple("_lu_with_info", ("LU", "pivots", "info"))
_Solve = namedtuple("solve", ("solution", "LU"))
_Symeig = namedtuple("symeig", ("eigenvalues", "eigenvectors"))
_Eig = namedtuple("eig", ("eigenvalues", "eigenvectors"))
_Gels = namedtuple("lstsq", ("solution", "QR"))


@composite(names=("btrifact",))
def lu(input, pivot=True, get_infos=False, out=None) -> Any:
    """P A = L U packed into one matrix, the pivots from 1, and with get_infos the first zero pivot.

    input (*, m, n) -> (*, m, n), (*, k)[, (*)].
    """
    if out is not None:  # copied, in the graph and into any dtype, as torch does
        for target, value in zip(out, lu(input, pivot, get_infos)):
            target.resize_as_(value).copy_(value)
        return out
    warn_of_old(
        "lu",
        "linalg.lu_factor / torch.linalg.lu_factor_ex",
        "LU, pivots = torch.lu(A, compute_pivots)\n"
        "should be replaced with\n"
        "LU, pivots = torch.linalg.lu_factor(A, compute_pivots)\n"
        "and\n"
        "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\n"
        "should be replaced with\n"
        "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)",
    )
    found = linalg_lu_factor_ex(input, pivot=pivot)
    return _LU(*found) if get_infos else (found.LU, found.pivots)


@composite()
def btrifact_with_info(input, pivot=True) -> Any:
    """As `lu(get_infos=True)`, the name of torch 0.4.  input (*, m, n) -> (*, m, n), (*, k), (*)."""
    return lu(input, pivot, True)


@composite()
def btrisolve(input, LU_data, LU_pivots, *, out=None):
    """As `lu_solve` for a batch of vectors, the name of torch 0.4.

    input (b, n), LU_data (b, n, n), LU_pivots (b, n) -> (b, n).
    """
    if out is not None:
        return store(out, "btrisolve", btrisolve, input, LU_data, LU_pivots)
    if input._array.ndim == LU_data._array.ndim:
        return linalg_lu_solve(LU_data, LU_pivots, input)
    return linalg_lu_solve(LU_data, LU_pivots, input.unsqueeze(-1)).squeeze(-1)


@composite(method=False)
def btriunpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True) -> Any:
    """As `lu_unpack`, the name of torch 0.4.  (*, m, n), (*, k) -> (*, m, m), (*, m, k), (*, k, n)."""
    return lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots)


@composite(names=("gesv",))
def solve(input, A, *, out=None) -> Any:
    """X of A X = input, and the factors of A (torch 1.1; now `linalg.solve`, with the arguments the other way round).

    input (*, n, k), A (*, n, n) -> (*, n, k), (*, n, n).  RuntimeError for shapes that do not fit, LinAlgError for a
    singular A.
    """
    if out is not None:
        return store(out, "solve", solve, input, A)
    vector = input._array.ndim == 1
    if vector:
        input = input.unsqueeze(-1)
    old_check("solve", input._array, A._array)
    factors = linalg_lu_factor_ex(A.detach())
    refuse_info("solve", factors.info._array)
    result = linalg_solve_system(A, input)
    return _Solve(result.squeeze(-1) if vector else result, factors.LU)


@composite()
def symeig(input, eigenvectors=False, upper=True, *, out=None) -> Any:
    """Eigenvalues (rising) and, if asked, eigenvectors of symmetric matrices (torch 1.1; now `linalg.eigh`).

    input (*, n, n) -> (*, n), (*, n, n) or empty.
    """
    if out is not None:
        return store(out, "symeig", symeig, input, eigenvectors, upper)
    side = "U" if upper else "L"
    if eigenvectors:
        return _Symeig(*linalg_eigh(input, side))
    return _Symeig(hermitian_values(input, side), input.new_zeros((0,)))


@composite()
def eig(input, eigenvectors=False, *, out=None) -> Any:
    """Eigenvalues as (real, imaginary) pairs and, if asked, eigenvectors packed as LAPACK has them.

    input (n, n) -> (n, 2), (n, n) or empty.  A conjugate pair of eigenvectors is its real part, then its imaginary
    part.
    """
    if out is not None:
        return store(out, "eig", eig, input, eigenvectors)
    if not eigenvectors:
        values = eigenvalues(input)
        return _Eig(PUBLIC["stack"]([values.real, values.imag], -1), input.new_zeros((0,)))
    values, vectors = linalg_eig(input)
    columns = []
    skip = False
    imaginary = values._array.imag.tolist()
    for i, part in enumerate(imaginary):
        if skip:
            skip = False
            continue
        columns.append(vectors[:, i].real)
        if part != 0 and i + 1 < len(imaginary):
            columns.append(vectors[:, i].imag)
            skip = True
    packed = PUBLIC["stack"](columns, 1) if columns else input.new_zeros((0, 0))
    return _Eig(PUBLIC["stack"]([values.real, values.imag], -1), packed)


@composite(names=("gels",))
def lstsq(input, A, *, out=None) -> Any:
    """X that minimises |A X - input|, below it the norms of the residuals, and the QR of A (now `linalg.lstsq`).

    input (m, k), A (m, n) -> (max(m, n), k), (m, n).
    """
    if out is not None:
        return store(out, "lstsq", lstsq, input, A)
    m, n = A._array.shape[-2:]
    solution = linalg_lstsq(A, input).solution
    if m > n:
        q, _ = PUBLIC["qr"](A, False)
        rest = PUBLIC["matmul"](mH(q[..., n:]), input)
        solution = PUBLIC["cat"]([solution, rest], -2)
    return _Gels(solution, geqrf(A.detach()).a)


@composite()
def potrf(input, upper=True, *, out=None):
    """As `cholesky`, the name of torch 0.4, where upper was the default.  input (*, n, n) -> (*, n, n)."""
    return cholesky(input, upper, out=out)


@composite()
def potri(input, upper=True, *, out=None):
    """As `cholesky_inverse`, the name of torch 0.4, where upper was the default.  input (*, n, n) -> (*, n, n)."""
    return cholesky_inverse(input, upper, out=out)


@composite()
def potrs(input, L, upper=True, *, out=None):
    """As `cholesky_solve`, the name of torch 0.4, where upper was the default.

    input (*, n, k), L (*, n, n) -> (*, n, k).
    """
    return cholesky_solve(input, L, upper, out=out)


@op(returns=("u", "pivot"), method=True)
@samples(lambda t: [(t.constant(t.positive(1, 1)),)])
def pstrf(xp, input, upper=True, tol=-1):
    """The Cholesky factor of P^T A P with complete pivoting, and the pivots from 1 (torch 0.4).

    input (n, n) -> (n, n), (n) int32.
    """
    n = input.shape[-1]
    lower = xp.tril(input) if not upper else xp.tril(xp.swapaxes(input, -1, -2))
    full = lower + xp.swapaxes(xp.tril(lower, -1), -1, -2)
    order = xp.arange(n)
    factor = xp.zeros_like(full)
    limit = float(tol)
    if limit < 0:
        limit = n * xp.finfo(input.dtype).eps * builtins.max(float(xp.diagonal(full).max()) if n else 0.0, 0.0)
    for j in range(n):
        best = int(xp.diagonal(full)[j:].argmax()) + j
        for array in (full, factor):
            array[[j, best]] = array[[best, j]]
        full[:, [j, best]] = full[:, [best, j]]
        order[[j, best]] = order[[best, j]]
        if float(full[j, j]) <= limit:
            break
        factor[j, j] = xp.sqrt(full[j, j])
        factor[j + 1 :, j] = full[j + 1 :, j] / factor[j, j]
        full[j + 1 :, j + 1 :] -= factor[j + 1 :, j, None] * factor[None, j + 1 :, j]
    result = xp.ascontiguousarray(factor.T) if upper else factor
    return result, (order + 1).astype(xp.int32)


_Triangular = namedtuple("triangular_solve", ("solution", "cloned_coefficient"))


@composite()
@samples(lambda t: [(t(3, 2), t.positive(3, 3)), (t(3, 2), t.positive(2, 3, 3), False, True)])
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False, *, out=None
) -> Any:
    """X of A X = input for a triangle of A, and a copy of A (deprecated: `linalg.solve_triangular`).

    input (*, n, k), A (*, n, n) -> (*, n, k), (*, n, n).  RuntimeError for shapes or dtypes that do not fit.
    """
    if out is not None:
        return store(out, "triangular_solve", triangular_solve, input, A, upper, transpose, unitriangular)
    warn_of_old(
        "triangular_solve",
        "linalg.solve_triangular",
        "torch.linalg.solve_triangular has its arguments reversed and does not return a copy of one of the inputs.\n"
        "X = torch.triangular_solve(B, A).solution\n"
        "should be replaced with\n"
        "X = torch.linalg.solve_triangular(A, B).",
    )
    b, a = input._array, A._array
    for label, x in (("b", b), ("A", a)):
        if x.ndim < 2:
            raise RuntimeError(
                f"torch.triangular_solve: Expected {label} to have at least 2 dimensions, but it has {x.ndim} "
                "dimensions instead"
            )
    old_check("triangular_solve", b, a)
    lead = broadcast_shapes(b.shape[:-2], a.shape[:-2])
    coefficient = A.expand(*lead, *a.shape[-2:]).clone()
    if transpose:
        A, upper = A.transpose(-2, -1), not upper
    solution = linalg_solve_triangular(A, input, upper=upper, unitriangular=unitriangular)
    name = "TriangularSolveBackward0"
    guard_again(guard(name_node(solution, name), input, A), grad=True)
    return _Triangular(solution, name_node(coefficient, name))


@composite()
def trtrs(input, A, upper=True, transpose=False, unitriangular=False, *, out=None) -> Any:
    """As `triangular_solve`, the name of torch 0.4.  input (*, n, k), A (*, n, n) -> (*, n, k), (*, n, n)."""
    return triangular_solve(input, A, upper, transpose, unitriangular, out=out)
