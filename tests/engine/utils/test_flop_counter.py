"""FlopCounterMode: counts of torch 2.13."""

from __future__ import annotations

import pytest

import engine
from engine import nn
from engine.utils.flop_counter import FlopCounterMode, register_flop_formula


def _small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.Flatten(), nn.Linear(8 * 9, 5))


def _by_name(counter: FlopCounterMode) -> dict[str, dict[str, int]]:
    return {
        module: {str(op).rpartition(".")[2]: n for op, n in counts.items()}
        for module, counts in counter.get_flop_counts().items()
    }


def test_products_and_convolutions_are_counted_by_module() -> None:
    with FlopCounterMode(display=False) as counter:
        _small()(engine.randn(2, 3, 8, 8))
    expected = {"convolution": 7776, "addmm": 1440}
    found = _by_name(counter)
    assert found["Global"] == found["Sequential"] == expected
    assert found["Sequential.0"] == {"convolution": 7776} and found["Sequential.2"] == {"addmm": 1440}
    assert counter.get_total_flops() == 9216


def test_the_backward_pass_counts_too() -> None:
    with FlopCounterMode(display=False) as counter:
        _small()(engine.randn(2, 3, 8, 8)).sum().backward()
    assert counter.get_total_flops() == 19872


def test_attention() -> None:
    q, k, v = (engine.randn(2, 4, 5, 6) for _ in range(3))
    with FlopCounterMode(display=False) as counter:
        nn.functional.scaled_dot_product_attention(q, k, v)
    assert counter.get_total_flops() == 4 * 2 * 4 * 5 * 5 * 6


def test_a_transposed_convolution() -> None:
    with FlopCounterMode(display=False) as counter:
        nn.ConvTranspose1d(4, 6, 3)(engine.randn(1, 4, 7))
    assert counter.get_total_flops() == 2 * 7 * 4 * 6 * 3


def test_nothing_is_counted_outside(capsys: pytest.CaptureFixture) -> None:
    with FlopCounterMode() as counter:
        engine.randn(2, 3) @ engine.randn(3, 4)
    engine.randn(2, 3) @ engine.randn(3, 4)
    assert counter.get_total_flops() == 48
    assert "48" in capsys.readouterr().out


def test_formulas_of_others_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="register_flop_formula"):
        register_flop_formula([engine.add])


def test_products_of_batches_are_those_of_all_rows() -> None:
    x, weight = engine.randn(2, 3, 4, requires_grad=True), engine.randn(4, 5, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        (x @ weight).sum().backward()
    assert _by_name(counter)["Global"] == {"mm": 3 * 2 * 2 * 3 * 4 * 5}
    with FlopCounterMode(display=False) as counter:
        x @ engine.randn(2, 4, 5)
    assert _by_name(counter)["Global"] == {"bmm": 2 * 2 * 3 * 4 * 5}


def test_calls_of_an_operator_are_counted_together() -> None:
    q = engine.randn(2, 4, 5, 6)
    with FlopCounterMode(display=False) as counter:
        for _ in range(3):
            nn.functional.scaled_dot_product_attention(q, q, q)
    assert len(counter.get_flop_counts()["Global"]) == 1


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(kind: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    model, x = getattr(nn, kind)(6, 8), engine.randn(5, 2, 6)
    rows, step = 5 * 2, gates * 8 * (6 + 8)
    with FlopCounterMode(display=False) as counter:
        model(x)[0].sum().backward()
    shares = 2 * rows * gates * 8 * 6  # the input has no gradient
    assert counter.get_total_flops() == 3 * 2 * rows * step - shares
    with FlopCounterMode(display=False) as counter, engine.no_grad():
        model(x)
    assert counter.get_total_flops() == 2 * rows * step
