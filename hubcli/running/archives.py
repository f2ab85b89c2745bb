"""TorchScript archives (`torch.jit.save`) as what a command works on: found, loaded, described.

Their code is data to the engine, checked against a list of operators and written anew, so that no trust is asked for.
It can still take time and memory: --timeout and --max-memory bound both.  A torch.package archive carries Python
source, for which there is no record of trust: it is described, never loaded.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hubcli.base.spec import RepoSpec
from hubcli.cache.checkouts import Checkout
from hubcli.errors import (
    EngineGapError,
    HubError,
    IntegrityError,
    NotFoundError,
    RepositoryCodeError,
    UntrustedError,
    UsageError,
)
from hubcli.running import isolation
from hubcli.running.result import Result

SUFFIXES = (".pt", ".pth", ".jit", ".ts", ".torchscript", ".zip")
_SHOWN = 400


def find(text: str) -> Path | None:
    """Return the file that SPEC names where it is one, instead of a repository: by its suffix, or by ./, / or ~
    before it."""
    path = Path(os.path.expanduser(text))
    if path.suffix in SUFFIXES and not path.exists() and path.parent.is_dir() and "://" not in text:
        raise NotFoundError(f"there is no file {text}", hint="a repository is owner/repo, a URL or a folder")
    if not path.is_file() or not (path.suffix in SUFFIXES or text.startswith((".", os.sep, "~"))):
        return None
    return path


def is_archive(path: Path) -> bool:
    """Return whether a file is a TorchScript or torch.package archive."""
    from engine import serialization

    return serialization.sniff(path) in ("torchscript", "package")


def checkout_of(path: Path) -> Checkout:
    """Return the folder of an archive, for a job in a child process."""
    folder = path.resolve().parent
    return Checkout(RepoSpec.parse(str(folder)), str(folder), None, "local", None, None, 0, folder, True, None, None)


def load(
    path: Path, method: str | None = None, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Result:
    """Return the archive's module, to be called on inputs: `args` follow them, `kwargs` go along, to forward or
    `method`.

    Raises IntegrityError for a file that is damaged or refused, UsageError for a method that it does not have.
    """
    module, started = _module(path), time.perf_counter()
    name = method or "forward"
    methods = module._method_names()
    if name not in methods:
        raise UsageError(f"{path} has no method {name!r}", hint=f"it has: {', '.join(methods) or 'none'}")
    called = module.forward if name == "forward" else getattr(module, name)

    @functools.wraps(called)
    def guarded(*inputs: Any, **named: Any) -> Any:
        return _guarded(path, called, (*inputs, *args), {**named, **(kwargs or {})})

    module.forward = guarded
    namespace = isolation.register(path.resolve().parent, None, "engine")
    seconds = time.perf_counter() - started
    return Result(module, str(path), path.name, "engine", seconds, (), namespace, None)


def _module(path: Path) -> Any:
    from engine import jit, serialization

    try:
        kind = serialization.sniff(path)
        if kind == "package":
            raise UntrustedError(
                f"{path} is a torch.package archive: it carries Python source, which hub does not execute",
                hint=f"hub show {path} lists it; torch.package.PackageImporter executes it, for what you trust",
            )
        if kind != "torchscript":
            raise UsageError(
                f"{path} is no TorchScript archive, but {kind if kind != 'unknown' else 'a file of another kind'}",
                hint="a checkpoint holds weights only: the code that uses them is in a repository",
            )
        return jit.load(path)
    except serialization.UnpicklingError as error:
        raise IntegrityError(f"{path} was refused: {' '.join(error.reason.split())[:_SHOWN]}") from None
    except RecursionError:
        raise IntegrityError(f"{path} was refused: it is nested too deeply") from None


def _guarded(path: Path, called: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call the program; an exception of it becomes an error of one line."""
    from engine import jit

    try:
        return called(*args, **kwargs)
    except HubError:
        raise
    except NotImplementedError as error:
        raise EngineGapError(f"{path}: {_line(error)}") from error
    except jit.Error as error:
        raise RepositoryCodeError(f"{path}: {_line(error)}", hint="HUB_DEBUG=1 shows where") from error
    except RecursionError as error:
        raise RepositoryCodeError(f"{path}: its methods call each other without an end") from error
    except MemoryError as error:
        raise RepositoryCodeError(f"{path} asks for more memory than there is") from error
    except Exception as error:
        text = str(error)
        if "\nDeclaration: " in text or ". Declaration: " in text or ". Schema: " in text:
            declared = text.partition("Declaration: ")[2] or text.partition("Schema: ")[2]
            raise UsageError(
                f"the inputs do not fit {path}: {text.splitlines()[0][:_SHOWN]}",
                hint=f"it takes {declared.splitlines()[0][:_SHOWN]}; -k and --args give what is no tensor",
            ) from error
        raise RepositoryCodeError(f"{path}: {_line(error)}", hint="HUB_DEBUG=1 shows where") from error


def _line(error: BaseException) -> str:
    """Return the last line of an error of a program, which says what happened, and the line of code before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    places = [line for line in lines if line.startswith('File "code/')]
    said = lines[-1] if lines else type(error).__name__
    where = f" ({places[-1]})" if places else ""
    return f"{said[:_SHOWN]}{where[:_SHOWN]}"


def document(path: Path) -> dict[str, Any]:
    """Return what `hub show` reports of an archive, or of a torch.package archive: nothing of it runs."""
    from engine import serialization

    if serialization.sniff(path) == "package":
        return _package(path)
    module = _module(path)
    parameters, buffers = list(module.parameters()), list(module.buffers())
    tensors = [*parameters, *buffers]
    return {
        "file": str(path),
        "format": "torchscript",
        "version": module.program_version,
        "class": module.qualified_name,
        "size": path.stat().st_size,
        "parameters": sum(one.numel() for one in parameters),
        "buffers": sum(one.numel() for one in buffers),
        "bytes": sum(one.numel() * one.element_size() for one in tensors),
        "methods": [{"name": name, "schema": _schema(module, name)} for name in _public(module)],
        "modules": [
            {
                "name": name,
                "class": one.original_name,
                "parameters": sum(p.numel() for p in one.parameters(recurse=False)),
            }
            for name, one in module.named_modules()
            if name
        ],
    }


def _package(path: Path) -> dict[str, Any]:
    from engine import package, serialization

    try:
        held = package.contents(path)
    except serialization.UnpicklingError as error:
        raise IntegrityError(f"{path} was refused: {' '.join(error.reason.split())[:_SHOWN]}") from None
    return {
        "file": str(path),
        "format": "package",
        "size": path.stat().st_size,
        "python": held.python,
        "extern": list(held.extern),
        "modules": [{"name": name, "size": size} for name, size in sorted(held.modules.items())],
        "pickles": [{"file": name, "names": list(names)} for name, names in sorted(held.pickles.items())],
        "files": [{"file": name, "size": size} for name, size in sorted(held.files.items())],
        "tensors": held.storages[0],
        "bytes": held.storages[1],
    }


def state_dict(path: Path) -> dict[str, Any]:
    """Return the parameters and buffers of an archive by name; nothing of it runs."""
    found: dict[str, Any] = _module(path).state_dict()
    return found


def _schema(module: Any, name: str) -> str:
    """`forward(Tensor x, int n=1) -> Tensor`, without the module itself."""
    head, _, rest = module.script_method(name).schema.partition("(")
    first, separator, more = rest.partition(", ")
    return f"{head}({more}" if separator and ")" not in first else f"{head}(){rest.partition(')')[2]}"


def _public(module: Any) -> list[str]:
    names = [name for name in module._method_names() if not name.startswith("_")]
    return sorted(names, key=lambda name: name != "forward")
