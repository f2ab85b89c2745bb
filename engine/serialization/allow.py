"""The caller's allow-list: classes and functions that a checkpoint may name beyond tensors and containers."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.core.slots import Several
from engine.dispatch import OPS, PUBLIC
from engine.torch_names.facade import facade

from .placeholders import Absent

__all__ = [
    "BLOCKED_MODULES",
    "AllowList",
    "add_safe_globals",
    "check_name",
    "clear_safe_globals",
    "engine_twin",
    "get_safe_globals",
    "get_safe_names",
    "homes",
    "safe_globals",
    "safe_names",
]

# Refused even when allowed: nothing in them is data.
BLOCKED_MODULES = frozenset({
    "os", "posix", "nt", "sys", "subprocess", "pty", "runpy", "importlib", "ctypes", "_ctypes", "socket", "shutil",
    "code", "codeop", "webbrowser", "pickle", "_pickle", "marshal", "pdb", "bdb", "timeit", "signal", "pkgutil",
    "zipimport", "operator", "_operator", "multiprocessing",
})  # fmt: skip
_BLOCKED_BUILTINS = frozenset(
    {
        "eval",
        "exec",
        "compile",
        "__import__",
        "open",
        "getattr",
        "setattr",
        "delattr",
        "input",
        "breakpoint",
        "globals",
        "locals",
        "vars",
    }
)
# Modules whose classes are never built for a name alone: the standard library, and what reads the file.
_NEVER_BUILT = frozenset(sys.stdlib_module_names | {"numpy", "engine", "hubcli"})
_SCRIPTS = frozenset({"__main__", "__mp_main__"})
_MOST_ROOTS = 64

# The list of this process, as torch.serialization keeps one: entry -> None, in order of arrival.
_registered: dict[Any, None] = {}
# Names that the user of this process permits, as `safe_names` describes.
_names: dict[str, None] = {}
# Functions of a module's name that know modules which `sys.modules` has under another name; a higher layer adds one.
homes: Several[Callable[[str], Any]] = Several()


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Let later `load` calls build these: classes, functions, or (class, "path.in.the.file") pairs."""
    for entry in safe_globals:
        _check(entry)
        _registered[entry] = None


def get_safe_globals() -> list[Any]:
    """Return the globals registered by `add_safe_globals` so far."""
    return list(_registered)


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` has been given."""
    _registered.clear()


class safe_globals:
    """Context manager: `add_safe_globals(entries)` inside the block only."""

    def __init__(self, safe_globals: Iterable[Any]) -> None:
        self.entries = list(safe_globals)
        self.added: list[Any] = []

    def __enter__(self) -> None:
        self.added = [e for e in self.entries if e not in _registered]
        add_safe_globals(self.entries)

    def __exit__(self, *exc: object) -> None:
        for entry in self.added:
            _registered.pop(entry, None)


@contextlib.contextmanager
def safe_names(names: Iterable[str]) -> Iterator[None]:
    """Let `load` inside the block read objects of these classes: names as files have them (`package.module.Class`).

    Unlike entries of `safe_globals`, names need not be importable, and nothing is imported for them.  An object becomes
    one of the class where this process has imported it already and where it is a class of neither the standard library
    nor numpy; else a placeholder, which has the attributes that the file gives and runs nothing.  A function is never
    called: what it would have returned is a placeholder.  Raises ValueError for what is no name of a class and for
    names that are blocked for every file.
    """
    given = tuple(names)
    for name in given:
        check_name(name)
    added = [name for name in given if name not in _names]
    _names.update(dict.fromkeys(given))
    try:
        yield
    finally:
        for name in added:
            _names.pop(name, None)


def get_safe_names() -> list[str]:
    """The names of the `safe_names` that are active."""
    return list(_names)


def check_name(name: str) -> None:
    """Raise ValueError unless `name` is the dotted path of a class or function that a caller may permit."""
    parts = name.split(".") if isinstance(name, str) else []
    if len(parts) < 2 or not all(part.isidentifier() for part in parts) or len(name) > 300:
        raise ValueError(f"{name!r} is not the name of a class: write package.module.Class")
    if is_blocked(name):
        raise ValueError(f"{name} runs code instead of being data, and is refused for every checkpoint")


@functools.lru_cache(maxsize=256)
def _is_findable(root: str) -> bool:
    """Return whether a package or module of that name could be imported; nothing is."""
    try:
        return importlib.util.find_spec(root) is not None
    except (ImportError, ValueError, AttributeError):
        return True


def _check(entry: Any) -> None:
    if isinstance(entry, tuple):
        if len(entry) != 2:
            raise ValueError(
                f"Expected tuple of length 2 (global, str of callable full path), but got tuple of length: {len(entry)}"
            )
        if type(entry[1]) is not str:
            raise TypeError(f"Expected second item in tuple to be str of callable full path, but got: {type(entry[1])}")
    elif not isinstance(entry, str) and not hasattr(entry, "__qualname__"):
        raise TypeError(f"expected a class, a function, a (class, path) pair or a path, but got {type(entry).__name__}")


def is_blocked(path: str) -> bool:
    """Return whether `path` may not be allowed at all."""
    root, _, rest = path.partition(".")
    return root in BLOCKED_MODULES or (root == "builtins" and rest in _BLOCKED_BUILTINS)


def engine_twin(path: str) -> Any:
    """The engine's class for a class of torch.nn or torch.optim (`torch.nn.modules.conv.Conv2d`), or None.

    torch's files name the module that defines a class; the engine is laid out otherwise, so the last part of
    the path is looked up in engine.nn, engine.nn.functional or engine.optim.  Functions of ops (`torch.relu`,
    `torch._C._nn.gelu`), which a model keeps as its activations, are looked up in the op registry.
    """
    module, _, name = path.rpartition(".")
    if module in ("torch", "torch._C._nn"):
        from engine import nn

        found = getattr(facade() if module == "torch" else nn.functional, name, None)  # may define the op
        return found if name in OPS or name in PUBLIC else None
    if not path.startswith(("torch.nn.", "torch.optim.")) or path.startswith("torch.nn.parameter."):
        return None
    if name.startswith("_"):
        return None
    if path.startswith("torch.optim."):
        import engine.optim as home
    elif path.startswith("torch.nn.functional."):
        import engine.nn.functional as home
    else:
        import engine.nn as home
    found = getattr(home, name, None)
    if not str(getattr(found, "__module__", "")).startswith("engine."):
        return None  # what the module has imported for its own use
    if path.startswith("torch.nn.functional."):
        return found if callable(found) and not isinstance(found, type) else None
    return found if isinstance(found, type) else None


class AllowList:
    """The entries of `allow=` and of `add_safe_globals`, looked up by the path a file names.

    imported: also take any class of a module that this process has already imported, outside the standard
    library (what `weights_only=False` means here), and of submodules of such a package: old checkpoints name
    classes where they were defined, while callers import the package's front.  Nothing else is ever imported
    for a file's sake, and such a class may only be made empty and given its state, never called.

    An entry `pkg.*` permits classes that are defined below `pkg`, whatever name they are found under; a function
    must be listed by itself.
    """

    def __init__(self, allow: Iterable[Any] = (), imported: bool = False, names: Iterable[str] = ()) -> None:
        self.imported = imported
        self._roots: dict[str, bool] = {}  # the packages that a file has named: whether they are absent
        self.names = frozenset((*_names, *names))
        for name in self.names - _names.keys():
            check_name(name)
        self.by_path: dict[str, Any] = {}
        self.objects: dict[int, Any] = {}  # what may be called as well, by id
        self.prefixes: list[str] = []
        entries = [allow] if isinstance(allow, str) or hasattr(allow, "__qualname__") else list(allow)
        for entry in [*_registered, *entries]:
            _check(entry)
            if isinstance(entry, str):
                self._add_path(entry)
            elif isinstance(entry, tuple):
                self._add(entry[1], entry[0])
            else:
                self._add(f"{entry.__module__}.{entry.__qualname__}", entry)

    def __bool__(self) -> bool:
        return bool(self.by_path or self.prefixes or self.imported)

    def _add(self, path: str, found: Any) -> None:
        self.by_path[path] = found
        self.objects[id(found)] = found
        if path.startswith("engine."):
            self.by_path["torch" + path[6:]] = found

    def _add_path(self, path: str) -> None:
        if path.endswith(".*"):
            self.prefixes.append(path[:-1])
        else:
            found = engine_twin(path) or _in_memory(path)
            if found is None:
                raise ValueError(f"{path} cannot be allowed: no imported module has that name")
            self._add(path, found)

    def find(self, path: str, module: str, name: str) -> Any:
        """The allowed object that `path` names, or None."""
        if is_blocked(path):
            return None
        found = self.by_path.get(path)
        if found is None and path in self.names:
            found = self.by_path[path] = self._by_name(path, module, name)
        if found is not None or not self:
            return found
        twin = engine_twin(path)
        if twin is not None and id(twin) in self.objects:
            return twin
        if any(path.startswith(p) for p in self.prefixes):
            found = twin if twin is not None else _in_memory(path, module, name)
            if not isinstance(found, type):
                return found if found is twin else None  # a function of engine.nn.functional: a value, never called
            home = f"{found.__module__}.{found.__qualname__}"
            if is_blocked(home) or not (found is twin or any(home.startswith(p) for p in self.prefixes)):
                return None
            self._add(path, found)
            return found
        if self.imported and module.partition(".")[0] not in sys.stdlib_module_names:
            found = twin if twin is not None else _in_memory(path, module, name)
            if found is None and _import_submodule(module):
                found = _in_memory(path, module, name)
            if isinstance(found, type) and found.__module__.partition(".")[0] not in sys.stdlib_module_names:
                return found
            return found if found is not None and found is twin else None
        return None

    def is_absent(self, path: str) -> bool:
        """Return whether `path` names something that cannot be imported here, as classes of a training script cannot.

        Nothing is imported to find out; a file that names very many packages is not believed, for each look takes time.
        """
        root, *rest = path.split(".")
        if not rest or not all(part.isidentifier() for part in (root, *rest)):
            return False
        if root in _SCRIPTS:
            return _in_memory(path) is None
        if root in sys.modules or root in sys.stdlib_module_names or root in ("torch", "numpy"):
            return False
        if root not in self._roots:
            if len(self._roots) >= _MOST_ROOTS:
                return False
            self._roots[root] = not _is_findable(root)
        return self._roots[root]

    def _by_name(self, path: str, module: str, name: str) -> Any:
        """The class of that name where this process has it, to be built; else what makes placeholders."""
        if path.partition(".")[0] in _NEVER_BUILT:
            return Absent(path, permitted=True)
        found = engine_twin(path) or _in_memory(path, module, name)
        for home in homes if found is None else ():
            found = found or _member(home(module), name)
        if not isinstance(found, type) or found.__module__.partition(".")[0] in sys.stdlib_module_names:
            return Absent(path, permitted=True)
        self.objects[id(found)] = found
        return found

    def may_call(self, found: Any) -> bool:
        """Return whether the caller listed this very object, so that a file may call it with arguments."""
        return id(found) in self.objects

    def may_build(self, cls: type) -> bool:
        """Return whether instances of `cls` may be made empty and given a state.

        A class that is only imported, not listed, must be a module or an optimizer, or have no code of its own
        that runs on the way (`__setstate__`, `__del__`).
        """
        if id(cls) in self.objects:
            return True
        if not self.imported or cls.__module__.partition(".")[0] in sys.stdlib_module_names:
            return False
        if hasattr(cls, "__del__"):
            return False
        return not hasattr(cls, "__setstate__") or issubclass(cls, _stateful_classes())


def _stateful_classes() -> tuple[type, ...]:
    from engine import nn, optim

    return nn.Module, optim.Optimizer


def _import_submodule(module: str) -> bool:
    """Import `module` if it is in a package that is imported already; whether that succeeded."""
    package, *rest = module.split(".")
    if not rest or module in sys.modules or not hasattr(sys.modules.get(package), "__path__"):
        return False
    if not all(part.isidentifier() and not part.startswith("__") for part in rest):
        return False  # `__main__` would run a program
    try:
        importlib.import_module(module)
    except Exception:  # whatever a third-party module raises on import: the class is then not to be had
        return False
    return True


def _in_memory(path: str, module: str | None = None, name: str | None = None) -> Any:
    """Return the object that `path` names among the modules that are already imported, or None.

    A dotted name leads from a class to a class inside it; it never goes through a module, which has whatever
    others it imports among its names.
    """
    if module is None or name is None:
        module, _, name = path.rpartition(".")
    return _member(sys.modules.get(module), name)


def _member(found: Any, name: str) -> Any:
    """Return the callable under the dotted `name` in a module, or None."""
    for depth, part in enumerate(name.split(".")):
        if found is None or part.startswith("__") or (depth and not isinstance(found, type)):
            return None
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if callable(found) else None
