"""Copies of arrays that lie in another order: transposed matrices, heads of attention, images.

Note [Turned copies]
numpy copies along the last dim of the target.  Where the source has another order, each of those elements comes from
a line of memory of its own; of widths like 512 and 1024 those lines share few places of the cache, so that each is
read many times: a transposed matrix of 1536 x 512 took 3.2 ms, PyTorch 0.8.  oneDNN makes a program for such a copy
(0.3 ms), which takes 0.2: it does for what is large, or is copied like that again.  Other types, and processors
without oneDNN: the target's last dim is cut, so that a line is read whole while it is in the cache (0.7 ms).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.cpu.allocator import empty

__all__ = ["contiguous", "copy"]

FEW = 1 << 14  # elements below which numpy's copy is as fast
_MANY = 1 << 20  # elements whose first copy pays for a program
_CUT = 32  # elements of the target's last dim that are copied at once
_ALIKE = 2048  # bytes: elements so far apart, or a multiple, share places of the cache
_SHARE = 1 << 17  # elements a thread copies at least
_KEPT = 1 << 12

_seen: dict[Any, None] = {}  # layouts that were copied once


def contiguous(source: np.ndarray) -> np.ndarray:
    """A copy in C order.  (*) -> (*)."""
    if source.size < FEW or source.flags.c_contiguous or source.dtype.hasobject:
        return source.copy("C")
    target = empty(source.shape, source.dtype)
    copy(target, source)
    return target


def copy(target: np.ndarray, source: np.ndarray) -> None:
    """target[...] = source, of one shape and dtype, in memory that they do not share.  Note [Turned copies]"""
    if source.size < FEW or source.dtype != target.dtype:
        target[...] = source
        return
    if not target.flags.c_contiguous:
        order = sorted(range(target.ndim), key=lambda d: -target.strides[d])
        target, source = target.transpose(order), source.transpose(order)
    sizes = _joined(source)
    if not target.flags.c_contiguous or len(sizes) < 2:
        target[...] = source
        return
    target, source = target.reshape(sizes), source.reshape(sizes)
    if _by_program(target, source):
        return
    if source.strides[-1] % _ALIKE or sizes[-1] <= _CUT:
        target[...] = source
        return
    _in_cuts(target, source)


def _joined(source: np.ndarray) -> list[int]:
    """The sizes, with dims that are one run of memory as one."""
    sizes: list[int] = []
    step = 0
    for n, s in zip(source.shape, source.strides):
        if n == 1:
            continue
        if sizes and step == n * s:
            sizes[-1] *= n
        else:
            sizes.append(n)
        step = s
    return sizes


def _by_program(target: np.ndarray, source: np.ndarray) -> bool:
    if source.itemsize != 4 or source.ndim > 6 or any(s <= 0 or s % 4 for s in source.strides):
        return False
    if source.size < _MANY:
        key = (source.shape, source.strides)
        if key not in _seen:
            if len(_seen) >= _KEPT:
                _seen.clear()
            _seen[key] = None
            return False
    from engine.backends.onednn import arrays

    return arrays.reorder(source, target)


def _in_cuts(target: np.ndarray, source: np.ndarray) -> None:
    size = target.shape[-1]
    share = max(_CUT, size * _SHARE // target.size // _CUT * _CUT)

    def work(first: int) -> None:
        for i in range(first, min(first + share, size), _CUT):
            target[..., i : i + _CUT] = source[..., i : i + _CUT]

    threads.run(work, list(range(0, size, share)))
