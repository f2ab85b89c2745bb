"""Products of a few rows and a matrix that is packed, in LLVM's language: what the steps of a recurrent layer are.

The function is `void NAME(ptr args, i64 begin, i64 end)`; args has 8 bytes for each of PARAMETERS.
"""

from __future__ import annotations

import functools

from engine.kernels.llvm_text import Vectors

__all__ = ["PARAMETERS", "panels"]

PARAMETERS = ("left", "right", "out", "rows", "depth", "width", "added")
_ROWS = (6, 4, 2, 1)


@functools.cache
def panels(name: str, lanes: int, vectors: int, attributes: str = "") -> str:
    """Of the panels begin..end: out (rows, width) = [out +] left (rows, depth) @ right.

    right: (width / panel, depth, panel), a panel being `vectors` * `lanes` columns; added: out is added to.
    """
    w = Vectors(PARAMETERS, lanes)
    left, right, out = map(w.pointer, PARAMETERS[:3])
    rows, depth, width = (w.args[p] for p in ("rows", "depth", "width"))
    added = w.emit(f"icmp ne i64 {w.args['added']}, 0")
    panel = vectors * lanes

    def one(p: str, _: list[str]) -> list[str]:
        own = w.place("float", right, w.times(w.times(p, depth), panel))
        column = w.times(p, panel)
        done = "0"
        for count in _ROWS:
            rest = w.emit(f"urem i64 {w.minus(rows, done)}, {count}")
            until = w.minus(rows, rest)

            def some(row: str, _: list[str], count: int = count) -> list[str]:
                target = w.place("float", out, w.plus(w.times(row, width), column))
                spots = []
                for i in range(count):
                    line = w.place("float", target, w.times(width, i))
                    spots += [w.place("float", line, j * lanes) for j in range(vectors)]
                begun = w.begun(spots, added)
                start = w.place("float", left, w.times(row, depth))
                sums = w.products(count, vectors, depth, start, (depth, "1"), own, str(panel), begun)
                for spot, value in zip(spots, sums):
                    w.store(value, spot)
                return []

            w.loop(done, until, count, some)
            done = until
        return []

    w.loop("%begin", "%end", 1, one)
    return w.finished(name, attributes)
