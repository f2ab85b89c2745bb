"""The system's libgomp: where it is, and how long its threads wait."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest

from engine.backends.cpu import openmp


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
