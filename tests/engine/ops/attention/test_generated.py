"""Attention whose scores are never in memory, against mathematics in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends.cpu import threads
from engine.core.lru import LRU
from engine.kernels import processor
from engine.ops.attention import generated
from engine.ops.generated import route

F = engine.nn.functional
pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

SIZES = [  # images, heads, queries, keys, columns of keys and of values
    (2, 3, 17, 17, 32, 32),
    (1, 2, 6, 65, 64, 64),
    (1, 1, 13, 1, 32, 16),  # parts of a head for each thread
    (1, 1, 2, 7, 16, 96),
    (1, 12, 1, 40, 64, 64),
    (2, 1, 5, 100, 16, 256),
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, whatever this machine has, however little there is."""
    monkeypatch.setattr(threads, "_count", 3)
    monkeypatch.setattr(route, "SHARE", 0)
    monkeypatch.setattr(generated, "_routes", LRU(1024))
    monkeypatch.setattr(processor, "always", lambda: True)
    yield


def drawn(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype("float32")


def operands(sizes: tuple[int, ...], transposed: bool) -> list[np.ndarray]:
    """Query, key and value; transposed: heads are views of rows, as projections give them."""
    n, heads, queries, keys, width, columns = sizes
    shapes = (queries, width), (keys, width), (keys, columns)
    if not transposed:
        return [drawn(n, heads, *shape, seed=i) for i, shape in enumerate(shapes)]
    return [drawn(n, rows, heads, size, seed=i).swapaxes(1, 2) for i, (rows, size) in enumerate(shapes)]


def wanted(query: Any, key: Any, value: Any, mask: Any, scale: float) -> np.ndarray:
    query, key, value = (a.astype("float64") for a in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = scores + mask
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -math.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ value)


def never() -> Any:
    raise AssertionError("the kernel was to serve this")


@pytest.mark.parametrize("transposed", [False, True], ids=["dense", "views"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_it_is_softmax_of_products(sizes: tuple[int, ...], transposed: bool) -> None:
    query, key, value = operands(sizes, transposed)
    found = generated.attended(query, key, value, None, 0.3, never)
    np.testing.assert_allclose(found, wanted(query, key, value, None, 0.3), rtol=1e-4, atol=1e-5)
    assert (found.swapaxes(1, 2) if transposed else found).flags.c_contiguous


@pytest.mark.parametrize("shape", [(17, 20), (1, 20), (20,), (2, 1, 17, 20), (1, 3, 1, 20), (2, 3, 17, 20)], ids=str)
def test_masks_are_added_as_they_broadcast(shape: tuple[int, ...]) -> None:
    query, key, value = operands((2, 3, 17, 20, 32, 32), True)
    mask = np.where(drawn(*shape, seed=7) > 0.5, -math.inf, drawn(*shape, seed=8)).astype("float32")
    mask[..., 3] = 0
    found = generated.attended(query, key, value, mask, 0.2, never)
    np.testing.assert_allclose(found, wanted(query, key, value, mask, 0.2), rtol=1e-4, atol=1e-5)


def test_rows_that_see_nothing_are_zeros() -> None:
    query, key, value = operands((1, 2, 9, 33, 16, 16), False)
    mask = np.zeros((9, 33), "float32")
    mask[4] = -math.inf
    found = generated.attended(query, key, value, mask, 0.2, never)
    assert not found[:, :, 4].any()
    np.testing.assert_allclose(found, wanted(query, key, value, mask, 0.2), rtol=1e-4, atol=1e-5)


def test_nan_and_large_scores() -> None:
    query, key, value = operands((1, 1, 8, 20, 16, 16), False)
    query[0, 0, 2] *= 1e4  # one key has all the weight
    found = generated.attended(query, key, value, None, 1.0, never)
    np.testing.assert_allclose(found, wanted(query, key, value, None, 1.0), rtol=1e-3, atol=1e-4)
    query[0, 0, 5, 1] = math.nan
    found = generated.attended(query, key, value, None, 1.0, never)
    assert np.isnan(found[0, 0, 5]).all()
    assert np.isfinite(found[0, 0, [0, 1, 2, 3, 4, 6, 7]]).all()


@pytest.mark.parametrize("leading", [(3,), (2, 2, 2), ()], ids=str)
def test_other_numbers_of_dims(leading: tuple[int, ...]) -> None:
    query, key, value = (drawn(*leading, rows, 32, seed=i) for i, rows in enumerate((5, 9, 9)))
    want = wanted(query, key, value, None, 0.5)
    found = generated.attended(query, key, value, None, 0.5, never if len(leading) == 1 else lambda: want)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_what_it_leaves() -> None:
    query, key, value = operands((1, 2, 5, 7, 32, 32), False)
    served = lambda *given: generated.attended(*given, 0.5, lambda: None) is not None
    assert served(query, key, value, None)
    assert not served(*(a.astype("float64") for a in (query, key, value)), None)
    assert not served(query[..., :18], key[..., :18], value, None)  # no whole vectors
    assert not served(query, key[:, :1], value[:, :1], None)  # which broadcast
    assert not served(query[..., ::2], key[..., ::2], value, None)
    assert not served(query[:, :, :0], key, value, None)
    assert not served(query, key, value, np.zeros((5, 1), "float32"))


def test_the_function_takes_it_without_gradients_only() -> None:
    query, key, value = map(engine.from_numpy, operands((2, 4, 33, 33, 32, 32), True))
    with engine.no_grad():
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    leaf = query.clone().requires_grad_()
    want = F.scaled_dot_product_attention(leaf, key, value, is_causal=True)
    assert want.grad_fn is not None
    assert "attention_inference" in str(engine.explain(F.scaled_dot_product_attention, query, key, value))
    assert "attention_inference" not in str(engine.explain(F.scaled_dot_product_attention, leaf, key, value))
    np.testing.assert_allclose(found.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
