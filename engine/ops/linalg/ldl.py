"""L D L^H of matrices that are Hermitian or symmetric, by LAPACK's sytrf and hetrf as scipy has them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from engine import backends
from engine.core import dtypes
from engine.core.checks import broadcast_shapes
from engine.dispatch import composite, op, samples
from engine.dispatch.out import store
from engine.ops.linalg.systems import check_square, old_check
from engine.ops.products import scalar_name
from engine.tensor import Tensor

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def _routine(array: Any, hermitian: bool, what: str) -> Any:
    """LAPACK's ?sytrf, ?hetrf, ?sytrs or ?hetrs; ImportError without scipy."""
    try:
        from scipy.linalg import lapack
    except ImportError:
        raise ImportError(
            "linalg.ldl_factor and ldl_solve are computed by scipy, which is not installed\nhint: pip install scipy"
        ) from None
    kind = "he" if hermitian and array.dtype.kind == "c" else "sy"
    return getattr(lapack, _LETTERS[array.dtype.name] + kind + what)


@op(public=False, method=False, tensors=("A",), returns=("LD", "pivots", "info"))
@samples(lambda t: [(t.constant(t(3, 3)),), (t.constant(t(2, 2, 2)), True), (t.of([[0.0, 1.0], [1.0, 0.0]]),)])
def linalg_ldl_factor_arrays(xp, A, hermitian: bool = False):
    """L and D packed in a lower triangle, pivots from 1, negative for 2x2 blocks, and the first zero block of D.

    A (*, n, n), of which the lower triangle is read -> (*, n, n), (*, n) int32, (*) int32.
    """
    n, lead = A.shape[-1], A.shape[:-2]
    backend = backends.of_array(A)
    if backend.kind == "meta":
        return xp.empty_like(A), xp.zeros((*lead, n), np.int32), xp.zeros(lead, np.int32)
    here = backend.to_host(A)
    count = int(np.prod(lead))
    matrices = here.reshape(count, n, n)
    packed = np.zeros(matrices.shape, here.dtype)
    pivots, info = np.zeros(matrices.shape[:2], np.int32), np.zeros(len(matrices), np.int32)
    for i, matrix in enumerate(matrices if n else ()):
        packed[i], pivots[i], info[i] = _routine(here, hermitian, "trf")(matrix, lower=1)
    packed = np.tril(packed)
    return xp.asarray(packed.reshape(A.shape)), xp.asarray(pivots.reshape(*lead, n)), xp.asarray(info.reshape(lead))


@op(public=False, method=False, tensors=("LD", "pivots", "B"))
@samples(lambda t: [(t.constant(t.positive(2, 2)), t.of([1, 2], "int32"), t.constant(t(2, 3)))])
def linalg_ldl_solve_arrays(xp, LD, pivots, B, hermitian: bool = False):
    """X of A X = B from the factors of A.  LD (*, n, n), pivots (*, n), B (*, n, k) of the same batch -> (*, n, k)."""
    if backends.of_array(B).kind == "meta":
        return xp.empty_like(B)
    packed, places, right = (backends.of_array(a).to_host(a) for a in (LD, pivots, B))
    found = np.zeros(right.shape, right.dtype)
    n, k = right.shape[-2:]
    if right.size:
        rows = zip(packed.reshape(-1, n, n), places.reshape(-1, n), right.reshape(-1, n, k), found.reshape(-1, n, k))
        for matrix, pivot, b, target in rows:
            target[...] = _routine(packed, hermitian, "trs")(matrix, pivot.astype(np.int32), b, lower=1)[0]
    return xp.asarray(found)


@composite(public=False, method=False)
def linalg_ldl_factor_ex(A: Tensor, hermitian: bool = False) -> Any:
    """(LD, pivots, info) of A = L D L^H (L D L^T unless hermitian).  A (*, n, n) -> (*, n, n), (*, n), (*)."""
    array, where = A._array, "torch.linalg.ldl_factor_ex"
    check_square(array, where)
    if dtypes.from_numpy(array.dtype).category < dtypes.FLOATING or array.dtype.itemsize == 2:
        raise RuntimeError(f"{where}: Expected a floating point or complex tensor as input. Got {scalar_name(array)}")
    return linalg_ldl_factor_arrays(A.detach(), hermitian)


def refuse_singular(name: str, info: Tensor) -> None:
    """RuntimeError where a block of D is zero."""
    array = info._array
    if bool((array != 0).any()):
        first = int(array[array != 0].reshape(-1)[0])
        raise RuntimeError(f"{name}: the block of D in row {first} is zero, so that D cannot be inverted")


@composite(public=False, method=False)
def linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, hermitian: bool = False) -> Tensor:
    """X of A X = B from the factors of A.  LD (*, n, n), pivots (*, n), B (*, n, k) -> (*, n, k)."""
    name = "torch.linalg.ldl_solve"
    ld, b = LD._array, B._array
    check_square(ld, name)
    if b.ndim < 2:
        raise RuntimeError(f"{name}: Expected B to have at least 2 dimensions, but it has {b.ndim} dimensions instead")
    if pivots._array.shape != ld.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
            f"{list(pivots._array.shape)} instead"
        )
    if pivots._array.dtype.kind not in "iu":
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {scalar_name(pivots._array)}")
    old_check(name, b, ld)
    lead = tuple(broadcast_shapes(ld.shape[:-2], b.shape[:-2]))
    n, k = b.shape[-2:]
    return linalg_ldl_solve_arrays(
        LD.expand((*lead, n, n)), pivots.expand((*lead, n)), B.expand((*lead, n, k)), hermitian
    )


# --- of torch.linalg

_LDL = namedtuple("linalg_ldl_factor", ("LD", "pivots"))
_LDLEx = namedtuple("linalg_ldl_factor_ex", ("LD", "pivots", "info"))


def ldl_factor(A: Tensor, *, hermitian: bool = False, out: Any = None) -> Any:
    """A = L D L^T (L D L^H if hermitian) in one matrix, and the pivots.  A (*, n, n) -> (*, n, n), (*, n).

    RuntimeError if D is singular, ImportError without scipy.
    """

    def make() -> Any:
        found = linalg_ldl_factor_ex(A, hermitian)
        refuse_singular("torch.linalg.ldl_factor", found.info)
        return _LDL(found.LD, found.pivots)

    return make() if out is None else store(out, "linalg_ldl_factor", make)


def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """As `ldl_factor`, with the first zero block of D instead of an error.  A (*, n, n) -> (*, n, n), (*, n), (*)."""

    def make() -> Any:
        found = linalg_ldl_factor_ex(A, hermitian)
        if check_errors:
            refuse_singular("torch.linalg.ldl_factor_ex", found.info)
        return _LDLEx(*found)

    return make() if out is None else store(out, "linalg_ldl_factor_ex", make)


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Any = None) -> Tensor:
    """X of A X = B from the factors of A.  LD (*, n, n), pivots (*, n), B (*, n, k) -> (*, n, k)."""
    if out is not None:
        return store(out, "linalg_ldl_solve", linalg_ldl_solve, LD, pivots, B, hermitian)
    return linalg_ldl_solve(LD, pivots, B, hermitian)
