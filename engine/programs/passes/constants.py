"""Values that do not depend on the inputs, and calls that nothing reads."""

from __future__ import annotations

from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.programs.graph import constant, first_call, memory, reads

__all__ = ["compute_constants", "drop_unused", "drop_unused_constants"]


def compute_constants(graph: Graph, results: bool = True) -> None:
    """Replace calls that do not depend on the inputs by what they gave, unless a call writes to that or it is a result.

    The elements of what the run made without an op, and writes to or gives away, are made anew at each call: it stays
    `fresh`.  results: whether results are made anew, too, instead of being one constant for all calls.
    """
    root = memory(graph)
    touched = {root[node] for node in reads(graph.output_node())} if results else set()
    touched |= {root[reads(node)[0]] for node in graph.nodes if node.meta.get("inplace")}
    for node in graph.nodes:
        if "fresh" in node.meta and node not in touched:
            del node.meta["fresh"]
            node.meta["constant"] = node.meta["value"]
    first = first_call(graph)
    for node in graph.nodes:
        if node.op != "call_function" or any(map(node.meta.get, ("derived", "inplace", "effect"))):
            continue
        made = _tensors(node)
        if any(one.meta.get("derived") or root[one] in touched or "value" not in one.meta for one in made):
            continue
        for one in made:
            if one.users:
                one.replace_all_uses_with(constant(graph, one.meta["value"], first))
    drop_unused(graph)


def _tensors(node: Node) -> list[Node]:
    """The nodes of the tensors that a call gives."""
    return [node] if "kind" in node.meta else [one for user in node.users for one in _tensors(user)]


def drop_unused(graph: Graph) -> None:
    """Drop the calls that nothing reads and that do nothing else."""
    for node in reversed(graph.nodes):
        if not node.users and node.op not in ("placeholder", "output") and not node.meta.get("effect"):
            graph.erase_node(node)


def drop_unused_constants(graph: Graph) -> None:
    """Drop the constants that nothing reads."""
    for node in graph.nodes:
        if node.op == "placeholder" and "constant" in node.meta and not node.users:
            graph.erase_node(node)
