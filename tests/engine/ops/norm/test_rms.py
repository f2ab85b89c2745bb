"""RMS norm with gradients: its fused kernels against its own code, its derivatives against small ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.dispatch import OPS
from engine.kernels import processor
from tests.engine.ops.generated.test_layers import agree, arrays

F = engine.nn.functional
SHAPES = [((3, 5, 48), 1), ((2, 3, 7), 2), ((40, 3, 9), 1), ((1, 130), 1)]


@pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")
@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape,last", SHAPES)
def test_generated_kernels(shape: tuple[int, ...], last: int, dtype: str) -> None:
    size = shape[-last:]
    x, g, weight = arrays(shape, shape, size, dtype=dtype)
    for w in (weight, None):
        agree("rms_norm_train", x, size, w, 1e-5)
        agree("rms_norm_train", np.asfortranarray(x), size, w, 0.1)
        rstd = OPS["rms_norm_train"].kernel(np, x, size, w, 1e-5)[1]
        agree("rms_norm_backward", g, x, rstd, w, size, 1e-5)
        agree("rms_norm_backward", np.asfortranarray(g), np.asfortranarray(x), rstd, w, size, 1e-5)


def _by_small_ops(x: Any, size: tuple[int, ...], weight: Any, eps: float) -> Any:
    dims = tuple(range(-len(size), 0))
    made = x * ((x * x).mean(dims, True) + eps).rsqrt()
    return made if weight is None else made * weight


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape,last", [*SHAPES, ((6,), 1), ((0, 3), 1)])
def test_gradients_and_their_gradients(shape: tuple[int, ...], last: int, weighted: bool) -> None:
    engine.manual_seed(0)
    size = shape[-last:]
    x = engine.randn(shape, dtype=engine.float64, requires_grad=True)
    w = engine.randn(size, dtype=engine.float64, requires_grad=True) if weighted else None
    leaves = [x] if w is None else [x, w]
    g = engine.randn(shape, dtype=engine.float64, requires_grad=True)
    found = []
    for function in (F.rms_norm, _by_small_ops):
        y = function(x, size, w, 1e-3)
        first = engine.autograd.grad(y, leaves, g, create_graph=True)
        second = engine.autograd.grad([(f * f).sum() for f in first], [*leaves, g])
        found.append([y, *first, *second])
    for got, want in zip(*found):
        assert engine.allclose(got, want, rtol=1e-9, atol=1e-11)


def test_values_that_are_not_finite() -> None:
    rows = [[1.0, np.inf, 2.0], [np.nan, 1.0, 1.0], [0.0, 0.0, 0.0], [1e30, 1.0, -1e30]]
    found = []
    for function in (F.rms_norm, _by_small_ops):
        x, w = engine.tensor(rows, requires_grad=True), engine.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = function(x, (3,), w, 1e-5)
        y[1:].sum().backward()
        assert x.grad is not None and w.grad is not None
        found.append((y.detach(), x.grad, w.grad))
    for got, want in zip(*found):
        assert engine.allclose(got, want, equal_nan=True)


def test_node_and_types_that_small_ops_serve() -> None:
    x = engine.ones(2, 3, requires_grad=True)
    assert F.rms_norm(x, (3,)).grad_fn.name() == "MulBackward0"
    assert F.rms_norm(x, (3,), engine.ones(3, dtype=engine.float64)).dtype == engine.float32
    assert F.rms_norm(x.half(), (3,)).dtype == engine.float16


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mapped", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_each_sample(mapped: tuple[int | None, int | None], weighted: bool) -> None:
    engine.manual_seed(0)
    if not weighted and mapped[0] is None:
        return
    x = engine.randn(4, 2, 3) if mapped[0] == 0 else engine.randn(2, 3)
    w = engine.randn(4, 3) if mapped[1] == 0 else engine.randn(3)

    def loss(x: Any, w: Any) -> Any:
        return (F.rms_norm(x, (3,), w if weighted else None, 1e-3) ** 2).sum() + w.sum() * 0

    slopes = engine.func.vmap(engine.func.grad(loss, argnums=(0, 1)), mapped)(x, w)
    for n in range(4):
        one = [(a[n] if at == 0 else a).clone().requires_grad_() for a, at in zip((x, w), mapped)]
        want = engine.autograd.grad(loss(*one), one)
        for got, of in zip(slopes, want):
            assert engine.allclose(got[n], of, atol=1e-5)
