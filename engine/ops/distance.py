"""Distances between all pairs of rows: `cdist`, `pdist`."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, numel
from engine.dispatch import composite, joint_derivative, op, samples
from engine.ops._vjp import WHY, vjp
from engine.ops.fusing import fused_later
from engine.ops.products import matmul, scalar_name
from engine.tensor import Tensor

_CHUNK = 1 << 22  # elements of differences in memory at once


def _differences(xp: Any, x1: Any, x2: Any, reduce: Any) -> Any:
    """`reduce(x1_i - x2_j)` over the last dim for all i, j, in pieces of rows."""
    lead = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    n, m, d = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    step = builtins.max(1, _CHUNK // builtins.max(1, numel(lead) * m * d))
    pieces = [reduce(x1[..., i : i + step, None, :] - x2[..., None, :, :]) for i in range(0, builtins.max(n, 1), step)]
    return pieces[0] if len(pieces) == 1 else xp.concatenate(pieces, axis=-2)


def _euclidean_ratio(grad: Tensor, result: Tensor) -> Tensor:
    return (grad / result).masked_fill(result == 0, 0)


def _euclidean_formula(
    grad: Tensor, x1: Tensor, x2: Tensor, result: Tensor, x1_shape: Any, x2_shape: Any, needs: Any
) -> tuple[Any, Any]:
    first, ratio = None, _euclidean_ratio(grad, result)
    if needs[0]:
        first = (x1 * ratio.sum(-1, True) - matmul(ratio, x2)).sum_to_size(x1_shape)
    if not needs[1]:
        return first, None
    ratio = ratio.transpose(-2, -1)
    return first, (x2 * ratio.sum(-1, True) - matmul(ratio, x1)).sum_to_size(x2_shape)


_MANY = 1 << 14  # distances that one pass of generated code finishes


_finished = fused_later("distances", lambda xp, product, a, b: xp.sqrt(xp.maximum(a + b - product * 2, 0)))


@op(public=False, method=False, node="CdistBackward0", large=1 << 16, large_by=("x1", "x2"))
@joint_derivative("x1", "x2", by=_euclidean_formula)
@samples(
    lambda t: [
        (t(3, 2), t(4, 2)),
        (t(2, 3, 2), t(4, 2)),
        (t(3, 2), t(4, 2), True),
        (t(1, 2), t(0, 2)),
    ]
)
def euclidean_cdist(xp, x1, x2, by_product=False):
    """Euclidean distances of all pairs of rows.  x1 (*a, n, d), x2 (*b, m, d) -> (*, n, m).

    by_product: through |x|^2 + |y|^2 - 2xy, one matrix product; faster, less exact for near points.
    """
    if not by_product:
        return _differences(xp, x1, x2, lambda diff: xp.sqrt((diff * diff).sum(-1)))
    first, second = (x1 * x1).sum(-1)[..., :, None], (x2 * x2).sum(-1)[..., None, :]
    product = xp.matmul(x1, xp.swapaxes(x2, -1, -2))
    if type(product) is np.ndarray and product.size >= _MANY:
        found = _finished(np, product, first, second)
        if found is not NotImplemented:
            return found

    def finish(rows: slice) -> None:
        part = product[..., rows, :]
        part *= 2
        xp.subtract(first[..., rows, :] + second, part, out=part)
        xp.maximum(part, 0, out=part)
        xp.sqrt(part, out=part)

    share = getattr(xp, "share", None)
    if share is None:
        finish(slice(None))
    else:
        share(finish, product.shape[-2], product.size)
    return product


def _cdist_slope(grad: Tensor, x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """The gradient for x1_i - x2_j, all pairs, out of small ops.  (*, n, m, d)"""
    diff = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    grad = grad.unsqueeze(-1)
    if p == 0:
        return diff * 0 * grad
    if p == 1:
        return diff.sign() * grad
    far = general_cdist(x1, x2, p).unsqueeze(-1)
    if p == float("inf"):
        return diff.sign() * (diff.abs() == far) * grad
    size = diff.abs()
    if p < 1 or 1 < p < 2:
        size = size.masked_fill(size == 0, 1)  # sign is 0 there
    slope = diff.sign() * size ** (p - 1) * (grad / far ** (p - 1))
    return slope.masked_fill(far == 0, 0)


def _cdist_twin(grad: Tensor, x1: Tensor, x2: Tensor, p: float) -> tuple[Tensor, Tensor]:
    slope = _cdist_slope(grad, x1, x2, p)
    return slope.sum(-2), -slope.sum(-3)


def _slopes(xp: Any, grad: Any, diff: Any, far: Any, p: float) -> Any:
    """`_cdist_slope` of arrays that broadcast, diff being x1_i - x2_j."""
    if p == 0:
        return diff * 0 * grad
    if p == 1:
        return xp.sign(diff) * grad
    size = xp.abs(diff)
    if p == float("inf"):
        return xp.sign(diff) * (size == far) * grad
    if p < 1 or 1 < p < 2:
        size = xp.where(size == 0, 1, size)
    slope = xp.sign(diff) * size ** (p - 1) * (grad / far ** (p - 1))
    return xp.where(far == 0, 0, slope).astype(diff.dtype, copy=False)


@op(
    public=False,
    method=False,
    out=False,
    returns=("x1", "x2"),
    tensors=("distances",),
    why=WHY,
    large=4096,
    generated="many",
)
@joint_derivative(
    "grad_output",
    "x1",
    "x2",
    by=lambda grads, grad_output, x1, x2, needs, p: vjp(
        lambda g, a, b: _cdist_twin(g, a, b, p), (grad_output, x1, x2), grads, needs
    ),
)
def general_cdist_backward(xp, grad_output, x1, x2, distances, p, first=True, second=True):
    """The gradients of `general_cdist`; of those that are not asked for (0).

    grad_output, distances (*, n, m), x1 (*a, n, d), x2 (*b, m, d) -> (*, n, d), (*, m, d).
    """
    lead = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    n, m, d = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    step = builtins.max(1, _CHUNK // builtins.max(1, numel(lead) * m * d))
    of_first = xp.zeros((*lead, n, d) if first else (0,), x1.dtype)
    of_second = xp.zeros((*lead, m, d) if second else (0,), x1.dtype)
    for i in range(0, n, step):
        rows = slice(i, i + step)
        diff = x1[..., rows, None, :] - x2[..., None, :, :]
        slope = _slopes(xp, grad_output[..., rows, :, None], diff, distances[..., rows, :, None], p)
        if first:
            of_first[..., rows, :] = slope.sum(-2)
        if second:
            of_second -= slope.sum(-3)
    return of_first, of_second


def _general_formula(
    grad: Tensor, x1: Tensor, x2: Tensor, p: float, result: Tensor, x1_shape: Any, x2_shape: Any, needs: Any
) -> tuple[Any, Any]:
    first, second = general_cdist_backward(grad, x1, x2, result.detach(), p, needs[0], needs[1])
    return (
        first.sum_to_size(x1_shape) if needs[0] else None,
        second.sum_to_size(x2_shape) if needs[1] else None,
    )


@op(public=False, method=False, node="CdistBackward0", large=4096, generated="many")
@joint_derivative("x1", "x2", by=_general_formula)
@samples(
    lambda t: [
        (t(3, 2), t(4, 2), 1.0),
        (t(2, 3, 2), t(4, 2), 3.0),
        (t(3, 2), t(4, 2), 1.5),
        (t(3, 2), t(4, 2), float("inf")),
        (t(3, 2), t(4, 2), 0.0),
    ]
)
def general_cdist(xp, x1, x2, p):
    """Distances in the p-norm of all pairs of rows.  x1 (*a, n, d), x2 (*b, m, d) -> (*, n, m)."""
    if p == 0:
        return _differences(xp, x1, x2, lambda diff: (diff != 0).sum(-1).astype(x1.dtype))
    if p == 1:
        return _differences(xp, x1, x2, lambda diff: xp.abs(diff).sum(-1))
    if p == float("inf"):
        return _differences(xp, x1, x2, lambda diff: xp.abs(diff).max(-1) if diff.shape[-1] else diff.sum(-1))
    return _differences(xp, x1, x2, lambda diff: (xp.abs(diff) ** p).sum(-1) ** (1 / p))


def _distance_dtype(name: str, array: Any, label: str = "") -> None:
    if array.dtype not in dtypes.NATIVE and dtypes.from_numpy(array.dtype).category != dtypes.FLOATING:
        found = f", {label} got: {scalar_name(array)}" if label else ""
        raise RuntimeError(f"{name} only supports floating-point dtypes{found}")
    if array.dtype.itemsize == 2:
        raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_name(array)}'")


CDIST_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@composite(method=False, autocast="float32")
@samples(lambda t: [(t(3, 2), t(4, 2)), (t(2, 3, 2), t(4, 2), 1.0)])
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """Distances in the p-norm between the rows of x1 and of x2; the gradient is 0 where points coincide.

    x1 (*a, n, d), x2 (*b, m, d) -> (*broadcast, n, m).  RuntimeError for sizes or dtypes that do not fit, or p < 0.
    https://docs.pytorch.org/docs/2.13/generated/torch.cdist.html
    """
    if compute_mode not in CDIST_MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    a, b = x1._array, x2._array
    for label, x in (("X1", a), ("X2", b)):
        if x.dtype.kind == "c":
            found = dtypes.scalar_name(dtypes.from_numpy(x.dtype))
            raise RuntimeError(f"cdist only supports floating-point dtypes, {label} got: {found}")
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {label} got: {x.ndim}D")
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {a.shape[-1]} X2: {b.shape[-1]}")
    _distance_dtype("cdist", a, "X1")
    _distance_dtype("cdist", b, "X2")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected scalar type {scalar_name(a)} but found {scalar_name(b)}")
    if p != 2:
        return general_cdist(x1, x2, float(p))
    large = a.shape[-2] > 25 or b.shape[-2] > 25
    return euclidean_cdist(x1, x2, compute_mode == CDIST_MODES[1] or (large and compute_mode == CDIST_MODES[0]))


@composite(method=False)
@samples(lambda t: [(t(4, 2),), (t(4, 2), 1.0), (t(3, 2), 3.0)])
def pdist(input: Tensor, p: float = 2.0):
    """Distances in the p-norm between all pairs of rows i < j.  input (n, d) -> (n (n - 1) / 2).

    RuntimeError for other ranks, dtypes or p < 0.
    """
    array = input._array
    if array.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {array.ndim}D")
    if dtypes.from_numpy(array.dtype).category != dtypes.FLOATING:
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    _distance_dtype("pdist", array)
    n = array.shape[0]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    first = input[[i for i, _ in pairs]] if pairs else input[:0]
    second = input[[j for _, j in pairs]] if pairs else input[:0]
    found = general_cdist(first.unsqueeze(1), second.unsqueeze(1), float(p)).reshape(len(pairs))
    return guard(name_node(found, "PdistBackward0"), input, found)
