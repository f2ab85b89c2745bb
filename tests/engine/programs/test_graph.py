"""Recorded calls as a graph: what its nodes know, and what the check finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import engine
from engine import nn
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.programs.graph import check, graph_of, inputs, kind, memory, name, written
from engine.programs.listening import run_recorded


def graph(function: Callable[..., Any], *args: Any) -> Graph:
    """What a function does with these arguments."""
    with engine.no_grad():
        recorder, _ = run_recorded(lambda: function(*args), list(args))
    assert recorder.failure is None
    return graph_of(recorder, recorder.result)


def calls(of: Graph) -> dict[str, Node]:
    """The calls of a graph, by the names of their ops."""
    return {name(node): node for node in of.nodes if node.op == "call_function"}


def test_nodes_know_kinds_constants_and_memory() -> None:
    factor = engine.ones(3)

    def function(x: Any) -> Any:
        y = x.t()
        y.add_(1)
        return y[0] * factor, x

    made = graph(function, engine.randn(3, 4))
    check(made)
    found, root = calls(made), memory(made)
    (source,) = inputs(made)
    assert kind(source) == ((3, 4), engine.randn(1).numpy().dtype) and kind(found["add"])[0] == (4, 3)
    assert root[found["t"]] is root[found["add"]] is source and root[found["mul"]] is found["mul"]
    assert [node.meta["constant"] is factor for node in made.nodes if "constant" in node.meta] == [True]
    assert found["add"].meta["inplace"] and found["add"].meta["effect"] and not found["mul"].meta["inplace"]
    assert written(made, source, (found["t"], found["mul"]))
    assert not written(made, found["mul"], (found["t"], found["mul"]))


def test_several_tensors_are_nodes_each() -> None:
    made = graph(lambda x: x.split(2, 1)[1] + x.max(1)[0][:, None], engine.randn(3, 4))
    check(made)
    parts = [node for node in made.nodes if "part" in node.meta]
    assert [node.meta["part"] for node in parts] == [0, 1, 0, 1]
    assert [memory(made)[node] is inputs(made)[0] for node in parts] == [True, True, False, False]


def test_what_is_written_by_an_index_is_read_from_what_was_written_to() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        y[0] = 1
        return y + 1

    found = calls(graph(function, engine.randn(3, 4)))
    assert found["add"].args[0] is found["mul"] and found["setitem"].args[0] is found["mul"]
    assert not found["setitem"].users


def _misplaced(made: Graph) -> None:
    made.placeholder("late").meta["kind"] = (3,), None


def _unneeded(made: Graph) -> None:
    calls(made)["relu"].meta["inplace"] = True


def _other(made: Graph) -> None:
    calls(made)["relu"].meta.update(inplace=True, effect=True)


def _constant(made: Graph) -> None:
    next(node for node in made.nodes if "constant" in node.meta).meta["kind"] = (5,), None


def _method(made: Graph) -> None:
    with made.inserting_before(made.output_node()):
        made.call_method("relu", (calls(made)["relu"],))


@pytest.mark.parametrize("change", [_misplaced, _unneeded, _other, _constant, _method])
def test_the_check_finds_what_no_pass_may_leave(change: Callable[[Graph], None]) -> None:
    made = graph(lambda x: engine.relu(x.sum(0) + engine.ones(3)), engine.randn(2, 3))
    check(made)
    calls(made)["relu"].args = (inputs(made)[0],)
    change(made)
    with pytest.raises(AssertionError):
        check(made)


def test_what_is_compiled_prints_what_will_run() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU()).eval()
    compiled, x = engine.compile(model), engine.randn(1, 2, 4, 4)
    with pytest.raises(AttributeError):
        _ = compiled.graph
    with engine.no_grad():
        compiled(x)
    assert [name(node) for node in compiled.graph.nodes if node.op == "call_function"] == ["convolution", "relu"]
    assert "convolution" in str(compiled.graph) and not any("constant" in node.meta for node in compiled.graph.nodes)


@pytest.mark.onednn
def test_layers_of_one_input_that_attention_reads_are_joined() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x: Any) -> Any:
            q, k, v = (f(x).view(2, 5, 2, 4).transpose(1, 2) for f in (self.query, self.key, self.value))
            weights = engine.softmax(q @ k.transpose(-1, -2) / 2, -1)
            return self.out((weights @ v).transpose(1, 2).reshape(2, 5, 8))

    compiled, x = engine.compile(Heads().eval()), engine.randn(2, 5, 8)
    with engine.no_grad():
        compiled(x)
    names = [name(node) for node in compiled.graph.nodes if name(node)]
    joined = "attention" in str(compiled.plans[0])
    assert names.count("linear") == (2 if joined else 4) and names.count("split_with_sizes") == joined
    check(compiled.graph)


def test_a_graph_of_the_module_is_found_where_there_is_no_plan() -> None:
    traced = engine.fx.symbolic_trace(nn.ReLU())
    assert engine.compile(traced).graph is traced.graph


def test_a_compiled_step_prints_what_will_run() -> None:
    weight = nn.Parameter(engine.ones(3))

    @engine.compile
    def step(x: Any) -> Any:
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward()
        return loss

    with pytest.raises(AttributeError):
        _ = step.graph
    for _ in range(3):
        step(engine.randn(3))
    assert "sum" in [name(node) for node in step.graph.nodes]
