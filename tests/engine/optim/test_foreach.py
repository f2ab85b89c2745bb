"""`_foreach_*`: the plain function of each tensor, new or in place."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.torch_names._names import FOREACH, FOREACH_BINARY, FOREACH_TERNARY, FOREACH_UNARY


def tensors(shift: float = 0.0) -> list[engine.Tensor]:
    return [engine.tensor([0.25, 0.5]) + shift, engine.tensor([[0.75]]) + shift]


def same(made, wanted) -> bool:
    """Equal but for the last bit: which code computes a call, numpy's or generated, may change from one to the next."""
    return len(made) == len(wanted) and all(
        a.dtype is b.dtype and a.shape == b.shape and np.allclose(a.numpy(), b.numpy(), 3e-7, 0, equal_nan=True)
        for a, b in zip(made, wanted)
    )


def both(name: str, *more) -> list[engine.Tensor]:
    """The result of the form that makes new tensors, checked against the one in place."""
    start = tensors()
    made = getattr(engine, f"_foreach_{name}")(start, *more)
    assert same(start, tensors())
    assert getattr(engine, f"_foreach_{name}_")(start, *more) is start
    assert same(start, made)
    return made


@pytest.mark.parametrize("name", FOREACH_UNARY.split())
def test_unary(name):
    assert same(both(name), [getattr(engine, name)(t) for t in tensors()])


@pytest.mark.parametrize("name", FOREACH_BINARY.split())
def test_binary(name):
    function, others = getattr(engine, name), tensors(1.0)
    assert same(both(name, others), [function(t, o) for t, o in zip(tensors(), others)])
    if name in ("maximum", "minimum"):
        function = lambda t, number: getattr(engine, name)(t, engine.tensor(number))
    assert same(both(name, 2.0), [function(t, 2.0) for t in tensors()])
    assert same(both(name, [2.0, 3.0]), [function(t, o) for t, o in zip(tensors(), (2.0, 3.0))])


@pytest.mark.parametrize("name", FOREACH_TERNARY.split())
def test_ternary(name):
    a, b = tensors(1.0), tensors(2.0)
    if name == "lerp":
        assert same(both(name, a, 0.25), [engine.lerp(t, x, 0.25) for t, x in zip(tensors(), a)])
        return
    function = getattr(engine, name)
    assert same(both(name, a, b), [function(*row) for row in zip(tensors(), a, b)])
    assert same(both(name, a, b, 0.5), [function(*row, value=0.5) for row in zip(tensors(), a, b)])
    assert same(both(name, a, b, [2.0, 3.0]), [function(*r, value=v) for *r, v in zip(tensors(), a, b, (2.0, 3.0))])


def test_the_others():
    target = tensors()
    engine._foreach_copy_(target, tensors(1.0))
    assert same(target, tensors(1.0))
    assert [x.item() for x in engine._foreach_max(target)] == [1.5, 1.75]
    assert [x.item() for x in engine._foreach_norm([engine.tensor([3.0, 4.0])])] == [5.0]
    engine._foreach_zero_(target)
    assert all(not t.any() for t in target)
    scaled = engine._foreach_add(tensors(), tensors(), alpha=2)
    assert same(scaled, [t * 3 for t in tensors()])
    assert same(engine._foreach_pow(2.0, tensors()), [engine.pow(2.0, t) for t in tensors()])
    with pytest.raises(RuntimeError, match="must have the same number of tensors, got 2 and 1"):
        engine._foreach_add(tensors(), [1.0])


def test_factors_may_be_complex_and_stand_in_a_tensor() -> None:
    ones = [engine.ones(2, dtype=engine.complex64)]
    assert engine._foreach_addcmul(ones, ones, ones, value=2j)[0].tolist() == [1 + 2j, 1 + 2j]
    a = [engine.ones(1), engine.ones(1)]
    assert [t.item() for t in engine._foreach_addcmul(a, a, a, engine.tensor([1.0, 2.0]))] == [2.0, 3.0]


def test_clone_mm_powsum_and_no_tensors() -> None:
    a = tensors()
    made = engine._foreach_clone(a)
    assert type(made) is tuple and same(made, a) and made[0] is not a[0]
    assert engine._foreach_mm([engine.ones(2, 3)], [engine.ones(3, 1)])[0].tolist() == [[3.0], [3.0]]
    assert [t.item() for t in engine._foreach_powsum([engine.tensor([1.0, -2.0])], 3)] == [9.0]
    with pytest.raises(RuntimeError, match="Tensor list must have at least one tensor"):
        engine._foreach_abs([])


def test_all_are_names_of_the_top_level():
    assert all(callable(getattr(engine, name)) for name in FOREACH)


def test_lerp_takes_its_weight_by_name() -> None:
    first, second = [engine.zeros(2), engine.ones(1)], [engine.ones(2), engine.zeros(1)]
    assert [t.tolist() for t in engine._foreach_lerp(first, second, weight=0.25)] == [[0.25, 0.25], [0.75]]
    engine._foreach_lerp_(first, second, weight=[0.5, 1.0])
    assert [t.tolist() for t in first] == [[0.5, 0.5], [0.0]]
    assert engine._foreach_addcmul([engine.ones(1)], [engine.ones(1)], [engine.ones(1)], value=2)[0].tolist() == [3]
