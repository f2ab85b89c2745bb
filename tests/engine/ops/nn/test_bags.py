"""Bags of rows: of one length, with offsets, padding and weights; values, gradients, names of nodes, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.nn import functional as F


@pytest.mark.parametrize("freq", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_length(mode: str, weighted: bool, freq: bool) -> None:
    if (weighted and mode != "sum") or (freq and mode == "max"):
        pytest.skip("refused")
    rng = np.random.default_rng(0)
    index = engine.tensor(rng.integers(0, 9, (6, 5)))
    index[2] = index[2, 0]  # one row several times: ties of the maximum
    table = rng.standard_normal((9, 4))
    shares = rng.standard_normal((6, 5))
    found = []
    for flat in (False, True):
        w = engine.tensor(table, requires_grad=True)
        p = engine.tensor(shares, requires_grad=True) if weighted else None
        if flat:
            more = None if p is None else p.reshape(-1)
            y = F.embedding_bag(index.reshape(-1), w, engine.arange(0, 30, 5), None, 2, freq, mode, False, more)
        else:
            y = F.embedding_bag(index, w, None, None, 2, freq, mode, False, p)
        assert y.grad_fn.name() == "EmbeddingBagBackward0"
        (y * engine.arange(24.0).reshape(6, 4)).sum().backward()
        found.append([y.detach(), w.grad, *([] if p is None else [p.grad])])
    for one, other in zip(*found):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12, atol=1e-12)
    rows = table[index.numpy()] * (shares[..., None] if weighted else 1)
    want = rows.max(1) if mode == "max" else rows.mean(1) if mode == "mean" else rows.sum(1)
    np.testing.assert_allclose(found[0][0].numpy(), want, rtol=1e-12)


def test_bags_of_one_length_skip_padding() -> None:
    index, w = engine.tensor([[0, 1], [1, 1]]), engine.tensor([[1.0], [3.0]])
    assert F.embedding_bag(index, w, mode="mean", padding_idx=1).tolist() == [[1.0], [0.0]]
    assert F.embedding_bag(index[:, :0], w, mode="sum").tolist() == [[0.0], [0.0]]


def test_an_index_out_of_range() -> None:
    with pytest.raises(IndexError, match="index out of range in self"):
        F.embedding_bag(engine.tensor([[0, 2]]), engine.ones(2, 3))


def test_weights_of_another_dtype_are_refused_before_anything_is_written():
    w, bags = engine.full((3, 2), 5.0), engine.tensor([[0, 2]])
    with pytest.raises(RuntimeError, match="to have the same type as tensor for argument #1 'per_sample_weights'; but"):
        F.embedding_bag(bags, w, mode="sum", per_sample_weights=engine.ones(1, 2).double(), max_norm=1.0)
    with pytest.raises(NotImplementedError, match="only supported for mode='sum'"):
        F.embedding_bag(bags, w, mode="mean", per_sample_weights=engine.ones(1, 2), max_norm=1.0)
    assert (w == 5.0).all()


STARTS = [0, 0, 3, 8]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 2, -9])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_that_begin_at_offsets(mode: str, padding: int | None, last: bool) -> None:
    rng = np.random.default_rng(1)
    flat, table = rng.integers(0, 9, 10), rng.standard_normal((9, 4))
    table[0] = np.inf  # a row that is padding takes no part
    w = engine.tensor(table, requires_grad=True)
    y = F.embedding_bag(engine.tensor(flat), w, engine.tensor(STARTS), None, 2, False, mode, False, None, last, padding)
    bags = [flat[b:e] for b, e in zip(STARTS, [*STARTS[1:], *([] if last else [10])])]
    kept = [[i for i in bag if padding is None or i != padding % 9] for bag in bags]
    matrix = np.zeros((len(kept), 9))
    for bag, row in zip(kept, matrix):
        np.add.at(row, bag, 1 if mode == "sum" else 1 / max(1, len(bag)))
    want = np.stack([table[bag].sum(0) / (1 if mode == "sum" else max(1, len(bag))) for bag in kept])
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-12)
    slope = rng.standard_normal(want.shape)
    y.backward(engine.tensor(slope))
    np.testing.assert_allclose(w.grad.numpy(), matrix.T @ slope, rtol=1e-12, atol=1e-12)


def test_second_gradients_of_bags() -> None:
    at, starts = engine.tensor([0, 2, 4, 2, 1]), engine.tensor([0, 0, 3])
    w, p = (engine.rand(*s, dtype=engine.float64, requires_grad=True) for s in ((5, 2), (5,)))

    def bags(w: engine.Tensor, p: engine.Tensor) -> engine.Tensor:
        return F.embedding_bag(at, w, starts, mode="sum", per_sample_weights=p, padding_idx=4)

    assert engine.autograd.gradcheck(bags, (w, p))
    assert engine.autograd.gradgradcheck(bags, (w, p))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_offsets_that_begin_no_bags(mode: str) -> None:
    """Those of (1, 3) gave bags without the first row."""
    at, w = engine.arange(5), engine.ones(6, 2)
    with pytest.raises(RuntimeError, match=r"offsets\[0\] has to be 0, i.e., the first sequence .* However, got 1$"):
        F.embedding_bag(at, w, engine.tensor([1, 3]), mode=mode)
    with pytest.raises(RuntimeError, match=r"greater than input's length 5 but got offsets\[-1\] of 7$"):
        F.embedding_bag(at, w, engine.tensor([0, 7]), mode=mode)
    with pytest.raises(RuntimeError, match="offsets have to ascend"):
        F.embedding_bag(at, w, engine.tensor([0, 3, 2]), mode=mode)


@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_of_many_tables_at_once(tables: bool, weighted: bool) -> None:
    rng = np.random.default_rng(2)
    at, w = engine.tensor(rng.integers(0, 7, (3, 4, 5))), engine.tensor(rng.standard_normal((3, 7, 2)))
    p = engine.tensor(rng.standard_normal((3, 4, 5)))
    of = lambda at, w, p: F.embedding_bag(at, w, mode="sum", per_sample_weights=p if weighted else None)
    found = engine.func.vmap(of, (0, 0 if tables else None, 0))(at, w if tables else w[0], p)
    want = engine.stack([of(at[i], w[i if tables else 0], p[i]) for i in range(3)])
    assert engine.allclose(found, want)


def test_max_norm_writes_to_the_rows_that_are_used():
    w = engine.full((3, 4), 5.0)
    assert engine.allclose(F.embedding(engine.tensor([0, 2]), w, max_norm=1.0).norm(dim=1), engine.ones(2))
    assert engine.allclose(w.norm(dim=1), engine.tensor([1.0, 10.0, 1.0]))
