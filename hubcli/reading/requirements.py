"""Requirements in a repository's own files: requirements.txt and its like, setup.py, setup.cfg, pyproject.toml, conda.

Read, not run.  The author knows which package an import means; these files say it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hubcli.reading import packages

_LARGEST = 512 * 1024  # bytes of a file
_KEYS = frozenset(("install_requires", "extras_require", "requires", "setup_requires", "tests_require"))
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9][A-Za-z0-9._-]*)")
_AFFIXES = ("python-{}", "{}-python", "py{}", "py-{}", "{}-py", "python3-{}")


class Required(NamedTuple):
    """A requirement: its distribution, the file that lists it, and where from if not from an index."""

    name: str
    file: str
    url: str | None = None


def read(files: Iterable[Path], root: Path) -> dict[str, Required]:
    """Return the requirements in `files`, by canonical name; the first of each name counts."""
    found: dict[str, Required] = {}
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace") if file.stat().st_size <= _LARGEST else ""
            lines = list(_lines(file, text))
        except (OSError, ValueError, RecursionError, MemoryError, AttributeError, TypeError):
            continue
        for line in lines:
            made = _requirement(line, file.relative_to(root).as_posix())
            if made is not None:
                found.setdefault(packages.canonical(made.name), made)
    return found


def of_import(name: str, required: dict[str, Required]) -> Required | None:
    """Return the requirement that an import means: of the same name, or of one with `python-`, `py` and such around
    it."""
    plain = packages.canonical(name)
    same = required.get(plain)
    if same is not None:
        return same
    around = [one for form in _AFFIXES if (one := required.get(form.format(plain))) is not None]
    return around[0] if len(around) == 1 else None


def _lines(file: Path, text: str) -> Iterator[str]:
    if file.suffix == ".py":
        yield from _setup_py(text)
    elif file.suffix == ".cfg":
        yield from _setup_cfg(text)
    elif file.suffix == ".toml" or file.name == "Pipfile":
        yield from _toml(text)
    elif file.suffix in (".yml", ".yaml"):
        for line in text.splitlines():
            entry = re.match(r"\s*-\s+['\"]?([^'\"#]+)", line)
            if entry and not entry.group(1).rstrip().endswith(":"):
                yield entry.group(1).rpartition("::")[2].strip()
    else:
        yield from text.replace("\\\n", " ").splitlines()


def _requirement(line: str, file: str) -> Required | None:
    text = re.sub(r"(^|\s)#.*", "", line).strip()
    text = re.sub(r"^(-e|--editable)[\s=]+", "", text)
    if not text or text.startswith("-"):
        return None
    if "://" in text or text.startswith("git+"):
        before, _, address = text.partition(" @ ") if " @ " in text else ("", "", text)
        egg = _EGG.search(text)
        tail = re.split(r"[/:]", re.split(r"[@#?;]", address.partition("://")[2])[0].rstrip("/"))[-1]
        named = _NAME.match(before) or (egg and _NAME.match(egg.group(1))) or _NAME.match(tail.removesuffix(".git"))
        url = address.split()[0][:200] if address.split() else ""
        return Required(named.group(1), file, url) if named and url.isprintable() else None
    name = _NAME.match(text)
    if name is None or "/" in text.partition(";")[0]:
        return None
    return Required(name.group(1), file)


def _setup_py(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(tree):
        for one in call.keywords if isinstance(call, ast.Call) else ():
            if one.arg in _KEYS:
                value = values.get(one.value.id, one.value) if isinstance(one.value, ast.Name) else one.value
                yield from (
                    inner.value
                    for inner in ast.walk(value)
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
                )


def _setup_cfg(text: str) -> Iterator[str]:
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    yield from parser.get("options", "install_requires", fallback="").splitlines()
    if parser.has_section("options.extras_require"):
        for _, value in parser.items("options.extras_require"):
            yield from value.splitlines()


def _toml(text: str) -> Iterator[str]:
    import tomllib

    whole: dict[str, Any] = tomllib.loads(text)
    project = whole.get("project", {})
    yield from (one for one in project.get("dependencies", []) if isinstance(one, str))
    for group in project.get("optional-dependencies", {}).values():
        yield from (one for one in group if isinstance(one, str))
    poetry = whole.get("tool", {}).get("poetry", {})
    tables = [poetry.get("dependencies", {}), whole.get("packages", {})]
    tables += [one.get("dependencies", {}) for one in poetry.get("group", {}).values()]
    for table in tables:
        for name, value in table.items():
            url = value.get("git") if isinstance(value, dict) else None
            if name != "python":
                yield f"{name} @ git+{url}" if isinstance(url, str) else name
