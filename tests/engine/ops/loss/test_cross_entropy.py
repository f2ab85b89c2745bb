"""Cross entropy as one op: against log_softmax and nll_loss, and oneDNN's kernels against numpy's."""

from __future__ import annotations

import importlib
import weakref
from typing import Any

import numpy as np
import pytest

import engine
from engine.autograd.gradcheck import gradgradcheck
from engine.backends import onednn
from engine.dispatch import OPS
from engine.nn import functional as F

pytestmark = pytest.mark.onednn
needs_library = pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe())
SHAPES = [(70, 90), (1, 5000), (5, 7), (3, 11, 40, 50), (2, 300_000, 1)]


def scores(shape: tuple, seed: int = 0) -> tuple[engine.Tensor, engine.Tensor]:
    rng = np.random.default_rng(seed)
    x = engine.from_numpy(rng.standard_normal(shape).astype("float32") * 4)
    target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    return x, engine.from_numpy(target)


def in_small_ops(x: Any, target: Any, smoothing: float, **options: Any) -> Any:
    reduction = options["reduction"]
    found = F.nll_loss(F.log_softmax(x, 1), target, **options)
    if not smoothing:
        return found
    weight = options.get("weight")
    weight = x.new_ones(x.shape[1]) if weight is None else weight
    each = -(F.log_softmax(x, 1) * weight.reshape(-1, *(1,) * (x.dim() - 2))).sum(1)
    kept = target != options["ignore_index"]
    each = each * kept
    if reduction == "mean":
        each = each.sum() / weight[target[kept]].sum()
    elif reduction == "sum":
        each = each.sum()
    return found * (1 - smoothing) + each * (smoothing / x.shape[1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients(shape: tuple, reduction: str, smoothing: float, weighted: bool) -> None:
    x, target = scores(shape)
    options: dict[str, Any] = {"reduction": reduction, "ignore_index": 3 if weighted else -100}
    if weighted:
        options["weight"] = engine.linspace(0.5, 2, shape[1])
    one = x.clone().requires_grad_()
    found = F.cross_entropy(one, target, label_smoothing=smoothing, **options)
    wide = {k: v.double() if k == "weight" else v for k, v in options.items()}
    two = x.double().requires_grad_()
    wanted = in_small_ops(two, target, smoothing, **wide)
    engine.testing.assert_close(found.double(), wanted, rtol=2e-5, atol=2e-5)
    grad = engine.linspace(-1, 1, found.numel()).reshape(found.shape) if found.dim() else None
    found.backward(grad)
    wanted.backward(None if grad is None else grad.double())
    engine.testing.assert_close(one.grad.double(), two.grad, rtol=1e-4, atol=1e-6)


def test_a_target_out_of_reach_has_a_finite_loss() -> None:
    x, target = scores((40, 200))
    x[7, target[7]] = -500.0
    x[9] = engine.arange(200) * -1e30
    target[9] = 1
    found = F.cross_entropy(x, target, reduction="none")
    assert float(found[7]) > 495
    assert float(found[9]) == pytest.approx(1e30)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_score_spoils_its_row_and_no_other(bad: float) -> None:
    x, target = scores((40, 200))
    x[5, (target[5] + 1) % 200] = bad
    x.requires_grad_()
    losses = F.cross_entropy(x, target, reduction="none")
    losses.sum().backward()
    spoilt = engine.arange(40) == 5
    assert engine.equal(losses.isnan(), spoilt)
    assert engine.equal(x.grad.isnan().all(1), spoilt) and engine.equal(x.grad.isnan().any(1), spoilt)


def test_the_graph_does_not_keep_the_scores() -> None:
    x, target = scores((40, 200))
    made = x.requires_grad_() * 1
    seen = weakref.ref(made)
    loss = F.cross_entropy(made, target)
    del made
    assert seen() is None
    loss.backward()
    assert x.grad is not None


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_second_derivatives(smoothing: float) -> None:
    x, target = scores((4, 5, 2))
    x = x.double().requires_grad_()
    for reduction in ("mean", "none"):
        assert gradgradcheck(
            lambda y, how=reduction: F.cross_entropy(
                y, target, ignore_index=2, reduction=how, label_smoothing=smoothing
            ),
            (x,),
        )


@pytest.mark.parametrize(
    "options, name",
    [
        ({}, "NllLossBackward0"),
        ({"label_smoothing": 0.1}, "AddBackward0"),
        ({"reduction": "none"}, "NllLossBackward0"),
    ],
)
def test_the_node_has_torchs_name(options: dict, name: str) -> None:
    x, target = scores((4, 5))
    found = F.cross_entropy(x.requires_grad_(), target, **options)
    assert type(found.grad_fn).__name__ == name


@needs_library
@pytest.mark.parametrize("name", ["softmax_nll_rows", "softmax_nll_smoothed"])
@pytest.mark.parametrize("weighted", [False, True])
def test_twins(name: str, weighted: bool) -> None:
    importlib.import_module("engine.ops.onednn")
    x, target = (t.numpy() for t in scores((60, 80)))
    weight = np.linspace(0.5, 2, 80, dtype="float32") if weighted else None
    more = (0.2,) if name == "softmax_nll_smoothed" else ()
    given = (target, weight, 5, "mean", *more)
    twin = OPS[name].kernel(np, x, *given)
    found = OPS[name].kernels["onednn"](np, x, *given)
    for a, b in zip(found, twin, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-7)
    record = OPS["softmax_nll_backward"]
    given = (np.ones((), "float32"), target, twin[1], weight, 5, "mean", *more)
    one = record.kernels["onednn"](np, twin[2], *given)
    np.testing.assert_allclose(one, record.kernel(np, twin[2], *given), 1e-5, 1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (70, 90), (2, 3, 4, 5), (3,)])
def test_ignored_targets_have_no_gradient_where_there_is_no_mean(
    shape: tuple, weighted: bool, smoothing: float
) -> None:
    rng = np.random.default_rng(0)
    x = engine.from_numpy(rng.standard_normal(shape).astype("float32")).requires_grad_()
    target = engine.full((*shape[:1], *shape[2:]) if len(shape) > 1 else (), -100, dtype=engine.int64)
    weight = engine.ones(shape[min(1, len(shape) - 1)]) if weighted else None
    for loss in (
        F.cross_entropy(x, target, weight, label_smoothing=smoothing),
        F.nll_loss(x, target, weight),
    ):
        assert loss.isnan()
        (found,) = engine.autograd.grad(loss, x)
        assert not found.any()
