"""Looking up by index: embedding and its gradient, index_select, gather.

An index out of range is found by the kernel that reads it (`_faults`), not by passes of their own.  Sums into the rows
of a table are made row by row in the order of the uses: the same from run to run, without atomics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.core.checks import wrap_dim
from engine.dispatch import kernel
from engine.kernels import tables
from engine.kernels.elementwise import collapsed
from engine.kernels.trace import KNOWN
from engine.ops import along, gathering
from engine.ops.cuda import _faults
from engine.ops.cuda._launch import Unfit, built, contiguous_strides, map_grid, scalar, strides_of
from engine.ops.nn import embedding
from engine.ops.reduction.cuda import known, serving

_built: dict[Any, Any] = {}


def _look_up(xp: Any, input: Any, dim: int, index: Any, shape: Any, rows: Any, wrapped: bool, error: Any) -> Any:
    """out[...] = input[..., index, ...] over `shape`.  rows: strides of input (0 at what is looked up) and of index."""
    known(input, index)
    if index.dtype.kind not in "iu":
        raise Unfit("the index's type")
    made, flag = xp.empty(shape, input.dtype), xp.zeros(1, "int32")
    layout = collapsed(shape, [*rows, contiguous_strides(shape)])
    wide = layout.wide or input.size >= 2**31 - (1 << 24)
    key = compiling.generation, input.dtype, index.dtype, layout.classes, wide, wrapped
    call = _built.get(key)
    if call is None:
        call = _built[key] = built(tables.taken(input.dtype, index.dtype, layout.classes, wrapped), wide=wide)
    passed = [scalar(n, "index", wide) for n in layout.numbers()]
    size = [np.int64(input.shape[dim]), scalar(strides_of(input)[dim], "index", wide)]
    call(*map_grid(layout.count), [input, index, made, flag, *passed, *size, scalar(layout.count, "index", wide)])
    _faults.look(flag, error)
    return made


@kernel(embedding.embedding, "cuda")
@serving
def _embedding(xp, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if weight.ndim != 2 or indices.dtype not in (np.int64, np.int32):
        return NotImplemented
    shape = (*indices.shape, weight.shape[1])
    own = strides_of(weight)
    rows = [((0,) * indices.ndim + own[1:]), (*strides_of(indices), 0)]
    return _look_up(xp, weight, 0, indices, shape, rows, False, lambda: IndexError("index out of range in self"))


@kernel(along.index_select, "cuda")
@serving
def _index_select(xp, input, dim, index):
    if index.ndim != 1 or not input.ndim or index.dtype not in (np.int64, np.int32):
        return NotImplemented
    dim = wrap_dim(dim, input.ndim)
    shape = (*input.shape[:dim], index.size, *input.shape[dim + 1 :])
    own = list(strides_of(input))
    own[dim] = 0
    at = [0] * input.ndim
    at[dim] = strides_of(index)[0]
    rows = [tuple(own), tuple(at)]
    return _look_up(xp, input, dim, index, shape, rows, False, lambda: IndexError("index out of range in self"))


@kernel(gathering.gather, "cuda")
@serving
def _gather(xp, input, dim, index, *, sparse_grad=False):
    if input.ndim != index.ndim or not input.ndim or index.dtype != np.int64:
        return NotImplemented
    dim = wrap_dim(dim, input.ndim)
    if any(d != dim and n > m for d, (n, m) in enumerate(zip(index.shape, input.shape))):
        return NotImplemented
    own = list(strides_of(input))
    own[dim] = 0
    size = input.shape[dim]

    def error() -> Exception:
        found = int(index.max()) if int(index.max()) >= size else int(index.min())
        return RuntimeError(f"index {found} is out of bounds for dimension {dim} with size {size}")

    return _look_up(xp, input, dim, index, index.shape, [tuple(own), strides_of(index)], False, error)


@kernel(embedding.embedding_dense_backward, "cuda")
@serving
def _embedding_backward(xp, grad_output, indices, num_weights, padding_idx=-1, scale_grad_by_freq=False):
    known(grad_output, indices)
    width = grad_output.shape[-1]
    if grad_output.dtype.kind not in "fV" or indices.size * width >= 2**31 or grad_output.dtype.name not in KNOWN:
        return NotImplemented
    rows, flat = xp.ascontiguousarray(grad_output.reshape(-1, width)), indices.reshape(-1)
    order = xp.argsort(flat, kind="stable").astype("int64", copy=False)
    keys = flat[order].astype("int64", copy=False)
    bounds = [xp.searchsorted(keys, keys, side).astype("int64", copy=False) for side in ("left", "right")]
    made = xp.zeros((num_weights, width), grad_output.dtype)
    key = compiling.generation, "rows", rows.dtype
    call = _built.get(key)
    if call is None:
        call = _built[key] = built(tables.summed_rows(rows.dtype, made.dtype))
    count = keys.size * width
    numbers = [np.int32(width), np.int32(bool(scale_grad_by_freq)), np.int32(count)]
    call(*map_grid(count), [rows, order, keys, *bounds, made, *numbers])
    if padding_idx is not None and padding_idx >= 0:
        made[padding_idx] = 0
    return made
