"""Single steps of LSTM and GRU as one op each: against small ops, states that are written to, vmap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.ops.recurrent.cells import fits, gru_gates, lstm_gates
from engine.ops.recurrent.twins import gru_step_of, lstm_step_of

STEPS = [(lstm_gates, lstm_step_of, 4), (gru_gates, gru_step_of, 3)]


def operands(gates: int, count: int = 3, size: int = 2) -> list[Any]:
    r = np.random.default_rng(gates)
    draw = lambda parts: engine.tensor(r.standard_normal((count, parts * size))).requires_grad_()
    return [draw(gates), draw(gates), draw(1)]


def states(found: Any) -> tuple[Any, ...]:
    return found[:-1] if isinstance(found, tuple) and len(found) > 1 and hasattr(found, "saved") else found


@pytest.mark.parametrize("step,twin,gates", STEPS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_values_and_two_gradients(step: Any, twin: Any, gates: int, count: int) -> None:
    given, found = operands(gates, count), []
    for function in (step, twin):
        made = states(function(*given))
        made = made if isinstance(made, tuple) else (made,)
        once = engine.autograd.grad(sum((a * a.cos()).sum() for a in made), given, create_graph=True)
        twice = engine.autograd.grad(sum((g * g).sum() for g in once), given)
        found.append([*made, *once, *twice])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("step,twin,gates", STEPS)
def test_a_gradient_of_one_state_only(step: Any, twin: Any, gates: int) -> None:
    given = operands(gates)
    last = [function(*given) for function in (step, twin)]
    last = [f[-2] if hasattr(f, "saved") else f[-1] if isinstance(f, tuple) else f for f in last]
    for a, b in zip(*[engine.autograd.grad(f.sum(), given, allow_unused=True) for f in last], strict=True):
        b = engine.zeros_like(a) if b is None else b
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell"])
def test_states_may_be_written_to(cell: str) -> None:
    """As in PyTorch, whose gradient reads none of the new states."""
    module, x = getattr(engine.nn, cell)(3, 2), engine.randn(2, 3)
    wanted = None
    for write in (False, True):
        module.zero_grad()
        found = module(x)
        found = found if isinstance(found, tuple) else (found,)
        total = sum(a.sum() for a in found)
        if write:
            with engine.no_grad():
                for a in found:
                    a.zero_()
        total.backward()
        grads = [p.grad.numpy() for p in module.parameters()]
        wanted = wanted or grads
        for a, b in zip(grads, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell"])
def test_vmap_computes_all_slices_at_once(cell: str) -> None:
    module, x = getattr(engine.nn, cell)(3, 2), engine.randn(4, 5, 3)
    found, want = engine.func.vmap(module)(x), module(x.reshape(20, 3))
    for a, b in zip([found] if cell == "GRUCell" else found, [want] if cell == "GRUCell" else want, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().reshape(4, 5, 2).numpy(), atol=1e-6)


def test_halves_are_rounded_after_every_op() -> None:
    half, single = engine.ones(2, 2, dtype=engine.float16), engine.ones(2, 2)
    assert fits(single, single) and not fits(half, half) and not fits(single, half)
    assert engine.nn.LSTMCell(2, 2).half()(half)[0].dtype is engine.float16
