"""The system's libgomp: where it is, and how long its threads wait."""

from __future__ import annotations

import ctypes
import os
import sys

import numpy as np
import pytest

from engine.backends.cpu import openmp, threads


def test_waits_are_short_unless_the_user_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with openmp.short_waits():
        assert os.environ["GOMP_SPINCOUNT"] == "6000"
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    with openmp.short_waits():
        assert "GOMP_SPINCOUNT" not in os.environ


def test_each_of_its_threads_is_called() -> None:
    parallel = openmp.parallel()
    if parallel is None:
        pytest.skip("there is no libgomp.so.1")
    seen: list[int] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def work(data: int) -> None:
        seen.append(data)

    parallel(ctypes.cast(work, ctypes.c_void_p).value, 7, 3, 0)
    assert seen == [7, 7, 7]


def test_none_elsewhere_and_in_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp, "_forked", [True])
    assert openmp.parallel() is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert openmp._found.__wrapped__() is None
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: (_ for _ in ()).throw(OSError("no such file")))
    assert openmp._found.__wrapped__() is None


def test_small_products_are_computed_by_one_thread_once_its_threads_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    class Library:
        set_num_threads = staticmethod(counts.append)

    monkeypatch.setattr(openmp, "_blas", lambda: [Library])
    monkeypatch.setattr(threads, "_count", 3)
    monkeypatch.setattr(openmp, "_used", [])
    a, b = np.ones((4, 100), "f4"), np.ones((100, 50), "f4")
    np.testing.assert_array_equal(openmp.dot(a, b), np.full((4, 50), 100, "f4"))
    assert not counts
    openmp._used.append(True)
    for left in (a, a[0]):
        np.testing.assert_array_equal(openmp.dot(left, b), np.full((*left.shape[:-1], 50), 100, "f4"))
    assert counts == [1, 3] * 2
    openmp.dot(a[:, :2], b[:2]), openmp.dot(a, b[:, 0])  # for one thread anyway
    monkeypatch.setattr(openmp, "_SMALL", 100)
    openmp.dot(a, b)
    assert counts == [1, 3] * 2
    with pytest.raises(ValueError):
        monkeypatch.setattr(openmp, "_SMALL", 1 << 24)
        openmp.dot(a, b[:7])
    assert counts == [1, 3] * 3
