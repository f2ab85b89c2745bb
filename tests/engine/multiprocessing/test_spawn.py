"""Spawned processes and the errors of those that fail."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from pathlib import Path

import pytest

from engine import multiprocessing as mp
from engine.multiprocessing.spawn import SpawnContext

fork = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and POSIX signals")


def _die(index: int, number: int) -> None:
    os.kill(os.getpid(), number)


def _fail(index: int, length: int) -> None:
    raise ValueError("x" * length + f" at {index}")


def _exit(index: int, status: int) -> None:
    os._exit(status if index == 1 else 0)


def _second_fails(index: int, folder: str) -> None:
    if index == 1:
        raise ValueError("the second")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(folder, "ignoring").touch()
    time.sleep(600)


def _write(index: int, folder: str) -> None:
    Path(folder, str(index)).touch()


@fork
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGTERM])
def test_the_signal_that_ended_a_child_is_named(number: signal.Signals) -> None:
    with pytest.raises(mp.ProcessExitedException, match=f"^process 0 terminated with signal {number.name}$") as info:
        mp.start_processes(_die, (int(number),), start_method="fork")
    assert (info.value.exit_code, info.value.signal_name) == (-number, number.name)
    again = pickle.loads(pickle.dumps(info.value))
    assert (again.msg, again.error_pid, again.signal_name) == (info.value.msg, info.value.error_pid, number.name)


@fork
def test_an_exit_status_has_no_signal() -> None:
    with pytest.raises(mp.ProcessExitedException, match=r"^process 1 terminated with exit code 7$") as info:
        mp.start_processes(_exit, (7,), nprocs=3, start_method="fork")
    assert (info.value.error_index, info.value.exit_code, info.value.signal_name) == (1, 7, None)


@fork
def test_a_traceback_longer_than_a_pipe_arrives() -> None:
    with pytest.raises(mp.ProcessRaisedException, match=r"(?s)Process 0 terminated with the following.*x at 0") as info:
        mp.start_processes(_fail, (1 << 20,), start_method="fork")
    assert pickle.loads(pickle.dumps(info.value)).error_index == 0 and len(info.value.msg) > 1 << 20


@fork
def test_a_child_that_ignores_termination_is_killed(tmp_path: Path) -> None:
    running = mp.start_processes(_second_fails, (str(tmp_path),), nprocs=2, join=False, start_method="fork")
    while not (tmp_path / "ignoring").exists():
        time.sleep(0.01)
    with pytest.raises(mp.ProcessRaisedException, match="the second") as info:
        while not running.join(grace_period=0.1):
            pass
    assert info.value.error_index == 1
    assert running.processes[0].exitcode == -signal.SIGKILL


@fork
def test_join_returns_whether_all_have_ended(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    running = mp.start_processes(_write, (str(folder),), nprocs=3, join=False, start_method="fork")
    assert len(set(running.pids())) == 3
    while not running.join(timeout=5):
        pass
    assert running.join() and {p.name for p in folder.iterdir()} == {"0", "1", "2"}


def test_the_old_name_and_method_warn() -> None:
    with pytest.warns(UserWarning, match="SpawnContext is renamed to ProcessContext"):
        SpawnContext([], [])
    with pytest.warns(FutureWarning, match=r"only supports start_method=spawn \(got: fork\)"):
        mp.spawn(_write, nprocs=0, start_method="fork")
