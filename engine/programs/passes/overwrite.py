"""Reuse of memory in a recorded step: an op may write over an operand that nothing reads any more.

Half of what a pass over a large array costs is that its result comes to memory that is not in the cache.  So an op with
an in-place twin, and a chain (fusing.py), write to an operand of the same shape that ends there, if an op of the
same program made it and no view of it was taken.  The values are the same.
"""

from __future__ import annotations

import operator

from engine.dispatch import OPS
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.ops import convolution as conv
from engine.ops import norm, pooling, products
from engine.ops.products import addmm as products_add

__all__ = ["of_results", "overwrite"]

# ops whose result is an array of its own, beside those that work element by element
_MAKE = frozenset(
    function.op
    for function in (
        products.mm,
        products.bmm,
        products.linear,
        products_add.addmm,
        conv.convolution,
        conv.convolution_backward_input,
        norm.batch_norm_train,
        norm.batch_norm_backward,
        norm.native_layer_norm_backward,
        pooling.max_pool_gradient,
    )
)
_HARDTANH, _INSIDE = OPS["hardtanh"].function, OPS["inside_backward"].function


def overwrite(graph: Graph) -> None:
    """Make ops write to what ends with them."""
    place = {node: n for n, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op != "call_function" or node.meta.get("inplace") or node.meta.get("effect"):
            continue
        if getattr(node.target, "into", 0) is None:
            for n, source in enumerate(node.args):
                if _ends(source, node, place):
                    node.target.into = n  # type: ignore[union-attr]
                    break
            continue
        record = getattr(node.target, "op", None)
        if record is None or record.inplace_function is None or node.kwargs:
            continue
        if getattr(node.target, "__name__", "") != record.called:
            continue
        args = node.args
        if record.commutative and len(args) == 2 and not _ends(args[0], node, place):
            args = args[::-1]
        if args and _ends(args[0], node, place) and record.blocks == "elements":
            node.target, node.args = record.inplace_function, args


def of_results(graph: Graph) -> None:
    """Let masks of the elements between two bounds read the bounded result, so that the operand can be freed."""
    for node in graph.nodes:
        if node.target is not _HARDTANH or len(node.args) != 3 or node.kwargs:
            continue
        source, low, high = node.args
        if not isinstance(source, Node) or not low <= high:
            continue
        for user in list(source.users):
            if user.target is _INSIDE and user.args[1] is source and user.args[2:4] == (low, high) and node < user:
                user.args = (user.args[0], node, *user.args[2:])


def _ends(source: object, node: Node, place: dict[Node, int]) -> bool:
    """Return whether `node` is the last to read a value that it may write over."""
    if not isinstance(source, Node) or not _made(source) or source.meta["kind"] != node.meta.get("kind"):
        return False
    if bool(source.meta.get("later")) != bool(node.meta.get("later")) or not source.meta["kind"][0]:
        return False
    if sum(1 for n in node.args if n is source) != 1:
        return False
    users = list(source.users)
    if any(u.op != "call_function" or u.meta.get("view") or u.meta.get("inplace") for u in users):
        return False
    return all(place[u] <= place[node] for u in users)


def _made(source: Node) -> bool:
    """Return whether a value is an array of its own, made by the program."""
    if source.target is operator.getitem:
        maker, position = source.args
        return position == 0 and isinstance(maker, Node) and getattr(maker.target, "op", None) in _MAKE
    if source.op != "call_function" or source.meta.get("inplace") or source.meta.get("view"):
        return False
    if hasattr(source.target, "into"):
        return True
    record = getattr(source.target, "op", None)
    return record is not None and not record.view and (record.blocks == "elements" or record in _MAKE)
