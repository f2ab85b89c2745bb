"""Dual numbers: tangents, levels, what is refused."""

from __future__ import annotations

import pytest

import engine
from engine.autograd import forward_ad
from engine.autograd.forward_ad import dual_level, make_dual, unpack_dual


def test_a_tangent_is_the_derivative_along_it() -> None:
    x, t = engine.randn(3, dtype=engine.float64), engine.randn(3, dtype=engine.float64)
    with dual_level():
        dual = make_dual(x, t)
        y = (dual.sin() * dual).exp()
        primal, tangent = unpack_dual(y)
        assert engine.allclose(primal, (x.sin() * x).exp())
        assert engine.allclose(tangent, (x.cos() * x + x.sin()) * t * (x.sin() * x).exp())
        assert unpack_dual(dual).tangent is t
        assert unpack_dual(x).tangent is None
        assert unpack_dual(dual * 0 + 1).tangent.tolist() == [0.0, 0.0, 0.0]
    assert unpack_dual(y).tangent is None


def test_tangents_of_two_inputs_and_of_a_network_add_up() -> None:
    net = engine.nn.Sequential(engine.nn.Linear(3, 4), engine.nn.Tanh(), engine.nn.Linear(4, 2)).double()
    x, t = engine.randn(5, 3, dtype=engine.float64), engine.randn(5, 3, dtype=engine.float64)
    expected = engine.autograd.functional.jvp(net, x, t)[1]
    with dual_level():
        found = unpack_dual(net(make_dual(x, t))).tangent
        a, b = make_dual(x, t), make_dual(x * 2, t * 3)
        both = unpack_dual((a * b).sum()).tangent
    assert engine.allclose(found, expected)
    assert engine.allclose(both, (x * t * 3 + x * 2 * t).sum())


def test_what_is_refused() -> None:
    x = engine.ones(2)
    with pytest.raises(RuntimeError, match="no level exists"):
        make_dual(x, x)
    with pytest.raises(RuntimeError, match="not the last one"):
        forward_ad.exit_dual_level()
    with dual_level():
        with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported"):
            forward_ad.enter_dual_level()
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            make_dual(engine.tensor([1]), x)
        with pytest.raises(RuntimeError, match="different size"):
            make_dual(x, engine.ones(3))


def test_a_function_has_the_tangents_of_its_jvp() -> None:
    seen = []

    class Slope(engine.autograd.Function):
        @staticmethod
        def forward(x, y):
            return x * y, x + 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tx, ty):
            x, y = ctx.saved_tensors
            seen.append(ty.tolist())
            return 10 * (tx * y + ty * x), tx

    x, t, y = engine.randn(3), engine.randn(3), engine.randn(3)
    with dual_level():
        product, more = Slope.apply(make_dual(x, t), y)
        assert engine.allclose(unpack_dual(product).tangent, 10 * t * y)
        assert engine.allclose(unpack_dual(product * 2 + more).tangent, 20 * t * y + t)
        with pytest.raises(NotImplementedError, match="either the backward or vjp method"):
            product.sum().backward()
    assert seen == [[0.0, 0.0, 0.0]]  # an input without a tangent, as zeros
    _, found = engine.func.jvp(lambda y: Slope.apply(x, y)[0], (y,), (t,))
    assert engine.allclose(found, 10 * t * x)


def test_a_function_with_neither_backward_nor_jvp_and_a_jvp_of_another_shape_are_errors() -> None:
    class Neither(engine.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class Short(Neither):
        @staticmethod
        def jvp(ctx, tangent):
            return tangent[:1]

    with dual_level():
        dual = make_dual(engine.ones(3), engine.ones(3))
        with pytest.raises(NotImplementedError, match="You must implement the jvp function"):
            Neither.apply(dual)
        with pytest.raises(RuntimeError, match=r"a tangent of shape \[1\] for an output of shape \[3\]"):
            Short.apply(dual)


def test_a_function_that_cannot_be_differentiated_twice_says_so() -> None:
    class Once(engine.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @engine.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * 2

    with dual_level():
        found = Once.apply(make_dual(engine.ones(3), engine.ones(3)))
        with pytest.raises(RuntimeError, match="once_differentiable"):
            unpack_dual(found)
