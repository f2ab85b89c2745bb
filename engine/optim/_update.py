"""Runs an update kernel over many parameters: flat, in cache-sized blocks, on a few threads.

An update reads and writes 3 to 5 arrays of the parameter's size in about ten elementwise operations.  Done over whole
parameters every operation goes to main memory; done block by block all of them but the first find their operands
in the cache.  Blocks are independent, and a few threads share them (`backends/cpu/threads.py`).
Where the extra `jit` is there an update is one loop of machine code (`ops/optimizer/generated.py`).
On CUDA, where launches are what costs, one kernel takes all parameters (`ops/optimizer/cuda.py`); what it cannot serve
is updated parameter by parameter.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine import backends
from engine.backends.cpu import threads

# 256 KiB of float32: smaller ones wait for the interpreter lock more than they win
# (Adam on 2 cores: 20 ms with 2^14, 9 ms with 2^16).
BLOCK = 1 << 16  # elements
MANY = 1 << 18  # elements in all from which a second thread pays

Job = tuple[Sequence[Any], tuple]  # arrays (parameter, gradient, state...), numbers

_scratch = threading.local()  # the temporaries of a thread, from one step to the next


def run(kernel: Callable, jobs: Sequence[Job], temporaries: int) -> None:
    """Call `kernel(xp, scratch, numbers, *blocks)` over all blocks of all jobs.

    scratch: `temporaries` arrays of the block's size and type.  The kernel writes every array but the gradient.
    """
    host: list[tuple[tuple[Any, ...], tuple]] = []
    device: list[tuple[tuple[Any, ...], tuple]] = []
    places: list[int] = []
    back: list[tuple[Any, Any]] = []  # (array, flat copy): what could not be seen flat
    total = 0
    for place, (arrays, numbers) in enumerate(jobs):
        if type(arrays[0]) is not np.ndarray and arrays[0].dtype.kind != "c" and _contiguous(arrays):
            flat = tuple(arrays)  # a kernel that is given addresses needs no views
        else:
            flat = _flat(arrays, back)
        if type(flat[0]) is np.ndarray:
            host.append((flat, numbers))
            total += flat[0].size
        else:
            device.append((flat, numbers))
            places.append(place)
    if device:
        from engine.ops.optimizer import cuda as optimizer

        for flat, numbers in optimizer.run(kernel, device, temporaries, places):
            _block(kernel, backends.xp_of(flat[0]), {}, temporaries, numbers, flat)
    if host and generated() and len({id(arrays[0]) for arrays, _ in jobs}) == len(jobs):
        from engine.ops.optimizer import generated as compiled

        plain = lambda job: _work(kernel, _pieces([job]), temporaries)
        host = compiled.run(kernel, host, temporaries, plain)
        total = sum([flat[0].size for flat, _ in host])
    pieces = _pieces(host)
    # Small parameters go together, so that what threads take at a time is worth it; a parameter given twice is updated
    # twice, one after the other.
    if total < MANY or len({id(arrays[0]) for arrays, _ in jobs}) < len(jobs):
        groups = [pieces]
    else:
        groups = _grouped(pieces)
    threads.run(lambda group: _work(kernel, group, temporaries), groups)
    for array, copy in back:
        array[...] = copy.reshape(array.shape)


def recording(params: Sequence[Any]) -> Any:
    """The recording of the graph that is captured, if these parameters are on a GPU; None without one."""
    if not any(p.is_cuda for p in params):
        return None
    from engine.backends.cuda import runtime

    return runtime.memory.recording()


def stale(message: str) -> Exception:
    """The error of a graph that cannot do the step to come."""
    from engine.backends.cuda import runtime

    return runtime.StaleGraph(message)


@functools.cache
def generated() -> bool:
    """Return whether updates may be compiled: the extra `jit` is installed and not disabled."""
    from engine.kernels import processor

    return processor.available()


def _grouped(pieces: list) -> list[list]:
    """The blocks in groups of about BLOCK elements or more."""
    groups: list[list] = []
    size = BLOCK
    for piece in pieces:
        if size >= BLOCK:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece[0][0].size
    return groups


def _pieces(host: list) -> list:
    """The blocks of all jobs."""
    found = []
    for flat, numbers in host:
        size = flat[0].size
        if size <= BLOCK:
            found.append((flat, numbers))
        else:
            found += [(tuple([a[i : i + BLOCK] for a in flat]), numbers) for i in range(0, size, BLOCK)]
    return found


def _work(kernel: Callable, pieces: Any, temporaries: int) -> None:
    scratch = _scratch.__dict__
    # Overflow and division by zero are values, as in torch; the state is a thread's own.
    with np.errstate(all="ignore"):
        for arrays, numbers in pieces:
            _block(kernel, np, scratch, temporaries, numbers, arrays)


def _block(kernel: Callable, xp: Any, scratch: dict, temporaries: int, numbers: tuple, arrays: Sequence) -> None:
    p = arrays[0]
    if p.dtype.itemsize == 2:  # float16, bfloat16: computed in float32
        wide = [a.astype(np.float32) for a in arrays]
        _block(kernel, xp, scratch, temporaries, numbers, wide)
        for i, (a, w) in enumerate(zip(arrays, wide)):
            if i != 1:
                a[...] = w.astype(a.dtype)
        return
    size = p.size
    if xp is not np:
        own = [xp.empty(p.shape, p.dtype) for _ in range(temporaries)]
    else:
        held = scratch.get(p.dtype.name)
        if held is None or len(held) < temporaries or held[0].size < size:
            held = [np.empty(max(size, BLOCK), p.dtype) for _ in range(temporaries)]
            scratch[p.dtype.name] = held
        own = [t[:size] for t in held[:temporaries]]
    kernel(xp, own, numbers, *arrays)


def _contiguous(arrays: Sequence[Any]) -> bool:
    return all([a.flags.c_contiguous for a in arrays])


def _flat(arrays: Sequence[Any], back: list[tuple[Any, Any]]) -> tuple[Any, ...]:
    """The arrays as 1-dim real ones over the same memory, element by element in the same order.

    Where that is impossible, 1-dim copies; those of all but the gradient (the second) are noted in `back`.
    """
    if _contiguous(arrays):
        flat = tuple([a.reshape(-1) for a in arrays])
    else:
        strides = arrays[0].strides
        order = sorted(range(arrays[0].ndim), key=lambda d: -strides[d])
        relaid = [a.transpose(order) for a in arrays]
        if relaid[0].flags.c_contiguous:  # dense in another order (channels last, transposed)
            arrays = relaid
        flat = ()
        for i, a in enumerate(arrays):
            if a.flags.c_contiguous:
                flat += (a.reshape(-1),)
            else:
                copy = backends.xp_of(a).ascontiguousarray(a).reshape(-1)
                if i != 1:
                    back.append((a, copy))
                flat += (copy,)
    kind = flat[0].dtype
    if kind.kind == "c":
        real = np.dtype(f"f{kind.itemsize // 2}")
        return tuple([a.view(real) for a in flat])
    return flat
