"""torch.classes: classes of compiled extensions, of which there are none."""

from __future__ import annotations

from typing import Any

from engine.library.operators import load_library, loaded_libraries

__all__ = ["load_library", "loaded_libraries"]


class _Namespace:
    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"Tried to instantiate class '{self.name}.{name}', but it does not exist! Ensure that it is registered via "
            "torch::class_"
        )

    def __repr__(self) -> str:
        return f"<module 'torch.classes.{self.name}' from 'torch.classes'>"


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'torch.classes' has no attribute '{name}'")
    return _Namespace(name)
