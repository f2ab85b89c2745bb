"""The loaders and finders that import a checkout's files for its namespace (`isolation`)."""

from __future__ import annotations

import importlib
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hubcli.running.isolation import Namespace


class SourceLoader(SourceFileLoader):
    """Runs a source file with its namespace's builtins; compiles in memory only."""

    def __init__(self, namespace: Namespace, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._namespace = namespace

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        self._namespace.stamp(path)
        source = self.get_data(path)
        code: CodeType = self.source_to_code(source, path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._namespace.builtins
        super().exec_module(module)


class NamespacePath(list[str]):
    """The folders of a package without `__init__.py`; `importlib.resources` knows such by how it is printed."""

    def __repr__(self) -> str:
        return f"_NamespacePath({super().__repr__()})"


class ExtensionFinder(FileFinder):
    """For code that looks for its own compiled part, which a checkout has not: where the engine has its operators."""

    def __init__(self, namespace: Namespace, path: str, *details: Any) -> None:
        super().__init__(path, *details)
        self._namespace = namespace

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, target)
        if spec is not None or self._namespace.framework != "engine" or not self._namespace.contains(self.path):
            return spec
        path = Path(self.path, fullname.rpartition(".")[2] + EXTENSION_SUFFIXES[-1])
        if not importlib.import_module("engine.library.extensions").known(path):
            return None
        return ModuleSpec(fullname, ExtensionFileLoader(fullname, str(path)), origin=str(path))


class Distribution(metadata.Distribution):
    """The answer of `importlib.metadata` to a repository about the distribution that it would be if it were
    installed."""

    def __init__(self, name: str, version: str, root: Path) -> None:
        self._text, self._root = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", root

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return self._root / path
