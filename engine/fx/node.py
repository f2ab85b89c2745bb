"""torch.fx.node's names: no graphs are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.fx import Node

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any


def has_side_effect(fn: Any) -> Any:
    """`fn` itself: no graph is tidied."""
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`fn` of every leaf of nested tuples, lists, dicts and slices."""
    if isinstance(a, tuple):
        mapped = [map_aggregate(x, fn) for x in a]
        return type(a)(*mapped) if hasattr(a, "_fields") else tuple(mapped)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`fn` of every Node of nested containers."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)
