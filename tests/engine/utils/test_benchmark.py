"""Timers of statements: counts, units, tables; never how long something takes."""

from __future__ import annotations

import itertools

import pytest

import engine
from engine.utils.benchmark import Compare, Measurement, TaskSpec, Timer, select_unit


def clock(step: float = 0.5):
    """A clock that goes on by `step` seconds at each look: every block takes that long."""
    ticks = itertools.count()
    return lambda: next(ticks) * step


def test_times_are_those_of_the_clock() -> None:
    ran = []
    timer = Timer("ran.append(1)", globals={"ran": ran}, timer=clock(), label="add", sub_label="one", description="us")
    made = timer.timeit(100)
    assert len(ran) == 102 and made.number_per_run == 100 and made.times == [0.005]
    assert made.median == made.mean == 0.005 and made.iqr == 0 and not made.has_warnings
    assert made.title == "add: one" and made.stmt == "ran.append(1)" and made.num_threads == 1
    assert "5.00 ms\n  1 measurement, 100 runs, 1 thread" in repr(made)


def test_blocks_go_on_until_the_time_is_over() -> None:
    seen = []
    made = Timer("pass", timer=clock()).blocked_autorange(lambda number, took: seen.append(took), min_run_time=2.0)
    assert made.raw_times == seen == [0.5] * 4 and made.number_per_run == 1
    assert len(Timer("pass", timer=clock()).adaptive_autorange(min_run_time=1.0).times) == 4


def test_the_setup_and_threads() -> None:
    before = engine.get_num_threads()
    seen: list = []
    Timer("seen.append((x.sum().item(), torch.get_num_threads()))", "x = torch.ones(3)", globals={"seen": seen}).timeit(
        1
    )
    assert seen[-1] == (3.0, 1) and engine.get_num_threads() == before
    with pytest.raises(ZeroDivisionError):
        Timer("1 / 0").timeit(1)
    assert engine.get_num_threads() == before


def test_a_table() -> None:
    def one(sub: str, description: str, time: float) -> Measurement:
        return Measurement(1, [time], TaskSpec("x", label="mul", sub_label=sub, description=description))

    table = Compare([one("10", "ours", 2e-6), one("20", "ours", 5e-6)])
    table.extend_results([one("10", "theirs", 4e-6)])
    lines = str(table).split("\n")
    assert "mul" in lines[0] and lines[-1] == "Times are in microseconds (us)."
    assert [line.split() for line in lines[2:5]] == [
        ["1", "threads:", "-" * (len(lines[1]) - 11)],
        ["10", "|", "2", "|", "4"],
        ["20", "|", "5", "|"],
    ]
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        table.extend_results([1])


def test_units_and_refusals() -> None:
    assert [select_unit(t) for t in (5e-9, 5e-6, 5e-3, 5.0)] == [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]
    with pytest.raises(NotImplementedError, match="language='python'"):
        Timer("x", language="c++")
