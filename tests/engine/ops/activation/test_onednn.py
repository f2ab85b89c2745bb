"""Activation functions of large tensors (oneDNN, blocks) are those of small ones (numpy), odd values included."""

from __future__ import annotations

import math

import pytest

import engine
from engine.nn import functional as F

pytestmark = pytest.mark.onednn
INF, NAN = math.inf, math.nan
ODD = [
    NAN,
    INF,
    -INF,
    0.0,
    -0.0,
    3.0,
    -3.0,
    1.0,
    -1.0,
    6.0,
    0.5,
    -0.5,
    1e-6,
    -1e-6,
    20.0,
    -20.0,
    90.0,
    -90.0,
]
FUNCTIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "leaky_relu 0": lambda x: F.leaky_relu(x, 0.0),
    "leaky_relu 2": lambda x: F.leaky_relu(x, 2.0),
    "elu": F.elu,
    "elu 0.5": lambda x: F.elu(x, 0.5),
    "selu": F.selu,
    "celu": F.celu,
    "celu 2": lambda x: F.celu(x, 2.0),
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus 2": lambda x: F.softplus(x, 2.0, 5.0),
    "logsigmoid": F.logsigmoid,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "sigmoid": engine.sigmoid,
    "tanh": engine.tanh,
}


def both(function, x):
    x = x.detach().requires_grad_()
    y = function(x)
    (grad,) = engine.autograd.grad(y, x, engine.full_like(y, 2.0))
    return y.detach(), grad


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("count", [20_000, 400_000])
def test_large_is_as_small(name: str, count: int) -> None:
    generator = engine.Generator().manual_seed(1)
    x = engine.randn(count, generator=generator) * 5
    finite = [v for v in ODD if math.isfinite(v)]
    for odd in (finite, ODD):
        x[5000 : 5000 + len(odd)] = engine.tensor(odd)
        found = both(FUNCTIONS[name], x)
        part = slice(4500, 6500)
        wanted = both(FUNCTIONS[name], x[part].clone())
        for a, b in zip(found, wanted):
            engine.testing.assert_close(a[part], b, rtol=2e-5, atol=2e-6, equal_nan=True)


def test_small_negative_values_keep_their_digits() -> None:
    x = -engine.logspace(-7, -2, 100_000)
    for function in (F.elu, F.selu, F.celu):
        engine.testing.assert_close(function(x).double(), function(x.double()), rtol=1e-6, atol=0.0)
    x = engine.linspace(-80, -5, 100_000)
    for function in (F.softplus, F.mish, lambda v: F.logsigmoid(-v)):
        engine.testing.assert_close(function(x).double(), function(x.double()), rtol=2e-5, atol=0.0)
