"""torch.func.vmap against the functions that it maps, and torch._higher_order_ops' scan."""

from __future__ import annotations

import pytest

import engine
from engine.func import vmap
from engine.torch_names._higher_order_ops import associative_scan


def test_dimensions_of_arguments_and_results() -> None:
    x, y = engine.randn(3, 4), engine.randn(4, 5)
    assert engine.allclose(vmap(engine.dot)(x, x), engine.stack([row @ row for row in x]))
    assert engine.allclose(vmap(engine.mv, in_dims=(None, 1))(x, y), (x @ y).T)
    assert engine.allclose(vmap(engine.mv, in_dims=(None, 1), out_dims=1)(x, y), x @ y)
    assert engine.equal(vmap(vmap(engine.mul, (None, 0)), (0, None))(x[:, 0], y[0]), x[:, :1] * y[0])


def test_trees_and_keyword_arguments() -> None:
    def both(pair: dict, factor: float) -> tuple:
        return pair["a"] * factor, [pair["b"]]

    first, (second,) = vmap(both, in_dims=({"a": 0, "b": None},))(
        {"a": engine.ones(2), "b": engine.ones(3)}, factor=2.0
    )
    assert first.tolist() == [2, 2] and second.shape == (2, 3)


def test_gradients_pass() -> None:
    x = engine.randn(3, 2, requires_grad=True)
    vmap(lambda row: (row * row).sum())(x).sum().backward()
    assert engine.equal(x.grad, 2 * x)


@pytest.mark.parametrize(
    "arguments, dims, sentence",
    [
        ((engine.ones(2), engine.ones(3)), 0, "same size in the mapped dimension"),
        ((engine.ones(2),), None, "expected `in_dims` to be int or a .potentially nested. tuple"),
        ((engine.ones(2),), (None,), "at least one input"),
        ((), 0, "got no inputs"),
        ((2.0,), 0, "input is of type"),
        ((engine.ones(2),), 3, "dimensionality 1"),
        ((engine.ones(2),), (0, 0), "in_dims is not compatible with the structure of `inputs`"),
    ],
)
def test_arguments_that_do_not_fit(arguments: tuple, dims: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        vmap(engine.add, in_dims=dims)(*arguments)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_a_scan_is_the_running_result(count: int) -> None:
    x = engine.randn(3, count, 2, dtype=engine.float64)
    assert engine.allclose(associative_scan(engine.add, x, 1), x.cumsum(1))
    assert engine.allclose(associative_scan(engine.mul, x, -2, reverse=True), x.flip(1).cumprod(1).flip(1))


def test_a_scan_of_pairs_does_not_commute() -> None:
    def then(left: tuple, right: tuple) -> tuple:  # x -> a x + b, the left one first
        return left[0] * right[0], left[1] * right[0] + right[1]

    a, b = engine.rand(5, dtype=engine.float64), engine.rand(5, dtype=engine.float64)
    _, found = associative_scan(then, (a, b), 0)
    state, wanted = 0.0, []
    for i in range(5):
        state = a[i].item() * state + b[i].item()
        wanted.append(state)
    assert found.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(
    "result, places, sentence",
    [
        (lambda x: x, None, "can not return a BatchedTensor when out_dim is None"),
        (lambda x: x, "a", "`out_dims` must be an int, None or a python collection"),
        (lambda x: x, (0, 1), "out_dims is not compatible with the structure of `outputs`"),
        (lambda x: 3, 0, "must only return Tensors, got type <class 'int'>. Did you mean to set out_dims= to None"),
    ],
)
def test_results_that_do_not_fit(result: object, places: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        vmap(result, out_dims=places)(engine.ones(2))


def test_what_is_the_same_in_every_slice_may_have_no_dimension() -> None:
    same = engine.ones(5)
    for chunk in (None, 1):
        mapped, one = vmap(lambda x: (x, same), out_dims=(0, None), chunk_size=chunk)(engine.ones(2))
        assert mapped.shape == (2,) and one.shape == (5,)
    assert vmap(lambda x: 3, out_dims=None)(same) == 3
