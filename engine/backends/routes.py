"""The choice of an op's kernel by the number of elements: as the op says, or as measured on this machine.

Note [Measured routes]
An op may have its plain kernel ("numpy"), the same cut into blocks on a few threads ("blocks") and one of oneDNN's
("onednn").  `@op(large=...)` says from how many elements on the latter two are asked, oneDNN first; those numbers come
from one processor.  `calibrate()` (`hub env --calibrate`) times all of them here, by classes of sizes within a factor
of 4, and keeps what is faster by a tenth than what the op says, twice in a row; what differs in its numbers by more
than TOLERANCE is never taken.  The result is in a file of the user's cache folder, whose name is a digest of
`identity()`: another processor, number of threads, version or limit of instructions finds none, and the numbers of the
ops stand.  So routes change when somebody asks for it, never by themselves.  ENGINE_ROUTES=static takes no such file;
ENGINE_ROUTES=measured also measures each op at its first use, and stores the result.  No choice depends on the user's
numbers."""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from engine.backends.cpu import threads
from engine.backends.verdicts import Verdicts
from engine.core.slots import Slot, Slots
from engine.core.trials import mode

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["calibrate", "identity", "least", "path"]

TOLERANCE = 2e-4  # of the largest result, for float32; of a thousand terms and more, their rounding
_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")


def _nothing(names: set[str]) -> None:
    """No op is compiled yet: nobody has asked for a route."""


class Providers(Slots):
    """The functions of the ops and of their texts that the choice of a route calls."""

    changed: Slot[Callable[[set[str]], None]] = _nothing  # changed(names): the routes of these ops are others now
    calibrate: Slot[Callable[..., Any]]  # calibrate(ops, progress): time the kernels of ops
    at_first_use: Slot[Callable[[str], None]]  # at_first_use(name): time those of one op


providers = Providers()
chosen: dict[str, dict[int, str]] = {}  # of each op that was measured: its route by class of sizes
_state: dict[str, Any] = {"read": False}


def calibrate(ops: Iterable[str] | None = None, progress: Callable[[int, int, str], None] | None = None) -> Any:
    """Time the kernels of ops on this processor with the present number of threads, and use what is faster from now on.

    It takes some seconds; other work on the machine makes it take longer, and find less.

    Args:
        ops: Names of those of `engine.ops.calibration.names()`; by default all.
        progress: `progress(done, all, name)` is called before each.

    Returns:
        A list of `engine.ops.calibration.Row`.

    Raises:
        ValueError: a name without kernels to choose from.

    Warns:
        RuntimeWarning: the result cannot be written; it holds in this process then.
    """
    return providers.calibrate(ops, progress)


def size_class(elements: int) -> int:
    """Sizes for which one route is chosen: 4**k to 4**(k+1) - 1 elements are class k."""
    return (elements.bit_length() - 1) >> 1


def least(name: str, given: int) -> int:
    """Elements from which an op asks for another kernel than its plain one; `given`: what the op says."""
    if not _state["read"]:
        read()
    if mode() == "measured" and name not in chosen and not _state.get("measuring"):
        _state["measuring"] = True
        try:
            providers.at_first_use(name)
        finally:
            _state["measuring"] = False
    row = chosen.get(name)
    if row is None:
        return given
    first, last = min(row), max(row)
    for k in sorted(row):
        if row[k] != "numpy":
            return min(given, 4**k) if k == first else 4**k  # below what was measured the op's number holds
    return max(given, 4 ** (last + 1))


def route(row: dict[int, str], elements: int) -> str | None:
    """The route of a size by the row of an op; above what was measured that of the largest class."""
    k = size_class(elements)
    found = row.get(k)
    return row[last] if found is None and row and k > (last := max(row)) else found


# --- the file


@functools.cache
def _model() -> str:
    """The processor's name, as the system has it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file.read(4096).splitlines():
                if line.startswith(("model name", "CPU part")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def identity() -> dict[str, str]:
    """Return the facts that a calibration is valid for: processor, instructions, threads, versions and what limits
    them."""
    import numpy as np

    from engine.backends.cpu import processor
    from engine.core.version import engine_version

    return {
        "processor": f"{_model()} ({processor.describe()})",
        "threads": str(threads.get_num_threads()),
        "numpy": np.__version__,
        "engine": engine_version,
        "onednn": os.environ.get("ENGINE_ONEDNN", "") + os.environ.get("ENGINE_ONEDNN_LIB", ""),
        "limits": " ".join(f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ),
        "python": f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}",
    }


def _onednn() -> str:
    from engine.backends import onednn

    return onednn.describe().partition(",")[0]


_verdicts = Verdicts("cpu", lambda: identity(), "the measured routes hold in this process only")


def path() -> Path:
    """The file of this machine, whether it is there or not."""
    return _verdicts.path()


def stored() -> dict[str, dict[int, str]]:
    """Return the stored calibration of this machine; {} where there is none, or where the file is not whole."""
    return _rows(_verdicts.read())


def _rows(document: dict[str, Any]) -> dict[str, dict[int, str]]:
    try:
        if not document or document["library"] != _onednn():
            return {}
        return {
            str(name): {int(k): str(to) for k, to in row.items() if to in ("numpy", "blocks", "onednn")}
            for name, row in document["routes"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):  # of another engine
        return {}


def read() -> None:
    """Take over the stored calibration of this machine, unless ENGINE_ROUTES=static."""
    _state["read"] = True
    chosen.clear()
    if mode() != "static":
        chosen.update((name, row) for name, row in stored().items() if row)


def keep(rows: dict[str, dict[int, str]]) -> None:
    """Write these routes beside those stored before, one warning where that cannot be; and take them from now on,
    unless ENGINE_ROUTES=static."""
    if not _state["read"]:
        read()
    _verdicts.update(lambda document: {"library": _onednn(), "routes": {**chosen, **_rows(document), **rows}})
    if mode() != "static":
        chosen.update(rows)
        providers.changed(set(rows))


def forget(names: Iterable[str] | None = None) -> None:
    """Let the numbers of the ops hold again in this process, until something is measured."""
    gone = set(chosen) if names is None else set(names) & set(chosen)
    for name in gone:
        del chosen[name]
    if gone:
        providers.changed(gone)


def threads_changed() -> None:
    """Take over the calibration stored for another number of threads."""
    if _state["read"]:
        before = set(chosen)
        read()
        if before or chosen:
            providers.changed(before | set(chosen))


threads.changed.append(threads_changed)
