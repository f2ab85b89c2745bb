"""`hub env`: versions, paths and backends of this machine, the check of its GPU and the calibration of its kernels."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from hubcli.base import output, paths, settings
from hubcli.base.version import __version__
from hubcli.errors import HubError

_LIBRARIES = (
    "click",
    "filelock",
    "GitPython",
    "ml_dtypes",
    "numpy",
    "packaging",
    "platformdirs",
    "requests",
    "rich",
    "safetensors",
    "threadpoolctl",
    "tomli-w",
    "torch",
)
# backend: distributions that bring it
_BACKENDS = {
    "cpu": ("numpy",),
    "cuda": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "mpi": ("mpi4py",),
}
_CUDA_LIBRARIES = {
    name: tuple([f"nvidia-{name}{suffix}" for suffix in ("-cu13", "-cu12", "")])
    for name in ("cuda-runtime", "cublas", "cudnn", "cudnn-frontend", "nccl", "cuda-nvrtc")
}


def described() -> dict[str, Any]:
    """Return the versions, paths and backends."""
    return {
        "hubcli": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "paths": {
            "hub_dir": str(paths.hub_dir()),
            "checkpoints": str(paths.checkpoints()),
            "config": str(paths.config_file()),
            "mirror": settings.current().mirror,
        },
        "backends": {
            **{name: _first(distributions) for name, distributions in _BACKENDS.items()},
            "onednn": _onednn(),
            "jit": _jit(),
        },
        "processor": _processor(),
        "gpu": _gpu(),
        "routes": _routes(),
        "libraries": {"git": _git(), **{name: _version(name) for name in _LIBRARIES}},
    }


def _gpu() -> dict[str, Any]:
    """Without starting CUDA: the driver, the CUDA it serves and the cards' names by NVML; the CUDA libraries that are
    installed; what was found of each of the engine's routes on a card, at the last check or first use."""
    from engine.backends.cuda import probe, routes

    found = probe.driver()
    rows = routes.last().get("routes", {})
    return {
        "driver": None if found is None else found.version,
        "cuda": None if found is None else ".".join(map(str, found.cuda)),
        "cards": [] if found is None else list(found.names),
        "libraries": {name: _first(names) for name, names in _CUDA_LIBRARIES.items()},
        "routes": {name: "on" if row.get("verdict") == "ok" else "off" for name, row in sorted(rows.items())},
    }


def _routes() -> dict[str, Any]:
    """Return the judge's table: the mode, where verdicts are stored, which routes serve here."""
    from engine.dispatch import judge

    return judge.table()


def checked() -> dict[str, Any]:
    """Return the self-test of the GPU.  HubError in one sentence without one."""
    from dataclasses import asdict
    from math import isfinite

    from engine.cuda import selftest

    try:
        rows = selftest.run()
        identity = selftest.identity()
    except RuntimeError as error:
        raise HubError(str(error), hint="docs/how-to/gpu.md says what a GPU needs") from None
    found = [asdict(row) for row in rows]
    for row in found:
        row["error"] = row["error"] if isfinite(row["error"]) else None
    return {"for": identity, "rows": found}


def calibrated() -> dict[str, Any]:
    """Every route on the CPU, timed; what is chosen is stored for this processor, number of threads and versions."""
    import time
    import warnings

    from engine import backends
    from engine.backends import routes
    from engine.core.trials import mode

    if _busy():
        output.warning(
            "other programs use this machine: what is found holds for that; calibrate again when it is quiet"
        )
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, output.progress("calibrating", 1, unit="ops") as bar:
        warnings.simplefilter("always", RuntimeWarning)
        found = backends.calibrate(progress=lambda done, count, name: bar.set(done, count, f"calibrating {name}"))
    for each in caught:
        output.warning(str(each.message))
    if mode() == "static":
        output.warning("ENGINE_ROUTES=static: what was found is stored, and not used")
    rows = [
        {
            "name": row.name,
            "elements": row.elements,
            "microseconds": {to: round(seconds * 1e6, 2) for to, seconds in row.seconds.items()},
            "static": row.static,
            "route": row.chosen,
            "differs": list(row.differs),
        }
        for row in found
    ]
    return {
        "for": routes.identity(),
        "file": str(routes.path()),
        "seconds": round(time.perf_counter() - began, 2),
        "routes": len(rows),
        "changed": sum(row["route"] != row["static"] for row in rows),
        "rows": rows,
    }


def _busy() -> bool:
    """Return whether others have used a good part of the processors in the last minute; False where nobody says."""
    try:
        return os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return False


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _first(distributions: tuple[str, ...]) -> str | None:
    found = (f"{name} {_version(name)}" for name in distributions if _version(name))
    return next(found, None)


def _onednn() -> str:
    """Return the library that the engine uses, or why it uses none."""
    from engine.backends import onednn

    return onednn.describe()


def _jit() -> str:
    """Return what generates kernels for the CPU, or why nothing does."""
    from engine.kernels import processor

    return processor.describe()


def _processor() -> dict[str, Any]:
    """Its newest vector instructions, those that oneDNN uses, and the kernels that it lacks with them."""
    from engine.backends import onednn
    from engine.backends.cpu import processor

    found: dict[str, Any] = {"instructions": processor.instructions(), "onednn": None, "left_to_numpy": []}
    if onednn.is_available():
        from engine.backends.onednn import report

        found |= {"onednn": report.instructions(), "left_to_numpy": list(report.declined())}
    return found


def _git() -> str | None:
    from hubcli.net.git import remote as git

    try:
        return git.version()
    except HubError:  # a machine without git is what a report may be about
        return None
