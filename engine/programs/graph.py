"""A recorded program as `fx.Graph`, and what passes ask of its nodes.

The placeholders are the inputs, then the constants.  `node.meta` says of a node:
    kind: (shape, dtype) of its tensor, as numpy has them; not of several tensors, of `kinds`, each of which is a
    `getitem` node, the `part` of that number
    constant: the tensor that a placeholder stands for.  fresh: the elements that it had, where the run made it
    value: the tensor that the run gave, where the recorder holds it.  derived: whether it depends on the inputs
    view: whether it is in the memory of its first operand.  inplace: whether it writes to that, and is it then
    effect: whether it must run, even if nothing reads it.  later: whether it is a part of the backward program
    cotangent: of an input, whether it is a gradient that the backward program takes
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.dispatch import Op
from engine.fx.graph import Graph
from engine.fx.node import Node, nodes_in
from engine.programs.recorder import Recorder
from engine.programs.values import Call, Ref, Unsupported, mapped, record_of, refs_in, setitem
from engine.tensor import Tensor, raw_array, wrap

if TYPE_CHECKING:
    from engine.dispatch.record import Public

__all__ = [
    "array",
    "bound",
    "calls_of",
    "check",
    "constant",
    "first_call",
    "graph_of",
    "inputs",
    "insert_call",
    "kind",
    "maker",
    "memory",
    "name",
    "op",
    "plain",
    "reads",
    "reset",
    "shape",
    "single",
    "tensors_of",
    "written",
]

_F32 = np.dtype("float32")


def graph_of(
    recorder: Recorder,
    outputs: object,
    boundary: int | None = None,
    cotangents: int = 0,
    target: Callable[[Call], Public] = lambda call: call.function,
    nodes: dict[int, Node] | None = None,
    names: Sequence[str] = (),
) -> Graph:
    """The graph of what was recorded, which gives `outputs` (Refs, nested).

    boundary: how many calls are the first program.  cotangents: how many of the inputs, the last, are gradients.
    target(call): the function that its node calls.  nodes: gets the node of each value of the recorder.
    names: those of the first inputs.
    """
    graph = Graph()
    nodes = {} if nodes is None else nodes

    def note(number: int, node: Node) -> None:
        nodes[number] = node
        node.meta["kind"] = recorder.kinds[number]
        node.meta["derived"] = recorder.derived[number]
        if recorder.values[number] is not None:
            node.meta["value"] = recorder.values[number]

    for i, number in enumerate(recorder.inputs):
        note(number, graph.placeholder(names[i] if i < len(names) else f"input_{i + 1}"))
        nodes[number].meta["cotangent"] = i >= len(recorder.inputs) - cotangents
    for i, (number, tensor) in enumerate(recorder.constants.items()):
        note(number, graph.placeholder(f"const_{i}"))
        nodes[number].meta["constant"] = tensor
        if number in recorder.fresh:
            nodes[number].meta.update(constant=wrap(recorder.fresh[number]), fresh=recorder.fresh[number])
    for i, call in enumerate(recorder.calls):
        args, kwargs = (mapped(v, lambda r: nodes[r.index], Ref) for v in (call.args, call.kwargs))
        node = graph.call_function(target(call), args, kwargs)
        node.meta.update(
            effect=call.effect or call.inplace,
            view=_is_view(recorder, call),
            inplace=call.inplace,
            later=boundary is not None and i >= boundary,
            derived=any(recorder.derived[o] for o in call.outputs),
        )
        if call.function is setitem:  # it gives nothing: who reads its result reads what was written to
            nodes[call.outputs[0]] = nodes[call.refs[0]]
        elif isinstance(call.result, Ref):
            note(call.result.index, node)
        elif call.result is not None:
            _take_apart(graph, call.result, node, note)
    graph.output(mapped(outputs, lambda r: nodes[r.index], Ref))
    return graph


def _is_view(recorder: Recorder, call: Call) -> bool:
    """Return whether what a call gave is in the memory of its first operand; looked at for what is no op."""
    op = getattr(call.function, "op", None)
    if op is not None or call.inplace or not (call.refs and call.outputs):
        return bool(getattr(op, "view", False))
    made, source = recorder.values[call.outputs[0]], recorder.values[call.refs[0]]
    return made is not None and source is not None and np.may_share_memory(raw_array(made), raw_array(source))


def _take_apart(graph: Graph, result: object, node: Node, note: Callable[[int, Node], None]) -> None:
    """Nodes for the tensors in what a call returned; in `meta`, which of them each is, and the kinds of all."""
    kinds: list[object] = []
    node.meta["kinds"] = kinds

    def apart(result: Any, outer: Node) -> None:
        for position, part in result.items() if isinstance(result, dict) else enumerate(result):
            if part is None or not refs_in(part):
                continue
            inner = graph.call_function(operator.getitem, (outer, position))
            inner.meta.update(later=node.meta["later"], view=node.meta["view"], inplace=False, derived=True)
            if isinstance(part, Ref):
                note(part.index, inner)
                inner.meta["part"] = len(kinds)
                kinds.append(inner.meta["kind"])
            else:
                apart(part, inner)

    apart(result, node)


# --- one node


def inputs(graph: Graph) -> list[Node]:
    """The placeholders that stand for no constant, in order."""
    return [node for node in graph.nodes if node.op == "placeholder" and "constant" not in node.meta]


def name(node: object) -> str:
    """The name of the op that a node calls; empty for what calls none."""
    return record_of(node.target).name if isinstance(node, Node) and node.op == "call_function" else ""


def op(node: Node) -> Op:
    """The op that a node calls, or what stands for it."""
    return record_of(node.target)


def bound(node: Node) -> dict[str, Any]:
    """The arguments of a call by the op's own names.  Unsupported for aliases and separate sizes."""
    record = record_of(node.target)
    if record.varargs or set(node.kwargs) - set(record.params):
        raise Unsupported(f"arguments of {record.name}")
    return {**record.defaults, **dict(zip(record.positional, node.args)), **node.kwargs}


def reads(node: Node) -> list[Node]:
    """What a node reads, once a reading; the first is what an in-place op writes to."""
    found: list[Node] = []
    for value in (*node.args, *node.kwargs.values()):
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple | list | dict | slice):
            found += nodes_in(value)
    return found


def kind(node: Node) -> tuple[tuple[int, ...], np.dtype | None]:
    """The shape and the dtype of a node's tensor; () and None for several."""
    found = node.meta.get("kind")
    return ((), None) if found is None else (tuple(found[0]), found[1])


def shape(node: Node) -> tuple[int, ...]:
    """The shape of a node's tensor."""
    return kind(node)[0]


def single(node: Node) -> bool:
    """Return whether a node's tensor is of float32."""
    return bool(kind(node)[1] == _F32)


def array(value: object) -> Any:  # an array or None
    """The array of a constant that stays as it is, or None for what is none."""
    if isinstance(value, Node) and "constant" in value.meta and "fresh" not in value.meta:
        return raw_array(value.meta["constant"]).view(np.ndarray)
    return None


def maker(value: object) -> Node | None:
    """The call that gives a value, maybe as one of several; None for what no call gives."""
    while isinstance(value, Node) and value.target is operator.getitem:
        value = value.args[0]
    return value if isinstance(value, Node) and value.op == "call_function" else None


def tensors_of(node: Node) -> list[Node | None]:
    """The nodes of the tensors that a call gives, in order; None for one that nothing reads."""
    if "kinds" not in node.meta:
        return [node] if "kind" in node.meta else []
    found: list[Node | None] = [None] * len(node.meta["kinds"])
    left = list(node.users)
    while left:
        user = left.pop()
        if "part" in user.meta:
            found[user.meta["part"]] = user
        elif user.target is operator.getitem:
            left += user.users
    return found


def calls_of(graph: Graph) -> list[Node]:
    """The calls, in order, without the nodes that take one of several tensors."""
    return [node for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem]


def plain(value: Any) -> Any:
    """Arguments of a node in lists and dicts of Python's own."""
    if isinstance(value, tuple):
        made = [plain(v) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


# --- changes


def constant(graph: Graph, value: object, before: Node) -> Node:
    """A new constant, of an array or a tensor, before another one or the first call."""
    tensor = value if isinstance(value, Tensor) else wrap(value)
    with graph.inserting_before(before):
        node = graph.placeholder("const")
    found = raw_array(tensor)
    node.meta.update(kind=(found.shape, found.dtype), constant=tensor, value=tensor, derived=False)
    return node


def insert_call(graph: Graph, function: Public, args: tuple[object, ...], kind: object) -> Node:
    """A new call that gives one tensor, before all calls that there are."""
    with graph.inserting_before(first_call(graph)):
        node = graph.call_function(function, args)
    node.meta.update(kind=kind, effect=False, view=False, inplace=False, later=False, derived=True)
    return node


def first_call(graph: Graph) -> Node:
    """The node behind all placeholders and attributes."""
    return next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))


def reset(node: Node, function: Public, args: tuple[object, ...], kwargs: dict[str, object] | None = None) -> None:
    """Make a node another call, which gives the same tensor."""
    node.target = function
    node._set_arguments(args, kwargs or {})


# --- memory


def memory(graph: Graph) -> dict[Node, Node]:
    """For each node one node for all that share its memory."""
    root: dict[Node, Node] = {}
    for node in graph.nodes:
        source = reads(node)[:1] if node.meta.get("inplace") or node.meta.get("view") else []
        root[node] = root[source[0]] if source else node
    return root


def written(graph: Graph, value: Node, nodes: Iterable[Node]) -> bool:
    """Return whether anything writes to the memory of a value from the first to the last of these nodes."""
    ends, order = set(nodes), list(graph.nodes)
    places = [i for i, node in enumerate(order) if node in ends]
    writing = [node for node in order[min(places) : max(places)] if node.meta.get("inplace")]
    root = memory(graph) if writing else {}
    return any(root[node] is root[value] for node in writing)


def check(graph: Graph) -> None:
    """Raise AssertionError for a graph that no pass may leave: beside `Graph.lint`, what `meta` says must be so."""
    graph.lint()
    placeholders = [node.op == "placeholder" for node in graph.nodes]
    assert placeholders == sorted(placeholders, reverse=True), "a placeholder behind a call"
    for node in graph.nodes:
        if node.op == "output":
            continue
        assert node.op in ("placeholder", "call_function"), f"{node} is {node.op}"
        if "constant" in node.meta:
            found = raw_array(node.meta["constant"])
            assert kind(node) == (tuple(found.shape), found.dtype), f"{node} is no constant of {kind(node)}"
        for problem in _problems(node):
            raise AssertionError(f"{node}: {problem}")


def _problems(node: Node) -> Iterator[str]:
    sources, meta = reads(node), node.meta
    if node.op == "placeholder":
        if kind(node)[1] is None:
            yield "no kind"
        return
    if meta.get("inplace") and not (sources and meta.get("effect")):
        yield "an in-place op that need not run, or writes to nothing"
    if meta.get("inplace") and sources and meta.get("kind") not in (None, sources[0].meta.get("kind")):
        yield "it is of another kind than what it writes to"
    if meta.get("view") and not sources:
        yield "a view of nothing"
