"""Small products are computed by one thread."""

from __future__ import annotations

import os

import numpy as np
import pytest

from engine.backends.cpu import dot


class Library:
    """A BLAS that notes how many threads it was told to take."""

    def __init__(self, counts: list[int], now: int) -> None:
        self.counts, self.num_threads = counts, now

    def set_num_threads(self, count: int) -> None:
        self.counts.append(count)


def test_small_products_are_computed_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    monkeypatch.setattr(dot, "_blas", lambda: [Library(counts, 3)])
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


def test_several_threads_leave_as_many_as_the_first_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a user's limit holds, which is not what the engine's own threads are."""
    import threadpoolctl

    a, b = np.ones((4, 100), "f4"), np.ones((100, 50), "f4")
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        dot.dot(a, b)
        assert {library.num_threads for library in dot._blas()} == {1}
    counts: list[int] = []
    library = Library(counts, 4)
    monkeypatch.setattr(dot, "_blas", lambda: [library])
    with dot._single:
        library.num_threads = 1
        dot.dot(a, b)
        assert counts == [1]
    assert counts == [1, 4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_meanwhile_has_all_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    single = dot._Single()
    monkeypatch.setattr(dot, "_blas", lambda: [Library(counts, 4)])
    single.forked()
    assert counts == []
    single.__enter__()
    single.forked()
    assert counts == [1, 4] and single._within == 0
