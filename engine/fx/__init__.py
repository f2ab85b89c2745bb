"""Programs as data: torch.fx's Graph of Nodes, made by tracing with Proxies, run as generated Python.

Note [Names in graphs] in `_names.py`, Note [Listening for proxies] in `_listening.py`, Note [Pickled graph modules] in
`graph_module.py`.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING, Any

from engine.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from engine.fx.graph import CodeGen, Graph
from engine.fx.graph_module import GraphModule
from engine.fx.interpreter import Interpreter, Transformer
from engine.fx.node import Node, has_side_effect, map_arg
from engine.fx.proxy import Proxy
from engine.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH",
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]

_MODULES = (
    "experimental",
    "graph",
    "graph_module",
    "immutable_collections",
    "interpreter",
    "node",
    "operator_schemas",
    "passes",
    "proxy",
    "subgraph_rewriter",
    "traceback",
)


if TYPE_CHECKING:
    from engine.fx import experimental as experimental
    from engine.fx import graph as graph
    from engine.fx import graph_module as graph_module
    from engine.fx import immutable_collections as immutable_collections
    from engine.fx import interpreter as interpreter
    from engine.fx import node as node
    from engine.fx import operator_schemas as operator_schemas
    from engine.fx import passes as passes
    from engine.fx import proxy as proxy
    from engine.fx import subgraph_rewriter as subgraph_rewriter
    from engine.fx import traceback as traceback
else:

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return _importlib.import_module(f"engine.fx.{name}")
        raise AttributeError(f"module 'torch.fx' has no attribute '{name}'")
