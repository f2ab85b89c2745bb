"""torch.fx's names: `wrap` is inert, tracing raises."""

from __future__ import annotations

import importlib as _importlib
from collections.abc import Callable
from typing import Any

from engine.nn.modules.module import Module

__all__ = [
    "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "ProxyableClassMeta", "Tracer", "Transformer",
    "has_side_effect", "map_aggregate", "map_arg", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip


def wrap(fn_or_name: Any) -> Any:
    """What is given."""
    return fn_or_name


def has_side_effect(fn: Any) -> Any:
    """What is given."""
    return fn


def is_fx_tracing() -> bool:
    """False: nothing is ever traced."""
    return False


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


class CodeGen(Interpreter):
    """NotImplementedError: no graphs are recorded."""


class ProxyableClassMeta(type):
    """A metaclass without effect: nothing is ever traced."""


Argument = Target = Any


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`a` with fn(x) in place of every x that is no tuple, list, dict or slice."""
    if isinstance(a, tuple):
        values = [map_aggregate(x, fn) for x in a]
        return type(a)(*values) if hasattr(a, "_fields") else tuple(values)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {key: map_aggregate(x, fn) for key, x in a.items()}
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """As `map_aggregate`, for the Nodes alone."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def replace_pattern(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _refuse("replace_pattern")
