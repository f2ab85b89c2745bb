"""Which calls are layers that oneDNN computes, and which calls after one are a part of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from engine.fx.node import Node
from engine.programs.graph import array, bound, name, reads, single
from engine.programs.graph import shape as shape_of
from engine.programs.inference.layers import Fused, activation, pooling
from engine.programs.passes.flatten_means import over_pixels

if TYPE_CHECKING:
    from engine.programs.inference.lowering import _Lowering

__all__ = ["layer", "means", "pools"]

_F32 = np.dtype("float32")


def pools(lowering: _Lowering, call: Node) -> bool:
    """Return whether oneDNN pools so."""
    from engine.backends.onednn import arrays

    source = bound(call)["input"]
    shape, how = shape_of(source), pooling(call)
    if how is None or not single(source) or not math.prod(shape):
        return False
    if len(shape) not in (4, 5):
        return False
    return bool(arrays.pooling(lowering.example(source, True), lowering.example(call, True), *how))


def means(lowering: _Lowering, call: Node) -> bool:
    """Return whether it is the mean over pixels, (N, C, *size) -> (N, C)."""
    given = bound(call)
    source = given["input"]
    if given["keepdim"] or not isinstance(source, Node) or not single(source):
        return False
    shape = shape_of(source)
    return over_pixels(given, len(shape)) and bool(math.prod(shape))


def layer(lowering: _Lowering, position: int, call: Node) -> Fused | None:
    """A layer with constant float32 weights, and the calls after it that can be a part of it."""
    given = bound(call)
    source, weight = given["input"], array(given["weight"])
    if (
        not isinstance(source, Node)
        or weight is None
        or weight.dtype != _F32
        or weight.ndim < 2
        or not single(source)
        or (given["bias"] is not None and array(given["bias"]) is None)
        or not math.prod(shape_of(source))
        or not math.prod(shape_of(call))
        or (name(call) == "convolution" and not len(shape_of(source)) == weight.ndim in (3, 4, 5))
        or (name(call) == "linear" and weight.ndim != 2)
    ):
        return None
    fused = Fused(call, position)
    while len(fused.post) < 4:
        uses = lowering.consumers.get(fused.out, [])
        if len(uses) != 1 or fused.out in lowering.outputs or uses[0] in lowering.taken:
            break
        after = lowering.calls[uses[0]]
        before = fused.out, fused.position
        post = _follows(lowering, after, fused)
        if post is None or _written_between(lowering, fused, uses[0]):
            break
        fused.post.append(post)
        fused.out, fused.position = after, uses[0]
        if lowering.prepared(fused, *lowering.examples(fused), lowering.posts(fused, None)) is None:
            fused.post.pop()
            fused.out, fused.position = before
            break
        lowering.taken.add(uses[0])
    if not fused.post and (lowering.prepared(fused, *lowering.examples(fused), ()) is None):  # else tried already
        return None
    return fused


def _follows(lowering: _Lowering, call: Node, fused: Fused) -> tuple[object, ...] | None:
    if name(call) != "add":
        return activation(call)
    given = bound(call)
    left, right = given["input"], given["other"]
    if given["alpha"] != 1 or not isinstance(left, Node) or not isinstance(right, Node):
        return None
    if fused.others or shape_of(left) != shape_of(right):
        return None
    if call.meta["inplace"] and left is not fused.out:
        return None  # the other operand is what is written to
    other = right if left is fused.out else left
    return ("add", other) if single(other) else None


def _written_between(lowering: _Lowering, fused: Fused, until: int) -> bool:
    """Return whether something that the layer reads is written to before it would run."""
    groups = lowering.groups
    read = {groups[n] for n in fused.reads}
    return any(
        call.meta["inplace"] and groups[reads(call)[0]] in read
        for i, call in enumerate(lowering.calls[fused.position + 1 : until], fused.position + 1)
        if i not in lowering.taken
    )
