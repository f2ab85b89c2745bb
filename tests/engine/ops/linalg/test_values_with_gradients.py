"""Singular values and eigenvalues that need a gradient: values, slopes and what is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import engine

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "svdvals": engine.linalg.svdvals,
    "eigvalsh": engine.linalg.eigvalsh,
    "eigvals": lambda A: engine.linalg.eigvals(A).abs(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_matrix_may_be_written_to_before_backward(name: str) -> None:
    function = FUNCTIONS[name]
    engine.manual_seed(3)
    A = engine.randn(4, 4, dtype=engine.float64)
    A = (A + A.T).requires_grad_()
    plain, found = function(A.detach()), function(A)
    assert engine.allclose(plain.sort()[0], found.sort()[0])
    expected = engine.autograd.grad(found.square().sum(), A, retain_graph=True)[0]
    with engine.no_grad():
        A.mul_(2)
    assert engine.allclose(engine.autograd.grad(found.square().sum(), A)[0], expected)
    with pytest.raises(RuntimeError, match="second time"):
        engine.autograd.grad(found.square().sum(), A)
    assert not function(A.detach()).requires_grad
