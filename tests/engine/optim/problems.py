"""The fixed problems whose trajectories stand in `expected.json`.  Written for engine and torch alike.

`python tests/engine/optim/problems.py FOLDER` with an interpreter that has torch writes `expected.json` and
`torch_states.pth` (state dicts after 5 steps, with the parameters then and after 7 more) into FOLDER.
"""

from __future__ import annotations

import copy
import json
import math
import sys
from pathlib import Path
from typing import Any

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {}


def _case(kind: str, **options: Any) -> None:
    label = ",".join(f"{k}={v}" for k, v in options.items())
    OPTIMIZERS[f"{kind}({label})"] = (kind, options)


for _options in (
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.3},
    {"momentum": 0.9, "nesterov": True},
    {"weight_decay": 0.1},
    {"momentum": 0.8, "weight_decay": 0.1, "nesterov": True, "maximize": True},
    {"maximize": True},
    {"momentum": 0.5, "maximize": True},
    {"momentum": 0.5, "maximize": True, "nesterov": True},
    {"weight_decay": 0.1, "maximize": True},
):
    _case("SGD", lr=0.05, **_options)
for _kind in ("Adam", "AdamW"):
    for _options in (
        {},
        {"weight_decay": 0.1},
        {"amsgrad": True},
        {"maximize": True},
        {"betas": (0.5, 0.6), "eps": 1e-2},
        {"amsgrad": True, "weight_decay": 0.05, "maximize": True},
    ):
        _case(_kind, lr=0.02, **_options)
for _kind in ("NAdam", "RAdam"):
    for _options in (
        {},
        {"weight_decay": 0.1},
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
        {"maximize": True},
        {"betas": (0.8, 0.9)},
    ):
        _case(_kind, lr=0.02, **_options)
_case("NAdam", lr=0.02, momentum_decay=0.1)
for _options in ({}, {"weight_decay": 0.1}, {"maximize": True}, {"betas": (0.5, 0.6), "eps": 1e-2}):
    _case("Adamax", lr=0.02, **_options)
for _options in (
    {},
    {"weight_decay": 0.1},
    {"lr_decay": 0.1},
    {"initial_accumulator_value": 0.5},
    {"maximize": True, "eps": 0.1},
):
    _case("Adagrad", lr=0.1, **_options)
for _options in ({}, {"weight_decay": 0.1}, {"rho": 0.5}, {"maximize": True, "lr": 0.5}):
    _case("Adadelta", **_options)
for _options in ({}, {"weight_decay": 0.1}, {"t0": 4}, {"lambd": 0.1, "alpha": 0.5, "maximize": True}):
    _case("ASGD", lr=0.05, **_options)
for _options in (
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"centered": True},
    {"maximize": True, "alpha": 0.5},
    {"centered": True, "momentum": 0.5, "weight_decay": 0.1},
):
    _case("RMSprop", lr=0.01, **_options)
for _options in ({}, {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.1)}, {"maximize": True}):
    _case("Rprop", lr=0.02, **_options)
for _options in ({}, {"lr": 0.5, "history_size": 3}, {"line_search_fn": "strong_wolfe"}):
    _case("LBFGS", max_iter=3, **_options)

SHAPES = ((4, 3), (3,), (3, 2), ())


def start(t: Any, dtype: str) -> list:
    """The parameters of the problem: `t` is engine or torch."""
    params = []
    for n, shape in enumerate(SHAPES):
        size = math.prod(shape)
        values = [math.sin(1.7 * i + n) for i in range(size)]
        if dtype.startswith("complex"):
            values = [complex(v, math.cos(2.3 * i - n)) for i, v in enumerate(values)]
        p = t.tensor(values, dtype=getattr(t, dtype)).reshape(shape).clone()
        params.append(p.requires_grad_())
    return params


def loss_of(t: Any, params: list, k: int = 0) -> Any:
    """A smooth loss with noise that depends on the step `k`."""
    a, b, c, d = (t.view_as_real(p) if p.is_complex() else p for p in params)
    grow = 1.0 + 0.3 * math.sin(k)
    return (
        ((a * 1.5 - 0.3).tanh() * grow).pow(2).sum()
        + (b * b * b * b).sum() * 0.1
        + (a.sum() * b).sum() * 0.02
        + ((c - 0.7) * grow).pow(2).sum()
        + (d + 0.1 * k * 0.1).pow(2).sum()
        + (d * c.sum()).sum() * 0.05
    )


def train(t: Any, optimizer: Any, params: list, steps: range) -> None:
    """Steps of the problem; b (the second parameter) has no gradient at every fourth."""
    lbfgs = type(optimizer).__name__ == "LBFGS"
    for k in steps:

        def closure(k: int = k) -> Any:
            optimizer.zero_grad()
            loss = loss_of(t, params, 0 if lbfgs else k)
            loss.backward()
            if k % 4 == 3 and not lbfgs:
                params[1].grad = None
            return loss

        if lbfgs:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()


def numbers(params: list) -> list[float]:
    """All elements, real parts first."""
    found = []
    for p in params:
        p = p.detach()
        flat = p.reshape(-1).tolist()
        found += [x for v in flat for x in ((v.real, v.imag) if isinstance(v, complex) else (v,))]
    return found


def trajectory(t: Any, name: str, dtype: str, steps: int = 12) -> list[float]:
    """The parameters after `steps` steps."""
    kind, options = OPTIMIZERS[name]
    params = start(t, dtype)
    train(t, getattr(t.optim, kind)(params, **options), params, range(steps))
    return numbers(params)


# --- schedules: (optimizer options, how to make it)

SCHEDULES: dict[str, Any] = {
    "LambdaLR": lambda L, o: L.LambdaLR(o, lambda e: 0.9**e),
    "LambdaLR list": lambda L, o: L.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1.0 / (e + 1)]),
    "MultiplicativeLR": lambda L, o: L.MultiplicativeLR(o, lambda e: 0.95 if e % 2 else 0.8),
    "StepLR": lambda L, o: L.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda L, o: L.MultiStepLR(o, [2, 5, 5, 11], 0.3),
    "ConstantLR": lambda L, o: L.ConstantLR(o, 0.4, 4),
    "LinearLR": lambda L, o: L.LinearLR(o, 0.25, 0.9, 6),
    "ExponentialLR": lambda L, o: L.ExponentialLR(o, 0.85),
    "PolynomialLR": lambda L, o: L.PolynomialLR(o, 8, 2.0),
    "CosineAnnealingLR": lambda L, o: L.CosineAnnealingLR(o, 5, 1e-3),
    "CosineAnnealingWarmRestarts": lambda L, o: L.CosineAnnealingWarmRestarts(o, 3, 2, 1e-3),
    "CosineAnnealingWarmRestarts 1": lambda L, o: L.CosineAnnealingWarmRestarts(o, 4),
    "CyclicLR": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 3, 4),
    "CyclicLR triangular2": lambda L, o: L.CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 2, mode="triangular2"),
    "CyclicLR exp_range": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.9),
    "CyclicLR scale_fn": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 3, scale_fn=lambda x: 1 / x, cycle_momentum=False),
    "OneCycleLR": lambda L, o: L.OneCycleLR(o, 0.3, 20),
    "OneCycleLR linear": lambda L, o: L.OneCycleLR(
        o, [0.3, 0.1], epochs=5, steps_per_epoch=4, anneal_strategy="linear", three_phase=True
    ),
    "SequentialLR": lambda L, o: L.SequentialLR(
        o, [L.LinearLR(o, 0.1, 1.0, 4), L.ExponentialLR(o, 0.9), L.CosineAnnealingLR(o, 6)], [4, 9]
    ),
    "ChainedScheduler": lambda L, o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 3), L.ExponentialLR(o, 0.9)]),
}
METRICS = [5, 4, 4, 4, 4.0001, 3, 3, 3, 3, 3, 3, 2.9999, 2.9999, 1, 1, 1, 1, 1, 1, 1]
PLATEAUS: dict[str, dict[str, Any]] = {
    "min": {"patience": 2, "factor": 0.5},
    "max": {"mode": "max", "patience": 3, "cooldown": 2},
    "abs": {"threshold_mode": "abs", "threshold": 0.5, "patience": 1, "min_lr": [0.01, 0.04]},
    "max abs": {"mode": "max", "threshold_mode": "abs", "threshold": 0.5, "patience": 1, "eps": 0.02},
}


def two_groups(t: Any, kind: str = "SGD") -> Any:
    """An optimizer with two groups at rates 0.1 and 0.2."""
    a, b = (t.zeros(2, requires_grad=True) for _ in range(2))
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(t.optim, kind)([{"params": [a]}, {"params": [b], "lr": 0.2}], lr=0.1, **options)


def schedule(t: Any, name: str, kind: str = "SGD", steps: int = 18) -> list:
    """Rates (and momentum) of both groups before every step."""
    optimizer = two_groups(t, kind)
    scheduler = SCHEDULES[name](t.optim.lr_scheduler, optimizer)
    found = []
    for _ in range(steps):
        found.append(rates(optimizer))
        optimizer.step()
        scheduler.step()
    found.append(list(scheduler.get_last_lr()))
    return found


def rates(optimizer: Any) -> list:
    """Rate and momentum of every group."""
    return [
        x
        for g in optimizer.param_groups
        for x in (float(g["lr"]), float(g["momentum"] if "momentum" in g else g["betas"][0]))
    ]


def plateau(t: Any, name: str) -> list:
    """Rates of both groups after every metric."""
    optimizer = two_groups(t)
    scheduler = t.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **PLATEAUS[name])
    found = []
    for metric in METRICS:
        optimizer.step()
        scheduler.step(metric)
        found.append(list(scheduler.get_last_lr()))
    return found


def closed(t: Any, name: str) -> list:
    """Rates at given epochs, by the closed form."""
    optimizer = two_groups(t)
    scheduler = SCHEDULES[name](t.optim.lr_scheduler, optimizer)
    optimizer.step()
    found = []
    for epoch in (1, 7, 3, 0, 12):
        scheduler.step(epoch)
        found.append(list(scheduler.get_last_lr()))
    return found


CLOSED = [
    "StepLR",
    "MultiStepLR",
    "ConstantLR",
    "LinearLR",
    "ExponentialLR",
    "PolynomialLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CosineAnnealingWarmRestarts 1",
    "LambdaLR",
]


def expected(t: Any) -> dict[str, Any]:
    """Everything, from torch."""
    import warnings

    warnings.simplefilter("ignore")
    found: dict[str, Any] = {
        dtype: {name: trajectory(t, name, dtype) for name in OPTIMIZERS} for dtype in ("float64", "float32")
    }
    found["complex128"] = {name: trajectory(t, name, "complex128") for name in OPTIMIZERS if "LBFGS" not in name}
    found["schedules"] = {name: schedule(t, name) for name in SCHEDULES}
    found["schedules Adam"] = {name: schedule(t, name, "Adam") for name in ("CyclicLR", "OneCycleLR")}
    found["plateaus"] = {name: plateau(t, name) for name in PLATEAUS}
    found["closed"] = {name: closed(t, name) for name in CLOSED}
    return found


STATES = [
    next(n for n, (k, _) in OPTIMIZERS.items() if k == kind and more in n)
    for kind, more in (
        ("SGD", "momentum=0.9"),
        ("Adam", "amsgrad"),
        ("AdamW", ""),
        ("NAdam", ""),
        ("RAdam", ""),
        ("Adamax", ""),
        ("Adagrad", "lr_decay"),
        ("Adadelta", ""),
        ("ASGD", "t0"),
        ("RMSprop", "centered=True,momentum"),
        ("Rprop", ""),
        ("LBFGS", "strong"),
    )
]


def halfway(t: Any, name: str) -> dict[str, Any]:
    """The state dict and parameters after 5 steps, and the parameters after 12."""
    kind, options = OPTIMIZERS[name]
    params = start(t, "float64")
    optimizer = getattr(t.optim, kind)(params, **options)
    train(t, optimizer, params, range(5))
    state = copy.deepcopy(optimizer.state_dict())
    half = [p.detach().clone() for p in params]
    train(t, optimizer, params, range(5, 12))
    return {"state": state, "params": half, "after": [p.detach() for p in params]}


def _main() -> None:
    import torch

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: short(v) for k, v in value.items()}
        if isinstance(value, list):
            return [short(v) for v in value]
        return float(f"{value:.13g}")

    folder = Path(sys.argv[1])
    sections = []
    for section, entries in short(expected(torch)).items():
        lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in entries.items()]
        sections.append(f"{json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n}")
    (folder / "expected.json").write_text("{\n" + ",\n".join(sections) + "\n}\n")
    torch.save({name: halfway(torch, name) for name in STATES}, folder / "torch_states.pth")


if __name__ == "__main__":
    _main()
