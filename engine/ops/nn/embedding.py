"""Rows of a table by index, one by one and in bags."""

from __future__ import annotations

import builtins
import warnings

import numpy as np

from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.backends.cpu import relayout
from engine.core import dtypes
from engine.core.grad_mode import no_grad
from engine.dispatch import composite, derivative, op, providers, samples
from engine.ops.gathering import all_below
from engine.tensor import Tensor

_RANKS = 8  # uses of one row that are summed for all rows at once


def _check_indices(indices):
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


@op(out=False, method=False)
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
    _check_indices(indices)
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
    width = grad_output.shape[-1]
    rows, flat = grad_output.reshape(indices.size, width), indices.reshape(-1)
    wide = rows.astype("float32") if rows.dtype.itemsize == 2 else rows
    result = xp.zeros((num_weights, width), wide.dtype)
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
        if scale_grad_by_freq:
            sums /= counts[:, None].astype(wide.dtype)
        result[keys] = sums
        if padding_idx is not None and padding_idx >= 0:
            result[padding_idx] = 0
    return result.astype(grad_output.dtype, copy=False)


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


def _normalized_padding(padding_idx, count):
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
    padding_idx = -1 if padding_idx is None else _normalized_padding(padding_idx, weight.size(0))
    if max_norm is not None:
        embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    return embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def _bags(input, offsets, include_last_offset):
    """(start, length) of each bag as lists."""
    if offsets.device.type == "meta":  # bags of no rows: of those there are as many
        none = [0] * (offsets.numel() - bool(include_last_offset))
        return none, none
    starts = offsets.tolist()
    total = input.numel()
    ends = starts[1:] if include_last_offset else [*starts[1:], total]
    if include_last_offset:
        starts = starts[:-1]
    return starts, [e - s for s, e in zip(starts, ends)]


@composite(public=False, method=False)
@samples(
    lambda t: [
        (t.of([[0, 2], [4, 2]]), t(5, 3)),
        (t.of([0, 2, 4, 2]), t(5, 3), t.of([0, 1]), None, 2, False, "sum"),
        (t.of([[0, 2], [4, 2]]), t.distinct(5, 3), None, None, 2, False, "max"),
    ]
)
def embedding_bag(
    input,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm=None,
    norm_type=2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
):
    """Sums, means or maxima of bags of rows.  input (B, L), or (n) with offsets (B); weight (V, D) -> (B, D)."""
    if weight.dtype is dtypes.int64 and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        weight, input = input, weight
    if per_sample_weights is not None and input.size() != per_sample_weights.size():
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the "
            f"same shape as the input ({input.shape})"
        )
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    weighted = () if per_sample_weights is None else (weight, per_sample_weights)  # both are saved then
    ndim = input.dim()
    input = input.contiguous()
    table = each = None  # bags of one length, and the weights of their rows
    if ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                f"sequences. However, found offsets of type {type(offsets)}"
            )
        count, length = input.shape
        table, each = input, per_sample_weights
        starts, lengths = [i * length for i in range(count)], [length] * count
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
        starts, lengths = _bags(input, offsets, include_last_offset)
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
            f"mode='{mode}'). Please open a feature request on GitHub."
        )
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
            f"'per_sample_weights'; but type {weight.type()} does not equal {per_sample_weights.type()} (while "
            "checking arguments for embedding_bag)"
        )
    if max_norm is not None:
        embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    if padding_idx is not None:
        padding_idx = _normalized_padding(padding_idx, weight.size(0))
    if table is not None and padding_idx is None and table.numel():
        result = _pooled_alike(table, weight, mode, scale_grad_by_freq, each, sparse)
        return guard(name_node(result, "EmbeddingBagBackward0"), table, *weighted)
    result = _pooled(input, weight, starts, lengths, mode, scale_grad_by_freq, per_sample_weights, padding_idx, sparse)
    return guard(name_node(result, "EmbeddingBagBackward0"), input, offsets, *weighted)


def _pooled_alike(input, weight, mode, scale_grad_by_freq, per_sample_weights, sparse):
    """`_pooled` of bags of one length: (64, 20) rows of 64 in a fifth of the time, without lists of indices."""
    rows = embedding(weight, input, -1, scale_grad_by_freq, sparse)
    if mode == "max":
        return rows.max(1)[0]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    return rows.mean(1) if mode == "mean" else rows.sum(1)


def _pooled(input, weight, starts, lengths, mode, scale_grad_by_freq, per_sample_weights, padding_idx, sparse):
    bag = [b for b, n in enumerate(lengths) for _ in range(n)]
    place = [s + i for s, n in zip(starts, lengths) for i in range(n)]
    if padding_idx is not None and input.device.type != "meta":
        values = input.tolist()
        kept = [i for i, p in enumerate(place) if values[p] != padding_idx]
        bag, place = [bag[i] for i in kept], [place[i] for i in kept]
    counts = [0] * len(lengths)
    for b in bag:
        counts[b] += 1

    def integers(values):
        return input.new_tensor(values, dtype=dtypes.int64).reshape(len(values))

    chosen = integers(place)
    rows = embedding(weight, input[chosen], -1, scale_grad_by_freq, sparse)
    size = (len(lengths), weight.shape[1])
    if mode == "max":
        longest = builtins.max(counts, default=0)
        if not longest:
            return rows.new_zeros(size) + rows.sum() * 0
        seen, table = [0] * len(lengths), [[0] * longest for _ in lengths]
        for i, b in enumerate(bag):
            table[b][seen[b]] = i
            seen[b] += 1
        inside = input.new_tensor([[i < n for i in range(longest)] for n in counts], dtype=dtypes.bool)
        grid = rows[input.new_tensor(table, dtype=dtypes.int64)]
        top = grid.masked_fill(~inside.unsqueeze(-1), float("-inf")).max(1)[0]
        return top.masked_fill((integers(counts) == 0).unsqueeze(-1), 0.0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[chosen].unsqueeze(-1)
    sums = rows.new_zeros(size).index_add(0, integers(bag), rows)
    if mode == "mean":
        sums = sums / integers([n or 1 for n in counts]).to(rows.dtype).unsqueeze(-1)
    return sums
