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

__all__ = ["BLOCK", "PADDED", "PARAMETERS", "WEIGHTS", "pack", "padded", "product", "weights"]

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


PADDED = ("image", "result", "height", "width", "above", "left", "pitch", "step")


@in_llvm
def padded(lanes: int) -> Jobs:
    """The channels begin..end of an image (channels, height, width) into the middle of zeros: `step` elements for each
    channel, in rows of `pitch`.  Rows and what is made of a channel are a vector long at least."""
    k = Jobs("padded", lanes, PADDED, 2)
    (image, result), a = k.arrays, k.numbers
    width, step, nothing = a["width"], a["step"], k.number(0.0)
    with k.loop(k.begin, k.end) as channel:
        own, given = k.view(result, channel * step), k.view(image, channel * a["height"] * width)
        with k.loop(0, step, lanes) as j:
            k.store(own, least(j, step - lanes), nothing)
        inner = k.view(own, a["above"] * a["pitch"] + a["left"])
        with k.loop(0, a["height"]) as row:
            source, target = k.view(given, row * width), k.view(inner, row * a["pitch"])
            with k.loop(0, width, lanes) as j:
                at = least(j, width - lanes)  # the last vector overlaps the one before
                k.store(target, at, k.vector(source, at))
    return k


# image, slope: of each channel `step` or `slope_step` elements, of which the first `length` meet; offset: as of the
# product, of a group; made (outputs, depth), made by groups of `outputs` and `channels`, of `images`.
WEIGHTS = (
    "image",
    "slope",
    "offset",
    "made",
    "length",
    "depth",
    "outputs",
    "channels",
    "groups",
    "images",
    "step",
    "slope_step",
)


@in_llvm
def weights(lanes: int, rows: int, columns: int) -> Jobs:
    """The gradients of a convolution's weights, of the units begin..end: each is `rows` outputs of a group.

    Sums of `rows` outputs by `columns` places of `depth` stay in registers while all images are read.
    """
    k = Jobs("weights", lanes, WEIGHTS, 4, {"offset": "int64"})
    (image, slope, offset, made), a = k.arrays, k.numbers
    outputs, depth, groups = a["outputs"], a["depth"], a["groups"]
    bands = (outputs + rows - 1) // rows
    with k.loop(k.begin, k.end) as unit:
        group, first = unit // bands, least(unit % bands * rows, outputs - rows)
        front = group * outputs + first
        with k.loop(0, depth, columns) as place:
            at = least(place, depth - columns)  # the last overlap the ones before
            sums = k.variables([k.number(0.0)] * (rows * columns))
            with k.loop(0, a["images"]) as number:
                own = k.view(slope, (number * groups * outputs + front) * a["slope_step"])
                given = k.view(image, (number * groups + group) * a["channels"] * a["step"])
                lefts = [k.view(own, a["slope_step"] * i) for i in range(rows)]
                rights = [k.view(given, k.cast(k.load(offset, at + j), "index")) for j in range(columns)]
                with k.loop(0, a["length"], lanes) as p:
                    factors = [k.vector(left, p) for left in lefts]
                    for j, right in enumerate(rights):
                        value = k.vector(right, p)
                        for i, factor in enumerate(factors):
                            total = sums[i * columns + j]
                            k.set(total, call("fma", factor, value, total))
            for i in range(rows):
                for j in range(columns):
                    k.store(made, (front + i) * depth + at + j, k.total(sums[i * columns + j]))
    return k
