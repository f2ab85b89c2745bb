"""Ops on coordinate lists: what `engine.sparse` computes with."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.dispatch import derivative, op, samples
from engine.ops.pointwise.arithmetic import conj_if_complex as conj
from engine.tensor import Tensor


def _values_slope(grad: Tensor, mat: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return (grad.index_select(0, rows) * conj(mat).index_select(0, columns)).sum(1)


@op(public=False, method=False, tensors=("values", "mat", "rows", "columns"))
@derivative(
    values=lambda grad, mat, rows, columns: _values_slope(grad, mat, rows, columns),
    mat=lambda grad, values, rows, columns, mat_shape: coo_mm(conj(values), grad, columns, rows, mat_shape[0]),
)
@samples(
    lambda t: [
        (t(3), t(3, 2), t.of([0, 1, 1], np.int64), t.of([2, 0, 2], np.int64), 2),
        (t(0), t(3, 2), t.of([], np.int64), t.of([], np.int64), 2),
    ]
)
def coo_mm(xp, values, mat, rows, columns, n):
    """A sparse matrix of n rows times `mat`.  values (nnz), mat (k, m), rows (nnz), columns (nnz) -> (n, m)."""
    result = xp.zeros((n, mat.shape[1]), mat.dtype)
    if not values.size:
        return result
    if xp is not np:
        xp.add.at(result, rows, values[:, None] * mat[columns])
        return result
    if (rows[1:] < rows[:-1]).any():
        order = rows.argsort(kind="stable")
        rows, columns, values = rows[order], columns[order], values[order]
    starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    result[rows[starts]] = np.add.reduceat(values[:, None] * mat[columns], starts, axis=0)
    return result


@op(public=False, method=False, tensors=("values", "groups"))
@derivative(values=lambda grad, groups: grad.index_select(0, groups))
@samples(
    lambda t: [
        (t(3), t.of([0, 2, 0], np.int64), 3),
        (t(3, 2), t.of([1, 1, 0], np.int64), 2),
        (t(0), t.of([], np.int64), 2),
    ]
)
def group_sum(xp, values, groups, n):
    """The sums of the values of each group 0..n-1.  values (nnz, *), groups (nnz) -> (n, *)."""
    result = xp.zeros((n, *values.shape[1:]), values.dtype)
    if not values.size:
        return result
    if xp is not np:
        xp.add.at(result, groups, values)
        return result
    order = groups.argsort(kind="stable")
    groups = groups[order]
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    result[groups[starts]] = np.add.reduceat(values[order], starts, axis=0)
    return result


def linear_index(xp: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """Coordinates as one number each, row-major.  indices (d, nnz) -> (nnz)."""
    result = xp.zeros(indices.shape[1], xp.int64)
    for row, size in zip(indices, shape):
        result = result * size + row
    return result
