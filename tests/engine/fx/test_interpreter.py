"""Interpreter and Transformer."""

from __future__ import annotations

import operator

import pytest

import engine
from engine import fx, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.w = nn.Parameter(engine.ones(4))

    def forward(self, x, n=2):
        return engine.relu(self.lin(x) + self.w * n).sum(dim=1)


def test_runs_step_by_step() -> None:
    module = fx.symbolic_trace(Net())
    x = engine.randn(2, 4)
    run = fx.Interpreter(module)
    assert engine.equal(run.run(x), module(x)) and engine.equal(run.run(x, 3), module(x, 3))
    assert [n.op for n in run.env] == ["output"]  # the others have gone
    kept = fx.Interpreter(module, garbage_collect_values=False)
    kept.run(x)
    assert len(kept.env) == len(module.graph.nodes)
    values = [x, 2]
    assert engine.equal(run.boxed_run(values), module(x)) and values == []


def test_known_values() -> None:
    module = fx.symbolic_trace(Net())
    add = next(n for n in module.graph.nodes if n.name == "add")
    x = engine.ones(2, 4)
    found = fx.Interpreter(module, garbage_collect_values=False).run(x, initial_env={add: engine.ones(1, 4)})
    assert found.tolist() == [4.0]


def test_error_names_the_step() -> None:
    module = fx.symbolic_trace(Net())
    with pytest.raises(RuntimeError) as caught:
        fx.Interpreter(module).run(engine.ones(2, 5))
    assert str(caught.value) == (
        "mat1 and mat2 shapes cannot be multiplied (2x5 and 4x4)\n\n"
        "While executing %lin : [num_users=1] = call_module[target=lin](args = (%x,), kwargs = {})\n"
        "Original traceback:\nNone"
    )
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x, but one was not passed in!"):
        fx.Interpreter(module).run()


def test_changed_steps() -> None:
    class Doubled(fx.Interpreter):
        def call_function(self, target, args, kwargs):
            return super().call_function(operator.sub if target is operator.add else target, args, kwargs)

    module = fx.symbolic_trace(lambda x, y: x + y * 2)
    assert Doubled(module).run(engine.ones(1), engine.ones(1)).tolist() == [-1.0]


def test_transformer() -> None:
    class Swapped(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is engine.relu:
                return engine.sigmoid(*args, **kwargs)
            return super().call_function(target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return super().call_method("mean" if target == "sum" else target, args, kwargs)

    net = Net()
    module = fx.symbolic_trace(net)
    changed = Swapped(module).transform()
    assert [n.name for n in changed.graph.nodes] == [
        "x",
        "n",
        "lin",
        "w",
        "mul",
        "add",
        "sigmoid",
        "mean",
        "output",
    ]
    x = engine.randn(2, 4)
    assert engine.allclose(changed(x), engine.sigmoid(net.lin(x) + net.w * 2).mean(dim=1))
    assert fx.Transformer(module).transform().code == module.code
