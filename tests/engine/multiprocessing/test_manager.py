"""The manager's own rules: what it takes from clients, and whom it serves."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
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
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = manager._Group()
        found.join(ours)
        yield found, ours


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
    [b"hold /psm_other\n", b"hold /torch_1_../../x0000000000\n", b"unlink " + b"/torch_1_" + b"0" * 16 + b"\n", b"\n",
     b"x" * 300],
)  # fmt: skip
def test_what_is_no_line_of_a_client_is_refused(group: tuple[manager._Group, socket.socket], line: bytes) -> None:
    known, client = group
    assert not known.hear(client, line)
    assert not known.known


def test_a_block_without_a_size_counts_nothing() -> None:
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
