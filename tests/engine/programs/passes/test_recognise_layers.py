"""Layers that are written out in elementary ops become one call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engine
from engine.programs import passes
from engine.programs.passes.recognise_layers import as_gelus, as_layer_norms, as_linears
from tests.engine.programs.passes.test_constants import names
from tests.engine.programs.passes.test_fold_norms import given
from tests.engine.programs.test_graph import graph

GELUS: list[Callable[[Any], Any]] = [
    lambda x: x * 0.5 * (1.0 + engine.erf(x / math.sqrt(2.0))),
    lambda x: 0.5 * x * (1 + engine.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * engine.pow(x, 3)))),
]


@pytest.mark.parametrize("written", GELUS)
def test_gelus(written: Callable[[Any], Any]) -> None:
    x = engine.randn(4, 5)
    made = graph(written, x)
    passes.apply(made, [as_gelus])
    assert names(made) == ["gelu"]
    np.testing.assert_allclose(given(made, x)._array, written(x)._array, rtol=1e-5, atol=1e-6)


def test_a_gelu_whose_middle_is_read_stays() -> None:
    made = graph(lambda x: (x * 0.5 * (1.0 + (gate := engine.erf(x / math.sqrt(2.0)))), gate), engine.randn(4, 5))
    before = names(made)
    passes.apply(made, [as_gelus])
    assert names(made) == before


def test_layer_norms() -> None:
    weight, bias, x = engine.randn(5), engine.randn(5), engine.randn(4, 5)

    def written(x: Any) -> Any:
        mean = x.mean(-1, keepdim=True)
        var = (x - mean).pow(2).mean(-1, keepdim=True)
        return weight * ((x - mean) / engine.sqrt(var + 1e-5)) + bias

    made = graph(written, x)
    passes.apply(made, [as_layer_norms])
    assert names(made) == ["layer_norm_inference"]
    np.testing.assert_allclose(given(made, x)._array, written(x)._array, rtol=1e-4, atol=1e-5)


def test_linear_layers() -> None:
    weight, bias, x = engine.randn(5, 3), engine.randn(3), engine.randn(4, 5)
    made = graph(lambda x: engine.addmm(bias, x, weight), x)
    passes.apply(made, [as_linears])
    assert names(made) == ["linear"]
    np.testing.assert_allclose(given(made, x)._array, x._array @ weight._array + bias._array, rtol=1e-4, atol=1e-5)
