"""Programs: stages in turn, jobs shared by threads, arguments read anew in each call."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu import threads
from engine.kernels import compiler, processor, program, team
from engine.kernels.llvm_text import Vectors
from engine.kernels.program import Program

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(params=[1, 3])
def several(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """One thread, or three, whatever this machine has."""
    monkeypatch.setattr(threads, "get_num_threads", lambda: request.param)
    return int(request.param)


def summed() -> Any:
    """out[i] += x[i] + x[n - 1 - i] for begin <= i < end: right only if all of x was made before."""
    w = Vectors(("x", "out", "n"), 1)
    x, out = w.pointer("x"), w.pointer("out")

    def one(i: str, _: list[str]) -> list[str]:
        other = w.minus(w.minus(w.args["n"], 1), i)
        w.store(w.add(w.vector(out, i), w.add(w.vector(x, i), w.vector(x, other))), out, i)
        return []

    w.loop("%begin", "%end", 1, one)
    found = processor.target()
    assert found is not None
    return compiler.linked(w.finished("KERNEL", found.attributes))


def given(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    return np.array([x.ctypes.data, out.ctypes.data, x.size], np.int64)


def jobs(args: np.ndarray, count: int, pieces: int) -> list[Any]:
    cuts = [count * n // pieces for n in range(pieces + 1)]
    return [[(summed, args, a, b)] for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("pieces", [1, 2, 7, 64])
def test_a_stage_begins_when_all_of_the_one_before_is_done(pieces: int, several: int) -> None:
    size = 4096
    arrays = [np.random.default_rng(0).standard_normal(size).astype("f4"), *np.zeros((20, size), "f4")]
    run = Program([[jobs(given(x, out), size, pieces)] for x, out in itertools.pairwise(arrays)], several, arrays)
    want = arrays[0]
    for _ in arrays[1:]:
        want = want + want[::-1]
    for _ in range(30):
        for out in arrays[1:]:
            out[...] = 0
        run()
        np.testing.assert_array_equal(arrays[-1], want)  # each element was added to once


def test_arguments_may_change_between_calls(several: int) -> None:
    x, one, two = np.arange(64, dtype="f4"), np.zeros(64, "f4"), np.zeros(64, "f4")
    args = given(x, one)
    run = Program([[jobs(args, 64, 4)]], several)
    run()
    args[1] = two.ctypes.data
    run()
    np.testing.assert_array_equal(one, np.full(64, 63, "f4"))
    np.testing.assert_array_equal(two, one)


def test_steps_of_a_job_run_in_turn_in_memory_of_their_thread(several: int) -> None:
    x, out = np.arange(1000, dtype="f4"), np.zeros(1000, "f4")
    rooms = [np.zeros(1000, "f4") for _ in range(several)]
    tables = []
    for room in rooms:
        first, second = given(x, room), given(room, out)
        # a job writes places n and 999 - n of the room, and reads both
        tables.append(
            [
                [(summed, first, n, n + 1), (summed, first, 999 - n, 1000 - n), (summed, second, n, n + 1)]
                for n in range(500)
            ]
        )
    Program([tables], several, rooms)()
    np.testing.assert_array_equal(out[:500], np.full(500, 2 * 999, "f4"))
    np.testing.assert_array_equal(sum(rooms), np.full(1000, 999, "f4"))


def test_fewer_threads_than_it_was_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out, asked = np.arange(8, dtype="f4"), np.zeros(8, "f4"), []
    run = Program([[jobs(given(x, out), 8, 8)] for _ in range(3)], 4)
    monkeypatch.setattr(threads, "get_num_threads", lambda: 1)
    every = team.every
    monkeypatch.setattr(team, "every", lambda member, data, count: (asked.append(count), every(member, data, count)))
    run()
    assert asked == [1]
    np.testing.assert_array_equal(out, np.full(8, 21, "f4"))


def test_threads_that_come_when_all_is_done_go_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.arange(8, dtype="f4"), np.zeros(8, "f4")
    run = Program([[jobs(given(x, out), 8, 2)]], 2)
    # one after the other, as where one processor is left
    monkeypatch.setattr(team, "every", lambda member, data, count: [member(data, 0, 0) for _ in range(4)])
    run()
    np.testing.assert_array_equal(out, np.full(8, 7, "f4"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "get_num_threads", lambda: 2)
    x, out = np.arange(8, dtype="f4"), np.zeros(8, "f4")
    run = Program([[jobs(given(x, out), 8, 4)]], 2)
    run()
    child = os.fork()
    if not child:
        code = 1
        try:
            run()
            code = 0 if (out == 14).all() else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_no_member_of_a_program_is_left_without_code(tmp_path: Path) -> None:
    """Code that cannot be made is an error when the program is, not when it runs."""

    def broken() -> Any:
        raise RuntimeError("no such code")

    with pytest.raises(RuntimeError, match="no such code"):
        Program([[[[(broken, np.zeros(1, np.int64), 0, 1)]]]], 1)
    assert program._SPINS & (program._SPINS - 1) == 0  # a mask
