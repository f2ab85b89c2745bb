"""Tables of resampling along one dim: for each output, the inputs it reads and their weights.

An entry is (kind, n, m, align_corners, scale): n inputs, m outputs, scale the given factor or None.  Adaptive average
pooling is a resampling too, and the gradient of each is the one with the transposed table.
"""

from __future__ import annotations

import builtins
import struct
from functools import lru_cache
from math import floor, isfinite, pi, sin
from typing import Any

import numpy as np

from engine.backends.cpu.relayout import follow
from engine.core.lru import LRU


def _single(x: float) -> float:
    """x rounded to float32: nearest takes its indices in single precision, as torch does."""
    return struct.unpack("f", struct.pack("f", x))[0]


def _scale(n: int, m: int, align_corners: bool, factor: float | None) -> float:
    if align_corners:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1.0 / factor if factor is not None and factor > 0 else n / m


def _nearest(n: int, m: int, factor: float | None, exact: bool) -> list[dict[int, float]]:
    if n == m and not exact:
        return [{i: 1.0} for i in range(m)]
    if m == 2 * n and not exact:
        return [{i // 2: 1.0} for i in range(m)]
    scale = _single(1.0 / factor) if factor is not None and factor > 0 else _single(n / m)
    shift = 0.5 if exact else 0.0
    return [{builtins.min(floor(_single((i + shift) * scale)), n - 1): 1.0} for i in range(m)]


def _cubic_weights(t: float, a: float) -> list[float]:
    def near(x: float) -> float:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: float) -> float:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _filter(kind: str, x: float) -> float:
    x = builtins.abs(x)
    if kind == "linear":
        return builtins.max(1 - x, 0.0)
    if kind == "lanczos":
        return 1.0 if x == 0 else 3 * sin(pi * x) * sin(pi * x / 3) / (pi * x) ** 2 if x < 3 else 0.0
    a = -0.5
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _antialiased(kind: str, n: int, m: int, align_corners: bool, factor: float | None) -> list[dict[int, float]]:
    scale = _scale(n, m, align_corners, factor)
    half = {"linear": 1.0, "cubic": 2.0, "lanczos": 3.0}[kind]
    support = half * scale if scale >= 1 else half
    inverse = 1 / scale if scale >= 1 else 1.0
    table = []
    for i in range(m):
        centre = scale * (i + 0.5)
        low = builtins.max(int(centre - support + 0.5), 0)
        high = builtins.min(int(centre + support + 0.5), n)
        weights = [_filter(kind, (j - centre + 0.5) * inverse) for j in range(low, high)]
        total = builtins.sum(weights) or 1.0
        table.append({low + j: w / total for j, w in enumerate(weights)})
    return table


@lru_cache(maxsize=512)
def table(kind: str, n: int, m: int, align_corners: bool, factor: float | None) -> list[dict[int, float]]:
    """For each of m outputs, {input: weight}."""
    if kind == "adaptive":
        result = []
        for i in range(m):
            low, high = i * n // m, -((-(i + 1) * n) // m)
            result.append({j: 1.0 / (high - low) for j in range(low, high)})
        return result
    if kind in ("nearest", "nearest-exact"):
        return _nearest(n, m, factor, kind == "nearest-exact")
    if kind.endswith("-aa"):
        return _antialiased(kind[:-3], n, m, align_corners, factor)
    scale = _scale(n, m, align_corners, factor)
    result = []
    for i in range(m):
        source = scale * i if align_corners else scale * (i + 0.5) - 0.5
        if kind == "linear":
            source = builtins.max(source, 0.0)
            first = builtins.min(int(source), n - 1)
            t = builtins.min(builtins.max(source - first, 0.0), 1.0)
            pairs = [(first, 1 - t), (builtins.min(first + 1, n - 1), t)]
        else:
            first = floor(source)
            weights = _cubic_weights(source - first, -0.75)
            pairs = [(builtins.min(builtins.max(first + k - 1, 0), n - 1), w) for k, w in enumerate(weights)]
        entry: dict[int, float] = {}
        for j, w in pairs:
            if w:
                entry[j] = entry.get(j, 0.0) + w
        result.append(entry)
    return result


@lru_cache(maxsize=512)
def taps(entry: tuple[Any, ...], transposed: bool) -> tuple[int, int, list[list[int]], list[list[float]]]:
    """(length in, length out, indices, weights): lists of K per output, padded by weight 0."""
    kind, n, m, align_corners, factor = entry
    rows = table(kind, n, m, align_corners, factor)
    if transposed:
        by_input: list[dict[int, float]] = [{} for _ in range(n)]
        for i, row in enumerate(rows):
            for j, w in row.items():
                by_input[j][i] = w
        rows, n, m = by_input, m, n
    width = builtins.max((len(row) for row in rows), default=0) or 1
    indices, weights = [], []
    for row in rows:
        more = width - len(row)
        indices.append([*row.keys(), *[0] * more])
        weights.append([*row.values(), *[0.0] * more])
    return n, m, indices, weights


_arrays: LRU[Any, Any] = LRU(512)


def _on(x: Any, key: Any, make: Any) -> Any:
    """`make()` as an array beside `x`, cached for the next call (a few hundred small tables)."""
    key = (type(x), str(x.device), *key)
    return _arrays.made(key, make)


def _dense(xp: Any, entry: Any, transposed: bool, dtype: Any) -> Any:
    n, m, indices, weights = taps(entry, transposed)
    rows = []
    for index, weight in zip(indices, weights):
        row = [0.0] * n
        for j, w in zip(index, weight):
            row[j] += w
        rows.append(row)
    return xp.asarray(rows, dtype=dtype).reshape(m, n)


def _of_own_taps(x: Any, axis: int, indices: list[list[int]], weights: list[list[float]]) -> Any:
    """x resampled along one dim, each result of the elements that have a weight in it and of no others."""
    found = np.zeros((*x.shape[:axis], len(indices), *x.shape[axis + 1 :]), x.dtype)
    for k, (index, factor) in enumerate(zip(zip(*indices), zip(*weights))):
        own = [i for i, w in enumerate(factor) if w]
        places, scale = [index[i] for i in own], np.array([factor[i] for i in own], x.dtype)
        part = np.take(x, places, axis=axis) * scale.reshape(-1, *(1,) * (x.ndim - axis - 1))
        where = (*[slice(None)] * axis, own)
        found[where] = part if not k else found[where] + part
    return found


def along(xp: Any, x: Any, axis: int, entry: Any, transposed: bool) -> Any:
    """x resampled along one dim."""
    n, m, indices, weights = taps(entry, transposed)
    width = len(indices[0]) if indices else 1
    plain = width == 1 and all(w[0] == 1.0 for w in weights)
    if not m or not x.size:
        shape = list(x.shape)
        shape[axis] = m
        return xp.zeros(tuple(shape), x.dtype)
    if not plain and x.dtype.kind in "fc" and n <= 64 * width:
        matrix = _on(x, (entry, transposed, x.dtype.str), lambda: _dense(xp, entry, transposed, x.dtype))
        shape = (*x.shape[:axis], m, *x.shape[axis + 1 :])
        if axis == x.ndim - 1:
            product = xp.matmul(x, matrix.T)
        else:
            product = xp.matmul(matrix, x.reshape(*x.shape[:axis], n, -1)).reshape(shape)
        if not isinstance(x, np.ndarray) or isfinite(abs(np.add.reduce(product, axis=None))):
            return product
        return _of_own_taps(x, axis, indices, weights)  # in the product, nan and infinities times 0 are nan
    result = None
    for k in range(width):
        where = _on(x, (entry, transposed, k), lambda k=k: xp.asarray([i[k] for i in indices]))
        piece = xp.take(x, where, axis=axis)
        if not plain:
            factor = _on(
                x,
                (entry, transposed, k, x.dtype.str),
                lambda k=k: xp.asarray([w[k] for w in weights], dtype=x.dtype),
            )
            piece *= factor.reshape(-1, *(1,) * (x.ndim - axis - 1))
        if result is None:
            result = piece
        else:
            result += piece
    return result


def resample(xp: Any, x: Any, spec: Any, transposed: bool = False) -> Any:
    """x (N, C, *size) resampled along each spatial dim, those first that shrink it most."""
    given, dtype = x, x.dtype
    if dtype == "uint8" and x.ndim == 4 and x.size and spec[0][0].startswith(("linear", "cubic", "lanczos")):
        from engine.ops.nn import _resample_bytes  # for its weight

        return _resample_bytes.resample(xp, x, spec, table)
    if (dtype.itemsize == 2 and dtype.kind in "fV") or (
        dtype.kind in "iu" and not all(e[0].startswith("nearest") for e in spec)
    ):
        x = x.astype("float32")
    order = sorted(range(len(spec)), key=lambda a: spec[a][2] / builtins.max(1, spec[a][1]))
    result = x
    for a in reversed(order) if transposed else order:
        kind, n, m, _, factor = spec[a]
        if n != m or factor is not None or kind == "adaptive":
            result = along(xp, result, 2 + a, spec[a], transposed)
    if result is x:
        result = x.copy()
    result = follow(xp, result, given)
    if result.dtype == dtype:
        return result
    if dtype.kind in "iu":
        info = xp.iinfo(dtype)
        result = xp.clip(xp.rint(result), int(info.min), int(info.max))
    return result.astype(dtype)
