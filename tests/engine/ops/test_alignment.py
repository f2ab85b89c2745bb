"""The transducer loss against the sum over all alignments, forced alignment against all paths; stored numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import engine
from engine.ops import alignment


def _fill(*shape: int) -> engine.Tensor:
    return engine.sin(engine.arange(int(np.prod(shape)), dtype=engine.float64) * 1.7).reshape(shape)


def _int32(values: list) -> engine.Tensor:
    return engine.tensor(values, dtype=engine.int32)


def _cost(scores: np.ndarray, labels: list[int], blank: int) -> float:
    """-log of the sum over every order of the steps in time and the labels; the last step is a blank."""
    steps, count = scores.shape[0], len(labels)
    total = 0.0
    for places in itertools.combinations(range(steps - 1 + count), count):
        t = u = 0
        logarithm = 0.0
        for place in range(steps - 1 + count):
            if place in places:
                logarithm += scores[t, u, labels[u]]
                u += 1
            else:
                logarithm += scores[t, u, blank]
                t += 1
        total += math.exp(logarithm + scores[t, u, blank])
    return -math.log(total)


def test_the_loss_is_the_sum_over_all_alignments() -> None:
    logits = _fill(2, 4, 3, 4).float()
    targets, times, lengths = [[1, 2], [3, 1]], [4, 2], [2, 1]
    costs, _ = alignment.rnnt_loss_forward(logits, _int32(targets), _int32(times), _int32(lengths), 0, -1.0)
    scores = engine.log_softmax(logits.double(), -1).numpy()
    expected = [_cost(scores[b, :t], targets[b][:u], 0) for b, (t, u) in enumerate(zip(times, lengths))]
    np.testing.assert_allclose(costs.numpy(), expected, rtol=1e-6)


def test_costs_and_gradients_are_torchaudios() -> None:
    logits = _fill(2, 3, 3, 4).float().requires_grad_()
    lengths = _int32([3, 2]), _int32([2, 1])
    targets = _int32([[1, 2], [3, 1]])
    costs, gradients = alignment.rnnt_loss_forward(logits, targets, *lengths, 0, -1.0)
    np.testing.assert_allclose(costs.detach().numpy(), [5.3416724, 5.1311622], rtol=1e-6)
    np.testing.assert_allclose(gradients[0, 0, 0], [0.0283885, -0.2689564, 0.1591512, 0.0814168], atol=1e-6)
    np.testing.assert_allclose(gradients[0, 2, 2], [-0.9111998, 0.1329868, 0.5302873, 0.2479258], atol=1e-6)
    assert not gradients[1, 2].any() and not gradients[1, 0, 2].any()
    (costs * engine.tensor([1.0, 2.0])).sum().backward()
    np.testing.assert_allclose(logits.grad, gradients * engine.tensor([1.0, 2.0]).reshape(2, 1, 1, 1), rtol=1e-6)
    _, clipped = alignment.rnnt_loss_forward(logits.detach(), targets, *lengths, 0, 0.1)
    assert clipped.abs().max() == pytest.approx(0.1)


def test_without_the_softmax_only_what_is_emitted_has_a_gradient() -> None:
    scores = engine.log_softmax(_fill(1, 3, 3, 4).float(), -1)
    _, gradients = alignment.rnnt_loss_forward(scores, _int32([[1, 2]]), _int32([3]), _int32([2]), 0, -1.0, False)
    np.testing.assert_allclose(gradients[0, 0, 0], [-0.1771013, -0.8228989, 0, 0], atol=1e-6)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"logits": _fill(1, 3, 3, 4)}, "logits must be float32"),
        ({"targets": engine.tensor([[1, 2]])}, "targets must be int32 type"),
        ({"logits": _fill(3, 3, 4).float()}, "logits must be 4-D"),
        ({"blank": 7}, "blank must be within"),
        ({"logit_lengths": _int32([2])}, "input length mismatch"),
        ({"target_lengths": _int32([1])}, "output length mismatch"),
        ({"logit_lengths": _int32([3, 3])}, "batch dimension mismatch"),
    ],
)
def test_arguments_that_do_not_fit_are_named(change: dict, sentence: str) -> None:
    given = {
        "logits": _fill(1, 3, 3, 4).float(),
        "targets": _int32([[1, 2]]),
        "logit_lengths": _int32([3]),
        "target_lengths": _int32([2]),
        "blank": 0,
        "clamp": -1.0,
    }
    with pytest.raises(RuntimeError, match=sentence):
        alignment.rnnt_loss_forward(**{**given, **change})


def _collapsed(path: tuple[int, ...], blank: int) -> list[int]:
    return [label for label, _ in itertools.groupby(path) if label != blank]


@pytest.mark.parametrize("labels", [[1, 2], [2, 2], [1, 2, 1], [2]])
def test_no_path_that_spells_the_target_is_likelier(labels: list[int]) -> None:
    scores = engine.log_softmax(engine.cos(_fill(1, 5, 3) * 40), -1)
    path, kept = alignment.forced_align(
        scores, engine.tensor([labels]), engine.tensor([5]), engine.tensor([len(labels)]), 0
    )
    table = scores[0].numpy()
    best = max(
        (p for p in itertools.product(range(3), repeat=5) if _collapsed(p, 0) == labels),
        key=lambda p: sum(table[t, label] for t, label in enumerate(p)),
    )
    assert path.tolist() == [list(best)] and path.dtype == engine.int64
    assert kept is scores


@pytest.mark.parametrize(
    "labels, path",
    [([1, 2, 2], [1, 2, 0, 0, 0, 0, 2]), ([3, 1], [0, 0, 0, 0, 0, 3, 1]), ([1, 1, 1, 1], [1, 0, 1, 0, 1, 0, 1])],
)
def test_alignments_are_torchaudios(labels: list[int], path: list[int]) -> None:
    scores = engine.log_softmax(_fill(1, 7, 4), -1)
    result, _ = alignment.forced_align(scores, _int32([labels]), engine.tensor([7]), engine.tensor([len(labels)]))
    assert result.tolist() == [path] and result.dtype == engine.int32


def test_a_target_that_is_too_long_is_refused() -> None:
    scores = _fill(1, 7, 4)
    with pytest.raises(RuntimeError, match=r"length: 7, targets length: 5, and number of repeats: 4"):
        alignment.forced_align(scores, engine.tensor([[1] * 5]), engine.tensor([7]), engine.tensor([5]))
