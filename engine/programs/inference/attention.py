"""Attention of a plan with what is around it: the views that make heads of what linear layers gave, and back.

Op by op a layer of BERT at batch 1 has three products of one input, six views, and a call whose kernels ask anew each
time where everything is.  Here the products are one, views are made once, when the memory of the plan is known, and
what is left are two products and a softmax at fixed addresses.  A batch goes through them a few images at a time, so
that scores stay in cache.  Products and softmax that a model calls by itself are the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from engine.core.layouts import dense_order
from engine.dispatch import OPS
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.programs.graph import array, bound, calls_of, constant, kind, maker, name, reads, shape, single, tensors_of
from engine.programs.graph import written as written_between
from engine.programs.inference.plan import Environment, generic
from engine.tensor import raw_array, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array

__all__ = ["Attention", "compute", "find", "join_layers", "scores"]

_NEAR = 1 << 18  # scores of the images that go together, 1 MB
_COPIES = frozenset(["clone", "reshape_copy"])  # of a result in the layout they would give it: no copy
_CALLS = ("attention", "attention_inference")
_PRODUCTS = ("batched", "bmm")


class _Pattern:
    """`softmax(query @ key * scale + mask) @ value`: a call of `attention`, or the calls of products and a softmax.

    calls: all of them, the last of which gives `out`.  weights: the node, or the shape, of what softmax gives.
    transposed: whether `key` has a column for each key, as the second operand of a product has.
    """

    def __init__(
        self, calls: list[Node], out: Node, operands: tuple[Node, Node, Node], mask: object, scale: float
    ) -> None:
        self.calls, self.out, self.operands, self.mask, self.scale = calls, out, operands, mask, scale
        self.transposed = len(calls) > 1
        self.last = calls[-1]
        self.shape: tuple[int, ...] = ()  # of the scores

    @property
    def blind(self) -> bool:
        """Return whether rows that see nothing are zeros; nan of a softmax."""
        return not self.transposed


class Attention:
    """Attention and the views before and after it.  It reads the results of linear layers, `layers`, and
    `mask`, an array, or the node of a value, or None; `out` is laid out as rows."""

    image = makes_image = False
    others = ()

    def __init__(self, pattern: _Pattern, calls: list[Node], before: list[Node], after: list[Node], layers: list[Node]):
        place = {call: i for i, call in enumerate(calls)}
        self.pattern, self.call, self.layers = pattern, pattern.last, layers
        self.before, self.after = before, after
        self.position = place[pattern.last]
        self.positions = sorted(place[call] for call in (*before, *pattern.calls, *after))
        self.out = after[-1]
        mask = pattern.mask
        self.mask = mask if mask is None or array(mask) is None else array(mask)
        self.deferred: list[Node] = [self.mask] if isinstance(self.mask, Node) else []
        self.reads = layers + self.deferred

    def arrays(self, made: dict[Node, np.ndarray]) -> list[np.ndarray] | None:
        """Query, key and value as views of the results that are read; None if one is a copy."""
        values = self._replayed(self.before, made)
        found = [raw_array(values[n]).view(np.ndarray) for n in self.pattern.operands]
        if self.pattern.transposed:
            found[1] = found[1].swapaxes(-1, -2)
        shared = all(any(np.may_share_memory(a, b) for b in made.values()) for a in found)
        return found if shared else None

    def result(self, out: np.ndarray, query: np.ndarray) -> np.ndarray | None:
        """The array that attention gives, in the memory of `out`; None if the views after it do not lead there.

        Its dims lie in the order of those of the query, as the op has it.
        """
        size = shape(self.pattern.out)
        order = dense_order(query)
        if out.size != math.prod(size):
            return None
        dims = out.reshape([size[d] for d in order])
        made = dims.transpose([order.index(d) for d in range(len(order))])
        values = self._replayed(self.after, {self.pattern.out: made})
        last = raw_array(values[self.out])
        same = last.flags.c_contiguous and last.__array_interface__["data"] == out.__array_interface__["data"]
        return made if same else None

    def _replayed(self, calls: list[Node], made: dict[Node, np.ndarray]) -> Environment:
        values: Environment = {node: wrap(found) for node, found in made.items()}
        for call in calls:
            if name(call) in _COPIES:
                values[call] = wrap(raw_array(values[reads(call)[0]]).reshape(shape(call)))
            else:
                generic(call).run(values)
        return values

    def images(self) -> int:
        """Return the number of images computed together: a divisor of the first dim, which all scores have."""
        size = self.pattern.shape
        most = max(1, _NEAR * size[0] // max(1, math.prod(size)))
        return max(n for n in range(1, size[0] + 1) if size[0] % n == 0 and n <= most)


# --- which calls are attention


def _patterns(graph: Graph) -> list[_Pattern]:
    """The attention of a graph, in order, whatever is around it."""
    found = []
    for call in calls_of(graph):
        made = _called(call) if name(call) in _CALLS else _written(graph, call) if name(call) in _PRODUCTS else None
        if made is not None and len(made.shape) >= 3:
            found.append(made)
    return found


def _called(call: Node) -> _Pattern | None:
    """A call of attention, whose weights nothing reads."""
    given, (out, *weights) = bound(call), tensors_of(call)
    if given.get("noise") is not None or out is None or any(one is not None for one in weights):
        return None
    operands = given["query"], given["key"], given["value"]
    if not all(single(value) for value in reads(call)):
        return None
    made = _Pattern([call], out, operands, given["mask"], float(given["scale"]))
    made.shape = (*shape(operands[0])[:-1], shape(operands[1])[-2])
    return made


def _written(graph: Graph, last: Node) -> _Pattern | None:
    """A product of softmax's result: attention that a model wrote out."""
    calls = [last]

    def made_of(value: object) -> Node | None:
        """Return the call that makes a value with no other reader; None without one."""
        if (
            not isinstance(value, Node)
            or value.op != "call_function"
            or len(value.users) != 1
            or "kind" not in value.meta
        ):
            return None
        (user,) = value.users
        if reads(user).count(value) > 1 or user.op == "output":
            return None
        calls.append(value)
        return value

    given = bound(last)
    weights, value = given["input"], given["mat2" if name(last) == "bmm" else "other"]
    soft = made_of(weights)
    if soft is None or name(soft) != "softmax" or not isinstance(value, Node):
        return None
    given = bound(soft)
    size = shape(soft)
    if given["dim"] not in (-1, len(size) - 1) or given.get("dtype") is not None:
        return None
    mask, scale, inner = None, 1.0, made_of(given["input"])
    if inner is not None and name(inner) == "add":
        given = bound(inner)
        sides = [given["input"], given["other"]]
        if given["alpha"] != 1 or not all(isinstance(side, Node) for side in sides):
            return None
        of_scores = [shape(s) == size and name(s) in (*_PRODUCTS, "mul", "true_div") for s in sides]
        if not any(of_scores) or (inner.meta["inplace"] and not of_scores[0]):
            return None
        mask = sides[of_scores[0]]
        if not single(mask) or written_between(graph, mask, (inner, last)):
            return None
        inner = made_of(sides[not of_scores[0]])
    while inner is not None and name(inner) in ("mul", "true_div"):
        given = bound(inner)
        by = given["other"]
        if not isinstance(by, int | float) or isinstance(by, bool) or not by:
            return None
        scale = scale * by if name(inner) == "mul" else scale / by
        inner = made_of(given["input"])
    if inner is None or name(inner) not in _PRODUCTS:
        return None
    given = bound(inner)
    query, key = given["input"], given["mat2" if name(inner) == "bmm" else "other"]
    if not isinstance(query, Node) or not isinstance(key, Node):
        return None
    if len({shape(v)[:-2] for v in (query, key, value)}) > 1 or not all(map(single, (query, key, value))):
        return None
    made = _Pattern(calls[::-1], last, (query, key, value), mask, scale)
    made.shape = size
    return made


def find(graph: Graph) -> dict[int, Attention]:
    """Find the attention layers of a graph that a kernel serves, by the position of their call."""
    calls = calls_of(graph)
    found = [_entry(pattern, calls) for pattern in _patterns(graph)]
    return {made.position: made for made in found if made is not None}


def join_layers(graph: Graph) -> None:
    """Make linear layers of one input, whose results attention reads, one layer, whose result is split."""
    for pattern in _patterns(graph):
        made = _entry(pattern, calls_of(graph))
        by_input: dict[Node, list[Node]] = {}
        for layer in made.layers if made is not None else ():
            source = bound(layer)["input"]
            if isinstance(source, Node):
                by_input.setdefault(source, []).append(layer)
        for source, together in by_input.items():
            if len(together) > 1 and not written_between(graph, source, together):
                _join(graph, source, together)


def _entry(pattern: _Pattern, calls: list[Node]) -> Attention | None:
    made = _found(pattern, calls)
    return made if made is not None and _example(made) is not None else None


def _found(pattern: _Pattern, calls: list[Node]) -> Attention | None:
    """Attention with linear layers and views before it, and views after it that make rows; None without these."""
    region = _region(pattern, calls)
    if region is None:
        return None
    after: list[Node] = []
    value = pattern.out
    while len(value.users) == 1:
        (user,) = value.users
        copies = name(user) in _COPIES and not _turns(user)
        if not name(user) or not (user.meta["view"] or copies) or user.meta["inplace"] or "kind" not in user.meta:
            break
        after.append(user)
        value = user
    if not after or any(u.op == "output" or u.meta.get("view") or u.meta.get("inplace") for u in value.users):
        return None
    return Attention(pattern, calls, region[0], after, region[1])


def _region(pattern: _Pattern, calls: list[Node]) -> tuple[list[Node], list[Node]] | None:
    """The views that the operands are, and the linear layers behind these; None where there is something else, or
    anybody else reads one of them."""
    views: set[Node] = set()
    layers: set[Node] = set()
    left = list(pattern.operands)
    while left:
        call = maker(left.pop())
        if call is None:
            return None
        if name(call) == "linear":
            layers.add(call)
        elif call.meta["view"] and not call.meta["inplace"] and len(reads(call)) == 1:
            views.add(call)
            left += reads(call)
        else:
            return None
    inside = views | set(pattern.calls)
    for value in (value for call in views | layers for value in tensors_of(call)):
        if value is not None and any(user not in inside for user in value.users):
            return None
    place = {call: i for i, call in enumerate(calls)}
    return sorted(views, key=place.__getitem__), sorted(layers, key=place.__getitem__)


def _turns(call: Node) -> bool:
    """Return whether a copy is to lie otherwise than in torch's order."""
    return "channels_last" in str(bound(call).get("memory_format"))


# --- its step


def _example(entry: Attention) -> Callable[[Array | None], None] | None:
    """Build the function of an attention layer for arrays of its sizes; None if no kernel serves it."""
    made = {n: np.empty(shape(n), np.float32) for n in entry.layers}
    return compute(entry, made, np.empty(shape(entry.out), np.float32), None)


def compute(
    entry: Attention, made: dict[Node, np.ndarray], out: np.ndarray, buffer: np.ndarray | None
) -> Callable[[Array | None], None] | None:
    """Build the function that computes `out` from the results of layers, at these addresses, given the mask, if that is
    none of the module's; None where oneDNN has no kernel for it.

    buffer: for scores, as many as `scores` says, in float32; without it nothing is computed.
    """
    from engine.backends.onednn import prepared
    from engine.kernels import processor

    operands = entry.arrays(made)
    if operands is None:
        return None
    result = entry.result(out, operands[0])
    if result is None:
        return None
    size = scores(entry)
    weights = np.empty(size, np.float32) if buffer is None else buffer[: math.prod(size)].reshape(size)
    pattern = entry.pattern
    query, key, value = operands
    by_library = prepared.attention(query, key, value, result, weights, pattern.scale, entry.mask, pattern.blind)
    if by_library is None or (entry.mask is not None and not pattern.blind) or not processor.available():
        return by_library
    from engine.ops.attention import generated

    held = entry.mask if isinstance(entry.mask, np.ndarray) else None

    def run(given: Array | None = None) -> None:
        mask = held if given is None else given
        route = generated.route(query, key, value, mask)
        if route is None or route.disabled:
            by_library(given)
        elif route.proven:
            route.run(query, key, value, mask, pattern.scale, result)
        else:
            mine = lambda: route.run(query, key, value, mask, pattern.scale, result).copy()
            plain = lambda: (by_library(given), result.copy())[1]
            np.copyto(result, route.chosen(mine, plain, operands))

    return run


def scores(entry: Attention) -> tuple[int, ...]:
    """The shape of the scores of the images that go together."""
    return (entry.images(), *entry.pattern.shape[1:])


# --- layers of one input


def _join(graph: Graph, source: Node, layers: list[Node]) -> None:
    given = [bound(layer) for layer in layers]
    weights = [array(one["weight"]) for one in given]
    biases = [array(one["bias"]) for one in given]
    if any(w is None or w.ndim != 2 or w.dtype != np.float32 for w in weights):
        return
    if any(b is None and one["bias"] is not None for b, one in zip(biases, given)):
        return
    if any(b is not None and (b.dtype != np.float32 or b.shape != w.shape[:1]) for b, w in zip(biases, weights)):
        return
    first, wide = layers[0], [len(w) for w in weights]
    before = given[0]["weight"]
    weight = constant(graph, np.concatenate(weights), before)
    bias = None
    if any(b is not None for b in biases):
        parts = [np.zeros(len(w), np.float32) if b is None else b for b, w in zip(biases, weights)]
        bias = constant(graph, np.concatenate(parts), before)
    size, dtype = kind(first)
    with graph.inserting_before(first):
        whole = graph.call_function(OPS["linear"].function, (source, weight, bias))
        whole.meta = {**first.meta, "kind": ((*size[:-1], sum(wide)), dtype)}
        whole.meta.pop("value", None)
        split = graph.call_function(OPS["split_with_sizes"].function, (whole, wide, -1))
        kinds = [layer.meta["kind"] for layer in layers]
        split.meta = {**first.meta, "view": True, "kinds": kinds}
        del split.meta["kind"]
        parts_of = [graph.call_function(operator.getitem, (split, i)) for i in range(len(layers))]
    for i, (part, layer) in enumerate(zip(parts_of, layers)):
        part.meta = {**layer.meta, "view": True, "part": i}
        layer.replace_all_uses_with(part)
        graph.erase_node(layer)
