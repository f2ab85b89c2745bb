"""CTC loss against the sum over all paths: lengths, repeated labels, impossible targets, gradients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import engine
from engine.nn import functional as F


def _probability(probs: np.ndarray, target: list[int]) -> float:
    """The sum over all paths that read `target`.  probs (T, C)."""
    total = 0.0
    for path in itertools.product(range(probs.shape[1]), repeat=probs.shape[0]):
        read = [label for label, _ in itertools.groupby(path) if label]
        if read == target:
            total += math.prod(probs[t, label] for t, label in enumerate(path))
    return total


CASES = [([1, 2], 6), ([2, 2], 6), ([1], 4), ([], 3), ([1, 1, 1], 4), ([2, 1, 2], 5)]  # the fifth needs five steps


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_losses_and_gradients_of_all_paths(zero_infinity: bool) -> None:
    logits = np.random.default_rng(0).standard_normal((6, len(CASES), 3)) * 2
    x = engine.tensor(logits, requires_grad=True)
    targets = engine.zeros(len(CASES), 3, dtype=engine.int64)
    for n, (labels, _) in enumerate(CASES):
        for s, label in enumerate(labels):
            targets[n, s] = label
    steps, sizes = [t for _, t in CASES], [len(labels) for labels, _ in CASES]

    def wanted(values: np.ndarray) -> np.ndarray:
        e = np.exp(values)
        probs = e / e.sum(-1, keepdims=True)
        return np.array([_probability(probs[:t, n], labels) for n, (labels, t) in enumerate(CASES)])

    losses = F.ctc_loss(x.log_softmax(-1), targets, steps, sizes, reduction="none", zero_infinity=zero_infinity)
    with np.errstate(divide="ignore"):
        want = -np.log(wanted(logits))
    assert np.isinf(want[4])
    want[4] = 0.0 if zero_infinity else np.inf
    np.testing.assert_allclose(losses.detach().numpy(), want, rtol=1e-9)
    possible = engine.tensor([0, 1, 2, 3, 5])
    (grad,) = engine.autograd.grad(losses[possible].sum(), x)
    if zero_infinity:
        assert (grad[:, 4] == 0).all()
    for t, n, c in [(0, 0, 1), (3, 1, 2), (2, 2, 0), (1, 3, 1), (4, 5, 2), (5, 1, 0)]:
        moved = logits.copy()
        moved[t, n, c] += 1e-5
        after = -np.log(wanted(moved)[n])
        moved[t, n, c] -= 2e-5
        before = -np.log(wanted(moved)[n])
        np.testing.assert_allclose(grad[t, n, c].item(), (after - before) / 2e-5, rtol=1e-4, atol=1e-7)
    for n, t in enumerate(steps):
        assert (grad[t:, n] == 0).all()


def test_an_impossible_target_has_nan() -> None:
    x = engine.zeros(2, 1, 3, requires_grad=True)
    loss = F.ctc_loss(x.log_softmax(-1), engine.tensor([[1, 1]]), (2,), (2,), reduction="sum")
    assert loss.item() == float("inf")
    loss.backward()
    assert x.grad.isnan().any()


def test_what_is_behind_the_end_of_a_sequence_has_no_gradient_also_where_it_is_no_number() -> None:
    logs = engine.full((4, 2, 3), -1.1)
    logs[3, 0, 1] = float("nan")
    logs.requires_grad_()
    F.ctc_loss(logs, engine.tensor([[1], [2]]), (3, 4), (1, 1), reduction="sum").backward()
    assert (logs.grad[3, 0] == 0).all()


@pytest.mark.parametrize(
    ("name", "lengths"), [("input_lengths", ([5, -1], [2, 2])), ("target_lengths", ([5, 5], [2, -1]))]
)
def test_negative_lengths_are_refused(name: str, lengths: tuple[list[int], list[int]]) -> None:
    with pytest.raises(RuntimeError, match=f"Expected {name} to have value at least 0, but got value -1"):
        engine.nn.functional.ctc_loss(engine.zeros(5, 2, 4), engine.ones(2, 2).long(), *map(engine.tensor, lengths))
