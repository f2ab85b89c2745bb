"""What depends on no input is computed once, and what nothing reads is dropped."""

from __future__ import annotations

from typing import Any

import numpy as np

import engine
from engine.programs import passes
from engine.programs.graph import array, name, reads
from engine.programs.passes.constants import compute_constants, drop_unused, drop_unused_constants
from tests.engine.programs.test_graph import calls, graph


def names(made: Any) -> list[str]:
    return [name(node) for node in made.nodes if node.op == "call_function"]


def test_constants_are_computed() -> None:
    weight = engine.randn(3, 4)
    made = graph(lambda x: x @ (weight * 2).t() + weight.sum(1), engine.randn(2, 4))
    assert len(names(made)) == 5
    passes.apply(made, [compute_constants, drop_unused_constants])
    assert names(made) == ["mm", "add"]
    product, added = (reads(calls(made)[n])[1] for n in ("mm", "add"))
    np.testing.assert_array_equal(array(product), (weight * 2).t()._array)
    np.testing.assert_array_equal(array(added), weight.sum(1)._array)


def test_what_is_written_to_or_given_away_is_made_anew() -> None:
    def function(x: Any) -> Any:
        mask, kept = engine.zeros(3), engine.ones(3)
        mask.add_(x)
        return mask * engine.ones(3), kept

    made = graph(function, engine.randn(3))
    passes.apply(made, [compute_constants])
    assert names(made) == ["add", "mul"]
    fresh = ["fresh" in node.meta for node in made.nodes if "constant" in node.meta]
    assert fresh == [True, False, True]


def test_unused_calls_are_dropped_but_writes() -> None:
    def function(x: Any) -> Any:
        x.exp()
        y = x.cos()
        y.add_(1)
        return x.sin()

    made = graph(function, engine.randn(3))
    passes.apply(made, [drop_unused])
    assert names(made) == ["cos", "add", "sin"]
