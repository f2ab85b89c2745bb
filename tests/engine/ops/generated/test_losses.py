"""Losses as kernels: against the op's own code, and what is left to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engine
from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops import generated
from engine.ops.generated import launch, losses
from tests.engine.ops.generated.test_layers import agree
from tests.engine.ops.generated.test_lines import left

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every call is launched."""
    monkeypatch.setattr(launch.trials, "trusted", True)
    monkeypatch.setattr(losses, "_known", {})
    yield


LOSSES = [
    ("mse_loss", ()),
    ("smooth_l1_loss", (0.7,)),
    ("huber_loss", (1.5,)),
    ("soft_margin_loss", ()),
    ("bce_with_logits", ()),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name, given", LOSSES)
def test_losses_of_elements(name: str, given: tuple[float, ...], reduction: str, dtype: str) -> None:
    r = np.random.default_rng(3)
    for shape in ((1,), (5, 7), (4095,), (3, 20000), (40960,), (2, 4, 4096)):
        x, target = ((r.standard_normal(shape) * 5).astype(dtype) for _ in range(2))
        agree(name, x, target, reduction, *given)
    x[0, 1, 2], target[1, 2, 3] = np.inf, np.nan
    agree(name, x, target, reduction, *given)
    agree(name, x, target, "none", *given)
    agree(name, x[:, :, ::2], target[0, :, :2048], "none", *given)
    assert left(name, x[:, :, ::2], target[:, :, ::2], reduction, *given)
    assert left(name, x[:0], target[:0], reduction, *given)
    assert left(name, x, target.astype("float16"), reduction, *given)


def test_losses_of_many_elements_lose_little() -> None:
    x = np.full(1 << 22, 0.1, "float32")
    got = generated.variant_of(OPS["mse_loss"], small=True)(np, x, np.zeros_like(x), "sum")
    np.testing.assert_allclose(got, x.size * float(x[0]) ** 2, rtol=1e-6)


def test_parameters_of_losses_are_constants_of_few_kernels() -> None:
    x = np.ones(8192, "float32")
    found = [left("huber_loss", x, -x, "sum", n / 4) for n in range(1, 12)]
    assert found.count(False) <= 4 and found[-1]
    with pytest.raises(RuntimeError, match="non-positive values for delta"):
        engine.nn.functional.huber_loss(engine.tensor(x), engine.tensor(x), delta=-1.0)


def _case(*shape: int, dtype: str = "float32") -> tuple[Any, Any]:
    r = np.random.default_rng(shape[1])
    return (r.standard_normal(shape) * 5).astype(dtype), r.integers(0, shape[1], (shape[0], *shape[2:]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 21, 40, 30), (3, 2, 512), (2, 1, 513)])
def test_losses_and_softmax(shape: tuple[int, ...], reduction: str, dtype: str) -> None:
    x, target = _case(*shape, dtype=dtype)
    agree("softmax_nll_maps", x, target, None, -100, reduction)
    agree("softmax_nll_maps", x, target, None, 0, reduction)
    target[0, :2] = -100
    agree("softmax_nll_maps", x, target, None, -100, reduction)


def test_infinite_scores_and_nothing_that_counts() -> None:
    x, target = _case(2, 5, 600)
    x[0, 1, 3], x[0, 2, 9], x[1, 4, 599] = np.inf, -np.inf, np.nan
    agree("softmax_nll_maps", x, target, None, -100, "none")
    agree("softmax_nll_maps", x, np.full_like(target, -100), None, -100, "mean")


def test_what_is_left() -> None:
    x, target = _case(2, 3, 8)
    assert left("softmax_nll_maps", x, target, np.ones(3, "float32"))
    assert left("softmax_nll_maps", x, target.astype("uint8"))
    assert left("softmax_nll_maps", x.transpose(2, 1, 0), target)
    target[1, 7] = 3
    assert left("softmax_nll_maps", x, target)
    for _ in range(3):
        with pytest.raises(IndexError, match="Target 3 is out of bounds"):
            engine.nn.functional.cross_entropy(engine.tensor(x), engine.tensor(target))


TARGETS = [
    ((6, 6, 6, 4, 3, 4), ((1, 2), (2, 2), (1,), (), (1, 1, 1), (2, 1, 2))),  # the fifth needs five steps
    ((5, 1), ((1, 2, 1, 2), (2, 2))),
    ((9,), ((1, 2, 0, 2, 1, 0, 0, 2),)),  # the blank among the labels
    ((40, 33), (tuple(range(1, 3)) * 9, (2,) * 9)),
    ((3, 2), ((), ())),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("steps, targets", TARGETS)
def test_ctc(steps: tuple[int, ...], targets: tuple[tuple[int, ...], ...], zero: bool, dtype: str) -> None:
    r, sizes = np.random.default_rng(len(steps)), tuple(map(len, targets))
    x = r.standard_normal((max(steps) + 1, len(steps), 3))
    x = (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(dtype)
    grad = r.standard_normal(len(steps)).astype(dtype)
    agree("ctc_rows", x, targets, steps, sizes, 0, zero)
    agree("ctc_backward", grad, x, targets, steps, sizes, 0, zero)
    agree("ctc_backward", grad[:1].repeat(3)[::3].repeat(len(steps)), x, targets, steps, sizes, 2, zero)


@pytest.mark.parametrize("number", [-np.inf, np.nan, np.inf])
def test_ctc_of_numbers_that_are_not_finite(number: float) -> None:
    x = np.log(np.full((5, 2, 3), 1 / 3, "float32"))
    x[2, 0, 1] = number
    x[4, 1, 0] = number  # behind the end
    lengths = (5, 4), (2, 1)
    agree("ctc_rows", x, ((1, 2), (2,)), *lengths, 0, False)
    agree("ctc_backward", np.ones(2, "float32"), x, ((1, 2), (2,)), *lengths, 0, False)


def test_what_ctc_leaves() -> None:
    x, grad = np.zeros((4, 2, 3), "float32"), np.ones(2, "float32")
    assert left("ctc_rows", x, ((1,), (3,)), (4, 4), (1, 1), 0, False)
    assert left("ctc_rows", x, ((1,), (-1,)), (4, 4), (1, 1), 0, False)
    assert left("ctc_rows", x, ((1,), (1,)), (4, 0), (1, 1), 0, False)
    assert left("ctc_rows", x.transpose(0, 2, 1), ((1,),) * 3, (4,) * 3, (1,) * 3, 0, False)
    assert left("ctc_backward", grad.astype("float64"), x, ((1,), (1,)), (4, 4), (1, 1), 0, False)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_losses_of_given_logarithms(reduction: str, weighted: bool, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((37, 5)).astype(dtype)
    target = rng.integers(0, 5, 37)
    x[3, target[3] - 1] = np.inf  # of another class
    weight = np.array([1, 0, 2, 0.5, 1], dtype) if weighted else None
    for ignored in (-100, 2):
        agree("nll_loss_rows", x, target, weight, ignored, reduction)
        _, total = OPS["nll_loss_rows"].kernel(np, x, target, weight, ignored, reduction)
        g = np.asarray(0.7, dtype)
        agree("nll_loss_backward", g, target, total, x.shape, weight, ignored, reduction)
    none = np.full(37, 2)
    agree("nll_loss_backward", g, none, np.zeros((), dtype), x.shape, weight, 2, reduction)


def test_losses_of_given_logarithms_that_are_left() -> None:
    x, target = np.ones((3, 5), "float32"), np.array([0, 1, 4])
    assert left("nll_loss_rows", x, target, None, -100, "none")
    assert left("nll_loss_rows", x[0], target[0])
    assert left("nll_loss_rows", x, target.astype("uint8"))
    assert left("nll_loss_rows", x.astype("float16"), target)
    assert left("nll_loss_backward", x[:, 0].copy(), target, np.float32(1).reshape(()), x.shape, None, -100, "none")
    for wrong in (5, -1):
        with pytest.raises(launch.Unfit):
            generated.variant_of(OPS["nll_loss_rows"], small=True)(np, x, np.array([0, 1, wrong]))
