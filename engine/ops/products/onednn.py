"""oneDNN's kernels of matrix products: its sgemm, so that BLAS's own threads stay asleep.

numpy's BLAS starts threads for about the products that come here; two pools that both spin halve the speed.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import empty, half_floats
from engine.backends.cpu.fast import Fast
from engine.backends.cpu.threads import get_num_threads
from engine.backends.onednn import arrays
from engine.backends.onednn.primitives import ready, usable
from engine.core.checks import broadcast_shapes
from engine.core.lru import LRU
from engine.dispatch import OPS, kernel
from engine.dispatch.choosing import worth_loading
from engine.ops import distance, products
from engine.ops.products import addmm as products_add
from engine.ops.products import images

# Rows that a product with a transposed weight takes more quickly as a primitive than as sgemm: 0.4 to 0.85 of the time.
# A primitive is made anew for each number of rows, which takes 1 ms or 2, so not for all of them: of more rows, where
# it takes 0.77 to 0.97 of the time on two threads, only for those that come again.
_BATCH = range(8, 513)
_seen: LRU[Any, bool] = LRU(1 << 12)  # products of more rows that were asked for once
_PRODUCT = 1 << 18  # multiplications from which sgemm is the faster: 64 x 64 x 64, measured


# Multiplications of one product of a batch, by the square of the threads, from which oneDNN is the faster: it takes
# 0.9 us of a thread for each, BLAS, on one thread, 0.1.
_EACH = 1 << 17


def _worth(n: int, k: int, m: int) -> bool:
    return n * k * m >= _PRODUCT


def _gemm(a: Any, b: Any, out: Any, alpha: float = 1.0, beta: float = 0.0) -> bool:
    """out = alpha a @ b + beta out for matrices of any strides."""
    return arrays.sgemm(products.straight(np, a), products.straight(np, b), out, alpha, beta)


def multiply(a: Any, b: Any, out: Any) -> None:
    """out = a @ b of matrices, by BLAS where oneDNN does not serve."""
    if not arrays.sgemm(a, b, out):
        np.matmul(a, b, out=out)


class _Products(Fast):
    """`fast`, whose large products are oneDNN's: for kernels of numpy's that serve in the place of one of oneDNN's."""

    @staticmethod
    def matmul(a: Any, b: Any, out: Any = None) -> Any:
        """np.matmul of matrices, or of stacks of them."""
        if min(a.ndim, b.ndim) < 2 or not _worth(*a.shape[-2:], b.shape[-1]) or not a.dtype == b.dtype == np.float32:
            return Fast.matmul(a, b, out)
        lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if out is None:
            out = empty((*lead, a.shape[-2], b.shape[-1]), a.dtype)
        left, right = (x if x.shape[:-2] == lead else np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
        for at in np.ndindex(lead):
            multiply(products.straight(np, left[at]), products.straight(np, right[at]), out[at])
        return out


fast_products = _Products()


def _halves(a: Any, b: Any, bias: Any = None) -> Any:
    """a @ b (+ bias) of 16-bit matrices: by oneDNN where it has instructions for them, else in float32."""
    given = (a, b) if bias is None else (a, b, bias)
    if not a.size or not b.size or any(x.dtype != a.dtype for x in given) or a.dtype.kind not in "fV" or not ready():
        return NotImplemented
    made = empty((a.shape[0], b.shape[1]), a.dtype)
    row = None if bias is None else _row(bias, b.shape[1])
    if a.flags.forc and b.flags.forc and arrays.matmul(a, b, made, row):
        return made
    wide = half_floats.product(a, b, multiply)
    if bias is not None:
        wide += half_floats.widen(bias)
    return wide.astype(a.dtype)


def _row(bias: Any, outputs: int) -> Any:
    """A bias (O), (1) or () as a contiguous (1, O).  np.broadcast_to alone takes 5 of the 40 us of a small layer."""
    if bias.ndim == 1 and bias.shape[0] == outputs and bias.flags.c_contiguous:
        return bias.reshape(1, outputs)
    return np.ascontiguousarray(np.broadcast_to(bias, (1, outputs)))


def _repeated(rows: int, weight: tuple[int, ...]) -> bool:
    """Return whether a product of more rows than those of `_BATCH` with a weight of such a shape comes again."""
    if rows < _BATCH.stop or _seen.get((rows, weight)):
        return rows >= _BATCH.stop
    _seen[rows, weight] = True
    return False


@kernel(products.mm, "onednn")
def _mm(xp, input, mat2):
    if input.ndim != 2 or mat2.ndim != 2 or input.shape[1] != mat2.shape[0]:
        return NotImplemented
    if input.dtype.itemsize == 2:
        return _halves(input, mat2)
    if not _worth(*input.shape, mat2.shape[1]) or not usable(input, mat2):
        return NotImplemented
    if _by_blas(input, mat2):
        return input.dot(mat2)
    made = empty((input.shape[0], mat2.shape[1]), input.dtype)
    plain = input.shape[0] in _BATCH and input.flags.c_contiguous and mat2.flags.f_contiguous
    if plain and arrays.matmul(input, mat2, made):
        return made
    return made if _gemm(input, mat2, made) else NotImplemented


_ONE_ROW = 1 << 16  # elements of a weight from which reading it is most of the work
_ALONE = 1 << 19  # elements of a weight up to which one thread reads it as quickly as several


def _by_blas(rows: Any, weight: Any) -> bool:
    """Return whether BLAS is the fastest of one row: it reads a weight as it is, sgemm packs it."""
    if rows.shape[0] != 1 or not rows.dtype == weight.dtype == np.float32 or not weight.flags.forc:
        return False
    return weight.size <= _ALONE or get_num_threads() == 1


@functools.cache
def _generated() -> Any:
    """The generated product of one row in front of the library's; None without the extra `jit`."""
    from engine.kernels import processor

    if not processor.available():
        return None
    from engine.ops.generated import guard
    from engine.ops.products import generated as products

    return guard.guarded("linear", products.one_row, lambda xp, row, *rest: _rows(row, row, *rest), False)


def _one_row(row: Any, weight: Any, bias: Any) -> Any:
    if weight.dtype.name not in ("float32", "bfloat16", "float16") or row.dtype != weight.dtype:
        return NotImplemented
    for array in (row, weight) if bias is None else (row, weight, bias):
        if array.dtype != weight.dtype or not array.flags.c_contiguous:
            return NotImplemented
    if (bias is not None and bias.shape != (weight.shape[0],)) or not worth_loading(weight.size):
        return NotImplemented
    if (made := _generated()) is None:
        return NotImplemented
    return made(np, row, weight, bias)


@kernel(products.linear, "onednn")
def linear_of_rows(xp: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """`products.linear` by sgemm, by a primitive of so many rows, or by generated code."""
    if not input.ndim or weight.ndim != 2 or input.shape[-1] != weight.shape[1]:
        return NotImplemented
    outputs, width = weight.shape
    if bias is not None and bias.shape not in ((outputs,), (1,), ()):
        return NotImplemented
    rows = input if input.ndim == 2 else input.reshape(-1, width)
    if weight.size < _ONE_ROW or rows.shape[0] != 1 or _by_blas(rows, weight):
        return _rows(input, rows, weight, bias)
    if (found := _one_row(rows, weight, bias)) is not NotImplemented:
        return found if input.ndim == 2 else found.reshape(*input.shape[:-1], outputs)
    return _rows(input, rows, weight, bias)


def _rows(input: Any, rows: Any, weight: Any, bias: Any) -> Any:
    """`linear` of an input, of which `rows` is the matrix."""
    outputs, width = weight.shape
    if input.dtype.itemsize == 2:
        found = _halves(rows, weight.T, bias)
        return found if input.ndim == 2 or found is NotImplemented else found.reshape(*input.shape[:-1], outputs)
    if not _worth(input.size // max(1, width), width, outputs) or not usable(input, weight, bias):
        return NotImplemented
    if _by_blas(rows, weight):
        made = rows.dot(weight.T)
        if bias is not None:
            made += bias
        return made if input.ndim == 2 else made.reshape(*input.shape[:-1], outputs)
    made = empty((rows.shape[0], outputs), input.dtype)
    contiguous = rows.flags.c_contiguous and weight.flags.c_contiguous
    if contiguous and (rows.shape[0] in _BATCH or _repeated(rows.shape[0], weight.shape)):
        row = None if bias is None else _row(bias, outputs)
        if arrays.matmul(rows, weight.T, made, row):
            return made if input.ndim == 2 else made.reshape(*input.shape[:-1], outputs)
    if bias is not None:
        made[...] = bias
    if not _gemm(rows, weight.T, made, 1.0, 0.0 if bias is None else 1.0):
        return NotImplemented
    return made if input.ndim == 2 else made.reshape(*input.shape[:-1], outputs)


def _batches(a: Any, b: Any) -> Any:
    """a @ b for batches: one call for all where both are dense enough, NotImplemented otherwise."""
    if a.ndim < 3 or a.shape[-1] != b.shape[-2]:
        return NotImplemented
    if a.dtype.itemsize == 2:
        return _half_batches(a, b)
    if not usable(a, b):
        return NotImplemented
    if b.ndim == 2:
        if not _worth(prod(a.shape[:-1]), *b.shape):
            return NotImplemented
        made = empty((prod(a.shape[:-1]), b.shape[1]), a.dtype)
        if not _gemm(a.reshape(-1, a.shape[-1]), b, made):
            return NotImplemented
        return made.reshape(*a.shape[:-1], b.shape[1])
    if products.many_small(a, b) or a.shape[-2] * a.shape[-1] * b.shape[-1] * get_num_threads() ** 2 < _EACH:
        return NotImplemented
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = prod(lead)
    if not _worth(count * a.shape[-2], a.shape[-1], b.shape[-1]):
        return NotImplemented
    made = empty((*lead, a.shape[-2], b.shape[-1]), a.dtype)
    if a.ndim == b.ndim == made.ndim and arrays.matmul(a, b, made):
        return made
    a, b = (_folded(products.straight(np, x), lead, count) for x in (a, b))
    served = arrays.matmul(a, b, made.reshape(count, *made.shape[-2:]))
    return made if served else NotImplemented


def _half_batches(a: Any, b: Any) -> Any:
    """Batches of 16-bit floats, where oneDNN has instructions for them."""
    if b.ndim == 2:
        found = _halves(a.reshape(-1, a.shape[-1]), b)
        return found if found is NotImplemented else found.reshape(*a.shape[:-1], b.shape[1])
    if a.ndim != b.ndim or a.dtype != b.dtype or not a.size or not b.size or a.dtype.kind not in "fV" or not ready():
        return NotImplemented
    made = empty((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)
    return made if arrays.matmul(a, b, made) else NotImplemented


def _folded(array: Any, lead: tuple[int, ...], count: int) -> Any:
    """The batch dims as one; one that is broadcast everywhere stays of size 1."""
    if prod(array.shape[:-2]) == 1:
        return array.reshape(1, *array.shape[-2:])
    if array.shape[:-2] != lead:
        array = np.broadcast_to(array, (*lead, *array.shape[-2:]))
    return array.reshape(count, *array.shape[-2:])


@kernel(products.bmm, "onednn")
def _bmm(xp, input, mat2):
    if input.ndim != 3 or mat2.ndim != 3 or input.shape[0] != mat2.shape[0]:
        return NotImplemented
    return _batches(input, mat2)


@kernel(products.linear_each, "onednn")
def _linear_each(xp, input, weight):
    if input.ndim != 3 or weight.ndim != 3 or input.shape[0] != weight.shape[0] or input.shape[2] != weight.shape[2]:
        return NotImplemented
    if weight.shape[0] > 1 and weight.strides[0] == 0:  # one matrix for all
        found = _batches(input.reshape(1, -1, input.shape[-1]), weight[0].T)
        return found if found is NotImplemented else found.reshape(*input.shape[:-1], weight.shape[1])
    return _batches(input, weight.swapaxes(-1, -2))


@kernel(products.batched, "onednn")
def _batched(xp, input, other):
    return _batches(input, other)


@kernel(images.products_of_places, "onednn")
def _products_of_places(xp, weight, images, bias=None):
    outputs, channels = weight.shape
    count, _, places = images.shape
    if not ready() or not usable(weight, images, bias) or outputs * channels * places < _PRODUCT >> 2:
        return NotImplemented
    made = empty((count, outputs, places), weight.dtype)
    joined = bias is not None and channels <= places  # a row of ones adds the bias, in the place of another pass
    if joined:
        longer, wider = (np.empty(s, weight.dtype) for s in ((count, channels + 1, places), (outputs, channels + 1)))
        longer[:, channels], wider[:, channels] = 1, bias
        longer[:, :channels], wider[:, :channels] = images, weight
        images, weight = longer, wider
    for each, result in zip(images, made):
        multiply(weight, each, result)
    if bias is not None and not joined:
        made += bias[:, None]
    return made


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


@kernel(products_add.addmm, "onednn")
def _addmm(xp, input, mat1, mat2, *, beta=1, alpha=1):
    if mat1.ndim != 2 or mat2.ndim != 2 or mat1.shape[1] != mat2.shape[0] or input.ndim > 2:
        return NotImplemented
    if not _worth(*mat1.shape, mat2.shape[1]) or not usable(input, mat1, mat2):
        return NotImplemented
    if not _number(beta) or not _number(alpha):
        return NotImplemented
    shape = (mat1.shape[0], mat2.shape[1])
    products.expandable(input, shape)
    made = empty(shape, mat1.dtype)
    if beta != 0:
        made[...] = input
    return made if _gemm(mat1, mat2, made, alpha, beta) else NotImplemented


@kernel(distance.euclidean_cdist, "onednn")
def _euclidean_cdist(xp, x1, x2, by_product=False):
    if not by_product or not _worth(*x1.shape[-2:], x2.shape[-2]) or not usable(x1, x2):
        return NotImplemented
    return OPS["euclidean_cdist"].kernel(fast_products, x1, x2, True)
