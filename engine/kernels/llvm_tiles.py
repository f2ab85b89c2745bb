"""Products whose second factor is read where it is, in LLVM's language: what convolutions become.

The function is `void NAME(ptr args, i64 begin, i64 end)`.  For the rows i of the tiles begin..end,
`rows` of them each, out[i, p] = sum over k of a[i, k] * b[offset[k] + p]: row k of the second factor is the memory from
offset[k] on, so that overlapping windows of one image need no copies.  A tile of `rows` x `vectors` results stays in
registers while k goes through a block; its results wait in `out` between blocks.  args has 8 bytes for each of
PARAMETERS.

Blocks of k keep the part of b that a tile reads in the first-level cache; within a block, all tiles take the same
places p before the next places are looked at.
"""

from __future__ import annotations

import functools
import struct

from engine.kernels.llvm_text import Text

__all__ = ["BLOCK", "PARAMETERS", "pack", "printed"]

# a: (tiles, K, rows), packed; b; offset: (K,) int64, in elements; out: (tiles * rows, places * lanes); depth: K;
# places: vectors p goes through; tiles: of a group; group: elements from the b of one group to that of the next.
PARAMETERS = ("a", "b", "offset", "out", "depth", "places", "tiles", "group")
pack = struct.Struct("<8q").pack
BLOCK = 320  # places of k in a block


@functools.cache
def printed(name: str, type: str, lanes: int, rows: int, vectors: int, attributes: str = "") -> str:
    """The module of the product for `type` (float32, float64) and tiles of `rows` x `vectors` vectors of `lanes`."""
    w = Text()
    t, size = {"float32": ("float", 4), "float64": ("double", 8)}[type]
    v = f"<{lanes} x {t}>"
    args = {p: w.load("ptr" if n < 4 else "i64", "%args", n, 8) for n, p in enumerate(PARAMETERS)}
    depth, places = args["depth"], args["places"]
    pitch = w.times(places, lanes)
    sizes = [n for n in (8, 4, 3, 2, 1) if n == vectors or (n < vectors and n != 3)]

    def tile(count: int, first: str, last: str, place: str) -> None:
        """The tiles of the call at `count` vectors from `place` on, k from first to last."""
        start = w.times(place, lanes)
        fresh = w.emit(f"icmp eq i64 {first}, 0")

        def one(index: str, _: list[str]) -> list[str]:
            group = w.emit(f"udiv i64 {index}, {args['tiles']}")
            b = w.place(t, args["b"], w.plus(w.times(group, args["group"]), start))
            a = w.place(t, args["a"], w.times(w.times(index, depth), rows))
            out = w.place(t, args["out"], w.plus(w.times(w.times(index, rows), pitch), start))
            spots = []
            for i in range(rows):
                line = w.place(t, out, w.times(pitch, i))
                spots += [w.place(v, line, j) for j in range(count)]
            load, ready = w.label(), w.label()
            origin = w.here
            w(f"br i1 {fresh}, label %{ready}, label %{load}")
            w.at(load, jump=False)
            earlier = [w.load(v, spot, 0, size) for spot in spots]
            w.at(ready)
            begun = [w.emit(f"phi {v} [ zeroinitializer, %{origin} ], [ {e}, %{load} ]") for e in earlier]

            def step(k: str, sums: list[str]) -> list[str]:
                line = w.place(t, b, w.load("i64", args["offset"], k, 8))
                values = [w.load(v, line, j, size) for j in range(count)]
                column = w.place(t, a, w.times(k, rows))
                found = []
                for i in range(rows):
                    alone = w.emit(f"insertelement {v} poison, {t} {w.load(t, column, i, size)}, i64 0")
                    factor = w.emit(f"shufflevector {v} {alone}, {v} poison, <{lanes} x i32> zeroinitializer")
                    for j in range(count):
                        product = w.emit(f"fmul contract {v} {factor}, {values[j]}")
                        found.append(w.emit(f"fadd contract {v} {sums[i * count + j]}, {product}"))
                return found

            sums = w.loop(first, last, 1, step, [(v, b) for b in begun])
            for spot, value in zip(spots, sums):
                w(f"store {v} {value}, ptr {spot}, align {size}")
            return []

        w.loop("%begin", "%end", 1, one)

    def block(first: str, _: list[str]) -> list[str]:
        beyond = w.plus(first, BLOCK)
        short = w.emit(f"icmp slt i64 {beyond}, {depth}")
        last = w.emit(f"select i1 {short}, i64 {beyond}, i64 {depth}")
        done = "0"
        for count in sizes:  # what is left by more, in fewer at a time
            left = w.minus(places, done)
            rest = w.emit(f"urem i64 {left}, {count}")
            if count == 3:  # four are two and two: one alone waits for its factors
                lone = w.emit(f"icmp eq i64 {rest}, 1")
                rest = w.emit(
                    f"select i1 {lone}, i64 {w.emit(f'call i64 @llvm.smin.i64(i64 {left}, i64 4)')}, i64 {rest}"
                )
            until = w.plus(done, w.minus(left, rest))

            def some(place: str, _: list[str], count: int = count) -> list[str]:
                tile(count, first, last, place)
                return []

            w.loop(done, until, count, some)
            done = until
        return []

    w.loop("0", depth, BLOCK, block)
    w("ret void")
    head = f"define void @{name}(ptr noalias readonly %args, i64 %begin, i64 %end) #0 {{\nentry:"
    tail = ["}", "declare i64 @llvm.smin.i64(i64, i64)", f"attributes #0 = {{ nounwind {attributes} }}", ""]
    return "\n".join([head, *w.lines, *tail])
