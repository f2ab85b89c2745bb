"""Averaged models and their schedule; rates are torch 2.13's."""

from __future__ import annotations

import pytest

import engine
from engine import nn
from engine.optim import SGD
from engine.optim.swa_utils import (
    SWALR,
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_avg_fn,
    get_swa_multi_avg_fn,
    update_bn,
)

RATES = {
    "cos": [
        [1.0, 0.2],
        [0.86087572106361, 0.17803300858899107],
        [0.525, 0.125],
        [0.18912427893638994, 0.07196699141100894],
        [0.05, 0.05],
        [0.05, 0.05],
    ],
    "linear": [
        [1.0, 0.2],
        [0.6833333333333335, 0.2666666666666667],
        [0.3666666666666667, 0.33333333333333337],
        [0.05, 0.4],
        [0.05, 0.4],
        [0.05, 0.4],
    ],
    "at once": [[0.05, 0.05]] * 6,
}
OPTIONS = {
    "cos": {"swa_lr": 0.05, "anneal_epochs": 4},
    "linear": {"swa_lr": [0.05, 0.4], "anneal_epochs": 3, "anneal_strategy": "linear"},
    "at once": {"swa_lr": 0.05, "anneal_epochs": 0},
}


def two_groups() -> SGD:
    first, second = nn.Parameter(engine.zeros(1)), nn.Parameter(engine.zeros(1))
    return SGD([{"params": [first], "lr": 1.0}, {"params": [second], "lr": 0.2}], lr=0.5)


@pytest.mark.parametrize("name", RATES)
def test_rates(name):
    optimizer = two_groups()
    schedule = SWALR(optimizer, **OPTIONS[name])
    for wanted in RATES[name]:
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(wanted)
        optimizer.step()
        schedule.step()


def test_bad_schedules():
    with pytest.raises(ValueError, match="must be one of 'cos' or 'linear', instead got exp"):
        SWALR(two_groups(), 0.1, anneal_strategy="exp")
    with pytest.raises(ValueError, match="must be equal or greater than 0, got -1"):
        SWALR(two_groups(), 0.1, anneal_epochs=-1)
    with pytest.raises(ValueError, match="swa_lr must have the same length as"):
        SWALR(two_groups(), [0.1])


def filled(value: float) -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with engine.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
        model[1].running_mean.fill_(value)
    return model


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, 7 / 3),
        ({"avg_fn": get_swa_avg_fn()}, 7 / 3),
        ({"multi_avg_fn": get_swa_multi_avg_fn()}, 7 / 3),
        ({"avg_fn": get_ema_avg_fn(0.5)}, 2.75),
        ({"multi_avg_fn": get_ema_multi_avg_fn(0.5)}, 2.75),
    ],
)
@pytest.mark.parametrize("use_buffers", [False, True])
def test_averages(options, wanted, use_buffers):
    averaged = AveragedModel(filled(9.0), use_buffers=use_buffers and "avg_fn" not in options, **options)
    for value in (1.0, 2.0, 4.0):
        averaged.update_parameters(filled(value))
    assert averaged.n_averaged.item() == 3 and averaged.n_averaged.dtype is engine.int64
    for parameter in averaged.parameters():
        assert parameter.flatten().tolist() == pytest.approx([wanted] * parameter.numel())
    mean = wanted if averaged.use_buffers else 4.0
    assert averaged.module[1].running_mean.tolist() == pytest.approx([mean, mean])
    assert set(averaged.state_dict()) == {"n_averaged", *(f"module.{k}" for k in filled(0.0).state_dict())}
    x = engine.ones(3, 2)
    engine.testing.assert_close(averaged.eval()(x), averaged.module.eval()(x))  # other code may serve a second call


def test_only_one_function():
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        AveragedModel(filled(0.0), avg_fn=get_swa_avg_fn(), multi_avg_fn=get_swa_multi_avg_fn())
    with pytest.raises(ValueError, match="Invalid decay value 2"):
        get_ema_avg_fn(2)


def test_update_bn():
    model = nn.Sequential(nn.BatchNorm1d(2, momentum=0.3)).eval()
    batches = [engine.tensor([[0.0, 1.0], [2.0, 5.0]]), engine.tensor([[4.0, 1.0], [6.0, 1.0]])]
    update_bn([(batch, None) for batch in batches], model)
    assert model[0].running_mean.tolist() == [3.0, 2.0] and model[0].running_var.tolist() == [2.0, 4.0]
    assert model[0].momentum == 0.3 and not model.training
    plain = nn.Linear(2, 2)
    update_bn(iter(()), plain)  # no layer to update: the batches are not asked for
