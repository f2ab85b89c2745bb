"""Make a mean over pixels and the view behind it one call."""

from __future__ import annotations

from typing import Any

from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.programs.graph import bound, name, shape, single
from engine.programs.passes.fold_norms import stands_for, with_arguments

__all__ = ["flatten_means", "over_pixels"]


def over_pixels(given: dict[str, Any], ndim: int) -> bool:
    """Return whether the arguments of a mean, of (N, C, *size), ask for that over all of *size."""
    if given["dim"] is None or given["dtype"] is not None:
        return False
    dims = given["dim"] if isinstance(given["dim"], tuple | list) else (given["dim"],)
    return ndim > 2 and sorted(d % ndim for d in dims) == list(range(2, ndim))


def flatten_means(graph: Graph) -> None:
    """The mean over *size, then a view of the (N, C, 1, ...) as (N, C): the mean that is (N, C) at once."""
    for node in graph.nodes:
        if name(node) != "mean" or len(node.users) != 1:
            continue
        (after,) = node.users
        given = bound(node)
        source = given["input"]
        if not isinstance(source, Node) or not single(source) or not over_pixels(given, len(shape(source))):
            continue
        if not given["keepdim"] or name(after) not in ("view_size", "squeeze"):
            continue
        if shape(after) == shape(node)[:2]:
            given["keepdim"] = False
            with_arguments(node, given)
            stands_for(node, after)
