"""Modules that exist so that `import torch.X` works, and the one table from a name of torch to the engine's file.

`torch.X` is `engine.X`, and where that is not a file of this package it is the module that `home` names:
`torch.profiler` is `engine.torch_names.profiler`, `torch.storage` is `engine.core.storage`.  `import engine.profiler`
finds it, too: see `HomeFinder`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

__all__ = ["MODULES", "ExistingModule", "HomeFinder", "hide_no_attribute", "home", "torch_name"]

MODULES = frozenset(
    [
        "_C",
        "_dynamo",
        "_higher_order_ops",
        "_jit_internal",
        "_prims_common",
        "_six",
        "_subclasses",
        "_tensor",
        "accelerator",
        "ao",
        "compiler",
        "cpu",
        "functional",
        "futures",
        "mps",
        "mtia",
        "overrides",
        "profiler",
        "quantization",
        "quasirandom",
        "return_types",
        "signal",
        "testing",
        "torch_version",
        "typed_storage",
        "types",
        "xpu",
    ]
)

# other names of torch, and names that modules of the engine had at its top: where the module is
_HOMES = {
    **dict.fromkeys(
        [
            "device",
            "dtypes",
            "grad_mode",
            "hooks",
            "layouts",
            "legacy_constructor",
            "size",
            "storage",
            "storage_tensors",
            "tensor_messages",
            "version",
        ]
    ),
    "__config__": "utils.config",
    "_checks": "core.checks",
    "_foreach": "optim.foreach",
    "_utils": "utils.torch_utils",
    "_tensor_str": "core.printing",
    "float8": "encoded.float8",
    "quantized": "encoded.quantized",
    "quantized_calls": "encoded.quantized_calls",
    "_ops": "library.operators",
    "_custom_ops": "library._custom_ops",
    "classes": "library.classes",
    "_library": "library",
    "_extensions": "library.extensions",
}
# after the first part was replaced
_INNER = {
    "fx.record": "programs.record",
    "library.custom_ops": "library.custom",
    "jit.annotations": "jit.scripting.annotations",
    "jit.frontend": "jit.scripting.frontend",
}
# where several names of torch lead to a module, or none does that torch itself uses
_TORCH_NAMES = {
    **dict.fromkeys(["fx.tracer", "fx.wrapping"], "fx._symbolic_trace"),
    "fx.tensor_metadata": "fx.passes.shape_prop",
    "core.grad_mode": "autograd.grad_mode",
    "library.custom": "_library.custom_ops",
    "autograd.anomaly_mode": "autograd.anomaly_mode",
    "jit.archive.futures": "jit",
    "jit.archive.objects": "jit",
    "jit.scripting.markers": "jit",
    "nn.quantized": "ao.quantization",
    "nn.quantized.observers": "ao.quantization",
    "nn.quantized.preparing": "ao.quantization",
}


def home(name: str) -> str:
    """Return the dotted name of the engine's module for one of torch: torch.ao.nn -> engine.torch_names.ao.nn."""
    first, dot, rest = name.partition(".")[2].partition(".")
    if first in MODULES:
        found = f"torch_names.{first}"
    elif first in _HOMES:
        found = _HOMES[first] or f"core.{first}"
    else:
        found = first
    found = f"{found}{dot}{rest}"
    return f"engine.{_INNER.get(found, found)}" if found else "engine"


def torch_name(module: str) -> str:
    """Return torch's name for one of the engine's modules, the inverse of `home`: engine.core.storage -> torch.storage.

    A module that torch lacks keeps its place: engine.dispatch.gate -> torch.dispatch.gate.
    """
    name = module.partition(".")[2]
    outer, inner = name, ""
    if name == "library":  # torch has both names: the public module and the package behind it
        return "torch.library"
    inverse = _inverse()
    while outer:
        if outer in inverse:
            return f"torch.{inverse[outer]}{inner}"
        outer, _, last = outer.rpartition(".")
        inner = f".{last}{inner}"
    return f"torch.{name}" if name else "torch"


@functools.cache
def _inverse() -> dict[str, str]:
    """Return the name of torch, without its first part, for each module that has another name here."""
    return {
        **{home(f"torch.{name}").partition(".")[2]: name for name in (*sorted(MODULES), *_HOMES)},
        **{place: name for name, place in _INNER.items()},
        **_TORCH_NAMES,
    }


class ExistingModule:
    """Gives a module that is imported already a second name, and leaves its own spec as it was."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.own = (module.__spec__, getattr(module, "__loader__", None))

    def spec(self, name: str) -> ModuleSpec:
        """Return the spec of the second name."""
        origin = getattr(self.module, "__file__", None)
        return ModuleSpec(name, self, origin=origin, is_package=hasattr(self.module, "__path__"))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that is there."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Put its spec back, which the import system has just replaced."""
        if self.own[0] is not None:
            module.__spec__, module.__loader__ = self.own

    def get_code(self, name: str) -> CodeType | None:
        """Return its code, for `python -m` under its second name; None where it has none (an extension)."""
        spec = self.own[0]
        get = getattr(spec.loader, "get_code", None) if spec else None
        return get(spec.name) if get else None


class HomeFinder:
    """Finds `engine.X` where `home` says that it is another module.

    It comes before the finder of files: that one would find `engine.signal.windows` through the path of its package and
    run it a second time, under the second name.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec for the module at home, None for any other name."""
        if name[:7] != "engine." or (real := home(name)) == name:
            return None
        try:
            module = importlib.import_module(real)
        except ModuleNotFoundError as error:
            if error.name == real:
                return None
            raise
        return ExistingModule(module).spec(name)


def hide_no_attribute(package: str) -> None:
    """Let `import torch.device` and `import torch.tensor` leave the class and the function of that name where they are.

    The import system sets a submodule as an attribute of its package when it is first found; these are found already.
    package: "engine" or "torch", once `engine` is imported.
    """
    for name in ("device", "tensor"):
        sys.modules.setdefault(f"{package}.{name}", importlib.import_module(home(f"torch.{name}")))


if not any(type(finder).__name__ == "HomeFinder" for finder in sys.meta_path):
    sys.meta_path.insert(0, HomeFinder())
