"""Operators of aten that compute gradients: what `autograd.grad` gives of the forward function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import engine
from engine.library.aten_gradients import GRADIENTS
from engine.nn import functional as F

OPS = engine.ops.aten


def draw(*shape: int) -> engine.Tensor:
    generator = engine.Generator().manual_seed(sum(shape))
    return engine.randn(*shape, dtype=engine.float64, generator=generator)


X, TARGET = draw(3, 4), engine.tensor([1, 0, 3])
IMAGE, PIXELS = draw(1, 2, 5, 4), draw(1, 3, 3, 2).tanh()
# name: the forward function of one tensor, and the arguments of the operator behind `self`
BY_INPUT: list[tuple[str, Callable[..., engine.Tensor], engine.Tensor, tuple[Any, ...]]] = [
    ("silu", F.silu, X, ()),
    ("mish", F.mish, X, ()),
    ("hardswish", F.hardswish, X * 3, ()),
    ("hardsigmoid", F.hardsigmoid, X * 3, ()),
    ("gelu", F.gelu, X, ()),
    ("threshold", lambda x, at: F.threshold(x, at, 0), X, (0.1,)),
    ("hardtanh", F.hardtanh, X, (-0.5, 0.5)),
    ("leaky_relu", lambda x, slope, _: F.leaky_relu(x, slope), X, (0.1, False)),
    ("softplus", F.softplus, X, (2.0, 20.0)),
    ("glu", F.glu, X, (-1,)),
    ("log_sigmoid", lambda x, _: F.logsigmoid(x), X, (None,)),
    ("mse_loss", lambda x, y, _: F.mse_loss(x, y), X, (X.flip(0), 1)),
    ("smooth_l1_loss", lambda x, y, _, beta: F.smooth_l1_loss(x, y, reduction="sum", beta=beta), X, (-X, 2, 0.7)),
    ("huber_loss", lambda x, y, _, d: F.huber_loss(x, y, reduction="none", delta=d), X, (-X, 0, 0.7)),
    ("binary_cross_entropy", lambda x, y, *_: F.binary_cross_entropy(x, y), X.sigmoid(), (X.flip(0).sigmoid(),)),
    ("nll_loss", lambda x, t, w, *_: F.nll_loss(x, t, w, ignore_index=0), X, (TARGET, X[0].abs(), 1, 0, X.sum())),
    ("avg_pool2d", F.avg_pool2d, IMAGE, ([2, 2], [2, 1], [1, 0], False, True, None)),
    ("_adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), IMAGE, ()),
    ("reflection_pad2d", lambda x, pad: F.pad(x, pad, mode="reflect"), IMAGE, ([1, 2, 0, 1],)),
    ("replication_pad2d", lambda x, pad: F.pad(x, pad, mode="replicate"), IMAGE, ([1, 2, 0, 1],)),
]


def slope(forward: Callable[..., Any], inputs: tuple[engine.Tensor, ...], grad: engine.Tensor) -> tuple[Any, ...]:
    given = [x.detach().requires_grad_() for x in inputs]
    return engine.autograd.grad(forward(*given), given, grad)


@pytest.mark.parametrize(("name", "forward", "x", "rest"), BY_INPUT, ids=[case[0] for case in BY_INPUT])
def test_gradients_by_the_input(name: str, forward: Any, x: engine.Tensor, rest: tuple[Any, ...]) -> None:
    grad = engine.ones_like(forward(x, *rest)) * 1.5
    found = getattr(OPS, f"{name}_backward")(grad, x, *rest)
    (want,) = slope(lambda t: forward(t, *rest), (x,), grad)
    engine.testing.assert_close(found, want)


def test_elu_by_its_input_and_by_its_result() -> None:
    grad = draw(3, 4) + 1
    (want,) = slope(lambda x: F.elu(x, 1.5), (X,), grad)
    engine.testing.assert_close(OPS.elu_backward(grad, 1.5, 1.0, 1.0, False, X), want)
    engine.testing.assert_close(OPS.elu_backward(grad, 1.5, 1.0, 1.0, True, F.elu(X, 1.5)), want)


@pytest.mark.parametrize("mask", [(True, True, True), (False, True, False), (True, False, True)])
def test_layers_give_what_is_asked_for(mask: tuple[bool, bool, bool]) -> None:
    x, w, b = draw(2, 4, 5, 5), draw(6, 2, 3, 3), draw(6)
    options = [1, 2], [1, 0], [1, 1], False, [0, 0], 2
    y = engine.convolution(x, w, b, *options)
    forward = lambda x, w, b: engine.convolution(x, w, b, *options)
    checks = [(OPS.convolution_backward(y, x, w, [6], *options, mask), slope(forward, (x, w, b), y))]
    scale, shift = draw(4), draw(4) + 1
    mean, rstd = x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + 1e-5).rsqrt()
    g = draw(2, 4, 5, 5) * x
    for train in (True, False):
        made = OPS.native_batch_norm_backward(g, x, scale, shift, shift.abs(), mean, rstd, train, 1e-5, mask)
        norm = lambda x, w, b, train=train: F.batch_norm(x, shift.clone(), shift.abs(), w, b, train)
        checks.append((made, slope(norm, (x, scale, shift), g)))
    _, mean, rstd = engine.native_group_norm(x, scale, shift, 2, 4, 25, 2, 1e-5)
    made = OPS.native_group_norm_backward(g, x, mean, rstd, scale, 2, 4, 25, 2, mask)
    checks.append((made, slope(lambda x, w, b: F.group_norm(x, 2, w, b), (x, scale, shift), g)))
    scale, shift = draw(5, 5), draw(5, 5) + 1
    _, mean, rstd = engine.native_layer_norm(x, [5, 5], scale, shift, 1e-5)
    made = OPS.native_layer_norm_backward(g, x, [5, 5], mean, rstd, scale, shift, mask)
    checks.append((made, slope(lambda x, w, b: F.layer_norm(x, [5, 5], w, b), (x, scale, shift), g)))
    for found, want in checks:
        for value, expected, asked in zip(found, want, mask, strict=True):
            assert (value is not None) is asked
            if asked:
                engine.testing.assert_close(value, expected)


def test_resampling_sampling_and_views() -> None:
    for name, mode in (("nearest2d", "nearest"), ("bilinear2d", "bilinear"), ("bicubic2d", "bicubic")):
        corners = () if mode == "nearest" else (False,)
        grad = draw(1, 2, 7, 8)
        found = getattr(OPS, f"upsample_{name}_backward")(grad, [7, 8], [1, 2, 5, 4], *corners)
        (want,) = slope(lambda x, mode=mode: F.interpolate(x, (7, 8), mode=mode), (IMAGE,), grad)
        engine.testing.assert_close(found, want)
    grad = draw(1, 2, 3, 3)
    want = slope(lambda x, p: F.grid_sample(x, p, align_corners=False), (IMAGE, PIXELS), grad)
    engine.testing.assert_close(OPS.grid_sampler_2d_backward(grad, IMAGE, PIXELS, 0, 0, False, [True, True]), want)
    assert OPS.select_backward(X[0], [2, 4], 0, 1).tolist() == [[0] * 4, X[0].tolist()]
    assert OPS.slice_backward(X[:1], [3, 4], 0, 1, 3, 2).tolist() == [[0] * 4, X[0].tolist(), [0] * 4]
    weights = OPS.embedding_dense_backward(engine.ones(3, 2), engine.tensor([1, 1, 0]), 3, 0, False)
    assert weights.tolist() == [[0, 0], [2, 2], [0, 0]]


def test_a_gradient_is_differentiable_where_something_requires_grad() -> None:
    x = X.clone().requires_grad_()
    for operator in (OPS.gelu_backward, OPS.hardsigmoid_backward, OPS.mish_backward):
        assert engine.autograd.gradcheck(lambda g, x, f=operator: f(g, x), (X.flip(0).requires_grad_(), x))
        assert not operator(X, X).requires_grad
        with engine.no_grad():
            assert not operator(X, x).requires_grad


def test_copies_and_views() -> None:
    x = engine.arange(3.0)
    assert OPS.copy(x.int(), engine.tensor([1.5])).tolist() == [1, 1, 1]
    assert OPS.alias(x).data_ptr() == x.data_ptr() == OPS._unsafe_view(x, [3, 1]).data_ptr()
    assert OPS.lift_fresh_copy(x).data_ptr() != x.data_ptr()
    assert "copy_backward" not in GRADIENTS
