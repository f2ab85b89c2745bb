"""A repository that is a distribution itself: its name, its version and the folders of its packages.

Read from pyproject.toml, setup.cfg and setup.py, without running the latter: what only running would tell is not known.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_LARGEST = 1 << 20  # bytes of a file that is read
_FILES = ("pyproject.toml", "setup.cfg", "setup.py")


class Project(NamedTuple):
    """`name` is None where nothing says it, `version` "0"; `sources` are the folders to import from beside the root."""

    name: str | None = None
    version: str = "0"
    sources: tuple[Path, ...] = ()


def read(root: Path) -> Project:
    """Return what the repository at `root` says of itself; an empty Project for one that is no distribution."""
    return _read(root, tuple(_stamp(root / name) for name in _FILES))


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=16)
def _read(root: Path, stamps: tuple[tuple[int, int], ...]) -> Project:
    if not any(stamp[0] for stamp in stamps):
        return Project()
    found: dict[str, str] = {}
    folders: list[str] = []
    for name, reader in zip(_FILES, (_pyproject, _setup_cfg, _setup_py)):
        try:
            file = root / name
            text = file.read_text(encoding="utf-8") if 0 < file.stat().st_size <= _LARGEST else ""
            said = list(reader(text)) if text else []
        except (OSError, ValueError, RecursionError, MemoryError):  # absent, or nothing that can be read
            continue
        for key, value in said:
            if key == "folder":
                folders.append(value)
            elif value and not value.startswith(("attr:", "file:")):
                found.setdefault(key, value)
    sources = dict.fromkeys(made for one in (*folders, "src") if (made := _inside(root, one)) is not None)
    return Project(found.get("name"), _version(found.get("version", "")), tuple(sources))


def _inside(root: Path, folder: str) -> Path | None:
    """Return a folder below the root, itself no package."""
    path = root / folder
    try:
        inside = path.resolve().is_relative_to(root.resolve()) and ".." not in Path(folder).parts
        fits = inside and path != root and path.is_dir() and not (path / "__init__.py").exists()
    except (OSError, ValueError):
        return None
    return path if fits else None


def _version(text: str) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(text))
    except InvalidVersion:
        return "0"


def _pyproject(text: str) -> Iterator[tuple[str, str]]:
    import tomllib

    whole = tomllib.loads(text)
    tool = _table(whole, "tool")
    for table in (_table(whole, "project"), _table(tool, "poetry")):
        yield from ((key, table[key]) for key in ("name", "version") if isinstance(table.get(key), str))
    setuptools = _table(tool, "setuptools")
    listed = _table(_table(setuptools, "packages"), "find").get("where")
    poetry = _table(tool, "poetry").get("packages")
    folders = [_table(setuptools, "package-dir").get("")]
    folders += listed if isinstance(listed, list) else []
    folders += [one.get("from") for one in poetry if isinstance(one, dict)] if isinstance(poetry, list) else []
    yield from (("folder", one) for one in folders if isinstance(one, str))


def _table(whole: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = whole.get(key)
    return found if isinstance(found, dict) else {}


def _setup_cfg(text: str) -> Iterator[tuple[str, str]]:
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from None
    yield from ((key, parser.get("metadata", key, fallback="").strip()) for key in ("name", "version"))
    for line in parser.get("options", "package_dir", fallback="").splitlines():
        if line.strip().startswith("="):
            yield "folder", line.strip()[1:].strip()
    if where := parser.get("options.packages.find", "where", fallback="").strip():
        yield "folder", where


def _setup_py(text: str) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(str(error)) from None
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("setup", "setuptools.setup"):
            for one in call.keywords:
                value = values.get(one.value.id, one.value) if isinstance(one.value, ast.Name) else one.value
                if one.arg in ("name", "version") and isinstance(value, ast.Constant):
                    yield one.arg, value.value if isinstance(value.value, str) else ""
                elif one.arg == "package_dir" and isinstance(value, ast.Dict):
                    for key, folder in zip(value.keys, value.values):
                        if isinstance(key, ast.Constant) and key.value == "" and isinstance(folder, ast.Constant):
                            yield "folder", str(folder.value)
