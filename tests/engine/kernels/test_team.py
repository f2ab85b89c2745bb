"""Pieces of a kernel on OpenMP's threads and on our own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu import threads
from engine.backends.file_cache import Cache
from engine.kernels import compiler, cpu, processor, team
from engine.kernels.elementwise import collapsed, recorded
from engine.kernels.form import Kernel, call
from engine.ops.generated import launch

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.onednn,
]
KINDS = {"openmp": team._openmp, "workers": team._workers}


@pytest.fixture(autouse=True, params=KINDS)
def several(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.FixtureRequest]:
    """Three threads of a kind, whatever this machine has, and a cache folder of the test's own."""
    monkeypatch.setattr(compiler, "cache", Cache(tmp_path))
    before = team._state, team.shared.copy()
    team._state = None
    monkeypatch.setattr(threads, "get_num_threads", lambda: 3)
    for name in KINDS:
        monkeypatch.setattr(team, f"_{name}", KINDS[name] if name == request.param else lambda: None)
    try:
        if not team.start():
            pytest.skip(f"there are no threads of {request.param} here")
        yield request
    finally:
        team._state, team.shared[:] = before


def plus(number: float) -> cpu.Built:
    k = Kernel("f", "map")
    x, out = k.array("x", "float32", dense=True), k.array("out", "float32", True, True)
    k.store(out, k.index, k.load(x, k.index) + number)
    return cpu.build(k)


@pytest.mark.parametrize("count", [1, 64, 1000, 1_000_003])
def test_every_piece_is_done_once(count: int) -> None:
    built, x = plus(1.0), np.arange(count, dtype="f4")
    args = built.pack(id(x), id(x))  # in place: a piece done twice shows
    step = max(1, count // 7)
    pieces = [(args, at, min(at + step, count)) for at in range(0, count, step)]
    assert team.run(built.address, pieces)
    np.testing.assert_array_equal(x, np.arange(count, dtype="f4") + 1)


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 64, 1000, 1_000_003])
def test_every_element_of_a_range_is_done_once(count: int, members: int) -> None:
    built, x = plus(1.0), np.arange(count, dtype="f4")
    assert team.split(built.address, built.pack(id(x), id(x)), count, members, 4)
    np.testing.assert_array_equal(x, np.arange(count, dtype="f4") + 1)


def test_pieces_may_have_arguments_of_their_own() -> None:
    built = plus(2.0)
    arrays = [np.full(5000 + n, n, "f4") for n in range(9)]
    assert team.run(built.address, [(built.pack(id(a), id(a)), 0, a.size) for a in arrays])
    assert all((a == n + 2).all() for n, a in enumerate(arrays))


def test_kernels_share_much_work_and_keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    built, asked = plus(1.0), []
    monkeypatch.setattr(team, "split", lambda code, args, count, *pieces: asked.append(pieces) or False)
    for count in (built.alone, built.alone + 1):
        x = np.zeros(count, "f4")
        built([x, x], count)
        assert (x == 1).all()  # without a team, on Python's threads
    assert asked == [(3, cpu.PIECES)]


def test_what_an_element_costs_tells_how_many_are_shared() -> None:
    k = Kernel("f", "map")
    x, out = k.array("x", "float32", dense=True), k.array("out", "float32", True, True)
    k.store(out, k.index, call("exp", k.load(x, k.index)))
    assert cpu.operations(plus(1.0).kernel) == 3 and cpu.operations(k) == 18
    assert plus(1.0).alone == cpu.OPERATIONS // 5 and cpu.build(k).alone == cpu.OPERATIONS // 20


def test_the_ends_of_a_row_are_no_work_beside_it() -> None:
    """A loop over the places that `each` leaves is counted where it is more than what `each` does."""
    made = []
    for more in (0, 1, 9):
        k = Kernel("f", "rows")
        out, n = k.array("out", "float32", True), k.scalar("n", "index")
        with k.each(n - 2) as j:
            k.store(out, j + 1, k.load(out, j + 1) * 2.0)
        with k.loop(n - 1, n) as j:
            value = k.load(out, j)
            for _ in range(more):
                value = value + 1.0
            k.store(out, j, value)
        made.append(k)
    assert [cpu.operations(k) for k in made] == [3, 3, 11]


def test_an_element_of_a_view_costs_what_one_of_an_array_costs() -> None:
    """Its coordinates are found once for a line; only steps between neighbours are counted."""
    add = lambda xp, a, b: xp.add(a, b)
    layouts = [collapsed((6, 20), [s, (20, 1), (20, 1)]) for s in ((20, 1), (60, 1), (60, 2))]
    made = [recorded("f", add, [np.dtype("f4")] * 2, {}, layout.classes, True).kernel for layout in layouts]
    known = [launch.known(kernel, layout.numbers()) for kernel, layout in zip(made, layouts)]
    assert [cpu.operations(k, n) for k, n in zip(made, known)] == [4, 4, 5]
    assert [cpu.line_operations(k) for k in made] == [0, cpu.LINE + 3, cpu.LINE + 3]


PROGRAM = """
import os, sys, numpy as np
from engine.backends.cpu import threads
from engine.kernels import cpu, processor, team
from engine.kernels.form import Kernel
threads.get_num_threads = lambda: 2
if sys.argv[1] == "workers":
    team._openmp = lambda: None
def run():
    k = Kernel("f", "map")
    x, out = k.array("x", "float32", dense=True), k.array("out", "float32", True, True)
    k.store(out, k.index, k.load(x, k.index) + 1.0)
    a = np.zeros(1 << 20, "f4"); built = cpu.build(k)
    built([a, a], a.size)
    assert (a == 1).all()
    assert team.start() and team.shared[0] == 2
    args = built.pack(id(a), id(a))
    assert team.run(built.address, [(args, 0, a.size // 2), (args, a.size // 2, a.size)]) and (a == 2).all()
    return team._state.parallel
first = run()
child = os.fork()
served = run()
if not child:
    os._exit(served == (team.workers.start().parallel))  # of OpenMP's it has none
assert served == first and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
"""


def test_generated_code_follows_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = team.shared.copy()
    for count in (1, 4):
        monkeypatch.setattr(threads, "get_num_threads", lambda count=count: count)
        for follow in threads.changed:
            follow()
        assert team.shared[0] == count and (team.shared[1:5] == before[1:5]).all()


def test_threads_that_call_at_once_do_not_mix(several: pytest.FixtureRequest) -> None:
    built, arrays = plus(1.0), [np.zeros(200_003, "f4") for _ in range(4)]

    def work(a: np.ndarray) -> None:
        for _ in range(50):
            assert team.split(built.address, built.pack(id(a), id(a)), a.size, 3, 4)

    callers = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all((a == 50).all() for a in arrays)


def test_a_forked_child_has_threads_of_our_own(several: pytest.FixtureRequest) -> None:
    if team._workers is not KINDS["workers"] and KINDS["workers"]() is None:
        pytest.skip("there are none here")
    command = [sys.executable, "-c", PROGRAM, several.param]
    subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[3], env=os.environ)
