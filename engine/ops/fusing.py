"""Chains of element by element steps as one generated kernel, made when such code is worth loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.dispatch.choosing import worth_loading

__all__ = ["fused_later"]


def fused_later(name: str, code: Callable[..., Any], present: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return `engine.ops.generated.fused(name, code, present)`, which is made when generated code is worth loading.

    Until then, and without the extra `jit`, what is returned gives NotImplemented.
    """
    made: Any = None

    def run(xp: Any, *arrays: Any) -> Any:
        nonlocal made
        if made is None:
            if not worth_loading(arrays[0].size):
                return NotImplemented
            from engine.ops import generated

            made = generated.fused(name, code, present) or (lambda xp, *arrays: NotImplemented)
        return made(xp, *arrays)

    return run
