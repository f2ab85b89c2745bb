"""Fold a batch norm into the convolution or linear layer before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.programs.graph import array, bound, constant, name, reset, shape
from engine.programs.values import record_of

__all__ = ["fold_norms"]


def fold_norms(graph: Graph) -> None:
    """Replace a batch norm by another weight and bias of the layer that it alone reads."""
    for node in graph.nodes:
        source = node.args[0] if name(node) == "batch_norm_eval" and node.args else None
        if isinstance(source, Node) and name(source) in ("convolution", "linear") and list(source.users) == [node]:
            _fold(graph, node, source)


def _fold(graph: Graph, node: Node, layer: Node) -> None:
    norm, given = bound(node), bound(layer)
    axis = 1 if given.get("transposed") else 0
    if norm["input"] is not layer or (axis and given["groups"] != 1):
        return
    if name(layer) == "linear" and len(shape(layer)) != 2:
        return  # channels are not the last dim
    weight, bias = array(given["weight"]), array(given["bias"])
    numbers = [array(norm[n]) for n in ("running_mean", "running_var", "weight", "bias")]
    if weight is None or (bias is None and given["bias"] is not None) or weight.ndim < 2:
        return
    if any(a is None and norm[n] is not None for a, n in zip(numbers[2:], ("weight", "bias"))):
        return
    mean, var, scale, shift = numbers
    if mean is None or var is None:
        return
    factor = 1 / np.sqrt(var.astype(np.float64) + norm["eps"])
    if scale is not None:
        factor = factor * scale
    level = -mean * factor if bias is None else (bias - mean.astype(np.float64)) * factor
    if shift is not None:
        level = level + shift
    by = [1] * weight.ndim
    by[axis] = -1
    scaled = (weight * factor.reshape(by)).astype(weight.dtype)
    before = given["weight"]
    given["weight"] = constant(graph, np.ascontiguousarray(scaled), before)
    given["bias"] = constant(graph, level.astype(weight.dtype), before)
    with_arguments(layer, given)
    stands_for(layer, node)


def with_arguments(node: Node, given: dict[str, Any]) -> None:
    """Let a call have these arguments, by the op's names."""
    record = record_of(node.target)
    assert not isinstance(node.target, str)
    reset(node, node.target, tuple(given[p] for p in record.positional), {p: given[p] for p in record.keyword})


def stands_for(node: Node, after: Node) -> None:
    """Let a call give what the one after it gave, which is dropped."""
    after.replace_all_uses_with(node)
    node.meta.update({key: after.meta[key] for key in ("kind", "value", "derived") if key in after.meta})
    after.graph.erase_node(after)
