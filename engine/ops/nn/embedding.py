"""Rows of a table by index; in bags: `bags.py`."""

from __future__ import annotations

import builtins

import numpy as np

from engine.backends.cpu import relayout
from engine.core import dtypes
from engine.core.grad_mode import no_grad
from engine.dispatch import composite, derivative, op, providers, samples
from engine.ops.gathering import all_below
from engine.tensor import Tensor

_RANKS = 8  # uses of one row that are summed for all rows at once


def check_indices(indices):
    found = dtypes.from_numpy(indices.dtype)
    if found not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"torch.{dtypes.scalar_name(found)}Tensor instead (while checking arguments for embedding)"
        )


def _table_slope(grad, indices, shape, padding_idx, scale_grad_by_freq, sparse):
    """The gradient of the table: dense, or its rows that were used, once for every use."""
    if not sparse:
        return embedding_dense_backward(grad, indices, shape[0], padding_idx, scale_grad_by_freq)
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    at, rows = indices.reshape(-1), grad.reshape(indices.numel(), shape[1])
    if padding_idx is not None and padding_idx >= 0:
        used = at != padding_idx
        at, rows = at[used], rows[used]
    return providers.sparse_rows(at, rows, shape)


@op(out=False, method=False, generated="many", large_by=("indices",))
@derivative(
    weight=lambda grad, indices, weight_shape, padding_idx, scale_grad_by_freq, sparse: _table_slope(
        grad, indices, weight_shape, padding_idx, scale_grad_by_freq, sparse
    )
)
@samples(
    lambda t: [
        (t(5, 3), t.of([[0, 2], [4, 2]])),
        (t(4, 2), t.of(3)),
        (t(4, 2), t.of([], "int64")),
    ]
)
def embedding(xp, weight, indices, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False):
    """weight[indices]; the row padding_idx gets no gradient.  weight (V, D), indices (*) -> (*, D)."""
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    check_indices(indices)
    if indices.size and not all_below(indices, weight.shape[0]):
        raise IndexError("index out of range in self")
    if weight.__class__ is np.ndarray and indices.__class__ is np.ndarray:
        return relayout.taken(weight, indices, 0)
    return xp.take(weight, indices, axis=0)


def _rows_of(grad, indices, padding_idx, scale_grad_by_freq):
    """The transpose of summing gradients into rows."""
    result = embedding(grad, indices)
    factor = None
    if padding_idx >= 0:
        factor = (indices != padding_idx).to(grad.dtype)
    if scale_grad_by_freq:
        counts = indices.new_zeros(grad.shape[0]).index_add(0, indices.reshape(-1), indices.new_ones(indices.numel()))
        share = 1 / counts[indices].to(grad.dtype)
        factor = share if factor is None else factor * share
    return result if factor is None else result * factor.unsqueeze(-1)


def added_rows(xp, rows, flat, count, by_frequency=False):
    """Rows (n, D) added up at the places flat (n) -> (count, D), or their means."""
    wide = rows.astype("float32") if rows.dtype.itemsize == 2 else rows
    result = xp.zeros((count, rows.shape[1]), wide.dtype)
    if flat.size:
        order = xp.argsort(flat, kind="stable")
        ordered = flat[order]
        first = xp.concatenate([xp.ones(1, bool), ordered[1:] != ordered[:-1]])
        starts = xp.flatnonzero(first)
        keys = ordered[starts]
        counts = xp.concatenate([starts[1:], xp.full(1, flat.size, starts.dtype)]) - starts
        sums = wide[order[starts]]
        # all second uses of a row at once, all third ones, ...; what is used more often is summed row by row
        for rank in range(1, builtins.min(int(counts.max()), _RANKS)):
            more = xp.flatnonzero(counts > rank)
            sums[more] += wide[order[starts[more] + rank]]
        for i in xp.flatnonzero(counts > _RANKS).tolist():
            start = int(starts[i])
            sums[i] += wide[order[start + _RANKS : start + int(counts[i])]].sum(axis=0)
        if by_frequency:
            sums /= counts[:, None].astype(wide.dtype)
        result[keys] = sums
    return result.astype(rows.dtype, copy=False)


@op(out=False, public=False, method=False, large=512, generated="many")
@derivative(
    grad_output=lambda grad, indices, padding_idx, scale_grad_by_freq: _rows_of(
        grad, indices, padding_idx, scale_grad_by_freq
    )
)
@samples(
    lambda t: [
        (t(2, 2, 3), t.of([[0, 2], [4, 2]]), 5),
        (t(3, 3), t.of([1, 1, 0]), 5, 0, True),
        (t(14, 2), t.of([1] * 11 + [0, 4, 4]), 5),
    ]
)
def embedding_dense_backward(xp, grad_output, indices, num_weights, padding_idx=-1, scale_grad_by_freq=False):
    """Gradients summed into the rows they came from.  grad_output (*, D), indices (*) -> (num_weights, D)."""
    result = added_rows(
        xp,
        grad_output.reshape(indices.size, grad_output.shape[-1]),
        indices.reshape(-1),
        num_weights,
        scale_grad_by_freq,
    )
    if padding_idx is not None and padding_idx >= 0:
        result[padding_idx] = 0
    return result


@composite(method=False)
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float):
    """In place: rows used and longer than max_norm scaled down to it.  input (V, D), indices (*) -> (V, D)."""
    with no_grad():
        used = indices.reshape(-1).unique()
        rows = input[used]
        size = rows.norm(norm_type, dim=1, keepdim=True)
        scale = (max_norm / (size + 1e-7)).where(size > max_norm, size.new_ones(()))
        input[used] = rows * scale
    return input


def normalized_padding(padding_idx, count):
    if not -count <= padding_idx < count:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx + count if padding_idx < 0 else padding_idx


@composite(public=False, method=False)
def embedding_rows(
    input,
    weight,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
):
    """torch.nn.functional.embedding.  input (*), weight (V, D) -> (*, D)."""
    padding_idx = -1 if padding_idx is None else normalized_padding(padding_idx, weight.size(0))
    if max_norm is not None:
        embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    return embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)
