"""Vector norms where they are 0."""

from __future__ import annotations

import engine


def test_second_derivatives_of_a_norm_of_nothing_are_nan() -> None:
    x = engine.zeros(3, dtype=engine.float64, requires_grad=True)
    (first,) = engine.autograd.grad(engine.linalg.norm(x), x, create_graph=True)
    assert first.tolist() == [0, 0, 0]
    (second,) = engine.autograd.grad(first.sum(), x)
    assert second.isnan().all()  # PyTorch's, too
