"""Finding and loading libdnnl: `load()` gives the library or None, `describe()` one sentence that says which and why.

Search order: the path in `ENGINE_ONEDNN_LIB`, the wheel onednn-cpu-gomp, the conda prefix, the system.  Any version 3
that computes on OpenMP threads is taken.  `ENGINE_ONEDNN=0` disables it.  Nothing is loaded before the first call.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from engine.backends.cpu import threads
from engine.backends.onednn import _abi

_NAMES = {"darwin": ("libdnnl.3.dylib", "libdnnl.dylib"), "win32": ("dnnl.dll",)}
_OFF = ("0", "off", "false", "no")
# Never unloaded: its threads may still wait, in its own code, when the interpreter drops what it loaded.
_STAY = getattr(os, "RTLD_NODELETE", 0)


class _State:
    """The state of the library, searched for once per process (`loaded` None: not searched yet)."""

    loaded: bool | None = None
    reason = ""
    library: Any = None
    ffi: Any = None
    engine: Any = None
    enabled = True  # torch.backends.mkldnn.enabled
    forked = False  # a child of a process that had used the library: one thread, or libgomp waits for ever
    generation = 0  # changes when cached primitives no longer hold
    lock = threading.Lock()


state = _State()


def load() -> Any:
    """The library (a cffi object), or None.  The first call searches; later ones answer at once."""
    if state.loaded is None:
        with state.lock:
            if state.loaded is None:
                state.loaded = _search()
    return state.library


def is_available() -> bool:
    """Return whether oneDNN is in use."""
    return load() is not None


def describe() -> str:
    """One line: `oneDNN 3.2.0 (OpenMP), /usr/lib/libdnnl.so.3`, or why it is not used."""
    load()
    return state.reason


def instructions() -> str | None:
    """The instruction set that the library's kernels are written in here, as ONEDNN_MAX_CPU_ISA names it."""
    if load() is None or not hasattr(state.library, "dnnl_get_effective_cpu_isa"):
        return None
    number = state.library.dnnl_get_effective_cpu_isa()
    return _abi.INSTRUCTIONS.get(number, hex(number))


def _search() -> bool:
    if os.environ.get("ENGINE_ONEDNN", "").lower() in _OFF:
        state.reason = "off: ENGINE_ONEDNN=0"
        return False
    try:
        from engine.backends.onednn._declared import ffi  # needs cffi's binary part only
    except ImportError:
        state.reason = "off: cffi is not installed (pip install 'hubcli[onednn]')"
        return False
    refused = []
    for path in _candidates():
        try:
            with _short_waits():
                library = ffi.dlopen(path, _STAY)
            refusal = _refusal(ffi, library)
        except (OSError, ffi.error) as error:  # not there, or lacks a function
            if os.path.exists(path) or path == os.environ.get("ENGINE_ONEDNN_LIB"):
                refused.append(f"{path}: {error}")
            continue
        if refusal:
            refused.append(f"{path} {refusal}")
            continue
        _start(ffi, library, path)
        if refused:
            state.reason += f"; not {'; '.join(refused[:3])}"
        return True
    state.reason = "; ".join(["off: no libdnnl 3 found (pip install 'hubcli[onednn]')", *refused[:3]])
    return False


@contextlib.contextmanager
def _short_waits() -> Iterator[None]:
    """Set how long a thread of libgomp that waits for others spins before it sleeps, which libgomp reads as it is
    loaded.

    Its own 300,000 turns are milliseconds: where another process has a core, the threads of one small operation spin
    through each other's time slices, and a network is a hundred times slower.  6,000 turns bridge the time between two
    operations.  What the user set (OMP_WAIT_POLICY, GOMP_SPINCOUNT) stands.
    """
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = "6000"
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def _candidates() -> Iterator[str]:
    names = _NAMES.get(sys.platform, ("libdnnl.so.3", "libdnnl.so"))
    named = os.environ.get("ENGINE_ONEDNN_LIB")
    if named:
        yield named
    for folder in dict.fromkeys((sys.prefix, os.environ.get("CONDA_PREFIX", ""))):
        if folder:
            for name in names:
                for sub in ("lib", "Library/bin"):
                    path = os.path.join(folder, sub, name)
                    if os.path.exists(path):
                        yield path
    yield from _of_wheel(names)
    yield from names  # as the system's loader finds it


def _of_wheel(names: tuple[str, ...]) -> Iterator[str]:
    """The library of a wheel that is elsewhere than in this prefix (`pip install --user`, `--target`)."""
    from importlib import metadata

    try:
        files = metadata.files("onednn-cpu-gomp") or ()
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name in names:
            yield str(file.locate())


def _refusal(ffi: Any, library: Any) -> str:
    """Return the reason why a loaded library cannot be used; "" if it can."""
    version = library.dnnl_version()
    if version.major != 3:
        return f"is version {version.major}.{version.minor}, not 3"
    runtime = _abi.RUNTIMES.get(version.cpu_runtime, str(version.cpu_runtime))
    if runtime not in ("OpenMP", "sequential"):
        return f"computes on {runtime}, not on OpenMP threads"
    holder = ffi.new("void **")
    if library.dnnl_engine_create(holder, _abi.CPU, 0) != 0:
        return "has no CPU engine"
    state.engine = holder[0]
    return ""


def _start(ffi: Any, library: Any, path: str) -> None:
    found = library.dnnl_version()
    runtime = _abi.RUNTIMES[found.cpu_runtime]
    state.ffi, state.library = ffi, library
    state.reason = f"oneDNN {found.major}.{found.minor}.{found.patch} ({runtime}), {path}"
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    """In a forked child: the parent's OpenMP threads do not exist here, and primitives made for them never end."""
    state.forked = True
    state.generation += 1
    state.lock = threading.Lock()


def threads_changed() -> None:
    """Invalidate the primitives, which were made for another number of threads (`cpu.threads` has it)."""
    state.generation += 1


threads.changed.append(threads_changed)


def thread_count() -> int:
    """Return the number of threads of a large operation: 1 in a forked child."""
    return 1 if state.forked else threads.get_num_threads()


def set_threads(count: int) -> None:
    """Tell OpenMP the number of threads of what this thread calls next."""
    if hasattr(state.library, "omp_set_num_threads"):
        state.library.omp_set_num_threads(count)
