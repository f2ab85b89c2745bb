"""What is kept with a converted weight, and how much."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu import keeping
from engine.layouts import ChannelsLast


def test_a_weight_keeps_what_was_made_of_it_for_one_use() -> None:
    w = np.zeros((4, 4), "float32").view(ChannelsLast)
    filled: list[int] = []

    def fill(buffer: np.ndarray) -> str:
        filled.append(buffer.nbytes)
        return "its address"

    before = keeping._Kept.nbytes
    first = keeping.kept(w, ("a use",), 100, fill)
    assert first.address == "its address" and first.buffer.ctypes.data % 64 == 0
    assert keeping.kept(w, ("a use",), 100, fill) is first and filled == [100]
    assert keeping._Kept.nbytes == before + 100
    assert keeping.kept(w, ("another",), 60, fill) is not first and filled == [100, 60]
    del first
    assert keeping._Kept.nbytes == before + 60
    w.packed = None
    assert keeping._Kept.nbytes == before


def test_not_more_than_the_bound_and_of_no_other_array(monkeypatch: pytest.MonkeyPatch) -> None:
    w = np.zeros((4, 4), "float32")
    assert keeping.kept(w, 0, 100, len) is None
    monkeypatch.setattr(keeping, "_KEPT", keeping._Kept.nbytes + 99)
    assert keeping.kept(w.view(ChannelsLast), 0, 100, len) is None
    assert keeping.room(0, 100) is None and keeping.room(0, 99) is not None
