"""fx.traceback."""

from __future__ import annotations

from engine import fx
from engine.fx import traceback


def test_meta_of_the_step_that_runs() -> None:
    seen = []
    graph = fx.Graph()
    node = graph.call_function(lambda: seen.append(traceback.get_current_meta()), ())
    node.meta["stack_trace"] = "here"
    graph.output(node)
    module = fx.GraphModule({}, graph)
    fx.Interpreter(module).run()
    with traceback.preserve_node_meta():
        assert traceback.has_preserved_node_meta()
        fx.Interpreter(module).run()
        with traceback.annotate({"a": 1}):
            assert traceback.get_current_meta() == {"custom": {"a": 1}}
        traceback.set_stack_trace(["x"])
        assert traceback.format_stack() == ["x"]
        traceback.set_grad_fn_seq_nr(3)
        assert traceback.get_current_meta()["grad_fn_seq_nr"] == [3]
        traceback.reset_grad_fn_seq_nr()
        assert traceback.get_current_meta()["grad_fn_seq_nr"] == []
    assert seen == [{}, {"stack_trace": "here"}]
    assert traceback.get_current_meta() == {} and "format_stack" in traceback.format_stack()[-1]
