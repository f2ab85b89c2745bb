"""Where things are: precedence of the cache folder, names below it, atomic writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hubcli import paths
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


def test_a_relative_folder_becomes_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
