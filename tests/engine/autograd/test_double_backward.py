"""Derivatives of derivatives (rules DB01-DB09)."""

import math

import numpy as np
import pytest

import engine
from engine import nn
from engine.autograd import Function, grad, gradgradcheck
from engine.autograd.function import once_differentiable

from ._util import check, constant, leaf, quiet


def test_db01_any_order():
    """DB01: derivatives of any order by create_graph."""
    x = engine.tensor(0.7, dtype=engine.float64, requires_grad=True)
    y = engine.sin(x)
    signs = [math.cos, lambda v: -math.sin(v), lambda v: -math.cos(v), math.sin]
    for order in range(8):
        (y,) = grad(y, x, create_graph=True)
        check(y, signs[order % 4](0.7), 1e-10)
        assert y.requires_grad


def test_db01_powers():
    """DB01: derivatives of any order by create_graph."""
    x = leaf(3, low=0.5, high=1.5)
    y = (x**5).sum()
    factor, power = 1, 5
    for _ in range(5):
        factor, power = factor * power, power - 1
        (g,) = grad(y, x, create_graph=True)
        check(g, (factor * x.detach() ** power).tolist(), 1e-9)
        y = g.sum()


def test_db01_through_many_ops():
    """DB01: derivatives of any order by create_graph."""
    x = leaf(3, 3, low=0.5, high=1.5)
    for f in (
        lambda t: t.tanh() * t.sigmoid(),
        lambda t: t.softmax(1).log(),
        lambda t: t.mm(t.t()).sqrt(),
        lambda t: (t / t.sum()).exp(),
        lambda t: engine.cat([t * t, t.t()])[1:4] ** 3,
        lambda t: t.norm(),
        lambda t: t.prod(0),
        lambda t: t.cumsum(0).log1p(),
    ):
        assert gradgradcheck(f, (x,))


def _mlp(x, w1, b1, w2):
    return (engine.tanh(x.mm(w1) + b1).mm(w2) ** 2).sum()


def test_db02_hessian_vector_product():
    """DB02: mixed second derivatives agree with finite differences (MLP, Hessian-vector
    product).
    """
    x = constant(4, 3, seed=1)
    params = [leaf(3, 5, seed=2), leaf(5, seed=3), leaf(5, 2, seed=4)]
    v = [constant(*p.shape, seed=5) for p in params]
    grads = grad(_mlp(x, *params), params, create_graph=True)
    product = grad(sum((g * d).sum() for g, d in zip(grads, v)), params)
    step = 1e-6

    def shifted(sign):
        moved = [(p + sign * step * d).detach().requires_grad_() for p, d in zip(params, v)]
        return grad(_mlp(x, *moved), moved)

    for got, up, down in zip(product, shifted(1), shifted(-1)):
        check(got, ((up - down) / (2 * step)).tolist(), 1e-6)


def test_db02_mixed_second_derivatives():
    """DB02: mixed second derivatives agree with finite differences (MLP, Hessian-vector
    product).
    """
    a, b = leaf(seed=1), leaf(seed=2)

    def f(p, q):
        return engine.exp(p * q) * engine.sin(p) + q**3 * p

    (da,) = grad(f(a, b), a, create_graph=True)
    (dab,) = grad(da, b)
    (db,) = grad(f(a, b), b, create_graph=True)
    (dba,) = grad(db, a)
    check(dab, dba.tolist(), 1e-12)
    h = 1e-5
    p, q = a.item(), b.item()

    def g(u, v):
        return math.exp(u * v) * math.sin(u) + v**3 * u

    numeric = (g(p + h, q + h) - g(p + h, q - h) - g(p - h, q + h) + g(p - h, q - h)) / (4 * h * h)
    check(dab, numeric, 1e-5)


def test_db02_whole_hessian():
    """DB02: mixed second derivatives agree with finite differences (MLP, Hessian-vector
    product).
    """
    x = leaf(3)
    matrix = constant(3, 3, seed=7)

    def f(t):
        return (t.view(1, 3).mm(matrix).mm(t.view(3, 1))).sum() + (t**3).sum()

    (g,) = grad(f(x), x, create_graph=True)
    rows = [grad(g[i], x, retain_graph=True)[0] for i in range(3)]
    expected = matrix + matrix.t() + engine.diag(6 * x.detach())
    check(engine.stack(rows), expected.tolist())


def test_db03_backward_with_create_graph():
    """DB03: backward(create_graph=True) leaves .grad connected: its own backward gives Hessian
    sums.
    """
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    with quiet():
        (x * x * y).sum().backward(create_graph=True)
    gx = x.grad
    assert gx.requires_grad
    x.grad = y.grad = None
    gx.sum().backward()
    check(x.grad, (2 * y).tolist())
    check(y.grad, (2 * x).tolist())


def test_db03_adds_to_what_is_there():
    """DB03: backward(create_graph=True) leaves .grad connected: its own backward gives Hessian
    sums.
    """
    x = leaf(2)
    with quiet():
        (x**3).sum().backward(create_graph=True)
        x.grad.sum().backward(create_graph=True)
    check(x.grad, (3 * x**2 + 6 * x).tolist())
    x.grad = None


class Cube(Function):
    """x ** 3, with a backward written in differentiable operations."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad_output


def test_db04_custom_backward():
    """DB04: a custom backward written with differentiable ops can be differentiated."""
    x = leaf(3)
    (g,) = grad(Cube.apply(x).sum(), x, create_graph=True)
    check(g, (3 * x**2).tolist())
    (h,) = grad(g.sum(), x, create_graph=True)
    check(h, (6 * x).tolist())
    (k,) = grad(h.sum(), x)
    check(k, [6, 6, 6])
    assert gradgradcheck(Cube.apply, (x,))


def test_db04_with_a_saved_output():
    """DB04: a custom backward written with differentiable ops can be differentiated."""

    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad_output):
            (y,) = ctx.saved_tensors
            return grad_output * y

    x = leaf(3)
    y = Exp.apply(x).sum()
    for _ in range(3):
        (g,) = grad(y, x, create_graph=True)
        check(g, x.exp().tolist())
        y = g.sum()
    assert gradgradcheck(Exp.apply, (x,))


class OnceCube(Function):
    """x ** 3, whose backward leaves the graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        assert not engine.is_grad_enabled()
        return engine.from_numpy(3 * x.detach().numpy() ** 2) * grad_output


def test_db05_once_differentiable():
    """DB05: once_differentiable: the gradient is right and differentiating it again is an error
    that says so.
    """
    x = leaf(3)
    (g,) = grad(OnceCube.apply(x).sum(), x)
    check(g, (3 * x**2).tolist())
    (g,) = grad(OnceCube.apply(x).sum(), x, create_graph=True)
    check(g, (3 * x**2).tolist())
    message = "trying to differentiate twice a function that was marked with @once_differentiable"
    assert not g.requires_grad
    y = (OnceCube.apply(x) * x).sum()
    (g,) = grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match=message):
        g.sum().backward()
    weight = leaf(3, seed=2)
    (g,) = grad(OnceCube.apply(x), x, weight, create_graph=True)
    with pytest.raises(RuntimeError, match=message):
        g.sum().backward()


def test_db05_it_keeps_its_name():
    """DB05: once_differentiable: the gradient is right and differentiating it again is an error
    that says so.
    """
    assert OnceCube.backward.__name__ == "backward"


def test_db06_no_second_derivative():
    """DB06: a gradient that does not depend on the input has no second derivative: unused."""
    x, w = leaf(2, seed=1), leaf(2, seed=2)
    (g,) = grad((x * w).sum(), x, create_graph=True)
    assert g.requires_grad
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        grad(g.sum(), x, retain_graph=True)
    assert grad(g.sum(), x, allow_unused=True) == (None,)
    (g,) = grad((x * 3).sum(), x, create_graph=True)
    assert not g.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(g.sum(), x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.diagonal(),
        lambda x: x[[0, 2]],
        lambda x: x[1],
        lambda x: x[:, 1:],
        lambda x: x.narrow(1, 0, 2),
        lambda x: x.t(),
        lambda x: x.view(9),
        lambda x: x.expand(2, 3, 3),
        lambda x: x.unsqueeze(1),
        lambda x: x.index_select(0, engine.tensor([2, 0])),
        lambda x: x.gather(1, engine.tensor([[0], [1], [2]])),
        lambda x: x[engine.eye(3).bool()],
        lambda x: x.tril(),
        lambda x: x.unfold(0, 2, 1),
        lambda x: x.chunk(3)[1],
    ],
)
def test_db07_views(f):
    """DB07: gradients of view ops require grad under create_graph (diagonal, index, narrow)."""
    x = leaf(3, 3)
    y = f(x * x)
    weight = constant(*y.shape, seed=8).requires_grad_()
    (g,) = grad((y * weight).sum(), x, create_graph=True)
    assert g.requires_grad and g.shape == x.shape
    (back,) = grad(g.sum(), weight)
    check(back, (2 * f(x)).tolist())
    assert gradgradcheck(lambda t: f(t * t), (x,))


def test_db08_gradient_penalty():
    """DB08: gradient penalty trains: backward through a norm of a gradient reaches the weights."""
    engine.manual_seed(3)
    critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    for index, parameter in enumerate(critic.parameters()):
        parameter.data = constant(*parameter.shape, seed=index)
    x = leaf(5, 3, seed=9)

    def penalty():
        (g,) = grad(critic(x).sum(), x, create_graph=True)
        return ((g.norm(2, dim=1) - 1) ** 2).mean()

    start = penalty()
    start.backward()
    grads = [p.grad for p in critic.parameters()]
    assert all(g is not None and float(g.abs().sum()) > 0 for g in grads[:3])
    weight, h = critic[0].weight, 1e-6
    got = weight.grad[2, 1].item()
    values = []
    for step in (h, -2 * h):
        with engine.no_grad():
            weight[2, 1] += step
        values.append(penalty().item())
    np.testing.assert_allclose(got, (values[0] - values[1]) / (2 * h), rtol=1e-5)
    with engine.no_grad():
        weight[2, 1] += h
    optimizer = engine.optim.SGD(critic.parameters(), lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        loss = penalty()
        loss.backward()
        optimizer.step()
    assert penalty().item() < 0.5 * start.item()


def test_db09_no_history_without_create_graph():
    """DB09: without create_graph a returned gradient has no history."""
    x = leaf(2)
    (g,) = grad((x**3).sum(), x)
    assert not g.requires_grad and g.grad_fn is None and g.is_leaf
    (g,) = grad((x**3).sum(), x, retain_graph=True)
    assert not g.requires_grad
    weight = leaf(2, seed=4)
    (g,) = grad(x * x, x, weight)
    assert not g.requires_grad
    (g,) = grad(x * 2, x, weight, create_graph=True)
    assert g.requires_grad
    check(grad(g.sum(), weight)[0], [2, 2])


def test_what_has_no_second_derivative_raises() -> None:
    x = engine.randn(5, 2, 4).log_softmax(2).requires_grad_()
    loss = engine.nn.functional.ctc_loss(x, engine.tensor([[1, 2], [2, 3]]), (5, 5), (2, 2))
    (first,) = engine.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative for aten::_ctc_loss_backward is not implemented"):
        engine.autograd.grad(first.sum(), x)
    for draw, name in ((engine._standard_gamma, "_standard_gamma_grad"), (engine._sample_dirichlet, "_dirichlet_grad")):
        a = engine.tensor([1.5, 2.0], requires_grad=True)
        (first,) = engine.autograd.grad(draw(a)[0], a, create_graph=True)
        with pytest.raises(NotImplementedError, match=f"the derivative for '{name}' is not implemented"):
            engine.autograd.grad(first.sum(), a)
