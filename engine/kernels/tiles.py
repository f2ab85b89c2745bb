"""Products whose second factor is read where it is: what convolutions become.

For the rows i of the tiles begin..end, `rows` of them each, out[i, p] = sum over k of a[i, k] * b[offset[k] + p]: row k
of the second factor is the memory from offset[k] on, so that overlapping windows of one image need no copies.  A tile
of `rows` x `vectors` results stays in registers while k goes through a block; its results wait in `out` between blocks.

Blocks of k keep the part of b that a tile reads in the first-level cache; within a block, all tiles take the same
places p before the next places are looked at.
"""

from __future__ import annotations

import struct

from engine.kernels.form import Value, call, where
from engine.kernels.jobs import Jobs, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["BLOCK", "PARAMETERS", "pack", "product"]

# a: (tiles, K, rows), packed; b; offset: (K,) int64, in elements; out: (tiles * rows, places * lanes); depth: K;
# places: vectors p goes through; tiles: of a group; group: elements from the b of one group to that of the next.
PARAMETERS = ("a", "b", "offset", "out", "depth", "places", "tiles", "group")
pack = struct.Struct("<8q").pack
BLOCK = 320  # places of k in a block


@in_llvm
def product(type: str, lanes: int, rows: int, vectors: int) -> Jobs:
    """The product for `type` (float32, float64) and tiles of `rows` x `vectors` vectors of `lanes`."""
    k = Jobs("tiles", lanes, PARAMETERS, 4, {"a": type, "b": type, "offset": "int64", "out": type})
    a, b, offset, out = k.arrays
    depth, places, tiles, group = k.numbers.values()
    pitch = places * lanes

    def tile(index: Value, count: int, first: Value, last: Value, start: Value) -> None:
        """One tile at `count` vectors from `start` on, k from first to last."""
        right = k.view(b, index // tiles * group + start)
        left = k.view(a, index * depth * rows)
        target = k.view(out, index * rows * pitch + start)
        spots = k.vectors([k.view(target, pitch * i) for i in range(rows)], count)
        sums = k.load_where(first.differs(0), spots)
        with k.loop(first, last) as n:
            line, column = k.view(right, k.cast(k.load(offset, n), "index")), k.view(left, n * rows)
            values = [k.vector(line, j * lanes) for j in range(count)]
            for i in range(rows):
                factor = k.spread(k.load(column, i))
                for total, value in zip(sums[i * count :], values):
                    k.set(total, call("fma", factor, value, total))
        k.store_all(spots, sums)

    with k.loop(0, depth, BLOCK) as first:
        last, done = least(first + BLOCK, depth), k.constant(0, "index")
        for count in (n for n in (8, 4, 3, 2, 1) if n == vectors or (n < vectors and n != 3)):
            left = places - done  # what is left by more, in fewer at a time
            rest = left % count
            if count == 3:  # four are two and two: one alone waits for its factors
                rest = where(rest.equals(1), least(left, 4), rest)
            until = done + (left - rest)
            with k.loop(done, until, count) as place, k.loop(k.begin, k.end) as index:
                tile(index, count, first, last, place * lanes)
            done = until
    return k
