"""Factorizations: Cholesky, QR, Householder products."""

from __future__ import annotations

import builtins
from collections import namedtuple
from typing import Any

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, guard_again
from engine.core import dtypes
from engine.dispatch import PUBLIC, composite, derivative, joint_derivative, op, samples
from engine.dispatch.out import store
from engine.ops.linalg.systems import (
    LinAlgError,
    check_floating,
    check_matrix,
    check_square,
    eye_like,
    failed,
    linalg_solve_triangular,
    old_check,
    singular,
    triangular,
    warn_of_old,
)
from engine.ops.pointwise.arithmetic import conj_if_complex as conj
from engine.ops.products import matmul, mH, scalar_name
from engine.tensor import Tensor

# --- Cholesky

_NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite (the leading minor of order "
    "{code} is not positive-definite)."
)


def _cholesky_arrays(xp: Any, a: Any) -> tuple[Any, Any]:
    """The lower factors and, for each matrix, the order of the first minor that is not positive (0: none)."""
    try:
        return xp.linalg.cholesky(a), xp.zeros(a.shape[:-2], xp.int32)
    except failed(xp):
        pass
    n = a.shape[-1]
    lower = xp.tril(a)
    info = xp.zeros(a.shape[:-2], xp.int32)
    for j in range(n):
        left = lower[..., j:, :j]
        row = lower[..., j, :j]
        column = lower[..., j:, j] - xp.matmul(left, row.conj()[..., None])[..., 0]
        square = column[..., 0].real
        bad = ~(square > 0)
        info = xp.where((info == 0) & bad, j + 1, info)
        root = xp.sqrt(xp.where(bad, 1, square))
        lower[..., j:, j] = column / root[..., None]
    return lower, info.astype(xp.int32)


def _cholesky_slope(grad: Tensor, L: Tensor) -> Tensor:
    """The gradient, symmetric, of A from that of its lower factor."""
    phi = matmul(mH(L), grad)
    strict = phi.tril(-1)
    diagonal = phi.diagonal(0, -2, -1)
    if diagonal._array.dtype.kind == "c":
        diagonal = (diagonal + conj(diagonal)) * 0.5
    middle = strict + mH(strict) + diagonal.diag_embed()
    middle = linalg_solve_triangular(mH(L), middle, upper=True)
    return linalg_solve_triangular(L, middle, upper=False, left=False) * 0.5


def _cholesky_ex_slope(grad: Tensor, L: Tensor, upper: bool) -> Tensor:
    return _cholesky_slope(mH(grad), mH(L)) if upper else _cholesky_slope(grad, L)


def _positive(t: Any, *shape: int) -> Any:
    import numpy as np

    root = t(*shape)._array
    return t.constant(root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1]))


def _factored(xp: Any, A: Any, upper: bool) -> tuple[Any, Any]:
    if not upper:
        return _cholesky_arrays(xp, A)
    lower, info = _cholesky_arrays(xp, xp.swapaxes(A, -1, -2).conj())
    return xp.ascontiguousarray(xp.swapaxes(lower, -1, -2).conj()), info


@op(public=False, method=False, tensors=("A",), returns=("L", "info"), nondifferentiable=("info",))
@derivative(A=lambda grad, result0, upper: _cholesky_ex_slope(grad, result0, upper))
@samples(lambda t: [(_positive(t, 3, 3),), (_positive(t, 2, 2, 2), {"upper": True})])
def linalg_cholesky_ex(xp, A, *, upper: bool = False, check_errors: bool = False):
    """The triangular factor L of A = L L^H and, for each matrix, the order of the minor that is not positive (0: fine).

    A (*, n, n), of which one triangle is read -> (*, n, n), (*).  RuntimeError unless square and floating.
    """
    check_square(A, "linalg.cholesky")
    check_floating(A, "linalg.cholesky", "cholesky_cpu" if A.dtype.itemsize == 2 else None)
    L, info = _factored(xp, A, upper)
    if check_errors:
        singular("linalg.cholesky_ex", info, _NOT_POSITIVE)
    return L, info


@op(public=False, method=False, tensors=("A",), node="LinalgCholeskyExBackward0")
@derivative(A=lambda grad, result, upper: _cholesky_ex_slope(grad, result, upper))
@samples(lambda t: [(_positive(t, 3, 3),), (_positive(t, 2, 2, 2), {"upper": True})])
def linalg_cholesky(xp, A, *, upper: bool = False):
    """The triangular factor L of A = L L^H; its adjoint with upper=True.  A (*, n, n) -> (*, n, n).

    RuntimeError unless square and floating, LinAlgError unless positive-definite.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.cholesky.html
    """
    check_square(A, "linalg.cholesky")
    check_floating(A, "linalg.cholesky", "cholesky_cpu" if A.dtype.itemsize == 2 else None)
    L, info = _factored(xp, A, upper)
    singular("linalg.cholesky", info, _NOT_POSITIVE)
    return L


@op(node="CholeskyBackward0")
@derivative(input=lambda grad, result, upper: _cholesky_ex_slope(grad, result, upper))
@samples(lambda t: [(_positive(t, 3, 3),), (_positive(t, 2, 2, 2), True)])
def cholesky(xp, input, upper: bool = False):
    """The triangular factor L of A = L L^H; its adjoint with upper=True.  input (*, n, n) -> (*, n, n).

    RuntimeError unless square and floating, LinAlgError unless positive-definite.
    """
    check_square(input, "cholesky")
    check_floating(input, "", "cholesky_cpu")
    warn_of_old(
        "cholesky",
        "linalg.cholesky",
        "L = torch.cholesky(A)\n"
        "should be replaced with\n"
        "L = torch.linalg.cholesky(A)\n"
        "and\n"
        "U = torch.cholesky(A, upper=True)\n"
        "should be replaced with\n"
        "U = torch.linalg.cholesky(A).mH\n"
        "This transform will produce equivalent results for all valid (symmetric positive definite) inputs.",
    )
    L, info = _factored(xp, input, upper)
    singular("cholesky", info, _NOT_POSITIVE)
    return L


def _cholesky_solve_slope(
    grad: Tensor, input: Tensor, L: Tensor, upper: bool, result: Tensor, needs: Any
) -> tuple[Tensor | None, Tensor | None]:
    """As torch: the gradient of L is not cut to its triangle."""
    g = cholesky_solve(grad, L, upper)
    slope = None
    if needs[1]:
        common = matmul(g, mH(result))
        common = common + mH(common)
        slope = -(matmul(L, common) if upper else matmul(common, L)).sum_to_size(L._array.shape)
    return g.sum_to_size(input._array.shape) if needs[0] else None, slope


@op(tensors=("L",))
@joint_derivative(
    "input",
    "L",
    by=lambda grad, input, L, upper, result, needs: _cholesky_solve_slope(grad, input, L, upper, result, needs),
)
@samples(
    lambda t: [
        (t(3, 2), t.constant(t.positive(3, 3))),
        (t(3, 2), t.constant(t.positive(2, 3, 3)), True),
    ]
)
def cholesky_solve(xp, input, L, upper: bool = False):
    """X of A X = input from the Cholesky factor of A.  input (*, n, k), L (*, n, n) -> (*, n, k).

    RuntimeError for shapes or dtypes that do not fit.
    """
    for label, x in (("b", input), ("u", L)):
        if x.ndim < 2:
            raise RuntimeError(f"{label} should have at least 2 dimensions, but has {x.ndim} dimensions instead")
    old_check("cholesky_solve", input, L)
    check_floating(input, "", "cholesky_solve_cpu")
    transposed = xp.swapaxes(L, -1, -2).conj()
    first, second = (transposed, L) if upper else (L, transposed)
    return triangular(xp, second, triangular(xp, first, input, False, False), True, False)


def _cholesky_inverse_slope(grad: Tensor, input: Tensor, upper: bool, result: Tensor) -> Tensor:
    common = matmul(result, matmul(grad + mH(grad), result))
    return -(matmul(input, common) if upper else matmul(common, input))


@op()
@derivative(input=lambda grad, input, upper, result: _cholesky_inverse_slope(grad, input, upper, result))
@samples(lambda t: [(t.constant(t.positive(3, 3)),), (t.constant(t.positive(2, 3, 3)), True)])
def cholesky_inverse(xp, input, upper: bool = False):
    """The inverse of A from its Cholesky factor.  input (*, n, n) -> (*, n, n).

    LinAlgError for a zero on the diagonal.
    """
    check_square(input, "cholesky_inverse")
    check_floating(input, "", "cholesky_inverse_out_cpu")
    zero = xp.diagonal(input, axis1=-2, axis2=-1) == 0
    if bool(zero.any()):
        flat = zero.reshape(-1, input.shape[-1])
        batch = int(flat.any(-1).argmax())
        where = f"(Batch element {batch}): " if input.ndim > 2 else ""
        raise LinAlgError(
            f"cholesky_inverse: {where}The diagonal element {int(flat[batch].argmax()) + 1} is zero, the inversion "
            "could not be completed because the input matrix is singular."
        )
    half = triangular(xp, input, xp.eye(input.shape[-1], dtype=input.dtype), upper, False)
    transposed = xp.swapaxes(half, -1, -2).conj()
    return xp.matmul(half, transposed) if upper else xp.matmul(transposed, half)


# --- QR


def _halved(x: Tensor) -> Tensor:
    """x + x^H with the real part of x on the diagonal."""
    strict = x.triu(1)
    diagonal = x.diagonal(0, -2, -1)
    if diagonal._array.dtype.kind == "c":
        diagonal = (diagonal + conj(diagonal)) * 0.5
    return strict + mH(strict) + diagonal.diag_embed()


def _tall_slope(gQ: Tensor | None, gR: Tensor | None, Q: Tensor, R: Tensor) -> Tensor:
    """The gradient of A (m >= n): [gQ + Q sym(triu(gR R^H - Q^H gQ))] R^-H."""
    middle = None if gR is None else matmul(gR, mH(R))
    if gQ is not None:
        inner = matmul(mH(Q), gQ)
        middle = -inner if middle is None else middle - inner
    total = matmul(Q, _halved(middle))
    if gQ is not None:
        total = total + gQ
    return linalg_solve_triangular(mH(R), total, upper=False, left=False)


def _qr_slope(gQ: Tensor | None, gR: Tensor | None, Q: Tensor, R: Tensor, mode: str) -> Tensor | None:
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, "
            "mode='reduced') if you are going to require gradients through linalg.qr"
        )
    m, n = Q._array.shape[-2], R._array.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols")
    if gQ is None and gR is None:
        return None
    if m >= n:
        return _tall_slope(gQ, gR, Q, R)
    # wide: A = [X | Y], R = [U | V] with V = Q^H Y
    given, gU, gV = gQ, None, None
    if gR is not None:
        gU, gV = gR[..., :m], gR[..., m:]
        more = matmul(matmul(Q, R[..., m:]), mH(gV))
        gQ = more if gQ is None else gQ + more
    gX = _tall_slope(gQ, gU, Q, R[..., :m])
    gY = matmul(Q, R[..., m:] * 0 if gV is None else gV)
    return guard(PUBLIC["cat"]([gX, gY], -1), given)


@op(public=False, method=False, tensors=("A",), returns=("Q", "R"))
@derivative(A=lambda grad0, grad1, result0, result1, mode: _qr_slope(grad0, grad1, result0, result1, mode))
@samples(lambda t: [(t(3, 2),), (t(2, 3, 3),), (t(2, 3),), (t.complex(3, 2),)])
def linalg_qr(xp, A, mode: str = "reduced"):
    """Q (orthonormal columns) and R (upper triangle) of A = Q R.  A (*, m, n) -> (*, m, k), (*, k, n), k = min(m, n).

    mode: "reduced", "complete" (Q (*, m, m)) or "r" (Q empty).  RuntimeError for another mode or integers.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.qr.html
    """
    check_matrix(A, "linalg.qr")
    check_floating(A, "linalg.qr", "geqrf_cpu" if A.dtype.itemsize == 2 else None)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    m, n = A.shape[-2:]
    if mode == "r":
        return xp.empty((0,), A.dtype), xp.linalg.qr(A, mode="r")
    if n == 0 and mode == "complete":
        return xp.broadcast_to(xp.eye(m, dtype=A.dtype), (*A.shape[:-2], m, m)).copy(), xp.empty(A.shape, A.dtype)
    Q, R = xp.linalg.qr(A, mode=mode)
    return Q, R


_QR = namedtuple("qr", ("Q", "R"))


@composite()
@samples(lambda t: [(t(3, 2),), (t(2, 3),)])
def qr(input: Tensor, some: bool = True, *, out=None) -> Any:
    """Q and R of input = Q R (deprecated: `linalg.qr`).

    input (*, m, n) -> (*, m, k), (*, k, n); some=False: Q (*, m, m).
    """
    if out is not None:
        return store(out, "qr", qr, input, some)
    warn_of_old(
        "qr",
        "linalg.qr",
        "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\n"
        "Q, R = torch.qr(A, some)\n"
        "should be replaced with\n"
        "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')",
    )
    return _QR(*linalg_qr(input, "reduced" if some else "complete"))


@op(returns=("a", "tau"))
@samples(lambda t: [(t.constant(t(3, 2)),), (t.constant(t(2, 2, 3)),)])
def geqrf(xp, input):
    """The QR factorization as LAPACK stores it: R above, Householder vectors below the diagonal, and their factors.

    input (*, m, n) -> (*, m, n), (*, k).
    """
    if input.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    check_floating(input, "", "geqrf_cpu")
    m, n = input.shape[-2:]
    if not builtins.min(m, n):
        return input.copy(), xp.empty((*input.shape[:-2], 0), input.dtype)
    h, tau = xp.linalg.qr(input, mode="raw")
    return xp.ascontiguousarray(xp.swapaxes(h, -1, -2)), tau.astype(input.dtype, copy=False)


def _reflectors(input: Tensor) -> Tensor:
    """The Householder vectors as columns: 1 on the diagonal, 0 above."""
    m, n = input._array.shape[-2:]
    low = input.tril(-1)
    unit = eye_like(input) if m == n else PUBLIC["cat"]([eye_like(input), input.new_zeros((m - n, n))], 0)
    return low + unit


def _reflected(vectors: Tensor, tau: Tensor, other: Tensor, order: Any, turn: bool = False) -> Tensor:
    """other after the reflections I - tau v v^H named by `order`."""
    for i in order:
        v = vectors[..., i : i + 1]
        factor = tau[..., i : i + 1].unsqueeze(-1)
        other = other - (conj(factor) if turn else factor) * matmul(v, matmul(mH(v), other))
    return other


@composite(public=False, method=False)
@samples(lambda t: [(t(3, 2), t(2)), (t(2, 3, 3), t(2, 2))])
def linalg_householder_product(input: Tensor, tau: Tensor):
    """The first columns of a product of Householder reflections.  input (*, m, n), tau (*, k) -> (*, m, n).

    RuntimeError for shapes that do not fit.
    """
    name = "torch.linalg.householder_product"
    a, b = input._array, tau._array
    if a.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    m, n = a.shape[-2:]
    tau.size(-1)  # a 0-dim one has none
    if m < n:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if n < b.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if a.ndim - b.ndim != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {b.ndim} and "
            f"input.ndim is equal to {a.ndim}"
        )
    if a.shape[:-2] != b.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(b.shape[:-1])}"
        )
    if a.dtype != b.dtype:
        raise RuntimeError(f"{name}: tau dtype {scalar_name(b)} does not match input dtype {scalar_name(a)}")
    if dtypes.from_numpy(a.dtype).category < dtypes.FLOATING or a.dtype.itemsize == 2:
        raise NotImplementedError(f"\"orgqr_cpu\" not implemented for '{scalar_name(a)}'")
    vectors = _reflectors(input)
    start = PUBLIC["cat"]([eye_like(input), input.new_zeros((m - n, n))], 0) if m > n else eye_like(input)
    start = start.expand(*a.shape)
    result = _reflected(vectors, tau, start, range(b.shape[-1] - 1, -1, -1))
    if not b.shape[-1]:  # no reflection: zeros for the gradient of `input`
        result = PUBLIC["where"](PUBLIC["ones_like"](input, dtype=dtypes.bool), start, input)
    result = name_node(result, "LinalgHouseholderProductBackward0")
    return guard_again(result, input, tau, result, grad=True)


@composite(names=())
def orgqr(input: Tensor, input2: Tensor, *, out: Tensor | None = None):
    """Q of `geqrf`'s result.  input (*, m, n), input2 (*, k) -> (*, m, n)."""
    if out is not None:
        return store(out, "orgqr", orgqr, input, input2)
    return linalg_householder_product(input, input2)


@composite()
@samples(
    lambda t: [
        (t(3, 2), t(2), t(3, 4)),
        (t(3, 2), t(2), t(4, 3), False),
        (t(3, 2), t(2), t(3, 4), True, True),
    ]
)
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False, *, out: Tensor | None = None
):
    """Q @ other (other @ Q with left=False; Q^H with transpose) for Q (m, m) of `geqrf`'s result.

    input (*, m, k), tau (*, k), other (*, m, n) -> (*, m, n).  RuntimeError for shapes that do not fit.
    """
    if out is not None:
        return store(out, "ormqr", ormqr, input, tau, other, left, transpose)
    a, b, c = input._array, tau._array, other._array
    if a.ndim < 2:
        raise RuntimeError("torch.ormqr: input must have at least 2 dimensions.")
    if c.ndim < 2:
        raise RuntimeError("torch.ormqr: other must have at least 2 dimensions.")
    side = -2 if left else -1
    tau.size(-1)  # a 0-dim one has none
    if c.shape[side] < b.shape[-1]:
        raise RuntimeError(f"torch.ormqr: other.shape[{side}] must be greater than or equal to tau.shape[-1]")
    if c.shape[side] != a.shape[-2]:
        raise RuntimeError(f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]")
    if b.shape[-1] != min(c.shape[side], a.shape[-1]):
        raise RuntimeError(f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])")
    if b.ndim != a.ndim - 1:
        raise RuntimeError(
            f"torch.ormqr: Expected tau to have one dimension less than input, but got tau.ndim equal to {b.ndim} and "
            f"input.ndim is equal to {a.ndim}"
        )
    if c.ndim != a.ndim:
        raise RuntimeError(
            "torch.ormqr: Expected other to have the same number of dimensions as input, but got other.ndim equal to "
            f"{c.ndim} and input.ndim is equal to {a.ndim}"
        )
    for label, x in (("tau", b), ("other", c)):
        if x.dtype != a.dtype:
            raise RuntimeError(
                f"torch.ormqr: Expected input and {label} to have the same dtype, but input has "
                f"dtype{scalar_name(a)} and {label} has dtype {scalar_name(x)}"
            )
    check_floating(a, "", "ormqr_cpu")
    k = b.shape[-1]
    vectors = _reflectors(input) if a.shape[-1] <= a.shape[-2] else _reflectors(input[..., : a.shape[-2]])
    if not left:
        other = mH(other)
    turn = transpose == left
    order = range(k) if turn else range(k - 1, -1, -1)
    result = _reflected(vectors, tau, other, order, turn)
    guard_again(result, result)
    result = name_node(result if left else mH(result), "OrmqrBackward0")
    return guard(guard_again(result, input, tau, grad=True), other)
