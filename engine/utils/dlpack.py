"""DLPack: memory shared with other array libraries (https://dmlc.github.io/dlpack/latest/)."""

from __future__ import annotations

import ctypes
import enum
from typing import Any

import numpy as np

from engine import dispatch
from engine.tensor import Tensor, wrap

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(enum.IntEnum):
    """The device types of DLPack."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of the tensor's memory, for one `from_dlpack`.  BufferError for a tensor that requires grad."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_dlpack(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    return tensor.__dlpack__()


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Plain(ctypes.Structure):
    """The start of a DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device", _Device)]


class _Versioned(ctypes.Structure):
    """The start of a DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device", _Device),
    ]


def _device_of(capsule: Any) -> tuple[int, int]:
    """(type, number) of the device that holds a capsule's memory.  RuntimeError for a used or foreign capsule."""
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    layouts: tuple[tuple[bytes, Any], ...] = ((b"dltensor", _Plain), (b"dltensor_versioned", _Versioned))
    for name, layout in layouts:
        if api.PyCapsule_IsValid(capsule, name):
            device = layout.from_address(api.PyCapsule_GetPointer(capsule, name)).device
            return device.type, device.id
    raise RuntimeError(
        "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might "
        "have already constructed a tensor from it once."
    )


class _Exporter:
    """A capsule as an object of the newer protocol."""

    def __init__(self, capsule: Any) -> None:
        self.capsule, self.device = capsule, _device_of(capsule)

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A Tensor that shares the memory of `ext_tensor`: an object with `__dlpack__`, or a capsule (used up by this).

    -> the other side's shape, dtype and strides.  RuntimeError for a capsule that was used already.
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        if type(ext_tensor).__name__ != "PyCapsule":
            raise TypeError(f"from_dlpack(): expected a DLPack capsule or exporter, got {type(ext_tensor).__name__}")
        ext_tensor = _Exporter(ext_tensor)
        return wrap(_writable(dispatch.PUBLIC["from_dlpack"](ext_tensor)._array))
    return dispatch.PUBLIC["from_dlpack"](ext_tensor)  # type: ignore[no-any-return]


class _Memory:
    """The memory of an array, for an array over it that may be written to."""

    def __init__(self, array: Any) -> None:
        self.owner = array
        self.__array_interface__ = {**array.__array_interface__, "strides": array.strides}
        self.__array_interface__["data"] = (array.__array_interface__["data"][0], False)


def _writable(array: Any) -> Any:
    """numpy takes capsules of the first protocol, which cannot say so, for read-only."""
    if type(array) is not np.ndarray or array.flags.writeable:
        return array
    return np.asarray(_Memory(array))
