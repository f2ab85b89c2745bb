"""Products of a few rows and a matrix that is packed: what the steps of a recurrent layer are."""

from __future__ import annotations

from engine.kernels.jobs import Jobs
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["PARAMETERS", "panels"]

PARAMETERS = ("left", "right", "out", "rows", "depth", "width", "added")
_ROWS = (6, 4, 2, 1)


@in_llvm
def panels(lanes: int, vectors: int) -> Jobs:
    """Of the panels begin..end: out (rows, width) = [out +] left (rows, depth) @ right.

    right: (width / panel, depth, panel), a panel being `vectors` * `lanes` columns; added: out is added to.
    """
    k = Jobs("panels", lanes, PARAMETERS, 3)
    left, right, out = k.arrays
    rows, depth, width, added = k.numbers.values()
    add, panel = added.differs(0), vectors * lanes
    with k.loop(k.begin, k.end) as p:
        own = k.view(right, p * depth * panel)
        for count, row in k.cut(rows, _ROWS):
            target, start = k.view(out, row * width + p * panel), k.view(left, row * depth)
            places = k.vectors([k.view(target, width * i) for i in range(count)], vectors)
            sums = k.load_where(add, places)
            k.add_products(sums, [k.view(start, depth * i) for i in range(count)], depth, 1, own, panel)
            k.store_all(places, sums)
    return k
