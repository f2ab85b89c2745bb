"""torch.cuda's names: questions are answered, and what needs a GPU raises one sentence where there is none.

The GPU itself is reached through `engine.backends.cuda`; this module imports no CUDA library.
"""

from __future__ import annotations

import importlib as _importlib
import importlib.util as _importlib_util
from typing import TYPE_CHECKING, Any

from engine.backends import cuda as _cuda
from engine.backends.cuda.errors import AcceleratorError as CudaError  # noqa: F401
from engine.backends.cuda.errors import OutOfMemoryError as OutOfMemoryError
from engine.core import dtypes
from engine.core.device import device as _torch_device
from engine.cuda._device import current_device as current_device
from engine.cuda._device import index_of as _index
from engine.cuda._device import initialized as is_initialized
from engine.cuda._device import library as _library
from engine.cuda._device import runtime as _runtime
from engine.cuda.graphs import CUDAGraph as CUDAGraph
from engine.cuda.graphs import graph as graph
from engine.cuda.graphs import graph_pool_handle as graph_pool_handle
from engine.cuda.graphs import is_current_stream_capturing as is_current_stream_capturing
from engine.cuda.graphs import make_graphed_callables as make_graphed_callables
from engine.cuda.memory import empty_cache as empty_cache
from engine.cuda.memory import get_per_process_memory_fraction as get_per_process_memory_fraction
from engine.cuda.memory import max_memory_allocated as max_memory_allocated
from engine.cuda.memory import max_memory_cached as max_memory_cached
from engine.cuda.memory import max_memory_reserved as max_memory_reserved
from engine.cuda.memory import mem_get_info as mem_get_info
from engine.cuda.memory import memory_allocated as memory_allocated
from engine.cuda.memory import memory_cached as memory_cached
from engine.cuda.memory import memory_reserved as memory_reserved
from engine.cuda.memory import memory_stats as memory_stats
from engine.cuda.memory import memory_summary as memory_summary
from engine.cuda.memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from engine.cuda.memory import reset_max_memory_allocated as reset_max_memory_allocated
from engine.cuda.memory import reset_max_memory_cached as reset_max_memory_cached
from engine.cuda.memory import reset_peak_memory_stats as reset_peak_memory_stats
from engine.cuda.memory import set_per_process_memory_fraction as set_per_process_memory_fraction
from engine.cuda.random import get_rng_state as get_rng_state
from engine.cuda.random import get_rng_state_all as get_rng_state_all
from engine.cuda.random import initial_seed as initial_seed
from engine.cuda.random import manual_seed as manual_seed
from engine.cuda.random import manual_seed_all as manual_seed_all
from engine.cuda.random import seed as seed
from engine.cuda.random import seed_all as seed_all
from engine.cuda.random import set_rng_state as set_rng_state
from engine.cuda.random import set_rng_state_all as set_rng_state_all
from engine.cuda.streams import Event as Event
from engine.cuda.streams import ExternalStream as ExternalStream
from engine.cuda.streams import Stream as Stream
from engine.cuda.streams import StreamContext as StreamContext
from engine.cuda.streams import current_stream as current_stream
from engine.cuda.streams import default_stream as default_stream
from engine.cuda.streams import set_stream as set_stream
from engine.cuda.streams import stream as stream
from engine.tensor import Tensor as _Tensor
from engine.tensor import _legacy_new

__all__ = [
    "CUDAGraph",
    "Event",
    "ExternalStream",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "graph",
    "graph_pool_handle",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "memory_usage",
    "power_draw",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "temperature",
    "utilization",
]

_MODULES = frozenset(["amp", "comm", "graphs", "memory", "nvtx", "random", "selftest", "streams"])
has_half = has_magma = False
default_generators: tuple = ()


class DeferredCudaCallError(Exception):
    """A deferred CUDA call failed; nothing is deferred here."""


if TYPE_CHECKING:
    from engine.cuda import amp as amp
    from engine.cuda import comm as comm
    from engine.cuda import nvtx as nvtx

    _initialized: bool
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
        if name == "_initialized":
            return is_initialized()
        if name in _TENSORS:
            return type(name, (_Tensor,), {"__new__": _no_tensor, "__doc__": "A tensor on the GPU."})
        if name.removesuffix("Storage") in _STORAGES:
            return type(name, (), {"__new__": _no_storage, "__doc__": "A storage on the GPU.", "is_cuda": True})
        raise AttributeError(f"module 'torch.cuda' has no attribute '{name}'")


_TENSORS = frozenset(
    f"{kind}Tensor" for kind in ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]
)


_STORAGES = frozenset("BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short".split())


def _no_storage(cls: type, *data: Any, **kwargs: Any) -> Any:
    raise TypeError(f"torch.cuda.{cls.__name__}: make a tensor on the GPU and take its untyped_storage()")


def _no_tensor(cls: type, *data: Any, device: Any = None) -> Any:
    dtype = getattr(dtypes, cls.__name__[:-6].lower())
    return _legacy_new(_Tensor, dtype, data, "cuda" if device is None else device)


def is_available() -> bool:
    """Return whether tensors can be on a GPU: CuPy is installed and finds one."""
    return _cuda.device_count() > 0


def device_count() -> int:
    """The number of GPUs that can be used; 0 without CuPy or a card."""
    return _cuda.device_count()


def init() -> None:
    """Start CUDA.  RuntimeError where there is none."""
    _library()


# names that published code uses though they are torch's own affair
_lazy_init = init


def _is_compiled() -> bool:
    """Return whether this build knows CUDA: whether CuPy is installed."""
    return _importlib_util.find_spec("cupy") is not None


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked from one that used a GPU, which CUDA does not survive."""
    return is_initialized() and bool(_importlib.import_module("engine.backends.cuda.runtime").state.forked)


def _lazy_call(callable: Any, **kwargs: Any) -> None:
    """Call it when a GPU is used: now, if one was; without one it never is."""
    if is_available():
        callable()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a GPU; -1 for the CPU where that is allowed, the current one for None where that is."""
    if device is None and not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    if allow_cpu and not isinstance(device, int) and device is not None and _torch_device(device).type == "cpu":
        return -1
    return _index(device)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the GPU computes in bfloat16; older ones emulate it.  False without a GPU."""
    if not is_available():
        return False
    return including_emulation or get_device_capability()[0] >= 8


def set_device(device: Any) -> None:
    """Make a GPU the current one; a negative number is ignored, as in torch."""
    if isinstance(device, int) and device < 0:
        return
    _library().cuda.runtime.setDevice(_index(device))


class device:
    """A context in which a GPU is the current one; a negative number or None changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None or (isinstance(device, int) and device < 0) else _index(device)
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
    """The properties of a GPU, under torch's names."""

    def __init__(self, found: dict[str, Any]) -> None:
        name = found["name"]
        self.name = name.decode() if isinstance(name, bytes) else name
        self.total_memory = found["totalGlobalMem"]
        self.major, self.minor = found["major"], found["minor"]
        self.multi_processor_count = found["multiProcessorCount"]
        self.warp_size = found["warpSize"]
        self.max_threads_per_multi_processor = found["maxThreadsPerMultiProcessor"]
        self.regs_per_multiprocessor = found["regsPerMultiprocessor"]
        self.shared_memory_per_block = found["sharedMemPerBlock"]
        self.L2_cache_size = found["l2CacheSize"]
        self.is_integrated = found["integrated"]
        self.is_multi_gpu_board = found["isMultiGpuBoard"]

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 1024**2}MB, multi_processor_count={self.multi_processor_count}, "
            f"L2_cache_size={self.L2_cache_size // 1024**2}MB)"
        )


def get_device_properties(device: Any = None) -> Any:
    """`name`, `total_memory`, `major`, `minor`, `multi_processor_count`, ....  RuntimeError without a GPU."""
    return _Properties(_library().cuda.runtime.getDeviceProperties(_index(device)))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(major, minor).  RuntimeError without a GPU."""
    found = get_device_properties(device)
    return found.major, found.minor


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Return whether one GPU reaches another's memory."""
    return bool(_library().cuda.runtime.deviceCanAccessPeer(_index(device), _index(peer_device)))


def get_arch_list() -> list[str]:
    """Empty: no kernels are compiled ahead."""
    return []


def synchronize(device: Any = None) -> None:
    """Wait for the GPU's work.  RuntimeError without one."""
    index = _index(device)
    _runtime().refuse_in_capture("torch.cuda.synchronize()")
    _library().cuda.Device(index).synchronize()


def ipc_collect() -> None:
    """Take back memory that was sent to other processes and that they have released; nothing before a GPU is used."""
    if is_initialized():
        for collect in list(_runtime().memory.collectors):
            collect()


def _sensor(what: str, device: Any) -> int:
    from engine.backends.cuda import probe

    return probe.sensor(what, _index(device))


def utilization(device: Any = None) -> int:
    """Percent of the last moments in which the GPU computed.  RuntimeError where NVML does not tell."""
    return _sensor("utilization", device)


def memory_usage(device: Any = None) -> int:
    """Percent of the last moments in which the GPU's memory was used.  RuntimeError where NVML does not tell."""
    return _sensor("memory", device)


def temperature(device: Any = None) -> int:
    """Degrees Celsius of the GPU.  RuntimeError where NVML does not tell."""
    return _sensor("temperature", device)


def power_draw(device: Any = None) -> int:
    """Milliwatts that the GPU takes.  RuntimeError where NVML does not tell."""
    return _sensor("power", device)
