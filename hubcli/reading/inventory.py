"""Modules that cannot be imported, by the files of a repository: its own, those it compiles, those left out.

A name that a repository has for itself is not queried in an index, where it is a stranger's.  One bounded walk over the
folders; build files are read, never run.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

MAX_ENTRIES = 20_000
MAX_READ = 400  # files of each kind that are read
_LARGEST = 512 * 1024  # bytes of such a file
_SKIPPED = frozenset((".git", ".hg", ".svn", ".tox", ".venv", "__pycache__", "node_modules", "site-packages"))
_SOURCES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".mm", ".rs", ".i")
_BUILD = ("setup.py", "build.py", "CMakeLists.txt", "meson.build", "Cargo.toml", "pyproject.toml", "setup.cfg")

# What declares a Python module in C++, CMake, Meson, Cargo and SWIG files: the name is the first group.
_IN_TEXT = re.compile(
    r"\b(?:PYBIND11_MODULE|PYBIND11_PLUGIN|NB_MODULE|BOOST_PYTHON_MODULE|TORCH_LIBRARY(?:_FRAGMENT)?)\s*\(\s*(\w+)"
    r"|\bPyInit_(\w+)\s*\("
    r"|^\s*%module(?:\([^)]*\))?\s+(\w+)"
    r"|\b(?:pybind11_add_module|nanobind_add_module|python_add_library|python3?_add_library|swig_add_library"
    r"|cython_add_module|cuda_add_library)\s*\(\s*\"?(\w+)"
    r"|\bextension_module\s*\(\s*['\"](\w+)['\"]"
    r"|#\[pymodule\][^{;]*?\bfn\s+(\w+)",
    re.MULTILINE | re.IGNORECASE,
)
_ANYTHING = frozenset(("TORCH_EXTENSION_NAME", "MODULE_NAME", "NAME", "name", "module"))
_COMPILING = re.compile(rb"cpp_extension|Extension\b|cythonize|set_source|\bpycc\b|\bCC\(|load_inline|ffi")
_CALLS = re.compile(r"extension|\bext\b|_ext$|ext_|^load(_inline)?$|set_source$|^CC$|create_extension", re.IGNORECASE)


class Inventory:
    """The files of one repository, by what they say of module names; nothing is read before it is asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def _files(self) -> tuple[dict[str, str], list[Path]]:
        """Modules by name with the first path that has each; all plain files."""
        modules: dict[str, str] = {}
        files: list[Path] = []
        count = 0
        for parent, folders, names in os.walk(self.root):
            here = Path(parent)
            place = "" if here == self.root else here.relative_to(self.root).as_posix() + "/"
            folders[:] = sorted(one for one in folders if one not in _SKIPPED)
            if "pyvenv.cfg" in names:
                folders[:] = []
                continue
            count += len(folders) + len(names)
            if count > MAX_ENTRIES:
                break
            python = False
            for name in sorted(names):
                files.append(here / name)
                stem, _, suffix = name.partition(".")
                if suffix in ("py", "pyx", "pyi") and name not in ("setup.py", "__init__.py"):
                    modules.setdefault(stem, place + name)
                python = python or suffix == "py"
            if python and place:
                modules[here.name] = min(modules.get(here.name, place[:-1]), place[:-1], key=len)
        return modules, files

    def module(self, name: str) -> str | None:
        """Return the file or folder, relative to the root, that has this module name somewhere in the repository."""
        return self._files[0].get(name)

    # Submodules

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """Return the folders that .gitmodules names and whose files are not there."""
        return tuple(path for path in _gitmodules(self.root) if is_empty(self.root / path))

    # Compiled modules and distributions of its own

    @cached_property
    def compiled(self) -> dict[str, str]:
        """Return the modules that a build makes, by the first part of their names, with the file that says so."""
        found: dict[str, str] = {}
        read = 0
        for file in self._files[1]:
            build, source = file.name in _BUILD, file.suffix in _SOURCES or file.suffix == ".cmake"
            if file.suffix == ".pyx":
                found.setdefault(file.stem, self._shown(file))
            if not (build or source or file.suffix == ".py") or read >= MAX_READ:
                continue
            data = _read(file)
            if file.suffix == ".py" and not build and not _COMPILING.search(data):
                continue
            read += 1
            names = _built_by_python(data) if file.suffix == ".py" else _built_by_text(file, data)
            for name in names:
                found.setdefault(name.partition(".")[0], self._shown(file))
        return found

    @cached_property
    def distributions(self) -> dict[str, str]:
        """Return the distributions that folders below the root make, by canonical name, with the file that says so."""
        from hubcli.reading import packages, project

        found: dict[str, str] = {}
        folders = {one.parent for one in self._files[1] if one.name in ("setup.py", "pyproject.toml", "setup.cfg")}
        for folder in sorted(folders)[:MAX_READ]:
            name = project.read(folder).name if folder != self.root else None
            if name:
                found.setdefault(packages.canonical(name), self._shown(folder))
        return found

    @cached_property
    def requirement_files(self) -> list[Path]:
        """Return the files that list requirements, those nearest to the root first."""
        names = re.compile(r"requirements?.*\.(txt|in)$|.*requirements?\.txt$|environment.*\.ya?ml$|Pipfile$", re.I)
        inside = re.compile(r"requirements?$", re.I)
        fitting = [
            one
            for one in self._files[1]
            if names.match(one.name)
            or one.name in ("setup.py", "setup.cfg", "pyproject.toml")
            or (one.suffix in (".txt", ".in") and inside.match(one.parent.name))
        ]
        return sorted(fitting, key=lambda one: (len(one.parts), one.name))[:40]

    def _shown(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def is_empty(folder: Path) -> bool:
    """Return whether nothing is at a path, or a folder without anything in it: what a submodule leaves that is left
    out."""
    try:
        with os.scandir(folder) as found:
            return next(found, None) is None
    except FileNotFoundError:
        return True
    except OSError:
        return False


def inside_left_out(root: Path, bases: Sequence[Path], parts: Sequence[str]) -> Path | None:
    """Return the empty folder in which a module, looked for below `bases`, would lie; git writes such for
    submodules only."""
    for base in bases:
        here = base
        for part in parts:
            if not part.isidentifier():
                break
            here = here / part
            if here.is_dir() and here.is_relative_to(root):
                if is_empty(here):
                    return here
                continue
            break
    return None


def _gitmodules(root: Path) -> Iterator[str]:
    for line in _read(root / ".gitmodules").decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        path = value.strip().strip('"').rstrip("/")
        if key.strip() == "path" and path and not path.startswith("/") and ".." not in path.split("/"):
            yield path


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() and file.stat().st_size <= _LARGEST else b""
    except OSError:
        return b""


def _built_by_text(file: Path, data: bytes) -> Iterator[str]:
    text = data.decode("utf-8", "replace")
    if file.name in ("Cargo.toml", "pyproject.toml"):
        yield from _built_by_toml(file.name, text)
        return
    for match in _IN_TEXT.finditer(text):
        name = next(one for one in match.groups() if one)
        if name not in _ANYTHING:
            yield name


def _built_by_toml(name: str, text: str) -> Iterator[str]:
    """`[lib]` of a crate, the modules of maturin, of setuptools' ext-modules."""
    import tomllib

    try:
        whole = tomllib.loads(text)
        if name == "Cargo.toml":
            found = [whole.get("lib", {}).get("name")]
        else:
            tool = whole.get("tool", {})
            found = [tool.get("maturin", {}).get("module-name")]
            found += [one.get("name") for one in tool.get("setuptools", {}).get("ext-modules", [])]
    except (ValueError, AttributeError, TypeError, RecursionError):
        return
    yield from (one for one in found if isinstance(one, str) and one)


def _built_by_python(data: bytes) -> Iterator[str]:
    """Yield the first argument, or `name`, of what makes an extension: `CUDAExtension("name", ...)`,
    `load(name="name")`."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not _CALLS.search(_last(call.func)):
            continue
        named = [one.value for one in call.keywords if one.arg in ("name", "module_name", "ext_name")] + call.args[:1]
        for node in named:
            text = _literal(constants.get(node.id, node) if isinstance(node, ast.Name) else node, constants)
            if text and re.fullmatch(r"[\w.]+", text):
                yield text


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _literal(node: ast.expr, constants: dict[str, ast.expr]) -> str | None:
    """Return a string, or one put together of constants; the parts that are not known are left out at its end."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        inner = constants.get(node.id)
        return inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [_literal(one.value if isinstance(one, ast.FormattedValue) else one, constants) for one in node.values]
        return None if None in parts else "".join(str(one) for one in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left, constants), _literal(node.right, constants)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _literal(node.func.value, constants)
    return None
