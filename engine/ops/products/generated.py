"""Products in generated code (the extra `jit`).

Small matrices are multiplied as they lie, by a launch that knows all sizes: libraries pack them first, which takes as
long as the product of some hundred thousand multiplications, and add a bias in a pass of its own.  Large ones are tried
where the left one is stored by columns, as in the gradient of a weight: oneDNN's sgemm reads it so, here it is packed.

One row times a weight is what a language model does for each token.  All the time is that of reading the weight once:
16-bit ones are read as they lie and summed in float32; libraries, made for many rows, take one and a half to three
times as long.

A few rows times one matrix, again and again, are the steps of a recurrent layer: libraries pack the matrix in each
call, which takes as long as the product; here it is packed once.
See engine/kernels/README.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import half_floats
from engine.backends.cpu.threads import get_num_threads
from engine.core.lru import LRU
from engine.dispatch import kernel as kernel_of
from engine.kernels import cpu, products
from engine.kernels.form import Kernel
from engine.ops import products as ops
from engine.ops.generated import launch
from engine.ops.generated.layers import run as run_rows
from engine.ops.generated.route import (
    GeneratedRoute,
    address,
    finite,
    lanes,
    linked,
    packed,
    registers,
    several,
    shared,
)
from engine.ops.products import addmm, images

__all__ = ["Steps", "multiplied", "one_row"]

TYPES = ("float32", "bfloat16", "float16")
_entries: dict[Any, launch.Entry] = {}


@functools.cache
def row_kernel(biased: bool) -> Callable[[str], Kernel]:
    """out[i] = sum over j of weight[i, j] * row[j], and bias[i]; row is float32 where the others are of 16 bits."""

    def write(type: str) -> Kernel:
        k = Kernel("row", "rows")
        weight, row = k.array("weight", type), k.array("row", type if type in _FLOATS else "float32")
        bias = k.array("bias", type) if biased else None
        out, width = k.array("out", type, written=True), k.scalar("width", "index")
        start = k.index * width
        found = k.reduce("sum", width, lambda j: k.load(weight, start + j) * k.load(row, j))
        with k.once():
            k.store(out, k.index, found if bias is None else found + k.load(bias, k.index))
        return k

    return write


def one_row(xp: Any, row: Any, weight: Any, bias: Any) -> Any:
    """row (1, K), weight (M, K) and bias (M) or None, all contiguous and of one of TYPES -> (1, M)."""
    name, outputs, width = weight.dtype.name, *weight.shape
    kind = name, bias is None, launch.magnitude(weight.size)
    entry = _entries.setdefault(kind, launch.Entry())
    built = launch.ready(entry, weight.size, lambda: cpu.build(row_kernel(bias is not None)(name)))
    made = np.empty((1, outputs), weight.dtype)
    wide = row if name == "float32" else half_floats.widen(row)
    given = (weight, wide, made, width) if bias is None else (weight, wide, bias, made, width)
    built(given, outputs, width)
    return made


_MOST = 64  # rows, for which packing in each call is little of the work
_LEAST = 1 << 14  # elements of a matrix that are worth it
_trials: LRU[Any, GeneratedRoute] = LRU(1024)


class Steps:
    """Products of some rows (n, K) with one matrix (K, M), which is packed at the second; all float32 and contiguous.

    plain: `plain(rows, matrix, out, beta)`, out = rows @ matrix + beta * out, beta 0 or 1.
    """

    def __init__(self, plain: Callable[..., None]) -> None:
        self.plain = plain
        self.matrix: Any = None
        self.packed: Any = None
        self.route: Any = None

    def __call__(self, rows: Any, matrix: Any, out: Any, beta: float = 0.0) -> None:
        if matrix is not self.matrix:
            self.matrix, self.packed, self.route = matrix, None, None
            self.plain(rows, matrix, out, beta)
            return
        route = self.route
        if route is None:
            route = self.route = self._tried(rows, matrix)
        if route is False or route.disabled or len(rows) > _MOST:
            self.plain(rows, matrix, out, beta)
        elif route.proven:
            self._run(rows, out, beta)
        elif route.ready():
            made, want = out.copy(), out.copy()
            mine, plain = (lambda: self._run(rows, made, beta)), (lambda: self.plain(rows, matrix, want, beta))
            plain()
            out[...] = want  # both are added to again while they are timed
            if finite(want):
                mine()
                route.decide(made, want, mine, plain, (rows, matrix))
        else:
            self.plain(rows, matrix, out, beta)

    def _tried(self, rows: Any, matrix: Any) -> Any:
        depth, width = matrix.shape
        if matrix.size < _LEAST or lanes(width) < lanes():
            return False
        vectors = next(v for v in ((4, 2, 1) if registers() == 32 else (2, 1)) if width // lanes() % v == 0)
        key = depth, width, len(rows).bit_length(), several(len(rows) * matrix.size)
        found = _trials.get(key)
        if found is None:
            entry = _entries.setdefault(("steps", vectors), launch.Entry())
            code = functools.partial(linked, products.panels, lanes(), vectors)
            found = _trials[key] = GeneratedRoute(
                "a recurrent layer's product", entry, len(rows) * matrix.size // 32, code
            )
        self.panel = vectors * lanes()
        return found

    def _run(self, rows: Any, out: Any, beta: float) -> None:
        depth, width = self.matrix.shape
        if self.packed is None:
            self.packed = np.ascontiguousarray(self.matrix.reshape(depth, -1, self.panel).swapaxes(0, 1))
            self.code, self.right = self.route.build(), address(self.packed)
        args = packed(
            products.PARAMETERS,
            left=address(rows),
            right=self.right,
            out=address(out),
            rows=len(rows),
            depth=depth,
            width=width,
            added=beta != 0,
        )
        shared(self.code, args, 0, width // self.panel, several(len(rows) * self.matrix.size))


_TRANSPOSED = 1 << 14  # elements of a left matrix stored by columns, of which sgemm may be slower, whatever the size
MOST = 1 << 23  # multiplications up to which libraries, which pack both matrices, are slower or as fast
_OF_IMAGES = 1 << 27  # the same of a weight and the places of images, which libraries take one after the other
_LARGE = 1 << 22  # multiplications from which parts of matrices are copied
_SHARED = 1 << 18  # of a product, from which its rows are shared among threads
_ALONE = 1 << 20  # of one with few columns, which BLAS does as quickly as memory is read
_FLOATS = ("float32", "float64")
_COPIED = 64  # rows or columns, of so many of which a copy of the other matrix is little of the work
_AHEAD = 4  # lines of the right matrix
_ROWS = 256  # of a thread, of which columns are shared if there are fewer


@functools.cache
def _matrices(*options: Any) -> cpu.Built:
    return cpu.build(products.matrices(*options))


def multiplied(xp: Any, left: Any, right: Any, bias: Any = None, bias_of: str = "columns", most: int = 0) -> Any:
    """left (*, n, k) @ right (*, k, m) + bias -> (*, n, m), of up to two leading dims, the same of both.

    bias: (m), with bias_of "rows" (n), or None.  NotImplemented for what the kernel does not serve: other types than
    float32 and float64, fewer than 4 columns in batches, steps in both dims of the right matrix, more multiplications
    than `most` (MOST, if 0) unless left is stored by columns.
    """
    *lead, n, k = left.shape
    m, dtype, count = right.shape[-1], left.dtype, prod(lead)
    work, item = count * n * k * m, dtype.itemsize
    if m < products.NARROW and not lead and bias_of == "columns":
        return _narrow(xp, left, right, bias)
    if n == 1 and not lead and bias_of == "columns" and right.T.flags.c_contiguous:
        return _small_row(xp, left, right.T, bias)
    by_columns = not lead and left.strides[0] == item and n * k >= _TRANSPOSED  # as in the gradient of a weight
    if m < products.NARROW or not work or len(lead) > 2 or (work > (most or MOST) and not by_columns):
        return NotImplemented
    if dtype != right.dtype or dtype.name not in _FLOATS:
        return NotImplemented
    if bias is not None and (bias.dtype != dtype or not bias.flags.c_contiguous):
        return NotImplemented
    if any(s % item for s in (*left.strides, *right.strides)):
        return NotImplemented
    *of_left, row, step = [s // item for s in left.strides]
    *of_right, line, column = [s // item for s in right.strides]
    if column != 1:
        if line != 1 and k > 1:
            return NotImplemented
        line = column if k > 1 else 1
    wide = min(lanes() * 4 // item, 1 << (m.bit_length() - 1))
    large = work > _LARGE
    fit = 2 if registers() == 16 else 3 if large else 4
    vectors, heights = min(fit, m // wide), products.HEIGHTS[fit]
    threads = get_num_threads() if work > _SHARED else 1
    band, columns = n, -(-m // wide) * wide  # of a unit
    if threads > count:
        if large and n < threads * _ROWS and m >= threads * vectors * wide:
            columns = -(-columns // (threads * wide)) * wide
        else:
            band = -(-n // (threads * heights[0])) * heights[0]
    bands, column_bands = -(-n // band), -(-m // columns)
    transposed = row == 1 != step and large and columns >= _COPIED and band >= wide
    by = "transposed" if transposed else "lines" if step == 1 else ""
    copied = "columns" if column != 1 else "lines" if large and band >= _COPIED else ""
    units = count * bands * column_bands
    made = xp.empty((*lead, n, m), dtype)
    arrays = [left, right, *([] if bias is None else [bias]), made]
    if copied:
        arrays.append(xp.empty((units, k, vectors * wide), dtype))
    if transposed:
        arrays.append(xp.empty((units, band, k + wide), dtype))
    options = dtype.name, "" if bias is None else bias_of, by, copied, wide, vectors, heights, _AHEAD * large
    entry = _entries.setdefault((options, count > 1, *map(int.bit_length, (n, k, m))), launch.Entry())
    built = launch.ready(entry, work // products.MULTIPLIED, lambda: _matrices(*options))
    of_left, of_right = ([*[0] * (2 - len(lead)), *steps] for steps in (of_left, of_right))
    inner = lead[-1] if lead else 1
    numbers = [n, k, m, band, bands, columns, column_bands, row, step, line, inner, *of_left, *of_right]
    launch.launched(built, arrays, numbers, units, max(1, work // (units * products.MULTIPLIED)))
    return made


def _small_row(xp: Any, row: Any, weight: Any, bias: Any) -> Any:
    """row (1, K) @ weight (M, K).T + bias (M), of few elements."""
    given = [weight, row] if bias is None else [weight, row, bias]
    if weight.size > _ALONE or weight.dtype.name not in _FLOATS:
        return NotImplemented
    if any(a.dtype != weight.dtype or not a.flags.c_contiguous for a in given):
        return NotImplemented
    made, (outputs, width) = xp.empty((1, len(weight)), weight.dtype), weight.shape
    run_rows(row_kernel(bias is not None), [*given, made], [width], outputs, width)
    return made


def _narrow(xp: Any, left: Any, right: Any, bias: Any) -> Any:
    """left (n, k) @ right (k, m) + bias (m), of fewer columns than a vector has."""
    (n, k), m, dtype = left.shape, right.shape[1], left.dtype
    given = [left, right] if bias is None else [left, right, bias]
    if n < 2 or not 0 < n * k * m <= _ALONE or dtype.name not in _FLOATS or any(a.dtype != dtype for a in given):
        return NotImplemented
    if (bias is not None and not bias.flags.c_contiguous) or any(s % dtype.itemsize for a in given for s in a.strides):
        return NotImplemented
    made = xp.empty((n, m), dtype)
    steps = [s // dtype.itemsize for s in (*left.strides, *right.strides)]
    run_rows(products.narrow(m, bias is not None), [*given, made], [k, *steps], n, k * m)
    return made


@kernel_of(ops.mm, "cpu", only_launches=True)
def _mm(xp: Any, input: Any, mat2: Any) -> Any:
    return multiplied(xp, input, mat2) if input.ndim == 2 == mat2.ndim and _fit(input, mat2) else NotImplemented


@kernel_of(ops.bmm, "cpu", only_launches=True)
def _bmm(xp: Any, input: Any, mat2: Any) -> Any:
    if input.ndim != 3 or mat2.ndim != 3 or input.shape[0] != mat2.shape[0] or not _fit(input, mat2):
        return NotImplemented
    return multiplied(xp, input, mat2)


@kernel_of(ops.batched, "cpu", only_launches=True)
def _batched(xp: Any, input: Any, other: Any) -> Any:
    if input.ndim < 3 or not _fit(input, other):
        return NotImplemented
    if other.ndim == 2:
        return _of_rows(xp, input, other)
    return multiplied(xp, input, other) if input.shape[:-2] == other.shape[:-2] else NotImplemented


@kernel_of(ops.linear_each, "cpu", only_launches=True)
def _linear_each(xp: Any, input: Any, weight: Any) -> Any:
    return _bmm(xp, input, weight.swapaxes(-1, -2))


@kernel_of(ops.linear, "cpu", only_launches=True)
def _linear(xp: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    if input.ndim < 2 or weight.ndim != 2 or not _fit(input, weight.T):
        return NotImplemented
    if bias is not None and bias.shape != weight.shape[:1]:
        return NotImplemented
    return _of_rows(xp, input, weight.T, bias)


@kernel_of(addmm.addmm, "cpu", only_launches=True)
def _addmm(xp: Any, input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if mat1.ndim != 2 or mat2.ndim != 2 or not _fit(mat1, mat2) or input.shape != mat2.shape[1:]:
        return NotImplemented
    if beta.__class__ is not int or alpha.__class__ is not int or beta != 1 or alpha != 1:
        return NotImplemented
    return multiplied(xp, mat1, mat2, input)


@kernel_of(images.products_of_places, "cpu", only_launches=True)
def _products_of_places(xp: Any, weight: Any, images: Any, bias: Any = None) -> Any:
    if weight.ndim != 2 or images.ndim != 3 or not _fit(weight, images):
        return NotImplemented
    return multiplied(xp, np.broadcast_to(weight, (len(images), *weight.shape)), images, bias, "rows", _OF_IMAGES)


def _of_rows(xp: Any, input: Any, right: Any, bias: Any = None) -> Any:
    """input (*, n, k) @ right (k, m) + bias (m) as one product."""
    if input.ndim == 2:
        return multiplied(xp, input, right, bias)
    if not input.flags.c_contiguous:
        return NotImplemented
    made = multiplied(xp, input.reshape(-1, input.shape[-1]), right, bias)
    return made if made is NotImplemented else made.reshape(*input.shape[:-1], right.shape[1])


def _fit(left: Any, right: Any) -> bool:
    return left.size > 0 and left.shape[-1] == right.shape[-2]
