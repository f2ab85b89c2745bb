"""Linear systems: inverse, determinant, LU, `solve`, triangular `solve`; the checks and errors of all LAPACK ops.

numpy only at run time: what `xp.linalg` lacks (LU with pivots, triangular solves) is written here, vectorised over
batches and blocked, so that the work is matrix products.  Formulas follow torch's complex convention.
"""

from __future__ import annotations

import builtins
from collections import namedtuple
from typing import Any

import numpy as np

from engine.autograd.graph import name_node
from engine.autograd.versions import guard, guard_again, own
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, numel
from engine.core.grad_mode import mode
from engine.core.tensor_messages import warn_once
from engine.dispatch import OPS, PUBLIC, composite, derivative, joint_derivative, op, samples
from engine.dispatch.out import store
from engine.ops.pointwise.arithmetic import conj_if_complex as conj
from engine.ops.products import matmul, mH, scalar_name
from engine.tensor import Tensor, wrap

# --- errors and checks


class LinAlgError(RuntimeError):
    """A matrix that an algorithm cannot take: singular, not positive-definite, not finite."""


LinAlgError.__module__, LinAlgError.__name__ = "engine.linalg", "_LinAlgError"  # as torch's


def check_square(array: Any, name: str, label: str = "A") -> None:
    """RuntimeError, with torch's sentence, unless these are square matrices.  name: `linalg.inv: ` or empty."""
    check_matrix(array, name, label)
    n, m = array.shape[-2:]
    if n != m:
        raise RuntimeError(f"{name}: {label} must be batches of square matrices, but they are {n} by {m} matrices")


def check_matrix(array: Any, name: str, label: str = "A") -> None:
    """RuntimeError unless there are at least two dims."""
    if array.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {label} must have at least 2 dimensions.")


def check_floating(array: Any, name: str, low: str | None = None) -> None:
    """Refuse integers, and 16-bit floats: with torch's sentence, or as the kernel `low` "not implemented"."""
    found = dtypes.from_numpy(array.dtype)
    if found.category < dtypes.FLOATING:
        if not name:
            raise NotImplementedError(f"\"{low}\" not implemented for '{scalar_name(array)}'")
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {scalar_name(array)}")
    if array.dtype.itemsize == 2:
        if low:
            raise NotImplementedError(f"\"{low}\" not implemented for '{scalar_name(array)}'")
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {scalar_name(array)}")


def batch_of(info: Any) -> tuple[str, int]:
    """("(Batch element 3): " or empty, code) of the first failure in `info`; ("", 0) if there is none."""
    flat = info.reshape(-1)
    for i, code in enumerate(flat.tolist()):
        if code:
            return (f"(Batch element {i}): " if info.ndim else ""), code
    return "", 0


def singular(name: str, info: Any, sentence: str) -> None:
    """LinAlgError for the first failure in `info`; `{code}` in the sentence is its code."""
    where, code = batch_of(info)
    if code:
        raise LinAlgError(f"{name}: {where}{sentence.format(code=code)}")


def failed(xp: Any) -> type[Exception]:
    """The exception by which `xp.linalg` gives up."""
    return getattr(xp.linalg, "LinAlgError", RuntimeError)


# --- LU, and triangular systems, over arrays

_BLOCK = 32


def _size(array: Any) -> Any:
    """Magnitudes as LAPACK compares them."""
    return abs(array.real) + abs(array.imag) if array.dtype.kind == "c" else abs(array)


def lu_arrays(xp: Any, a: Any) -> tuple[Any, Any, Any]:
    """P A = L U with partial pivoting: L (unit) and U in one array, pivots from 1 (int32), info (int32).

    a (*, m, n) -> (*, m, n), (*, k), (*).  info: the first zero pivot, from 1; 0 if there is none.
    """
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    k, count = builtins.min(m, n), numel(lead)
    work = xp.array(a.reshape(count, m, n), order="C")
    pivots = xp.empty((count, k), xp.int32)
    each = xp.arange(count)
    for start in range(0, k, _BLOCK):
        stop = builtins.min(start + _BLOCK, k)
        for j in range(start, stop):
            best = _size(work[:, j:, j]).argmax(1) + j
            pivots[:, j] = best + 1
            row = work[:, j].copy()
            work[:, j] = work[each, best]
            work[each, best] = row
            pivot = work[:, j, j]
            work[:, j + 1 :, j] /= xp.where(pivot == 0, 1, pivot)[:, None]
            work[:, j + 1 :, j + 1 : stop] -= work[:, j + 1 :, j, None] * work[:, None, j, j + 1 : stop]
        if stop < n:
            for i in range(start + 1, stop):
                work[:, i, stop:] -= xp.matmul(work[:, i, None, start:i], work[:, start:i, stop:])[:, 0]
            work[:, stop:, stop:] -= xp.matmul(work[:, stop:, start:stop], work[:, start:stop, stop:])
    zero = xp.diagonal(work, axis1=-2, axis2=-1) == 0
    info = xp.where(zero.any(-1), zero.argmax(-1) + 1, 0) if k else xp.zeros(count)
    return work.reshape(a.shape), pivots.reshape(*lead, k), info.astype(xp.int32).reshape(lead)


def permutation(xp: Any, pivots: Any, m: int) -> Any:
    """The rows' order that the row swaps `pivots` lead to.  pivots (*, k) -> (*, m) int64."""
    lead, k = pivots.shape[:-1], pivots.shape[-1]
    count = numel(lead)
    order = xp.broadcast_to(xp.arange(m), (count, m)).copy()
    swaps = pivots.reshape(count, k) - 1
    each = xp.arange(count)
    for j in range(k):
        chosen = order[each, swaps[:, j]]
        order[each, swaps[:, j]] = order[:, j]
        order[:, j] = chosen
    return order.reshape(*lead, m)


def triangular(xp: Any, a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """X of A X = B for a triangle of A; inf and nan where the diagonal is 0.  a (*, n, n), b (*, n, k) -> (*, n, k)."""
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = xp.array(xp.broadcast_to(b, (*lead, *b.shape[-2:])), order="C")
    _solve_block(xp, a, x, upper, unit, 0, a.shape[-1])
    return x


def _solve_block(xp: Any, a: Any, x: Any, upper: bool, unit: bool, low: int, high: int) -> None:
    """Rows low..high of x become the solution of that diagonal block (halves first, then rows)."""
    n = high - low
    if n > _BLOCK:
        middle = (low + high) // 2
        first, second = ((middle, high), (low, middle)) if upper else ((low, middle), (middle, high))
        _solve_block(xp, a, x, upper, unit, *first)
        done, rest = slice(*first), slice(*second)
        x[..., rest, :] -= xp.matmul(a[..., rest, done], x[..., done, :])
        _solve_block(xp, a, x, upper, unit, *second)
        return
    for i in range(high - 1, low - 1, -1) if upper else range(low, high):
        done = slice(i + 1, high) if upper else slice(low, i)
        row = x[..., i, :]
        if done.stop > done.start:
            row -= xp.matmul(a[..., i, None, done], x[..., done, :])[..., 0, :]
        if not unit:
            row /= a[..., i, i, None]


# --- inverse


def _inverse(xp: Any, a: Any, name: str, check: bool = True) -> Any:
    try:
        return xp.linalg.inv(a)
    except failed(xp):
        lu, pivots, info = lu_arrays(xp, a)
        if check:
            singular(
                name,
                info,
                "The diagonal element {code} is zero, the inversion could not be completed because the input matrix "
                "is singular.",
            )
        eye = xp.broadcast_to(xp.eye(a.shape[-1], dtype=a.dtype), a.shape)
        return _lu_solved(xp, lu, permutation(xp, pivots, a.shape[-1]), eye)


def _lu_solved(xp: Any, lu: Any, order: Any, b: Any) -> Any:
    """X of A X = B from the factors of A."""
    lead = broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    b = xp.broadcast_to(b, (*lead, *b.shape[-2:]))
    order = xp.broadcast_to(order, (*lead, order.shape[-1]))
    permuted = xp.take_along_axis(b, order[..., None], axis=-2)
    return triangular(xp, lu, triangular(xp, lu, permuted, False, True), True, False)


@op(node="LinalgInvExBackward0", large=256, generated="many")
@derivative(input=lambda grad, result: -matmul(mH(result), matmul(grad, mH(result))))
@samples(lambda t: [(t(3, 3),), (t(2, 2, 2),), (t(0, 0),), (t.complex(2, 2),)])
def inverse(xp, input):
    """The inverse of square matrices.  input (*, n, n) -> (*, n, n).

    RuntimeError unless square and floating; LinAlgError for a singular matrix.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.inv.html
    """
    check_square(input, "linalg.inv")
    check_floating(input, "linalg.inv")
    return _inverse(xp, input, "linalg.inv")


@op(
    public=False,
    method=False,
    tensors=("A",),
    returns=("inverse", "info"),
    nondifferentiable=("info",),
)
@derivative(A=lambda grad, result0: -matmul(mH(result0), matmul(grad, mH(result0))))
@samples(lambda t: [(t(3, 3),), (t(2, 2, 2),)])
def linalg_inv_ex(xp, A, *, check_errors: bool = False):
    """The inverse, and instead of an error where it failed: the first zero pivot, from 1.

    A (*, n, n) -> (*, n, n), (*).
    """
    check_square(A, "linalg.inv")
    check_floating(A, "linalg.inv")
    _, _, info = lu_arrays(xp, A)
    return _inverse(xp, A, "linalg.inv_ex", check_errors), info


# --- determinant


def _near_singular(a: Any, det: Any) -> bool:
    """Return whether a determinant is too small against Hadamard's bound for a linear system to give the adjugate.

    With a graph to build the SVD is kept for the worst: its own derivative needs singular values that differ.
    """
    if not a.size:
        return False
    bound = ((abs(a) ** 2).sum(-1) ** 0.5).prod(-1)
    limit = dtypes.finfo(dtypes.from_numpy(a.dtype).to_real()).eps * 10 * a.shape[-1] if mode.enabled else 1e-3
    return bool((abs(det) <= limit * bound).any())


def _det_slope(grad: Tensor, A: Tensor, result: Tensor) -> Tensor:
    """grad * conj(adjugate)^T: through a linear system, or the SVD where a matrix is singular."""
    if not A._array.size:
        return A.detach().new_zeros(A.shape)
    factor = (grad * conj(result)).unsqueeze(-1).unsqueeze(-1)
    if not _near_singular(A._array, result._array):
        return linalg_solve_system(mH(A), eye_like(A) * factor)
    u, s, vh = OPS["linalg_svd"].function(A, False)
    n = s._array.shape[-1]
    others = s.unsqueeze(-2).expand(*s._array.shape[:-1], n, n).masked_fill(eye_like(A) != 0, 1).prod(-1)
    alpha = conj(linalg_det(u) * linalg_det(vh)) * grad
    return matmul(u * (others * alpha.unsqueeze(-1)).unsqueeze(-2), vh)


def eye_like(like: Tensor) -> Tensor:
    """The identity of the last dim's size, in the dtype and on the device of `like`."""
    return identity(like, like._array.shape[-1])


def identity(like: Tensor, n: int, dtype: Any = None) -> Tensor:
    """The identity of size n beside `like`."""
    from engine import backends

    array = like._array
    return wrap(backends.xp_of(array).eye(n, dtype=dtype or array.dtype))


@op(public=False, method=False, tensors=("A",), large=256, generated="many")
@derivative(A=lambda grad, A, result: _det_slope(grad, A, result))
@samples(lambda t: [(t(3, 3),), (t(2, 2, 2),), (t.complex(2, 2),)])
def linalg_det(xp, A):
    """The determinant.  A (*, n, n) -> (*).

    RuntimeError unless square and floating; the gradient holds for singular A too.
    """
    check_square(A, "linalg.det")
    check_floating(A, "linalg.det", "lu_cpu")
    return xp.linalg.det(A)


@composite()
def det(input: Tensor):
    """The determinant.  input (*, n, n) -> (*).  RuntimeError unless square and floating."""
    return linalg_det(input)


def _slogdet_slope(g_sign: Tensor | None, g_log: Tensor | None, A: Tensor, sign: Tensor) -> Tensor:
    if A._array.dtype.kind != "c":
        scale = g_log
    else:
        scale = 0
        if g_sign is not None:
            scale = conj(sign) * g_sign
            scale = (scale - conj(scale)) / 2
        if g_log is not None:
            scale = g_log + scale
    if scale is None:
        return None
    return linalg_solve_system(mH(A), eye_like(A) * scale.unsqueeze(-1).unsqueeze(-1), check=mode.enabled)


@op(public=False, method=False, tensors=("A",), returns=("sign", "logabsdet"), large=256, generated="many")
@derivative(A=lambda grad0, grad1, A, result0: _slogdet_slope(grad0, grad1, A, result0))
@samples(lambda t: [(t(3, 3),), (t(2, 2, 2),), (t.complex(2, 2),)])
def linalg_slogdet(xp, A):
    """Sign (or phase) and logarithm of the absolute value of the determinant.  A (*, n, n) -> (*), (*).

    RuntimeError unless square and floating.
    """
    check_square(A, "linalg.slogdet")
    check_floating(A, "linalg.slogdet")
    sign, logabsdet = xp.linalg.slogdet(A)
    return xp.asarray(sign), xp.asarray(logabsdet)


@composite()
def slogdet(input: Tensor, *, out=None) -> Any:
    """Sign and logarithm of the absolute value of the determinant.  input (*, n, n) -> (*), (*)."""
    if out is not None:
        return store(out, "slogdet", slogdet, input)
    return _Slogdet(*linalg_slogdet(input))


_Slogdet = namedtuple("slogdet", ("sign", "logabsdet"))


@composite()
@samples(lambda t: [(t.constant(t.positive(2, 2)),)])
def logdet(input: Tensor):
    """The logarithm of the determinant; nan where that is negative.  input (*, n, n) -> (*)."""
    check_square(input._array, "logdet")
    check_floating(input._array, "logdet")
    sign, logabsdet = linalg_slogdet(input)
    if sign._array.dtype.kind == "c":
        return sign.log() + logabsdet
    return logabsdet.masked_fill(sign == -1, float("nan"))


# --- LU


def _lu_slope(grad: Tensor, LU: Tensor, pivots: Tensor) -> Tensor:
    """The gradient of A from that of the packed factors."""
    m, n = LU._array.shape[-2:]
    k = builtins.min(m, n)
    P, L, U = lu_unpack(LU, pivots)
    Lh, Uh = mH(L[..., :k, :]), mH(U[..., :k])
    low, high = grad[..., :k].tril(-1), grad[..., :k, :].triu()
    if m >= n:
        middle = matmul(Lh, low[..., :k, :]).tril(-1)
        above = matmul(high, mH(U))
        if m > n:
            above = above - matmul(mH(L[..., k:, :]), low[..., k:, :])
        middle = middle + above.triu()
    else:
        beyond = grad[..., k:]
        middle = (matmul(Lh, low) - matmul(beyond, mH(U[..., k:]))).tril(-1) + matmul(high[..., :k], Uh).triu()
    middle = linalg_solve_triangular(Uh, middle, upper=False, left=False)
    result = linalg_solve_triangular(Lh, middle, upper=True, unitriangular=True)
    if m > n:
        more = linalg_solve_triangular(Uh, low[..., k:, :], upper=False, left=False)
        result = PUBLIC["cat"]([result, more], -2)
    elif m < n:
        more = linalg_solve_triangular(Lh, grad[..., k:], upper=True, unitriangular=True)
        result = PUBLIC["cat"]([result, more], -1)
    return matmul(P, result)


def _check_lu(array: Any, name: str, pivot: bool) -> None:
    if array.ndim < 2:
        raise RuntimeError(f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(array.shape)} instead")
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    if dtypes.from_numpy(array.dtype).category < dtypes.FLOATING or array.dtype.itemsize == 2:
        raise NotImplementedError(f"\"lu_cpu\" not implemented for '{scalar_name(array)}'")


@op(public=False, method=False, tensors=("A",), returns=("LU", "pivots", "info"), nondifferentiable=("pivots", "info"))
@derivative(A=lambda grad, result0, result1: guard(_lu_slope(grad, result0, result1), grad))
@samples(lambda t: [(t(3, 3),), (t(2, 3, 2),), (t(2, 3),)])
def linalg_lu_factor_ex(xp, A, *, pivot: bool = True, check_errors: bool = False):
    """P A = L U packed into one matrix, the pivots from 1, and the first zero pivot.

    A (*, m, n) -> (*, m, n), (*, k), (*).
    """
    _check_lu(A, "torch.lu_factor", pivot)
    lu, pivots, info = lu_arrays(xp, A)
    if check_errors:
        refuse_info("torch.linalg.lu_factor_ex", info)
    return lu, pivots, info


def refuse_info(name: str, info: Any) -> None:
    """RuntimeError if a pivot is zero."""
    where, code = batch_of(info)
    if code:
        raise RuntimeError(
            f"{name}: {where}U[{code},{code}] is zero and using it on lu_solve would result in a division by zero. If "
            "you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
            "linalg.lu_factor_ex(A, pivot)"
        )


@op(public=False, method=False, tensors=("pivots",))
@samples(lambda t: [(t.integers(1, 2, 2, 1), 3, t.constant(t(1)).dtype)])
def lu_permutation(xp, pivots, m, dtype):
    """The permutation matrices of row swaps.  pivots (*, k) -> (*, m, m)."""
    order = permutation(xp, pivots, m)
    return xp.swapaxes(xp.eye(m, dtype=dtypes.to_numpy(dtype))[order], -1, -2)


_Unpacked = namedtuple("lu_unpack", ("P", "L", "U"))


@composite(method=False)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, *, out=None
) -> Any:
    """P, L, U of packed factors; empty tensors for what was not requested.

    (*, m, n), (*, k) -> (*, m, m), (*, m, k), (*, k, n).
    """
    if out is not None:
        return store(out, "lu_unpack", lu_unpack, LU_data, LU_pivots, unpack_data, unpack_pivots)
    array = LU_data._array
    if unpack_pivots and LU_pivots.dtype is not dtypes.int32:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.")
    m, n = array.shape[-2:]
    k = builtins.min(m, n)
    nothing = LU_data.new_zeros((0,))
    P = lu_permutation(LU_pivots, m, LU_data.dtype) if unpack_pivots else nothing
    if not unpack_data:
        return _Unpacked(P, nothing, nothing)
    L = LU_data[..., :k].tril(-1)
    ones = identity(LU_data, k)
    if m > k:
        ones = PUBLIC["cat"]([ones, ones.new_zeros((m - k, k))], 0)
    return _Unpacked(P, L + ones, LU_data[..., :k, :].triu())


# --- triangular systems


def _triangular_slope(
    grad: Tensor,
    A: Tensor,
    shape: Any,
    result: Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
    needs: Any,
) -> tuple[Tensor | None, Tensor | None]:
    g = linalg_solve_triangular(mH(A), grad, upper=not upper, left=left, unitriangular=unitriangular)
    slope = None
    if needs[0]:
        slope = -(matmul(g, mH(result)) if left else matmul(mH(result), g))
        slope = slope.triu(int(unitriangular)) if upper else slope.tril(-int(unitriangular))
        slope = slope.sum_to_size(A._array.shape)
    return slope, g.sum_to_size(shape)


@op(public=False, method=False, tensors=("A", "B"), large=64, generated="many")
@joint_derivative(
    "A",
    "B",
    by=lambda grad, A, B_shape, result, upper, left, unitriangular, needs: _triangular_slope(
        own(grad), A, B_shape, result, upper, left, unitriangular, needs
    ),
)
@samples(
    lambda t: [
        (t.positive(3, 3), t(3, 2), {"upper": True}),
        (t.positive(2, 3, 3), t(3, 2), {"upper": False}),
        (t.positive(3, 3), t(2, 3), {"upper": True, "left": False}),
        (t(3, 3), t(2, 3, 2), {"upper": False, "unitriangular": True}),
        (t(0, 0), t(0, 2), {"upper": True}),
    ]
)
def linalg_solve_triangular(xp, A, B, *, upper: bool, left: bool = True, unitriangular: bool = False):
    """X of A X = B (X A = B with left=False) for a triangle of A.  A (*, n, n), B (*, n, k) -> (*, n, k).

    No check for zeros on the diagonal: they give inf and nan.  RuntimeError for shapes that do not fit.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.solve_triangular.html
    """
    _check_system(A, B, "linalg.solve_triangular", left)
    if dtypes.from_numpy(A.dtype).category < dtypes.FLOATING or A.dtype.itemsize == 2:
        raise NotImplementedError(f"\"triangular_solve_cpu\" not implemented for '{scalar_name(A)}'")
    if left:
        return triangular(xp, A, B, upper, unitriangular)
    transposed = triangular(xp, xp.swapaxes(A, -1, -2), xp.swapaxes(B, -1, -2), not upper, unitriangular)
    return xp.ascontiguousarray(xp.swapaxes(transposed, -1, -2))


def _check_system(A: Any, B: Any, name: str, left: bool) -> None:
    check_square(A, name)
    check_matrix(B, name, "B")
    n, (p, q) = A.shape[-1], B.shape[-2:]
    if n != (p if left else q):
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {equation} ({n}x{n} and {p}x{q})")
    broadcast_shapes(B.shape[:-2], A.shape[:-2])


# --- linear systems


def _system_slope(
    grad: Tensor, A: Tensor, shape: Any, result: Tensor, left: bool, needs: Any
) -> tuple[Tensor | None, Tensor | None]:
    g = linalg_solve_system(mH(A), grad, left=left, check=False)
    slope = None
    if needs[0]:
        slope = -(matmul(g, mH(result)) if left else matmul(mH(result), g))
        slope = slope.sum_to_size(A._array.shape)
    return slope, g.sum_to_size(shape) if needs[1] else None


@op(public=False, method=False, tensors=("A", "B"), node="LinalgSolveExBackward0", large=256, generated="many")
@joint_derivative(
    "A",
    "B",
    by=lambda grad, A, B_shape, result, left, needs: _system_slope(own(grad), A, B_shape, result, left, needs),
)
@samples(
    lambda t: [
        (t(3, 3), t(3, 2)),
        (t(2, 2, 2), t(2, 3)),
        (t(3, 3), t(2, 3), {"left": False}),
        (t(2, 2), t(3, 2, 1)),
        (t.complex(2, 2), t.complex(2, 2)),
        (t(0, 0), t(0, 2)),
    ]
)
def linalg_solve_system(xp, A, B, *, left=True, check=True):
    """X of A X = B (X A = B with left=False).  A (*, n, n), B (*, n, k) -> (*, n, k).  LinAlgError for a singular A."""
    if not left:
        A, B = xp.swapaxes(A, -1, -2), xp.swapaxes(B, -1, -2)
    if A.shape[:-2] != B.shape[:-2]:  # CuPy broadcasts no batches
        batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        A, B = xp.broadcast_to(A, (*batch, *A.shape[-2:])), xp.broadcast_to(B, (*batch, *B.shape[-2:]))
    try:
        result = xp.linalg.solve(A, B)
    except failed(xp):
        lu, pivots, info = lu_arrays(xp, A)
        if check:
            singular(
                "torch.linalg.solve",
                info,
                "The solver failed because the input matrix is singular.",
            )
        result = _lu_solved(xp, lu, permutation(xp, pivots, A.shape[-1]), B)
    return result if left else xp.ascontiguousarray(xp.swapaxes(result, -1, -2))


def _is_vector(A: Any, B: Any) -> bool:
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)


@composite(public=False, method=False)
@samples(lambda t: [(t(3, 3), t(3)), (t(2, 2, 2), t(2, 2)), (t(3, 3), t(3, 2))])
def linalg_solve(A: Tensor, B: Tensor, *, left: bool = True, out=None, check=True):
    """The solution of a square system; B is a vector if it has one dim, or the batch dims of A and one more.

    A (*, n, n), B (*, n, k) or (*, n) -> as B.  RuntimeError for shapes or dtypes that do not fit, LinAlgError for a
    singular A.
    https://docs.pytorch.org/docs/2.13/generated/torch.linalg.solve.html
    """
    if out is not None:
        return store(out, "linalg_solve", linalg_solve, A, B, left=left)
    a, b = A._array, B._array
    check_square(a, "linalg.solve")
    if dtypes.from_numpy(a.dtype).category < dtypes.FLOATING:
        check_floating(a, "linalg.solve")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but found A of type {scalar_name(a)} and B of "
            f"type {scalar_name(b)} instead"
        )
    vector = _is_vector(a, b)
    if vector:
        B = B.unsqueeze(-1)
    _check_system(a, B._array, "linalg.solve", left)
    check_floating(a, "linalg.solve", "lu_cpu")
    result = linalg_solve_system(A, B, left=left, check=check)
    return name_node(result.squeeze(-1), "LinalgSolveExBackward0") if vector else result


_SolveEx = namedtuple("linalg_solve_ex", ("result", "info"))


@composite(public=False, method=False)
def linalg_solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """As `solve`, with the first zero pivot (from 1) instead of an error.  A (*, n, n), B (*, n, k) -> as B, (*)."""
    result = linalg_solve(A, B, left=left, check=check_errors)
    return _SolveEx(result, linalg_lu_factor_ex(A.detach()).info)


@composite(public=False, method=False)
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False):
    """X of A X = B (A^H X = B with adjoint, X A = B with left=False) from the factors of A.

    LU (*, n, n), pivots (*, n), B (*, n, k) -> (*, n, k).  RuntimeError for shapes or dtypes that do not fit.
    """
    check_square(LU._array, "torch.linalg.lu_solve", "LU") if LU._array.ndim < 2 else None
    if LU._array.dtype != B._array.dtype:
        raise RuntimeError(
            "linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type "
            f"{scalar_name(LU._array)} and B of type {scalar_name(B._array)} instead"
        )
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    _check_system(LU._array, B._array, "linalg.lu_solve", left)
    P = lu_permutation(pivots, LU._array.shape[-1], B.dtype)
    result = _by_factors(LU, P, B if left else B.transpose(-2, -1).conj(), adjoint if left else not adjoint)
    if not left:  # X A = B  <=>  A^H X^H = B^H
        result = result.transpose(-2, -1).conj()
    guard_again(result, LU, pivots, grad=LU._requires_grad)
    return (guard_again if LU._requires_grad else guard)(result, result)


def _by_factors(LU: Tensor, P: Tensor, B: Tensor, adjoint: bool) -> Tensor:
    if not adjoint:
        half = linalg_solve_triangular(LU, matmul(P.transpose(-2, -1), B), upper=False, unitriangular=True)
        return linalg_solve_triangular(LU, half, upper=True)
    transposed = LU.transpose(-2, -1).conj()
    half = linalg_solve_triangular(transposed, B, upper=False)
    return matmul(P, linalg_solve_triangular(transposed, half, upper=True, unitriangular=True))


@composite()
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None):
    """X of A X = input from the factors of A.  input (*, n, k), LU_data (*, n, n), LU_pivots (*, n) -> (*, n, k)."""
    if out is not None:
        return store(out, "lu_solve", lu_solve, input, LU_data, LU_pivots)
    warn_of_old(
        "lu_solve",
        "linalg.lu_solve",
        "Note that torch.linalg.lu_solve has its arguments reversed.\n"
        "X = torch.lu_solve(B, LU, pivots)\n"
        "should be replaced with\n"
        "X = torch.linalg.lu_solve(LU, pivots, B)",
    )
    return linalg_lu_solve(LU_data, LU_pivots, input)


def warn_of_old(name: str, new: str, how: str) -> None:
    """Warn once of a factorization or a solver by its name of torch 1."""
    warn_once(
        f"torch.{name}",
        f"torch.{name} is deprecated in favor of torch.{new} and will be removed in a future PyTorch release.\n{how}",
    )


def old_check(name: str, b: Any, a: Any) -> None:
    """The checks of the old solvers, in their words."""
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {scalar_name(b)} and A of type "
            f"{scalar_name(a)} instead."
        )
    n, m = a.shape[-2:]
    if n != m:
        raise RuntimeError(f"A must be batches of square matrices, but they are {n} by {m} matrices")
    if b.shape[-2] != n:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {n} by {n} but each b matrix is {b.shape[-2]} by "
            f"{b.shape[-1]}"
        )
