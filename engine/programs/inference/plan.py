"""`InferencePlan`: steps over an environment of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.fx.graph import Graph
from engine.fx.node import Node, nodes_in
from engine.programs.graph import inputs, plain, reads, tensors_of
from engine.programs.values import Ref, mapped, tensors_in
from engine.tensor import Tensor, wrap

__all__ = ["Environment", "InferencePlan", "Step", "copying", "generic"]

Environment = dict[Node, Any]


class InferencePlan:
    """Steps over an environment.  `plan(tensors)` for the inputs in order gives what the module gives.

    error: the largest absolute difference from the module's own results on the first input, and that as a part of the
    largest value there; None where nothing was compared (`verify=False`).
    found: the tensors that the module found, whose elements may be part of it.
    graph: what it computes.
    """

    error: tuple[float, float] | None = None
    found: Sequence[Tensor] = ()

    def __init__(self, graph: Graph, result: object, steps: list[Step]) -> None:
        """result: what is returned, nested; its Refs are numbers of nodes in the graph's output, a tuple."""
        outputs: Any = graph.output_node().args[0]
        self.graph, self.inputs = graph, inputs(graph)
        self.result = mapped(result, lambda r: outputs[r.index], Ref)
        read = {node for step in steps for node in step.reads} | {*outputs}  # weights are in steps, as packed by these
        constants = {node for node in read if "constant" in node.meta and "fresh" not in node.meta}
        self.template: Environment = {node: node.meta["constant"] for node in constants}
        last: dict[Node, int] = {}
        for i, step in enumerate(steps):
            for node in (*step.reads, *step.writes):
                last[node] = i
        drops: list[list[Node]] = [[] for _ in steps]
        for node, i in last.items():
            if node not in constants and node not in outputs:
                drops[i].append(node)
        self.steps = [(step.run, drop) for step, drop in zip(steps, drops)]
        self.names = [step.name for step in steps]

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """The results, in memory of their own."""
        environment = self.template.copy()
        for node, tensor in zip(self.inputs, tensors, strict=True):
            environment[node] = tensor
        for run, drop in self.steps:
            run(environment)
            for node in drop:
                environment[node] = None
        return mapped(self.result, environment.__getitem__, Node)

    def __repr__(self) -> str:
        return "\n".join(self.names)


class Step:
    """`run(environment)`; the values it reads and writes."""

    def __init__(
        self, name: str, run: Callable[[Environment], object], reads: Sequence[Node], writes: Sequence[Node]
    ) -> None:
        self.name, self.run, self.reads, self.writes = name, run, reads, writes


def copying(graph: Graph) -> list[Step]:
    """The step that makes anew what is written to or given away, if there is such."""
    fresh = {node: node.meta["fresh"] for node in graph.nodes if "fresh" in node.meta}

    def run(environment: Environment) -> None:
        for node, array in fresh.items():
            environment[node] = wrap(array.copy())

    return [Step("copy", run, [], list(fresh))] if fresh else []


def generic(call: Node) -> Step:
    """The op itself, on Tensors."""
    function: Any = call.target
    args, kwargs = plain(call.args), plain(call.kwargs)
    flat = not kwargs and not any(list(nodes_in(a)) for a in args if not isinstance(a, Node))
    template = list(args)
    places = [(i, a) for i, a in enumerate(args) if isinstance(a, Node)]
    outputs, read = tensors_of(call), reads(call)
    one = outputs[0] if len(outputs) == 1 else None
    written = read[0] if call.meta["inplace"] else None

    def run(environment: Environment) -> None:
        if flat:
            args = template.copy()
            for i, node in places:
                args[i] = environment[node]
            result = function(*args)
        else:
            found, named = mapped((template, kwargs), environment.__getitem__, Node)
            result = function(*found, **named)
        if written is not None:
            if one is not None:  # not of `x[index] = value`, which gives nothing
                environment[one] = environment[written]
        elif one is not None and isinstance(result, Tensor):
            environment[one] = result
        else:
            for made, tensor in zip(outputs, tensors_in(result), strict=True):
                if made is not None:
                    environment[made] = tensor

    return Step(function.__name__, run, read, [node for node in outputs if node is not None])
