"""Dropout's numbers from generated code: numpy's bits."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.kernels import processor
from engine.ops.generated import launch
from engine.ops.random import draw
from engine.ops.random import generated as random

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.mark.parametrize("count", [random.FEW, 5001, 140_003])
@pytest.mark.parametrize("type", ["float32", "float64", "bfloat16"])
def test_bits_and_the_stream_after_them(type: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PAYS", 1)
    monkeypatch.setattr(random, "_entries", {})
    x = engine.ones(count, dtype=getattr(engine, type))
    found = []
    for kernels in (random.KERNELS, {"kept": lambda *a: NotImplemented, "uniform": lambda *a: NotImplemented}):
        monkeypatch.setitem(draw.kernels, "cpu", kernels)
        engine.manual_seed(5)
        for _ in range(3):
            made = engine.nn.functional.dropout(x, 0.3)
            found.append((made.double().numpy().tobytes(), engine.rand(3).tolist()))
    assert found[:3] == found[3:]
    assert all(entry.proven or processor.always() for entry in random._entries.values()) and random._entries


def test_few_numbers_are_left_to_numpy() -> None:
    generator = engine.Generator()
    assert random.kept(np, generator, (random.FEW - 1,), 0.5, np.dtype("f4")) is NotImplemented
