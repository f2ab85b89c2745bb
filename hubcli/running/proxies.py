"""The standard library's functions that import by name, as the code of a checkout gets them."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hubcli.running.loaders import ExtensionFinder, SourceLoader

if TYPE_CHECKING:
    from hubcli.running.isolation import Namespace

_BY_PACKAGE = {  # functions for the data of a package that is named
    "importlib.resources": (
        "contents",
        "files",
        "is_resource",
        "open_binary",
        "open_text",
        "path",
        "read_binary",
        "read_text",
    ),
    "pkgutil": ("get_data",),
}


class Proxies:
    """`importlib`, `pkgutil` and their like, which find the modules of one namespace by their plain names."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._made: dict[str, ModuleType] = {}

    def of(self, module: ModuleType) -> ModuleType:
        """Return what the checkout's code gets for `module`: a proxy, or the module itself where none is needed."""
        if module.__name__ not in ("importlib", "importlib.machinery", "importlib.util", *_BY_PACKAGE):
            return module
        if not self._made:
            util = _Proxy(importlib.util)
            vars(util).update(find_spec=self._find_spec, spec_from_file_location=self._spec_from_file_location)
            machinery = _Proxy(importlib.machinery)
            vars(machinery).update(FileFinder=partial(ExtensionFinder, self._namespace))
            top, own_import = _Proxy(importlib), self._namespace.builtins["__import__"]
            vars(top).update(import_module=self._import_module, __import__=own_import, util=util, machinery=machinery)
            self._made = {"importlib": top, "importlib.machinery": machinery, "importlib.util": util}
        for name in [one for one in _BY_PACKAGE if one in sys.modules and one not in self._made]:
            made = self._made[name] = _Proxy(sys.modules[name])
            known = [one for one in _BY_PACKAGE[name] if hasattr(sys.modules[name], one)]
            vars(made).update({one: self._of_package(getattr(made, one)) for one in known})
            if name == "importlib.resources":
                vars(self._made["importlib"])["resources"] = made
        return self._made[module.__name__]

    def _of_package(self, function: Any) -> Any:
        """Return a function that takes the name of a package first, which may be one of ours."""

        def resolved(*args: Any, **kwargs: Any) -> Any:
            if not args and not kwargs:  # Python 3.12: that of the caller
                args = (sys._getframe(1).f_globals["__name__"],)
            if args and isinstance(args[0], str) and self._namespace.owns(args[0]):
                args = (self._namespace.qualified(args[0]), *args[1:])
            return function(*args, **kwargs)

        return resolved

    def _import_module(self, name: str, package: str | None = None) -> ModuleType:
        return importlib.import_module(*self._resolved(name, package))

    def _find_spec(self, name: str, package: str | None = None) -> ModuleSpec | None:
        return importlib.util.find_spec(*self._resolved(name, package))

    def _resolved(self, name: str, package: str | None) -> tuple[str, str | None]:
        if name.startswith("."):
            if package and not package.startswith(self._namespace.prefix) and self._namespace.owns(package):
                package = self._namespace.qualified(package)
            return name, package
        return (self._namespace.qualified(name) if self._namespace.owns(name) else name), package

    def _spec_from_file_location(self, name: str, location: Any = None, **options: Any) -> ModuleSpec | None:
        path = os.fspath(location) if location is not None else None
        if options.get("loader") is None and self._namespace.contains(path) and str(path).endswith(".py"):
            options["loader"] = SourceLoader(self._namespace, name, str(path))
        return importlib.util.spec_from_file_location(name, location, **options)


class _Proxy(ModuleType):
    """A module of the standard library, with some functions replaced for one namespace."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        vars(self).update(__spec__=module.__spec__, __package__=module.__package__, _real=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
