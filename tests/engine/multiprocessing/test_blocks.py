"""Blocks: few open files, forked holders, a manager that was killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import engine.multiprocessing as mp
from engine.multiprocessing import manager as manager_module

pytestmark = pytest.mark.skipif(
    "file_system" not in mp.get_all_sharing_strategies() or not Path("/proc/self/fd").is_dir(),
    reason="named blocks and /proc are needed",
)
SHM = Path("/dev/shm")


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter and session of its own, so that it has a manager of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,
    )


def _gone(pid: str | int, seconds: float = 5) -> bool:
    """Whether no block of process `pid` has a name, within `seconds`."""
    return _within(seconds, lambda: not list(SHM.glob(f"torch_{pid}_*")))


def _within(seconds: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


MANY = """
    import os, resource, sys
    import engine, engine.multiprocessing as mp
    def send(queue, count):
        mp.set_sharing_strategy(sys.argv[1] if len(sys.argv) > 1 else "file_system")
        for i in range(count):
            queue.put(engine.full((3,), float(i)))
        queue.close(); queue.join_thread()
    if __name__ == "__main__":
        mp.set_sharing_strategy(sys.argv[1])
        context = mp.get_context("fork")
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        queue = context.Queue()
        process = context.Process(target=send, args=(queue, 300)); process.start()
        try:
            got = [queue.get(timeout=60) for _ in range(300)]
            print(os.getpid(), process.pid, sum(float(t[2]) for t in got), all(t.is_shared() for t in got))
        except RuntimeError as error:
            print(error)
            process.kill()
        process.join()
"""


def test_a_limit_of_64_open_files_carries_300_tensors_by_name() -> None:
    done = _run(MANY, "file_system")
    assert done.returncode == 0, done.stderr
    me, other, total, shared = done.stdout.split()
    assert (float(total), shared) == (sum(range(300)), "True")
    assert _gone(me) and _gone(other)


def test_descriptors_that_run_out_are_an_error_with_advice_not_a_hang() -> None:
    done = _run(MANY, "file_descriptor")
    assert "Too many open files" in done.stdout, done.stderr
    assert "ulimit -n" in done.stdout and "set_sharing_strategy('file_system')" in done.stdout


def test_a_block_needs_one_descriptor_or_none() -> None:
    script = """
        import os, engine, engine.multiprocessing as mp
        mp.set_sharing_strategy({!r})
        engine.ones(1).share_memory_()
        before = len(os.listdir("/proc/self/fd"))
        kept = [engine.ones(4).share_memory_() for _ in range(20)]
        print(len(os.listdir("/proc/self/fd")) - before)
    """
    assert _run(script.format("file_system")).stdout == "0\n"
    assert _run(script.format("file_descriptor")).stdout == "20\n"


def test_a_forked_child_holds_what_its_parent_lets_go_of() -> None:
    done = _run("""
        import os, sys, engine, engine.multiprocessing as mp
        mp.set_sharing_strategy("file_system")
        def child(pipe, back):
            tensor = kept[0]
            pipe.recv()  # the parent has let go
            back.put(tensor)  # needs the name
            pipe.recv()
        if __name__ == "__main__":
            context = mp.get_context("fork")
            ours, theirs = context.Pipe()
            queue = context.Queue()
            kept = [engine.arange(3.0).share_memory_()]
            process = context.Process(target=child, args=(theirs, queue)); process.start()
            import time; time.sleep(0.5)
            kept.clear()
            ours.send(1)
            print(os.getpid(), queue.get(timeout=30).tolist())
            ours.send(1)
            process.join()
    """)
    assert done.stdout.endswith(" [0.0, 1.0, 2.0]\n"), done.stderr
    assert _gone(done.stdout.split()[0])


def _managers(folder: str) -> list[int]:
    """The processes that serve `folder`."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if folder.encode() in words:
                found.append(int(process.name))
    return found


def _manager(folder: str) -> int:
    """The one process that serves `folder`: it is replaced by its own child as it starts, which no list may show."""
    found: list[int] = []

    def one() -> bool:
        found[:] = _managers(folder)
        return len(found) == 1

    assert _within(5, one), found
    return found[0]


HOLDS = """
    import os, sys, engine, engine.multiprocessing as mp
    from engine.multiprocessing import blocks
    mp.set_sharing_strategy("file_system")
    tensor = engine.ones(1000).share_memory_()
    print(blocks._own_manager(), flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
"""


class _Holder:
    """A process that holds a named block, and does the lines that it is told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOLDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.folder = self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.read() == "done"

    def end(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate(timeout=30)


def test_the_manager_sweeps_after_a_killed_group_and_ends() -> None:
    holder = _Holder()
    assert len(list(SHM.glob(f"torch_{holder.process.pid}_*"))) == 1
    manager = _manager(holder.folder)
    assert os.getsid(manager) != os.getsid(holder.process.pid)  # Ctrl-C does not reach it
    mark = "/dev/shm" + manager_module._mark(manager_module.digits(holder.folder))

    def kinds() -> set[str]:
        found = set()
        for p in Path(f"/proc/{manager}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it is closed meanwhile
                found.add(os.readlink(p).split(":")[0])
        return found

    assert _within(10, lambda: kinds() == {"socket", "anon_inode", "/dev/null", holder.folder + "/lock", mark})
    holder.end(kill=True)
    assert _gone(holder.process.pid)
    assert _within(10, lambda: not _managers(holder.folder) and not Path(holder.folder).exists())


@pytest.mark.long
def test_a_forked_child_keeps_the_group() -> None:
    holder = _Holder()
    manager = _manager(holder.folder)
    holder.do("child = os.fork(); child or (__import__('time').sleep(60), os._exit(0))")
    holder.do("import pathlib; pathlib.Path(blocks._own_manager(), 'child').write_text(str(child))")
    child = int(Path(holder.folder, "child").read_text())
    try:
        holder.process.kill()
        holder.process.wait(30)
        time.sleep(manager_module.GRACE + 0.5)
        assert _managers(holder.folder) == [manager]
    finally:
        os.kill(child, 9)
        holder.process.communicate(timeout=30)
    assert _gone(holder.process.pid)
    Path(holder.folder, "child").unlink()
    assert _within(10, lambda: not _managers(holder.folder))
    with contextlib.suppress(FileNotFoundError):
        Path(holder.folder).rmdir()


def test_a_killed_manager_is_started_again_and_told_everything() -> None:
    holder = _Holder()
    first = _manager(holder.folder)
    os.kill(first, 9)
    assert _within(5, lambda: not _managers(holder.folder))
    holder.do("more = engine.ones(5).share_memory_()")
    second = _manager(holder.folder)
    assert second != first
    assert len(list(SHM.glob(f"torch_{holder.process.pid}_*"))) == 2
    holder.end(kill=True)
    assert _gone(holder.process.pid)


def test_a_killed_manager_and_an_orderly_end_leave_nothing() -> None:
    holder = _Holder()
    manager = _manager(holder.folder)
    os.kill(manager, 9)
    assert _within(5, lambda: not _managers(holder.folder))
    holder.end()
    assert _gone(holder.process.pid)
    assert _within(10, lambda: not Path(holder.folder).exists())


def test_what_a_group_left_that_was_killed_whole_goes_with_the_next_manager() -> None:
    lives, dead = _Holder(), _Holder()
    for holder in (lives, dead):  # one keeps its memory although its manager is gone
        manager = _manager(holder.folder)
        os.kill(manager, 9)
        assert _within(5, lambda folder=holder.folder: not _managers(folder))  # type: ignore[misc]
    dead.end(kill=True)
    third = _Holder()
    try:
        assert _gone(dead.process.pid)
        assert _within(5, lambda: not Path(dead.folder).exists())
        assert len(list(SHM.glob(f"torch_{lives.process.pid}_*"))) == 1 and Path(lives.folder).exists()
        lives.do("assert tensor.sum() == 1000; more = engine.ones(5).share_memory_()")
    finally:
        third.end()
        lives.end(kill=True)
    assert _gone(lives.process.pid)
    marks = [SHM / manager_module._mark(manager_module.digits(h.folder))[1:] for h in (lives, dead, third)]
    assert _within(10, lambda: not any(mark.exists() for mark in marks))


SLOW = """
    import os, sys, engine, engine.multiprocessing as mp
    mp.set_sharing_strategy("file_system")
    sys.executable = sys.argv[1]  # starts when somebody writes to a fifo
    tensor = engine.ones(1000).share_memory_()
    more = engine.ones(1000).share_memory_()
    {}
    names = [n for n in os.listdir("/dev/shm") if n.startswith(f"torch_{{os.getpid()}}_")]
    print(os.getpid(), len(names), mp.blocks._own_manager(), flush=True)
    {}
"""


def _slow_interpreter(tmp_path: Path) -> tuple[Path, Path]:
    """A Python that starts when somebody writes to the fifo."""
    fifo, slow = tmp_path / "fifo", tmp_path / "slow"
    os.mkfifo(fifo)
    slow.write_text(f'#!/bin/sh\nread line < {fifo}\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    return slow, fifo


@pytest.mark.parametrize(
    ("lets_go", "end", "left"),
    [
        ("", "os.kill(os.getpid(), 9)", 2),
        ("", "", 0),
        ("del tensor", "os._exit(0)", 1),
    ],
)
def test_blocks_do_not_wait_for_their_manager_and_do_not_outlive_its_start(
    lets_go: str, end: str, left: int, tmp_path: Path
) -> None:
    slow, fifo = _slow_interpreter(tmp_path)
    done = _run(SLOW.format(lets_go, end), str(slow))
    pid, count, folder = done.stdout.split()
    try:
        assert int(count) == 2 - bool(lets_go)
        assert len(list(SHM.glob(f"torch_{pid}_*"))) == left  # who ends in order takes its blocks along
    finally:
        fifo.write_text("start\n")
    assert _gone(pid)
    assert _within(10, lambda: not Path(folder).exists() and not _managers(folder))


def test_an_interpreter_that_cannot_run_is_an_error() -> None:
    done = _run("""
        import sys, engine, engine.multiprocessing as mp
        mp.set_sharing_strategy("file_system")
        for sys.executable in ("", "/nowhere/python"):
            try:
                engine.ones(3).share_memory_()
            except (OSError, RuntimeError) as error:
                print(error)
    """)
    assert done.stdout.count("needs a Python interpreter to run in; sys.executable is") == 2, done.stderr
    assert "'/nowhere/python'" in done.stdout


def test_nothing_grows_while_a_tensor_goes_to_and_fro() -> None:
    done = _run("""
        import gc, os, engine, engine.multiprocessing as mp
        mp.set_sharing_strategy("file_system")
        def echo(pipe):
            while (tensor := pipe.recv()) is not None:
                tensor += 1
                pipe.send(tensor)
        if __name__ == "__main__":
            context = mp.get_context("fork")
            ours, theirs = context.Pipe()
            process = context.Process(target=echo, args=(theirs,)); process.start()
            tensor = engine.zeros(3)
            address = None
            for _ in range(50):
                ours.send(tensor)
                back = ours.recv()
                assert back.data_ptr() == tensor.data_ptr()
            names = [n for n in os.listdir("/dev/shm") if n.startswith(f"torch_{os.getpid()}_")]
            ours.send(None)
            process.join()
            print(tensor.tolist(), len(names))
    """)
    assert done.stdout == "[50.0, 50.0, 50.0] 1\n", done.stderr
