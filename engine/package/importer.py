"""Loading the modules and objects of a package."""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import itertools
import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from engine.serialization._tensors import TensorBuilder
from engine.serialization.allow import AllowList
from engine.serialization.errors import DEFAULT_LIMITS, UnpicklingError, shown
from engine.serialization.globals import SafeResolver
from engine.serialization.readers import storage_reader
from engine.serialization.source import Source, naming
from engine.serialization.unpickler import Unpickler
from engine.serialization.ziparchive import ZipArchive

from .contents import extern_names, root_of
from .files import Directory, GlobGroup

__all__ = ["Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter", "PackageImporter", "sys_importer"]

_number = itertools.count()


class ObjNotFoundError(Exception):
    """An importer has no object of a name."""


class ObjMismatchError(Exception):
    """An importer has another object under a name."""


class Importer:
    """Something that imports modules by name."""

    def import_module(self, module_name: str) -> ModuleType:
        """The module of a name."""
        raise NotImplementedError

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """Module and name of a class or function, after a look whether this importer gives it back."""
        name = name or getattr(obj, "__qualname__", obj.__name__)
        module = demangled(getattr(obj, "__module__", "") or "__main__")
        try:
            found: Any = self.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as e:
            raise ObjNotFoundError(f"{obj} was not found as {module}.{name}") from e
        if found is not obj:
            raise ObjMismatchError(f"{obj} is not the object {module}.{name} of this importer")
        return module, name

    def whichmodule(self, obj: Any, name: str) -> str:
        """The module of an object."""
        return demangled(getattr(obj, "__module__", None) or "__main__")


class _SysImporter(Importer):
    def import_module(self, module_name: str) -> ModuleType:
        return importlib.import_module(module_name)


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """Several importers, tried in order."""

    def __init__(self, *args: Importer) -> None:
        self._importers = list(args)

    def import_module(self, module_name: str) -> ModuleType:
        """The module from the first importer that has it."""
        last: Exception | None = None
        for importer in self._importers:
            try:
                return importer.import_module(module_name)
            except ModuleNotFoundError as e:
                last = e
        raise last if last is not None else ModuleNotFoundError(module_name)


def demangled(name: str) -> str:
    """`a.b` of `<torch_package_0>.a.b`."""
    return name.partition(".")[2] if name.startswith("<torch_package_") else name


class _Allowed(AllowList):
    """Every class and function that the package's modules, and those it names as extern, define."""

    def __init__(self, importer: PackageImporter) -> None:
        super().__init__()
        self.importer = importer

    def __bool__(self) -> bool:
        return True

    def find(self, path: str, module: str, name: str) -> Any:
        """The object of a name, from the package."""
        found: Any = self.importer.import_module(module)
        for part in name.split("."):
            if not hasattr(found, part):
                raise UnpicklingError(f"the package names {shown(module)}.{shown(name)}, which is not there")
            found = getattr(found, part)
        return found

    def may_call(self, obj: Any) -> bool:
        """True: the package's code runs anyway."""
        return callable(obj)

    def may_build(self, cls: type) -> bool:
        """True."""
        return True


class PackageImporter(Importer):
    """The modules and objects of a package.

    file_or_buffer: path or binary file object.  module_allowed: whether a module that the package leaves to the process
    (`extern`) may be imported; ImportError where not.  A module of the package is loaded once, as
    `<torch_package_0>.name`, and imports others of the package or the extern ones, nothing else.
    The call is consent, as torch's is: `import_module`, and `load_pickle` where a pickle names classes of the package,
    execute its source without asking, and from then on the engine serves `import torch` (`torch_alias.install`).  Open
    only what is trusted; `engine.package.contents` and `hub show` tell what a file holds without executing any of it.
    Pickles are read by the engine's own reader, never by Python's: a name in one is looked up in the package or in its
    extern modules, and nowhere else.  Source: torch.package of release 2.13.
    """

    def __init__(self, file_or_buffer: Any, module_allowed: Callable[[str], bool] = lambda module_name: True) -> None:
        self._source = Source(file_or_buffer)
        self._source.close()  # the mapping stays, or what was read where there is none
        with naming(file_or_buffer):
            self._archive = ZipArchive(self._source).check()
        self.filename = str(file_or_buffer) if isinstance(file_or_buffer, str) else "<binary>"
        self._root = root_of(self._archive)
        self._prefix = f"<torch_package_{next(_number)}>"
        self.modules: dict[str, ModuleType] = {}
        self.extern_modules = set(extern_names(self._archive, self._root))
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(
                    f"package '{self.filename}' needs the external module '{name}' but that module has been disallowed"
                )
        self._storage = storage_reader(self._archive, self._root, ".data", ".storage")
        self._builtins = dict(vars(builtins), __import__=self._import)

    def _bytes(self, name: str) -> bytes:
        entry = self._root + name
        if entry not in self._archive.entries:
            raise FileNotFoundError(f"the package '{self.filename}' has no file {name}")
        return bytes(self._archive.read(entry))

    def _stored(self, pid: Any) -> Any:
        """The storage of a persistent id, whose key is a number here."""
        if type(pid) is tuple and len(pid) > 2 and type(pid[2]) is int:
            pid = (*pid[:2], str(pid[2]), *pid[3:])
        return self._storage(pid)

    # -- modules

    def id(self) -> str:
        """The first part of the names of this package's modules."""
        return self._prefix

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """A module of the package, or one that it leaves to the process; ModuleNotFoundError for others."""
        if package is not None and name.startswith("."):
            name = importlib.util.resolve_name(name, package)
        name = demangled(name)
        found = self.modules.get(name)
        return self._load(name) if found is None else found

    def _path(self, name: str) -> tuple[str, bool] | None:
        """The file of a module and whether it is a package; ('', True) for a folder without source."""
        path = name.replace(".", "/")
        for candidate, package in ((f"{path}/__init__.py", True), (f"{path}.py", False)):
            if self._root + candidate in self._archive.entries:
                return candidate, package
        inside = f"{self._root}{path}/"
        return ("", True) if any(n.startswith(inside) and n.endswith(".py") for n in self._archive.entries) else None

    def _extern(self, name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[: i + 1]) in self.extern_modules for i in range(len(parts)))

    def _load(self, name: str) -> ModuleType:
        if "torch" not in sys.modules:  # what the package's code imports
            from engine import torch_alias

            torch_alias.install()
        place = self._path(name)
        if place is None or (place[0] == "" and self._extern(name)):
            if self._extern(name) or any(e.startswith(f"{name}.") for e in self.extern_modules):
                return importlib.import_module(name)
            raise ModuleNotFoundError(
                f"No module named '{name}' in self-contained archive '{self.filename}' and the module is also not in "
                f"the list of allowed external modules: {sorted(self.extern_modules)}",
                name=name,
            )
        parent = name.rpartition(".")[0]
        if parent:
            self.import_module(parent)
            if name in self.modules:
                return self.modules[name]
        path, package = place
        module = ModuleType(f"{self._prefix}.{name}")
        spec = importlib.machinery.ModuleSpec(module.__name__, self, is_package=package)  # type: ignore[arg-type]
        module.__spec__, module.__loader__ = spec, self  # type: ignore[assignment]
        module.__file__ = f"{self._prefix}.{name}" if not path else f"{self._prefix}/{path}"
        module.__package__ = module.__name__ if package else module.__name__.rpartition(".")[0]
        if package:
            module.__path__ = [module.__file__]
        module.__dict__["__builtins__"] = self._builtins
        module.__dict__["__torch_package__"] = True
        self.modules[name] = module
        if parent:
            setattr(self.modules[parent], name.rpartition(".")[2], module) if parent in self.modules else None
        if path:
            text = self._bytes(path).decode("utf-8")
            linecache.cache[module.__file__] = (len(text), None, text.splitlines(True), module.__file__)
            try:
                exec(compile(text, module.__file__, "exec", dont_inherit=True), module.__dict__)
            except BaseException:
                self.modules.pop(name, None)
                raise
        return self.modules[name]

    def get_source(self, module_name: str) -> str:
        """The text of a module of the package."""
        place = self._path(demangled(module_name))
        return "" if place is None or not place[0] else self._bytes(place[0]).decode("utf-8")

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """Execute an import statement of the package's code."""
        if level:
            package = demangled((globals or {}).get("__package__", ""))
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - level + 1])
            name = f"{base}.{name}" if name else base
        module = self.import_module(name)
        if not fromlist:
            return module if level else self.import_module(name.partition(".")[0])
        for one in fromlist:
            if one == "*" or hasattr(module, one):
                continue
            try:
                self.import_module(f"{name}.{one}")
            except ModuleNotFoundError:
                continue
        return module

    # -- resources

    @staticmethod
    def _resource(package: str, resource: str) -> str:
        if "/" in resource or resource in ("", ".", ".."):
            raise ValueError(f"{resource!r} must be only a file name")
        return f"{package.replace('.', '/')}/{resource}" if package else resource

    def load_binary(self, package: str, resource: str) -> bytes:
        """The bytes of a file."""
        return self._bytes(self._resource(package, resource))

    def load_text(self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The text of a file."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """The object of a pickle, read by the engine's own reader; its classes come from the package.

        map_location: as in `load`.  UnpicklingError for a file that is damaged or names what is not there.
        """
        data = self.load_binary(package, resource)
        resolver = SafeResolver(TensorBuilder(map_location), _Allowed(self))
        return Unpickler(data, resolver=resolver, limits=DEFAULT_LIMITS, persistent_load=self._stored).load()

    def python_version(self) -> str | None:
        """The version of Python that the package was written with."""
        try:
            return self._bytes(".data/python_version").decode("utf-8").strip()
        except FileNotFoundError:
            return None

    def file_structure(self, *, include: Any = "**", exclude: Any = ()) -> Directory:
        """The files of the package as a tree, those that match."""
        group = GlobGroup(include, exclude=exclude, separator="/")
        made = Directory(self.filename, True)
        for name in self._archive.entries:
            path = name.removeprefix(self._root)
            if path and group.matches(path):
                made.add(path)
        return made
