"""torch._dynamo's names that packages use at import: nothing is compiled."""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from engine.torch_names.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    substitute_in_graph,
)

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "disable",
    "disallow_in_graph",
    "export",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "optimize",
    "reset",
    "substitute_in_graph",
]


def disallow_in_graph(fn: Any) -> Any:
    """`fn` itself."""
    return fn


forbid_in_graph = disallow_in_graph


def graph_break(msg: str = "") -> None:
    """Nothing."""


def mark_dynamic(t: Any, index: Any = None, **kwargs: Any) -> None:
    """Nothing."""


mark_static = mark_static_address = maybe_mark_dynamic = mark_dynamic


def optimize(*args: Any, **kwargs: Any) -> Any:
    """A decorator that returns its function."""
    return lambda function: function


def export(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    raise NotImplementedError("torch._dynamo.export is not supported: use torch.export.export")


def __getattr__(name: str) -> Any:
    if name in ("config", "eval_frame", "utils"):
        return _importlib.import_module(f"engine.torch_names._dynamo.{name}")
    if name == "OptimizedModule":
        return _importlib.import_module("engine.programs.inference").OptimizedModule
    raise AttributeError(f"module 'torch._dynamo' has no attribute '{name}'")
