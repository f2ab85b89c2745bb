"""Linear algebra (torch.linalg): norms, factorizations, solvers, eigenvalues, products.

https://docs.pytorch.org/docs/2.13/linalg.html
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from engine.autograd.versions import guard, guard_again
from engine.core import dtypes
from engine.core.checks import numel, wrap_dim
from engine.dispatch import PUBLIC, has
from engine.dispatch.arguments import checked
from engine.dispatch.out import store, store_result
from engine.ops.linalg import contractions, eigen, factor, systems
from engine.ops.linalg.ldl import ldl_factor, ldl_factor_ex, ldl_solve
from engine.ops.linalg.norms import linalg_vector_norm
from engine.ops.linalg.systems import LinAlgError, check_square
from engine.ops.pointwise.arithmetic import conj_if_complex as conj
from engine.ops.products import matmul as _matmul
from engine.ops.products import scalar_name
from engine.tensor import Tensor

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq", "lu",
    "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank",
    "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals",
    "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip


def _out(out: Any, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs) if out is None else store(out, name, function, *args, **kwargs)


# --- factorizations and solvers


def cholesky(A: Tensor, *, upper: bool = False, out: Any = None) -> Tensor:
    """The triangular factor L of A = L L^H.  A (*, n, n) -> (*, n, n).  LinAlgError unless positive-definite."""
    return factor.linalg_cholesky(A, upper=upper, out=out)


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """The factor, and instead of an error the order of the minor that is not positive.

    A (*, n, n) -> (*, n, n), (*).
    """
    return factor.linalg_cholesky_ex(A, upper=upper, check_errors=check_errors, out=out)


def qr(A: Tensor, mode: str = "reduced", *, out: Any = None) -> Any:
    """Q and R of A = Q R; mode "reduced", "complete" or "r".  A (*, m, n) -> (*, m, k), (*, k, n)."""
    return factor.linalg_qr(A, mode, out=out)


def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """P A = L U packed into one matrix, and the pivots from 1.  A (*, m, n) -> (*, m, n), (*, k).

    RuntimeError if U is singular.
    """

    def make() -> Any:
        found = systems.linalg_lu_factor_ex(A, pivot=pivot)
        systems.refuse_info("torch.linalg.lu_factor", found.info._array)
        return _LUFactor(found.LU, found.pivots)

    return _out(out, "linalg_lu_factor", lambda *_: make(), A)


_LUFactor = namedtuple("linalg_lu_factor", ("LU", "pivots"))


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """As `lu_factor`, with the first zero pivot instead of an error.  A (*, m, n) -> (*, m, n), (*, k), (*)."""
    return systems.linalg_lu_factor_ex(A, pivot=pivot, check_errors=check_errors, out=out)


_LU = namedtuple("linalg_lu", ("P", "L", "U"))


def lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """P, L, U of A = P L U.  A (*, m, n) -> (*, m, m), (*, m, k), (*, k, n)."""

    def make() -> Any:
        if A._array.ndim < 2:
            raise RuntimeError(
                f"linalg.lu: Expected tensor with 2 or more dimensions. Got size: {list(A._array.shape)} instead"
            )
        found = systems.linalg_lu_factor_ex(A, pivot=pivot)
        P, L, U = systems.lu_unpack(found.LU, found.pivots)
        m, n = A._array.shape[-2:]
        low, high = L.detach(), U.detach()
        guard_again(guard_again(L, P, high, grad=m <= n), L)
        return _LU(P, L, guard_again(guard_again(U, P, low, grad=m >= n), U))

    return _out(out, "linalg_lu", lambda *_: make(), A)


def lu_solve(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
    out: Any = None,
) -> Tensor:
    """X of A X = B from the factors of A.  LU (*, n, n), pivots (*, n), B (*, n, k) -> (*, n, k)."""
    return _out(out, "linalg_lu_solve", systems.linalg_lu_solve, LU, pivots, B, left=left, adjoint=adjoint)


def inv(A: Tensor, *, out: Any = None) -> Tensor:
    """The inverse.  A (*, n, n) -> (*, n, n).  LinAlgError for a singular matrix."""
    return systems.inverse(A, out=out)


def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """The inverse, and instead of an error the first zero pivot.  A (*, n, n) -> (*, n, n), (*)."""
    return systems.linalg_inv_ex(A, check_errors=check_errors, out=out)


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Any = None) -> Tensor:
    """X of A X = B (X A = B with left=False).  A (*, n, n), B (*, n, k) or (*, n) -> as B.

    LinAlgError for a singular A.
    """
    return systems.linalg_solve(A, B, left=left, out=out)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """As `solve`, with the first zero pivot instead of an error.  A (*, n, n), B (*, n, k) or (*, n) -> as B, (*)."""
    return _out(out, "linalg_solve_ex", systems.linalg_solve_ex, A, B, left=left, check_errors=check_errors)


def solve_triangular(
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    out: Any = None,
) -> Tensor:
    """X of A X = B for a triangle of A.  A (*, n, n), B (*, n, k) -> (*, n, k).

    Zeros on the diagonal give inf and nan.
    """
    if isinstance(A, Tensor) and isinstance(B, Tensor) and B.dtype is not A.dtype:
        B = (B if A.is_complex() or not B.is_complex() else B.real).to(A.dtype)
    return systems.linalg_solve_triangular(A, B, upper=upper, left=left, unitriangular=unitriangular, out=out)


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None) -> Any:
    """X that minimises |A X - B|, with residuals, rank and singular values.

    A (*, m, n), B (*, m, k) -> (*, n, k), ...
    """
    found = _out(out, "linalg_lstsq", eigen.linalg_lstsq, A, B, rcond, driver=driver)
    return found if out is None else eigen.Lstsq(*found)


def householder_product(A: Tensor, tau: Tensor, *, out: Any = None) -> Tensor:
    """The first columns of a product of Householder reflections.  A (*, m, n), tau (*, k) -> (*, m, n)."""
    return _out(out, "linalg_householder_product", factor.linalg_householder_product, A, tau)


# --- determinant, spectra


def det(A: Tensor, *, out: Any = None) -> Tensor:
    """The determinant.  A (*, n, n) -> (*)."""
    return systems.linalg_det(A, out=out)


def slogdet(A: Tensor, *, out: Any = None) -> Any:
    """Sign and logarithm of the absolute value of the determinant.  A (*, n, n) -> (*), (*)."""
    return systems.linalg_slogdet(A, out=out)


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None) -> Any:
    """U, S, Vh of A = U diag(S) Vh.  A (*, m, n) -> (*, m, m), (*, k), (*, n, n); reduced unless full_matrices."""
    return eigen.linalg_svd(A, full_matrices, driver=driver, out=out)


def svdvals(A: Tensor, *, driver: str | None = None, out: Any = None) -> Tensor:
    """The singular values, falling.  A (*, m, n) -> (*, k)."""
    return eigen.singular_values(A, driver=driver, out=out)


def eigh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Any:
    """Eigenvalues (rising) and eigenvectors of Hermitian matrices.  A (*, n, n) -> (*, n), (*, n, n)."""
    return eigen.linalg_eigh(A, UPLO, out=out)


def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Tensor:
    """Eigenvalues (rising) of Hermitian matrices.  A (*, n, n) -> (*, n)."""
    return eigen.hermitian_values(A, UPLO, out=out)


def eig(A: Tensor, *, out: Any = None) -> Any:
    """Eigenvalues and eigenvectors, always complex.  A (*, n, n) -> (*, n), (*, n, n)."""
    return eigen.linalg_eig(A, out=out)


def eigvals(A: Tensor, *, out: Any = None) -> Tensor:
    """Eigenvalues, always complex.  A (*, n, n) -> (*, n)."""
    return eigen.eigenvalues(A, out=out)


def pinv(
    A: Tensor,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Any = None,
) -> Tensor:
    """The Moore-Penrose inverse.  A (*, m, n) -> (*, n, m)."""
    return _out(out, "linalg_pinv", eigen.linalg_pinv, A, rcond, hermitian, atol=atol, rtol=rtol)


def matrix_rank(
    A: Tensor,
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Any = None,
) -> Tensor:
    """Count the singular values that exceed the tolerance.  A (*, m, n) -> (*) int64."""
    return _out(
        out,
        "linalg_matrix_rank",
        eigen.linalg_matrix_rank,
        A,
        tol,
        hermitian,
        atol=atol,
        rtol=rtol,
    )


# --- products


def matmul(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The product by rank, as `torch.matmul`.  input (*, n, k), other (*, k, m) -> (*, n, m)."""
    return _matmul(input, other, out=out)


def matrix_power(A: Tensor, n: int, *, out: Any = None) -> Tensor:
    """The product of n copies of A, of its inverse for n < 0.  A (*, m, m) -> (*, m, m)."""
    return contractions.matrix_power(A, n, out=out)


def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices.  A (*, n, n) -> (*, n, n)."""
    return eigen.matrix_exp(A)


def multi_dot(tensors: tuple[Tensor, ...], *, out: Any = None) -> Tensor:
    """The product of a chain of matrices in the cheapest order.  [(n, a), (a, b), ..., (z, m)] -> (n, m)."""
    return contractions.multi_dot(tensors, out=out)


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """The cross product along `dim`.  input (*), other (*) -> (*)."""
    return contractions.linalg_cross(input, other, dim=dim, out=out)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """The sum of conj(x) * y along `dim`.  x (*), y (*) -> (* without dim), broadcast."""
    a, b = x._array, y._array
    if dtypes.from_numpy(a.dtype).category < dtypes.FLOATING:
        raise RuntimeError(f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {scalar_name(a)}")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {scalar_name(a)} and y of "
            f"type {scalar_name(b)} instead"
        )
    if out is None and a.dtype.kind == "c":
        return guard((conj(x) * y).sum(dim), x, y)
    return _out(out, "linalg_vecdot", lambda *_: (conj(x) * y).sum(dim), x, y)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of the last two dims.  A (*, n, m) -> (*, k)."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of the elements, along a new last dim.  x (*, n) -> (*, n, N)."""
    array = x._array
    if not array.ndim:
        x = x.reshape(1)
        array = x._array
    count = array.shape[-1] if N is None else N
    if count <= 1:
        raise RuntimeError("N must be greater than 1.")
    if x.dtype.category < dtypes.FLOATING:
        x = x.to(dtypes.int64)
    ones = x.new_ones((*x._array.shape, 1))
    powers = PUBLIC["cumprod"](x.unsqueeze(-1).expand(*x._array.shape, count - 1), -1)
    return PUBLIC["cat"]([ones, powers], -1)


@has(out_as="graph")
def tensorinv(A: Tensor, ind: int = 2, *, out: Any = None) -> Tensor:
    """The inverse of the map that `tensordot(A, x, dims)` is.

    A (*a, *b), prod a = prod b, a of `ind` dims -> (*b, *a).
    """
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    shape = A._array.shape
    first, last = numel(shape[:ind]), numel(shape[ind:])
    if first != last:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{last} != {first}"
        )
    make = lambda *_: systems.inverse(A.reshape(first, last)).reshape((*shape[ind:], *shape[:ind]))
    return make() if out is None else store_result(out, "linalg_tensorinv", make)


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Any = None) -> Tensor:
    """X of tensordot(A, X) = B.  A (*b, *x), B (*b), prod b = prod x -> (*x)."""
    if dims is not None:
        ndim = A._array.ndim
        moved = [wrap_dim(d, ndim) for d in dims]
        A = A.movedim(moved, list(range(ndim - len(moved), ndim)))
    shape, ndim = A._array.shape, B._array.ndim
    first, last = numel(shape[:ndim]), numel(shape[ndim:])
    if first != last:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {last} != {first}"
        )
    return _out(
        out,
        "linalg_tensorsolve",
        lambda: systems.linalg_solve(A.reshape(first, last), B.flatten()).reshape(shape[ndim:]),
    )


# --- norms


def vector_norm(
    x: Tensor,
    ord: complex = 2,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Any = None,
) -> Tensor:
    """The p-norm of the elements along `dim` (all by default).  x (*) -> (* without dim), real."""
    return linalg_vector_norm(x, ord, dim, keepdim, dtype=dtype, out=out)


_ORDERS = (2, -2, 1, -1, math.inf, -math.inf)


@has(out_as="graph")
def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Any = None,
) -> Tensor:
    """The norm of matrices: "fro", "nuc", 2, -2 (singular values), 1, -1 (columns), inf, -inf (rows).

    A (*, n, m) -> (*).  RuntimeError for another order, or where the dims are not two.
    """
    name = "linalg.matrix_norm"
    array = A._array
    systems.check_matrix(array, name)
    if isinstance(dim, int):
        raise TypeError(
            "linalg_matrix_norm() received an invalid combination of arguments - got (Tensor, dim=int), but expected "
            "one of:"
        )
    if len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {' '.join(str(d) for d in dim)}")
    first, second = (wrap_dim(d, array.ndim) for d in dim)
    if first == second:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    found = dtypes.from_numpy(array.dtype)
    if found.category < dtypes.FLOATING:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {scalar_name(array)}")
    if isinstance(ord, str) and ord not in ("fro", "nuc"):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    if not isinstance(ord, str) and ord not in _ORDERS:
        raise RuntimeError(f"{name}: Order {ord:g} not supported.")
    if out is not None:
        return store(out, "linalg_matrix_norm", matrix_norm, A, ord, dim, keepdim, dtype=dtype)
    if ord == "fro":
        return linalg_vector_norm(A, 2, (first, second), keepdim, dtype=dtype)
    if dtype is not None:
        A = A.to(dtype)
    if ord in ("nuc", 2, -2):
        low, high = sorted((first, second))
        values = eigen.singular_values(A.movedim((first, second), (-2, -1)))
        if not values._array.shape[-1] and ord == 2:
            result = values.detach().sum(-1)
        else:
            result = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
        return result.unsqueeze(low).unsqueeze(high) if keepdim else result
    columns, rows = (first, second) if abs(ord) == 1 else (second, first)
    sums = linalg_vector_norm(A, 1, columns, True)
    result = sums.amax(rows, True) if ord > 0 else sums.amin(rows, True)
    if keepdim:
        return result
    for d in sorted((first, second), reverse=True):
        result = result.squeeze(d)
    return result


@has(out_as="graph")
def norm(
    A: Tensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    out: Any = None,
    dtype: Any = None,
) -> Tensor:
    """A vector or matrix norm, by `ord` and the number of dims.  A (*) -> (* without dim), real.

    ord None: the 2-norm of all elements (or of `dim`).  RuntimeError where the dims do not suit the order.
    """
    if out is not None:
        return store(out, "linalg_norm", norm, A, ord, dim, keepdim, dtype=dtype)
    if ord is None:
        return linalg_vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is not None:
        dim = (dim,) if isinstance(dim, int) else tuple(dim)
        if len(dim) not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
    elif A._array.ndim not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A._array.ndim}D."
        )
    two = len(dim) == 2 if dim is not None else A._array.ndim == 2
    if isinstance(ord, str):
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    if two:
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return linalg_vector_norm(A, ord, dim, keepdim, dtype=dtype)


@has(out_as="graph")
def cond(A: Tensor, p: Any = None, *, out: Any = None) -> Tensor:
    """The condition number: the norm of A times that of its inverse.

    A (*, n, n) -> (*); (*, m, n) for p in (None, 2, -2).
    inf for a singular matrix.  RuntimeError for another p.
    """
    array = A._array
    if array.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if isinstance(p, str) and p not in ("fro", "nuc"):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if not isinstance(p, str) and p is not None and p not in _ORDERS:
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p:g}")

    def make() -> Tensor:
        if not array.size:
            return A.detach().abs().sum((-2, -1))
        if p is None or p in (2, -2):
            values = eigen.singular_values(A)
            if p == -2:
                return values[..., -1] / values[..., 0]
            return values[..., 0] / values[..., -1]
        label = p if isinstance(p, str) else f"{p:g}"
        check_square(array, f"linalg.cond(ord={label})")
        if p == "nuc":
            values = eigen.singular_values(A)
            return values.sum(-1) * (1 / values).sum(-1)
        inverse, info = systems.linalg_inv_ex(A)
        inverse = inverse.masked_fill((info != 0).unsqueeze(-1).unsqueeze(-1), math.inf)
        return matrix_norm(A, p) * matrix_norm(inverse, p)

    return make() if out is None else store_result(out, "linalg_cond", lambda *_: make(), A)


# those whose first parameter, A or x in the documentation, is "input" to torch's parser
_INPUT = frozenset(
    """cholesky cholesky_ex cond eig eigh eigvals eigvalsh householder_product lstsq matrix_exp matrix_norm matrix_power
    matrix_rank norm pinv solve_triangular tensorinv tensorsolve vector_norm""".split()
)
_SECOND = {"lstsq": {"B": "b"}, "tensorsolve": {"B": "other"}}  # likewise
for _name in __all__:  # arguments are checked against the annotations, under torch's inner names
    _function = globals()[_name]
    if isinstance(_function, FunctionType):
        _first = {_function.__code__.co_varnames[0]: "input"} if _name in _INPUT else {}
        globals()[_name] = checked(_function, name="linalg_" + _name, inner=_first | _SECOND.get(_name, {}))
