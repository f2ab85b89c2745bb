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
from typing import TYPE_CHECKING, Any

from engine.core.grad_mode import mode
from engine.dispatch import OPS
from engine.fx.graph import Graph
from engine.fx.node import Node, map_arg
from engine.programs.graph import graph_of, insert_call, memory, reads
from engine.programs.passes import apply
from engine.programs.passes.constants import drop_unused
from engine.programs.passes.drop_seed_gradient import are_ones, without_ones
from engine.programs.passes.fuse_chains import fuse
from engine.programs.passes.join_pools import join_pools
from engine.programs.passes.overwrite import of_results, overwrite
from engine.programs.passes.relu_after_pool import pool_first
from engine.programs.training.small import is_small
from engine.programs.training.step import Step, accumulate_grad
from engine.programs.values import Call

if TYPE_CHECKING:
    from engine.dispatch.gate import Call as Function

__all__ = ["Built", "build", "compiled", "cut"]


class Built:
    """A graph, and the constants it takes after the inputs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = [node.meta["constant"] for node in self.places if "constant" in node.meta]

    @property
    def places(self) -> list[Node]:
        """The placeholders, in order."""
        return [n for n in self.graph.nodes if n.op == "placeholder"]


def with_gradients(function: Function) -> Function:
    """Wrap a function so that it runs with gradients on, as it would in the step."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        enabled, mode.enabled = mode.enabled, True
        try:
            return function(*args, **kwargs)
        finally:
            mode.enabled = enabled

    return call


def build(step: Step, outputs: object, cotangents: int = 0) -> Built:
    """The graph of a step that gives `outputs` (Refs, nested); placeholders are the inputs, then the constants.

    cotangents: how many of the inputs, the last, are gradients.
    """
    boundary = step.boundary
    graph = graph_of(step.recorder, outputs, boundary, cotangents, _target)
    ones = _start_fresh(graph)
    apply(
        graph,
        [
            drop_unused,
            lambda graph: without_ones(graph, ones),
            drop_unused,
            _without_copies,
            of_results,
            pool_first,
            join_pools,
            lambda graph: fuse(graph, boundary is None and is_small(graph)),
            overwrite,
        ],
    )
    for node in graph.nodes:
        if node.target is accumulate_grad:
            leaf, gradient, _ = node.args
            own = isinstance(gradient, Node) and gradient.op == "call_function" and len(gradient.users) == 1
            own = own and not gradient.meta.get("view") and not gradient.meta.get("inplace")
            node.args = (leaf, gradient, own)
    return Built(graph)


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


def _target(call: Call) -> Function:
    function: Callable[..., object] = call.function
    if call.effect and function.__name__ not in _OWN and hasattr(function, "__wrapped__"):
        return with_gradients(function)
    return function


def _start_fresh(graph: Graph) -> set[Node]:
    """Copy in each call what the step made without an op, if a call writes to it or it is given away; return the
    placeholders of the rest that are all ones."""
    root = memory(graph)
    touched = {root[node] for node in reads(graph.output_node())}
    for node in graph.nodes:
        if node.meta.get("inplace") or node.target is accumulate_grad:
            touched.update(root[source] for source in reads(node)[:2])
    ones = set()
    for node in graph.nodes:
        if "fresh" in node.meta and node in touched:
            copy = insert_call(graph, OPS["clone"].function, (node,), node.meta["kind"])
            for user in [user for user in node.users if user is not copy]:
                user.replace_input_with(node, copy)
        elif "fresh" in node.meta and are_ones(node.meta["fresh"]):
            ones.add(node)
    return ones


def cut(built: Built) -> tuple[Graph, Graph, list[int]]:
    """(forward, backward, read) of a graph whose output is (results, gradients).

    `forward` takes the placeholders but the cotangents and gives (results, saved); `backward` takes the placeholders
    that it reads, by their positions `read`, then what was saved, then the cotangents.
    """
    whole = built.graph
    results, gradients = whole.output_node().args[0]
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


def compiled(graph: Graph, name: str) -> Function:
    """The function of a graph.  It takes its values in a list, which it empties, and drops each after its last use."""
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        for source in node.all_input_nodes:
            last[source] = node
    ends: dict[Node, list[Node]] = {}
    for source, user in last.items():
        ends.setdefault(user, []).append(source)
    names: dict[Node, str] = {}
    known: dict[object, str] = {}
    space: dict[str, Any] = {}

    def thing(value: object) -> str:
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
    code = head + "\n".join(lines) + "\n"
    place = f"<plan {name} {id(graph):x}>"
    linecache.cache[place] = (len(code), None, code.splitlines(True), place)
    exec(compile(code, place, "exec"), space)
    function: Callable[..., object] = space[name]
    return function
