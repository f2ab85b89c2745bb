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
        with pytest.raises(ValueError, match="Expected tensor to be floating point or complex"):
            make_dual(engine.tensor([1]), x)
        with pytest.raises(RuntimeError, match="different size"):
            make_dual(x, engine.ones(3))
