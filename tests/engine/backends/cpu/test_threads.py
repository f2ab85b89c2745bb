"""The threads that share the pieces of large operations."""

from __future__ import annotations

import os
import threading
import time

import pytest

import engine
from engine.backends.cpu import threads


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", 3)


def test_every_piece_once_and_by_several_threads(three: None) -> None:
    done: list[int] = []
    names = set()
    together = threading.Barrier(2, timeout=60)

    def work(piece: int) -> None:
        if piece in (0, 1):
            together.wait()  # one thread alone would stand here
        names.add(threading.current_thread().name)
        done.append(piece)

    for _ in range(3):
        done.clear()
        names.clear()
        threads.run(work, list(range(40)))
        assert sorted(done) == list(range(40))
        assert 2 <= len(names) <= 3


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_pieces(three: None, count: int) -> None:
    done: list[int] = []
    threads.run(done.append, list(range(count)))
    assert sorted(done) == list(range(count))


def test_an_error_is_raised_when_nothing_runs_any_more(three: None) -> None:
    running = []

    def work(piece: int) -> None:
        running.append(piece)
        try:
            time.sleep(0.002)
            if piece == 4:
                raise KeyError(piece)
        finally:
            running.remove(piece)

    with pytest.raises(KeyError, match="4"):
        threads.run(work, list(range(30)))
    assert running == []
    threads.run(lambda piece: None, list(range(5)))  # and the next one runs


def test_from_several_threads_at_once(three: None) -> None:
    totals = []

    def user() -> None:
        found: list[int] = []
        for _ in range(20):
            threads.run(found.append, list(range(10)))
        totals.append(sum(found))

    users = [threading.Thread(target=user) for _ in range(4)]
    for u in users:
        u.start()
    for u in users:
        u.join()
    assert totals == [20 * 45] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_fork(three: None) -> None:
    """The parent's threads are not in the child: it starts its own."""
    threads.run(lambda piece: time.sleep(0.001), list(range(9)))
    pid = os.fork()
    if not pid:
        code = 1
        try:
            done: list[int] = []
            threads.run(done.append, list(range(50)))
            code = 0 if sorted(done) == list(range(50)) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    "environment, count",
    [
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OMP_NUM_THREADS": "many"}, None),
        ({}, None),
    ],
)
def test_default(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], count: int | None) -> None:
    monkeypatch.setattr(threads, "_count", None)
    for name in ("ENGINE_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert threads.get_num_threads() == (count or threads._processors())


def test_own_variable_sets_all_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_NUM_THREADS", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(threads, "_count", None)
    asked = []
    monkeypatch.setattr(threads, "set_num_threads", lambda n: (asked.append(n), setattr(threads, "_count", n)))
    assert threads.get_num_threads() == 2 and asked == [2]


def test_set_num_threads() -> None:
    import threadpoolctl

    was = engine.get_num_threads()
    try:
        engine.set_num_threads(1)
        assert engine.get_num_threads() == 1
        pools = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
        assert all(p["num_threads"] == 1 for p in pools)
        with pytest.raises(RuntimeError, match="positive"):
            engine.set_num_threads(0)
        with pytest.raises(TypeError, match="expects an int, but got str"):
            engine.set_num_threads("2")
    finally:
        engine.set_num_threads(was)
