"""torch.fx.graph_module's names: no graphs are recorded."""

from __future__ import annotations

from typing import Any

from engine.fx import GraphModule
from engine.nn.modules.module import Module

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(Module):
    """A module of attributes alone."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Set what `from_module` has under a dotted name in `to_module`, with empty modules on the way."""
    *path, last = target.split(".")
    for name in path:
        inner = getattr(from_module, name)
        if inner is getattr(to_module, name, None):
            return
        if not hasattr(to_module, name):
            setattr(to_module, name, Module())
        from_module, to_module = inner, getattr(to_module, name)
    setattr(to_module, last, getattr(from_module, last))
