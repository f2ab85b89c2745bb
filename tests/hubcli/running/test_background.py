"""Threads and processes that repository code leaves running keep no command from ending."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hubcli

HUBCONF = """
dependencies = ["torch"]
import concurrent.futures, multiprocessing, threading, time
from torch import nn


def thread():
    threading.Thread(target=time.sleep, args=(3600,), name="worker of mine").start()
    return nn.Linear(1, 1)


def executor():
    global pool
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(time.sleep, 3600)
    return nn.Linear(1, 1)


def idle():
    global pool
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(int)
    return nn.Linear(1, 1)


def timer():
    threading.Timer(3600, print).start()
    return nn.Linear(1, 1)


def process():
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,)).start()
    return nn.Linear(1, 1)


def at_exit():
    import atexit
    thread = threading.Thread(target=time.sleep, args=(3600,), daemon=True)
    thread.start()
    atexit.register(thread.join)
    return nn.Linear(1, 1)


def prints():
    def loop():
        while True:
            print("from a thread")
            time.sleep(0.001)

    threading.Thread(target=loop, daemon=True).start()
    return nn.Linear(1, 1)


def raises():
    threading.Thread(target=time.sleep, args=(3600,)).start()
    raise ValueError("no")


class _Net(nn.Linear):
    def forward(self, x):
        threading.Thread(target=time.sleep, args=(3600,)).start()
        return super().forward(x)


def late():
    return _Net(1, 1)
"""
MAIN = """
from hubcli.running import background
from hubcli.terminal import cli

background.GRACE, background.CLEANING = 0.2, 1.0
cli.main()
"""


def hub(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(hubcli.__file__).parents[1])}
    command = [sys.executable, "-c", MAIN, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "hubconf.py").write_text(HUBCONF)
    return made


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("thread", "warning: the code left threads running: worker of mine; they end with the command"),
        ("executor", "warning: the code left threads running: ThreadPoolExecutor"),
        ("timer", "warning: the code left threads running: Thread-"),
        ("process", "warning: the code left the process ForkProcess-1 running"),
        ("at_exit", "warning: what the code has registered to be done at exit does not end"),
        ("idle", None),
    ],
)
def test_load_ends(folder, name, said) -> None:
    done = hub("--json", "load", str(folder), name)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["parameters"] == 2
    assert (said or "") in done.stderr and (said is not None or "running" not in done.stderr)


def test_what_a_thread_prints_is_not_in_the_result(folder) -> None:
    done = hub("--json", "load", str(folder), "prints")
    assert done.returncode == 0 and json.loads(done.stdout)["parameters"] == 2
    assert "from a thread" in done.stderr


def test_the_status_stays(folder) -> None:
    done = hub("load", str(folder), "raises")
    assert done.returncode == 70 and "ValueError: no" in done.stderr


@pytest.mark.long
def test_the_other_commands_end(folder, tmp_path) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", np.ones((1, 1), np.float32))
    spec, shape = str(folder), ("--input-shape", "1,1")
    for words in (
        ("run", spec, "late", "--input", str(tmp_path / "x.npy")),
        ("check", spec, "late", "thread", *shape, "--no-sandbox"),
        ("profile", spec, "late", *shape),
    ):
        done = hub(*words)
        assert done.returncode == 0, done.stderr
