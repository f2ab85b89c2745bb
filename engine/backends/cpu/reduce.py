"""Large reductions in pieces on a few threads.

The pieces follow from the shape alone: a sum is the same for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.cpu.allocator import LARGE, empty
from engine.backends.cpu.exact import summed

__all__ = ["reduced", "rows", "sum_of_last"]

_FLOATS = (np.dtype("float32"), np.dtype("float64"))
_RUN, _RUN_OF_SQUARES = 1 << 10, 1 << 8  # elements of a row that einsum adds in a few lanes
_FEW, _SHORT = 8, 1 << 16  # rows, and elements of them in all, that numpy's reduction adds sooner
_PIECE = 1 << 19  # elements of a piece of a reduction by one ufunc
_ROWS = 1 << 17  # elements of a piece of a kernel of several steps


def _row_sums(matrix: np.ndarray, squares: bool) -> np.ndarray:
    """The sums of the rows of contiguous floats, or of their squares.  (n, m) -> (n).

    They are as exact as numpy's add.reduce, which takes thrice as long, since runs are short and their sums are added
    by it.
    """
    count, width = matrix.shape
    short, long = ("ij,ij->i", "ijk,ijk->ij") if squares else ("ij->i", "ijk->ij")
    twice, run = (2, _RUN_OF_SQUARES) if squares else (1, _RUN)
    if width <= 2 * run:
        return np.einsum(short, *[matrix] * twice)
    whole = width // run * run
    runs = matrix[:, :whole].reshape(count, -1, run)
    result = np.add.reduce(np.einsum(long, *[runs] * twice), 1)
    if whole < width:
        result += np.einsum(short, *[matrix[:, whole:]] * twice)
    return result


def sum_of_last(array: np.ndarray, dims: tuple[int, ...], keepdim: bool, squares: bool = False) -> np.ndarray | None:
    """The sum (of squares) over `dims`, not negative, if those are the last ones of contiguous floats with elements."""
    lead = array.ndim - len(dims)
    if not (array.dtype in _FLOATS and array.flags.c_contiguous and array.size and dims):
        return None
    if min(dims) != lead:
        return None
    shape = array.shape[:lead]
    matrix = array.reshape(math.prod(shape), -1)
    if len(matrix) < _FEW and matrix.size < _SHORT:
        return None
    pieces = _pieces(len(matrix) if lead else matrix.size, matrix.size, _PIECE)
    if not squares or len(pieces) < 2:  # large sums come in pieces already: `reduced`
        found = _row_sums(matrix, squares)
    else:
        parts: list[Any] = [None] * len(pieces)

        def work(at: int) -> None:
            piece = matrix[pieces[at]] if lead else matrix[:, pieces[at]]
            with np.errstate(all="ignore"):
                parts[at] = _row_sums(piece, squares)

        threads.run(work, list(range(len(pieces))))
        found = np.concatenate(parts)
        if not lead:
            found = np.add.reduce(found, keepdims=True)
    return found.reshape((*shape, *(1,) * len(dims)) if keepdim else shape)


def reduced(
    ufunc: np.ufunc,
    array: np.ndarray,
    dims: tuple[int, ...] | None,
    keepdim: bool,
    dtype: Any = None,
) -> Any:
    """ufunc.reduce over `dims` (None: all).  array (*) -> (* without dims, or with 1 there if `keepdim`)."""
    options = {} if dtype is None else {"dtype": dtype}
    dims = tuple(range(array.ndim)) if dims is None else dims
    kept = [d not in dims for d in range(array.ndim)]
    lead = 1
    while lead < array.ndim and kept[lead] is kept[0]:
        lead += 1
    count = math.prod(array.shape[:lead])
    pieces = _pieces(count, array.size, _PIECE)
    floats = ufunc is np.add and dtype is None
    if not dims or array.nbytes < LARGE or not array.flags.c_contiguous or len(pieces) < 2:
        if floats:
            found = sum_of_last(array, dims, keepdim)
            return summed(array, dims, keepdim) if found is None else found
        return ufunc.reduce(array, axis=dims, keepdims=keepdim, **options)
    shape = tuple([1 if d in dims else n for d, n in enumerate(array.shape)])
    folded = array.reshape(count, *array.shape[lead:])
    axes = tuple([d - lead + 1 for d in dims if d >= lead])
    rest = shape[lead:]

    def reduce(piece: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
        if floats:
            found = sum_of_last(piece, dims, True)
            return summed(piece, dims, True) if found is None else found
        return ufunc.reduce(piece, axis=dims, keepdims=True, **options)

    with np.errstate(all="ignore"):
        if kept[0]:
            first = reduce(folded[pieces[0]], axes)
            result = empty((count, *rest), first.dtype)
            result[pieces[0]] = first

            def work(at: int) -> None:
                with np.errstate(all="ignore"):
                    result[pieces[at]] = reduce(folded[pieces[at]], axes)

            threads.run(work, list(range(1, len(pieces))))
        else:
            parts: list[Any] = [None] * len(pieces)

            def work(at: int) -> None:
                with np.errstate(all="ignore"):
                    parts[at] = reduce(folded[pieces[at]], (0, *axes))

            threads.run(work, list(range(len(pieces))))
            whole = np.concatenate(parts)
            result = summed(whole, 0) if floats else ufunc.reduce(whole, axis=0, **options)
    if not keepdim:
        shape = tuple([n for d, n in enumerate(array.shape) if d not in dims])
    return result.reshape(shape)


def _pieces(count: int, size: int, most: int) -> list[slice]:
    """Slices of `count` rows, each of at most `most` of the `size` elements where a row allows it."""
    step = max(1, most * count // max(1, size))
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def rows(kernel: Callable[..., Any], xp: Any, args: tuple, options: dict, dims: tuple[int, ...]) -> Any:
    """A kernel whose results for one index of a dim outside `dims` depend on nothing else, piece by piece.

    Its array arguments have one shape; its results (one or a tuple) have that shape with or without `dims`, or with
    size 1 there.  NotImplemented where the whole must do.
    """
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    first = arrays[0]
    free = [d for d in range(first.ndim) if d not in dims and first.shape[d] > 1]
    if not free or any(a.shape != first.shape or not a.flags.c_contiguous for a in arrays):
        return NotImplemented
    along = free[0]
    pieces = _pieces(first.shape[along], first.size, _ROWS)
    if len(pieces) < 2:
        return NotImplemented

    def piece(at: slice) -> Any:
        index = (slice(None),) * along + (at,)
        with np.errstate(all="ignore"):
            return kernel(xp, *[a[index] if isinstance(a, np.ndarray) else a for a in args], **options)

    found = piece(pieces[0])
    several = isinstance(found, tuple)
    targets = []
    for part in found if several else (found,):
        d = along if part.ndim == first.ndim else along - sum(r < along for r in dims)
        shape = (*part.shape[:d], first.shape[along], *part.shape[d + 1 :])
        target = empty(shape, part.dtype)
        index = (slice(None),) * d
        target[(*index, pieces[0])] = part
        targets.append((target, index))

    def work(at: slice) -> None:
        parts = piece(at)
        for part, (target, index) in zip(parts if several else (parts,), targets):
            target[(*index, at)] = part

    threads.run(work, pieces[1:])
    return tuple([t for t, _ in targets]) if several else targets[0][0]
