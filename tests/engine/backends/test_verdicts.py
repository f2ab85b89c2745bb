"""The verdict file: whole or none, one at a time, memory alone where a folder cannot be written."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from engine.backends import verdicts
from engine.backends.verdicts import Verdicts

WHO = {"processor": "a", "engine": "1"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def made(kind: str = "cpu", **more: str) -> Verdicts:
    return Verdicts(kind, lambda: {**WHO, **more}, "the verdicts hold in this process only")


def test_what_is_stored_is_read_with_whom_it_is_for() -> None:
    assert made().read() == {} == made().newest()
    made().update(lambda document: {"routes": {"add": 1}})
    assert made().read() == {"routes": {"add": 1}, "for": WHO} == made().newest()
    assert made(engine="2").read() == {} == made("cuda").read() == made("cuda").newest()
    made().update(lambda document: {**document, "more": 2})
    assert made().read() == {"routes": {"add": 1}, "more": 2, "for": WHO}


@pytest.mark.parametrize("damage", [b"", b"nonsense", "cut", "changed"])
def test_a_damaged_file_is_as_good_as_none(damage: Any) -> None:
    made().update(lambda document: {"routes": {}})
    whole = made().path().read_bytes()
    content = {"cut": whole[:-1], "changed": whole.replace(b"routes", b"router")}.get(damage, damage)
    made().path().write_bytes(content)
    assert made().read() == {} == made().newest()
    made().update(lambda document: {"routes": {}} if not document else {})
    assert made().path().read_bytes() == whole


def test_the_file_of_another_under_this_name() -> None:
    made(engine="2").update(lambda document: {"routes": {}})
    os.replace(made(engine="2").path(), made().path())
    assert made().read() == {}


def test_a_folder_that_cannot_be_written_is_told_of_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    one = made()
    with pytest.warns(RuntimeWarning, match="hold in this process only: .*verdicts cannot be written"):
        one.update(lambda document: {"routes": {}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.update(lambda document: {"routes": {}})
    assert one.read() == {}


def _count(name: str) -> None:
    for _ in range(20):
        made().update(lambda document: (time.sleep(0.001), {**document, name: document.get(name, 0) + 1})[1])


@pytest.mark.skipif(os.name == "nt", reason="no lock of a folder")
def test_two_processes_lose_nothing_of_each_other() -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_count, args=(name,)) for name in ("first", "second")]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert made().read() == {"first": 20, "second": 20, "for": WHO}
    assert [path.suffix for path in verdicts.folder().iterdir()] == [".json"]  # nothing half-written, no lock left
