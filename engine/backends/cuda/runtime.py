"""CuPy: the only module that imports it, at the first use of a GPU.

`library()` gives it, started and checked; `use(module)` puts another in its place (the tests' stand-in).  Everything
that the engine asks of a device beside array functions is here: devices, memory and its statistics, pinned host
memory, copies, streams.
"""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.backends.cuda import probe
from engine.backends.cuda.errors import AcceleratorError, out_of_memory
from engine.core.slots import Several

__all__ = ["FORKED", "capturing", "library", "loaded", "memory", "use"]

FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start "
    "method"
)
_SUPPORTED = (14, 15)  # CuPy's versions: from the first on, below the second


class State:
    """The library in use, and what this process knows of the devices."""

    library: Any = None
    stand_in = False
    forked = False
    device_count = 0
    hooked = False
    blas: Any = None  # the stand-in's cublasLt
    cudnn: Any = None  # and its cuDNN
    driver: Any = None  # and its libcuda
    process = 0  # the one that began to use the library
    products: Any = None  # `blaslt.Blas`; None before the first product, False without the library

    def __init__(self) -> None:
        self.verdicts: dict[tuple[str, int], bool] = {}  # by (route, device): `routes.py`
        self.read: dict[Any, bool] = {}  # devices whose stored verdicts are among them


state = State()


def loaded() -> bool:
    """Return whether a GPU has been used in this process."""
    return state.library is not None


def use(module: Any, blas: Any = None, cudnn: Any = None, driver: Any = None) -> None:
    """Let `module` stand for CuPy, `blas` for cuBLAS, `cudnn` for cuDNN, `driver` for libcuda (None: none)."""
    state.library, state.stand_in, state.blas, state.cudnn = None, module is not None, blas, cudnn
    state.forked, state.driver = False, driver
    if module is not None:
        _start(module)
    else:
        state.device_count = 0
        compiling.use(None)


def library() -> Any:
    """CuPy.  RuntimeError in one sentence where it, a driver or a card is missing."""
    found = state.library
    if found is None:
        found = _start(_import())
    elif state.forked:
        raise RuntimeError(FORKED)
    return found


def _import() -> Any:
    if state.forked:
        raise RuntimeError(FORKED)
    _writable_cache()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of two distributions, which `_check_build` names
            import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise RuntimeError(f"CuPy is installed, but {error.name} that it needs is not: {_reinstall()}") from None
        raise RuntimeError(
            "device 'cuda' needs CuPy, which is not installed: pip install 'hubcli[cuda13]' (or cuda12), or use "
            "device='cpu'"
        ) from None
    except Exception as error:  # a library of another CUDA version, a broken installation: whatever its import raises
        first = str(error).strip().partition("\n")[0]
        raise RuntimeError(f"CuPy is installed, but cannot be imported ({first}): {_reinstall()}") from None
    _check_build(cupy)
    return cupy


def _reinstall() -> str:
    return "pip install --force-reinstall 'hubcli[cuda13]' (or cuda12), or use device='cpu'"


def _distributions() -> list[str]:
    from importlib.metadata import distributions

    names = {str(d.metadata["Name"]).lower() for d in distributions()}
    return sorted(n for n in names if n == "cupy" or n.startswith(("cupy-cuda", "cupy-rocm")))


def _check_build(cupy: Any) -> None:
    """Raise where the CuPy that is installed does not fit the engine, the driver or the machine."""
    several = _distributions()
    if len(several) > 1:
        raise RuntimeError(
            f"{' and '.join(several)} are installed together and break each other: pip uninstall all but the one for "
            "your driver"
        )
    try:
        major = int(cupy.__version__.partition(".")[0])
    except ValueError:
        major = 0
    if not _SUPPORTED[0] <= major < _SUPPORTED[1]:
        raise RuntimeError(
            f"CuPy {cupy.__version__} is installed, and the engine needs {_SUPPORTED[0]}: pip install 'hubcli[cuda13]' "
            "(or cuda12)"
        )
    driver = int(cupy.cuda.runtime.driverGetVersion())
    if not driver:
        raise RuntimeError(
            "device 'cuda' is not available: CuPy is installed, but this machine has no NVIDIA driver; install one or "
            "use device='cpu'"
        )
    built = int(cupy.cuda.runtime.runtimeGetVersion())
    if driver // 1000 < built // 1000:
        raise RuntimeError(
            f"the NVIDIA driver serves CUDA {driver // 1000}.{driver % 1000 // 10}, and the CuPy that is installed is "
            f"built for CUDA {built // 1000}: update the driver, or pip install 'hubcli[cuda{driver // 1000}]'"
        )
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        raise RuntimeError(
            f"device 'cuda' is not available: {str(error).partition(chr(10))[0]}; check nvidia-smi, or use device='cpu'"
        ) from None
    if not count:
        setting = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "no NVIDIA GPU was found" if setting is None else f"CUDA_VISIBLE_DEVICES={setting!r} lets no GPU through"
        raise RuntimeError(f"device 'cuda' is not available: {why}; use device='cpu'")


def _writable_cache() -> None:
    """Let CuPy cache its kernels in memory, with one warning, where its cache folder cannot be written."""
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
        warnings.warn(
            f"compiled kernels are not stored: the folder {folder} cannot be written ({error.strerror or error}); set "
            "CUPY_CACHE_DIR to one that can",
            RuntimeWarning,
            stacklevel=2,
        )


def _start(module: Any) -> Any:
    state.library, state.process = module, os.getpid()
    state.verdicts, state.read, state.products = {}, {}, None
    state.device_count = int(module.cuda.runtime.getDeviceCount())
    memory.begin(module)
    compiling.use(DeviceBuilder())
    if not state.hooked:
        state.hooked = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork)
    return module


def _after_fork() -> None:
    state.forked = state.library is not None and not state.stand_in


# --- devices


def device_count() -> int:
    """The number of GPUs that can be used, without starting CUDA; 0 without CuPy, a driver or a card."""
    if state.library is not None:
        return state.device_count
    from importlib.util import find_spec

    return probe.device_count() if find_spec("cupy") is not None else 0


def check_device(index: int) -> int:
    """`index`; AcceleratorError where no such GPU exists."""
    if not 0 <= index < state.device_count:
        have = "cuda:0 is the only one" if state.device_count == 1 else f"there are {state.device_count} of them"
        raise AcceleratorError(f"CUDA error: invalid device ordinal: cuda:{index} does not exist, {have}")
    return index


@contextlib.contextmanager
def on_device(index: int | None) -> Iterator[None]:
    """A context in which a GPU is the current one; None: the current one."""
    here = library().cuda.runtime
    before = here.getDevice()
    if index is None or index == before:
        yield
        return
    here.setDevice(check_device(index))
    try:
        yield
    finally:
        here.setDevice(before)


def on_operands_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(xp, *arrays and arguments)` on the device of its arrays, which is one.  RuntimeError otherwise."""
    array_type = library().ndarray
    here = library().cuda.runtime

    def kernel(xp: Any, *args: Any, **kwargs: Any) -> Any:
        index: int | None = None
        for a in _operands(args, kwargs):
            if isinstance(a, array_type):
                found = a.data.device_id
                if index is None:
                    index = found
                elif found != index:
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two devices, "
                        f"cuda:{index} and cuda:{found}!"
                    )
        before = here.getDevice()
        if index is None or index == before:
            return function(xp, *args, **kwargs)
        here.setDevice(index)
        try:
            return function(xp, *args, **kwargs)
        finally:
            here.setDevice(before)

    kernel.route = getattr(function, "route", None)  # type: ignore[attr-defined]
    return kernel


def _operands(args: tuple, kwargs: dict[str, Any]) -> Iterator[Any]:
    for a in (*args, *kwargs.values()):
        if isinstance(a, list | tuple):
            yield from a
        else:
            yield a


def capturing() -> bool:
    """Return whether the current stream records a graph."""
    return state.library is not None and bool(state.library.cuda.get_current_stream().is_capturing())


class DeviceModule:
    """A compiled source on the device: see `compile.module`."""

    def __init__(self, source: str, options: tuple[str, ...], name: str) -> None:
        self._module = library().RawModule(code=source, options=("--std=c++17", *options))

    def function(self, name: str) -> Callable[..., None]:
        """The kernel of that name.  Raises KeyError without one, CompileError where NVRTC refuses it."""
        try:
            kernel = self._module.get_function(name)
            function = kernel.kernel  # loaded on the current device; a call of it costs less than one of `kernel`
        except Exception as error:
            if "not found" in str(error).lower():
                raise KeyError(name) from None
            raise compiling.CompileError(f"NVRTC refused {name}: {error}") from error
        if state.device_count == 1:
            return function  # type: ignore[no-any-return]
        here = library().cuda.runtime
        loaded = {int(here.getDevice()): function}

        def call(grid: tuple, block: tuple, args: Any, shared_mem: int = 0) -> None:
            index = here.getDevice()
            found = loaded.get(index)
            if found is None:
                found = loaded[index] = kernel.kernel
            found(grid, block, args, shared_mem)

        return call


class DeviceBuilder:
    """Builds kernels for the device by NVRTC, through CuPy, which caches them on disk."""

    def module(self, source: str, options: tuple[str, ...], name: str) -> DeviceModule:
        """Compile a source."""
        return DeviceModule(source, options, name)


# --- memory


class Counters:
    """The allocation statistics of one device."""

    def __init__(self) -> None:
        self.allocations = self.bytes = self.peak = self.peak_held = self.failures = 0


class Recording:
    """The state of a captured graph beside its kernels: workspaces of libraries; by generator what it draws (its seed
    and first block in memory, blocks); what the host does before each replay."""

    def __init__(self) -> None:
        self.spaces: dict[Any, Any] = {}
        self.drawn: dict[Any, list[Any]] = {}
        self.before: list[Callable[[], Callable[[], None]]] = []  # each returns what undoes it
        self.steps: list[tuple[int, Callable[[tuple], None]]] = []  # of the optimizer that is recorded just now


class DeviceMemory:
    """The allocator of CuPy's arrays: its pool, or that of the graph being captured; counts; torch's sentence."""

    def __init__(self) -> None:
        self.counters: dict[int, Counters] = {}
        self.own = threading.local()
        self.spaces: dict[Any, Any] = {}
        self.collectors: Several[Callable[[], object]] = Several()  # called before memory is given up for lost

    def begin(self, module: Any) -> None:
        """Take over the allocations of a library."""
        self.counters.clear()
        self.spaces.clear()
        self.pool = module.get_default_memory_pool()
        module.cuda.set_allocator(self.allocate)

    def at(self, index: int) -> Counters:
        """The counts of a device."""
        found = self.counters.get(index)
        if found is None:
            found = self.counters[index] = Counters()
        return found

    def allocate(self, size: int) -> Any:
        """`size` bytes of the current device.  OutOfMemoryError in torch's words."""
        pool = getattr(self.own, "pool", None) or self.pool
        index = state.library.cuda.runtime.getDevice()
        counters = self.at(index)
        try:
            found = pool.malloc(size)
        except MemoryError:
            for collect in self.collectors:
                collect()
            gc.collect()
            try:
                found = pool.malloc(size)
            except MemoryError:
                counters.failures += 1
                free, total = state.library.cuda.runtime.memGetInfo()
                raise out_of_memory(
                    size, index, total, free, self.pool.used_bytes(), self.pool.total_bytes(), self.pool.get_limit()
                ) from None
        counters.allocations += 1
        counters.bytes += size
        used = self.pool.used_bytes()
        if used > counters.peak:
            counters.peak = used
            counters.peak_held = max(counters.peak_held, self.pool.total_bytes())
        return found

    @contextlib.contextmanager
    def private(self, pool: Any, held: list[Any]) -> Iterator[None]:
        """A context in which this thread allocates from a pool of its own; `held` gets what must live as long."""
        before = [getattr(self.own, name, None) for name in ("pool", "held", "recording")]
        self.own.pool, self.own.held, self.own.recording = pool, held, Recording()
        held.append(self.own.recording)
        try:
            yield
        finally:
            self.own.pool, self.own.held, self.own.recording = before

    def recording(self) -> Recording | None:
        """Return the state of the graph that this thread captures; None outside of a capture."""
        return getattr(self.own, "recording", None)

    def workspaces(self) -> dict[Any, Any]:
        """Workspaces of libraries by whatever names them; those of a graph that is captured are the graph's own."""
        own = self.recording()
        return self.spaces if own is None else own.spaces

    def hold(self, array: Any) -> None:
        """Keep an array as long as the pool of the graph that is being captured."""
        held = getattr(self.own, "held", None)
        if held is not None:
            held.append(array)

    def statistics(self, index: int | None = None) -> dict[str, int]:
        """torch's names of what is known, in bytes and calls."""
        with on_device(index):
            counters = self.at(state.library.cuda.runtime.getDevice())
            used, held = int(self.pool.used_bytes()), int(self.pool.total_bytes())
        return {
            "active_bytes.all.current": used,
            "active_bytes.all.peak": max(counters.peak, used),
            "allocated_bytes.all.allocated": counters.bytes,
            "allocated_bytes.all.current": used,
            "allocated_bytes.all.peak": max(counters.peak, used),
            "allocation.all.allocated": counters.allocations,
            "num_ooms": counters.failures,
            "reserved_bytes.all.current": held,
            "reserved_bytes.all.peak": max(counters.peak_held, held),
        }

    def reset_peak(self, index: int | None = None) -> None:
        """Let the peaks begin at what is in use now."""
        with on_device(index):
            counters = self.at(state.library.cuda.runtime.getDevice())
            counters.peak, counters.peak_held = int(self.pool.used_bytes()), int(self.pool.total_bytes())


memory = DeviceMemory()


# --- copies


_pinned_kinds: set[type] = set()  # classes of the library's page-locked blocks, which numpy's arrays have as base


def pinned_like(array: np.ndarray) -> np.ndarray:
    """An array of page-locked memory of the size and type of another, contiguous, not filled."""
    block = library().cuda.alloc_pinned_memory(max(array.nbytes, 1))
    _pinned_kinds.add(type(block))
    return np.frombuffer(block, np.uint8, array.nbytes).view(array.dtype).reshape(array.shape)


def is_pinned(array: Any) -> bool:
    """Return whether an array on the host is in page-locked memory."""
    if not _pinned_kinds:
        return False
    while isinstance(array, np.ndarray):
        array = array.base
    return type(array.obj if isinstance(array, memoryview) else array) in _pinned_kinds


def to_device(array: np.ndarray, index: int | None, non_blocking: bool = False) -> Any:
    """A copy of a host array on a GPU, laid out alike.  From pinned memory it may still be under way."""
    module = library()
    refuse_in_capture("a copy from the host")
    with on_device(index):
        order = _order(array)
        flat = array if order is None else array.transpose(order)
        made = module.empty(flat.shape, flat.dtype)
        if flat.size:
            made.set(np.asarray(flat, order="C").view(np.ndarray))
            if not non_blocking and is_pinned(array):  # other memory has been staged when the call returns
                module.cuda.get_current_stream().synchronize()
        return made if order is None else made.transpose(_inverse(order))


def to_host(array: Any, non_blocking: bool = False) -> np.ndarray:
    """A copy of a device array on the host, laid out alike; if not blocking, in pinned memory and maybe under way."""
    refuse_in_capture("a copy to the host")
    with on_device(array.device.id):
        order = _order(array)
        flat = array if order is None else array.transpose(order)
        if not flat.flags.c_contiguous:
            flat = library().ascontiguousarray(flat)
        if non_blocking:
            made = pinned_like(np.empty(flat.shape, flat.dtype))
            if flat.size:
                flat.get(out=made, blocking=False)
                memory_after(flat)
        else:
            made = flat.get()
        return made if order is None else made.transpose(_inverse(order))


def to_host_array(array: Any, out: np.ndarray, non_blocking: bool = False) -> None:
    """Write a device array to a C-contiguous one on the host, of its shape and type, without a copy in between.

    Not blocking: to pinned memory it may still be under way when the call returns.
    """
    refuse_in_capture("a copy to the host")
    with on_device(array.device.id):
        flat = array if array.flags.c_contiguous else library().ascontiguousarray(array)
        under_way = non_blocking and is_pinned(out)
        flat.get(out=out, blocking=not under_way)
        if under_way:
            memory_after(flat)


def set_stream(stream: Any) -> None:
    """Make a stream of CuPy's the current one of the current GPU, and keep it."""
    stream.use()
    _set.__dict__.setdefault("streams", {})[int(library().cuda.runtime.getDevice())] = stream


_set = threading.local()


@contextlib.contextmanager
def on_stream(stream: Any) -> Iterator[Any]:
    """A context in which work goes to a stream of CuPy's, and after which the one before is current again: left to
    itself CuPy goes back to that of the block outside, and forgets one that was set."""
    before = library().cuda.get_current_stream()
    try:
        with stream:
            yield stream
    finally:
        if library().cuda.get_current_stream().ptr != before.ptr:
            set_stream(before)


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Outside of the graph that the current stream may be recording: a stream that may be waited for, and memory that
    is not the graph's.  Its work is done at the end of the block."""
    if not capturing():
        yield
        return
    with memory.private(None, []), on_stream(library().cuda.Stream(non_blocking=True)) as stream:
        memory.own.recording = None
        yield
        stream.synchronize()


def constant(array: np.ndarray) -> Any:
    """A copy of a host array on the current GPU, also while a graph is captured: not by the graph, retained with it."""
    with aside():
        made = library().asarray(array)
    memory.hold(made)
    return made


def memory_after(array: Any) -> None:
    """Keep an array until the current stream's work of now is done."""
    record_stream(array, library().cuda.get_current_stream())


def _order(array: Any) -> list[int] | None:
    """The dims from the slowest to the fastest of an array that is dense in another order than C's; None for the
    rest."""
    if array.flags.c_contiguous or not array.size:
        return None
    order = sorted(range(array.ndim), key=lambda d: (-array.strides[d], -array.shape[d]))
    step = array.itemsize
    for d in reversed(order):
        if array.shape[d] != 1:
            if array.strides[d] != step:
                return None
            step *= array.shape[d]
    return order


def _inverse(order: list[int]) -> list[int]:
    return [order.index(d) for d in range(len(order))]


def between(array: Any, index: int | None) -> Any:
    """A copy of a device array on another GPU, in the order of both streams."""
    module = library()
    with on_device(array.device.id):
        flat = module.ascontiguousarray(array)
        ready = module.cuda.get_current_stream().record(module.cuda.Event(disable_timing=True))
    with on_device(index):
        here = module.cuda.get_current_stream()
        here.wait_event(ready)
        made = module.empty(flat.shape, flat.dtype)
        if flat.size:
            made.data.copy_from_device_async(flat.data, flat.nbytes)
        record_stream(flat, here)
        return made


# --- arrays used by streams that did not make them


_pending: list[tuple[Any, Any]] = []


def record_stream(array: Any, stream: Any) -> None:
    """Keep the memory of `array` from being used anew until `stream` has done its work of now."""
    event = library().cuda.Event(disable_timing=True)
    event.record(stream)
    _pending[:] = [(a, e) for a, e in _pending if not e.done]
    _pending.append((array, event))


def release_recorded() -> None:
    """Let go of the arrays whose streams are done."""
    _pending[:] = [(a, e) for a, e in _pending if not e.done]


memory.collectors.append(release_recorded)


class StaleGraph(RuntimeError):
    """A captured graph cannot do the step to come; nothing has been done."""


class CaptureError(RuntimeError):
    """Something inside a captured graph needs the host."""


def refuse_in_capture(what: str) -> None:
    """Raise while a graph is captured: `what` needs the host."""
    if capturing():
        raise CaptureError(
            f"CUDA error: operation not permitted when stream is capturing: {what} waits for the GPU, which a graph "
            "cannot; move it out of the captured block"
        )
