"""Threads of generated code, for processes without OpenMP's."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path

import pytest

from engine.backends.file_cache import Cache
from engine.kernels import compiler, processor, workers

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")
CODE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> workers.Team:
    monkeypatch.setattr(compiler, "cache", Cache(tmp_path))
    found = workers.start()
    if found is None:
        pytest.skip("no such threads on this system")
    found.grow(3)
    return found


def together(made: workers.Team, code: object, count: int) -> None:
    PARALLEL(made.parallel)(ctypes.cast(code, ctypes.c_void_p), None, count, 0)  # type: ignore[arg-type]


def meet(made: workers.Team, count: int) -> set[int]:
    """The threads that were in one call at once: each waits for the others."""
    barrier, who = threading.Barrier(count, timeout=30), set()

    def code(_: object) -> None:
        who.add(threading.get_native_id())
        barrier.wait()

    together(made, CODE(code), count)
    return who


def test_so_many_threads_are_in_a_call_at_once(made: workers.Team) -> None:
    for count in (2, 3, 2, 3):
        who = meet(made, count)
        assert len(who) == count and threading.get_native_id() in who


def test_workers_that_sleep_are_woken(made: workers.Team) -> None:
    for pause in (0.05, 0.0, 0.05):
        time.sleep(pause)
        assert len(meet(made, 3)) == 3


def test_the_call_ends_after_all_that_began(made: workers.Team) -> None:
    ended = []

    def code(_: object) -> None:
        time.sleep(0.01)
        ended.append(threading.get_native_id())

    for _ in range(5):
        ended.clear()
        together(made, CODE(code), 3)
        count = len(ended)
        time.sleep(0.03)
        assert 1 <= count == len(ended) <= 3


def test_a_call_within_another_is_done_by_its_thread_alone(made: workers.Team) -> None:
    found = []

    def inner(_: object) -> None:
        found.append(threading.get_native_id())

    def outer(_: object) -> None:
        if threading.get_native_id() == main:
            together(made, CODE(inner), 3)

    main = threading.get_native_id()
    together(made, CODE(outer), 2)
    assert found == [main]


def test_a_call_for_one_thread_wakes_nobody(made: workers.Team) -> None:
    assert meet(made, 1) == {threading.get_native_id()}
