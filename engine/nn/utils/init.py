"""Modules made without drawing their initial weights."""

from __future__ import annotations

import inspect
from typing import Any

from engine.nn.modules.module import Module


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Module:
    """A module whose parameters may hold anything: made on the meta device, so that nothing is drawn."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    final = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=final)
