"""An optimizer's step over all its parameters in one launch, recorded from its update in `engine/optim`.

The numbers (learning rate, step) are parameters of the kernel; tensors stand in a table of addresses that is made anew
only when an address changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.backends.cuda import routes, runtime
from engine.core.lru import LRU
from engine.kernels.elementwise import Recorded, recorded_many, type_is_number
from engine.kernels.form import FormError
from engine.kernels.trace import Untraceable
from engine.ops.cuda._launch import built, identifier, map_grid, scalar, usable

CHUNK = 1 << 14  # elements of one tensor that belong together: no launch has fewer blocks than chunks need
GRADIENT = 1  # its place among the arrays of a tensor: read, not written

_recorded: dict[Any, list[tuple[Recorded | None, Any]]] = {}
_tables: LRU[Any, tuple[Any, ...]] = LRU(64)


# Note [Steps in graphs]
# A graph keeps its kernels' parameters, and the numbers of a step (learning rate, bias corrections) change from step to
# step.  So in a capture the kernel reads them from memory, and the recording gets a function that writes those of the
# step to come there, which the optimizer calls before each replay (`engine/optim/optimizer.py`).


def run(kernel: Callable[..., None], jobs: Sequence[Any], temporaries: int, places: Sequence[int] = ()) -> list[Any]:
    """Update what can be in as few launches as there are kinds of tensors; the jobs that are left.

    jobs: (flat arrays: parameter, gradient, state..., numbers), all on one device.  places: what stands for each
    of them in what a recording is given.
    """
    if not usable("optimizer"):
        return list(jobs)
    recording = runtime.memory.recording()
    kinds: dict[Any, list[Any]] = {}
    left = []
    for place, (arrays, numbers) in enumerate(jobs):
        key = tuple([a.dtype for a in arrays]), numbers
        try:
            kinds.setdefault(key, []).append((arrays, place))
        except TypeError:  # numbers that are tensors
            left.append((arrays, numbers))
    for (dtypes, numbers), group in kinds.items():
        group_of_some = [arrays for arrays, _ in group if arrays[0].size]
        try:
            found = _program(kernel, dtypes, numbers, temporaries, recording is not None)
        except compiling.CompileError as error:
            routes.ROUTES["optimizer"].fail(error)
            found = None
        if found is None or len({id(a[0]) for a, _ in group}) < len(group):  # given twice: one after the other
            left += [(arrays, numbers) for arrays, _ in group]
        elif group_of_some:
            write = _launch(found, dtypes, numbers, group_of_some, recording is not None)
            if recording is not None:
                recording.steps.append((places[group[0][1]], write))
    return left


def _program(kernel: Any, dtypes: Any, numbers: Any, temporaries: int, replayed: bool) -> tuple[Recorded, Any] | None:
    known = _recorded.setdefault((compiling.generation, kernel, dtypes, _fixed(numbers), temporaries, replayed), [])
    for code, call in known:
        if code is None:
            return None
        if code.fits(numbers):
            return code, call
    name = identifier(getattr(kernel, "__qualname__", "update"))
    try:
        code = recorded_many(name, kernel, dtypes, temporaries, numbers, (GRADIENT,), True, replayed)
    except (Untraceable, FormError, AttributeError, TypeError):
        known.append((None, None))
        return None
    known.append((code, built(code.kernel, wide=True)))
    return known[-1]  # type: ignore[return-value]


def _launch(found: tuple[Recorded, Any], dtypes: Any, numbers: Any, group: Sequence[Any], replayed: bool) -> Any:
    """Launch; in a recording the function that writes the numbers of the step to come."""
    code, call = found
    xp = _module(group[0][0])
    addresses = tuple([tuple([compiling.address(a[n]) for a in group]) for n in range(len(dtypes))])
    sizes = tuple([a[0].size for a in group])
    if replayed:
        table = (addresses, *_table(xp, addresses, sizes, None))
    else:
        key = id(call), sizes
        table = _tables.get(key)
        if table is None or table[0] != addresses:
            table = _tables[key] = (addresses, *_table(xp, addresses, sizes, table))
    _, pointers, tensor, first, end = table
    count = len(tensor) * CHUNK
    if replayed:
        values: list[Any] = [runtime.constant(np.array(of(numbers), type)) for type, of in code.numbers]
    else:
        values = [scalar(of(numbers), type, True) for type, of in code.numbers]
    call(*map_grid(count), [*pointers, tensor, first, end, np.int64(CHUNK), *values, np.int64(count)])
    return functools.partial(_write, code, _fixed(numbers), values) if replayed else None


def _fixed(numbers: Any) -> tuple[Any, ...]:
    """Return the part of the numbers that is compiled into a program rather than passed as a parameter."""
    return tuple([type(n) if type_is_number(n) else n for n in numbers])


def _write(code: Recorded, fixed: Any, arrays: Sequence[Any], numbers: tuple) -> None:
    """The numbers of the step that a replay is about to do.  Raises StaleGraph where it takes another program."""
    if _fixed(numbers) != fixed or not code.fits(numbers):
        raise runtime.StaleGraph(
            "the optimizer's step takes another way than the captured one (an option from or to 0, or RAdam's first "
            "steps): capture it anew"
        )
    for array, (type, of) in zip(arrays, code.numbers):
        array.set(np.array(of(numbers), type))


def _table(xp: Any, addresses: Any, sizes: Sequence[int], before: Any) -> tuple[Any, ...]:
    """(addresses of each array, tensor, first element, end of each chunk) on the device."""
    put = xp.asarray if xp is np else runtime.constant
    pointers = [put(np.array(row, np.uint64)) for row in addresses]
    if before is not None:  # the same sizes: only addresses changed
        return pointers, *before[2:]
    tensor = np.repeat(np.arange(len(sizes), dtype=np.int32), [-(-n // CHUNK) for n in sizes])
    first = np.concatenate([np.arange(0, n, CHUNK) for n in sizes]).astype(np.int64)
    end = np.array([sizes[t] for t in tensor], np.int64)
    return pointers, *(put(a) for a in (tensor, first, end))


def _module(array: Any) -> Any:
    from engine import backends

    return backends.xp_of(array)
