"""Writing a package: objects, and the source of the modules that they need."""

from __future__ import annotations

import ast
import importlib.util
import pickletools
import platform
import secrets
import sys
from collections.abc import Callable
from typing import Any

from engine.serialization._tensors import rename, substitute
from engine.serialization.pickler import Pickler
from engine.serialization.writers import ArchiveLayout, ZipWriter, opened, raw

from .files import GlobGroup
from .importer import Importer, PackageImporter, demangled, sys_importer

__all__ = ["EmptyMatchError", "PackageExporter", "PackagingError"]

_MOCK = '''"""Stands in for a module that the package was written without."""


class MockedObject:
    _name: str

    def __new__(cls, *args, **kwargs):
        if not kwargs.get("_suppress_err"):
            raise NotImplementedError(
                f"Object '{cls._name}' was mocked out during packaging but it is being used in '__new__'"
            )
        return super().__new__(cls)

    def __init__(self, name, _suppress_err):
        self.__dict__["_name"] = name

    def __repr__(self):
        return f"MockedObject({self._name})"

    def __getattr__(self, attr):
        raise NotImplementedError(f"Object '{self._name}' was mocked out during packaging but it is being used: {attr}")

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"Object '{self._name}' was mocked out during packaging but it is being called")


def __getattr__(attr):
    return MockedObject(__name__ + "." + attr, _suppress_err=True)
'''


class EmptyMatchError(Exception):
    """A pattern with `allow_empty=False` matched no module."""


class PackagingError(Exception):
    """Modules that the package needs have no action, or one that denies them; the message lists them."""


class PackageExporter:
    """A package that is being written; `close()` or the end of a `with` block finishes it.

    f: path or binary file object.  Each module that a saved object or source needs is asked for in the order in which
    `intern` (its source goes along), `extern` (it is imported where the package is loaded), `mock` and `deny` were
    called; torch and the standard library are extern.  PackagingError at the end for a module without an action.
    Source: torch.package.PackageExporter of release 2.13.
    """

    def __init__(self, f: Any, importer: Any = sys_importer, debug: bool = False) -> None:
        self._file, self.importer = f, importer
        self.importers: list[Importer] = list(importer) if isinstance(importer, list | tuple) else [importer]
        self._files: dict[str, bytes] = {}
        self._layout = ArchiveLayout()
        self._patterns: list[list[Any]] = []  # group, action, allow_empty, matched
        self._actions: dict[str, str] = {}
        self._broken: dict[str, str] = {}
        self._edges: dict[str, set[str]] = {}
        self._externs: list[str] = []
        self._closed = False

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is None:
            self.close()

    # -- actions

    def _action(self, action: str, include: Any, exclude: Any, allow_empty: bool) -> None:
        self._patterns.append([GlobGroup(include, exclude=exclude), action, allow_empty, False])

    def intern(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Modules whose source goes into the package.  include, exclude: patterns as of GlobGroup."""
        self._action("intern", include, exclude, allow_empty)

    def extern(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Modules that the package imports where it is loaded."""
        self._action("extern", include, exclude, allow_empty)

    def mock(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Modules in whose place one stands that raises NotImplementedError when it is used."""
        self._action("mock", include, exclude, allow_empty)

    def deny(self, include: Any, *, exclude: Any = ()) -> None:
        """Modules that the package must not need."""
        self._action("deny", include, exclude, True)

    # -- content

    @staticmethod
    def _name(package: str, resource: str) -> str:
        return f"{package.replace('.', '/')}/{resource}" if package else resource

    def save_text(self, package: str, resource: str, text: str) -> None:
        """Put a text file into the package."""
        self.save_binary(package, resource, text.encode("utf-8"))

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        """Put a file into the package."""
        self._files[self._name(package, resource)] = bytes(binary)

    def save_pickle(
        self, package: str, resource: str, obj: Any, dependencies: bool = True, pickle_protocol: int = 3
    ) -> None:
        """Put an object into the package, and, with dependencies, the modules of its classes."""
        pickler = Pickler(
            lambda value: substitute(self._layout, value), lambda module, name: rename(demangled(module), name)
        )
        content = self._files[self._name(package, resource)] = pickler.dump(obj)
        if dependencies:
            here = f"<{self._name(package, resource)}>"
            for opcode, argument, _ in pickletools.genops(content):
                if opcode.name == "GLOBAL":
                    module = str(argument).partition(" ")[0]
                    self._need("builtins" if module == "__builtin__" else module, here)

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Put the source of a module into the package."""
        self._intern(module_name, dependencies)

    def save_source_file(self, module_name: str, file_or_directory: str, dependencies: bool = True) -> None:
        """Put a file, or all Python files of a folder, into the package as a module."""
        from pathlib import Path

        path = Path(file_or_directory)
        if not path.is_dir():
            self.save_source_string(
                module_name, path.read_text(encoding="utf-8"), path.name == "__init__.py", dependencies
            )
            return
        for file in sorted(path.rglob("*.py")):
            parts = [module_name, *file.relative_to(path).with_suffix("").parts]
            package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if package else parts)
            self.save_source_string(name, file.read_text(encoding="utf-8"), package, dependencies)

    def save_source_string(
        self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True
    ) -> None:
        """Put a text into the package as the source of a module."""
        self._actions[module_name] = "intern"
        path = module_name.replace(".", "/")
        self._files[f"{path}/__init__.py" if is_package else f"{path}.py"] = src.encode("utf-8")
        if dependencies:
            home = module_name if is_package else module_name.rpartition(".")[0]
            for name in self._imports(src, home, module_name):
                self._need(name, module_name)

    # -- what is needed

    def _imports(self, source: str, home: str, module: str) -> list[str]:
        """The modules that a source imports."""
        found: dict[str, None] = {}
        try:
            tree = ast.parse(source)
        except SyntaxError as e:
            self._broken[module] = f"its source is no Python: {e}"
            return []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(dict.fromkeys(a.name for a in node.names))
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = home.split(".")
                    parts = parts[: len(parts) - node.level + 1]
                    base = ".".join([*parts, base] if base else parts)
                if base:
                    found[base] = None
                for alias in node.names:
                    inner = f"{base}.{alias.name}" if base else alias.name
                    if alias.name != "*" and self._source(inner) is not None:
                        found[inner] = None
        return list(found)

    def _need(self, name: str, by: str) -> None:
        self._edges.setdefault(by, set()).add(name)
        if name in self._actions:
            return
        if name.partition(".")[0] in ("torch", "engine") or name.partition(".")[0] in sys.stdlib_module_names:
            self._actions[name] = "extern"
            self._externs.append(name)
            return
        for pattern in self._patterns:
            if pattern[0].matches(name):
                pattern[3] = True
                self._actions[name] = pattern[1]
                if pattern[1] == "intern":
                    self._intern(name, True)
                elif pattern[1] == "extern":
                    self._externs.append(name)
                elif pattern[1] == "deny":
                    self._broken[name] = "Module was denied by a pattern."
                else:
                    self._files[f"{name.replace('.', '/')}.py"] = _MOCK.encode()
                return
        self._actions[name] = ""
        self._broken[name] = "Module did not match against any action pattern. Extern, mock, or intern it."

    def _source(self, name: str) -> tuple[str, bool] | None:
        """The source of a module, and whether it is a package."""
        for importer in self.importers:
            if isinstance(importer, PackageImporter):
                place = importer._path(name)
                if place is not None:
                    return importer.get_source(name), place[1]
                continue
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None) if module is not None else None
            try:
                spec = spec or importlib.util.find_spec(name)
            except (ImportError, AttributeError, ValueError):
                continue
            if spec is None or not (spec.origin or "").endswith(".py"):
                if spec is not None and spec.submodule_search_locations is not None:
                    return "", True
                continue
            with open(str(spec.origin), encoding="utf-8") as file:
                return file.read(), spec.submodule_search_locations is not None
        return None

    def _intern(self, name: str, dependencies: bool) -> None:
        self._actions[name] = "intern"
        found = self._source(name)
        if found is None:
            self._broken[name] = "Module is a C extension module or has no source. It can be externed or mocked."
            return
        self.save_source_string(name, found[0], found[1], dependencies)
        parent = name.rpartition(".")[0]
        if parent and parent not in self._actions and self._source(parent) is not None:
            self._need(parent, name)

    # -- what was decided

    def _with(self, action: str) -> list[str]:
        return [name for name, own in self._actions.items() if own == action]

    def interned_modules(self) -> list[str]:
        """The modules whose source is in the package."""
        return self._with("intern")

    def externed_modules(self) -> list[str]:
        """The modules that are imported where the package is loaded."""
        return self._with("extern")

    def mocked_modules(self) -> list[str]:
        """The modules that are mocked."""
        return self._with("mock")

    def denied_modules(self) -> list[str]:
        """The modules that are needed and denied."""
        return self._with("deny")

    def get_rdeps(self, module_name: str) -> list[str]:
        """The modules that need a module."""
        return [name for name, needs in self._edges.items() if module_name in needs]

    def all_paths(self, src: str, dst: str) -> str:
        """The paths from a module to one that it needs, as lines `a -> b`."""
        found: list[str] = []
        pending: list[tuple[str, ...]] = [(src,)]
        while pending:
            path = pending.pop()
            for name in sorted(self._edges.get(path[-1], ())):
                if name == dst:
                    found.append(" -> ".join((*path, name)))
                elif name not in path:
                    pending.append((*path, name))
        return "\n".join(found)

    def register_extern_hook(self, hook: Callable[..., None]) -> Any:
        """NotImplementedError: hooks are not called."""
        raise NotImplementedError(
            "PackageExporter.register_extern_hook is not supported: read externed_modules() at the end"
        )

    register_mock_hook = register_intern_hook = register_extern_hook

    def close(self) -> None:
        """Write the package."""
        if self._closed:
            return
        self._closed = True
        if self._broken:
            lines = "".join(
                f"\n* {why}\n    {name}" + "".join(f"\n      needed by {by}" for by in self.get_rdeps(name))
                for name, why in self._broken.items()
            )
            raise PackagingError(lines)
        for group, _, allow_empty, matched in self._patterns:
            if not allow_empty and not matched:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {group}, which was marked as allow_empty=False"
                )
        from pathlib import Path

        root = Path(self._file).stem if isinstance(self._file, str | Path) else "archive"
        with opened(self._file) as out:
            archive = ZipWriter(out)
            for key, block in enumerate(self._layout.roots):
                archive.add(f"{root}/.data/{key}.storage", raw(block))
            for name, content in self._files.items():
                archive.add(f"{root}/{name}", content)
            archive.add(f"{root}/.data/extern_modules", "".join(f"{n}\n" for n in self._externs).encode())
            archive.add(f"{root}/.data/python_version", platform.python_version().encode())
            archive.add(f"{root}/.data/version", b"6\n")
            archive.add(f"{root}/byteorder", sys.byteorder.encode())
            archive.add(f"{root}/.data/serialization_id", str(secrets.randbelow(10**40)).zfill(40).encode())
            archive.finish()
