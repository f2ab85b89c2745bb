"""What an op costs the host on CUDA: engine and binding as on a card, with launches that do nothing.

    python -m benchmarks.cuda_host [--json FILE]

Arrays have no memory, kernels and cublasLt return at once: what is left is what Python does before a launch, for which
a GPU waits when tensors are small.  Processor time, the best of many short rounds.  The bar is 6 us an op forward and
9 us a backward node, on a quiet machine.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import statistics
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PASSES = 4
BARS = {"forward": 6.0, "backward": 9.0}


class Pointer:
    """cupy.cuda.MemoryPointer."""

    __slots__ = ("device_id", "ptr")

    def __init__(self, ptr: int) -> None:
        self.ptr, self.device_id = ptr, 0


class Flags:
    """cupy's flags."""

    __slots__ = ("c_contiguous", "f_contiguous", "forc", "owndata")

    def __init__(self, c_contiguous: bool, f_contiguous: bool) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = c_contiguous, f_contiguous, True
        self.forc = c_contiguous or f_contiguous


@functools.cache
def _layout(shape: tuple[int, ...], item: int) -> tuple[tuple[int, ...], int, Flags]:
    """(strides, elements, flags) of a new array."""
    probe = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), shape)
    size = probe.size
    strides = tuple(np.empty(shape, f"V{item}").strides) if size < 1 << 20 else ()
    return strides, size, Flags(True, sum(n != 1 for n in shape) < 2)


MEMORY = Pointer(1 << 20)
_PROBE = np.zeros(1, np.float32)
_seen: dict[Any, tuple[tuple[int, ...], tuple[int, ...]]] = {}  # shapes and strides of views, which CuPy finds in C


class Array:
    """cupy.ndarray without memory: what the engine asks an array for before a launch."""

    __slots__ = ("__weakref__", "base", "data", "dtype", "flags", "itemsize", "ndim", "shape", "size", "strides")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.ndim, self.dtype, self.data, self.base = shape, len(shape), dtype, MEMORY, None
        self.itemsize = dtype.itemsize
        self.strides, self.size, self.flags = _layout(shape, dtype.itemsize)

    def _seen(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        made = Array.__new__(Array)
        made.shape, made.strides, made.ndim, made.dtype = shape, strides, len(shape), self.dtype
        made.data, made.base, made.itemsize, made.size = self.data, self, self.itemsize, self.size
        made.flags = Flags(False, True)
        return made

    @property
    def T(self) -> Array:
        """The transpose."""
        return self._seen(self.shape[::-1], self.strides[::-1])

    def transpose(self, *axes: Any) -> Array:
        """Other order of dims."""
        order = axes[0] if axes and isinstance(axes[0], tuple | list) else axes or range(self.ndim)[::-1]
        return self._seen(tuple([self.shape[d] for d in order]), tuple([self.strides[d] for d in order]))

    def swapaxes(self, one: int, two: int) -> Array:
        """Two dims changed."""
        order = list(range(self.ndim))
        order[one], order[two] = order[two], order[one]
        return self.transpose(order)

    def reshape(self, *shape: Any) -> Array:
        """Another shape."""
        wanted = tuple(shape[0]) if isinstance(shape[0], tuple | list) else shape
        if -1 in wanted:
            rest = -int(np.prod(wanted))
            wanted = tuple([self.size // rest if n == -1 else n for n in wanted])
        return self._seen(wanted, _layout(wanted, self.itemsize)[0])

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        """Of another type."""
        return self if not copy and dtype == self.dtype else Array(self.shape, np.dtype(dtype))

    def copy(self, order: str = "C") -> Array:
        """A new one."""
        return Array(self.shape, self.dtype)

    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        """The sums over dims, by CuPy."""
        axes = range(self.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        over = {a % self.ndim for a in axes}
        shape = tuple([1 if d in over else n for d, n in enumerate(self.shape) if keepdims or d not in over])
        return Array(shape, self.dtype)

    def set(self, values: Any) -> None:
        """Values from the host, which nobody reads."""

    def __getitem__(self, index: Any) -> Array:
        parts = index if index.__class__ is tuple else (index,)
        named = tuple([(i.start, i.stop, i.step) if i.__class__ is slice else i for i in parts])
        found = _seen.get(key := (self.shape, self.strides, named))
        if found is None:
            probe = np.lib.stride_tricks.as_strided(_PROBE, self.shape, self.strides)[index]
            found = _seen[key] = probe.shape, probe.strides
        return self._seen(*found)

    def __setitem__(self, index: Any, value: Any) -> None:
        pass


def _empty(shape: Any, dtype: Any = float) -> Array:
    return Array(shape if shape.__class__ is tuple else tuple(np.atleast_1d(shape).tolist()), np.dtype(dtype))


class Kernel:
    """cupy.RawModule and what comes of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.kernel = lambda grid, block, args, shared_mem=0: None

    def get_function(self, name: str) -> Kernel:
        """Itself."""
        return self


class Library:
    """cublasLt, whose calls do nothing."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*args: Any) -> int:
            if name == "cublasLtMatmulAlgoGetHeuristic":
                args[-1]._obj.value = 1
            return 0

        setattr(self, name, call)
        return call


class Numpy:
    """cupy: numpy's functions, and no GPU."""

    ndarray = Array
    RawModule = Kernel
    __version__ = "14.2.0"

    def __init__(self) -> None:
        stream = types.SimpleNamespace(ptr=16, is_capturing=lambda: False)
        self.cuda = types.SimpleNamespace(
            runtime=types.SimpleNamespace(getDevice=lambda: 0, getDeviceCount=lambda: 1, setDevice=lambda device: None),
            get_current_stream=lambda: stream,
            set_allocator=lambda allocator: None,
        )
        self.empty = _empty
        self.asarray = lambda a, dtype=None: (
            a if isinstance(a, Array) else Array(np.shape(a), np.asarray(a, dtype).dtype)
        )
        self.ascontiguousarray = lambda a: a if a.flags.c_contiguous else a.copy()
        self.full = lambda shape, value, dtype: _empty(tuple(shape), dtype)
        self.ones_like = self.empty_like = lambda a, dtype=None: Array(a.shape, np.dtype(dtype or a.dtype))
        self.broadcast_to = lambda a, shape: a._seen(shape, (0,) * (len(shape) - a.ndim) + a.strides)
        strided = lambda a, shape, strides: a._seen(tuple(shape), tuple(strides))
        self.lib = types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=strided))
        self.get_default_memory_pool = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _time(call: Callable[[], Any], rounds: int = 40, calls: int = 50) -> float:
    """Microseconds of one call: the best round."""
    call()
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time_ns()
        for _ in range(calls):
            call()
        best = min(best, time.process_time_ns() - began)
    return best / calls / 1000


def _cases(engine: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Forward calls by name, with what they are called on."""
    F = engine.nn.functional
    made = lambda *shape: engine.rand(*shape).cuda()
    a, b, v = made(32, 32), made(32, 32), made(32)
    return {
        "add": (lambda x, y: x + y, (a, b)),
        "mul by a number": (lambda x: x * 2.5, (a,)),
        "add a row": (lambda x, y: x + y, (a, v)),
        "relu": (F.relu, (a,)),
        "gelu": (F.gelu, (a,)),
        "exp": (lambda x: x.exp(), (a,)),
        "sum": (lambda x: x.sum(1), (a,)),
        "mean": (lambda x: x.mean(), (a,)),
        "softmax": (lambda x: x.softmax(1), (a,)),
        "layer norm": (lambda x, w, c: F.layer_norm(x, (32,), w, c), (a, v, v.clone())),
        "mm": (lambda x, y: x @ y, (a, b)),
        "linear": (F.linear, (a, b, v)),
        "view": (lambda x: x.view(16, 64), (a,)),
        "transpose": (lambda x: x.t(), (a,)),
    }


def measure() -> dict[str, dict[str, float]]:
    """{op: {"forward": us without gradients, "graph": us with, "backward": us of its node}}."""
    from engine import backends
    from engine.backends import cuda
    from engine.backends.cuda import runtime

    runtime.use(Numpy(), Library())
    backend = cuda.load()
    backends.register(backend)
    import engine

    trust(runtime)
    rows: dict[str, dict[str, float]] = {}
    for name, (call, args) in _cases(engine).items():
        with engine.no_grad():
            forward = _time(functools.partial(call, *args))
        leaves = [a.detach().requires_grad_() for a in args]
        graph = _time(functools.partial(call, *leaves))
        result = call(*leaves)
        node, weight = result.grad_fn, [engine.empty_like(result)]
        backward = _time(functools.partial(node.apply, weight, needs(node)))
        rows[name] = {"forward": forward, "graph": graph, "backward": backward}
    backends.unregister(backend)
    runtime.use(None)
    return rows


def needs(node: Any) -> list[bool]:
    """Every input's gradient is wanted."""
    return [edge is not None for edge in node.next_edges]


def trust(runtime: Any) -> None:
    """Every route is on: no card is here that could prove one."""
    import engine.ops.cuda  # noqa: F401
    from engine.backends.cuda import routes

    runtime.state.verdicts = {(name, 0): True for name in routes.ROUTES}


def main() -> int:
    """Print the table; with --json keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    passes = [measure() for _ in range(PASSES)]  # a machine that is busy for a second spoils one of them
    rows = {name: {k: min(p[name][k] for p in passes) for k in row} for name, row in passes[0].items()}
    print(f"{'op':<18}{'forward':>9}{'graph':>9}{'backward':>10}   us of the host")
    for name, row in rows.items():
        print(f"{name:<18}{row['forward']:9.1f}{row['graph']:9.1f}{row['backward']:10.1f}")
    means = {k: statistics.geometric_mean([row[k] for row in rows.values()]) for k in ("forward", "graph", "backward")}
    print(f"{'geometric mean':<18}{means['forward']:9.1f}{means['graph']:9.1f}{means['backward']:10.1f}")
    if options.json:
        document = {
            "benchmark": "cuda_host",
            "processor": platform.processor(),
            "bars": BARS,
            "us": rows,
            "mean": means,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
