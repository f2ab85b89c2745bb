"""Routes: code paths that this code's tests reach on no card, so that each proves itself on the user's.

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
route's check and keeps what it found.  The file (`backends/verdicts.py`) is that of `identity()`: the card and its
uuid, the driver, CuPy and its CUDA, cuDNN, and the sources of the engine's kernels; another driver or engine finds
none, and all is checked anew.  The self-test (`engine.cuda.selftest`) writes the same file.  A route that differs or
fails is disabled, with one warning, in this process and in later ones that read the file; its fallback serves."""

from __future__ import annotations

import functools
import hashlib
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
from engine.backends.verdicts import Verdicts
from engine.core.version import engine_version

__all__ = ["ROUTES", "Route", "active", "difference", "identity", "route"]

ROUTES: dict[str, Route] = {}
_checking: list[str] = []  # the routes whose checks are running
_lock = threading.RLock()  # one check at a time; a check may use routes that are to be checked first


class Route:
    """One code path; see the top of this file.  `route()` makes them."""

    def __init__(
        self,
        name: str,
        check: Callable[[Any], Iterable[tuple[Any, Any]]],
        fallback: str,
        tolerance: float,
        ready: Callable[[], bool],
    ) -> None:
        self.name, self.check, self.fallback, self.tolerance, self.ready = name, check, fallback, tolerance, ready

    def on(self) -> bool:
        """Return whether to compute by this route on the current GPU; the first call there decides."""
        index = 0 if runtime.state.device_count < 2 else int(runtime.state.library.cuda.runtime.getDevice())
        found = runtime.state.verdicts.get((self.name, index))
        return _decide(self, index) if found is None else found

    def fail(self, why: object) -> None:
        """Disable the route in this process, with one warning: it refused work that it had passed for.  Within its
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
    name: str,
    *,
    check: Callable[[Any], Iterable[tuple[Any, Any]]],
    fallback: str,
    tolerance: float = 1e-5,
    ready: Callable[[], bool] = lambda: True,
) -> Route:
    """Register a route.

    check(xp): pairs (array found by the route, array wanted); it runs on the current GPU on a stream of its own and may
    call the route's own code, for which `on()` is True meanwhile.  tolerance: the largest difference, relative to the
    largest value wanted where that is above 1.  fallback: what computes instead, in words, for the warning.  ready():
    whether what the route needs (a library, a compiler) is there; callers of `on()` have checked that before.
    """
    made = ROUTES[name] = Route(name, check, fallback, tolerance, ready)
    return made


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Numbers in [-1, 1) for a check, without `numpy.random`, whose import takes longer than most checks."""
    places = np.arange(1, prod(shape) + 1, dtype=np.float64)
    return (
        (((places * places + 7 * seed) * 0.7548776662466927 + places * 0.5698402909980532) % 1 * 2 - 1)
        .reshape(shape)
        .astype(dtype)
    )


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
        difference = np.where(same, 0, np.abs(x - y))
        finite = np.abs(y[np.isfinite(y)])
        worst = float((difference / max(1.0, float(finite.max()) if finite.size else 1.0)).max())
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
    """Return the state of each route on the current GPU: "on", "off", "not checked", "not there"."""
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
    """Enable or disable a route of the current GPU in this process (None: to be decided); return the former state."""
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
    for pattern in ("kernels/**/*", "ops/*/cu*", "ops/cu*/*", "backends/cuda/**/*"):
        for path in sorted(root.glob(pattern)):
            if path.suffix in (".py", ".cuh", ".h"):
                found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def identity() -> dict[str, str]:
    """Return the GPU, driver and library versions that a verdict is valid for."""
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


_verdicts = Verdicts(
    "cuda",
    lambda: identity(),
    "the verdicts on CUDA routes are not stored, and are found anew in each process",
)


def last() -> dict[str, Any]:
    """The verdict written last for whatever GPU, without starting CUDA; {} without one."""
    return _whole(_verdicts.newest())


def stored() -> dict[str, Any]:
    """Return the stored verdict of the current GPU: {"for": identity, "routes": {name: row}, ...}; {} without one."""
    return _whole(_verdicts.read())


def _whole(document: dict[str, Any]) -> dict[str, Any]:
    rows = document.get("routes")
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        return {}
    return document


def keep(by_route: dict[str, Any], **more: Any) -> None:
    """Add rows by route, and whatever else, to the stored verdict; one warning where that cannot be written."""
    rows = {
        name: {**row, "error": row["error"] if row["error"] < float("inf") else None} for name, row in by_route.items()
    }

    def added(document: dict[str, Any]) -> dict[str, Any]:
        before = _whole(document)
        return {**before, **more, "routes": {**before.get("routes", {}), **rows}}

    _verdicts.update(added)


def _read(index: int) -> None:
    """Take over what the file says; one warning names the disabled routes."""
    disabled = []
    for name, row in stored().get("routes", {}).items():
        good = row.get("verdict") == "ok"
        runtime.state.verdicts.setdefault((name, index), good)
        if not good:
            disabled.append(name)
    if disabled:
        _warn(sorted(disabled), "gave other numbers than the CPU, or failed,")
