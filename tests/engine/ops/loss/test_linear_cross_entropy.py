"""`linear_cross_entropy` with `options`: what of them shows.  Sentences are torch 2.13's where it has one."""

from __future__ import annotations

import pytest

import engine
from engine.nn import functional as F
from engine.nn.modules import LinearCrossEntropyOptions as Options

X = engine.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 1.0]])
W = engine.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 2.0]])
T = engine.tensor([0, 2, 3])


def test_options_change_no_number() -> None:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    for reduction in ("mean", "sum", "none"):
        found = []
        for options in (None, Options(batch_chunk_size=2)):
            loss = F.linear_cross_entropy(x, w, T, reduction=reduction, options=options)
            first = engine.autograd.grad(loss.sum(), [x, w], create_graph=True)
            found.append(
                [loss.tolist(), *(g.tolist() for g in first), engine.autograd.grad(first[0].sum(), w)[0].tolist()]
            )
        assert found[0] == found[1]


def test_one_row_without_reduction_has_no_second_derivative() -> None:
    """torch's pieces refuse `create_graph` there; the first derivative is that of the whole."""
    x = X[0].clone().requires_grad_()
    loss = F.linear_cross_entropy(x, W, T[0], reduction="none", options=Options())
    wanted = engine.autograd.grad(F.linear_cross_entropy(x, W, T[0], reduction="none"), x, create_graph=True)[0]
    assert engine.autograd.grad(loss, x, retain_graph=True)[0].tolist() == wanted.tolist()
    with pytest.raises(RuntimeError, match=r"of one row .* has no second derivative"):
        engine.autograd.grad(loss, x, create_graph=True)
    mean = F.linear_cross_entropy(x, W, T[0], options=Options())
    assert engine.autograd.grad(mean, x, create_graph=True)[0].requires_grad


def test_sizes_that_differ() -> None:
    text = r"batch_chunk_size \(=3\) and chunking_method \('aspect_ratio'\) give different chunk sizes \(3 vs 2\)"
    with pytest.raises(ValueError, match=text):
        F.linear_cross_entropy(X, W, T, options=Options(batch_chunk_size=3, chunking_method="aspect_ratio"))


def test_options_that_are_ignored() -> None:
    text = r"linear_cross_entropy: ``options`` ignored; chunked path needs .* label_smoothing=0.5, .* out_features=\(\)"
    with pytest.warns(UserWarning, match=text) as found:
        F.linear_cross_entropy(X, W, T, label_smoothing=0.5, options=Options())
    assert [w.filename for w in found] == [__file__]
