"""Generated cells of LSTM and GRU layers against numpy's steps, and in layers of `nn`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends.cpu.fast import fast
from engine.kernels import processor
from engine.kernels.recurrent import CELLS
from engine.ops.generated import launch
from engine.ops.recurrent import generated as recurrent
from engine.ops.recurrent import numpy as by_numpy

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

small = functools.partial(by_numpy._small, recurrent.SIZE)
NEAR = {"float32": 2e-6, "float64": 1e-14}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of another test."""
    monkeypatch.setattr(recurrent, "_entries", {})
    monkeypatch.setattr(launch.trials, "trusted", True)
    yield


def close(got: Any, want: Any, dtype: str) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype == dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=NEAR[dtype] * max(1.0, float(abs(b).max())))


def lstm(draw: Any, sizes: Any, units: int, reverse: bool, of: Any, cells: Any) -> list[Any]:
    """What forward and backward of a layer give, with each pair of cells."""
    rows, count = sum(sizes), sizes[0]
    x, w = draw(rows, 4 * units), draw(4 * units, units) / units
    h, c, *grads = (draw(count, units) for _ in range(4))
    made = by_numpy.lstm_forward(fast, x, h, c, w, None, sizes, reverse, cell=None)
    given = fast, of, *grads, h, c, w, None, made[0], *made[3:], sizes, reverse
    return [
        (
            *by_numpy.lstm_forward(fast, x, h, c, w, None, sizes, reverse, cell=first),
            *by_numpy.lstm_backward(*given, cell=second)[:4],
        )
        for first, second in cells
    ]


def gru(draw: Any, sizes: Any, units: int, reverse: bool, of: Any, cells: Any) -> list[Any]:
    """As `lstm`; without a gradient of the outputs there is no bias either."""
    rows, count = sum(sizes), sizes[0]
    x, w = draw(rows, 3 * units), draw(3 * units, units) / units
    h, grad, bias = draw(count, units), draw(count, units), None if of is None else draw(3 * units)
    made = by_numpy.gru_forward(fast, x, h, w, bias, sizes, reverse, cell=None)
    given = fast, of, grad, h, w, made[0], *made[2:], sizes, reverse
    return [
        (
            *by_numpy.gru_forward(fast, x, h, w, bias, sizes, reverse, cell=first),
            *by_numpy.gru_backward(*given, cell=second),
        )
        for first, second in cells
    ]


@pytest.mark.parametrize("layer", [lstm, gru])
@pytest.mark.parametrize("dtype", recurrent.TYPES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes, units", [((4, 4, 4), 16), ((5, 3, 3, 1), 7), ((1,), 1), ((2,) * 9, 40)])
def test_layers_are_numpys(sizes: Any, units: int, reverse: bool, dtype: str, layer: Any) -> None:
    """Forward and backward, of batches and of packed sequences; without a gradient of the outputs as well."""
    rng, rows = np.random.default_rng(3), sum(sizes)
    draw = lambda *shape: rng.standard_normal(shape).astype(dtype)
    cells = [
        recurrent.step(f"{layer.__name__}_{end}", np.dtype(dtype), units, rows, small)
        for end in ("cell", "cell_backward")
    ]
    assert all(cells)
    for of in (draw(rows, units), None):
        close(*layer(draw, sizes, units, reverse, of, (cells, (None, None))), dtype)


def test_large_gates_do_not_overflow() -> None:
    """Shares of +-1000: gates are 0 and 1, nothing is nan, and floating-point flags raise nothing."""
    x = np.array([[1000.0, -1000.0, 1000.0, -1000.0]] * 2, np.float32)
    h = c = np.zeros((1, 1), np.float32)
    with np.errstate(all="raise"):
        cell = recurrent.step("lstm_cell", x.dtype, 1, 1, small)
        output, _, last, act, _ = by_numpy.lstm_forward(
            fast, x, h, c, np.zeros((4, 1), np.float32), None, (1, 1), False, cell=cell
        )
    assert act.tolist() == [[1, 0, 1, 0]] * 2 and output.tolist() == [[0], [0]] and last.tolist() == [[1]]


@pytest.mark.parametrize("make", [engine.nn.LSTM, engine.nn.GRU])
def test_modules_take_them(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training steps of `nn.LSTM` and `nn.GRU` over many sequences, whose gradients do not lie in order, equal those
    without."""
    asked: list[str] = []
    plain = recurrent.step
    monkeypatch.setattr(recurrent, "step", lambda name, *given: asked.append(name) or plain(name, *given))
    module, x = make(6, 32, 2, batch_first=True, bidirectional=True), engine.randn(40, 12, 6)

    def grads() -> list[Any]:
        module.zero_grad()
        module(x)[0].transpose(1, 2).expand(2, 40, 64, 12).sum().backward()
        return [p.grad.numpy().copy() for p in module.parameters()]

    got = grads()
    kind = make.__name__.lower()
    assert {f"{kind}_cell", f"{kind}_cell_backward"} == set(asked)
    monkeypatch.setattr(by_numpy, "_available", lambda: False)
    for a, b in zip(got, grads(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6 * float(abs(b).max() + 1))


@pytest.mark.parametrize("name", sorted(CELLS))
def test_a_kernel_that_differs_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a small layer gives is compared before the first use."""
    monkeypatch.setattr(launch.trials, "trusted", False)
    wrong = lambda name, dtype, cell: [a + (cell is None) for a in small(name, dtype, cell)]
    with pytest.warns(RuntimeWarning, match=f"generated kernel of {name} is switched off"):
        assert recurrent.step(name, np.dtype("float32"), 64, 1 << 20, wrong) is None
    assert recurrent.step(name, np.dtype("float32"), 64, 1 << 20, wrong) is None
    monkeypatch.setattr(recurrent, "_entries", {})
    assert recurrent.step(name, np.dtype("float32"), 64, 1 << 20, small)


def test_little_work_waits_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler is not started for a few units; 16-bit states are left to numpy."""
    monkeypatch.setattr(launch.trials, "trusted", False)
    assert recurrent.step("lstm_cell", np.dtype("float32"), 4, 4, small) is None
    assert recurrent.step("lstm_cell", np.dtype("float16"), 1024, 1 << 20, small) is None
