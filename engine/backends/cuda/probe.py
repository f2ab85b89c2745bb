"""The GPUs of the machine, found without starting CUDA: NVML by ctypes, which leaves the process free to fork.

`cuInit` in a parent makes CUDA unusable in children that fork, and takes a second on a large machine, so "is there a
GPU?" is asked of NVML, the library behind nvidia-smi.  Where a container has the driver but not NVML, the folder
/proc/driver/nvidia/gpus answers.  CUDA_VISIBLE_DEVICES is read at each question, as the driver reads it at its start.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Driver", "cards", "device_count", "driver", "sensor", "visible"]

_PROC = Path("/proc/driver/nvidia/gpus")
_TEMPERATURE_OF_GPU = 0


@dataclass(frozen=True)
class Driver:
    """The driver's version ("580.65.06"), the newest CUDA it serves ((13, 0)), and the cards' names by number."""

    version: str
    cuda: tuple[int, int]
    names: tuple[str, ...]


@functools.cache
def _nvml() -> Any:
    """NVML, started; None where there is none."""
    name = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
    try:
        library = ctypes.CDLL(name)
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def _handle(library: Any, index: int) -> Any:
    handle = ctypes.c_void_p()
    return handle if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0 else None


def _text(call: Any, *args: Any) -> str:
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode("utf-8", "replace") if call(*args, buffer, 96) == 0 else ""


def driver() -> Driver | None:
    """Return the driver's version, its CUDA version and the names of the cards from NVML; None without it."""
    library = _nvml()
    if library is None:
        return None
    number = ctypes.c_int()
    library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number))
    cuda = (number.value // 1000, number.value % 1000 // 10)
    names = tuple(_text(library.nvmlDeviceGetName, _handle(library, i)) for i in range(cards()))
    return Driver(_text(library.nvmlSystemGetDriverVersion), cuda, names)


def cards() -> int:
    """The number of cards of the machine, visible or not."""
    library = _nvml()
    if library is not None:
        count = ctypes.c_uint()
        return count.value if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else 0
    try:
        return sum(1 for _ in _PROC.iterdir())
    except OSError:
        return 0


def visible(setting: str | None = None) -> list[int] | None:
    """The numbers of the cards that CUDA_VISIBLE_DEVICES lets through, in its order; None if it is not set.

    As the driver reads it: the list ends at the first entry that names no card, and a card named twice makes it empty.
    """
    text = os.environ.get("CUDA_VISIBLE_DEVICES") if setting is None else setting
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        part = part.strip()
        index = int(part) if part.isdigit() else _by_uuid(part)
        if index is None or index >= cards():
            break
        if index in found:
            return []
        found.append(index)
    return found


def _by_uuid(prefix: str) -> int | None:
    library = _nvml()
    if library is None or not prefix.startswith(("GPU-", "MIG-")):
        return None
    fitting = [i for i in range(cards()) if _text(library.nvmlDeviceGetUUID, _handle(library, i)).startswith(prefix)]
    return fitting[0] if len(fitting) == 1 else None


def device_count() -> int:
    """The number of cards that this process may use; 0 without a driver."""
    chosen = visible()
    return cards() if chosen is None else len(chosen)


def sensor(what: str, index: int) -> int:
    """`utilization` (percent), `memory` (percent of time it was used), `temperature` (Celsius) or `power` (mW) of a
    visible card.  RuntimeError where NVML cannot tell.
    """
    library = _nvml()
    chosen = visible()
    number = index if chosen is None or not 0 <= index < len(chosen) else chosen[index]
    handle = None if library is None else _handle(library, number)
    value = (ctypes.c_uint * 2)()
    if handle is not None:
        if what in ("utilization", "memory"):
            status = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(value))
        elif what == "temperature":
            status = library.nvmlDeviceGetTemperature(handle, _TEMPERATURE_OF_GPU, ctypes.byref(value))
        else:
            status = library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(value))
        if status == 0:
            return int(value[1 if what == "memory" else 0])
    raise RuntimeError(f"NVML does not tell the {what} of cuda:{index}; nvidia-smi shows what the driver knows")
