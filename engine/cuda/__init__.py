"""torch.cuda's names: questions are answered, and what needs a GPU raises one sentence where there is none.

The GPU itself is reached through `engine.backends.cuda`; this module imports no CUDA library.
"""

from __future__ import annotations

import contextlib
import importlib as _importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine import backends, dtypes
from engine.backends import cuda as _cuda
from engine.device import device as _device
from engine.tensor import Tensor as _Tensor
from engine.tensor import _legacy_new

__all__ = [
    "Event", "OutOfMemoryError", "Stream", "StreamContext", "can_device_access_peer", "current_device",
    "current_stream", "default_stream", "device", "device_count", "device_of", "empty_cache", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all",
    "init", "initial_seed", "ipc_collect", "is_available", "is_bf16_supported", "is_initialized", "manual_seed",
    "manual_seed_all", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_summary",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "seed", "seed_all",
    "set_device", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "stream",
    "synchronize", "temperature", "utilization",
]  # fmt: skip

_MODULES = frozenset(["amp", "comm", "memory", "nvtx", "random", "streams"])
has_half = has_magma = False
default_generators: tuple = ()


class OutOfMemoryError(RuntimeError):
    """The GPU has no memory left."""


class CudaError(RuntimeError):
    """A CUDA call failed."""


class DeferredCudaCallError(Exception):
    """A deferred CUDA call failed; nothing is deferred here."""


if TYPE_CHECKING:
    from engine.cuda import amp as amp
    from engine.cuda import comm as comm
    from engine.cuda import memory as memory
    from engine.cuda import nvtx as nvtx
    from engine.cuda import random as random
    from engine.cuda import streams as streams

    BFloat16Tensor: type[_Tensor]
    BoolTensor: type[_Tensor]
    ByteTensor: type[_Tensor]
    CharTensor: type[_Tensor]
    DoubleTensor: type[_Tensor]
    FloatTensor: type[_Tensor]
    HalfTensor: type[_Tensor]
    IntTensor: type[_Tensor]
    LongTensor: type[_Tensor]
    ShortTensor: type[_Tensor]
else:

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return _importlib.import_module(f"engine.cuda.{name}")
        if name in _TENSORS:
            return type(name, (_Tensor,), {"__new__": _no_tensor, "__doc__": "A tensor on the GPU."})
        raise AttributeError(f"module 'torch.cuda' has no attribute '{name}'")


_TENSORS = frozenset(
    f"{kind}Tensor" for kind in ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]
)


def _no_tensor(cls: type, *data: Any, device: Any = None) -> Any:
    dtype = getattr(dtypes, cls.__name__[:-6].lower())
    return _legacy_new(_Tensor, dtype, data, "cuda" if device is None else device)


def _library() -> Any:
    """CuPy; RuntimeError in one sentence where it or the GPU is missing."""
    return backends.of_device(_device("cuda")).cupy  # type: ignore[attr-defined]


def _index(where: Any) -> int:
    """The number of a device given as int, string, device or None (the current one)."""
    if where is None:
        return current_device()
    if isinstance(where, int):
        return where
    found = _device(where)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return current_device() if found.index is None else found.index


def is_available() -> bool:
    """Whether tensors can be on a GPU: CuPy is installed and finds one."""
    return _cuda.device_count() > 0


def device_count() -> int:
    """The number of GPUs that can be used; 0 without CuPy or a card."""
    return _cuda.device_count()


def is_initialized() -> bool:
    """Whether a GPU has been used in this process."""
    return any(one.kind == "cuda" for one in backends.registered())


def init() -> None:
    """Start CUDA.  RuntimeError where there is none."""
    _library()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes in bfloat16; never here."""
    return False


def current_device() -> int:
    """The number of the current GPU.  RuntimeError without one."""
    return int(_library().cuda.Device().id)


def set_device(device: Any) -> None:
    """Make a GPU the current one; a negative number is ignored, as in torch."""
    index = device if isinstance(device, int) else _index(device)
    if index >= 0:
        _library().cuda.Device(index).use()


class device:
    """A context in which a GPU is the current one; a negative number or None changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else device if isinstance(device, int) else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exc: object) -> None:
        set_device(self.prev_idx)


class device_of(device):
    """A context in which the GPU of a tensor is the current one; nothing for a tensor on the CPU."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def get_device_name(device: Any = None) -> str:
    """The name of a GPU.  RuntimeError without one."""
    name = _library().cuda.runtime.getDeviceProperties(_index(device))["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


class _Properties:
    def __init__(self, found: dict[str, Any]) -> None:
        name = found["name"]
        self.name = name.decode() if isinstance(name, bytes) else name
        self.total_memory = found["totalGlobalMem"]
        self.major, self.minor = found["major"], found["minor"]
        self.multi_processor_count = found["multiProcessorCount"]


def get_device_properties(device: Any = None) -> Any:
    """`name`, `total_memory`, `major`, `minor`, `multi_processor_count`.  RuntimeError without a GPU."""
    return _Properties(_library().cuda.runtime.getDeviceProperties(_index(device)))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(major, minor).  RuntimeError without a GPU."""
    found = get_device_properties(device)
    return found.major, found.minor


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one GPU reaches another's memory."""
    return bool(_library().cuda.runtime.deviceCanAccessPeer(_index(device), _index(peer_device)))


def get_arch_list() -> list[str]:
    """Empty: no kernels are compiled ahead."""
    return []


def synchronize(device: Any = None) -> None:
    """Wait for the GPU's work.  RuntimeError without one."""
    _library().cuda.Device(_index(device)).synchronize()


def empty_cache() -> None:
    """Give cached memory back to the GPU; nothing before one is used."""
    if is_initialized():
        _library().get_default_memory_pool().free_all_blocks()


def ipc_collect() -> None:
    """Nothing: memory is not shared between processes."""


def memory_allocated(device: Any = None) -> int:
    """Bytes in tensors on the GPU; 0 before one is used."""
    return int(_library().get_default_memory_pool().used_bytes()) if is_initialized() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes held from the GPU; 0 before one is used."""
    return int(_library().get_default_memory_pool().total_bytes()) if is_initialized() else 0


max_memory_allocated = memory_allocated
max_memory_reserved = max_memory_cached = memory_cached = memory_reserved


def memory_stats(device: Any = None) -> dict[str, int]:
    """The two numbers that are known."""
    return {"allocated_bytes.all.current": memory_allocated(), "reserved_bytes.all.current": memory_reserved()}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """`memory_stats` as text."""
    return "\n".join(f"{name}: {value}" for name, value in memory_stats(device).items())


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes.  RuntimeError without a GPU."""
    cupy = _library()
    with cupy.cuda.Device(_index(device)):
        free, total = cupy.cuda.runtime.memGetInfo()
    return int(free), int(total)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing: peaks are not kept."""


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limit the memory of this process.  RuntimeError without a GPU."""
    _library().get_default_memory_pool().set_limit(fraction=fraction)


def utilization(device: Any = None) -> int:
    """NotImplementedError: needs NVML."""
    raise NotImplementedError("torch.cuda.utilization is not supported: it needs NVML; run nvidia-smi instead")


def temperature(device: Any = None) -> int:
    """NotImplementedError: needs NVML."""
    raise NotImplementedError("torch.cuda.temperature is not supported: it needs NVML; run nvidia-smi instead")


# One generator of numbers serves every device: see engine.random.  Without a GPU these do nothing, as in torch.


def _random() -> Any:
    return _importlib.import_module("engine.random")


def manual_seed(seed: int) -> None:
    """Start the GPU's generator anew; nothing without a GPU."""
    if is_available():
        _random().manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Start the GPU's generator from a random number; nothing without a GPU."""
    if is_available():
        _random().seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the GPU's generator."""
    return _random().initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of the generator.  RuntimeError without a GPU."""
    _library()
    return _random().get_rng_state()


def get_rng_state_all() -> list:
    """The states of all GPUs' generators; empty without a GPU."""
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the state of the generator.  RuntimeError without a GPU."""
    _library()
    _random().set_rng_state(new_state)


def set_rng_state_all(new_states: Any) -> None:
    """Set the states of all GPUs' generators."""
    for state in new_states:
        set_rng_state(state)


class Stream:
    """A queue of work on the GPU.  RuntimeError without one."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self._stream = kwargs.get("_stream") or _library().cuda.Stream(non_blocking=True)

    @property
    def cuda_stream(self) -> int:
        """The handle, as an integer."""
        return int(self._stream.ptr)

    def synchronize(self) -> None:
        """Wait for its work."""
        self._stream.synchronize()

    def query(self) -> bool:
        """Whether its work is done."""
        return bool(self._stream.done)

    def wait_event(self, event: Event) -> None:
        """Let later work wait for an event."""
        self._stream.wait_event(event._event)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work wait for the work that another stream has now."""
        self._stream.wait_event(stream._stream.record())

    def record_event(self, event: Event | None = None) -> Event:
        """Mark this point; the event."""
        event = event or Event()
        event.record(self)
        return event


class Event:
    """A mark in a stream.  RuntimeError without a GPU."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._event = _library().cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the present end of a stream (the current one)."""
        self._event.record(*(() if stream is None else (stream._stream,)))

    def synchronize(self) -> None:
        """Wait for the mark."""
        self._event.synchronize()

    def query(self) -> bool:
        """Whether the mark was reached."""
        return bool(self._event.done)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another."""
        return float(_library().cuda.get_elapsed_time(self._event, end_event._event))


def current_stream(device: Any = None) -> Stream:
    """The stream in use.  RuntimeError without a GPU."""
    return Stream(_stream=_library().cuda.get_current_stream())


def default_stream(device: Any = None) -> Stream:
    """The stream used where none is chosen.  RuntimeError without a GPU."""
    return Stream(_stream=_library().cuda.Stream.null)


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """A context in which work goes to a stream; None changes nothing."""
    if stream is None:
        yield
    else:
        with stream._stream:
            yield


StreamContext = stream


def is_current_stream_capturing() -> bool:
    """False: nothing is captured into graphs."""
    return False


class CUDAGraph:
    """NotImplementedError when it is made: kernels are launched one by one."""

    def __init__(self, keep_graph: bool = False) -> None:
        raise NotImplementedError("torch.cuda.CUDAGraph is not supported: kernels are launched one by one")


class graph:
    """NotImplementedError: see `CUDAGraph`."""

    def __init__(self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, **_: Any) -> None:
        raise NotImplementedError("torch.cuda.graph is not supported: kernels are launched one by one")
