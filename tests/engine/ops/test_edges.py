"""Empty and 0-dim operands, ends of ranges, kinds of errors: stored answers of torch 2.13."""

from __future__ import annotations

from typing import Any

import pytest

import engine
from engine.autograd.gradcheck import gradgradcheck
from tests.engine.ops.stored import answer, stored


@pytest.mark.parametrize("expression, expected", stored("edges") + stored("losses"))
def test_as_torch(expression: str, expected: Any) -> None:
    assert answer(expression) == expected


@pytest.mark.parametrize("side", ["L", "U"])
def test_the_gradient_of_eigh_is_hermitian(side: str) -> None:
    x = engine.tensor([[2.0, 0.5, -0.3], [0.1, 1.0, 0.2], [0.7, 0.2, -1.0]], dtype=engine.complex128)
    x = (x + 1j * engine.tensor([[0.0, 0.4, 0.1], [-0.4, 0.0, 0.3], [-0.1, -0.3, 0.0]])).requires_grad_()
    _, vectors = engine.linalg.eigh(x, UPLO=side)
    (vectors.abs() * engine.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert engine.allclose(x.grad, x.grad.mH) and x.grad.abs().max() > 0.1


@pytest.mark.parametrize("function", ["scatter_reduce", "index_reduce"])
@pytest.mark.parametrize("include_self", [True, False])
def test_second_derivatives_of_products_with_zeros(function: str, include_self: bool) -> None:
    x = engine.tensor([2.0, 3.0, 0.0, 5.0], dtype=engine.float64, requires_grad=True)
    source = engine.tensor([0.0, 0.0, 4.0, 2.0, 0.0], dtype=engine.float64, requires_grad=True)
    index = engine.tensor([0, 0, 1, 1, 2])

    def products(x: engine.Tensor, source: engine.Tensor) -> engine.Tensor:
        return getattr(x, function)(0, index, source, "prod", include_self=include_self)

    assert gradgradcheck(products, (x, source))


def test_renorm_in_a_graph() -> None:
    x = engine.tensor([[3.0, 4.0], [0.3, 0.4]], dtype=engine.float64, requires_grad=True)
    moved = x.clone()
    moved.renorm_(2, 0, 1.0)
    (found,) = engine.autograd.grad(moved.sum(), x)
    (want,) = engine.autograd.grad(x.renorm(2, 0, 1.0).sum(), x)
    assert engine.allclose(found, want)


def test_grid_sample_in_bfloat16_has_the_slope_of_a_ramp() -> None:
    ramp = engine.arange(6.0).expand(1, 1, 5, 6).bfloat16()
    grid = (engine.arange(8.0) / 8 - 0.4).reshape(1, 4, 1, 2).bfloat16().requires_grad_()
    engine.nn.functional.grid_sample(ramp, grid, align_corners=True).sum().backward()
    slope = grid.grad[..., 0]
    assert slope.dtype is engine.bfloat16 and engine.allclose(slope.float(), engine.tensor(2.5), atol=0.05)


def test_dropout_of_a_number() -> None:
    drawn = {engine.nn.functional.dropout(engine.tensor(3.0), 0.5).item() for _ in range(60)}
    assert drawn == {0.0, 6.0}


def test_igamma_of_large_parameters() -> None:
    a = engine.tensor([201.0, 5e3, 1e6, 1e16], dtype=engine.float64)
    x = engine.tensor([190.0, 5.1e3, 1.0005e6, 1e16], dtype=engine.float64)
    want = engine.tensor([0.2215763463, 0.9206711189, 0.6915504758, 0.5], dtype=engine.float64)
    assert engine.allclose(engine.igamma(a, x), want, atol=1e-6)
    assert engine.allclose(engine.igamma(a, x) + engine.igammac(a, x), engine.ones_like(a))
