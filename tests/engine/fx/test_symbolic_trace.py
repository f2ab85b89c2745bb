"""Tracers that subclasses change, wrapped functions, scopes."""

from __future__ import annotations

import math

import pytest

import engine
from engine import fx, nn

from . import programs


@fx.wrap
def mine(x):
    return x * 2 if x.sum() > 0 else x


fx.wrap("len")


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 2)

    def forward(self, x):
        return self.lin(x).relu()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = Inner()
        self.two = Inner()

    def forward(self, x):
        return self.two(self.one(self.one(x)))


def test_wrapped() -> None:
    module = fx.symbolic_trace(lambda x: mine(x) + len(x) + math.sqrt(2))
    assert module.code.startswith(
        '\ntorch.fx._symbolic_trace.wrap("tests_engine_fx_test_symbolic_trace_mine")\n'
        'torch.fx._symbolic_trace.wrap("len")\n\ndef forward(self, x):\n'
    )
    assert module(engine.ones(2)).tolist() == pytest.approx([4 + math.sqrt(2)] * 2)
    assert mine(engine.ones(1)).tolist() == [2.0]  # not while tracing
    with pytest.raises(NotImplementedError, match="wrap must be called at the top level of a module"):
        fx.wrap("abs")
    with pytest.raises(RuntimeError, match="Must be either a callable or string name"):
        fx.wrap(3)


def test_leaves_and_scopes() -> None:
    class Whole(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return isinstance(m, Inner)

    graph = Whole().trace(Outer())
    assert [n.target for n in graph.nodes] == ["x", "one", "one", "two", "output"]

    class Through(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return False

    tracer = Through()
    tracer.record_stack_traces = True
    root = Outer()
    graph = tracer.trace(root)
    assert [n.name for n in graph.nodes][:4] == ["x", "one_lin_weight", "one_lin_bias", "linear"]
    linear = list(graph.nodes)[3]
    assert list(linear.meta["nn_module_stack"]) == ["one", "one.lin"]
    assert tracer.node_name_to_scope["linear"] == ("one.lin", nn.Linear)
    assert "return self.lin(x).relu()" in linear.stack_trace and "in trace" not in linear.stack_trace
    assert "# File: " in fx.GraphModule(root, graph).print_readable(print_output=False)
    module = fx.GraphModule(root, graph)
    x = engine.randn(1, 2)
    assert engine.equal(module(x), root(x))


def test_shapes_of_parameters() -> None:
    class Shaped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(engine.ones(3, 2))

        def forward(self, x):
            return x * self.w if self.w.dim() == 2 and self.w.shape[0] == 3 else x

    with pytest.raises(fx.proxy.TraceError):
        fx.Tracer().trace(Shaped())
    graph = fx.Tracer(param_shapes_constant=True).trace(Shaped())
    assert [n.name for n in graph.nodes] == ["x", "w", "mul", "output"]


def test_asserts_are_traced_where_asked() -> None:
    class Asserting(fx.Tracer):
        trace_asserts = True

    graph = Asserting().trace(programs.checked)  # pytest writes the asserts of this file anew
    assert [n.name for n in graph.nodes] == ["x", "sum_1", "gt", "_assert", "lt", "_assert_1", "output"]
    assert [n.args[1] for n in graph.nodes if n.target is engine._assert] == ["", "too much"]
    with pytest.raises(fx.proxy.TraceError):
        Asserting().trace(lambda x: x if x else 1)


def test_specialized_inputs_are_checked() -> None:
    module = fx.symbolic_trace(lambda x, flag: x + 1 if flag else x, concrete_args={"flag": True})
    assert module(engine.ones(1), True).tolist() == [2.0]
    with pytest.raises(AssertionError, match="flag has been specialized to have value True but got another value"):
        module(engine.ones(1), False)


def test_functions_to_wrap_by_argument() -> None:
    graph = fx.Tracer(autowrap_functions=(helper,)).trace(lambda x: helper(x))
    assert [n.name for n in graph.nodes] == ["x", "helper", "output"]


def helper(x):
    return x if x.sum() > 0 else -x


def test_proxyable_class() -> None:
    class Pair(metaclass=fx.ProxyableClassMeta):
        def __init__(self, left, right):
            self.left, self.right = left, right

    graph = fx.Tracer().trace(lambda x: Pair(x, x).left)
    assert [n.name for n in graph.nodes] == ["x", "pair", "getattr_1", "output"]
    assert Pair(1, 2).right == 2


def test_not_a_function() -> None:
    with pytest.raises(AssertionError, match="Expected FunctionType, got <class 'int'>"):
        fx.Tracer().trace(3)
    assert not fx._symbolic_trace.is_fx_tracing()
