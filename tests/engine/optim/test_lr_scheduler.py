"""Schedules give torch's rates; state dicts, warnings and errors are torch's."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.optim import lr_scheduler
from tests.engine.optim import problems

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())


def same(found: list, stored: list) -> None:
    for a, b in zip(found, stored, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", problems.SCHEDULES)
def test_sequence(name: str) -> None:
    """Rates and momentum over 18 steps."""
    same(problems.schedule(engine, name), EXPECTED["schedules"][name])


@pytest.mark.parametrize("name", EXPECTED["schedules Adam"])
def test_sequence_of_beta1(name: str) -> None:
    """Cycles move beta1 of Adam."""
    same(problems.schedule(engine, name, "Adam"), EXPECTED["schedules Adam"][name])


@pytest.mark.parametrize("name", problems.PLATEAUS)
def test_plateau(name: str) -> None:
    """ReduceLROnPlateau in its four modes."""
    same(problems.plateau(engine, name), EXPECTED["plateaus"][name])


@pytest.mark.parametrize("name", problems.CLOSED)
def test_closed_form(name: str) -> None:
    """`step(epoch)` jumps, and warns that it is deprecated (restarts excepted)."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        same(problems.closed(engine, name), EXPECTED["closed"][name])
    told = [w for w in seen if "The epoch parameter in `scheduler.step()` was not necessary" in str(w.message)]
    assert len(told) == (0 if "Restarts" in name else 5)


@pytest.mark.parametrize("name", problems.SCHEDULES)
def test_state_dict_resumes(name: str) -> None:
    """A schedule loaded at step 7 gives the rates of one that ran through."""

    def run(optimizer: Any, scheduler: Any, steps: int) -> None:
        for _ in range(steps):
            optimizer.step()
            scheduler.step()

    make = problems.SCHEDULES[name]
    first = problems.two_groups(engine)
    scheduler = make(lr_scheduler, first)
    run(first, scheduler, 7)
    saved = copy.deepcopy((first.state_dict(), scheduler.state_dict()))
    run(first, scheduler, 6)
    second = problems.two_groups(engine)
    resumed = make(lr_scheduler, second)
    second.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    run(second, resumed, 6)
    assert problems.rates(second) == problems.rates(first)
    assert resumed.get_last_lr() == scheduler.get_last_lr()


def test_state_dict_keys() -> None:
    """The names of torch's attributes, so that state dicts interchange."""
    scheduler = lr_scheduler.StepLR(problems.two_groups(engine), 3)
    assert set(scheduler.state_dict()) == {
        "step_size",
        "gamma",
        "base_lrs",
        "last_epoch",
        "_step_count",
        "_is_initial",
        "_get_lr_called_within_step",
        "_last_lr",
    }


def test_resume_by_last_epoch() -> None:
    """`last_epoch` needs `initial_lr` in every group."""
    optimizer = problems.two_groups(engine)
    with pytest.raises(KeyError, match=r"param 'initial_lr' is not specified in param_groups\[0\] when resuming"):
        lr_scheduler.StepLR(optimizer, 3, last_epoch=4)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    scheduler = lr_scheduler.StepLR(optimizer, 3, last_epoch=5)
    assert scheduler.last_epoch == 6
    np.testing.assert_allclose(scheduler.get_last_lr(), [0.01, 0.02])


def test_warnings() -> None:
    """Steps in the wrong order, an overridden step, get_lr from outside."""
    optimizer = problems.two_groups(engine)
    scheduler = lr_scheduler.StepLR(optimizer, 3)
    with pytest.warns(UserWarning, match=r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    with pytest.warns(UserWarning, match=r"please use `get_last_lr\(\)`"):
        scheduler.get_lr()
    optimizer = problems.two_groups(engine)
    scheduler = lr_scheduler.StepLR(optimizer, 3)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match=r"Seems like `optimizer.step\(\)` has been overridden"):
        scheduler.step()


def test_tensor_rate_is_filled_in_place() -> None:
    """A rate given as a Tensor stays that Tensor."""
    lr = engine.tensor(0.5)
    p = engine.zeros(2, requires_grad=True)
    optimizer = engine.optim.SGD([p], lr=lr)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    p.grad = engine.ones(2)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == 0.25
    assert p.tolist() == [-0.5, -0.5]
    assert scheduler.base_lrs[0].item() == 0.5


def test_old_name() -> None:
    """Schedules of before 2.0 derive from `_LRScheduler`."""

    class Halving(lr_scheduler._LRScheduler):
        def get_lr(self) -> list:
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    optimizer = problems.two_groups(engine)
    scheduler = Halving(optimizer)
    optimizer.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.05, 0.1]
    assert isinstance(scheduler, lr_scheduler.LRScheduler)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda L, o: L.StepLR(3, 3), TypeError, "int is not an Optimizer"),
        (lambda L, o: L.LambdaLR(o, [abs]), ValueError, "Expected 2 lr_lambdas, but got 1"),
        (lambda L, o: L.MultiplicativeLR(o, 3), TypeError, "lr_lambda should be a function, but got int"),
        (lambda L, o: L.ConstantLR(o, 2.0), ValueError, "Constant multiplicative factor expected"),
        (lambda L, o: L.LinearLR(o, 0.0), ValueError, "Starting multiplicative factor expected"),
        (lambda L, o: L.LinearLR(o, 0.5, 2.0), ValueError, "Ending multiplicative factor expected"),
        (lambda L, o: L.ReduceLROnPlateau(o, factor=1.0), ValueError, "Factor should be < 1.0."),
        (lambda L, o: L.ReduceLROnPlateau(o, "mid"), ValueError, "mode mid is unknown!"),
        (lambda L, o: L.ReduceLROnPlateau(o, threshold_mode="x"), ValueError, "threshold mode x is unknown!"),
        (lambda L, o: L.ReduceLROnPlateau(o, min_lr=[0]), ValueError, "expected 2 min_lrs, got 1"),
        (lambda L, o: L.CyclicLR(o, 0.1, 0.2, mode="x"), ValueError, "mode is invalid and scale_fn is None"),
        (
            lambda L, o: L.CyclicLR(o, [0.1], 0.2),
            ValueError,
            "base_lr must have the same length as optimizer.param_groups. base_lr has 1 values, param_groups has 2.",
        ),
        (lambda L, o: L.CosineAnnealingWarmRestarts(o, 0), ValueError, "Expected positive integer T_0, but got 0"),
        (lambda L, o: L.CosineAnnealingWarmRestarts(o, 1, 0), ValueError, "Expected integer T_mult >= 1"),
        (lambda L, o: L.CosineAnnealingWarmRestarts(o, 1).step(-1), ValueError, "Expected non-negative epoch"),
        (lambda L, o: L.OneCycleLR(o, 0.1), ValueError, "You must define either total_steps OR"),
        (lambda L, o: L.OneCycleLR(o, 0.1, 0), ValueError, "Expected positive integer total_steps, but got 0"),
        (lambda L, o: L.OneCycleLR(o, 0.1, 5, pct_start=2.0), ValueError, "Expected float between 0 and 1"),
        (lambda L, o: L.OneCycleLR(o, 0.1, 5, anneal_strategy="x"), ValueError, "must be one of 'cos' or 'linear'"),
        (lambda L, o: L.SequentialLR(o, [], []), ValueError, "expects at least one scheduler"),
        (lambda L, o: L.SequentialLR(o, [L.StepLR(o, 1)], [1]), ValueError, "one more than the number of milestone"),
        (lambda L, o: L.ChainedScheduler([L.ReduceLROnPlateau(o)]), ValueError, "does not support `ReduceLROnPlateau`"),
        (
            lambda L, o: L.SequentialLR(o, [L.StepLR(problems.two_groups(engine), 1)], []),
            ValueError,
            "expects all schedulers to belong to the same optimizer",
        ),
    ],
)
def test_errors(make: Any, kind: type, message: str) -> None:
    """torch's types and sentences."""
    with pytest.raises(kind) as error:
        make(lr_scheduler, problems.two_groups(engine))
    assert message in str(error.value)


def test_one_cycle_ends() -> None:
    """More steps than there are is an error."""
    optimizer = problems.two_groups(engine)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 0.1, 2)
    optimizer.step()
    scheduler.step()
    scheduler.step()
    with pytest.raises(ValueError, match=r"Tried to step 3 times\. The specified number of total steps is 2"):
        scheduler.step()


def test_cycle_needs_momentum() -> None:
    """RMSprop has momentum; Adagrad has neither momentum nor betas."""
    optimizer = engine.optim.Adagrad([engine.zeros(1, requires_grad=True)])
    with pytest.raises(ValueError, match="optimizer must support momentum or beta1 with `cycle_momentum`"):
        lr_scheduler.CyclicLR(optimizer, 0.1, 0.2)
