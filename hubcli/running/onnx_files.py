"""Files that are a model themselves: ONNX.  They hold no code, so running one needs no consent."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hubcli.errors import HubError, IntegrityError, NotFoundError, UsageError
from hubcli.running.result import Result


def named(spec: str, entrypoint: str | None = None) -> Path | None:
    """Return the file that SPEC names, None for what is a repository."""
    if not spec.endswith(".onnx") or entrypoint is not None:
        return None
    path = Path(spec)
    if not path.is_file():
        raise NotFoundError(f"there is no file {spec}", hint="a repository is owner/repo, a URL or a folder")
    return path


def opened(path: Path, framework: str) -> Result:
    """Return the model of a file, as if an entrypoint had returned it."""
    if framework == "torch":
        raise UsageError("an ONNX file runs on the engine", hint="leave out --framework torch")
    started = time.perf_counter()
    from engine import onnx

    model = _guarded(path, lambda: onnx.load(path))
    return Result(model, str(path), path.name, "engine", time.perf_counter() - started, (), None)


def described(path: Path) -> dict[str, Any]:
    """Return what a file says of itself, for `hub show`; nothing of it runs, and its operators need not be
    supported."""
    from engine.onnx import importing

    document: dict[str, Any] = _guarded(path, lambda: importing.describe(path))
    return document


def _guarded(path: Path, read: Any) -> Any:
    from engine.onnx import FormatError, UnsupportedOperatorError

    try:
        return read()
    except FormatError as error:
        raise IntegrityError(f"{path} was refused: {error}", hint="an ONNX model file is expected") from None
    except (UnsupportedOperatorError, NotImplementedError) as error:
        raise HubError(f"{path} cannot be run: {error}", hint="docs/how-to/onnx.md lists what is supported") from None
    except MemoryError:
        raise HubError(f"{path} does not fit into memory") from None
