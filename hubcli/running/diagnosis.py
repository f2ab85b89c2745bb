"""The diagnosis of an exception of foreign code: the repository, a package, a library or the engine is at fault."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from hubcli.errors import (
    Cause,
    DependencyError,
    EngineGapError,
    HubError,
    RepositoryCodeError,
)
from hubcli.reading import dependencies, hubconf, imports
from hubcli.reading.dependencies import Report
from hubcli.reading.imports import Imported
from hubcli.reading.inventory import Inventory, inside_left_out
from hubcli.running import causes, checkpoints
from hubcli.running.isolation import Namespace

_OWN = Path(__file__).parents[2]
_ENGINE = str(_OWN / "engine") + os.sep
_HUB = str(_OWN / "hubcli") + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_GAP = "this is a gap of hub's engine, not a fault of the code: --framework torch runs it on an installed torch"


def explain(error: BaseException, namespace: Namespace, spec: str) -> HubError:
    """One line, `file:line: Type: message`, where the code stood, and what to do about it."""
    chain = list(_causes(error))
    failed = next((one for one in chain if isinstance(one, ImportError) and one.name), None)
    if failed is not None and _left_out(_plain(str(failed.name), namespace), namespace):
        return missing(_plain(str(failed.name), namespace), _place(failed, namespace), namespace, spec)
    absent = next((one for one in chain if isinstance(one, ModuleNotFoundError) and one.name), None)
    if absent is not None and namespace.framework == "engine" and _is_engine(str(absent.name)):
        return _gap(absent, namespace, spec)
    if absent is not None and not _is_here(str(absent.name), namespace):
        return missing(str(absent.name), _place(absent, namespace), namespace, spec)
    lacking = next((one for one in chain if _lacks(one)), None)
    if lacking is not None and namespace.framework == "engine":
        return _gap(lacking, namespace, spec)
    unread = checkpoints.explained(error, _place(error, namespace), spec)
    if unread is not None:
        return unread
    text = causes.text(error)
    if isinstance(error, subprocess.CalledProcessError):
        text += _said(error)
    library = _library(error, namespace)
    text = _plain(text, namespace)
    hint = "HUB_DEBUG=1 shows the traceback; report it to the repository"
    if isinstance(error, ImportError) and namespace.owns(_plain(error.name or "", namespace)):
        hint = "the repository itself has no such module or name; report it to the repository"
    elif absent is not None:
        hint = (
            f"{_release(str(absent.name))} is installed and has no such module: the code is for another version of it"
        )
    elif isinstance(error, ImportError) and error.name and not namespace.owns(error.name):
        hint = f"{_release(error.name)} is installed; the code is for another version of it"
    elif isinstance(error, NotImplementedError):
        hint = "HUB_DEBUG=1 shows the traceback; --framework torch runs the model on an installed torch"
    elif isinstance(error, OSError) and error.errno in _READ_ONLY and namespace.contains(_text(error.filename)):
        hint = (
            "files of a checkout are read-only, in a sandbox its folders too: --no-sandbox lets code write new files "
        )
        hint += "beside itself"
    elif isinstance(error, SystemExit):
        text = causes.exit_text(error)
    elif library is not None:
        hint = f"it came up inside {_release(library)}; HUB_DEBUG=1 shows the traceback"
    where = _place(error, namespace)
    led = causes_of(error, namespace)
    return RepositoryCodeError(f"{where}{type(error).__name__}: {text[:500]}", hint=hint, spec=spec, causes=led)


def causes_of(error: BaseException, namespace: Namespace) -> tuple[Cause, ...]:
    """Return what led to an error, one line each; of hub's own errors what came up in the repository's code."""
    place = lambda one: _place(one, namespace)
    if isinstance(error, HubError):
        return causes.of_ours(error, place, lambda one: any(map(namespace.contains, _files(one))))
    return causes.of(error, place, lambda one: next(_files(one), "").startswith((_ENGINE, _HUB)))


def _files(error: BaseException) -> Iterator[str]:
    """Yield the files of an exception's frames, from where it was caught to where it came up."""
    return (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))


def _said(error: subprocess.CalledProcessError) -> str:
    """Return the last line that a failed child process has left in its caught stderr."""
    caught = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr
    lines = [line.strip() for line in (caught or "").splitlines() if line.strip()]
    return f" ({lines[-1][:300]})" if lines else ""


def missing(name: str, where: str, namespace: Namespace, spec: str) -> DependencyError:
    """Return what to say where importing `name` failed: every package that is missing, and one command for all."""
    place = where.removesuffix(": ")
    report = everything(namespace, Imported(name, place, left_out=_left_out(name, namespace)) if name else None)
    if not report.missing and (own := Inventory(namespace.root).module(name.partition(".")[0])) is not None:
        text = f"Missing dependencies: {name} (imported by {place})" if place else f"Missing dependencies: {name}"
        hint = f"the repository has {own}, where its code does not look for it as it runs; report it to the repository"
        return DependencyError(text, hint=hint, spec=spec)
    notes = {one.name: "" if one.declared else f" ({one.note})" for one in report.dependencies if not one.satisfied}
    named = ", ".join(f"{one}{note}" for one, note in notes.items()) or name
    return DependencyError(f"Missing dependencies: {named}", hint=report.hint, spec=spec)


def everything(namespace: Namespace, failed: Imported | None = None) -> Report:
    """All that the repository declares and imports, read statically, and the import that failed."""
    declared: tuple[str, ...] = ()
    found = imports.Survey()
    with contextlib.suppress(HubError):
        declared = hubconf.read(namespace.root).dependencies
        found = imports.survey(namespace.root)
    known = {one.name.partition(".")[0] for one in found.imports}
    if failed is not None and failed.name.partition(".")[0] not in known:
        found = found._replace(imports=(*found.imports, failed))
    return dependencies.check(declared, root=namespace.root, framework=namespace.framework, survey=found)


def _plain(text: str, namespace: Namespace) -> str:
    """Return a module's name, or a message, as the repository's code has it: without the prefix of its namespace."""
    return text.replace(f"{namespace.prefix}.", "")


def _left_out(name: str, namespace: Namespace) -> bool:
    """Return whether a module would be in an empty folder of the repository: one of a git submodule."""
    return inside_left_out(namespace.root, [Path(one) for one in namespace.search], name.split(".")) is not None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, and those that it was raised from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _is_engine(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in ("torch", "engine")


def _is_here(name: str, namespace: Namespace) -> bool:
    """Return whether the package that a module name begins with is there, so that only a part of it is missing."""
    return namespace.owns(name) or dependencies.find(name.partition(".")[0], namespace.root) is not None


def _lacks(error: BaseException) -> bool:
    """Return whether code asked for something of torch's that the engine does not have."""
    if isinstance(error, NotImplementedError):
        frames = traceback.extract_tb(error.__traceback__)
        return bool(frames) and frames[-1].filename.startswith(_ENGINE)
    if isinstance(error, ImportError):
        return _is_engine(error.name)
    if isinstance(error, AttributeError):
        owner = error.obj
        kind = owner if isinstance(owner, type) else type(owner)
        return _is_engine(getattr(owner, "__name__", "")) or kind.__module__.partition(".")[0] == "engine"
    return False


def _gap(error: BaseException, namespace: Namespace, spec: str) -> EngineGapError:
    text = causes.text(error)
    return EngineGapError(f"{_place(error, namespace)}{type(error).__name__}: {text[:500]}", hint=_GAP, spec=spec)


def _text(path: object) -> str | None:
    return path if isinstance(path, str) else None


def _place(error: BaseException, namespace: Namespace) -> str:
    """Return where the repository's own code stood last, and the library below it that raised."""
    if isinstance(error, SyntaxError) and namespace.contains(error.filename):
        return f"{_relative(str(error.filename), namespace)}:{error.lineno or 1}: "
    library = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if namespace.contains(frame.filename):
            own = f"{_relative(frame.filename, namespace)}:{frame.lineno}"
            return f"{library} (from {own}): " if library else f"{own}: "
        if not library and _in_library(frame.filename):
            library = f"{_below_path(frame.filename)}:{frame.lineno}"
    return f"{library}: " if library else ""


def _library(error: BaseException, namespace: Namespace) -> str | None:
    """Return the top-level module of the package whose code raised, if it is neither the repository's nor ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if namespace.contains(frame.filename) or frame.filename.startswith((_ENGINE, _HUB)):
            return None
        if _in_library(frame.filename):
            return re.split(r"[/\\.]", _below_path(frame.filename), maxsplit=1)[0]
    return None


def _in_library(file: str) -> bool:
    """Return whether a file is a package's: not the engine's, hub's, or the standard library's."""
    if file.startswith(("<", _ENGINE, _HUB)) or not os.path.isabs(file):
        return False
    return not file.startswith(_STDLIB) or "site-packages" in file


def _below_path(file: str) -> str:
    """Return a library's file as its import name leads to it."""
    roots = [entry for entry in sys.path if entry and file.startswith(entry.rstrip(os.sep) + os.sep)]
    return os.path.relpath(file, max(roots, key=len)).replace(os.sep, "/") if roots else file


def _release(name: str) -> str:
    """Return a package with its version, as far as that is known."""
    top = name.partition(".")[0]
    return " ".join(dependencies.distribution(top) or (top,))


def _relative(file: str, namespace: Namespace) -> str:
    for root in (namespace.root, namespace.root.resolve()):
        if Path(file).is_relative_to(root):
            return Path(file).relative_to(root).as_posix()
    return Path(file).name
