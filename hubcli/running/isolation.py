"""Imports a checkout's modules under a module namespace of its own.

A repository's `import utils` must find its own `utils`, today, in a thread, and in a function that
is called next week, while another repository's `utils` and the user's are in the same process.

- The modules of a checkout are `_hub_<commit12>.<name>` in `sys.modules`, for good (a folder: a
  hash of its path).  One finder on `sys.meta_path` answers for these names and no others.
- Every module gets a `__builtins__` dictionary of its namespace before it runs.  Python takes
  `__import__` from the builtins of the *executing function's module*, so that an import is resolved
  by where the code stands: no global state, nothing to switch, nothing to race for.  A top-level
  name that the checkout defines is imported under the prefix; all else goes the usual way.
  `importlib.import_module`, `importlib.util.find_spec` and `spec_from_file_location` follow the same
  rule through proxies that only these modules see.
- A finder that the code puts on `sys.meta_path` is asked for what the folders do not have, by plain names.
- A standard-library module that is loaded already wins over a file of its name, as in a script.
- What code adds to `sys.path` below the checkout is remembered in the namespace; `active()` puts
  `sys.path`, `sys.modules` and the working directory back, also after an error.
- `sys.path[0]` is the checkout while its code runs, as under torch.hub: published code builds on that
  text.  Nothing is found through this entry (`path_entry`): the rule above decides, for all threads.
- While `active()`, third-party code that imports a repository's module by its plain name gets the
  very module object of the namespace (`hydra`-like factories, whole-object pickles).
- Source is compiled in memory: no bytecode is read from or written into a checkout.
- Pickles name `_hub_<id>.<module>`.  Children of `multiprocessing` (spawn, forkserver, pools,
  ProcessPoolExecutor) learn the namespaces from an entry in the configuration that every `Process`
  carries: it is unpickled before the target and its arguments.  Any other process calls
  `register(path, commit)`, or `hubcli.load` of the same commit, before it unpickles.
- Processes that the code starts by itself are ordinary ones, with torch served: `children`.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
)
from pathlib import Path
from types import ModuleType
from typing import Any

from hubcli.reading import packages, project
from hubcli.running import frameworks, path_entry, subprocess_env
from hubcli.running.loaders import Distribution, NamespacePath, SourceLoader
from hubcli.running.proxies import Proxies

PREFIX = "_hub_"
_INSTALLED = re.compile(r"[/\\](site|dist)-packages([/\\]|\Z)")  # where a virtual environment has its packages
_Record = tuple[str, str | None, str, tuple[str, ...], str]


class Namespace:
    """The modules of one checkout; made by `register`, used through `active` and `load`."""

    def __init__(self, prefix: str, root: Path, commit: str | None, framework: str) -> None:
        self.prefix = prefix
        self.root = root
        self.commit = commit
        self.framework = framework
        self.search = [str(root)]
        self.project = project.read(root)  # before any import asks for it
        self.builtins = dict(vars(builtins), __import__=self._import)
        self._stamps: dict[str, tuple[int, int]] = {}
        self._finders: dict[str, FileFinder] = {}
        self._proxies = Proxies(self)
        self._first_path: str | None = None
        self._seen_path: tuple[str, ...] = ()

    # Which names are ours

    def qualified(self, name: str) -> str:
        """Return the name in `sys.modules` of the checkout's module `name`."""
        return f"{self.prefix}.{name}"

    def owns(self, name: str) -> bool:
        """Return whether an absolute import of `name` from the checkout's code means its own module."""
        top = name.partition(".")[0]
        if self.qualified(top) in sys.modules:
            return True
        if not top or top == "torch" or top.startswith(PREFIX):
            return False
        if top in sys.builtin_module_names or (top in sys.stdlib_module_names and top in sys.modules):
            return False
        self._adopt_sys_path()
        spec = self.find(self.qualified(top), self.search)
        if spec is None:
            return self._adopt_source(top)
        # A bare folder is a package only where no installed one has its name.
        return spec.loader is not None or not _found_outside(top, self)

    def _adopt_source(self, top: str) -> bool:
        """Search the folders of a distribution's packages too, once one has what is installed nowhere."""
        for folder in map(str, self.project.sources):
            spec = None if folder in self.search else self.find(self.qualified(top), [folder])
            if spec is not None and spec.loader is not None and not _found_outside(top, self):
                self.search.append(folder)
                return True
        return False

    def contains(self, path: object) -> bool:
        """Return whether a path, as repository code may spell it, is in the checkout, and in no environment
        inside it."""
        if not isinstance(path, str) or not path:
            return False
        whole = os.path.abspath(path)
        roots = {str(self.root), os.path.realpath(self.root)}
        return any(
            one == root or (one.startswith(root + os.sep) and not _INSTALLED.search(one, len(root)))
            for root in roots
            for one in (whole, os.path.realpath(whole))
        )

    def find(self, fullname: str, path: Sequence[str]) -> ModuleSpec | None:
        """Return the spec of a module of the checkout, looked for in the folders `path`."""
        portions: list[str] = []
        for entry in path:
            finder = self._finders.get(entry)
            if finder is None:
                loader: Any = partial(SourceLoader, self)
                finder = FileFinder(entry, (ExtensionFileLoader, EXTENSION_SUFFIXES), (loader, [".py"]))
                self._finders[entry] = finder
            spec = finder.find_spec(fullname)
            if spec is not None and spec.loader is not None:
                return spec
            if spec is not None:
                portions += spec.submodule_search_locations or []
        if not portions:
            return None
        bare = ModuleSpec(fullname, None, is_package=True)
        bare.submodule_search_locations = NamespacePath(portions)
        return bare

    def find_by_own_finders(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """Return the spec of a module that a finder of the checkout's code, on `sys.meta_path`, knows by its plain
        name."""
        for finder in sys.meta_path:
            if str(getattr(finder, "__module__", "")).startswith(self.prefix + "."):
                spec = finder.find_spec(name, path, target)
                if spec is not None and self.contains(spec.origin) and str(spec.origin).endswith(".py"):
                    whole, file = self.qualified(name), str(spec.origin)
                    return importlib.util.spec_from_file_location(
                        whole,
                        file,
                        loader=SourceLoader(self, whole, file),
                        submodule_search_locations=spec.submodule_search_locations,
                    )
        return None

    def _adopt_sys_path(self) -> None:
        """Remember the folders of the checkout that its code has put on `sys.path`."""
        now = tuple(sys.path)
        if now == self._seen_path:
            return
        self._seen_path = now
        before = self._first_path in sys.path
        front: list[str] = []
        for entry in now:
            if entry == self._first_path:
                before = False
            if self.contains(entry) and os.path.isabs(entry) and entry not in self.search:
                if before:
                    front.append(entry)
                else:
                    self.search.append(entry)
        self.search[:0] = front

    # Importing

    def load(self, name: str) -> ModuleType:
        """Import module `name` of the checkout, with all that it imports."""
        before = set(sys.modules)
        try:
            return importlib.import_module(self.qualified(name))
        except BaseException as error:
            for added in [key for key in list(sys.modules) if key not in before]:
                if added == self.prefix or added.startswith(self.prefix + "."):
                    del sys.modules[added]
            self._unqualify(error)
            raise

    def _import(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        try:
            if level == 0 and isinstance(name, str):
                # C code (pickle) passes an empty list and then asks sys.modules for the plain name.
                if fromlist != [] and self.owns(name):
                    module = builtins.__import__(self.qualified(name), globals, locals, fromlist or (), 0)
                    top = self.qualified(name.partition(".")[0])
                    return module if fromlist else sys.modules[top]
                if name == "torch" or name.startswith("torch."):
                    frameworks.import_framework(self.framework)
            module = builtins.__import__(name, globals, locals, fromlist, level)
        except ModuleNotFoundError as error:
            self._unqualify(error)
            raise
        if level == 0 and name.partition(".")[0] in ("importlib", "pkgutil"):
            return self._proxies.of(module)
        return module

    def _unqualify(self, error: BaseException) -> None:
        """Let an error name the module as the repository's code does."""
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            short = error.name.removeprefix(self.prefix + ".")
            if short != error.name:
                error.msg = error.msg.replace(error.name, short)
                error.args = (error.msg,)
                error.name = short

    # Changes on disk

    def stamp(self, file: str) -> None:
        """Record a source file's state as it is read."""
        status = os.stat(file)
        self._stamps[file] = (status.st_mtime_ns, status.st_size)

    def changed(self) -> bool:
        """Return whether a file that was imported is not what it was."""
        for file, stamp in list(self._stamps.items()):
            try:
                status = os.stat(file)
            except OSError:
                return True
            if (status.st_mtime_ns, status.st_size) != stamp:
                return True
        return False

    def forget(self) -> None:
        """Drop every module: the next import reads the files again."""
        for name in self.modules():
            sys.modules.pop(name, None)
        self._stamps.clear()
        self._finders.clear()
        self._seen_path = ()
        self.search[:] = [str(self.root)]
        self.project = project.read(self.root)

    def modules(self) -> list[str]:
        """Return the names of the namespace in `sys.modules`."""
        return [name for name in list(sys.modules) if name == self.prefix or name.startswith(self.prefix + ".")]

    def move(self, root: Path) -> None:
        """Go on with another generation of the same commit; the loaded modules follow."""
        old, new = str(self.root), str(root)
        self.root = root
        self.project = project.read(root)
        self.search[:] = [_moved(entry, old, new) for entry in self.search]
        self._stamps = {_moved(file, old, new): stamp for file, stamp in self._stamps.items()}
        self._finders.clear()
        for name in self.modules():
            module = sys.modules[name]
            if isinstance(getattr(module, "__file__", None), str):
                module.__file__ = _moved(str(module.__file__), old, new)
            path = getattr(module, "__path__", None)
            if isinstance(path, list) and path is not self.search:
                path[:] = [_moved(entry, old, new) for entry in path]

    def record(self) -> _Record:
        """Return what another process needs to know the namespace."""
        return (self.prefix, self.commit, str(self.root), tuple(self.search), self.framework)

    @contextlib.contextmanager
    def active(self) -> Iterator[Namespace]:
        """Run the checkout's code inside: `sys.path`, `sys.modules` and cwd come back as they were."""
        modules = dict(sys.modules)
        root = str(self.root)  # which the same commit, loaded from another folder meanwhile, replaces
        path = path_entry.enter(root)
        try:
            folder: str | None = os.getcwd()
        except OSError:  # it was removed under us
            folder = None
        first, self._first_path = self._first_path, path[0] if path else None
        token = _active.set(self)
        try:
            with subprocess_env.served(self.framework):
                yield self
        finally:
            _active.reset(token)
            self._adopt_sys_path()
            self._first_path = first
            path_entry.leave(root, path)
            for name, module in sys.modules.copy().items():  # at once: other threads import meanwhile
                if module is modules.get(name):
                    continue
                if not name.startswith(PREFIX) and self._made(module):
                    if name in modules:
                        sys.modules[name] = modules[name]
                    else:
                        sys.modules.pop(name, None)
            if folder is not None:
                _return_to(folder)

    def _made(self, module: object) -> bool:
        name = getattr(module, "__name__", None)
        if isinstance(name, str) and name.startswith(PREFIX):
            return True
        return self.contains(getattr(module, "__file__", None))


_namespaces: dict[str, Namespace] = {}
_lock = threading.RLock()
_active: ContextVar[Namespace | None] = ContextVar("hubcli_active_namespace", default=None)


def register(path: Path, commit: str | None, framework: str = "engine") -> Namespace:
    """Return the namespace of the checkout at `path`; `commit` is None for a folder used in place.

    The same commit always gets the same namespace.  A folder whose imported files have changed
    since starts anew.
    """
    root = Path(os.path.abspath(path))
    with _lock:
        prefix = _prefix(root, commit)
        known = _namespaces.get(prefix)
        if known is None:
            known = Namespace(prefix, root, commit, framework)
            _namespaces[prefix] = known
            _install()
        elif known.root != root:
            known.move(root)
        elif commit is None and known.changed():
            known.forget()
        known.framework = framework
        return known


def _prefix(root: Path, commit: str | None) -> str:
    if commit is None:
        digest = hashlib.sha256(os.path.realpath(root).encode()).hexdigest()
        return PREFIX + digest[:12]
    short = PREFIX + commit[:12]
    known = _namespaces.get(short)
    return short if known is None or known.commit == commit else PREFIX + commit


def module_named(name: str) -> ModuleType | None:
    """Return the module that running repository code imports by this name, where it has imported it already."""
    namespace = _active.get()
    return None if namespace is None else sys.modules.get(namespace.qualified(name))


class _AliasLoader(Loader):
    """Answers a plain name with the module that the namespace has under it."""

    def __init__(self, namespace: Namespace, name: str) -> None:
        self._namespace = namespace
        self._name = name

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[self._name] = self._namespace.load(self._name)


class _Finder(MetaPathFinder):
    """Finds `_hub_<id>` and what is under it; plain names only while its code runs."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top.startswith(PREFIX):
            namespace = _namespaces.get(top)
            if namespace is None:
                return None
            if rest:
                return namespace.find(fullname, path or ()) or namespace.find_by_own_finders(rest, path, target)
            root = ModuleSpec(fullname, None, is_package=True)
            root.submodule_search_locations = namespace.search
            return root
        namespace = _active.get()
        if namespace is None:
            return None
        if top == "torch":
            return self._framework_spec(namespace, fullname, path, target)
        if namespace.owns(top) and not _found_outside(top, namespace):
            return ModuleSpec(fullname, _AliasLoader(namespace, fullname))
        return None

    def _framework_spec(
        self,
        namespace: Namespace,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None,
    ) -> ModuleSpec | None:
        """Third-party code imports torch before the repository's own does."""
        if "torch" in sys.modules or namespace.framework != "engine":
            return None
        from engine.torch_alias import register

        register()  # importing torch in here would have the engine run twice
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """Somebody asks for torch's version before anything has imported it, or a repository for its own."""
        namespace = _active.get()
        if namespace is None:
            return
        own = namespace.project
        name = getattr(context, "name", None)
        if name not in (None, "torch") and own.name and packages.canonical(own.name) == packages.canonical(name):
            if not any(metadata.MetadataPathFinder.find_distributions(context)):
                yield Distribution(own.name, own.version, namespace.root)
            return
        if namespace.framework != "engine" or "torch" in sys.modules:
            return
        if getattr(context, "name", None) == "torch":
            from engine.torch_alias import distributions, installed

            if not installed():
                yield from distributions(context)


class _Carried:
    """Travels with every child process of multiprocessing and makes the namespaces known there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (tuple(one.record() for one in _namespaces.values()), path_entry.entered())


def _restore(records: tuple[_Record, ...], entered: tuple[str, ...] = ()) -> _Carried:
    with _lock:
        path_entry.drop(entered)  # `sys.path` came as it was in the parent, while code ran there
        for prefix, commit, root, search, framework in records:
            if prefix not in _namespaces:
                namespace = Namespace(prefix, Path(root), commit, framework)
                namespace.search[:] = search
                _namespaces[prefix] = namespace
        _install()
    return _Carried()


def _install() -> None:
    """Put the finder on `sys.meta_path` and the record into the process configuration, once."""
    from multiprocessing import process

    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    configuration: dict[str, Any] = getattr(process.current_process(), "_config", {})
    configuration.setdefault("hubcli", _Carried())


def _found_outside(top: str, namespace: Namespace) -> bool:
    """Return whether an installed module or package (no bare folder) has the name; nothing is imported."""
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return True
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            continue
        if finder is PathFinder:
            outside = [entry for entry in sys.path if not namespace.contains(entry)]
            spec = PathFinder.find_spec(top, outside)
        else:  # an editable installation, for instance
            spec = finder.find_spec(top, None, None)
        if spec is not None and spec.loader is not None:
            return True
    return False


def _moved(path: str, old: str, new: str) -> str:
    if path == old or path.startswith(old + os.sep):
        return new + path[len(old) :]
    return path


def _return_to(folder: str) -> None:
    try:
        here: str | None = os.getcwd()
    except OSError:
        here = None
    if here != folder:
        with contextlib.suppress(OSError):
            os.chdir(folder)
