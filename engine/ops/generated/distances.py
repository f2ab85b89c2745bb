"""`cdist` of p = 1 and infinity as generated kernels (the extra `jit`), which make no array of all differences."""

from __future__ import annotations

from typing import Any

from engine.core.checks import broadcast_shapes
from engine.dispatch import kernel
from engine.kernels import rows
from engine.ops import distance
from engine.ops.cuda import _rows
from engine.ops.cuda._launch import strides_of
from engine.ops.generated.layers import FLOATS

_FAR = float("inf")


def _serves(p: float, *arrays: Any) -> bool:
    dtype = arrays[0].dtype
    return p in (1, _FAR) and dtype in FLOATS and all(a.size and a.dtype == dtype for a in arrays)


def _spread(array: Any, lead: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The strides of (*, n, d): those of the dims of `lead`, 0 where it is broadcast, and the last two."""
    *own, outer, inner = strides_of(array)
    sizes = array.shape[:-2]
    steps = [0 if size == 1 else step for size, step in zip(sizes, own)]
    return (*[0] * (len(lead) - len(sizes)), *steps), (outer, inner)


@kernel(distance.general_cdist, "cpu", only_launches=True)
def _general_cdist(xp, x1, x2, p):
    if not _serves(p, x1, x2):
        return NotImplemented
    lead = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    n, m, d = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    made, far = xp.empty((*lead, n, m), x1.dtype), p == _FAR
    (a, (row, place)), (b, (other, along)), (c, out) = (_spread(x, lead) for x in (x1, x2, made))
    strides = [((*a, row, 0), (place,)), ((*b, 0, other), (along,)), ((*c, *out), (0,))]
    write = lambda r: rows.distances(r, far)
    _rows.run("distances", write, [x1, x2, made], 1, (*lead, n, m), (d,), strides, key=far)
    return made


@kernel(distance.general_cdist_backward, "cpu", only_launches=True)
def _general_cdist_backward(xp, grad_output, x1, x2, distances, p, first=True, second=True):
    if not _serves(p, x1, x2, grad_output, distances):
        return NotImplemented
    lead = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    found, far = [], p == _FAR
    pairs = [_spread(array, lead) for array in (grad_output, distances)]
    for wanted, mine, other, axis in ((first, x1, x2, 0), (second, x2, x1, 1)):
        if not wanted:
            found.append(xp.empty((0,), x1.dtype))
            continue
        n, m, d = mine.shape[-2], other.shape[-2], mine.shape[-1]
        made = xp.empty((*lead, n, d), x1.dtype)
        (a, own), (b, (along, column)), (c, out) = (_spread(x, lead) for x in (mine, other, made))
        strides = [((*a, *own), (0,)), ((*b, 0, column), (along,))]
        strides += [((*steps, last[axis], 0), (last[1 - axis],)) for steps, last in pairs]
        given = [mine, other, grad_output, distances, made]
        strides.append(((*c, *out), (0,)))
        if not far:
            del given[3], strides[3]
        write = lambda r: rows.distances_backward(r, far)
        _rows.run("distances_backward", write, given, 1, (*lead, n, d), (m,), strides, key=far)
        found.append(made)
    return tuple(found)
