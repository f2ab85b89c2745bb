"""The manager's own rules: what it takes from clients, and whom it serves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import engine.multiprocessing as mp
from engine.multiprocessing import blocks, manager

pytestmark = pytest.mark.skipif(
    "file_system" not in mp.get_all_sharing_strategies(), reason="there is no POSIX shared memory"
)


@pytest.fixture
def group() -> Iterator[tuple[manager._Group, socket.socket]]:
    alive = manager._lock_mark("0" * manager.DIGITS, fcntl.LOCK_SH)  # the group of the names below
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = manager._Group()
        found.join(ours)
        yield found, ours
    with contextlib.suppress(OSError):  # of several such tests at a time the last one removes the mark
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        blocks._unlink(manager._mark("0" * manager.DIGITS))
    os.close(alive)


def _name(digit: int) -> str:
    return f"/torch_{os.getpid()}_{digit:016x}"


def _make(name: str, count: int) -> None:
    fd = blocks._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.ftruncate(fd, 16)
    os.pwrite(fd, manager.COUNT.pack(count), 8)
    os.close(fd)


def _exists(name: str) -> bool:
    try:
        os.close(blocks._open(name, os.O_RDONLY))
    except FileNotFoundError:
        return False
    return True


def test_what_a_killed_client_held_is_taken_off(group: tuple[manager._Group, socket.socket]) -> None:
    known, client = group
    alone, shared, dropped = map(_name, (1, 2, 3))
    for name, count in ((alone, 1), (shared, 2), (dropped, 1)):
        _make(name, count)
        assert known.hear(client, f"hold {name}\n".encode())
    assert known.hear(client, f"drop {dropped}\n".encode())
    known.leave(client)
    assert not _exists(alone)
    assert _exists(shared) and manager.add(shared, 0) == 1
    assert _exists(dropped) and manager.add(dropped, 0) == 1  # a message holds it
    known.end()
    assert not _exists(shared) and not _exists(dropped)


def test_lines_may_come_in_pieces(group: tuple[manager._Group, socket.socket]) -> None:
    known, client = group
    name = _name(4)
    for byte in f"hold {name}\n".encode():
        assert known.hear(client, bytes([byte]))
    assert known.known == {name.encode()}
    assert known.hear(client, f"gone {name}\n".encode())
    assert not known.known and not known.held[client]


@pytest.mark.parametrize(
    "line",
    [
        b"hold /psm_other\n",
        b"hold /torch_1_../../x0000000000\n",
        b"unlink " + b"/torch_1_" + b"0" * 16 + b"\n",
        b"\n",
        b"x" * 300,
    ],
)
def test_what_is_no_line_of_a_client_is_refused(group: tuple[manager._Group, socket.socket], line: bytes) -> None:
    known, client = group
    assert not known.hear(client, line)
    assert not known.known


def test_a_block_without_a_size_counts_nothing(group: tuple[manager._Group, socket.socket]) -> None:
    name = _name(5)
    os.close(blocks._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    assert manager.add(name, -1) == 0
    blocks._unlink(name)


def test_the_folder_and_the_socket_are_this_users(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        blocks._connect(str(folder))
    folder.chmod(0o700)
    with blocks._connect(str(folder)) as connection:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert connection.getpeername() == str(folder / "socket")


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can become another user")
def test_a_second_user_is_not_served(tmp_path: Path) -> None:
    script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(1))"
    folder = Path(blocks._new_folder())
    try:
        with blocks._connect(str(folder)):
            become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", script]
            if subprocess.run([*become[:-1], "pass"], capture_output=True, check=False).returncode:
                pytest.skip("another user cannot run this interpreter")
            refused = subprocess.run([*become, str(folder / "socket")], capture_output=True, text=True, check=False)
            assert "PermissionError" in refused.stderr
            folder.chmod(0o711)
            (folder / "socket").chmod(0o777)
            refused = subprocess.run([*become, str(folder / "socket")], capture_output=True, text=True, check=False)
            assert refused.stdout == "b''\n"  # connected, and turned away
            folder.chmod(0o700)
    finally:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="names of shared memory cannot be listed here")
def test_the_sweep_takes_dead_groups_and_nothing_else(tmp_path: Path) -> None:
    folders = {who: str(tmp_path / (manager.FOLDER + who)) for who in ("dead", "alive", "own", "foreign")}
    names = {who: f"/torch_{os.getpid()}_{manager.digits(folder)}0000000001" for who, folder in folders.items()}
    for folder in folders.values():
        os.mkdir(folder, 0o700)
        Path(folder, "socket").touch()
        Path(folder, "lock").touch()
    joined = manager.join(folders["alive"])
    os.close(manager.join(folders["dead"]))  # what remains of a process that was killed
    for name in names.values():
        _make(name, 1)
    kept = {"alive", "own"}
    if os.getuid() == 0:
        os.chown(Path("/dev/shm") / names["foreign"][1:], 65534, 65534)
        os.chown(folders["foreign"], 65534, 65534)
        kept.add("foreign")
    strange = [f"/torch_{os.getpid()}_{manager.digits(folders['dead'])}0_1", f"/other_{os.getpid()}"]
    for name in strange:
        _make(name, 1)
    try:
        manager.sweep(folders["own"])
        assert {who for who, name in names.items() if _exists(name)} == kept
        assert {who for who, folder in folders.items() if os.path.isdir(folder)} == kept
        assert all(map(_exists, strange))
        assert _exists(manager._mark(manager.digits(folders["alive"])))
        assert not _exists(manager._mark(manager.digits(folders["dead"])))
        manager.leave(folders["alive"], joined)
        assert not _exists(manager._mark(manager.digits(folders["alive"])))
    finally:
        for name in [*names.values(), *strange]:
            blocks._unlink(name)


def test_the_manager_removes_the_mark_of_a_process_that_is_still_ending(tmp_path: Path) -> None:
    folder = str(tmp_path)
    ending, own = manager.join(folder), manager.join(folder)
    looks = iter(range(100))

    def closes(seconds: float) -> None:
        if next(looks) == 3:
            os.close(ending)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager.time, "sleep", closes)
        manager.leave(folder, own, 60)
    assert next(looks) == 4 and not _exists(manager._mark(manager.digits(folder)))


def test_who_joins_while_a_mark_is_removed_has_a_new_one(tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = manager.join(folder)
    waiting: list[int] = []
    alone = manager._lock_mark  # as a sweep that has the mark alone
    manager.leave(folder, first)
    fd = alone(manager.digits(folder), fcntl.LOCK_EX)
    thread = threading.Thread(target=lambda: waiting.append(manager.join(folder)))
    thread.start()
    blocks._unlink(manager._mark(manager.digits(folder)))
    os.close(fd)
    thread.join(30)
    assert _exists(manager._mark(manager.digits(folder)))
    with pytest.raises(BlockingIOError):
        alone(manager.digits(folder), fcntl.LOCK_EX | fcntl.LOCK_NB)
    manager.leave(folder, waiting[0])
    assert not _exists(manager._mark(manager.digits(folder)))


@pytest.mark.parametrize("message", [False, True])
def test_the_manager_waits_after_its_last_client_for_messages_only(
    message: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            waits.append(timeout)
            return super().select(timeout)

    monkeypatch.setattr(manager.selectors, "DefaultSelector", Selector)
    monkeypatch.setattr(manager, "GRACE", 0.05)
    name = _name(6)
    _make(name, 1)
    with socket.socket(socket.AF_UNIX) as listener, open(tmp_path / "lock", "w") as lock:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:  # gone before it is welcomed: what it said is heard nevertheless
            client.connect(str(tmp_path / "socket"))
            client.sendall(f"hold {name}\n{'drop' if message else 'gone'} {name}\n".encode())
        try:
            manager.serve(listener, lock.fileno())
            assert any(wait for wait in waits) is message
            assert _exists(name) is not message
        finally:
            blocks._unlink(name)
