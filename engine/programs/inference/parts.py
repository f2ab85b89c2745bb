"""Batches in parts: layers that run one after the other take a few images at a time, so that what is between them
stays in the processor's cache.

Convolutions and pooling compute each image for itself.  Sixteen images after the second convolution of MobileNetV2
are 77 MB: written to memory by one layer and read from there by the next.  One is 5 MB.  So a run of such layers is cut
where all that crosses is small, and each piece goes through all its layers with one part of the batch, then with the
next.  What only the piece reads needs memory for one part.  Where products take longer than memory does (convolutions
of 3x3 between many channels), parts gain nothing, and the batch stays whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cpu.threads import get_num_threads
from engine.fx.node import Node
from engine.programs.graph import bound, op, reads
from engine.programs.inference.layers import POOLS, Fused, pooling
from engine.programs.inference.plan import Environment

if TYPE_CHECKING:
    from engine.programs.inference.lowering import _Lowering

__all__ = ["Piece", "pieces", "step"]

# Bytes per thread that a layer reads and writes, beside its weights, at which they are taken to stay in cache.
NEAR = 2 << 20
BUSY = 32  # operations on a byte above which memory is not what a layer waits for

Shape = Callable[[Node], tuple[int, ...]]


class Piece:
    """Entries start to stop of a plan, `rows` images at a time, in `count` parts."""

    def __init__(self, start: int, stop: int, rows: int, count: int, inside: frozenset[Node]) -> None:
        self.start, self.stop, self.rows, self.count = start, stop, rows, count
        self.inside = inside  # values that only these entries read


def pieces(entries: Sequence[Any], shape_of: Shape, shared: set[Node]) -> list[Piece]:
    """Return the runs of layers that are worth computing in parts of a batch. shared: values that must be in memory
    whole."""
    last: dict[Node, int] = {}
    for i, entry in enumerate(entries):
        for number in reads(entry) if isinstance(entry, Node) else entry.reads:
            last[number] = i
    found: list[Piece] = []
    start = 0
    while start < len(entries):
        images = _images(entries[start], shape_of)
        stop = start + 1
        while images and stop < len(entries) and _images(entries[stop], shape_of) == images:
            stop += 1
        if images > 1:
            found += _cut(entries, range(start, stop), images, shape_of, shared, last)
        start = stop
    return found


def _images(entry: object, shape_of: Shape) -> int:
    """Return the batch size that all operands of a layer share; 0 for a layer that cannot run in parts."""
    if not isinstance(entry, Fused) or not entry.makes_image:
        return 0
    counts = {shape_of(n)[0] for n in (*entry.reads, entry.out)}
    return counts.pop() if len(counts) == 1 else 0


def _cut(
    entries: Sequence[Fused], run: range, images: int, shape_of: Shape, shared: set[Node], last: dict[Node, int]
) -> list[Piece]:
    """The pieces of a run of layers: between two of them all that is read later is small."""
    size = lambda number: 4 * math.prod(shape_of(number))
    near = NEAR * get_num_threads()
    found = []
    begin = run.start
    made: set[Node] = set()
    for i in run:
        made.add(entries[i].out)
        made = {n for n in made if last.get(n, i) > i or n in shared}
        if i + 1 < run.stop and sum(map(size, made)) > near:
            continue
        layers = entries[begin : i + 1]
        moved = [sum(map(size, {*e.reads, e.out})) for e in layers]
        count = next(c for c in range(1, images + 1) if images % c == 0 and (max(moved) <= near * c or c == images))
        inside = frozenset(e.out for e in layers if e.out not in shared and last.get(e.out, run.stop) <= i)
        if count > 1 and inside and sum(_operations(e, shape_of) for e in layers) < BUSY * sum(moved):
            found.append(Piece(begin, i + 1, images // count, count, inside))
        begin = i + 1
    return found


def _operations(entry: Fused, shape_of: Shape) -> int:
    """Additions and multiplications of a layer; of pooling, which adds, about as many."""
    given, out = bound(entry.call), math.prod(shape_of(entry.out))
    if op(entry.call) in POOLS:
        return out * int(math.prod(given["kernel_size"]))
    weight = shape_of(given["weight"])
    if given["transposed"]:
        return 2 * math.prod(shape_of(entry.reads[0])) * math.prod(weight[1:])
    return 2 * out * math.prod(weight[1:])


def step(
    lowering: _Lowering, piece: Piece, entries: Sequence[Fused], last: dict[Node, int]
) -> tuple[str, Callable[[Environment], None]]:
    """(the name, `run(environment)`) of a piece of a plan; what it makes has its place in `lowering` then."""
    from engine.backends.onednn import arrays as onednn
    from engine.backends.onednn.primitives import address, ready

    deferred: list[Callable[[Environment], np.ndarray]] = []  # what gives the arrays that each call has elsewhere
    slots: dict[Node, Any] = {}  # of a value: the arrays of its parts, or its number in `deferred`
    calls: list[tuple[Any, Any, list[Any]]] = []
    names = []

    def split(array: np.ndarray) -> list[np.ndarray]:
        return [array[i : i + piece.rows] for i in range(0, len(array), piece.rows)]

    def slot(array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            deferred.append(array)
            return len(deferred) - 1
        return [array] * piece.count if len(array) == piece.rows else split(array)

    dying = [{n for n in entry.reads if last[n] == i} for i, entry in enumerate(entries, piece.start)]
    for entry, ends in zip(entries, dying):  # before what is inside has blocks: each part writes to these
        if entry.out not in piece.inside:
            lowering.allot(entry, ends - piece.inside)
    for i, entry in enumerate(entries, piece.start):
        if entry.out in piece.inside:
            lowering.allot(entry, dying[i - piece.start] & piece.inside, piece.rows)
        place = lowering.buffers.get(entry.out)
        for number in (taken := lowering.taken_by(entry, place)):
            if number not in slots:
                slots[number] = slot(lowering.source(number, entry.image))
        fixed = place is not None and entry.out not in lowering.shown
        slots[entry.out] = slot(place if fixed else lowering.finish(entry, place))
        order = [slots[n] for n in (taken[0], entry.out, *taken[1:])]
        if op(entry.call) in POOLS:
            call: Any = functools.partial(_pool, onednn.pooling, pooling(entry.call))
            calls.append((call, None, order))
            names.append(op(entry.call).name)
        else:
            call, name = lowering.prepare(entry, place, piece.rows)
            if all(type(s) is list and s[0] is s[-1] for s in order):
                call, order = call.always(*[address(s[0]) for s in order]), []
            order = [list(map(address, s)) if type(s) is list else s for s in order]
            calls.append((call, address, order))
            names.append(name)
        for number in {*entry.reads, entry.out} & piece.inside:
            if last[number] == i and number in lowering.block_of:
                lowering.give_back(number)

    def run(environment: Environment) -> None:
        ready()
        found = [split(give(environment)) for give in deferred]
        for part in range(piece.count):
            for call, of, order in calls:
                given = [s[part] if type(s) is list else found[s][part] for s in order]
                call(*given) if of is None else call(*[of(g) if isinstance(g, np.ndarray) else g for g in given])

    return f"{piece.count} parts of " + ", ".join(names), run


def _pool(pooling: Callable[..., object], how: Any, x: np.ndarray, out: np.ndarray) -> None:
    pooling(x, out, *how)
