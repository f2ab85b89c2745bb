"""Layers of LSTM over few sequences as one kernel: against numpy's steps, and what is left to them."""

from __future__ import annotations

import numpy as np
import pytest

import engine
import engine.ops.lazy  # every op
from engine.backends.cpu import threads
from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops.generated import launch, variant_of

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "count,units,steps,members",
    [(1, 64, 50, 1), (3, 20, 7, 2), (1, 4, 1, 2), (7, 12, 9, 1), (5, 8, 3, 2), (7, 8, 8, 3), (32, 8, 2, 2)],
)
def test_forward_and_backward(
    count: int, units: int, steps: int, members: int, reverse: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """members: threads, among which the sequences are shared."""
    monkeypatch.setattr(threads, "get_num_threads", lambda: members)
    r = np.random.default_rng(units)
    draw = lambda *shape: r.standard_normal(shape).astype(dtype)
    rows, sizes = count * steps, (count,) * steps
    given = draw(rows, 4 * units), draw(count, units), draw(count, units), draw(4 * units, units) / units
    more = None, sizes, reverse
    forward, backward = OPS["lstm_layer"], OPS["lstm_layer_backward"]
    want = forward.kernel(np, *given, *more)
    for a, b in zip(variant_of(forward)(np, *given, *more), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6 if dtype == "float32" else 1e-13)
    both = draw(rows, 2 * units)  # of two directions
    grads = both[:, units:] if reverse else both[:, :units], draw(count, units), draw(count, units)
    given = *grads, *given, want[0], *want[3:]
    found, want = variant_of(backward)(np, *given, *more), backward.kernel(np, *given, *more)
    for a, b in zip(found, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype == dtype
        np.testing.assert_allclose(
            a, b, rtol=0, atol=(2e-5 if dtype == "float32" else 1e-13) * (1 + abs(b).max(initial=0))
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count,units,steps", [(1, 64, 50), (3, 20, 7), (7, 8, 1)])
def test_inference(count: int, units: int, steps: int, reverse: bool, dtype: str) -> None:
    """One call computes all steps, with and without a bias; the states that it was given stay as they were."""
    r = np.random.default_rng(units)
    draw = lambda *shape: r.standard_normal(shape).astype(dtype)
    matrices = draw(4 * units, 5), draw(4 * units, units) / units
    given = draw(count * steps, 5), draw(count, units), draw(count, units), *matrices
    op, states = OPS["lstm_inference"], [a.copy() for a in given[1:3]]
    for bias in (draw(4 * units), None):
        want = op.kernel(np, *given, bias, steps, reverse)
        for a, b in zip(variant_of(op)(np, *given, bias, steps, reverse), want, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype == dtype
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 if dtype == "float32" else 1e-13)
    for a, b in zip(given[1:3], states, strict=True):
        np.testing.assert_array_equal(a, b)


def test_inference_that_is_left() -> None:
    layer = variant_of(OPS["lstm_inference"])
    draw = lambda *shape: np.ones(shape, "float32")
    assert layer(np, draw(0, 5), draw(2, 8), draw(2, 8), draw(32, 5), draw(32, 8)) is NotImplemented  # no step
    assert layer(np, draw(2, 5), draw(2, 6), draw(2, 6), draw(24, 5), draw(24, 6), None, 1) is NotImplemented
    assert layer(np, draw(33, 5), draw(33, 8), draw(33, 8), draw(32, 5), draw(32, 8), None, 1) is NotImplemented


def test_what_is_left() -> None:
    layer = variant_of(OPS["lstm_layer"])
    draw = lambda *shape: np.ones(shape, "float32")
    state = draw(2, 8), draw(2, 8), draw(32, 8)
    assert layer(np, draw(4, 32), *state, None, (2, 2), False) is not NotImplemented
    assert layer(np, draw(3, 32), *state, None, (2, 1), False) is NotImplemented  # of two lengths
    assert layer(np, draw(4, 32), *state[:2], draw(32, 3), draw(3, 8), (2, 2), False) is NotImplemented  # projected
    assert layer(np, draw(4, 24), draw(2, 6), draw(2, 6), draw(24, 6), None, (2, 2), False) is NotImplemented
    many = draw(33, 8), draw(33, 8), draw(32, 8)
    assert layer(np, draw(33, 32), *many, None, (33,), False) is NotImplemented


def test_modules_take_them() -> None:
    """A training step of a small module has the gradients that it has without them."""
    module, x = engine.nn.LSTM(12, 32, batch_first=True, bidirectional=True), engine.randn(2, 40, 12)

    def grads() -> list[np.ndarray]:
        module.zero_grad()
        module(x)[0].square().sum().backward()
        return [p.grad.numpy().copy() for p in module.parameters()]

    got = grads()
    launch.trials.trusted = False
    for a, b in zip(got, grads(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * float(abs(b).max() + 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count,size", [(1, 1), (1, 40), (5, 21)])
@pytest.mark.parametrize("name,gates", [("lstm_gates", 4), ("gru_gates", 3)])
def test_single_steps(name: str, gates: int, count: int, size: int, dtype: str) -> None:
    r = np.random.default_rng(size)
    draw = lambda parts: r.standard_normal((count, parts * size)).astype(dtype)
    given = [draw(gates), draw(gates), draw(1)]
    if size > 1:
        given[0][0, :4] = np.inf, -np.inf, np.nan, 300
    op, backward = OPS[name], OPS[f"{name}_backward"]
    near = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-13}
    with np.errstate(all="ignore"):
        want = op.kernel(np, *given)
        grads = [draw(1) for _ in want[:-1]]
        of = backward.kernel(np, *grads, *given, want[-1])
    found = variant_of(op, small=True)(np, *given), variant_of(backward, small=True)(np, *grads, *given, want[-1])
    for a, b in zip([*found[0], *found[1]], [*want, *of], strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype == dtype
        np.testing.assert_allclose(a, b, **near)


def test_single_steps_that_are_left() -> None:
    draw = lambda *shape: np.ones(shape, "float32")
    step = variant_of(OPS["lstm_gates"], small=True)
    assert step(np, draw(2, 32)[:, ::2], draw(2, 16), draw(2, 4)) is NotImplemented
    assert step(np, draw(2, 16), draw(2, 16), draw(2, 4).astype("float64")) is NotImplemented
    assert step(np, draw(0, 16), draw(0, 16), draw(0, 4)) is NotImplemented
