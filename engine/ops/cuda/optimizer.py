"""An optimizer's step over all its parameters in one launch, recorded from its update in `engine/optim`.

The numbers (learning rate, step) are parameters of the kernel; tensors stand in a table of addresses that is made anew
only when an address changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.kernels.elementwise import Recorded, recorded_many, type_is_number
from engine.kernels.form import FormError
from engine.kernels.trace import Untraceable
from engine.ops.cuda._launch import built, identifier, map_grid, scalar, usable

CHUNK = 1 << 14  # elements of one tensor that belong together: no launch has fewer blocks than chunks need
GRADIENT = 1  # its place among the arrays of a tensor: read, not written

_recorded: dict[Any, list[tuple[Recorded | None, Any]]] = {}
_tables: dict[Any, tuple[Any, ...]] = {}


def run(kernel: Callable[..., None], jobs: Sequence[Any], temporaries: int) -> list[Any]:
    """Update what can be in as few launches as there are kinds of tensors; the jobs that are left.

    jobs: (flat arrays: parameter, gradient, state..., numbers), all on one device.
    """
    if not usable("optimizer"):
        return list(jobs)
    kinds: dict[Any, list[Any]] = {}
    left = []
    for arrays, numbers in jobs:
        key = tuple([a.dtype for a in arrays]), numbers
        try:
            kinds.setdefault(key, []).append(arrays)
        except TypeError:  # numbers that are tensors
            left.append((arrays, numbers))
    for (dtypes, numbers), group in kinds.items():
        group_of_some = [arrays for arrays in group if arrays[0].size]
        found = _program(kernel, dtypes, numbers, temporaries)
        if found is None or len({id(a[0]) for a in group}) < len(group):  # given twice: one after the other
            left += [(arrays, numbers) for arrays in group]
        elif group_of_some:
            _launch(found, dtypes, numbers, group_of_some)
    return left


def _program(kernel: Any, dtypes: Any, numbers: Any, temporaries: int) -> tuple[Recorded, Any] | None:
    fixed = tuple([type(n) if type_is_number(n) else n for n in numbers])
    known = _recorded.setdefault((compiling.generation, kernel, dtypes, fixed, temporaries), [])
    for code, call in known:
        if code is None:
            return None
        if code.fits(numbers):
            return code, call
    name = identifier(getattr(kernel, "__qualname__", "update"))
    try:
        code = recorded_many(name, kernel, dtypes, temporaries, numbers, (GRADIENT,), True)
    except (Untraceable, FormError, AttributeError, TypeError):
        known.append((None, None))
        return None
    known.append((code, built(code.kernel, wide=True)))
    return known[-1]  # type: ignore[return-value]


def _launch(found: tuple[Recorded, Any], dtypes: Any, numbers: Any, group: Sequence[Any]) -> None:
    code, call = found
    xp = _module(group[0][0])
    addresses = tuple([tuple([int(compiling.argument(a[n])) for a in group]) for n in range(len(dtypes))])
    sizes = tuple([a[0].size for a in group])
    key = id(call), sizes
    kept = _tables.get(key)
    if kept is None or kept[0] != addresses:
        kept = _tables[key] = (addresses, *_table(xp, addresses, sizes, kept))
        while len(_tables) > 64:
            del _tables[next(iter(_tables))]
    _, pointers, tensor, first, end = kept
    count = len(tensor) * CHUNK
    values = [scalar(of(numbers), type, True) for type, of in code.numbers]
    call(*map_grid(count), [*pointers, tensor, first, end, np.int64(CHUNK), *values, np.int64(count)])


def _table(xp: Any, addresses: Any, sizes: Sequence[int], before: Any) -> tuple[Any, ...]:
    """(addresses of each array, tensor, first element, end of each chunk) on the device."""
    pointers = [xp.asarray(np.array(row, np.uint64)) for row in addresses]
    if before is not None:  # the same sizes: only addresses changed
        return pointers, *before[2:]
    tensor = np.repeat(np.arange(len(sizes), dtype=np.int32), [-(-n // CHUNK) for n in sizes])
    first = np.concatenate([np.arange(0, n, CHUNK) for n in sizes]).astype(np.int64)
    end = np.array([sizes[t] for t in tensor], np.int64)
    return pointers, *(xp.asarray(a) for a in (tensor, first, end))


def _module(array: Any) -> Any:
    from engine import backends

    return backends.xp_of(array)
