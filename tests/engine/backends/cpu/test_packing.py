"""What is cached with a converted weight, and how much."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu import packing
from engine.core.layouts import ChannelsLast


def test_a_weight_keeps_what_was_made_of_it_for_one_use() -> None:
    w = np.zeros((4, 4), "float32").view(ChannelsLast)
    filled: list[int] = []

    def fill(buffer: np.ndarray) -> str:
        filled.append(buffer.nbytes)
        return "its address"

    before = packing.PackedWeight.nbytes
    first = packing.packed_with(w, ("a use",), 100, fill)
    assert first.address == "its address" and first.buffer.ctypes.data % 64 == 0
    assert packing.packed_with(w, ("a use",), 100, fill) is first and filled == [100]
    assert packing.PackedWeight.nbytes == before + 100
    assert packing.packed_with(w, ("another",), 60, fill) is not first and filled == [100, 60]
    del first
    assert packing.PackedWeight.nbytes == before + 60
    w.packed = None
    assert packing.PackedWeight.nbytes == before


def test_not_more_than_the_bound_and_of_no_other_array(monkeypatch: pytest.MonkeyPatch) -> None:
    w = np.zeros((4, 4), "float32")
    assert packing.packed_with(w, 0, 100, len) is None
    monkeypatch.setattr(packing, "_MOST", packing.PackedWeight.nbytes + 99)
    assert packing.packed_with(w.view(ChannelsLast), 0, 100, len) is None
    assert packing.reserve(0, 100) is None and packing.reserve(0, 99) is not None


def test_an_array_is_made_once_for_a_use_of_a_converted_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    w, made = np.zeros((4, 4), "float32"), []

    def make() -> np.ndarray:
        made.append(1)
        return np.ones(8)

    for weight, calls in ((w, 2), (w.view(ChannelsLast), 1)):
        made.clear()
        for _ in range(2):
            assert packing.packed_array(weight, "a use", make).sum() == 8
        assert len(made) == calls
    assert packing.packed_array(weight, "another", make) is weight.packed.buffer
    monkeypatch.setattr(packing, "_MOST", 0)
    packing.packed_array(weight, "a use", make)
    assert weight.packed is None
