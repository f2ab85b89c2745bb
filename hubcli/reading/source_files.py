"""Source files of a repository: where an import finds them, and their `ast`."""

from __future__ import annotations

import ast
import os
import stat
import sys
import warnings
from importlib.machinery import PathFinder
from pathlib import Path

from hubcli.errors import RepositoryCodeError

MAX_FILE_BYTES = 512 * 1024


def parse(file: Path, shown: str, info: os.stat_result, too_much: bool) -> tuple[ast.Module, bytes]:
    """Return a file's `ast` and its text; errors name it `shown`.  `too_much`: the limit of all files is reached."""
    if not stat.S_ISREG(info.st_mode):
        raise unreadable(shown, 1, "not a regular file")
    if info.st_size > MAX_FILE_BYTES:
        raise unreadable(shown, 1, f"{info.st_size} bytes, more than {MAX_FILE_BYTES}")
    if too_much:
        raise unreadable(shown, 1, "the repository's star imports lead to too much code")
    try:
        source = file.read_bytes()
    except OSError as error:
        raise unreadable(shown, 1, f"{type(error).__name__}: {error.strerror}") from None
    if b"\0" in source:
        line = source[: source.index(b"\0")].count(b"\n") + 1
        raise unreadable(shown, line, "SyntaxError: source code contains a null byte")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, filename=shown), source
    except SyntaxError as error:
        message = f"{type(error).__name__}: {error.msg}"
        raise unreadable(shown, error.lineno or 1, message) from None
    except ValueError as error:
        raise unreadable(shown, 1, f"{type(error).__name__}: {error}") from None
    except (RecursionError, MemoryError):
        lines = source.split(b"\n")
        longest = max(range(len(lines)), key=lambda index: len(lines[index]))
        raise unreadable(shown, longest + 1, "SyntaxError: nested too deeply") from None


def find(base: Path, parts: list[str]) -> Path | None:
    """Return the file (or, for a namespace package, folder) of a module below `base`."""
    here = base
    for index, part in enumerate(parts):
        if not part.isidentifier():
            return None
        last = index == len(parts) - 1
        package = here / part / "__init__.py"
        if package.is_file():
            here = here / part
            if last:
                return package
        elif last and (here / f"{part}.py").is_file():
            return here / f"{part}.py"
        elif (here / part).is_dir():
            here = here / part
        else:
            return None
    return here


def installed(top: str) -> bool:
    """Return whether a regular installed package is called `top`; nothing is imported."""
    if top in sys.builtin_module_names:
        return True
    spec = PathFinder.find_spec(top)
    return spec is not None and spec.loader is not None


def unreadable(file: str, line: int, message: str) -> RepositoryCodeError:
    """Return the error of a file that cannot be read."""
    return RepositoryCodeError(
        f"{file}:{line}: {message}",
        hint="nothing was executed; report it to the repository, or take another ref",
    )
