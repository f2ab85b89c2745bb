"""torch.functional: operations that stand in `torch` as well, and whatever else code imports from here."""

from __future__ import annotations

from typing import Any

from engine.torch_names.facade import facade as _facade


def __getattr__(name: str) -> Any:
    if not name.startswith("__") and hasattr(_facade(), name):
        return getattr(_facade(), name)
    raise AttributeError(f"module 'torch.functional' has no attribute '{name}'")
