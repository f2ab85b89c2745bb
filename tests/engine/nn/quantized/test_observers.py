"""Observers of ranges: the numbers follow from their definition."""

from __future__ import annotations

import pytest

import engine
from engine.nn.quantized import observers


def test_the_range_of_all_that_was_seen() -> None:
    observer = observers.MinMaxObserver(dtype=engine.quint8)
    observer(engine.tensor([-1.0, 2.0]))
    observer(engine.tensor([0.0, 4.1]))
    scale, zero = observer.calculate_qparams()
    assert float(scale) == pytest.approx(5.1 / 255) and int(zero) == 50
    observer.reset_min_max_vals()
    assert [float(v) for v in observer.calculate_qparams()] == [1.0, 0.0]


def test_symmetric_and_by_channel() -> None:
    weight = engine.tensor([[1.0, -2.55], [0.1275, 0.0]])
    whole = observers.default_weight_observer()
    whole(weight)
    assert [float(v) for v in whole.calculate_qparams()] == pytest.approx([0.02, 0.0])
    each = observers.default_per_channel_weight_observer()
    each(weight)
    assert each.calculate_qparams()[0].tolist() == pytest.approx([0.02, 0.001])
    with pytest.raises(RuntimeError, match="quantized dtypes"):
        observers.MinMaxObserver(dtype=engine.float32)
