"""Array modules: numpy on the CPU, CuPy on CUDA (`backends/cuda`), a stand-in in tests.

The names of torch.backends (`cudnn`, `mps`, ...) are served from here too, at first use.
A `Backend` answers for one array class: its module `xp`, its device, and copies to and from the host.
"""

from __future__ import annotations

import functools
import importlib as _importlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cpu.allocator import Lease
from engine.core.device import CPU, device
from engine.core.layouts import ChannelsLast, adopted
from engine.core.slots import Keyed

# torch.backends' attributes: light modules of settings
_SETTINGS = frozenset(["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum", "quantized"])

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backends import cpu as cpu
    from engine.backends import cuda as cuda
    from engine.backends import cudnn as cudnn
    from engine.backends import mkl as mkl
    from engine.backends import mkldnn as mkldnn
    from engine.backends import mps as mps
    from engine.backends import openmp as openmp
    from engine.backends import opt_einsum as opt_einsum
    from engine.backends import quantized as quantized
    from engine.backends.routes import calibrate as calibrate
    from engine.core.arrays import Array, ArrayModule
    from engine.dispatch.record import Kernel, Op
else:

    def __getattr__(name: str) -> Any:
        if name in _SETTINGS:
            return _importlib.import_module(f"engine.backends.{name}")
        if name == "calibrate":
            return _importlib.import_module("engine.backends.routes").calibrate
        raise AttributeError(f"module 'torch.backends' has no attribute '{name}'")


class Backend:
    """One array module.  `array_type` is the class of its arrays, `xp` the module handed to kernels."""

    def __init__(self, kind: str, xp: Any, array_type: type) -> None:
        self.kind, self.xp, self.array_type = kind, xp, array_type

    def device_of(self, array: Any) -> device:
        """The device that holds `array`."""
        return CPU

    def from_host(self, array: np.ndarray, where: device, non_blocking: bool = False) -> Any:
        """A copy of a host array on `where`; not blocking: from pinned memory it may still be under way."""
        return np.array(array)

    def to_host(self, array: Any, non_blocking: bool = False) -> np.ndarray:
        """The array as numpy's, sharing memory when it is the host's already; not blocking: maybe still under way."""
        return array

    def to_host_array(self, array: Any, out: np.ndarray, non_blocking: bool = False) -> bool:
        """Write an array to one on the host without another in between; False, and nothing done, where `out` is of
        another shape, type or layout."""
        return False

    def item(self, array: Any) -> Any:
        """The one element of an array as a Python number."""
        return self.to_host(array).item()

    def check_type(self, dtype: np.dtype) -> None:
        """Raise RuntimeError for a type that this backend's library lacks."""

    def xp_at(self, array: Any) -> ArrayModule:
        """The array module whose new arrays are on the device of `array`."""
        return self.xp

    def current(self) -> device:
        """The device of arrays that are made without naming one."""
        return CPU

    def between(self, array: Any, where: device) -> Any:
        """A copy of an array of this backend on another device of its kind."""
        return self.from_host(self.to_host(array), where)

    def inside(self, where: device) -> Any:
        """A context in which `xp` makes arrays on `where`."""
        return nullcontext()

    def is_pinned(self, array: Any) -> bool:
        """Return whether a host array is in memory that this backend has page-locked."""
        return False

    def kernel(self, function: Any) -> Any:
        """A kernel of an op, with what calls on this backend need round it."""
        return function

    def kernel_of(self, record: Op) -> Kernel:
        """The kernel of an op (`dispatch.Op`) as it is called on this backend."""
        return self.kernel(record.choose(self.kind))

    def pointer(self, array: Any) -> int:
        """The address of the array's first element."""
        return array.__array_interface__["data"][0]


host = Backend("cpu", np, np.ndarray)

_by_type: Keyed[type, Backend] = Keyed({np.ndarray: host, ChannelsLast: host})
_makers: Keyed[str, Callable[[], Backend]] = Keyed()  # of a kind of device: the backend, at its first use
_by_kind: dict[str, Backend] = {"cpu": host}
_HOSTS = len(_by_type)


def register(backend: Backend) -> None:
    """Make a backend known by its array class and its device kind."""
    _by_type[backend.array_type] = backend
    _by_kind[backend.kind] = backend


def unregister(backend: Backend) -> None:
    """Forget a backend (tests)."""
    _by_type.pop(backend.array_type, None)
    _by_kind.pop(backend.kind, None)


def of_array(array: Any) -> Backend:
    """The backend that owns `array`."""
    found = _by_type.get(type(array))
    if found is None:
        for kind, backend in _by_type.items():
            if isinstance(array, kind):
                return backend
        raise TypeError(f"no array backend for {type(array).__name__}")
    return found


def known(value: Any) -> Backend | None:
    """The backend whose arrays are of exactly this class; None for anything else."""
    return _by_type.get(value.__class__)


def is_array(value: Any) -> bool:
    """Return whether `value` is an array of a known backend."""
    return type(value) in _by_type


def of_device(where: device) -> Backend:
    """The backend of a device.  Raises RuntimeError when this machine or build has none."""
    found = _by_kind.get(where.type)
    if found is None:
        make = _makers.get(where.type)
        if make is None:
            raise RuntimeError(f"device '{where}' is not supported")
        found = make()
        register(found)
    return found


def owns(array: Any) -> bool:
    """Return whether `array` is no view: its memory is its own, or a block of the cache that began with it."""
    base = array.base
    return (not adopted or id(array) not in adopted) if base is None else base.__class__ is Lease


def beside(array: Any) -> Any:
    """A context in which work on `array` is right: its GPU is the current one."""
    backend = of_array(array)
    return nullcontext() if backend is host else backend.inside(backend.device_of(array))


def follows(function: Any) -> Any:
    """A function of Tensors and arrays that works on arrays itself (the kernels of ops need no such thing): while it
    runs, the GPU of its first operand is the current one."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if len(_by_type) <= _HOSTS:  # numpy's classes alone: nothing to follow
            return function(*args, **kwargs)
        arrays = [getattr(a, "_array", a) for a in (*args, *kwargs.values())]
        arrays = [a for a in arrays if is_array(a) and not isinstance(a, np.ndarray)]
        if not arrays:
            return function(*args, **kwargs)
        where = list(dict.fromkeys([str(of_array(a).device_of(a)) for a in arrays]))
        if len(where) > 1:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {where[0]} and "
                f"{where[1]}!"
            )
        with beside(arrays[0]):
            return function(*args, **kwargs)

    return guarded


def cast(array: Array, dtype: Any) -> Array:
    """`array.astype(dtype)` where the array is."""
    if isinstance(array, np.ndarray):
        return array.astype(dtype)
    if backend := known(array):
        backend.check_type(np.dtype(dtype))
    with beside(array):
        return array.astype(dtype)


def registered() -> list[Backend]:
    """Every backend known so far."""
    return list(_by_type.values())


def is_pinned(array: Any) -> bool:
    """Return whether a host array is in page-locked memory of a backend's."""
    return any(backend.is_pinned(array) for backend in set(_by_type.values()))


def xp_of(array: Any) -> ArrayModule:
    """The array module of `array`; what it makes is on the device of `array`."""
    return (_by_type.get(array.__class__) or of_array(array)).xp_at(array)
