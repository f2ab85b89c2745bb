"""The stand-in's array module: `cupy` as the engine sees it, no name or keyword beyond CuPy's table."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from tests.engine.standin import ipc, machine
from tests.engine.standin.arrays import API, Array, Ufunc, _call, _fresh, account, matmul, no_cublas, ufunc, used
from tests.engine.standin.kernels import RawKernel, RawModule
from tests.engine.standin.machine import Machine, before_write, here, launch, no_capture

# functions that read results on the host before they return, in CuPy's own source
SYNCHRONOUS = frozenset(["nonzero", "flatnonzero", "argwhere", "unique", "bincount", "array_equal", "allclose"])
JOINS = frozenset(
    ["concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"]
)  # a list of addresses is copied
BLAS = frozenset(["dot", "einsum", "tensordot", "inner", "outer", "vdot"])
WRITES = {"put_along_axis": (0,), "copyto": (0,), "fill_diagonal": (0,), "place": (0,), "put": (0,)}
CREATION = frozenset(["arange", "linspace", "eye", "tri", "identity", "logspace", "full", "zeros", "ones"])


class Module:
    """A module of the table."""

    def __init__(self, prefix: str, module: Any, own: dict[str, Any]) -> None:
        self._prefix, self._module = prefix, module
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        full = self._prefix + name
        if full not in API or self._module is None:
            raise AttributeError(f"module 'cupy{'.' + self._prefix if self._prefix else ''}' has no attribute '{name}'")
        used.add(full)
        value = getattr(self._module, name)
        entry = API[full]
        if isinstance(entry, dict):
            value = ufunc(name) if isinstance(value, np.ufunc) else _function(full, value, ["*args", "out"])
        elif callable(value) and not isinstance(value, type):
            value = _function(full, value, entry)
        setattr(self, name, value)
        return value


def _function(full: str, function: Any, entry: Any) -> Any:
    short = full.rpartition(".")[2]

    def call(*args: Any, **kwargs: Any) -> Any:
        if short in SYNCHRONOUS or short in JOINS:
            no_capture(full)
        if short in BLAS or full.startswith("linalg."):
            no_cublas()
        if full.startswith("linalg."):
            for a in args:
                if isinstance(a, Array) and str(a.dtype) in ("float16", "bfloat16"):
                    raise TypeError(f"{a.dtype} is unsupported in linalg")
        if full == "linalg.solve" and args[1].ndim > 1 and args[0].shape[:-1] != args[1].shape[:-1]:
            raise ValueError("a must have (..., M, M) shape and b must have (..., M, K) for multidimensional b")
        if full == "where" and any(str(getattr(a, "dtype", "")) == "bfloat16" for a in args[1:]):
            args = (args[0], *[a.astype(np.float32) if isinstance(a, Array) else a for a in args[1:]])
        if short in ("argsort", "sort") and kwargs.get("kind") not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        return _call(full, function, entry, WRITES.get(short, ()), *args, **kwargs)

    call.__name__ = short
    return call


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> Array:
    """cupy.array: of arrays of either kind, numbers and nested lists (of device arrays as well)."""
    if isinstance(obj, Array):
        if copy is False and (dtype is None or np.dtype(dtype) == obj.dtype) and order == "K":
            return obj
        return _call("array", lambda a: np.array(a, dtype, order=order, ndmin=ndmin), None, (), obj)
    if isinstance(obj, list | tuple) and any(isinstance(v, Array) for v in obj):
        return _call("array", lambda *parts: np.array(np.stack(parts), dtype), None, (), *obj)
    no_capture("a copy from the host")
    made = _fresh(np.array(obj, dtype, order=order, ndmin=ndmin))
    before_write([made.data.mem.chunk])
    launch([], [made.data.mem.chunk], lambda: None)
    return made


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> Array:
    """cupy.asarray."""
    return array(a, dtype, copy=bool(copy), order=order or "K")


def ascontiguousarray(a: Any, dtype: Any = None) -> Array:
    """cupy.ascontiguousarray."""
    if isinstance(a, Array) and a.flags.c_contiguous and (dtype is None or a.dtype == dtype) and a.ndim:
        return a
    return array(a, dtype, order="C")


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> np.ndarray:
    """cupy.asnumpy."""
    return a.get(stream=stream, order=order, out=out, blocking=blocking) if isinstance(a, Array) else np.asarray(a)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> Array:
    """cupy.empty: what lies there is what was freed."""
    return Array(shape, dtype, order=order)


def empty_like(prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> Array:
    """cupy.empty_like."""
    like = np.empty_like(prototype._held, dtype, order, shape=shape)
    return Array(like.shape, like.dtype, strides=like.strides)


def _filled(name: str, function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        for a in (*args, *kwargs.values()):
            if isinstance(a, np.ndarray):
                raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        if name == "full" and isinstance(args[1], Array):  # fills from device memory
            made = empty(args[0], args[2] if len(args) > 2 else kwargs.get("dtype") or args[1].dtype)
            made[...] = args[1]
            return made
        plain = [a.item() if isinstance(a, Array) else a for a in args]
        value = function(*plain, **kwargs)
        return account(value, [], [], lambda: value)

    return call


def as_strided(x: Array, shape: Any = None, strides: Any = None) -> Array:
    """cupy.lib.stride_tricks.as_strided, which gives its result no `.base`."""
    from tests.engine.standin.arrays import _made

    return _made(np.lib.stride_tricks.as_strided(x._held, shape, strides), x.data, None)


class Device:
    """cupy.cuda.Device."""

    def __init__(self, device: Any = None) -> None:
        self.id = here.device if device is None else int(device)
        self._outer: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        _check_device(self.id)
        self._outer.append(here.device)
        here.device = self.id
        return self

    def __exit__(self, *exc: object) -> None:
        here.device = self._outer.pop()

    def use(self) -> None:
        _check_device(self.id)
        here.device = self.id

    def synchronize(self) -> None:
        with self:
            no_capture("cudaDeviceSynchronize")
            for stream in list(here.streams):
                if stream.device == self.id:
                    stream.synchronize()

    @property
    def cublas_handle(self) -> int:
        return self.id + 1

    @property
    def mem_info(self) -> tuple[int, int]:
        return Machine.capacity - Machine.held[self.id], Machine.capacity

    @property
    def compute_capability(self) -> str:
        return "90"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    __hash__ = None  # type: ignore[assignment]


def _check_device(index: int) -> None:
    if not 0 <= index < Machine.count:
        raise machine.CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")


def _set_device(device: int) -> None:
    _check_device(device)
    here.device = device


def _properties(device: int) -> dict[str, Any]:
    _check_device(device)
    return {
        "name": b"Stand-in GPU",
        "totalGlobalMem": Machine.capacity,
        "major": 9,
        "minor": 0,
        "multiProcessorCount": 132,
        "warpSize": 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiProcessor": 2048,
        "sharedMemPerBlock": 49152,
        "regsPerMultiprocessor": 65536,
        "l2CacheSize": 1 << 20,
        "integrated": 0,
        "isMultiGpuBoard": 0,
        "pciBusID": 1,
        "pciDeviceID": 0,
        "pciDomainID": 0,
        "sharedMemPerBlockOptin": 232448,
        "sharedMemPerMultiprocessor": 233472,
        "clockRate": 1980000,
        "uuid": bytes([*range(15), device]),
    }


def _stream_of(device_id: int = -1) -> machine.Stream:
    if device_id < 0:
        return machine.current_stream()
    return here.current.get(device_id) or machine.null_stream(device_id)


runtime = Module(
    "cuda.runtime.",
    None,
    {
        "CUDARuntimeError": machine.CUDARuntimeError,
        "getDevice": lambda: here.device,
        "setDevice": _set_device,
        "getDeviceCount": lambda: Machine.count,
        "getDeviceProperties": _properties,
        "deviceCanAccessPeer": lambda device, peerDevice: int(device != peerDevice),
        "memGetInfo": lambda: Device().mem_info,
        "driverGetVersion": lambda: 13000,
        "runtimeGetVersion": lambda: 13000,
        "deviceSynchronize": lambda: Device().synchronize(),
        "streamNonBlocking": 1,
        **ipc.RUNTIME,
    },
)


class _NullStream:
    """`Stream.null` is that of the current device."""

    def __get__(self, instance: Any, owner: Any) -> machine.Stream:
        return machine.null_stream(here.device)


machine.Stream.null = _NullStream()  # type: ignore[assignment]


def _set_allocator(allocator: Any = None) -> None:
    Machine.allocator = allocator


class _Nccl:
    """`cupy.cuda.nccl`, imported when asked for: it stands on engine.distributed."""

    def __getattr__(self, name: str) -> Any:
        from tests.engine.standin import nccl

        return getattr(nccl, name)


nvtx_calls: list[tuple[str, Any]] = []
cuda = Module(
    "cuda.",
    None,
    {
        "runtime": runtime,
        "Device": Device,
        "Stream": machine.Stream,
        "Event": machine.Event,
        "MemoryPool": machine.MemoryPool,
        "MemoryPointer": machine.MemoryPointer,
        "UnownedMemory": machine.UnownedMemory,
        "memory": types.SimpleNamespace(OutOfMemoryError=machine.OutOfMemoryError),
        "get_current_stream": _stream_of,
        "get_elapsed_time": machine.elapsed,
        "get_device_id": lambda: here.device,
        "alloc_pinned_memory": machine.PinnedMemoryPointer,
        "set_allocator": _set_allocator,
        "using_allocator": machine.using_allocator,
        "get_local_runtime_version": lambda: 13000,
        "nvtx": types.SimpleNamespace(
            Mark=lambda message, id_color=-1: nvtx_calls.append(("mark", message)),
            RangePush=lambda message, id_color=-1: nvtx_calls.append(("push", message)),
            RangePop=lambda: nvtx_calls.append(("pop", None)),
        ),
        "nccl": _Nccl(),
        "profiler": types.SimpleNamespace(start=lambda: None, stop=lambda: None),
    },
)

cupy = Module(
    "",
    np,
    {
        "__version__": "14.2.0",
        "__name__": "cupy",
        "ndarray": Array,
        "ufunc": Ufunc,
        "RawModule": RawModule,
        "RawKernel": RawKernel,
        "cuda": cuda,
        "array": array,
        "asarray": asarray,
        "ascontiguousarray": ascontiguousarray,
        "asnumpy": asnumpy,
        "empty": empty,
        "empty_like": empty_like,
        "matmul": matmul,
        "get_default_memory_pool": lambda: machine.default_pool,
        "linalg": Module("linalg.", np.linalg, {}),
        "fft": Module("fft.", np.fft, {}),
        "lib": types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=as_strided)),
        **{name: _filled(name, getattr(np, name)) for name in sorted(CREATION)},
    },
)
