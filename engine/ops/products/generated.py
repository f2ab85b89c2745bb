"""Products of few rows in generated code (the extra `jit`).

One row times a weight is what a language model does for each token.  All the time is that of reading the weight once:
16-bit ones are read as they lie and summed in float32; libraries, made for many rows, take one and a half to three
times as long.  A few rows times one matrix, again and again, are the steps of a recurrent layer: libraries pack the
matrix in each call, which takes as long as the product; here it is packed once.
See engine/kernels/README.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu import half_floats
from engine.core.lru import LRU
from engine.kernels import cpu, products
from engine.kernels.form import Kernel
from engine.ops.generated import launch
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

__all__ = ["Steps", "one_row"]

TYPES = ("float32", "bfloat16", "float16")
_entries: dict[Any, launch.Entry] = {}


def kernel(type: str, biased: bool) -> Kernel:
    """out[i] = sum over j of weight[i, j] * row[j], and bias[i]; row is float32."""
    k = Kernel("row", "rows")
    weight, row = k.array("weight", type), k.array("row", "float32")
    bias = k.array("bias", type) if biased else None
    out, width = k.array("out", type, written=True), k.scalar("width", "index")
    start = k.index * width
    found = k.reduce("sum", width, lambda j: k.load(weight, start + j) * k.load(row, j))
    with k.once():
        k.store(out, k.index, found if bias is None else found + k.load(bias, k.index))
    return k


def one_row(xp: Any, row: Any, weight: Any, bias: Any) -> Any:
    """row (1, K), weight (M, K) and bias (M) or None, all contiguous and of one of TYPES -> (1, M)."""
    name, outputs, width = weight.dtype.name, *weight.shape
    kind = name, bias is None, launch.magnitude(weight.size)
    entry = _entries.setdefault(kind, launch.Entry())
    built = launch.ready(entry, weight.size, lambda: cpu.build(kernel(name, bias is not None)))
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
