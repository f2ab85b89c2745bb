"""Batch norms become a part of the layer before them; a mean and the view behind it one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.fx.interpreter import Interpreter
from engine.programs import passes
from engine.programs.graph import kind
from engine.programs.passes.constants import drop_unused_constants
from engine.programs.passes.flatten_means import flatten_means
from engine.programs.passes.fold_norms import fold_norms
from tests.engine.programs.passes.test_constants import names
from tests.engine.programs.test_graph import graph


def given(made: Any, x: Any) -> Any:
    """What a graph gives."""
    values = [node.meta.get("constant", x) for node in made.nodes if node.op == "placeholder"]
    return Interpreter(nn.Module(), graph=made).run(*values)


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(3, 4, 2, bias=False)])
def test_a_norm_is_folded_into_its_convolution(layer: nn.Module) -> None:
    norm = nn.BatchNorm2d(4).eval()
    with engine.no_grad():
        for one in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            one.uniform_(0.5, 2)
    x = engine.randn(2, 3, 5, 5)
    made = graph(nn.Sequential(layer, norm), x)
    passes.apply(made, [fold_norms, drop_unused_constants])
    assert names(made) == ["convolution"]
    with engine.no_grad():
        np.testing.assert_allclose(given(made, x)._array, norm(layer(x))._array, rtol=1e-4, atol=1e-5)


def test_a_norm_with_another_reader_of_its_layer_stays() -> None:
    layer, norm = nn.Linear(3, 4), nn.BatchNorm1d(4).eval()
    made = graph(lambda x: norm(y := layer(x)) + y, engine.randn(5, 3))
    passes.apply(made, [fold_norms])
    assert names(made) == ["linear", "batch_norm_eval", "add"]


def test_a_mean_and_its_view_are_one_call() -> None:
    x = engine.randn(2, 3, 4, 5)
    made = graph(lambda x: x.mean((2, 3), keepdim=True).flatten(1), x)
    passes.apply(made, [flatten_means])
    assert names(made) == ["mean"]
    assert [kind(node)[0] for node in made.nodes if node.op == "call_function"] == [(2, 3)]
    np.testing.assert_allclose(given(made, x)._array, x._array.mean((2, 3)), rtol=1e-5)
    other = graph(lambda x: x.mean((1, 3), keepdim=True).flatten(1), x)
    passes.apply(other, [flatten_means])
    assert len(names(other)) == 2
