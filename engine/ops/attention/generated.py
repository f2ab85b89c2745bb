"""Attention of many heads whose scores are never in memory, as a generated kernel (the extra `jit`):
engine/kernels/attention.py.  It serves where nothing is saved for a backward; `plain` is what there is without it.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from engine.backends.cpu import empty, threads
from engine.backends.cpu.fast import fast
from engine.core.lru import LRU
from engine.kernels import attention
from engine.ops.attention import lain
from engine.ops.generated import launch
from engine.ops.generated.route import GeneratedRoute, address, lanes, linked, registers, run, several

__all__ = ["Heads", "attended"]

_F32 = np.dtype("float32")
_WIDEST = 256  # columns of keys and of values
_LONGEST = 1024  # keys: their scores and columns are in the second-level cache
_MANY = 1024  # geometries that are remembered
_JOBS = 4  # for each thread: one that is held up leaves little
_pack = struct.Struct("<6qfi22q").pack
_entries: dict[tuple[int, int, int], launch.Entry] = {}  # by the machine code
_routes: LRU[Any, Any] = LRU(_MANY)


class _Sizes(NamedTuple):
    """Of the operands; width and columns are those of keys and of values."""

    images: int
    heads: int
    queries: int
    keys: int
    width: int
    columns: int


def _sizes(query: Any, key: Any, value: Any, mask: Any) -> _Sizes | None:
    """The sizes of operands that the kernel serves; None for others."""
    given = [a for a in (query, key, value, mask) if a is not None]
    if query.ndim not in (3, 4) or any(a.__class__ is not np.ndarray or a.dtype != _F32 for a in given):
        return None
    if not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return None
    found = _Sizes(query.shape[0] if query.ndim == 4 else 1, *query.shape[-3:-1], *key.shape[-2:], value.shape[-1])
    if not all(found) or found.keys > _LONGEST or max(found[-2:]) > _WIDEST or lanes(math.gcd(*found[-2:])) < lanes():
        return None
    if any(a.strides[-1] != 4 for a in given) or (mask is not None and mask.shape[-1] != found.keys):
        return None
    return found


def _steps(array: Any, dims: int) -> tuple[int, ...]:
    """Elements between images, heads and rows of an array that is broadcast to so many dims."""
    missing = dims - array.ndim
    own = [0 if size == 1 else step // 4 for size, step in zip(array.shape, array.strides)]
    return tuple([0] * (4 - dims + missing) + own[:-1])


class Heads(GeneratedRoute):
    """Attention of some sizes."""

    def __init__(self, sizes: _Sizes) -> None:
        self.vectors = 4 if registers() == 32 else 2
        options = lanes(), self.vectors, sizes.width, sizes.columns
        code = functools.partial(linked, attention.heads, *options)
        work = sizes.images * sizes.heads * sizes.queries * sizes.keys * (sizes.width + sizes.columns)
        super().__init__("attention", _entries.setdefault(options, launch.Entry()), work // 32, code)
        self.sizes = sizes
        members = several(work)
        together = sizes.images * sizes.heads
        self.parts = 1 if together >= members else min(-(-members // together), sizes.queries)
        units = together * self.parts
        self.step = -(-units // min(units, members * _JOBS if members > 1 else 1))
        self.units = range(0, units, self.step)
        self.size = attention.scratch(lanes(), self.vectors, sizes.width, sizes.keys)

    def run(self, query: Any, key: Any, value: Any, mask: Any, scale: float, out: Any) -> Any:
        """Write the result to `out` and return it."""
        held = empty((len(self.units) * self.size,), _F32)
        steps = [step for array in (query, key, value, out) for step in _steps(array, query.ndim)]
        steps += (0, 0, 0) if mask is None else _steps(mask, query.ndim)
        given = [address(a) for a in (query, key, value, out, query if mask is None else mask, held)]
        s = self.sizes
        numbers = s.queries, s.keys, s.heads, self.parts, self.step, self.size
        args = _pack(*given, scale, 0, int(mask is not None), *numbers, *steps)
        end = s.images * s.heads * self.parts
        run(self.build(), [(args, at, min(at + self.step, end)) for at in self.units])
        return out


def route(query: Any, key: Any, value: Any, mask: Any) -> Heads | None:
    """The route of these operands; None where there is none."""
    kind = [(a.shape, a.strides, a.dtype, a.__class__) for a in (query, key, value, mask) if a is not None]
    kinds = *kind, threads.get_num_threads()
    found = _routes.get(kinds)
    if found is None:
        sizes = _sizes(query, key, value, mask)
        found = _routes[kinds] = False if sizes is None else Heads(sizes)
    return found or None


def attended(query: Any, key: Any, value: Any, mask: Any, scale: float, plain: Callable[[], Any]) -> Any:
    """softmax(query @ key.T * scale + mask) @ value, or what `plain` gives."""
    found = route(query, key, value, mask)
    if found is None or found.disabled:
        return plain()

    def mine() -> Any:
        return found.run(query, key, value, mask, scale, lain(fast, query, (*query.shape[:-1], value.shape[-1])))

    return mine() if found.proven else found.chosen(mine, plain, (query, key, value))
