"""The code that Python runs as it starts in a process that repository code has started: see
`hubcli/running/subprocess_env.py`.

It imports nothing that Python has not imported already, and hides no other `sitecustomize`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.machinery import ModuleSpec
    from importlib.metadata import Distribution
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # where engine and hubcli lie


class _Torch:
    """Puts the engine's own finder in its place when something asks for torch."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "torch":
            return None
        self._replace()
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        if getattr(context, "name", None) != "torch":
            return ()
        self._replace()
        from engine import torch_alias

        return torch_alias.distributions(context)

    def _replace(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        _find_engine()
        from engine import torch_alias

        torch_alias.register()


def _find_engine() -> None:
    """Let `import engine` be ours; ImportError where this process has a module of that name in front of it."""
    from importlib.util import find_spec

    loaded = sys.modules.get("engine")
    spec = find_spec("engine") if loaded is None else getattr(loaded, "__spec__", None)
    if spec is None:
        sys.path.append(_ROOT)
        return
    ours = os.path.join(_ROOT, "engine", "__init__.py")
    if spec.origin is None or os.path.realpath(spec.origin) != os.path.realpath(ours):
        raise ImportError(
            f"torch is served by a package named engine in this process, and {spec.origin or 'a folder'} takes that "
            "name: call the code from an entrypoint instead of starting it as a process",
            name="torch",
        )


def _start() -> None:
    """Serve torch where this is the Python that is meant; it is no pip there."""
    if os.environ.get("ENGINE_TORCH_FOR") == sys.prefix:
        _refuse_to_install(sys.orig_argv)
        sys.meta_path.insert(0, _Torch())


def _refuse_to_install(words: list[str]) -> None:
    """End a `pip install` that running code has started: it would bring torch itself, or change what others need.

    As if it had succeeded: what is missing is named where it is imported, and most code goes on without.
    """
    names = [os.path.basename(word) for word in words]
    at = next(
        (at for at, name in enumerate(names) if name in ("pip", "pip.exe", "-c") or name.startswith("pip3")), None
    )
    if at is not None and names[at] != "-c" and "install" in words[at + 1 :]:
        command = " ".join(" ".join(["pip", *words[at + 1 :]]).split())[:500]
        if _noted(command):
            os._exit(0)
        sys.stderr.write(
            f"hub: left out: `{command}`, which the code that runs has started: nothing is installed while a "
            "repository's code runs.  `hub deps SPEC --install` brings what it imports, and never torch\n"
        )
        sys.stderr.flush()
        os._exit(0)


def _noted(command: str) -> bool:
    """Tell the process that runs the code, which names all such commands in one notice.

    Whether that is enough: where the code has caught what this process says, it gets an answer, too.
    """
    try:
        device, inode, file = os.environ["ENGINE_LEFT_OUT"].split(":", 2)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, command.encode("utf-8", "replace") + b"\n")
        os.close(descriptor)
        here = os.fstat(2)
    except (KeyError, OSError, ValueError):
        return False
    return (str(here.st_dev), str(here.st_ino)) == (device, inode)


def _run_next() -> None:
    """Run the `sitecustomize` that this one stands before."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", [one for one in sys.path if os.path.abspath(one or ".") != _HERE])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start()
_run_next()
