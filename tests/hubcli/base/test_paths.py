"""Where things are: precedence of the cache folder, names below it, atomic writing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hubcli.base import paths
from hubcli.errors import HubError


def test_precedence(monkeypatch: pytest.MonkeyPatch, isolated: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HUB_DIR", "~/elsewhere")
    assert paths.hub_dir() == isolated / "elsewhere"
    paths.set_dir("~/chosen")
    assert paths.hub_dir() == isolated / "chosen"


def test_the_default(monkeypatch: pytest.MonkeyPatch, isolated: Path) -> None:
    monkeypatch.delenv("TORCH_HUB_DIR")
    assert paths.hub_dir() == isolated / ".torch" / "hub"


def test_read_at_call_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("TORCH_HUB_DIR", str(tmp_path / name))
        assert paths.checkpoints() == tmp_path / name / "checkpoints"


def test_a_relative_folder_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HUB_DIR", "here")
    assert paths.hub_dir() == tmp_path / "here"


def test_keys_are_safe_and_differ_by_url() -> None:
    one = paths.repository_key("h:80", "a/b", "r", "http://h:80/a/b/r.git")
    two = paths.repository_key("h:80", "a/b", "r", "https://h:80/a/b/r.git")
    assert one != two and one.startswith("h%3A80/a/b/r-")
    assert ".." not in paths.repository_key("h", "o", "a b", "u").split("/")
    assert paths.db(one).name == f"{one.rpartition('/')[2]}.git"


def test_ensure_root(hub_root: Path) -> None:
    assert paths.ensure_root() == hub_root
    assert (hub_root / "VERSION").read_text() == "1\n"
    assert "CACHEDIR.TAG" in os.listdir(hub_root)
    before = (hub_root / "VERSION").stat().st_mtime_ns
    paths.ensure_root()
    assert (hub_root / "VERSION").stat().st_mtime_ns == before


@pytest.mark.parametrize("found", ["2", "x"])
def test_a_newer_cache_is_refused(hub_root: Path, found: str) -> None:
    hub_root.mkdir()
    (hub_root / "VERSION").write_text(found)
    with pytest.raises(HubError, match="cache version"):
        paths.ensure_root()


def test_write_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    paths.write_atomically(file, b"one")
    paths.write_atomically(file, b"two")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError):
        paths.write_atomically(file, b"three")
    assert file.read_bytes() == b"two"
    assert not list(tmp_path.glob(".f*"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes by name")
@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("how", ["write_atomically", "copy"])
def test_a_pipe_is_written_to_and_stays(how: str, link: bool, tmp_path: Path) -> None:
    pipe, shown, source = tmp_path / "pipe", tmp_path / "shown", tmp_path / "source"
    os.mkfifo(pipe)
    shown.symlink_to(pipe)  # as /dev/stdout is one
    source.write_bytes(b"content")
    target = shown if link else pipe
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        if how == "copy":
            paths.copy(source, target)
        else:
            paths.write_atomically(target, b"content")
        assert read.result(10) == b"content"
    assert paths.is_special(target) and shown.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["home", "pipe", "shown", "source"]


@pytest.mark.parametrize("how", ["write_atomically", "copy"])
def test_behind_a_link_the_file_is_replaced(how: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "source").write_text("new")
    if how == "copy":
        paths.copy(tmp_path / "source", tmp_path / "link")
    else:
        paths.write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"


def test_copying_over_a_file_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("new")
    target.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError):
            paths.copy(source, target)
    assert target.read_text() == "old" and not list(tmp_path.glob(".target*"))
    paths.copy(source, target)
    assert target.read_text() == "new"


def test_temporaries_of_the_cache_lie_in_partial(hub_root: Path, tmp_path: Path) -> None:
    inside = paths.temporary_for(hub_root / "refs" / "h" / "o" / "r.json")
    assert inside.parent == hub_root / "partial" and inside.name.startswith("r.json.")
    assert paths.temporary_for(tmp_path / "mine").parent == tmp_path


def test_placing_across_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def replace(source: Path, target: Path) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    (tmp_path / "far").mkdir()
    (tmp_path / "a").write_text("one")
    os.symlink("../elsewhere", tmp_path / "b")
    for name in ("a", "b"):
        paths.place(tmp_path / name, tmp_path / "far" / name)
    assert (tmp_path / "far" / "a").read_text() == "one"
    assert os.readlink(tmp_path / "far" / "b") == "../elsewhere"
    assert sorted(os.listdir(tmp_path / "far")) == ["a", "b"]
    assert not os.path.lexists(tmp_path / "a") and not os.path.lexists(tmp_path / "b")


@pytest.mark.skipif(os.name != "posix", reason="process numbers cannot be asked about")
def test_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(paths.__file__).parents[2])}
    code = "from hubcli.base import paths; print(paths.unique())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    dead = child.stdout.strip()
    assert paths.abandoned(f"x.{dead}.tmp") and paths.of_this_boot(dead)
    assert not paths.abandoned(paths.unique())  # this process lives
    elsewhere = "00000000" + dead[8:]
    assert not paths.abandoned(elsewhere) and not paths.of_this_boot(elsewhere)
    for name in ("", "main", "0b1d9d2c-1", "deadbeef-zz-000000000000"):
        assert not paths.abandoned(name)


def test_files_of_a_folder_that_is_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/one.json", "b/deep/two.json", "b/deep/note.txt", "c/three.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    scandir = os.scandir

    def removing(path: Any) -> Any:
        if str(path).endswith("deep"):
            shutil.rmtree(tmp_path / "b")
        return scandir(path)

    assert [str(p.relative_to(tmp_path)) for p in paths.json_files(tmp_path)] == [
        "a/one.json",
        "b/deep/two.json",
        "c/three.json",
    ]
    monkeypatch.setattr(os, "scandir", removing)
    assert [p.name for p in paths.json_files(tmp_path)] == ["one.json", "three.json"]
    (tmp_path / "folder.json").mkdir()  # is reported by whoever reads it
    assert [p.name for p in paths.json_files(tmp_path)] == ["one.json", "three.json", "folder.json"]
    assert paths.json_files(tmp_path / "nothing") == []
