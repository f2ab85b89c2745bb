"""Numerical methods written with other ops: derivatives of samples, low-rank factors by random projections."""

from __future__ import annotations

import builtins
from typing import Any

from engine.autograd.versions import guard
from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.dispatch import composite
from engine.ops.creation import full
from engine.ops.joining import cat
from engine.ops.linalg.eigen import linalg_svd
from engine.ops.linalg.factor import linalg_qr
from engine.ops.products import matmul
from engine.ops.random import randn
from engine.tensor import Tensor


def _steps(spacing: Any, dims: list[int], input: Tensor, given: bool) -> list[Any]:
    """For each dim the distance between samples, a number, or their coordinates (n)."""
    if spacing is None or isinstance(spacing, builtins.int | builtins.float | complex):
        return [1.0 if spacing is None else spacing] * len(dims)
    if isinstance(spacing, Tensor):
        if not spacing.dim():
            return [spacing.item()] * len(dims)
        spacing = [spacing]
    if len(spacing) != len(dims):
        if given:
            raise RuntimeError(
                "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have "
                f"the same length, but got a spacing argument of length {len(spacing)} and a dim argument of length "
                f"{len(dims)}."
            )
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
            f"{input.dim()}', since dim argument was not given, but got a list of length {len(spacing)}"
        )
    for step, d in zip(spacing, dims):
        if isinstance(step, Tensor) and step.shape != (input.shape[d],):
            raise RuntimeError(
                f"torch.gradient expected the coordinates of dim {d} to be of shape [{input.shape[d]}], but got "
                f"{list(step.shape)}"
            )
    return list(spacing)


def _derivative(input: Tensor, dim: int, step: Any, edge_order: int) -> Tensor:
    """Second-order differences along `dim`, at the two ends of order `edge_order`."""
    n = input.shape[dim]

    def at(start: int, stop: int) -> Tensor:
        return input.narrow(dim, start % n, (stop - 1) % n + 1 - start % n)

    if isinstance(step, Tensor):
        shape = [-1 if d == dim else 1 for d in range(input.dim())]
        gaps = (step[1:] - step[:-1]).reshape(shape)
        left, right = gaps.narrow(dim, 0, n - 2), gaps.narrow(dim, 1, n - 2)
        first, second = gaps.narrow(dim, 0, 1), gaps.narrow(dim, builtins.min(1, n - 2), 1)
        last, before = gaps.narrow(dim, n - 2, 1), gaps.narrow(dim, builtins.max(n - 3, 0), 1)
    else:
        left = right = first = second = last = before = step
    low, middle, high = input.narrow(dim, 0, n - 2), input.narrow(dim, 1, n - 2), input.narrow(dim, 2, n - 2)
    inner = (
        high * (left / (right * (left + right)))
        + middle * ((right - left) / (left * right))
        - low * (right / (left * (left + right)))
    )
    if edge_order == 1:
        start = (at(1, 2) - at(0, 1)) / first
        end = (at(n - 1, n) - at(n - 2, n - 1)) / last
    else:
        start = (
            at(1, 2) * ((first + second) / (first * second))
            - at(0, 1) * ((2 * first + second) / (first * (first + second)))
            - at(2, 3) * (first / (second * (first + second)))
        )
        end = (
            at(n - 3, n - 2) * (last / (before * (last + before)))
            - at(n - 2, n - 1) * ((last + before) / (last * before))
            + at(n - 1, n) * ((2 * last + before) / (last * (last + before)))
        )
    return cat([start, inner, end], dim)


@composite(method=False)
def gradient(
    input: Tensor, *, spacing=None, dim: int | tuple[int, ...] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The derivative along each of `dim` (all) by differences of neighbours; a tuple of tensors like `input`.

    spacing: the distance between samples, one per dim, or for each dim the coordinates (n).  edge_order: 1 or 2, the
    accuracy at the ends.  input (*) -> (*) for each dim.  Raises RuntimeError where a dim has fewer than edge_order + 1
    entries.
    """
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if dim is None:
        dims = list(range(input.dim()))
    else:
        dims = [wrap_dim(d, input.dim()) for d in ([dim] if isinstance(dim, builtins.int) else dim)]
        for d in dims:
            if dims.count(d) > 1:
                raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    steps = _steps(spacing, dims, input, dim is not None)
    if builtins.any(input.shape[d] < edge_order + 1 for d in dims):
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    if not (input.is_floating_point() or input.is_complex()):
        input = input.to(dtypes.get_default_dtype())
    return tuple(_derivative(input, d, step, edge_order) for d, step in zip(dims, steps))


def _range(input: Tensor, q: int, niter: int) -> Tensor:
    """An orthonormal basis (*, m, q) of most of the range of input (*, m, n)."""
    draw = randn(input.shape[-1], q, dtype=input.dtype, device=input.device)
    basis = linalg_qr(matmul(input, draw))[0]
    for _ in range(niter):
        basis = linalg_qr(matmul(input.mH, basis))[0]
        basis = linalg_qr(matmul(input, basis))[0]
    return basis


@composite(method=False)
def svd_lowrank(A, q=6, niter=2, M=None) -> tuple[Tensor, Tensor, Tensor]:
    """The `q` largest singular values with their vectors, by random projection (Halko et al. 2009, arXiv:0909.4061).

    A (*, m, n), M (*, m, n) or (*, 1, n) taken off it -> U (*, m, q), S (*, q), V (*, n, q): A - M is about
    U diag(S) V^H.  niter: power iterations, each makes it better.
    """
    q = 6 if q is None else q
    target = A if M is None else A - M
    flipped = target.shape[-2] < target.shape[-1]
    work = target.mH if flipped else target
    basis = _range(work, builtins.min(q, *work.shape[-2:]), niter)
    left, values, right = linalg_svd(matmul(basis.mH, work), full_matrices=False)
    u, v = guard(matmul(basis, left), M), right.mH
    return (v, values, u) if flipped else (u, values, v)


@composite(method=False)
def pca_lowrank(A, q=None, center=True, niter=2) -> tuple[Tensor, Tensor, Tensor]:
    """`svd_lowrank` of a matrix whose rows are observations, with the mean of each column taken off unless told.

    A (*, m, n) -> U (*, m, q), S (*, q), V (*, n, q); q: min(6, m, n) unless given.  Raises ValueError for a q or
    niter that does not fit.
    """
    m, n = A.shape[-2:]
    q = builtins.min(6, m, n) if q is None else q
    if not 0 <= q <= builtins.min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={builtins.min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A, q, niter, A.mean(-2, keepdim=True) if center else None)


@composite(method=False, recorded="constant")
def scalar_tensor(s: complex, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A number as a tensor of the default dtype, or `dtype`.  -> ()."""
    return full((), s, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad)


@composite(method=False)
def unravel_index(indices, shape) -> tuple[Tensor, ...]:
    """The coordinates of places counted through a tensor of `shape`, one tensor a dim.

    indices integer (*), shape ints or one int -> int64 (*) for each dim.  Raises TypeError for another dtype,
    ValueError for a negative size.
    """
    if indices.is_floating_point() or indices.is_complex() or indices.dtype is dtypes.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype!r}")
    sizes = (shape,) if isinstance(shape, builtins.int) else shape
    for size in sizes:
        if not isinstance(size, builtins.int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(size)}")
    if builtins.any(size < 0 for size in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    found, rest = [], indices.to(dtypes.int64)
    for size in reversed(sizes):
        found.append(rest % size)
        rest = rest // size
    return tuple(reversed(found))


@composite(public=False, method=True)
def fill_diagonal_(input: Tensor, fill_value: complex, wrap: bool = False):
    """Set the main diagonal in place; wrap: of a tall matrix, begin again one row below its end.

    input (n, m), or (n, n, ..., n) of more dims -> itself.
    """
    if input.dim() < 2:
        raise RuntimeError("dimensions must larger than 1")
    if input.dim() > 2:
        n = input.shape[0]
        if builtins.any(size != n for size in input.shape):
            raise RuntimeError("all dimensions of input must be of equal length")
        input.as_strided((n,), (builtins.sum(input.stride()),), input.storage_offset()).fill_(fill_value)
        return input
    rows, columns = input.shape
    for start in range(0, rows if wrap else builtins.min(rows, 1), columns + 1):
        input[start:].diagonal().fill_(fill_value)
    return input
