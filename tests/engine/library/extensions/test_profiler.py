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


def test_recorded_while_traced() -> None:
    """A Proxy among the arguments makes a call of an operator a step of the graph, as for functions."""

    def labelled(x):
        handle = engine.ops.profiler._record_function_enter("a")
        y = engine.ops.torchvision.nms(x, x[:, 0], 0.5)
        return engine.ops.profiler._record_function_exit(engine.ops.aten.add(handle, y))

    graph = fx.symbolic_trace(labelled).graph
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert engine.ops.torchvision.nms in called and engine.ops.profiler._record_function_exit in called


def test_handled_by_classes_and_modes() -> None:
    from engine.torch_names.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            heard.append(func)
            return func(*args, **(kwargs or {}))

    class Mine(engine.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            heard.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    heard = []
    nms = engine.ops.torchvision.nms
    boxes, scores = engine.tensor([[0.0, 0.0, 1.0, 1.0]]), engine.ones(1)
    with Mode():
        nms(boxes, scores, 0.5)
    assert nms in heard
    heard.clear()
    assert type(nms(boxes.as_subclass(Mine), scores, 0.5)) is Mine and nms in heard
