"""Numeric conventions of gradients (rules NU01-NU05)."""

import math

import numpy as np
import pytest

import engine
from engine.autograd import gradcheck
from engine.nn import functional as F

from ._util import check, leaf

INF, NAN = float("inf"), float("nan")


def gradient(f, values):
    """The gradient of sum(f(x)) at `values`."""
    x = engine.tensor(values, dtype=engine.float64, requires_grad=True)
    f(x).sum().backward()
    return x.grad


@pytest.mark.parametrize(
    "f, values, expected",
    [
        (engine.relu, [-1.0, 0.0, 1.0], [0, 0, 1]),
        (F.relu, [0.0, -0.0], [0, 0]),
        (F.relu6, [0.0, 6.0, 3.0], [0, 0, 1]),
        (engine.abs, [-2.0, 0.0, 2.0], [-1, 0, 1]),
        (engine.sign, [-2.0, 0.0, 2.0], [0, 0, 0]),
        (engine.floor, [0.5, 1.0], [0, 0]),
        (engine.round, [0.5, 1.0], [0, 0]),
        (lambda x: x.norm(), [0.0, 0.0], [0, 0]),
        (lambda x: x.norm(1), [0.0, 3.0], [0, 1]),
        (lambda x: x.norm(3), [0.0, 0.0], [0, 0]),
        (lambda x: x.view(2, 2).norm(2, dim=1), [0.0, 0.0, 3.0, 4.0], [0, 0, 0.6, 0.8]),
        (lambda x: x.clamp(-1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0], [0, 1, 1, 1, 0]),
        (lambda x: x.clamp(min=0), [-1.0, 0.0, 1.0], [0, 1, 1]),
        (lambda x: x.clamp(max=0), [-1.0, 0.0, 1.0], [1, 1, 0]),
        (lambda x: F.hardtanh(x), [-1.0, 0.0, 1.0], [0, 1, 0]),
        (lambda x: F.leaky_relu(x, 0.1), [-1.0, 0.0, 1.0], [0.1, 0.1, 1]),
        (lambda x: F.elu(x), [0.0, 1.0], [1, 1]),
        (lambda x: F.threshold(x, 0.5, 0.0), [0.5, 0.6], [0, 1]),
        (
            lambda x: F.smooth_l1_loss(x, x.detach() * 0, reduction="none"),
            [0.0, 1.0, 2.0],
            [0, 1, 1],
        ),
        (lambda x: F.l1_loss(x, x.detach() * 0, reduction="none"), [0.0, 1.0], [0, 1]),
    ],
)
def test_nu01_subgradients(f, values, expected):
    """NU01: subgradients: relu 0 at 0, abs 0 at 0, norm 0 at 0, max splits ties, clamp 1 at its
    bounds.
    """
    check(gradient(f, values), expected)


@pytest.mark.parametrize(
    "f, values, expected",
    [
        (lambda x: x.max(), [1.0, 3.0, 3.0], [0, 0.5, 0.5]),
        (lambda x: x.min(), [1.0, 1.0, 1.0, 1.0], [0.25] * 4),
        (lambda x: engine.max(x[:2], x[2:]), [1.0, 2.0, 1.0, 5.0], [0.5, 0, 0.5, 1]),
        (lambda x: engine.min(x[:2], x[2:]), [1.0, 2.0, 1.0, 5.0], [0.5, 1, 0.5, 0]),
        (lambda x: x.view(2, 2).max(1)[0], [4.0, 4.0, 1.0, 2.0], [1, 0, 0, 1]),
        (lambda x: x.max(0)[0], [1.0, 2.0, 0.0], [0, 1, 0]),
    ],
)
def test_nu01_ties(f, values, expected):
    """NU01: subgradients: relu 0 at 0, abs 0 at 0, norm 0 at 0, max splits ties, clamp 1 at its
    bounds.
    """
    check(gradient(f, values), expected)


def test_nu02_pow():
    """NU02: pow: x**0 has gradient 0 everywhere; 0**y with y>0 has gradient 0 for y."""
    check(gradient(lambda x: x**0, [0.0, 2.0, -1.0]), [0, 0, 0])
    check(gradient(lambda x: x**1, [0.0, 2.0]), [1, 1])
    check(gradient(lambda x: x**2, [0.0, -2.0]), [0, -4])
    check(gradient(lambda x: x**0.0, [0.0]), [0])
    check(gradient(lambda x: engine.pow(x, engine.tensor([0.0, 0.0]).double()), [0.0, 3.0]), [0, 0])
    check(gradient(lambda y: engine.pow(engine.zeros(2).double(), y), [1.0, 3.0]), [0, 0])
    check(gradient(lambda y: 0**y, [1.0, 3.0]), [0, 0])
    check(gradient(lambda y: 2**y, [0.0, 1.0]), [math.log(2), 2 * math.log(2)])
    base = leaf(3, low=0.5, high=1.5)
    assert gradcheck(lambda a, b: a**b, (base, leaf(3, seed=2)))
    assert gradcheck(lambda a: a**-1.5, (base,))


def test_nu02_both_at_zero():
    """NU02: pow: x**0 has gradient 0 everywhere; 0**y with y>0 has gradient 0 for y."""
    x = engine.tensor([0.0, 0.0], dtype=engine.float64, requires_grad=True)
    y = engine.tensor([2.0, 1.0], dtype=engine.float64, requires_grad=True)
    (x**y).sum().backward()
    check(x.grad, [0, 1])
    check(y.grad, [0, 0])


def test_nu03_where():
    """NU03: where: nan in the branch not taken still poisons through 0*nan only if its own
    gradient is nan.
    """
    x = engine.tensor([0.0, 4.0], requires_grad=True)
    engine.where(x > 0, x.sqrt(), engine.zeros(2)).sum().backward()
    assert math.isnan(x.grad[0].item()) and x.grad[1].item() == 0.25
    x = engine.tensor([1.0, 2.0], requires_grad=True)
    y = engine.where(x > 1.5, x * 3, x + NAN)
    assert math.isnan(y[0].item())
    engine.where(x > 0, x * 3, x + NAN).sum().backward()
    check(x.grad, [3, 3])
    a = engine.tensor([1.0, 2.0], requires_grad=True)
    b = engine.tensor([NAN, 5.0], requires_grad=True)
    engine.where(engine.tensor([True, False]), a, b).sum().backward()
    check(a.grad, [1, 0])
    check(b.grad, [0, 1])


def test_nu03_the_safe_way():
    """NU03: where: nan in the branch not taken still poisons through 0*nan only if its own
    gradient is nan.
    """
    x = engine.tensor([0.0, 4.0], requires_grad=True)
    safe = engine.where(x > 0, x, engine.ones(2))
    engine.where(x > 0, safe.sqrt(), engine.zeros(2)).sum().backward()
    check(x.grad, [0, 0.25])
    x = engine.tensor([0.0, 4.0], requires_grad=True)
    x.sqrt().masked_fill(x.detach() == 0, 0.0).sum().backward()
    assert math.isnan(x.grad[0].item())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nu04_stable_softmax(dtype):
    """NU04: softmax, log_softmax and logsumexp are stable for large inputs, forward and
    backward.
    """
    values = [1000.0, 999.0, -1000.0]
    x = engine.tensor(values, dtype=getattr(engine, dtype), requires_grad=True)
    e = math.exp(-1)
    p = [1 / (1 + e), e / (1 + e), 0.0]
    tol = 1e-4 if dtype == "float32" else 1e-12
    weight = engine.tensor([1.0, 2.0, 3.0], dtype=x.dtype)
    y = x.softmax(0)
    check(y, p, tol)
    (y * weight).sum().backward()
    mean = p[0] + 2 * p[1]
    check(x.grad, [p[0] * (1 - mean), p[1] * (2 - mean), 0], tol)
    x.grad = None
    y = x.log_softmax(0)
    check(y, [math.log(p[0]), math.log(p[1]), -2000 + math.log(p[0])], 1e-4)
    y[1].backward()
    check(x.grad, [-p[0], 1 - p[1], 0], tol)
    x.grad = None
    y = engine.logsumexp(x, 0)
    check(y, 1000 + math.log(1 + e), 1e-6)
    y.backward()
    check(x.grad, p, tol)


def test_nu04_losses_and_sigmoids():
    """NU04: softmax, log_softmax and logsumexp are stable for large inputs, forward and
    backward.
    """
    x = engine.tensor([[500.0, -500.0], [-500.0, 500.0]], requires_grad=True)
    loss = F.cross_entropy(x, engine.tensor([0, 0]))
    check(loss, 500)
    loss.backward()
    check(x.grad, [[0, 0], [-0.5, 0.5]])
    z = engine.tensor([200.0, -200.0], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(z, engine.tensor([0.0, 1.0]), reduction="sum")
    check(loss, 400)
    loss.backward()
    check(z.grad, [1, -1])
    z.grad = None
    F.logsigmoid(z).sum().backward()
    check(z.grad, [0, 1])
    z.grad = None
    z.sigmoid().sum().backward()
    check(z.grad, [0, 0])
    z.grad = None
    y = F.softplus(z)
    check(y, [200, 0])
    y.sum().backward()
    check(z.grad, [1, 0])


def test_nu04_infinite_inputs():
    """NU04: softmax, log_softmax and logsumexp are stable for large inputs, forward and
    backward.
    """
    x = engine.tensor([0.0, -INF, 1.0], requires_grad=True)
    y = x.softmax(0)
    e = math.e
    check(y, [1 / (1 + e), 0, e / (1 + e)])
    y[0].backward()
    assert x.grad[1].item() == 0 and not engine.isnan(x.grad).any()
    x = engine.tensor([0.0, -INF], requires_grad=True)
    y = engine.logsumexp(x, 0)
    y.backward()
    check(x.grad, [1, 0])


@pytest.mark.parametrize(
    "values, expected",
    [
        ([2.0, 3.0, 4.0], [12, 8, 6]),
        ([0.0, 3.0, 4.0], [12, 0, 0]),
        ([0.0, 0.0, 4.0], [0, 0, 0]),
        ([2.0, 0.0, 4.0], [0, 8, 0]),
        ([5.0], [1]),
        ([0.0], [1]),
    ],
)
def test_nu05_prod(values, expected):
    """NU05: prod with zeros has the exact gradient."""
    check(gradient(lambda x: x.prod(), values), expected)
    check(gradient(lambda x: x.prod(0), values), expected)
    check(gradient(lambda x: x.view(1, -1).prod(1), values), expected)
    check(gradient(lambda x: x.cumprod(0)[-1], values), expected)


def test_nu05_along_a_dimension():
    """NU05: prod with zeros has the exact gradient."""
    x = engine.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 5.0]], dtype=engine.float64, requires_grad=True)
    x.prod(1).sum().backward()
    check(x.grad, [[0, 0, 0], [0, 15, 0]])
    x.grad = None
    x.prod(0).sum().backward()
    check(x.grad, [[3, 0, 5], [0, 2, 0]])
    assert gradcheck(lambda t: t.prod(1), (x,))
    assert gradcheck(lambda t: t.cumprod(1), (x,))
    assert np.isfinite(x.grad.numpy()).all()
