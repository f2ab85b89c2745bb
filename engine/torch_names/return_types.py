"""torch.return_types: the classes of the results with named parts, by the name of their operation."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from engine import dispatch

    for op in (name, f"{name}_dim", f"linalg_{name}"):
        found = getattr(dispatch.OPS.get(op), "result_type", None)
        if found is not None:
            return found
    raise AttributeError(f"module 'torch.return_types' has no attribute '{name}'")
