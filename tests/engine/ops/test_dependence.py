"""Gradients that require grad with tensors that do not enter their values, as torch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import engine
from engine import Tensor
from engine.nn import functional as F

TARGET = engine.tensor([0, 1, 1])
ONES = engine.ones(2)

CASES: dict[
    str, tuple[Callable[..., Tensor], list[tuple[int, ...]], int, bool]
] = {  # operands, which requires grad, zero
    "conv1d frozen": (F.conv1d, [(2, 2, 6), (3, 2, 2), (3,)], 0, False),
    "conv2d frozen": (F.conv2d, [(2, 2, 6, 6), (3, 2, 2, 2), (3,)], 0, False),
    "conv3d of data": (F.conv3d, [(1, 2, 3, 3, 3), (3, 2, 2, 2, 2), (3,)], 1, False),
    "conv_transpose2d frozen": (F.conv_transpose2d, [(2, 2, 3, 3), (2, 3, 2, 2)], 0, False),
    "batch_norm frozen": (lambda x, w, b: F.batch_norm(x, ONES, ONES, w, b), [(3, 2, 4), (2,), (2,)], 0, False),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, 2), [(1, 2, 5, 5)], 0, True),
    "area": (lambda x: F.interpolate(x, size=(3, 2), mode="area"), [(1, 2, 5, 5)], 0, True),
    "nll_loss": (lambda x: F.nll_loss(x, TARGET), [(3, 2)], 0, True),
    "nll_loss of maps": (lambda x: F.nll_loss(x, TARGET.reshape(1, 3)), [(1, 2, 3)], 0, True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [engine.float32, engine.float64])
def test_a_gradient_can_be_differentiated(name: str, dtype: Any) -> None:
    """Torch 2.13: `grad(create_graph=True)` requires grad, and its own gradient is undefined or zero."""
    function, shapes, which, zero = CASES[name]
    operands = [engine.randn(shape, dtype=dtype) for shape in shapes]
    if name == "batch_norm frozen":
        function = lambda x, w, b: F.batch_norm(x, ONES.to(dtype), ONES.to(dtype), w, b)
    x = operands[which].requires_grad_()
    plain = engine.autograd.grad(function(*operands).sum(), x)[0]
    assert not plain.requires_grad
    first = engine.autograd.grad(function(*operands).sum(), x, create_graph=True)[0]
    assert first.requires_grad and engine.equal(first, plain)
    (second,) = engine.autograd.grad(first.sum(), x, allow_unused=True)
    assert second is None if not zero else second is not None and not second.any()


def test_all_gradients_of_a_convolution_require_grad() -> None:
    x, w, b = engine.randn(1, 2, 4), engine.randn(3, 2, 2), engine.randn(3)
    w.requires_grad_()
    b.requires_grad_()
    for gradient in engine.autograd.grad(F.conv1d(x, w, b).sum(), (w, b), create_graph=True):
        assert gradient.requires_grad
    (of_bias,) = engine.autograd.grad(F.conv1d(x, w.detach(), b).sum(), b, create_graph=True)
    assert not of_bias.requires_grad  # no operand of the gradient requires grad
