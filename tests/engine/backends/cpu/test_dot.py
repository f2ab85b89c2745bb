"""Small products are computed by one thread."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu import dot, threads


def test_small_products_are_computed_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    class Library:
        set_num_threads = staticmethod(counts.append)

    monkeypatch.setattr(dot, "_blas", lambda: [Library])
    monkeypatch.setattr(threads, "_count", 3)
    a, b = np.ones((4, 100), "f4"), np.ones((100, 50), "f4")
    for left in (a, a[0]):
        np.testing.assert_array_equal(dot.dot(left, b), np.full((*left.shape[:-1], 50), 100, "f4"))
    assert counts == [1, 3] * 2
    dot.dot(a[:, :2], b[:2]), dot.dot(a, b[:, 0])  # for one thread anyway
    assert counts == [1, 3] * 2
    with pytest.raises(ValueError):
        dot.dot(a, b[:7])
    assert counts == [1, 3] * 3
    monkeypatch.setattr(dot, "_SMALL", 100)
    dot.dot(a, b)
    assert counts == [1, 3] * 3
