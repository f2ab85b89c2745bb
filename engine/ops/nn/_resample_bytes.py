"""Resampling of 8-bit images in whole numbers, as Pillow does and torch after it: two passes, each rounded to bytes.

Weights are 16-bit numbers with as many places after the point as fit them; the pass along rows comes first.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

_STEP = 1 << 20  # elements of a piece
Table = Callable[..., list[dict[int, float]]]  # for each output the weight of each input: `_resample.table`


def _whole(table: Table, entry: tuple[Any, ...]) -> tuple[list[list[int]], list[list[int]], int]:
    """For each output its inputs and weights, filled up with weight 0, and the places after the point."""
    rows = table(*entry)
    largest = builtins.max((w for row in rows for w in row.values()), default=1.0)
    places = 0
    while places < 22 and int(0.5 + largest * (1 << (places + 1))) < 1 << 15:
        places += 1
    width = builtins.max(len(row) for row in rows)
    index = [[*row, *[0] * (width - len(row))] for row in rows]
    weights = [
        [*(int(w * (1 << places) + (0.5 if w >= 0 else -0.5)) for w in row.values()), *[0] * (width - len(row))]
        for row in rows
    ]
    return index, weights, places


def _along(xp: Any, x: Any, table: Table, entry: tuple[Any, ...], last: bool) -> Any:
    """x (M, n, L), or (M, L, n) with `last`, resampled along n."""
    index, weights, places = _whole(table, entry)
    where, factor = xp.asarray(index), xp.asarray(weights, dtype="int32")
    total = None
    for k in range(where.shape[1]):
        piece = (x[:, :, where[:, k]] if last else x[:, where[:, k]]).astype("int32")
        piece *= factor[:, k] if last else factor[:, k, None]
        total = piece if total is None else total.__iadd__(piece)
    total += 1 << (places - 1)
    total >>= places
    return xp.clip(total, 0, 255, out=total).astype("uint8")


def resample(xp: Any, x: Any, spec: Any, table: Table) -> Any:
    """Bytes x (N, C, H, W) resampled by two tables, of `table(*entry)`."""
    rows, columns = spec
    shape = (*x.shape[:2], rows[2], columns[2])
    flat = x.reshape(-1, *x.shape[2:])
    result = xp.empty((len(flat), *shape[2:]), "uint8")
    step = builtins.max(1, _STEP // builtins.max(1, flat[0].size, shape[2] * shape[3]))
    for at in range(0, len(flat), step):
        piece = flat[at : at + step]
        if columns[1] != columns[2] or columns[4] is not None:
            piece = _along(xp, piece, table, columns, True)
        if rows[1] != rows[2] or rows[4] is not None:
            piece = _along(xp, piece, table, rows, False)
        result[at : at + step] = piece
    return result.reshape(shape)
