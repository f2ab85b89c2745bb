"""Spectra of matrices: SVD, eigenvalues, pseudo-inverse, least squares, rank, the matrix exponential."""

from __future__ import annotations

import builtins
from collections import namedtuple
from typing import Any

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, guard_again
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch import PUBLIC, composite, derivative, op, samples
from engine.dispatch.out import store
from engine.ops.linalg.systems import (
    LinAlgError,
    check_floating,
    check_matrix,
    check_square,
    eye_like,
    failed,
    linalg_solve_system,
)
from engine.ops.pointwise.arithmetic import conj_if_complex as conj
from engine.ops.products import matmul, mH, scalar_name
from engine.tensor import Tensor

# --- helpers


def _skew(x: Tensor) -> Tensor:
    return x - mH(x)


def _gaps(values: Tensor) -> Tensor:
    """values_j - values_i, 1 on the diagonal.  (*, n) -> (*, n, n)"""
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    return gaps.masked_fill(_diagonal_mask(gaps), 1)


def _diagonal_mask(square: Tensor) -> Tensor:
    return eye_like(square) != 0


def _off_diagonal(x: Tensor) -> Tensor:
    return x.masked_fill(_diagonal_mask(x), 0)


def _refuse_phase(diagonal: Tensor, scale: Tensor, name: str, what: str) -> None:
    """RuntimeError where a complex loss depends on the phase of the vectors."""
    if diagonal._array.dtype.kind != "c":
        return
    imaginary = abs(diagonal._array.imag)
    limit = 1e-2 if diagonal._array.dtype.itemsize == 8 else 1e-4
    if diagonal._array.size and not bool((imaginary <= limit * (1 + abs(scale._array).max())).all()):
        raise RuntimeError(
            f"{name}: The {what} in the complex case are specified up to multiplication by e^{{i phi}}. The specified "
            "loss function depends on this quantity, so it is ill-defined."
        )


def _finite(xp: Any, a: Any, name: str) -> None:
    good = xp.isfinite(a)
    if not bool(good.all()):
        flags = good.all((-1, -2))
        where = f"(Batch element {int((~flags).reshape(-1).argmax())}): " if flags.ndim else ""
        raise LinAlgError(
            f"{name}: {where}The algorithm failed to converge because the input matrix contained non-finite values."
        )


# --- SVD


def _svd_slope(
    gU: Tensor | None, gS: Tensor | None, gVh: Tensor | None, U: Tensor, S: Tensor, Vh: Tensor
) -> Tensor | None:
    if gU is None and gS is None and gVh is None:
        return None
    k = S._array.shape[-1]
    m, n = U._array.shape[-2], Vh._array.shape[-1]
    U, Vh = _cut(U, -1, k), _cut(Vh, -2, k)
    gU = None if gU is None else _cut(gU, -1, k)
    gVh = None if gVh is None else _cut(gVh, -2, k)
    if gU is None and gVh is None:
        return matmul(U * gS.unsqueeze(-2), Vh)
    inner = None
    skew_u = None if gU is None else _skew(matmul(mH(U), gU))
    skew_v = None if gVh is None else _skew(matmul(Vh, mH(gVh)))
    if S._array.dtype != U._array.dtype:
        total = [x for x in (skew_u, skew_v) if x is not None]
        both = total[0] + total[1] if len(total) == 2 else total[0]
        _refuse_phase(both.diagonal(0, -2, -1), both, "svd_backward", "singular vectors")
    E = _gaps(S * S)
    if skew_u is not None:
        inner = (skew_u / E) * S.unsqueeze(-2)
    if skew_v is not None:
        more = S.unsqueeze(-1) * (skew_v / E)
        inner = more if inner is None else inner + more
    if skew_u is not None and skew_v is not None and S._array.dtype != U._array.dtype:
        inner = inner + (skew_u.diagonal(0, -2, -1) / (2 * S)).diag_embed() - (inner * 0)
    if gS is not None:
        inner = inner + gS.diag_embed()
    result = None
    if m > k and gU is not None:
        scaled = gU / S.unsqueeze(-2)
        result = matmul(matmul(U, inner) + scaled - matmul(U, matmul(mH(U), scaled)), Vh)
        if n > k and gVh is not None:
            raise AssertionError("k is min(m, n)")
    elif n > k and gVh is not None:
        scaled = gVh / S.unsqueeze(-1)
        result = matmul(U, matmul(inner, Vh) + scaled - matmul(matmul(scaled, mH(Vh)), Vh))
    else:
        result = matmul(matmul(U, inner), Vh)
    return result


def _cut(x: Tensor, dim: int, k: int) -> Tensor:
    return x if x._array.shape[dim] == k else x.narrow(dim, 0, k)


@op(public=False, method=False, tensors=("A",), returns=("U", "S", "Vh"))
@derivative(
    A=lambda grad0, grad1, grad2, result0, result1, result2: _svd_slope(grad0, grad1, grad2, result0, result1, result2)
)
@samples(lambda t: [(t(3, 2), False), (t(2, 2, 3), False), (t(2, 2),)])
def linalg_svd(xp, A, full_matrices: bool = True, *, driver: str | None = None):
    """U, S, Vh of A = U diag(S) Vh, S falling.

    A (*, m, n) -> (*, m, m), (*, k), (*, n, n); (*, m, k), (*, k, n) unless full.
    RuntimeError unless floating, LinAlgError for inf or nan.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.svd.html
    """
    _check_svd(xp, A, driver)
    return _svd_arrays(xp, A, full_matrices)


def _svd_arrays(xp: Any, A: Any, full: bool) -> tuple[Any, Any, Any]:
    try:
        U, S, Vh = xp.linalg.svd(A, full_matrices=full)
    except failed(xp):
        raise LinAlgError(
            "linalg.svd: The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
            "repeated singular values (error code: 1)."
        ) from None
    return _by_columns(xp, U), S, _by_columns(xp, Vh)


def _by_columns(xp: Any, matrix: Any) -> Any:
    """A matrix laid out column by column, as LAPACK writes it."""
    return xp.ascontiguousarray(matrix.swapaxes(-1, -2)).swapaxes(-1, -2)


def _check_svd(xp: Any, A: Any, driver: Any) -> None:
    check_matrix(A, "linalg.svd")
    check_floating(A, "linalg.svd", "linalg_svd_cpu" if A.dtype.itemsize == 2 else None)
    if driver is not None:
        raise RuntimeError(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )
    _finite(xp, A, "linalg.svd")


def _svdvals_slope(grad: Tensor, A: Tensor) -> Tensor:
    U, _, Vh = linalg_svd(A, False)
    return matmul(U * grad.unsqueeze(-2), Vh)


@op(public=False, method=False, tensors=("A",), node="LinalgSvdBackward0")
@derivative(A=lambda grad, A: _svdvals_slope(grad, A))
@samples(lambda t: [(t(3, 2),), (t(2, 2, 3),), (t(0, 2),)])
def linalg_svdvals(xp, A, *, driver: str | None = None):
    """The singular values, falling.  A (*, m, n) -> (*, k).

    RuntimeError unless floating, LinAlgError for inf or nan.
    """
    _check_svd(xp, A, driver)
    return xp.linalg.svd(A, compute_uv=False)


_SVD = namedtuple("svd", ("U", "S", "V"))


@composite()
@samples(lambda t: [(t(3, 2),), (t(2, 3),)])
def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out=None) -> Any:
    """U, S, V of input = U diag(S) V^H (deprecated: `linalg.svd`).  input (*, m, n) -> (*, m, k), (*, k), (*, n, k).

    some=False: square U and V; compute_uv=False: zeros for U and V.
    """
    if out is not None:
        return store(out, "svd", svd, input, some, compute_uv)
    array = input._array
    if array.ndim < 2:
        raise RuntimeError(
            f"linalg.svd: input should have at least 2 dimensions, but has {array.ndim} dimensions instead"
        )
    if not compute_uv:
        lead, (m, n) = array.shape[:-2], array.shape[-2:]
        values = singular_values(input)
        return _SVD(input.new_zeros((*lead, m, m)), values, input.new_zeros((*lead, n, n)))
    U, S, Vh = linalg_svd(input, not some)
    return _SVD(U, S, mH(Vh))


# --- eigenvalues


def _eigh_slope(gL: Tensor | None, gV: Tensor | None, L: Tensor, V: Tensor) -> Tensor | None:
    if gL is None and gV is None:
        return None
    Vh = mH(V)
    if gV is None:
        return matmul(V * gL.unsqueeze(-2), Vh)
    inner = matmul(Vh, gV)
    _refuse_phase(inner.diagonal(0, -2, -1), inner, "linalg_eigh_backward", "eigenvectors")
    inner = _off_diagonal(inner / _gaps(L))
    if gL is not None:
        inner = inner + gL.diag_embed()
    found = matmul(matmul(V, inner), Vh)
    return (found + mH(found)) * 0.5  # A is Hermitian whatever its other triangle holds: so is its gradient


def _symmetric(t: Any, *shape: int) -> Any:
    import numpy as np

    root = t(*shape)._array
    return t.constant(root + np.swapaxes(root, -1, -2))


def _check_eigh(A: Any, UPLO: str) -> str:
    check_square(A, "linalg.eigh")
    side = UPLO.upper() if isinstance(UPLO, str) else UPLO
    if side not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    if dtypes.from_numpy(A.dtype).category < dtypes.FLOATING or A.dtype.itemsize == 2:
        raise NotImplementedError(f"\"linalg_eigh_cpu\" not implemented for '{scalar_name(A)}'")
    return side


def _eigh_arrays(xp: Any, A: Any, side: str, vectors: bool) -> Any:
    """`xp.linalg.eigh`, with nan for matrices that are not finite."""
    bad = ~xp.isfinite(A).all((-1, -2))
    if bool(bad.any()):
        A = xp.where(bad[..., None, None], xp.eye(A.shape[-1], dtype=A.dtype), A)
    if not vectors:
        values = xp.linalg.eigvalsh(A, UPLO=side)
        return xp.where(bad[..., None], xp.nan, values).astype(values.dtype) if bool(bad.any()) else values
    values, found = xp.linalg.eigh(A, UPLO=side)
    if bool(bad.any()):
        values = xp.where(bad[..., None], xp.nan, values).astype(values.dtype)
        found = xp.where(bad[..., None, None], xp.nan, found).astype(found.dtype)
    return values, found


@op(public=False, method=False, tensors=("A",), returns=("eigenvalues", "eigenvectors"))
@derivative(A=lambda grad0, grad1, result0, result1: _eigh_slope(grad0, grad1, result0, result1))
@samples(lambda t: [(_symmetric(t, 3, 3),), (_symmetric(t, 2, 2, 2), "U")])
def linalg_eigh(xp, A, UPLO: str = "L"):
    """Eigenvalues (rising) and eigenvectors (columns) of Hermitian matrices, of which one triangle is read.

    A (*, n, n) -> (*, n) real, (*, n, n).  RuntimeError unless square.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.eigh.html
    """
    values, vectors = _eigh_arrays(xp, A, _check_eigh(A, UPLO), True)
    return values, vectors


@op(public=False, method=False, tensors=("A",), node="LinalgEighBackward0")
@derivative(A=lambda grad, A, UPLO: _eigh_slope(grad, None, *linalg_eigh(A, UPLO)))
@samples(lambda t: [(_symmetric(t, 3, 3),), (_symmetric(t, 2, 2, 2), "U")])
def linalg_eigvalsh(xp, A, UPLO: str = "L"):
    """Eigenvalues, rising, of Hermitian matrices.  A (*, n, n) -> (*, n) real.  RuntimeError unless square."""
    return _eigh_arrays(xp, A, _check_eigh(A, UPLO), False)


def _eig_slope(gL: Tensor | None, gV: Tensor | None, A_dtype: Any, L: Tensor, V: Tensor) -> Tensor | None:
    if gL is None and gV is None:
        return None
    Vh = mH(V)
    if gV is None:
        inner = gL.unsqueeze(-1) * Vh
    else:
        projected = matmul(Vh, gV)
        diagonal = projected.diagonal(0, -2, -1)
        _refuse_phase(diagonal, projected, "linalg_eig_backward", "eigenvectors")
        inner = projected - matmul(Vh, V * ((diagonal + conj(diagonal)) * 0.5).unsqueeze(-2))
        inner = _off_diagonal(inner / conj(_gaps(L)))
        if gL is not None:
            inner = inner + gL.diag_embed()
        inner = matmul(inner, Vh)
    result = linalg_solve_system(Vh, inner, check=False)
    return result if A_dtype.is_complex else result.real


def _check_eig(xp: Any, A: Any, name: str) -> Any:
    check_square(A, name)
    found = dtypes.from_numpy(A.dtype)
    if found.category < dtypes.FLOATING:
        raise RuntimeError(f"Unknown Complex ScalarType for {scalar_name(A)}")
    if A.dtype.itemsize == 2:
        raise NotImplementedError(f"\"linalg_eig_out_cpu\" not implemented for '{scalar_name(A)}'")
    if not bool(xp.isfinite(A).all()):
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    return dtypes.to_numpy(found.to_complex())


@op(public=False, method=False, tensors=("A",), returns=("eigenvalues", "eigenvectors"))
@derivative(A=lambda grad0, grad1, A_dtype, result0, result1: _eig_slope(grad0, grad1, A_dtype, result0, result1))
@samples(lambda t: [(t.constant(t(3, 3)),), (t.constant(t(2, 2, 2)),)])
def linalg_eig(xp, A):
    """Eigenvalues and eigenvectors (columns of norm 1), always complex, in no order.  A (*, n, n) -> (*, n), (*, n, n).

    RuntimeError unless square, floating and finite.  https://docs.pytorch.org/docs/2.13/generated/torch.linalg.eig.html
    """
    target = _check_eig(xp, A, "linalg.eig")
    values, vectors = xp.linalg.eig(A)
    return values.astype(target, copy=False), vectors.astype(target, copy=False)


@op(public=False, method=False, tensors=("A",), node="LinalgEigBackward0", out_as="graph")
@derivative(A=lambda grad, A, A_dtype: _eig_slope(grad, None, A_dtype, *linalg_eig(A)))
@samples(lambda t: [(t.constant(t(3, 3)),), (t.constant(t(2, 2, 2)),)])
def linalg_eigvals(xp, A):
    """Eigenvalues, always complex, in no order.  A (*, n, n) -> (*, n).

    RuntimeError unless square, floating and finite.
    """
    target = _check_eig(xp, A, "linalg.eigvals")
    return xp.linalg.eigvals(A).astype(target, copy=False)


def _with_vectors(A: Any) -> bool:
    """Return whether values are computed with their vectors, which their gradient reads."""
    return mode.enabled and isinstance(A, Tensor) and A.requires_grad


def singular_values(A: Tensor, *, driver: str | None = None, out: Any = None) -> Tensor:
    """`linalg_svdvals`, ready for a backward pass."""
    if out is None and _with_vectors(A):
        values: Tensor = linalg_svd(A, False, driver=driver)[1]
        return values
    return linalg_svdvals(A, driver=driver, out=out)


def hermitian_values(A: Tensor, UPLO: str = "L", *, out: Any = None) -> Tensor:
    """`linalg_eigvalsh`, ready for a backward pass."""
    if out is None and _with_vectors(A):
        values: Tensor = linalg_eigh(A, UPLO)[0]
        return values
    return linalg_eigvalsh(A, UPLO, out=out)


def eigenvalues(A: Tensor, *, out: Any = None) -> Tensor:
    """`linalg_eigvals`, ready for a backward pass."""
    if out is None and _with_vectors(A):
        values: Tensor = linalg_eig(A)[0]
        return values
    return linalg_eigvals(A, out=out)


# --- pseudo-inverse, rank, least squares


def _pinv_slope(grad: Tensor, A: Tensor, result: Tensor) -> Tensor:
    """Golub and Pereyra 1973, as torch orders the products."""
    m, n = A._array.shape[-2:]
    P, Ph, gh = result, mH(result), mH(grad)
    if m <= n:
        K = matmul(gh, P)
        KPh = matmul(K, Ph)
        return -mH(matmul(P, K)) + KPh - matmul(matmul(A, P), KPh) + matmul(matmul(Ph, P), gh - matmul(K, A))
    K = matmul(P, gh)
    PhK = matmul(Ph, K)
    return -mH(matmul(K, P)) + matmul(matmul(gh - matmul(A, K), P), Ph) + PhK - matmul(matmul(PhK, P), A)


def _tolerances(xp: Any, a: Any, largest: Any, atol: Any, rtol: Any) -> Any:
    """max(atol, rtol * largest), rtol by default max(m, n) * eps where atol is not positive.  (*)"""
    real = dtypes.from_numpy(a.dtype).to_real()
    eps = dtypes.finfo(real).eps * builtins.max(a.shape[-2:])
    atol, rtol = getattr(atol, "_array", atol), getattr(rtol, "_array", rtol)
    if rtol is None:
        rtol = eps if atol is None else xp.where(xp.asarray(atol) > 0, 0.0, eps)
    if atol is None:
        atol = 0.0
    return xp.maximum(xp.asarray(atol), xp.asarray(rtol) * largest)


@op(public=False, method=False, tensors=("A",), node="LinalgPinvBackward0")
@derivative(A=lambda grad, A, result: _pinv_slope(grad, A, result))
@samples(lambda t: [(t(3, 2),), (t(2, 2, 3),), (t(2, 2),), (t.complex(3, 2),)])
def linalg_pinv_by(xp, A, atol=None, rtol=None, hermitian=False):
    """The Moore-Penrose inverse, singular values up to the tolerance taken for 0.  A (*, m, n) -> (*, n, m)."""
    m, n = A.shape[-2:]
    if not builtins.min(m, n):
        return xp.zeros((*A.shape[:-2], n, m), A.dtype)
    if hermitian:
        L, V = xp.linalg.eigh(A)
        size = abs(L)
        keep = size > _tolerances(xp, A, size.max(-1), atol, rtol)[..., None]
        inverse = xp.where(keep, 1 / xp.where(keep, L, 1), 0).astype(L.dtype)
        return xp.matmul(V * inverse[..., None, :], xp.swapaxes(V, -1, -2).conj())
    U, S, Vh = _svd_arrays(xp, A, False)
    keep = _tolerances(xp, A, S[..., 0], atol, rtol)[..., None] < S
    inverse = xp.where(keep, 1 / xp.where(keep, S, 1), 0).astype(S.dtype)
    return xp.matmul(xp.swapaxes(Vh, -1, -2).conj() * inverse[..., None, :], xp.swapaxes(U, -1, -2).conj())


@composite(public=False, method=False)
def linalg_pinv(
    A: Tensor,
    rcond: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: Tensor | float | None = None,
    rtol: Tensor | float | None = None,
):
    """The Moore-Penrose inverse.  A (*, m, n) -> (*, n, m).

    Singular values <= max(atol, rtol * largest) count as 0; rtol is max(m, n) * eps unless atol is given.  RuntimeError
    unless a floating matrix, LinAlgError for inf or nan.  https://docs.pytorch.org/docs/2.13/generated/torch.linalg.pinv.html
    """
    array = A._array
    found = dtypes.from_numpy(array.dtype)
    if array.ndim < 2 or found.category < dtypes.FLOATING or array.dtype.itemsize == 2:
        raise RuntimeError(
            f"linalg.pinv({scalar_name(array)}{{{list(array.shape)}}}): expected a tensor with 2 or more dimensions "
            "of float, double, cfloat or cdouble types"
        )
    if hermitian:
        check_square(array, "linalg.eigh")
    return linalg_pinv_by(A, atol, rcond if rtol is None else rtol, hermitian)


@composite()
@samples(lambda t: [(t(3, 2),)])
def pinverse(input: Tensor, rcond: float = 1e-15):
    """The Moore-Penrose inverse.  input (*, m, n) -> (*, n, m).  Singular values <= rcond * largest count as 0."""
    return linalg_pinv(input, rcond)


@composite(public=False, method=False)
def linalg_matrix_rank(
    A: Tensor,
    tol: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: Tensor | float | None = None,
    rtol: Tensor | float | None = None,
):
    """Count the singular values that exceed max(atol, rtol * largest).  A (*, m, n) -> (*) int64.

    tol: atol with rtol = 0.  https://docs.pytorch.org/docs/2.13/generated/torch.linalg.matrix_rank.html
    """
    from engine import backends
    from engine.tensor import wrap

    array = A._array
    if array.ndim < 2:
        raise RuntimeError("torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions.")
    if dtypes.from_numpy(array.dtype).category < dtypes.FLOATING or array.dtype.itemsize == 2:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if tol is not None:
        atol, rtol = tol, 0.0
    xp = backends.xp_of(array)
    if hermitian:
        values = linalg_eigvalsh(A.detach())._array
        values = abs(values)
    else:
        values = linalg_svdvals(A.detach())._array
    if not values.shape[-1]:
        return wrap(xp.zeros(array.shape[:-2], xp.int64))
    limit = _tolerances(xp, array, values.max(-1), atol, rtol)
    return wrap(xp.asarray((values > limit[..., None]).sum(-1, dtype=xp.int64)))


@composite()
def matrix_rank(input, tol=None, symmetric=False, *, out=None):
    """Count the singular values that exceed the tolerance (deprecated: `linalg.matrix_rank`).

    input (*, m, n) -> (*) int64.
    """
    if out is not None:
        return store(out, "matrix_rank", matrix_rank, input, tol, symmetric)
    return linalg_matrix_rank(input, tol, symmetric)


Lstsq = namedtuple("linalg_lstsq", ("solution", "residuals", "rank", "singular_values"))
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@composite(public=False, method=False)
def linalg_lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """X that minimises |A X - B|, of least norm; the residuals, rank and singular values, as the driver gives them.

    A (*, m, n), B (*, m, k) or (*, m) -> (*, n, k), (*, k) or empty, (*) or empty, (*, min(m, n)) or empty.
    RuntimeError for shapes, dtypes or drivers that do not fit.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.lstsq.html
    """
    from engine import backends

    name = "torch.linalg.lstsq"
    a, b = A._array, B._array
    if a.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if b.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype {scalar_name(a)} and "
            f"other's dtype {scalar_name(b)}"
        )
    if dtypes.from_numpy(a.dtype).category < dtypes.FLOATING or a.dtype.itemsize == 2:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if driver is not None and driver not in _DRIVERS:
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    driver = driver or "gelsy"
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and a.shape[:-1] == b.shape)
    given = B
    if vector:
        B = B.unsqueeze(-1)
    m, n = a.shape[-2:]
    if B._array.shape[-2] != m:
        side = -1 if vector else -2
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({side})")
    xp = backends.xp_of(a)
    eps = dtypes.finfo(dtypes.from_numpy(a.dtype).to_real()).eps
    limit = eps * builtins.max(m, n) if rcond is None else rcond
    solution = matmul(linalg_pinv_by(A, None, limit), B)
    guard_again(guard(solution, A, given, solution), grad=True)
    values = linalg_svdvals(A.detach())
    size = values._array
    largest = size.max(-1) if size.shape[-1] else size.sum(-1)
    ranks = (size > (largest * limit)[..., None]).sum(-1, dtype=xp.int64)
    from engine.tensor import wrap

    rank = wrap(xp.asarray(ranks)) if driver != "gels" else wrap(xp.zeros((0,), xp.int64))
    if m > n and driver != "gelsy" and bool((ranks == n).all()):
        rest = matmul(A, solution) - B
        residuals = (rest.abs() ** 2).sum(-2)
    else:  # none, which as in torch are in the graph all the same
        residuals = A.flatten()[:0] + B.flatten()[:0]
        residuals = residuals.real if residuals.is_complex() else residuals
    residuals = name_node(residuals, "LinalgLstsqBackward0")
    singular = values if driver in ("gelsd", "gelss") else wrap(xp.zeros((0,), size.dtype))
    solution = name_node(solution.squeeze(-1) if vector else solution, "LinalgLstsqBackward0")
    return Lstsq(solution, residuals, rank, singular)


# --- the exponential

_PADE = (
    64764752532480000,
    32382376266240000,
    7771770303897600,
    1187353796428800,
    129060195264000,
    10559470521600,
    670442572800,
    33522128640,
    1323241920,
    40840800,
    960960,
    16380,
    182,
    1,
)


def _exp_slope(grad: Tensor, A: Tensor) -> Tensor:
    """The differential of exp at A^H in the direction grad: the upper right block of exp of [[A^H, grad], [0, A^H]]."""
    cat = PUBLIC["cat"]
    Ah = mH(A)
    n = A._array.shape[-1]
    block = cat([cat([Ah, grad], -1), cat([Ah * 0, Ah], -1)], -2)
    return matrix_exp(block)[..., :n, n:]


@op(node="LinalgMatrixExpBackward0")
@derivative(input=lambda grad, input: _exp_slope(grad, input))
@samples(lambda t: [(t(3, 3),), (t(2, 2, 2),), (t(0, 0),), (t.complex(2, 2),)])
def matrix_exp(xp, input):
    """The exponential of square matrices.  input (*, n, n) -> (*, n, n).  RuntimeError unless square and floating.

    Scaling and squaring with the Pade approximant of order 13: Higham, SIAM J. Matrix Anal. Appl. 26 (2005).
    """
    check_square(input, "linalg.matrix_exp")
    found = dtypes.from_numpy(input.dtype)
    if found.category < dtypes.FLOATING:
        check_floating(input, "linalg.matrix_exp")
    n = input.shape[-1]
    if not input.size:
        return input.copy()
    a = input.astype(xp.complex128 if found.is_complex else xp.float64)
    norm = abs(a).sum(-2).max(-1)
    steps = xp.ceil(xp.log2(xp.maximum(xp.where(xp.isfinite(norm), norm, 1) / 5.371920351148152, 1)))
    a = a / (2.0**steps)[..., None, None]
    eye = xp.eye(n, dtype=a.dtype)
    a2 = xp.matmul(a, a)
    a4 = xp.matmul(a2, a2)
    a6 = xp.matmul(a4, a2)
    c = [float(x) for x in _PADE]
    odd = xp.matmul(a6, c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * eye
    odd = xp.matmul(a, odd)
    even = xp.matmul(a6, c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * eye
    result = xp.linalg.solve(even - odd, even + odd)
    for i in range(int(steps.max())):
        result = xp.where((steps > i)[..., None, None], xp.matmul(result, result), result)
    return result.astype(input.dtype)
