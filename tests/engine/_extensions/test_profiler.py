"""torch.ops.profiler: labels as operators."""

from __future__ import annotations

import pytest

import engine
from engine import fx


def test_labels_a_block() -> None:
    with engine.autograd.profiler.profile() as found:
        handle = engine.ops.profiler._record_function_enter("the block")
        engine.ones(3) + 1
        engine.ops.profiler._record_function_exit(handle)
    (block,) = [e for e in found.function_events if e.name == "the block"]
    assert "aten::add" in {child.name for child in block.cpu_children}
    with pytest.raises(RuntimeError, match="is not the handle of an open block"):
        engine.ops.profiler._record_function_exit(handle)


def test_in_a_graph() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    handle = graph.call_function(engine.ops.profiler._record_function_enter, ("doubling",))
    y = graph.call_function(engine.mul, (x, 2))
    graph.call_function(engine.ops.profiler._record_function_exit, (handle,))
    graph.output(y)
    module = fx.GraphModule(engine.nn.Module(), graph)
    with engine.autograd.profiler.profile() as found:
        assert module(engine.ones(2)).tolist() == [2.0, 2.0]
    assert "doubling" in {e.name for e in found.function_events}
