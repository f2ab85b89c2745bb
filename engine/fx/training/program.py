"""A recorded step as a Graph, and the Graph as a Python function that runs it.

The program of a step takes its inputs and constants (parameters, buffers, whatever it found) as placeholders: each
call reads them anew.  Where the backward pass is the user's to call, the graph is cut in two: what backward reads of
forward are outputs of the first, and placeholders of the second.
"""

from __future__ import annotations

import functools
import linecache
import operator
from collections.abc import Callable
from typing import Any

from engine.dispatch import OPS
from engine.fx.graph import Graph
from engine.fx.node import Node, map_arg
from engine.fx.training.exchange import pool_first
from engine.fx.training.fusing import fuse
from engine.fx.training.memory import of_results, overwrite
from engine.fx.training.ones import are_ones, without_ones
from engine.fx.training.pooling import join_pools
from engine.fx.training.recording import StepTrace, accumulate_grad
from engine.fx.training.small import is_small
from engine.grad_mode import mode
from engine.plan.tracing import Ref, _setitem, mapped, refs_in
from engine.tensor import wrap

__all__ = ["Built", "build", "compiled", "cut"]


class Built:
    """A graph, and the constants it takes after the inputs."""

    def __init__(self, graph: Graph, constants: list[Any]) -> None:
        self.graph, self.constants = graph, constants

    @property
    def places(self) -> list[Node]:
        """The placeholders, in order."""
        return [n for n in self.graph.nodes if n.op == "placeholder"]


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is called as a whole runs as it would in the step: with gradients on."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        enabled, mode.enabled = mode.enabled, True
        try:
            return function(*args, **kwargs)
        finally:
            mode.enabled = enabled

    return call


def build(trace: StepTrace, outputs: Any, cotangents: int = 0) -> Built:
    """The graph of a trace that gives `outputs` (Refs, nested); placeholders are the inputs, then the constants.

    Nodes have meta: "kind" (shape, dtype), "effect" where they must run, "later" after the trace's `boundary`,
    "cotangent" for the last inputs, so many.
    """
    graph = Graph()
    nodes: dict[int, Node] = {}

    def note(number: int, node: Node) -> None:
        nodes[number] = node
        node.meta["kind"] = trace.kinds[number]

    for i, number in enumerate(trace.inputs):
        note(number, graph.placeholder(f"input_{i + 1}"))
        nodes[number].meta["cotangent"] = i >= len(trace.inputs) - cotangents
    constants, copied = [], []
    written = _written(trace, outputs)
    ones: set[Node] = set()
    for number, tensor in trace.constants.items():
        if number in trace.fresh:
            tensor = wrap(trace.fresh[number])
            if number in written:
                copied.append(number)
        note(number, graph.placeholder(f"constant_{len(constants)}"))
        if number in trace.fresh and number not in written and are_ones(trace.fresh[number]):
            ones.add(nodes[number])
        constants.append(tensor)
    for number in copied:  # what is written to, or given away, starts anew in each call
        note(number, graph.call_function(OPS["clone"].function, (nodes[number],)))
        nodes[number].meta.update(effect=False, view=False, inplace=False, later=False)
    for i, (call, result) in enumerate(zip(trace.calls, trace.results)):
        args, kwargs = (mapped(v, lambda r: nodes[r.index], Ref) for v in (call.args, call.kwargs))
        function = call.function
        if call.effect and function.__name__ not in _OWN and hasattr(function, "__wrapped__"):
            function = with_gradients(function)
        node = graph.call_function(function, args, kwargs)
        node.meta["effect"] = call.effect or call.inplace
        node.meta["view"] = bool(getattr(getattr(function, "op", None), "view", False))
        node.meta["inplace"] = call.inplace
        node.meta["later"] = trace.boundary is not None and i >= trace.boundary
        if function is _setitem:
            note(call.outputs[0], nodes[call.refs[0]])
        elif isinstance(result, Ref):
            note(result.index, node)
        elif result is not None:
            _take_apart(graph, result, node, note)
    graph.output(mapped(outputs, lambda r: nodes[r.index], Ref))
    graph.eliminate_dead_code(lambda n: n.op in ("placeholder", "output") or n.meta.get("effect", False))
    without_ones(graph, ones)
    graph.eliminate_dead_code(lambda n: n.op in ("placeholder", "output") or n.meta.get("effect", False))
    _without_copies(graph)
    of_results(graph)
    pool_first(graph)
    join_pools(graph)
    fuse(graph, trace.boundary is None and is_small(graph))
    overwrite(graph)
    for node in graph.nodes:
        if node.target is accumulate_grad:
            leaf, gradient, _ = node.args
            own = isinstance(gradient, Node) and gradient.op == "call_function" and len(gradient.users) == 1
            own = own and not gradient.meta.get("view") and not gradient.meta.get("inplace")  # type: ignore[union-attr]
            node.args = (leaf, gradient, own)
    return Built(graph, constants)


def _without_copies(graph: Graph) -> None:
    """An op in place whose operand is copied first, since backward reads it, becomes the op itself."""
    for node in graph.nodes:
        if node.op != "call_function" or not node.meta.get("inplace"):
            continue
        record, source = getattr(node.target, "op", None), node.args[0]
        if record is None or not isinstance(source, Node) or source.op != "call_function":
            continue
        if source.meta.get("view") or source.meta.get("inplace") or source.meta.get("effect"):
            continue  # somebody else may see that memory
        copies = [n for n in source.users if n.target is _clone and len(n.args) == 1 and not n.kwargs]
        if len(copies) != 1 or set(source.users) != {node, copies[0]}:
            continue
        if not copies[0] < node or node.meta["kind"] != source.meta["kind"]:
            continue
        copies[0].replace_all_uses_with(source)
        graph.erase_node(copies[0])
        node.target = record.function
        node.meta.update(inplace=False, effect=False)


_clone = OPS["clone"].function
_OWN = frozenset(["accumulate_grad", "grad_of", "set_grad"])


def _take_apart(graph: Graph, result: Any, node: Node, note: Callable[[int, Node], None]) -> None:
    parts = result.items() if isinstance(result, dict) else enumerate(result)
    for position, part in parts:
        if part is None or not refs_in(part):
            continue
        inner = graph.call_function(operator.getitem, (node, position))
        inner.meta.update(later=node.meta["later"], view=node.meta["view"], inplace=False)
        if isinstance(part, Ref):
            note(part.index, inner)
        else:
            _take_apart(graph, part, inner, note)


def _written(trace: StepTrace, outputs: Any) -> set[int]:
    """The constants whose memory a call writes to, or that the program gives away."""
    root: dict[int, int] = {}

    def find(i: int) -> int:
        while i in root:
            i = root[i]
        return i

    touched = {r.index for r in refs_in(outputs)}
    for call in trace.calls:
        if call.inplace or getattr(getattr(call.function, "op", None), "view", False):
            for out in call.outputs:
                if find(out) != find(call.refs[0]):
                    root[find(out)] = find(call.refs[0])
        if call.inplace or call.function is accumulate_grad:
            touched.update(call.refs[:2])
    return {find(i) for i in touched}


def cut(built: Built) -> tuple[Graph, Graph, list[int]]:
    """(forward, backward, read) of a graph whose output is (results, gradients).

    `forward` takes the placeholders but the cotangents and gives (results, saved); `backward` takes the placeholders
    that it reads, by their positions `read`, then what was saved, then the cotangents.
    """
    whole = built.graph
    results, gradients = whole.output_node().args[0]  # type: ignore[misc]
    later = [n for n in whole.nodes if n.op == "call_function" and n.meta["later"]]
    crossing: dict[Node, None] = {}
    for node in (*later, *(g for g in gradients if g is not None)):
        for source in (*(node.all_input_nodes if node.meta.get("later") else ()), node):
            if not source.meta.get("later") and not source.meta.get("cotangent"):
                crossing.setdefault(source)
    saved = [n for n in crossing if n.op != "placeholder"]
    forward, backward = Graph(), Graph()
    there: dict[Node, Node] = {}
    here: dict[Node, Node] = {}
    read = []
    for i, node in enumerate(n for n in built.places if not n.meta.get("cotangent")):
        there[node] = forward.node_copy(node)
        if node in crossing:
            here[node] = backward.node_copy(node)
            read.append(i)
    for node in whole.nodes:
        if node.op == "call_function" and not node.meta["later"]:
            there[node] = forward.node_copy(node, lambda n: there[n])
    forward.output((tuple(there[n] for n in results), tuple(there[n] for n in saved)))
    for node in (*saved, *(n for n in built.places if n.meta.get("cotangent"))):
        here[node] = backward.placeholder(f"saved_{node.name}")
        here[node].meta = dict(node.meta)
    for node in later:
        here[node] = backward.node_copy(node, lambda n: here[n])
    backward.output(tuple(None if g is None else here[g] for g in gradients))
    return forward, backward, read


def compiled(graph: Graph, name: str) -> Callable[..., Any]:
    """The function of a graph.  It takes its values in a list, which it empties, and drops each after its last use."""
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        for source in node.all_input_nodes:
            last[source] = node
    ends: dict[Node, list[Node]] = {}
    for source, user in last.items():
        ends.setdefault(user, []).append(source)
    names: dict[Node, str] = {}
    known: dict[Any, str] = {}
    space: dict[str, Any] = {}

    def thing(value: Any) -> str:
        if value is None or type(value) in (bool, int, str) or (type(value) is float and value - value == 0):
            return repr(value)
        key = id(value)
        if key not in known:
            known[key] = f"g{len(known)}_{getattr(value, '__name__', '')}"
            known[key] = "".join(c if c.isalnum() or c == "_" else "_" for c in known[key])
            space[known[key]] = value
        return known[key]

    def text(value: Any) -> str:
        if isinstance(value, Node):
            return names[value]
        found: list[Node] = []
        map_arg(value, lambda n: found.append(n) or n)  # type: ignore[func-returns-value]
        if not found:
            return thing(value)
        if isinstance(value, slice):
            return f"slice({text(value.start)}, {text(value.stop)}, {text(value.step)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {text(v)}" for k, v in value.items()) + "}"
        inner = "".join(f"{text(v)}, " for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"

    lines: list[str] = []
    takes: list[str] = []
    for i, node in enumerate(graph.nodes):
        names[node] = f"v{i}"
        if node.op == "placeholder":
            takes.append(names[node])
            continue
        if node.op == "output":
            lines.append(f"    return {text(node.args[0])}")
            continue
        given = [text(a) for a in node.args] + [f"{k}={text(v)}" for k, v in node.kwargs.items()]
        if node.target is operator.getitem:
            line = f"{text(node.args[0])}[{text(node.args[1])}]"
        else:
            line = f"{thing(node.target)}({', '.join(given)})"
        done = [names[n] for n in ends.get(node, ())]
        if node.users:
            line = f"{names[node]} = {line}"
        lines.append(f"    {line}")
        if done:
            lines.append(f"    {' = '.join(done)} = None")
    head = f"def {name}(box):\n    [{', '.join(takes)}] = box\n    box.clear()\n"
    source = head + "\n".join(lines) + "\n"
    place = f"<plan {name} {id(graph):x}>"
    linecache.cache[place] = (len(source), None, source.splitlines(True), place)
    exec(compile(source, place, "exec"), space)
    function: Callable[..., Any] = space[name]
    return function
