"""Attention of a plan with what is around it: the views that make heads of what linear layers gave, and back.

Op by op a layer of BERT at batch 1 has three products of one input, six views, and a call whose kernels ask anew each
time where everything lies.  Here the products are one, views are made once, when the memory of the plan is known, and
what is left are two products and a softmax at fixed addresses.  A batch goes through them a few images at a time, so
that scores stay in cache.  Products and softmax that a model calls by itself are the same (`gather`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.dispatch import OPS
from engine.layouts import dense_order
from engine.plan.graph import Graph
from engine.plan.tracing import Call, Ref
from engine.tensor import raw_array, wrap

__all__ = ["Attention", "compute", "find", "gather", "scores", "standing_for"]

_NEAR = 1 << 18  # scores of the images that go together, 1 MB
_COPIES = frozenset(["clone", "reshape_copy"])  # of a result which lies as they would have it they are that result


class Attention:
    """A call of `attention` and the views before and after it.  It reads the results of linear layers, `layers`, and
    `mask`, an array, or the number of a value, or None; `out` lies as rows."""

    image = makes_image = False
    others = ()

    def __init__(self, graph: Graph, position: int, before: Sequence[int], after: Sequence[int], layers: list[int]):
        calls = graph.calls
        self.graph, self.position, self.call, self.layers = graph, position, calls[position], layers
        self.before, self.after = [calls[i] for i in before], [calls[i] for i in after]
        self.positions = [*before, position, *after]
        self.out = self.after[-1].outputs[0]
        given = self.call.bound()
        self.operands = [given[name].index for name in ("query", "key", "value")]
        self.scale, mask = float(given["scale"]), given["mask"]
        self.mask = graph.array(mask) if mask is None or graph.array(mask) is not None else mask.index
        self.late = [self.mask] if isinstance(self.mask, int) else []
        self.reads = layers + self.late
        self.blind = not isinstance(self.call, _Gathered)  # rows that see nothing are zeros

    def arrays(self, made: dict[int, np.ndarray], run: Callable[[Call], Any]) -> list[np.ndarray] | None:
        """Query, key and value as views of the results that are read; None if one is a copy.

        run(call): what runs an op on a list of Tensors.
        """
        values = self._replayed(self.before, made, run)
        found = [raw_array(values[n]).view(np.ndarray) for n in self.operands]
        lies = all(any(np.may_share_memory(a, b) for b in made.values()) for a in found)
        return found if lies else None

    def result(self, out: np.ndarray, query: np.ndarray, run: Callable[[Call], Any]) -> np.ndarray | None:
        """The array that attention gives, in the memory of `out`; None if the views after it do not lead there.

        Its dims lie in the order of those of the query, as the op has it.
        """
        shape = self.graph.shape(self.call.outputs[0])
        order = dense_order(query)
        if out.size != math.prod(shape):
            return None
        dims = out.reshape([shape[d] for d in order])
        made = dims.transpose([order.index(d) for d in range(len(order))])
        values = self._replayed(self.after, {self.call.outputs[0]: made}, run)
        last = raw_array(values[self.out])
        same = last.flags.c_contiguous and last.__array_interface__["data"] == out.__array_interface__["data"]
        return made if same else None

    def _replayed(self, calls: list[Call], made: dict[int, np.ndarray], run: Callable[[Call], Any]) -> list[Any]:
        values: list[Any] = [None] * self.graph.size
        for number, array in made.items():
            values[number] = wrap(array)
        for call in calls:
            if call.op.name in _COPIES:
                out = call.outputs[0]
                values[out] = wrap(raw_array(values[call.refs[0]]).reshape(self.graph.shape(out)))
            else:
                run(call)(values)
        return values

    def images(self) -> int:
        """How many go together: of the first dim, which all scores have."""
        shape = self.graph.shape(self.call.outputs[1])
        most = max(1, _NEAR * shape[0] // max(1, math.prod(shape)))
        return max(n for n in range(1, shape[0] + 1) if shape[0] % n == 0 and n <= most)


def _region(graph: Graph, position: int, consumers: dict[int, list[int]]) -> tuple[list[int], list[int]] | None:
    """The positions of the views that the operands of a call of attention are, and of the linear layers behind these;
    None where there is something else, or anybody else reads one of them."""
    call = graph.calls[position]
    given = call.bound()
    makers = {out: i for i, made in enumerate(graph.calls[:position]) for out in made.outputs}
    views: set[int] = set()
    layers: set[int] = set()
    left = [given[name] for name in ("query", "key", "value")]
    while left:
        value = left.pop()
        at = makers.get(value.index) if isinstance(value, Ref) else None
        if at is None:
            return None
        maker = graph.calls[at]
        if maker.op.name == "linear":
            layers.add(at)
        elif maker.op.view and not maker.inplace and len(maker.refs) == 1:
            views.add(at)
            left.append(Ref(maker.refs[0]))
        else:
            return None
    for out in (o for at in views | layers for o in graph.calls[at].outputs):
        if out in graph.outputs or any(user not in views and user != position for user in consumers.get(out, ())):
            return None
    return sorted(views), sorted(layers)


class _Gathered(Call):
    """Attention that stands for products and a softmax, `calls`; `turned` gives its key."""

    __slots__ = ("calls", "turned")
    calls: list[Call]
    turned: Call


def gather(graph: Graph) -> None:
    """Make `softmax(query @ turned key * scale + mask) @ value`, where that can be a step of a plan, a call."""
    for last in [c for c in graph.calls if c.op.name in ("batched", "bmm")]:
        made = _gathered(graph, last)
        if made is None:
            continue
        before = graph.calls
        at = before.index(last)
        graph.calls = [c for c in before[:at] if c not in made.calls] + [made.turned, made] + before[at + 1 :]
        if _found(graph, graph.calls.index(made), graph.consumers()) is None:
            graph.calls = before


def _gathered(graph: Graph, last: Call) -> _Gathered | None:
    """Attention instead of the calls of which the last is a product."""
    consumers = graph.consumers()
    makers = {out: call for call in graph.calls for out in call.outputs}
    calls = [last]

    def maker(value: Any) -> Call | None:
        """What makes a value that nobody else reads."""
        if not isinstance(value, Ref) or value.index in graph.outputs or len(consumers.get(value.index, ())) != 1:
            return None
        call = makers.get(value.index)
        if call is not None:
            calls.append(call)
        return call

    given = last.bound()
    weights, value = given["input"], given["mat2" if last.op.name == "bmm" else "other"]
    soft = maker(weights)
    if soft is None or soft.op.name != "softmax" or not isinstance(value, Ref):
        return None
    given = soft.bound()
    shape = graph.shape(soft.outputs[0])
    if given["dim"] not in (-1, len(shape) - 1) or given.get("dtype") is not None:
        return None
    mask, scale, inner = None, 1.0, maker(given["input"])
    if inner is not None and inner.op.name == "add":
        given = inner.bound()
        sides = [given["input"], given["other"]]
        if given["alpha"] != 1 or not all(isinstance(side, Ref) for side in sides):
            return None
        of_scores = [graph.shape(s.index) == shape and _of_scores(makers.get(s.index)) for s in sides]
        if not any(of_scores) or (inner.inplace and not of_scores[0]):
            return None
        mask = sides[of_scores[0]]
        if not graph.single(mask.index) or graph.written(mask.index, (inner, last)):
            return None
        inner = maker(sides[not of_scores[0]])
    while inner is not None and inner.op.name in ("mul", "true_div"):
        given = inner.bound()
        by = given["other"]
        if not isinstance(by, int | float) or isinstance(by, bool) or not by:
            return None
        scale = scale * by if inner.op.name == "mul" else scale / by
        inner = maker(given["input"])
    if inner is None or inner.op.name not in ("batched", "bmm"):
        return None
    given = inner.bound()
    query, key = given["input"], given["mat2" if inner.op.name == "bmm" else "other"]
    if not isinstance(query, Ref) or not isinstance(key, Ref):
        return None
    sizes = [graph.shape(v.index) for v in (query, key, value)]
    if len({size[:-2] for size in sizes}) > 1 or not all(graph.single(v.index) for v in (query, key, value)):
        return None
    *lead, depth, length = sizes[1]
    turned = graph.value((*lead, length, depth))
    function = OPS["attention"].function
    call = _Gathered(
        function, (query, Ref(turned), value, mask, None, scale), {}, [last.outputs[0], soft.outputs[0]], False
    )
    call.calls = [c for c in graph.calls if c in calls]
    call.turned = Call(OPS["transpose"].function, (key, -2, -1), {}, [turned], False)
    return call


def _of_scores(call: Call | None) -> bool:
    return call is not None and call.op.name in ("batched", "bmm", "mul", "true_div")


def find(graph: Graph, run: Callable[[Call], Any]) -> dict[int, Attention]:
    """What of a graph is such attention, by the position of its call; its layers of one input are one.

    What was gathered in vain is as it was.
    """

    def entry(call: Call) -> Attention | None:
        made = _found(graph, graph.calls.index(call), graph.consumers())
        return made if made is not None and _example(made, run) is not None else None

    found: dict[int, Attention] = {}
    served = []
    for call in [c for c in graph.calls if c.op.name == "attention"]:
        if entry(call) is not None:
            _join_layers(graph, call)
            served.append(call)
        elif isinstance(call, _Gathered):
            at = graph.calls.index(call)
            graph.calls[at : at + 1] = call.calls
            graph.calls.remove(call.turned)
    for call in served:
        made = entry(call)
        if made is not None:
            found[made.position] = made
    return found


def standing_for(call: Call) -> list[Call]:
    """The calls that one stands for."""
    return call.calls if isinstance(call, _Gathered) else [call]


def _found(graph: Graph, position: int, consumers: dict[int, list[int]]) -> Attention | None:
    call = graph.calls[position]
    given = call.bound()
    if given["noise"] is not None or call.outputs[1] in graph.outputs or len(graph.shape(call.outputs[1])) < 3:
        return None
    region = _region(graph, position, consumers)
    if region is None or consumers.get(call.outputs[1]) or not all(graph.single(n) for n in call.refs):
        return None
    after: list[int] = []
    number = call.outputs[0]
    while number not in graph.outputs and len(uses := consumers.get(number, ())) == 1:
        user = graph.calls[uses[0]]
        copies = user.op.name in _COPIES and not _turns(user)
        if not (user.op.view or copies) or user.inplace or len(user.outputs) != 1:
            break
        after.append(uses[0])
        number = user.outputs[0]
    users = [graph.calls[at] for at in consumers.get(number, ())]
    if not after or number in graph.outputs or any(user.op.view or user.inplace for user in users):
        return None
    views, layers = region
    return Attention(graph, position, views, after, [graph.calls[i].outputs[0] for i in layers])


def _example(entry: Attention, run: Callable[[Call], Any]) -> Any:
    """What computes it, for arrays as it will have them; None if nothing does."""
    graph = entry.graph
    made = {n: np.empty(graph.shape(n), np.float32) for n in entry.layers}
    return compute(entry, made, np.empty(graph.shape(entry.out), np.float32), None, run)


def _turns(call: Call) -> bool:
    """Whether a copy is to lie otherwise than in torch's order."""
    return "channels_last" in str(call.bound().get("memory_format"))


def compute(
    entry: Attention, made: dict[int, np.ndarray], out: np.ndarray, room: np.ndarray | None, run: Callable[[Call], Any]
) -> Callable[[Any], None] | None:
    """What computes `out` from the results of layers, at these addresses, given the mask, if that is none of the
    module's; None where oneDNN has no kernel for it.

    room: for scores, as many as `scores` says, in float32; without it nothing is computed.
    """
    from engine.backends.onednn import prepared

    operands = entry.arrays(made, run)
    if operands is None:
        return None
    result = entry.result(out, operands[0], run)
    if result is None:
        return None
    shape = scores(entry)
    weights = np.empty(shape, np.float32) if room is None else room[: math.prod(shape)].reshape(shape)
    return prepared.attention(*operands, result, weights, entry.scale, entry.mask, entry.blind)


def scores(entry: Attention) -> tuple[int, ...]:
    """The shape of the scores of the images that go together."""
    return (entry.images(), *entry.graph.shape(entry.call.outputs[1])[1:])


def _join_layers(graph: Graph, call: Call) -> None:
    """Make linear layers of one input, whose results attention reads, one layer, whose result is split."""
    region = _region(graph, graph.calls.index(call), graph.consumers())
    by_input: dict[int, list[Call]] = {}
    for layer in [graph.calls[i] for i in region[1]] if region is not None else []:
        source = layer.bound()["input"]
        if isinstance(source, Ref):
            by_input.setdefault(source.index, []).append(layer)
    for together in by_input.values():
        if len(together) > 1:
            _join(graph, together)


def _join(graph: Graph, layers: list[Call]) -> None:
    given = [layer.bound() for layer in layers]
    weights = [graph.array(one["weight"]) for one in given]
    biases = [graph.array(one["bias"]) for one in given]
    if any(w is None or w.ndim != 2 or w.dtype != np.float32 for w in weights):
        return
    if any(b is None and one["bias"] is not None for b, one in zip(biases, given)):
        return
    if any(b is not None and (b.dtype != np.float32 or b.shape != w.shape[:1]) for b, w in zip(biases, weights)):
        return
    first, wide = layers[0], [len(w) for w in weights]
    if graph.written(given[0]["input"].index, layers):
        return  # not one input, then
    weight = graph.constant(np.concatenate(weights))
    bias = None
    if any(b is not None for b in biases):
        parts = [np.zeros(len(w), np.float32) if b is None else b for b, w in zip(biases, weights)]
        bias = graph.constant(np.concatenate(parts))
    whole = graph.value((*graph.shape(first.outputs[0])[:-1], sum(wide)))
    split = Call(OPS["split_with_sizes"].function, (Ref(whole), wide, -1), {}, [c.outputs[0] for c in layers], False)
    at = graph.calls.index(first)
    graph.calls[at : at + 1] = [Call(first.function, (given[0]["input"], weight, bias), {}, [whole], False), split]
    for layer in layers[1:]:
        graph.calls.remove(layer)
