"""The stand-in offers CuPy's names and parameters, and CuPy's table is that of the wheel."""

from __future__ import annotations

import inspect
import os
from typing import Any

import pytest

from tests.engine.standin import machine, make_table, module, nccl
from tests.engine.standin.arrays import API, Array
from tests.engine.standin.make_table import CLASSES, TABLE, table, text_of


def own_functions() -> list[tuple[str, Any]]:
    """What the stand-in writes itself, by its name in CuPy."""
    found: list[tuple[str, Any]] = []
    for prefix, holder in (("", module.cupy), ("cuda.", module.cuda), ("cuda.runtime.", module.runtime)):
        for name, value in vars(holder).items():
            if not name.startswith("_") and callable(value) and f"{prefix}{name}" not in CLASSES:
                found.append((prefix + name, value))
    classes: dict[str, Any] = {
        "ndarray": Array,
        "cuda.Stream": machine.Stream,
        "cuda.Event": machine.Event,
        "cuda.Graph": machine.Graph,
        "cuda.Device": module.Device,
        "cuda.MemoryPool": machine.MemoryPool,
        "cuda.MemoryPointer": machine.MemoryPointer,
        "cuda.UnownedMemory": machine.UnownedMemory,
        "cuda.nccl.NcclCommunicator": nccl.NcclCommunicator,
    }
    for name, value in vars(nccl).items():
        if not name.startswith("_") and callable(value) and value.__module__ == nccl.__name__:
            found.append((f"cuda.nccl.{name}", value))
    for where, kind in classes.items():
        for name, value in vars(kind).items():
            if not name.startswith("_") and callable(value):
                found.append((f"{where}.{name}", value))
    return found


# written for the stand-in's own bookkeeping
OWN = {
    "cuda.Stream.merge",
    "cuda.runtime.CUDARuntimeError",
    "ufunc",
    "ndarray",
    "cuda.MemoryPointer.release",
}


@pytest.mark.parametrize(("name", "function"), own_functions(), ids=lambda v: v if isinstance(v, str) else "")
def test_the_stand_in_has_no_name_or_keyword_of_its_own(name: str, function: Any) -> None:
    if name in OWN:
        return
    assert name in API, f"CuPy has no {name}"
    wanted = API[name]
    if isinstance(function, type) or wanted is None or isinstance(wanted, dict):
        return
    mine = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if any(w.startswith("**") for w in wanted):
        return
    assert [p.name for p in mine if p.name not in wanted] == []


def test_unknown_names_and_keywords_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nditer'"):
        _ = module.cupy.nditer
    with pytest.raises(TypeError, match="unexpected keyword argument 'initial'"):
        module.cupy.asarray([1.0]).max(initial=0)
    with pytest.raises(AttributeError, match="ctypes"):
        _ = module.cupy.asarray([1.0]).ctypes
    with pytest.raises(NotImplementedError, match="accumulate"):
        module.cupy.maximum.accumulate(module.cupy.asarray([1.0]))
    with pytest.raises(TypeError, match="no loop"):
        module.cupy.invert(module.cupy.asarray([1.0]))


def test_the_table_is_that_of_the_wheel() -> None:
    """`make test-cuda` installs CuPy, which imports without a GPU; there a missing wheel is a failure."""
    try:
        import cupy
    except ImportError:
        if os.environ.get("REQUIRE_CUPY") == "1":
            raise
        pytest.skip("without CuPy; make test-cuda installs it")
    found = table()
    if found["version"] == "14.2.0":
        assert text_of(found) == TABLE.read_text()
    assert cupy.__version__ == found["version"]
    changed = {n: (e, found["names"].get(n, "absent")) for n, e in API.items() if found["names"].get(n, "absent") != e}
    relied_on = {n: v for n, v in changed.items() if n in RELIED_ON}
    assert not relied_on


def test_the_numbers_of_nccl_are_those_of_the_wheel() -> None:
    pytest.importorskip("cupy", reason="CuPy; make test-cuda installs it", exc_type=ImportError)
    real = make_table.nccl()
    own = {name: value for name, value in vars(nccl).items() if name.startswith("NCCL_")}
    assert own == {name: getattr(real, name) for name in own} and len(own) == 15


# what `engine/backends/cuda` itself calls, beside the array functions of the ops
RELIED_ON = {
    "RawModule", "RawModule.get_function", "asarray", "ascontiguousarray", "cuda.Device", "cuda.Device.synchronize",
    "cuda.Event", "cuda.Event.done", "cuda.Event.record", "cuda.Event.synchronize", "cuda.ExternalStream",
    "cuda.Graph.launch", "cuda.MemoryPointer", "cuda.MemoryPointer.copy_from_device_async", "cuda.MemoryPool",
    "cuda.MemoryPool.free_all_blocks", "cuda.MemoryPool.get_limit", "cuda.MemoryPool.malloc",
    "cuda.MemoryPool.set_limit", "cuda.MemoryPool.total_bytes", "cuda.MemoryPool.used_bytes", "cuda.Stream",
    "cuda.Stream.begin_capture", "cuda.Stream.end_capture", "cuda.Stream.is_capturing", "cuda.Stream.null",
    "cuda.Stream.record", "cuda.Stream.synchronize", "cuda.Stream.use", "cuda.Stream.wait_event",
    "cuda.UnownedMemory", "cuda.nccl.NcclCommunicator", "cuda.nccl.NcclCommunicator.abort",
    "cuda.nccl.NcclCommunicator.check_async_error", "cuda.nccl.NcclCommunicator.destroy",
    "cuda.nccl.NcclCommunicator.allGather", "cuda.nccl.NcclCommunicator.allReduce",
    "cuda.nccl.NcclCommunicator.broadcast", "cuda.nccl.NcclCommunicator.recv", "cuda.nccl.NcclCommunicator.reduce",
    "cuda.nccl.NcclCommunicator.reduceScatter", "cuda.nccl.NcclCommunicator.send", "cuda.nccl.available",
    "cuda.nccl.get_unique_id", "cuda.nccl.groupEnd", "cuda.nccl.groupStart",
    "cuda.alloc_pinned_memory", "cuda.get_current_stream", "cuda.get_elapsed_time",
    "cuda.runtime.deviceCanAccessPeer", "cuda.runtime.driverGetVersion", "cuda.runtime.getDevice",
    "cuda.runtime.getDeviceCount", "cuda.runtime.getDeviceProperties", "cuda.runtime.eventDestroy",
    "cuda.runtime.eventSynchronize", "cuda.runtime.ipcCloseMemHandle", "cuda.runtime.ipcGetEventHandle",
    "cuda.runtime.ipcGetMemHandle", "cuda.runtime.ipcOpenEventHandle", "cuda.runtime.ipcOpenMemHandle",
    "cuda.runtime.memGetInfo", "cuda.runtime.runtimeGetVersion", "cuda.runtime.streamWaitEvent",
    "cuda.runtime.setDevice", "cuda.set_allocator", "empty", "full", "get_default_memory_pool", "ndarray.get",
    "ndarray.set",
}  # fmt: skip


def test_what_the_runtime_calls_exists() -> None:
    assert sorted(RELIED_ON - set(API)) == []
