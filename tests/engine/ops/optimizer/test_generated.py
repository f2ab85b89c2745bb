"""Steps of optimizers as machine code: bit for bit what numpy's passes give."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engine
from engine import optim
from engine.kernels import cpu, processor
from engine.ops.generated import launch
from engine.ops.optimizer import generated as optimizer
from engine.optim import _update

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")
MAKERS: dict[str, Callable[[Any], Any]] = {
    "Adam": lambda p: optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: optim.AdamW(p, maximize=True),
    "SGD": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: optim.RMSprop(p, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p),
    "NAdam": lambda p: optim.NAdam(p),
    "Rprop": lambda p: optim.Rprop(p),
    "RAdam": lambda p: optim.RAdam(p, 0.02),
}


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer, "_programs", {})
    monkeypatch.setattr(optimizer, "_count", {})
    monkeypatch.setattr(launch, "PAYS", 1)
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setenv("ENGINE_ROUTES", "static")


def trained(make: Callable[[Any], Any], dtype: Any) -> list[np.ndarray]:
    engine.manual_seed(0)
    parameters = [engine.randn(s).to(dtype).requires_grad_() for s in ((30, 70), (70,), (0,), (70_000,))]
    made = make(parameters)
    for _ in range(8):  # RAdam adapts from its sixth
        for p in parameters:
            p.grad = engine.randn(p.shape).to(dtype)
        made.step()
    return [p.detach().double().numpy() for p in parameters]


@pytest.mark.parametrize("type", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_the_same(name: str, type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    got = trained(MAKERS[name], getattr(engine, type))
    assert any(entry.proven for known in optimizer._programs.values() for _, entry in known)
    monkeypatch.setattr(_update, "generated", lambda: False)
    for a, b in zip(trained(MAKERS[name], getattr(engine, type)), got):
        np.testing.assert_allclose(b, a, 1e-6 if type != "bfloat16" else 1e-2, 1e-7)


def test_an_update_that_differs_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain route has the say, from the first step on."""
    made = cpu.build

    def planted(kernel: Any, **options: Any) -> Any:
        for s in kernel.body:
            if getattr(s, "op", "") == "mul":
                s.op = "add"
                break
        return made(kernel, **options)

    monkeypatch.setattr(_update, "generated", lambda: False)
    want = trained(MAKERS["SGD"], engine.float32)
    monkeypatch.setattr(_update, "generated", lambda: True)
    monkeypatch.setattr(cpu, "build", planted)
    monkeypatch.setattr(launch, "_warned", set())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = trained(MAKERS["SGD"], engine.float32)
    assert any("the generated kernel of an optimizer's step is switched off" in str(w.message) for w in seen)
    for a, b in zip(want, got):
        np.testing.assert_array_equal(a, b)


def test_a_parameter_given_twice_is_updated_twice() -> None:
    p = engine.ones(300, requires_grad=True)
    p.grad = engine.ones(300)
    jobs = [([p._array, p.grad._array], (0.5,))] * 2

    def update(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any) -> None:
        xp.multiply(g, numbers[0], out=scratch[0])
        xp.subtract(p, scratch[0], out=p)

    _update.run(update, jobs, 1)
    np.testing.assert_array_equal(p.detach().numpy(), np.zeros(300))
