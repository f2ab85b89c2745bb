"""`engine.masked`: reductions and normalizations under a mask, as torch 2.13 answered."""

from __future__ import annotations

import math

import pytest

import engine
from engine import masked

X = engine.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
MASK = engine.tensor([[True, False, True], [False, False, False]])
INF, NAN = math.inf, math.nan

ROWS = {  # over dim 1, of X and MASK
    "sum": [4.0, 0.0],
    "prod": [3.0, 1.0],
    "amax": [3.0, -INF],
    "amin": [1.0, INF],
    "argmax": [2.0, 0.0],
    "argmin": [0.0, 0.0],
    "mean": [2.0, NAN],
    "var": [2.0, NAN],
    "std": [math.sqrt(2), NAN],
    "logsumexp": [math.log(math.exp(1) + math.exp(3)), -INF],
    "median": [1.0, NAN],
}


def same(got: engine.Tensor, want: object) -> bool:
    return engine.allclose(got, engine.tensor(want, dtype=got.dtype), equal_nan=True)


@pytest.mark.parametrize("name", ROWS)
def test_reductions_of_what_counts(name: str) -> None:
    function = getattr(masked, name)
    found = function(X, 1, mask=MASK)
    assert found.dtype is engine.float32 and same(found, ROWS[name])
    kept = function(X, 1, keepdim=True, mask=MASK)
    assert tuple(kept.shape) == (2, 1) and same(kept[:, 0], ROWS[name])


def test_without_a_mask_all_count() -> None:
    assert same(masked.sum(X), 5.0) and same(masked.mean(X, (0, 1)), 5.0 / 6)
    assert same(masked.norm(X, 2, 1, mask=MASK), [math.sqrt(10), 0.0])
    assert same(masked.norm(X, -INF, 1, mask=MASK), [1.0, INF])


def test_along_a_dim() -> None:
    soft = masked.softmax(X, 1, mask=MASK)
    e = math.exp(2)
    assert same(soft[0], [1 / (1 + e), 0.0, e / (1 + e)]) and bool(soft[1].isnan().all())
    assert same(masked.softmin(X, 1, mask=MASK)[0], [e / (1 + e), 0.0, 1 / (1 + e)])
    assert same(masked.log_softmax(X, 1, mask=MASK)[0].exp(), [1 / (1 + e), 0.0, e / (1 + e)])
    assert same(masked.cumsum(X, 1, mask=MASK), [[1, 1, 4], [0, 0, 0]])
    assert same(masked.cumprod(X, 1, mask=MASK), [[1, 1, 3], [1, 1, 1]])
    assert same(masked.normalize(X, 1.0, 1, mask=MASK), [[0.25, 0, 0.75], [0, 0, 0]])
    both = masked.logaddexp(X, X, input_mask=MASK, other_mask=~MASK)
    assert same(both, X.tolist())


def test_types() -> None:
    whole = X.to(engine.int32)
    assert masked.sum(whole, 1, mask=MASK).dtype is engine.int64
    assert masked.amax(whole, 1, mask=MASK).tolist() == [3, -(2**31)]
    assert masked.mean(whole, 1, mask=MASK, dtype=engine.float64).dtype is engine.float64
    with pytest.raises(ValueError, match="Input dtype must be either a floating point or complex dtype"):
        masked.mean(whole, 1, mask=MASK)
    with pytest.raises(NotImplementedError, match="identity of amax on"):
        masked.amax(MASK, 1, mask=MASK)
    with pytest.raises(ValueError, match="no fully masked out rows"):
        masked.median(whole, 1, mask=MASK)


def test_gradients_flow_to_what_counts() -> None:
    x = X.clone().requires_grad_()
    masked.sum(x * x, mask=MASK).backward()
    assert x.grad.tolist() == [[2, 0, 6], [0, 0, 0]]


def test_refused() -> None:
    with pytest.raises(IndexError, match="broadcastable mask"):
        masked.sum(X, mask=MASK[None])
    with pytest.raises(RuntimeError, match="dim=1 appears multiple times"):
        masked.sum(X, (1, 1))
    with pytest.raises(ValueError, match="masked sum expects strided tensor"):
        masked.sum(X.to_sparse())
    with pytest.raises(NotImplementedError, match="no tensors that carry a mask"):
        masked.masked_tensor(X, MASK)
    assert not masked.is_masked_tensor(X)
