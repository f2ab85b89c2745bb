"""Packages in which importing a module does not hide the function of the same name.

`from engine.nn.utils.weight_norm import WeightNorm` makes Python set `engine.nn.utils.weight_norm` to the module, also
under the name `torch.nn.utils`; what callers of `weight_norm(module)` need there is the function.
"""

from __future__ import annotations

import sys
from types import ModuleType

__all__ = ["functions_first"]


class _Package(ModuleType):
    """A package of which an attribute is never a module that has a function of its own name: it is that function."""

    def __setattr__(self, name: str, value: object) -> None:
        own = getattr(value, name, None) if isinstance(value, ModuleType) else None
        super().__setattr__(name, own if callable(own) else value)


def functions_first(package: str) -> None:
    """Serve the function wherever a module of `package` (a name in sys.modules) has one of its own name."""
    sys.modules[package].__class__ = _Package
