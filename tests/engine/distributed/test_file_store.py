"""`FileStore`: what it writes to, what it leaves, and what it never touches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import engine.distributed as dist


def test_the_last_process_removes_the_file_that_a_store_made(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = dist.FileStore(path, 2)
    second = dist.FileStore(str(path), 2)
    first.set("a", "1")
    assert second.get("a") == b"1"
    del first
    assert path.exists()
    del second
    assert not path.exists()


def test_an_empty_file_that_was_there_is_used_and_left_empty(tmp_path: Path) -> None:
    path = tmp_path / "agreed"
    path.touch(0o640)
    before = path.stat()
    stores = [dist.FileStore(path, 2), dist.FileStore(path, 2)]
    stores[0].set("a", "1")
    assert stores[1].get("a") == b"1" and stores[1].num_keys() == 1
    stores.clear()
    assert path.read_bytes() == b"" and path.stat()[:3] == before[:3]  # mode, inode, device
    again = dist.FileStore(path, 1)
    assert not again.check(["a"])


@pytest.mark.parametrize("kind", ["device", "folder", "link", "dangling", "pipe", "text", "large"])
def test_what_no_store_made_is_refused_and_left_as_it_is(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "there"
    target = tmp_path / "target"
    target.write_text("notes")
    words = {
        "device": "a device",
        "folder": "a folder",
        "link": "a symbolic link",
        "dangling": "a symbolic link",
        "pipe": "a pipe",
        "text": "a file with other content",
        "large": "a file with other content",
    }
    if kind == "device":
        path = Path(os.devnull)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("link", "dangling"):
        path.symlink_to(target if kind == "link" else tmp_path / "nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"my work" * (10000 if kind == "large" else 1))
    before, content = path.lstat(), path.read_bytes() if path.is_file() else b""
    with pytest.raises(dist.DistStoreError, match=words[kind]):
        dist.FileStore(path, 1)
    after = path.lstat()
    assert (after.st_mode, after.st_ino, after.st_size) == (before.st_mode, before.st_ino, before.st_size)
    assert target.read_text() == "notes" and not (tmp_path / "nowhere").exists()
    assert (path.read_bytes() if path.is_file() else b"") == content


def test_a_file_put_in_place_of_the_stores_is_left(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = dist.FileStore(path, 1)
    path.unlink()
    path.write_text("mine")
    with pytest.raises(dist.DistStoreError, match="is gone"):
        store.set("a", "1")
    del store
    assert path.read_text() == "mine"


def test_a_link_put_in_place_of_the_stores_is_left(tmp_path: Path) -> None:
    path, other = tmp_path / "s", tmp_path / "other"
    store = dist.FileStore(path, 1)
    path.rename(other)
    path.symlink_to(other)
    del store
    assert path.is_symlink() and other.exists()


def test_after_the_last_has_left_nothing_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    late = dist.FileStore(path)
    last = dist.FileStore(path, 1)
    del last
    assert not path.exists()
    with pytest.raises(dist.DistStoreError, match="is gone: the last process of its job has left"):
        late.get("a")
    assert not path.exists()


def test_a_forked_child_that_ends_counts_as_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s"
    code = (
        "import os, sys\nimport engine.distributed as dist\n"
        f"store = dist.FileStore({str(path)!r}, 1)\n"
        "if os.fork() == 0:\n    sys.exit(0)\n"
        "os.wait()\nstore.set('a', '1')\nprint(store.get('a'))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "b'1'\n"), done.stderr
    assert not path.exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(dist.DistStoreError, match=r"cannot open .*No such file or directory"):
        dist.FileStore(tmp_path / "no" / "s", 1)
