"""The calls of a module as a GraphDef of the package tensorboard."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.versions_pb2 import VersionDef

from engine.core.grad_mode import no_grad

if TYPE_CHECKING:
    from engine.jit.archive.listing import Listing, Node, Value

__all__ = ["graph"]


def graph(model: Any, args: Any, verbose: bool = False, use_strict_trace: bool = True) -> Any:
    """The GraphDef of what a module calls for an example of its input; verbose: print the graph.

    RuntimeError where the module cannot be called with it.
    """
    from engine import jit  # the compiler weighs: only who draws a graph pays

    training = getattr(model, "training", False)
    try:
        with no_grad():
            traced = jit.trace(model, args, check_trace=False, strict=use_strict_trace)
    except RuntimeError as error:
        raise RuntimeError(f"Error occurs, No graph saved: {error}") from error
    finally:
        with contextlib.suppress(AttributeError):
            model.train(training)
    found = traced.inlined_graph
    if verbose:
        print(found)
    return GraphDef(node=_nodes(found, model), versions=VersionDef(producer=22))


class _Names:
    """Names of nodes, folders and all: parameters by their path in the module, operations by their kind."""

    def __init__(self, model: Any) -> None:
        self.root = type(model).__name__
        self.of: dict[int, str] = {}
        self.count: dict[str, int] = {}

    def path(self, value: Value) -> str | None:
        """The dotted path of a module, parameter or buffer; None for other values."""
        node = value.node()
        if node.kind() == "prim::GetAttr":
            owner = self.path(node.input())
            return None if owner is None else f"{owner}/{node.s('name')}"
        return self.root if node.kind() == "prim::Param" and value.type().kind() == "ClassType" else None

    def name(self, value: Value) -> str:
        """The name of the node that makes a value."""
        known = self.of.get(id(value))
        if known is None:
            path = self.path(value)
            known = self.of[id(value)] = path if path is not None else self.fresh(value.node().kind(), value)
        return known

    def fresh(self, kind: str, value: Value) -> str:
        if kind == "prim::Param":
            return f"input/{value.debugName()}"
        self.count[kind] = self.count.get(kind, 0) + 1
        return f"{self.root}/{kind.replace('::', '_')}_{self.count[kind]}"


def _nodes(found: Listing, model: Any) -> list[Any]:
    names = _Names(model)
    made: dict[str, Any] = {}
    for value in found.inputs():
        if value.type().kind() != "ClassType":
            made[names.name(value)] = _node(names.name(value), "IO Node", [], value)
    for node in found.nodes():
        if node.kind() in ("prim::Constant", "prim::ListConstruct"):
            continue
        for value in node.outputs():
            if value.type().kind() == "ClassType":
                continue
            inputs = [] if node.kind() == "prim::GetAttr" else _inputs(node, names)
            made.setdefault(names.name(value), _node(names.name(value), node.kind(), inputs, value))
    for k, value in enumerate(found.outputs()):
        made[f"output/{k}"] = _node(f"output/{k}", "IO Node", [names.name(value)], value)
    return list(made.values())


def _inputs(node: Node, names: _Names) -> list[str]:
    """The nodes that a node reads: constants are part of it, those of its blocks are read through it."""
    found = []
    for value in node.inputs():
        kind = value.node().kind()
        if kind == "prim::ListConstruct":
            found += _inputs(value.node(), names)
        elif kind != "prim::Constant":
            found.append(names.name(value))
    return list(dict.fromkeys(found))


def _node(name: str, kind: str, inputs: list[str], value: Value) -> Any:
    constants = {}
    for position, given in enumerate(value.node().inputs()):
        if given.node().kind() == "prim::Constant":
            constants[str(position)] = repr(given.toIValue())
    text = ", ".join(f"{n}: {v}" for n, v in constants.items())
    return NodeDef(
        name=name,
        op=kind,
        input=inputs,
        attr={
            "attr": AttrValue(s=text.encode("utf-8")),
            "type": AttrValue(s=str(value.type()).encode("utf-8")),
        },
    )
