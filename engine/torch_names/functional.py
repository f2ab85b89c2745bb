"""torch.functional: operations that stand in `torch` as well, and whatever else code imports from here."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        import engine

        if hasattr(engine, name):
            return getattr(engine, name)
    raise AttributeError(f"module 'torch.functional' has no attribute '{name}'")
