"""Threads that work with another are kept off its core."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import engine
from engine.backends import onednn
from engine.backends.cpu import threads
from engine.backends.onednn import placement

pytestmark = [pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe()), pytest.mark.onednn]
CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
SAID = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"} & os.environ.keys()
PLACED = hasattr(os, "sched_setaffinity") and not SAID and len(CORES) > 1


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    before = threads.get_num_threads()
    engine.set_num_threads(2)
    yield
    engine.set_num_threads(before)


def convolved() -> engine.Tensor:
    return engine.nn.functional.conv2d(engine.ones(2, 64, 32, 32), engine.ones(64, 64, 3, 3), padding=1)


@pytest.mark.skipif(not PLACED, reason="threads are not placed here")
def test_the_others_may_run_on_every_core_but_the_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for here in sorted(CORES)[:2]:
        monkeypatch.setattr(placement, "core", lambda here=here: here)
        convolved()
        members = placement._team.members
        assert len(members) == 1 and threading.get_native_id() not in members
        assert [os.sched_getaffinity(number) for number in members] == [CORES - {here}]
    assert os.sched_getaffinity(0) == CORES
    found: list[set[int]] = []
    later = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
    later.start()
    later.join()
    assert found == [CORES]


@pytest.mark.skipif(not PLACED, reason="threads are not placed here")
def test_threads_that_ended_are_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    convolved()
    monkeypatch.setattr(placement._team, "members", (2**22 + 1,))
    monkeypatch.setattr(placement, "core", lambda: min(CORES))
    monkeypatch.setattr(placement._team, "core", -1)
    placement.apart()
    assert placement._team.core == min(CORES)
    engine.set_num_threads(1)
    placement.apart()
    assert placement._team.members == ()


_CODE = """
import os
import engine
from engine.backends.onednn import placement
engine.set_num_threads(2)
make = lambda: engine.nn.functional.conv2d(engine.ones(2, 64, 32, 32), engine.ones(64, 64, 3, 3), padding=1).sum()
print(make().item(), placement.core() >= 0, flush=True)
if os.fork() == 0:
    print(make().item(), placement.core(), placement._team.members, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not PLACED, reason="threads are not placed here")
def test_what_the_user_says_of_places_stands_and_a_child_has_no_threads_to_place() -> None:
    total = convolved().sum().item()
    cases: list[tuple[dict[str, str], bool]] = [({}, True), ({"OMP_PROC_BIND": "false"}, False)]
    for said, placed in cases:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _CODE],
            capture_output=True,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("OMP_")} | said,
        )
        assert done.stdout.splitlines() == [f"{total} {placed}", f"{total} -1 ()"], done.stderr
