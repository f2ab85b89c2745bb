"""torch.fx's names: `wrap` is inert, tracing raises."""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from engine.nn.modules.module import Module

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "symbolic_trace", "wrap"]


def wrap(fn_or_name: Any) -> Any:
    """What is given."""
    return fn_or_name


def _refuse(what: str) -> Any:
    raise NotImplementedError(f"torch.fx.{what} is not supported: the engine records no program of a module")


def symbolic_trace(root: Any, concrete_args: Any = None) -> Any:
    """NotImplementedError."""
    _refuse("symbolic_trace")


class Tracer:
    """NotImplementedError when it traces."""

    def trace(self, root: Any, concrete_args: Any = None) -> Any:
        """NotImplementedError."""
        _refuse("Tracer.trace")


class Graph:
    """NotImplementedError: no graphs are recorded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("Graph")


class GraphModule(Module):
    """NotImplementedError: no graphs are recorded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("GraphModule")


class Node:
    """A step of a graph; none is made."""


class Proxy:
    """A value of a graph; none is made."""


class Interpreter:
    """NotImplementedError: no graphs are recorded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("Interpreter")


class Transformer(Interpreter):
    """NotImplementedError: no graphs are recorded."""


def __getattr__(name: str) -> Any:
    if name in ("_symbolic_trace", "experimental", "graph", "graph_module", "interpreter", "node", "proxy"):
        return _importlib.import_module(f"engine.fx.{name}")
    raise AttributeError(f"module 'torch.fx' has no attribute '{name}'")
