"""Drop products with the seed of a backward pass, which is all ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.dispatch import OPS
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.programs.passes.fuse_chains import writes
from engine.programs.training.step import accumulate_grad

if TYPE_CHECKING:
    from engine.core.arrays import Array

__all__ = ["are_ones", "without_ones"]


def are_ones(array: Array) -> bool:
    """Return whether all elements of a small array, of floats, are 1."""
    return array.dtype.kind == "f" and 0 < array.size <= 64 and bool(np.all(array == 1))


def without_ones(graph: Graph, ones: set[Node]) -> None:
    """Replace products with `ones` (placeholders), and with what they are expanded to, by the other factor.

    Nothing may write to either from there to where the product is read last.
    """
    ones = set(ones)
    place = {node: n for n, node in enumerate(graph.nodes)}
    written = [n for node, n in place.items() if writes(node)]
    leaves = {n.args[0] for n in graph.nodes if n.target is accumulate_grad}
    for node in list(graph.nodes):
        if node.op != "call_function" or node.meta.get("inplace") or node.kwargs:
            continue
        record = getattr(node.target, "op", None)
        if record is OPS["expand"] and node.args[0] in ones:
            ones.add(node)
        if record is not OPS["mul"] or len(node.args) != 2:
            continue
        first, second = node.args
        other = second if first in ones else first if second in ones else None
        if not isinstance(other, Node) or other.meta.get("kind") != node.meta["kind"] or not node.users:
            continue
        if not _still(other, leaves) or not all(map(_reads, node.users)):
            continue
        last = max(place[user] for user in node.users)
        if not any(place[node] < n <= last for n in written):
            node.replace_all_uses_with(other)
            graph.erase_node(node)


def _still(node: Node, leaves: set[object]) -> bool:
    """Return whether the program makes a value, as an array of its own, or finds it as a leaf: no gradient adds to
    that.
    """
    if node.op == "placeholder":
        return node in leaves
    return node.op == "call_function" and not any(map(node.meta.get, ("view", "inplace", "effect")))


def _reads(user: Node) -> bool:
    """Return whether a call only reads an operand, and makes what is not a part of it."""
    if user.target is accumulate_grad:
        return True
    return user.op == "call_function" and not any(map(user.meta.get, ("view", "inplace", "effect")))
