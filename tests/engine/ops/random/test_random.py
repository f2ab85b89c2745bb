"""Random tensors and generators: stored answers of torch 2.13, and what these alone do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.nn import functional as F
from tests.engine.ops.stored import answer, stored


@pytest.mark.parametrize("expression, expected", stored("random"), ids=lambda v: v[:60] if isinstance(v, str) else "")
def test_as_torch(expression: str, expected: Any) -> None:
    assert answer(expression) == expected


def test_the_state_is_all() -> None:
    engine.manual_seed(3)
    state = engine.get_rng_state()
    first = [
        engine.rand(5),
        engine.randn(4),
        engine.randint(9, (3,)),
        engine.randperm(6),
        engine.zeros(3).bernoulli_(),
    ]
    engine.set_rng_state(state)
    again = [
        engine.rand(5),
        engine.randn(4),
        engine.randint(9, (3,)),
        engine.randperm(6),
        engine.zeros(3).bernoulli_(),
    ]
    assert all(engine.equal(a, b) for a, b in zip(first, again))
    assert state.dtype is engine.uint8 and engine.initial_seed() == 3
    with engine.random.fork_rng():
        engine.rand(100)
    after = engine.rand(2)
    engine.set_rng_state(state)
    for _ in first:
        pass
    assert after.shape == (2,)


def test_fork_rng_restores() -> None:
    engine.manual_seed(1)
    expected = engine.rand(3)
    engine.manual_seed(1)
    with engine.random.fork_rng():
        engine.rand(7)
    assert engine.equal(engine.rand(3), expected)


def test_generators_are_independent_and_pickle() -> None:
    import pickle

    one, two = engine.Generator().manual_seed(5), engine.Generator().manual_seed(5)
    a = engine.rand(3, generator=one)
    engine.manual_seed(0)
    assert engine.equal(a, engine.rand(3, generator=two))
    twin = pickle.loads(pickle.dumps(one))
    assert engine.equal(engine.randn(3, generator=one), engine.randn(3, generator=twin))


def test_a_word_depends_on_seed_and_position_alone() -> None:
    whole = engine.Generator().manual_seed(9).words(np, 64)
    parts = engine.Generator().manual_seed(9)
    np.testing.assert_array_equal(whole, np.concatenate([parts.words(np, 8) for _ in range(8)]))
    late = engine.Generator().manual_seed(9)
    late.set_offset(32)
    np.testing.assert_array_equal(late.words(np, 32), whole[32:])


@pytest.mark.parametrize(
    "draw, mean, std",
    [
        (lambda n: engine.rand(n), 0.5, 12**-0.5),
        (lambda n: engine.randn(n), 0, 1),
        (lambda n: engine.rand(n, dtype=engine.float64), 0.5, 12**-0.5),
        (lambda n: engine.randn(n, dtype=engine.float64), 0, 1),
        (lambda n: engine.randn(n, dtype=engine.float16).float(), 0, 1),
        (lambda n: engine.randint(2, 12, (n,)).double(), 6.5, 8.25**0.5),
        (lambda n: engine.zeros(n).exponential_(2.0), 0.5, 0.5),
        (lambda n: engine.zeros(n).geometric_(0.25), 4, 12**0.5),
        (lambda n: engine.zeros(n).log_normal_(0, 0.5), 1.1331, 0.6039),
        (lambda n: engine.zeros(n).bernoulli_(0.3), 0.3, 0.21**0.5),
        (lambda n: engine.poisson(engine.full((n,), 4.0)), 4, 2),
        (lambda n: engine.zeros(n).uniform_(-1, 3), 1, 4 * 12**-0.5),
        (lambda n: engine.zeros(n).normal_(5, 2), 5, 2),
        (lambda n: engine.multinomial(engine.tensor([1.0, 0, 3]), n, True).double(), 1.5, 0.75**0.5),
        (lambda n: engine.zeros(n).random_(10).double(), 4.5, 8.25**0.5),
    ],
)
def test_moments(draw: Any, mean: float, std: float) -> None:
    engine.manual_seed(11)
    n = 200_000
    values = draw(n).numpy().astype(np.float64)
    assert abs(values.mean() - mean) < 5 * std / n**0.5
    assert abs(values.std() - std) < 0.02 * std


def test_multinomial_without_replacement() -> None:
    engine.manual_seed(2)
    weights = engine.tensor([[1.0, 2, 3, 4], [0, 0, 1, 1]])
    drawn = np.stack([engine.multinomial(weights, 2).numpy() for _ in range(2000)])
    assert (drawn[:, :, 0] != drawn[:, :, 1]).all()
    assert set(drawn[:, 1].ravel().tolist()) == {2, 3}
    first = np.bincount(drawn[:, 0, 0], minlength=4) / 2000
    np.testing.assert_allclose(first, [0.1, 0.2, 0.3, 0.4], atol=0.04)


def test_gradients_of_draws_are_zero() -> None:
    x = engine.full((3,), 0.5, requires_grad=True)
    (engine.bernoulli(x) + engine.normal(x, 1.0) + engine.poisson(x)).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]
    y = x * 1
    y.normal_()
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0] and type(y.grad_fn).__name__ == "NormalBackward0"


@pytest.mark.parametrize("count", [300_001, 262_144])
def test_many_words_are_the_same_words(count: int) -> None:
    few, many = engine.Generator().manual_seed(9), engine.Generator().manual_seed(9)
    for generator in (few, many):
        generator.words(np, 5)
    pieces = np.concatenate([few.words(np, n) for n in (100_000, 100_000, count - 200_000)])
    np.testing.assert_array_equal(many.words(np, count), pieces)
    np.testing.assert_array_equal(many.words(np, 7), few.words(np, 7))


@pytest.mark.parametrize("p", [0.1, 0.5, 1e-12, 1 - 1e-12])
def test_dropout_of_large_tensors_draws_as_that_of_small_ones(p: float) -> None:
    engine.manual_seed(4)
    large = F.dropout(engine.ones(300_003), p)
    engine.manual_seed(4)
    small = engine.cat([F.dropout(engine.ones(n), p) for n in (100_000, 100_000, 100_003)])
    assert engine.equal(large, small)
    kept = large[large != 0]
    assert abs(kept.numel() / 300_003 - (1 - p)) < 0.01
    assert engine.equal(kept, engine.full_like(kept, 1) / (1 - p))


DRAWS = {
    "rand": lambda n, dtype: engine.rand(n, dtype=dtype),
    "randn": lambda n, dtype: engine.randn(n, dtype=dtype),
    "uniform_": lambda n, dtype: engine.empty(n, dtype=dtype).uniform_(-2, 3),
    "normal_": lambda n, dtype: engine.empty(n, dtype=dtype).normal_(1, 2),
    "strided": lambda n, dtype: engine.empty(n, 2, dtype=dtype).t().normal_(1, 0.5),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", [engine.float32, engine.float64, engine.float16])
@pytest.mark.parametrize("count", [1 << 17, (1 << 17) + 1, 300_007])
def test_large_draws_are_those_of_small_ones(
    name: str, dtype: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place and by several threads: the same numbers, and the generator goes on from the same word."""
    engine.manual_seed(5)
    large = DRAWS[name](count, dtype), engine.rand(3)
    monkeypatch.setattr("engine.ops.random.draw._LARGE", 1 << 30)
    engine.manual_seed(5)
    small = DRAWS[name](count, dtype), engine.rand(3)
    assert all(engine.equal(a, b) for a, b in zip(large, small))


@pytest.mark.parametrize("seed", [2**63, 2**64 - 2, -2])
def test_neighbouring_large_seeds_differ(seed: int) -> None:
    first, second = (engine.rand(4, generator=engine.Generator().manual_seed(s)) for s in (seed, seed + 1))
    assert not engine.equal(first, second)
