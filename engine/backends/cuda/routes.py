"""Routes: ways of computing that this code's tests reach on no card, so that each proves itself on the user's.

    from engine.backends.cuda import routes

    def _check(xp):                                   # small: 50 ms at most, on the current GPU
        x = routes.numbers(2, 4, 9, 9)
        yield _through_cudnn(xp, xp.asarray(x)), _plain(np, x)   # (found on the GPU, wanted: there or on the host)

    CONVOLUTION = routes.route("cudnn convolution", check=_check, fallback="im2col and products", tolerance=1e-4)

    def convolution(xp, input, ...):
        if not CONVOLUTION.on():
            return NotImplemented                     # whoever asks computes by the fallback

Note [Verdicts]
The first `on()` of a route on a GPU looks for a verdict in a file of the user's cache folder; without one it runs the
route's check and keeps what it found.  The file is named by a digest of `identity()`: the card and its uuid, the
driver, CuPy and its CUDA, cuDNN, and the sources of the engine's kernels; another driver or engine finds none, and all
is checked anew.  The self-test (`engine.cuda.selftest`) writes the same file.  A route that differs or fails is off,
with one warning, in this process and in later ones that read the file; its fallback serves.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends import cudnn
from engine.backends.cuda import runtime
from engine.backends.cuda.errors import OutOfMemoryError
from engine.version import engine_version

__all__ = ["ROUTES", "Route", "active", "difference", "identity", "route"]

ROUTES: dict[str, Route] = {}
_checking: list[str] = []  # the routes whose checks are running
_lock = threading.RLock()  # one check at a time; a check may use routes that are to be checked first


class Route:
    """One way of computing; see the top of this file.  `route()` makes them."""

    def __init__(
        self, name: str, check: Callable[[Any], Iterable[tuple[Any, Any]]], fallback: str, tolerance: float,
        ready: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.name, self.check, self.fallback, self.tolerance, self.ready = name, check, fallback, tolerance, ready

    def on(self) -> bool:
        """Whether to compute by this route on the current GPU; the first call there decides."""
        index = 0 if runtime.state.device_count < 2 else int(runtime.state.library.cuda.runtime.getDevice())
        found = runtime.state.verdicts.get((self.name, index))
        return _decide(self, index) if found is None else found

    def fail(self, why: object) -> None:
        """Switch the route off in this process, with one warning: it refused work that it had passed for.  Within its
        check nothing: that finds it."""
        if self.name in _checking:
            return
        index = int(runtime.library().cuda.runtime.getDevice())
        if runtime.state.verdicts.get((self.name, index)) is not False:
            runtime.state.verdicts[self.name, index] = False
            _warn([self.name], f"failed ({' '.join(str(why).split())[:200]})")

    def __repr__(self) -> str:
        return f"<route {self.name}, else {self.fallback}>"


def route(
    name: str, *, check: Callable[[Any], Iterable[tuple[Any, Any]]], fallback: str, tolerance: float = 1e-5,
    ready: Callable[[], bool] = lambda: True,
) -> Route:  # fmt: skip
    """Register a route.

    check(xp): pairs (array found by the route, array wanted); it runs on the current GPU on a stream of its own and may
    call the route's own code, for which `on()` is True meanwhile.  tolerance: the largest difference, relative to the
    largest value wanted where that is above 1.  fallback: what computes instead, in words, for the warning.  ready():
    whether what the route needs (a library, a compiler) is there; who asks `on()` has asked that before.
    """
    made = ROUTES[name] = Route(name, check, fallback, tolerance, ready)
    return made


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Numbers in [-1, 1) for a check, without `numpy.random`, whose import takes longer than most checks."""
    places = np.arange(1, prod(shape) + 1, dtype=np.float64)
    return (((places * places + 7 * seed) * 0.7548776662466927 + places * 0.5698402909980532) % 1 * 2 - 1).reshape(
        shape
    ).astype(dtype)  # fmt: skip


def difference(found: Any, wanted: Any) -> float:
    """The largest difference of two arrays, relative to the largest value wanted where that is above 1; infinite for
    another shape or dtype and where one of them alone is not finite."""
    if found.dtype != wanted.dtype or tuple(found.shape) != tuple(wanted.shape):
        return float("inf")
    x, y = (_wide(a) for a in (found, wanted))
    if not x.size:
        return 0.0
    same = (x == y) | ((x != x) & (y != y))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0, np.abs(x - y))
        finite = np.abs(y[np.isfinite(y)])
        worst = float((apart / max(1.0, float(finite.max()) if finite.size else 1.0)).max())
    return float("inf") if worst != worst else worst


def _wide(array: Any) -> np.ndarray[Any, Any]:
    host = array if isinstance(array, np.ndarray) else runtime.to_host(array)
    return host.astype(np.complex128 if host.dtype.kind == "c" else np.float64)


# --- deciding


def _decide(one: Route, index: int) -> bool:
    if runtime.state.library is None:  # no device: kernels compute on the host, where tests compare them
        return True
    with _lock:
        known = runtime.state.verdicts
        if not runtime.state.read.get(index):
            runtime.state.read[index] = True
            _read(index)
        found = known.get((one.name, index))
        if found is not None:
            return bool(found)
        known[one.name, index] = True  # for the check itself, and for the routes that its check uses
        _checking.append(one.name)
        try:
            row = measure(one)
        finally:
            _checking.pop()
        if row["verdict"] == "no memory":  # says nothing of the route
            del known[one.name, index]
            return False
        known[one.name, index] = row["verdict"] == "ok"
        keep({one.name: row})
        if not known[one.name, index]:
            _warn([one.name], f"{row['verdict']} ({row['why'] or format(row['error'], '.2g')})")
        return bool(known[one.name, index])


def measure(one: Route) -> dict[str, Any]:
    """Run the check of a route on the current GPU: verdict ("ok", "differs", "failed", "no memory"), error, ms, why."""
    error, why, verdict = 0.0, "", "ok"
    began = time.perf_counter()
    try:
        with runtime.aside(), np.errstate(all="ignore"):
            for found, wanted in one.check(runtime.library()):
                error = max(error, difference(found, wanted))
    except OutOfMemoryError as failure:
        verdict, why, error = "no memory", str(failure), float("inf")
    except Exception as failure:  # whatever a library raises is the finding
        verdict, error = "failed", float("inf")
        why = " ".join(f"{type(failure).__name__}: {failure}".split())[:200]
    if verdict == "ok" and not error <= one.tolerance:
        verdict = "differs"
    milliseconds = round((time.perf_counter() - began) * 1000, 2)
    return {"verdict": verdict, "error": error, "ms": milliseconds, "why": why}


def _warn(names: list[str], what: str) -> None:
    named = ", ".join(names)
    falls = ", ".join(dict.fromkeys(ROUTES[n].fallback for n in names if n in ROUTES)) or "the plain form"
    warnings.warn(
        f"the engine's own CUDA routes {named} {what} on this GPU and are not used; {falls} computes instead; `hub env "
        "--check cuda` tests them anew",
        RuntimeWarning,
        stacklevel=4,
    )


def active() -> dict[str, str]:
    """What is known of each route on the current GPU: "on", "off", "not checked", "not there"."""
    index = int(runtime.library().cuda.runtime.getDevice())
    with _lock:
        if not runtime.state.read.get(index):
            runtime.state.read[index] = True
            _read(index)
    words = {True: "on", False: "off", None: "not checked"}
    return {
        name: words[runtime.state.verdicts.get((name, index))] if one.ready() else "not there"
        for name, one in ROUTES.items()
    }


def switch(name: str, to: bool | None) -> bool | None:
    """Switch a route of the current GPU on or off in this process (None: to be decided); what it was."""
    index = int(runtime.library().cuda.runtime.getDevice())
    before: bool | None = runtime.state.verdicts.get((name, index))
    if to is None:
        runtime.state.verdicts.pop((name, index), None)
    else:
        runtime.state.verdicts[name, index] = to
    return before


# --- the file


@functools.cache
def digest() -> str:
    """Of the sources that make the engine's kernels and call the libraries."""
    root = Path(__file__).parents[2]
    found = hashlib.sha256()
    for folder in ("kernels", "ops/cuda", "ops/cudnn", "backends/cuda"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".cuh", ".h"):
                found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def identity() -> dict[str, str]:
    """What a verdict holds for."""
    here = runtime.library()
    calls = here.cuda.runtime
    found = calls.getDeviceProperties(int(calls.getDevice()))
    uuid = found.get("uuid")
    return {
        "gpu": f"{found['name'].decode()} (sm_{found['major']}{found['minor']})",
        "uuid": uuid.hex() if isinstance(uuid, bytes) else str(uuid or ""),
        "driver": _version(calls.driverGetVersion()),
        "cuda": _version(calls.runtimeGetVersion()),
        "cupy": str(here.__version__),
        "cudnn": str(cudnn.version()),
        "engine": engine_version,
        "kernels": digest(),
    }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def file() -> Path:
    """Where the verdict of the current GPU is kept."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = hashlib.sha256(json.dumps(identity(), sort_keys=True).encode()).hexdigest()[:16]
    return Path(folder) / "engine" / "cuda" / f"verdict-{name}.json"


def last() -> dict[str, Any]:
    """The verdict written last for whatever GPU, without starting CUDA; {} without one."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "engine" / "cuda"
    try:
        return _parsed(max(folder.glob("verdict-*.json"), key=lambda path: path.stat().st_mtime))
    except (OSError, ValueError):  # none
        return {}


def kept() -> dict[str, Any]:
    """The verdict kept for the current GPU: {"for": identity, "routes": {name: row}, ...}; {} without one."""
    return _parsed(file())


def _parsed(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    rows = found.get("routes") if isinstance(found, dict) else None
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        return {}
    return dict(found)


def keep(by_route: dict[str, Any], **more: Any) -> None:
    """Add rows by route, and whatever else, to the verdict kept; one warning where that cannot be written."""
    rows = {
        name: {**row, "error": row["error"] if row["error"] < float("inf") else None} for name, row in by_route.items()
    }  # fmt: skip
    document = kept()
    document = {**document, "for": identity(), **more, "routes": {**document.get("routes", {}), **rows}}
    path = file()
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(document, indent=1), encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        if not runtime.state.read.get("unwritable"):
            runtime.state.read["unwritable"] = True
            warnings.warn(
                f"the verdicts on CUDA routes are not kept, and are found anew in each process: {path.parent} cannot "
                f"be written ({error.strerror or error})",
                RuntimeWarning,
                stacklevel=4,
            )


def _read(index: int) -> None:
    """Take over what the file says; one warning names the routes that are off."""
    off = []
    for name, row in kept().get("routes", {}).items():
        good = row.get("verdict") == "ok"
        runtime.state.verdicts.setdefault((name, index), good)
        if not good:
            off.append(name)
    if off:
        _warn(sorted(off), "gave other numbers than the CPU, or failed,")
