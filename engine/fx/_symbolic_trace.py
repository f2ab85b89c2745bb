"""`symbolic_trace`, and torch's module for what it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.fx.graph_module import GraphModule
from engine.fx.tracer import (
    PH,
    PHBase,
    ProxyableClassMeta,
    Tracer,
    _assert_is_none,  # noqa: F401  found by its dotted name
    is_fx_symbolic_tracing,
    is_fx_tracing,
)
from engine.fx.wrapping import wrap
from engine.nn.modules.module import Module

__all__ = [
    "PH",
    "PHBase",
    "ProxyableClassMeta",
    "Tracer",
    "is_fx_symbolic_tracing",
    "is_fx_tracing",
    "symbolic_trace",
    "wrap",
]


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: Any = None) -> GraphModule:
    """Record what a module or function calls, without running it.

    Args:
        root: The module or function.
        concrete_args: Values that inputs have for good, by name; nested containers with `PH` where an input stays one.

    Returns:
        The `GraphModule`.

    Raises:
        TraceError: control flow depends on a value of an input.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
