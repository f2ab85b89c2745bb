"""The torch names: `import torch` answered with the engine's own modules.

`install()` puts a finder on `sys.meta_path`; from then on `torch.nn is engine.nn`.  It acts only when asked, refuses
when a real torch is loaded, stays for the process (model code imports inside `forward`), and is installed anew in
spawned children.  `python -m engine.torch_alias SCRIPT [ARG...]` runs a script so.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from engine import torch_names
from engine.torch_names import ExistingModule, hide_no_attribute, refused

if TYPE_CHECKING:
    import importlib.metadata

__all__ = ["install", "installed", "main"]

# Names that live elsewhere than under `engine`; imported at first use, by string: engine never imports hubcli.
_ELSEWHERE = {"torch.hub": "hubcli.torch_hub", "torch.utils.model_zoo": "hubcli.torch_hub"}
# Compiled modules of packages, linked to torch's libraries: what they do is built in (`engine/ops/audio.py`).
_EXTENSIONS = dict.fromkeys(
    ["torchaudio._torchaudio", "torchaudio.lib._torchaudio"], "engine.library.extensions.torchaudio_module"
)


@functools.cache
def _distribution() -> importlib.metadata.Distribution:
    """The metadata of `torch` for `importlib.metadata`: libraries look there whether it is installed, and how new it
    is.

    Who asks has loaded that module: with what it imports it takes a fifth of the time in which the engine starts.
    """
    from importlib.metadata import Distribution

    class Torch(Distribution):
        def read_text(self, filename: str) -> str | None:
            if filename == "METADATA":
                version = importlib.import_module("engine.core.version").__version__
                return f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
            return "torch\n" if filename == "top_level.txt" else None

        def locate_file(self, path: Any) -> Any:
            from pathlib import Path

            return Path(__file__).parent / path

    return Torch()


class _Finder:
    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        if context is None or context.name in (None, "torch"):
            yield _distribution()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name in _AFTER:
            return _changed(importlib.machinery.PathFinder.find_spec(name, path, target), _AFTER[name])
        if name != "torch" and not name.startswith("torch.") and name not in _EXTENSIONS:
            return None
        real = _ELSEWHERE.get(name) or _EXTENSIONS.get(name) or torch_names.home(name)
        try:
            module = importlib.import_module(real)
        except ModuleNotFoundError as error:
            if error.name is None or not (real == error.name or real.startswith(error.name + ".")):
                raise
            refusing = refused.module(name[6:], lambda inner: importlib.import_module(f"torch.{inner}"))
            if refusing is None:
                raise ModuleNotFoundError(
                    f"No module named '{name}': the engine, which stands in for torch here, does not have it", name=name
                ) from None
            module = refusing
        if name[6:] in refused.PARENTS:
            _let_find_children(module, name)
        return ExistingModule(module).spec(name)


def _changed(
    spec: importlib.machinery.ModuleSpec | None, change: Callable[[Any], None]
) -> importlib.machinery.ModuleSpec | None:
    """The spec of a module that is changed when it has been loaded."""
    if spec is not None and spec.loader is not None:
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def _list_torch(pkg_resources: Any) -> None:
    """Add torch to what setuptools' `pkg_resources`, which old code asks for torch's version, has found."""
    version = importlib.import_module("engine.core.version").__version__
    folder = os.path.dirname(__file__)
    listed = pkg_resources.Distribution(project_name="torch", version=version, location=folder)
    pkg_resources.working_set.add(listed, replace=True)


class _Reinstall:
    """Unpickled first thing in a spawned child: installs the alias there."""

    def __reduce__(self) -> tuple:
        return install, ()


def _follow_into_children(spawn: Any) -> None:
    """Have multiprocessing's spawn and forkserver children install the alias before they import anything."""
    original = spawn.get_preparation_data
    if getattr(original, "with_alias", False):
        return

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {"engine_torch_alias": _Reinstall(), **original(name)}

    get_preparation_data.with_alias = True  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data


# What is done to a module of others when it has been loaded, which many programs never do.
_AFTER: dict[str, Callable[[Any], None]] = {
    "pkg_resources": _list_torch,
    "multiprocessing.spawn": _follow_into_children,
}
_finder = _Finder()


def _let_find_children(module: ModuleType, name: str) -> None:
    """Make `from torch.onnx import symbolic_helper` find a module of the table, whose parent may be a single file."""
    ask = module.__dict__.get("__getattr__")
    if hasattr(ask, "finds_children"):
        return
    if not hasattr(module, "__path__"):
        module.__path__ = []

    def __getattr__(attribute: str) -> Any:
        if refused.has(f"{name[6:]}.{attribute}"):
            return importlib.import_module(f"{name}.{attribute}")
        if ask is not None:
            return ask(attribute)
        raise AttributeError(f"module '{name}' has no attribute '{attribute}'")

    __getattr__.finds_children = True  # type: ignore[attr-defined]
    module.__getattr__ = __getattr__  # type: ignore[method-assign]


def elsewhere(name: str) -> bool:
    """Return whether `torch.NAME` is a module that only the alias serves."""
    return installed() and (f"torch.{name}" in _ELSEWHERE or refused.has(name))


def installed() -> bool:
    """Return whether `import torch` gives the engine in this process."""
    return _finder in sys.meta_path


def install() -> None:
    """Serve `torch` from the engine, for the rest of the process.

    Raises:
        RuntimeError: a real torch is loaded.
    """
    if register():
        importlib.import_module("torch")


def register() -> bool:
    """`install` without importing torch, for a finder: what is being imported must not be imported inside that.

    Whether it was not installed before.
    """
    loaded = sys.modules.get("torch")
    engine = importlib.import_module("engine")
    if loaded is not None and loaded is not engine:
        raise RuntimeError(
            f"cannot serve `torch` from the engine: PyTorch {getattr(loaded, '__version__', '')} is loaded in this "
            "process already; start without importing it, or use framework='torch'"
        )
    if installed():
        return False
    sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]  # no importlib.abc: it loads what it names
    hide_no_attribute("torch")
    engine.__name__ = "torch"  # libraries compare the names that they were told with `torch.__name__`
    spawn = sys.modules.get("multiprocessing.spawn")
    if spawn is not None:
        _follow_into_children(spawn)
    return True


def distributions(context: importlib.metadata.DistributionFinder.Context) -> Iterator[importlib.metadata.Distribution]:
    """Return the distributions that `importlib.metadata` finds for torch once the alias is installed."""
    return _finder.find_distributions(context)


_USAGE = "usage: python -m engine.torch_alias (SCRIPT | -m MODULE | -c CODE) [ARG...]"


def main(arguments: list[str]) -> int:
    """Run a script, a module or code, as `python` does, with the alias installed.  Exit status 2 without one."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    first, *rest = arguments
    if first in ("-m", "-c"):
        if not rest:
            print(f"{_USAGE}\n{first} needs what to run", file=sys.stderr)
            return 2
        what, *rest = rest
        sys.path[0] = ""
    else:
        if not os.path.exists(first):
            print(f"python -m engine.torch_alias: there is no file {first}", file=sys.stderr)
            return 2
        what = first
        sys.path[0] = os.path.dirname(os.path.realpath(first))
    import runpy

    # this module runs as __main__: the finder that counts is the importable module's
    importlib.import_module("engine.torch_alias").install()
    sys.argv[:] = [first if first == "-c" else what, *rest]
    if first == "-m":
        if what.startswith("torch."):  # `-m torch.utils.bottleneck`: the file is the engine's
            what = importlib.import_module("engine.torch_names").home(what)
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(module))
    else:
        runpy.run_path(what, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
