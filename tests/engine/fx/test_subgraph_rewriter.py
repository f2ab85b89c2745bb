"""replace_pattern."""

from __future__ import annotations

import operator

import pytest

import engine
from engine import fx, nn
from engine.fx.subgraph_rewriter import replace_pattern_with_filters


def pattern(x, y):
    return engine.relu(x + y)


def replacement(x, y):
    return engine.sigmoid(x * y)


def twice(x, y):
    a = engine.relu(x + y)
    return engine.relu(a + x)


def test_chained_places_as_torch_replaces_them() -> None:
    module = fx.symbolic_trace(twice)
    found = fx.replace_pattern(module, pattern, replacement)
    assert str(found) == (
        "[Match(anchor=relu, nodes_map={relu: relu, add: add, x: x, y: y}), "
        "Match(anchor=relu, nodes_map={relu: relu_1, add: add_1, x: sigmoid, y: x})]"
    )
    assert module.code == (
        "\n\n\ndef forward(self, x, y):\n    mul = x * y;  y = None\n    sigmoid = torch.sigmoid(mul);  mul = "
        "None\n    mul_1 = sigmoid * x;  sigmoid = x = None\n    sigmoid_1 = torch.sigmoid(mul_1);  mul_1 = None\n    "
        "return sigmoid_1\n    "
    )
    module.graph.lint()


def test_what_others_read_stays() -> None:
    def shown(x, y):
        s = x + y
        return engine.relu(s), s

    module = fx.symbolic_trace(shown)
    before = module.code
    assert fx.replace_pattern(module, pattern, replacement) == [] and module.code == before


def test_several_results() -> None:
    module = fx.symbolic_trace(lambda x: engine.sin(x) + engine.cos(x))
    found = fx.replace_pattern(
        module, lambda x: (engine.sin(x), engine.cos(x)), lambda x: (engine.cos(x) * 2, engine.sin(x) * 3)
    )
    assert len(found) == 1
    x = engine.tensor([0.5])
    assert engine.allclose(module(x), engine.cos(x) * 2 + engine.sin(x) * 3)


def test_modules_of_the_replacement_come_along() -> None:
    class Halved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1)

        def forward(self, x, y):
            return self.inner(x - y)

    module = fx.symbolic_trace(twice)
    fx.replace_pattern(module, pattern, fx.symbolic_trace(Halved()))
    module.graph.lint()
    assert [name for name, _ in module.named_parameters()] == ["inner.weight", "inner.bias"]
    assert module(engine.ones(2, 1), engine.ones(2, 1)).shape == (2, 1)


def test_filters_literals_and_callbacks() -> None:
    module = fx.symbolic_trace(lambda x: engine.relu(x + 1) * engine.relu(x + x))
    seen = []
    found = replace_pattern_with_filters(
        module,
        pattern,
        replacement,
        match_filters=[lambda match, graph, p: bool(seen.append(1)) or len(seen) > 1],
        ignore_literals=True,
    )
    assert len(found) == 1 and len(seen) == 2
    assert [n.target for n in found[0].replacements] == [operator.mul, engine.sigmoid]
    module = fx.symbolic_trace(lambda x: engine.relu(x + 1))
    traced = fx.symbolic_trace(replacement).graph
    replace_pattern_with_filters(
        module, pattern, ignore_literals=True, replacement_callback=lambda match, graph, p: traced
    )
    assert engine.allclose(module(engine.ones(1)), engine.sigmoid(engine.ones(1)))
    assert "mul = x * 1" in module.code


def test_as_many_inputs() -> None:
    with pytest.raises(AssertionError, match="The replacement graph has 3 inputs, the pattern 2"):
        fx.replace_pattern(fx.symbolic_trace(twice), pattern, lambda x, y, z: x)
