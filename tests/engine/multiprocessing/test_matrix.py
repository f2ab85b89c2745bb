"""Every way to start processes and to share, every channel and payload, every order of ends: matrix.py runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import engine.multiprocessing as mp

pytestmark = pytest.mark.skipif(
    len(mp.get_all_sharing_strategies()) < 2 or not Path("/dev/shm").is_dir(), reason="Linux's shared memory is needed"
)
ROOT = Path(__file__).parents[3]
CASES = {
    "channels",
    "Process",
    "Pool",
    "Manager",
    "sender ends first",
    "sender killed first",
    "received after the sender was killed",
    "receiver ends first",
    "receiver killed first",
}


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_matrix(method: str, strategy: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.multiprocessing.matrix", method, strategy],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    wrong = {row["case"]: row["wrong"] for row in rows if row["wrong"]}
    assert not wrong, "\n".join(f"{case}: {text}" for case, text in wrong.items())
    assert process.returncode == 0 and {row["case"] for row in rows} >= CASES, err


BOTH = """
import os, sys, time
import engine, engine.multiprocessing as mp
mp.set_sharing_strategy("file_system")
def child(queue, back):
    got = queue.get()
    mine = engine.ones(5)
    back.put(mine)
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)
if __name__ == "__main__":
    context = mp.get_context("fork")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, back)); process.start()
    tensor = engine.ones(1000)
    queue.put(tensor)
    got = back.get()
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)
"""


def test_both_are_killed_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BOTH], stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(2)]

    def left() -> list[str]:
        return [p.name for pid in pids for p in Path("/dev/shm").glob(f"torch_{pid}_*")]

    assert len(left()) == 2
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    deadline = time.monotonic() + 20
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left()
