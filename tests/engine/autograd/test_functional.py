"""autograd.functional: Jacobians, Hessians and their products with vectors."""

import numpy as np
import pytest

import engine
from engine.autograd import functional

from ._util import constant, leaf

A = constant(3, 3, seed=5)


def quadratic(x):
    return x @ A @ x


def two(x, y):
    return x * y.sum(), (x**2).sum() * y


def close(a, b):
    np.testing.assert_allclose(np.asarray(a.detach()), np.asarray(b.detach()), rtol=1e-9, atol=1e-12)


def test_jacobian():
    x, y = constant(3, seed=1), constant(2, seed=2)
    (xx, xy), (yx, yy) = functional.jacobian(two, (x, y))
    close(xx, engine.eye(3, dtype=engine.float64) * y.sum())
    close(xy, x.unsqueeze(1).expand(3, 2))
    close(yx, 2 * y.unsqueeze(1) * x)
    close(yy, engine.eye(2, dtype=engine.float64) * (x**2).sum())
    single = functional.jacobian(lambda t: t.exp(), x)
    assert single.shape == (3, 3) and not single.requires_grad
    for strategy in ("forward-mode", "reverse-mode"):
        close(functional.jacobian(lambda t: t.exp(), x, vectorize=True, strategy=strategy), single)
    assert functional.jacobian(lambda t: t.new_zeros(0, 2), x).shape == (0, 2, 3)


def test_hessian():
    x = constant(3, seed=1)
    close(functional.hessian(quadratic, x), A + A.t())
    (aa, ab), (ba, bb) = functional.hessian(lambda a, b: (a**2 * b).sum(), (x, A[0]))
    close(aa, engine.diag(2 * A[0]))
    close(ab, engine.diag(2 * x))
    close(ba, engine.diag(2 * x))
    assert not bb.any()
    with pytest.raises(RuntimeError, match="should contain a single element"):
        functional.hessian(lambda t: t * 2, x)


def test_products():
    x, v = constant(3, seed=1), constant(3, seed=2)
    h = A + A.t()
    for f in (functional.hvp, functional.vhp):
        value, product = f(quadratic, x, v)
        close(value, quadratic(x))
        close(product, h @ v)
    y, u = constant(2, seed=3), constant(2, seed=4)
    (xx, xy), (yx, yy) = functional.jacobian(two, (x, y))
    outputs, (p, q) = functional.jvp(two, (x, y), (v, u))
    close(outputs[0], two(x, y)[0])
    close(p, xx @ v + xy @ u)
    close(q, yx @ v + yy @ u)
    _, (p, q) = functional.vjp(two, (x, y), (v, u))
    close(p, xx.t() @ v + yx.t() @ u)
    close(q, xy.t() @ v + yy.t() @ u)


def test_create_graph():
    x = leaf(3, seed=1)
    jacobian = functional.jacobian(lambda t: t**3, x, create_graph=True)
    jacobian.sum().backward()
    close(x.grad, 6 * x)
    for f in (functional.hvp, functional.vhp):
        t = leaf(3, seed=1)
        _, product = f(lambda s: (s**3).sum(), t, engine.ones_like(t).detach(), create_graph=True)
        product.sum().backward()
        close(t.grad, engine.full_like(t, 6.0))


def test_strict_and_errors():
    x = constant(3)
    with pytest.raises(RuntimeError, match="does not require gradients"):
        functional.jacobian(lambda t: t.detach(), x, strict=True)
    with pytest.raises(RuntimeError, match="independent of input 1"):
        functional.vjp(lambda a, b: a.sum(), (x, x), strict=True)
    with pytest.raises(TypeError, match="inputs given to vjp must be either a Tensor"):
        functional.vjp(quadratic, 3.0)
    with pytest.raises(RuntimeError, match="v can only be None"):
        functional.vjp(lambda t: t, x)
    with pytest.raises(RuntimeError, match="v has invalid size"):
        functional.vhp(quadratic, x, constant(2))
    with pytest.raises(ValueError, match="Expected strategy"):
        functional.jacobian(quadratic, x, strategy="sideways")
    with pytest.raises(RuntimeError, match="linear function"):
        functional.hessian(lambda t: t.sum() + 0 * t.sum().detach(), x, strict=True)
