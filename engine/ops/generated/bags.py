"""Rows of a table, alone and in bags, as generated kernels (the extra `jit`): sums, means, the gradient of the table.

They are the kernels "cpu" of their ops; what they do not serve, indices of no row as well, is left to the other route.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.dispatch import kernel
from engine.kernels import bags as forms
from engine.ops.generated import launch
from engine.ops.generated.layers import plain, run
from engine.ops.nn import bags, embedding

_INDICES = frozenset(map(np.dtype, ("int32", "int64")))
_SHARED, _SHARES = 1 << 18, 4  # elements from which threads share a gradient, and in how many parts
_LINE = 16  # elements of a row from which two threads write to lines of their own


def _given(first: Any, indices: Any, offsets: Any, shares: Any, padding: int, last: bool) -> Any:
    """(arrays of indices, whether they have starts, shares, numbers, bags); None for what the kernels do not serve."""
    if not indices.size or indices.dtype not in _INDICES or not indices.flags.c_contiguous:
        return None
    if not plain(first, shares):
        return None
    if offsets is None:
        return [indices], False, [indices.shape[1], 0, padding], indices.shape[0]
    count = offsets.size - last
    if count < 1 or offsets.dtype != indices.dtype or not offsets.flags.c_contiguous:
        return None
    return [indices, offsets], True, [indices.size, offsets.size, padding], count


@kernel(bags.pooled_rows, "cpu")
def _pooled_rows(xp, weight, indices, offsets=None, per_sample_weights=None, mean=False, padding_idx=-1, last=False):
    given = _given(weight, indices, offsets, per_sample_weights, padding_idx, last)
    if given is None:
        return NotImplemented
    arrays, parted, sizes, count = given
    (rows, width), index = weight.shape, indices.dtype.name
    wrong, made = xp.empty((1,), "int32"), xp.empty((count, width), weight.dtype)
    numbers = [rows, indices.size, sizes[1]]
    run(forms.misplaced(index, parted), [*arrays, wrong], numbers, 1, indices.size, weight.dtype.name)
    launch.refuse_if(wrong)
    weighted = per_sample_weights is not None
    if weighted:
        arrays = [*arrays, per_sample_weights]
    each = max(1, indices.size * width // (count * forms.RUN))
    write = forms.pooled(index, parted, weighted, bool(mean), padding_idx >= 0)
    run(write, [weight, *arrays, made], [rows, width, *sizes], count, each)
    return made


@kernel(bags.pooled_rows_backward, "cpu", only_launches=True)
def _pooled_rows_backward(
    xp, grad_output, indices, num_weights, offsets=None, per_sample_weights=None, mean=False, padding_idx=-1, last=False
):
    given = _given(grad_output, indices, offsets, per_sample_weights, padding_idx, last)
    if given is None or not num_weights:
        return NotImplemented
    arrays, parted, sizes, count = given
    width, weighted = grad_output.shape[1], per_sample_weights is not None
    if weighted:
        arrays = [*arrays, per_sample_weights]
    made, work = xp.empty((num_weights, width), grad_output.dtype), (indices.size + num_weights) * width
    shares = _SHARES if work >= _SHARED and width >= _LINE else 1
    write = forms.pooled_gradient(indices.dtype.name, parted, weighted, bool(mean), padding_idx >= 0, shares)
    run(write, [grad_output, *arrays, made], [num_weights, width, *sizes, count], shares, work // shares)
    return made


@kernel(embedding.embedding_dense_backward, "cpu")
def _embedding_dense_backward(xp, grad_output, indices, num_weights, padding_idx=-1, scale_grad_by_freq=False):
    """Bags of one word each."""
    if scale_grad_by_freq or not indices.size or indices.dtype not in _INDICES or not indices.flags.c_contiguous:
        return NotImplemented
    grad = xp.ascontiguousarray(grad_output)  # of one number, it is expanded
    if not plain(grad):
        return NotImplemented
    padding = -1 if padding_idx is None else padding_idx
    wrong, words = xp.empty((1,), "int32"), indices.reshape(-1, 1)
    numbers = [num_weights, words.size, 0]
    run(forms.misplaced(indices.dtype.name, False), [words, wrong], numbers, 1, words.size, grad.dtype.name)
    launch.refuse_if(wrong)
    return _pooled_rows_backward(xp, grad.reshape(words.size, -1), words, num_weights, padding_idx=padding)
