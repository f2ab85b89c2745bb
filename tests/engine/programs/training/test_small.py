"""Plans of steps whose tensors are all small: on arrays, the same numbers, gradients and versions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import engine
from engine.kernels import direct, processor
from engine.nn import functional as F
from engine.ops.generated import launch
from engine.programs.training import Recorded, program, small


@pytest.fixture(autouse=True)
def static(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call takes a turn op by op."""
    monkeypatch.setenv("ENGINE_ROUTES", "static")


class Step:
    """A step on a few leaves, op by op or as a program; `used` counts the calls of programs on Tensors."""

    def __init__(self, how: str = "", size: int = 8) -> None:
        draw = np.random.default_rng(1)
        self.x = engine.tensor(draw.standard_normal((5, size), "float32"))
        self.leaves = [
            engine.tensor(draw.standard_normal(s, "float32"), requires_grad=True)
            for s in ((size, size), (size,), (5, size), (3, size), (3,))
        ]
        self.how = how
        self.optimizer = engine.optim.SGD(self.leaves, lr=0.01, momentum=0.9)

    def loss(self) -> Any:
        w, b, c, v, d = self.leaves
        y = engine.relu(engine.tanh(self.x @ w + b) * c * 0.5)
        return (F.linear(y, v, d).sigmoid() * 2).sum() if self.how != "view" else (w.t() @ y.t()).exp().sum()

    def __call__(self) -> Any:
        if self.how == "train":
            self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        if self.how == "train":
            self.optimizer.step()
        return loss

    def state(self) -> list[Any]:
        graded = [p for p in self.leaves if p.grad is not None]
        return [p.detach().numpy().copy() for p in self.leaves] + [p.grad.numpy().copy() for p in graded]


def alike(first: Step, second: Step) -> None:
    for a, b in zip(first.state(), second.state(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.fixture
def on_tensors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each call of a program on Tensors."""
    calls: list[int] = []

    def compiled(*args: Any) -> Callable[..., Any]:
        made = program.compiled(*args)
        return lambda box: calls.append(1) or made(box)  # type: ignore[func-returns-value]

    monkeypatch.setattr("engine.programs.training.replay.compiled", compiled)
    return calls


@pytest.mark.parametrize("how", ["", "train", "view"])
def test_a_small_step_runs_on_arrays(how: str, on_tensors: list[int]) -> None:
    plain, made = Step(how), Step(how)
    run = Recorded(made.__call__)
    for turn in range(40):  # kernels are compiled meanwhile
        want, got = plain(), run()
        assert got.requires_grad and got.shape == () and got.grad_fn is not None
        np.testing.assert_allclose(float(got.detach()), float(want.detach()), rtol=1e-5)
        alike(made, plain)
        assert [p.grad is not None and p.grad._version for p in made.leaves] == [
            p.grad is not None and p.grad._version for p in plain.leaves
        ], turn
    assert not isinstance(run.plans[0], str) and not on_tensors
    grads = [p.grad.numpy() for p in made.leaves if p.grad is not None]
    others = [p.detach().numpy() for p in made.leaves]
    assert not any(np.shares_memory(a, b) for n, a in enumerate(grads) for b in (*grads[:n], *others))


def test_gradients_are_added_to_where_they_are(on_tensors: list[int]) -> None:
    made = Step()
    run = Recorded(made.__call__)
    for _ in range(3):
        run()
    held = [p.grad for p in made.leaves]
    run()
    assert all(p.grad is h for p, h in zip(made.leaves, held)) and not on_tensors


def test_what_is_not_as_it_was_runs_on_tensors(on_tensors: list[int]) -> None:
    found = []
    for compiled in (False, True):
        x, c = engine.arange(6.0).reshape(2, 3) / 7, engine.ones(2, 3, requires_grad=True)
        step = lambda x=x, c=c: (engine.tanh(x + c) * c).sum().backward()
        run = Recorded(step) if compiled else step
        for turn in range(6):
            if turn == 4:
                c.data, c.grad = c.data.double(), None
            run()
            found.append((c.grad.dtype, c.grad.numpy().copy()))
    for (kind, a), (other, b) in zip(found[:6], found[6:], strict=True):
        assert kind is other
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(on_tensors) == 2


def test_warnings_that_are_errors_are_none_of_these(on_tensors: list[int]) -> None:
    plain, made = Step(), Step()
    run = Recorded(made.__call__)
    for _ in range(3):
        run()
        plain()
    for step in (plain, made):
        step.leaves[0].data.fill_(3e38)
        step.x.abs_()  # of both signs whether a sum is nan depends on its order
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            plain()
            run()
    alike(made, plain)
    assert not on_tensors


def test_which_steps_are_small() -> None:
    def plan(code: Callable[[Any], Any], leaf: Any) -> Any:
        run = Recorded(lambda: code(leaf).sum().backward())
        for _ in range(3):
            run()
        return run.plans[0].graph

    leaf = lambda *shape: engine.randn(*shape, requires_grad=True)
    assert small.is_small(plan(lambda x: engine.tanh(x) * x, leaf(8, 8)))
    assert not small.is_small(plan(lambda x: engine.tanh(x) * x, leaf(80, 80)))
    assert not small.is_small(plan(lambda x: engine.tanh(x.double()) * 2, leaf(8, 8)))
    assert not small.is_small(plan(lambda x: F.dropout(engine.tanh(x)), leaf(8, 8)))
    assert not small.is_small(plan(lambda x: engine.cumsum(engine.tanh(x), 0), leaf(8, 8)))


@pytest.mark.skipif(
    not processor.available() or not direct.readable(), reason=f"generated code is {processor.describe()}"
)
@pytest.mark.parametrize("trusted", [True, False])
def test_a_repeated_step_is_one_direct_call(trusted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.trials, "trusted", trusted)
    monkeypatch.setattr(launch, "slower", lambda *_, **__: False)
    draw = np.random.default_rng(0)
    x, *given = (draw.standard_normal(shape, "float32") for shape in ((5, 8), (8, 6), (6,), (5, 6)))
    calls: list[int] = []
    computing = small._direct

    def counted(compute: Any, launches: Any) -> Any:
        made = computing(compute, launches)
        return lambda *arrays: calls.append(1) or made(*arrays)

    monkeypatch.setattr(small, "_direct", counted)
    first = [engine.tensor(a, requires_grad=True) for a in given]
    second = [engine.tensor(a, requires_grad=True) for a in given]
    data = engine.tensor(x)

    def step(w: Any, b: Any, c: Any) -> None:
        (engine.tanh(data @ w + b) * c).sum().backward()

    run = Recorded(lambda: step(*second))
    for turn in range(direct.EVERY * 20):
        for leaf in (*first, *second):
            leaf.grad = None
        step(*first)
        run()
        for p, q in zip(first, second, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-6, err_msg=str(turn))
    assert len(calls) > direct.EVERY * 19
    found = run.plans[0].run.__globals__
    monkeypatch.setitem(found, "compute", None)  # not called any more
    run()
    assert second[0].grad is not None
