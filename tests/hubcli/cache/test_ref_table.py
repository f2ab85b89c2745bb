"""The ref tables with several writers and no locks: see hubcli/cache/README.md, invariant 3."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hubcli.base import paths
from hubcli.base.spec import RepoSpec
from hubcli.cache import ref_table
from hubcli.cache.ref_table import Published, Table


def entry(ref: str) -> Published:
    commit = ref.encode().hex().zfill(40)
    return Published("tag", ref, commit, commit, 1, 10, 1.0, 1.0, "tip")


def having(table: Table, ref: str) -> Table:
    return table.having(ref, entry(ref), None)


@pytest.fixture
def spec(hub_root: Path) -> RepoSpec:
    paths.ensure_root()
    return RepoSpec.parse("o/r")


def test_a_writer_that_read_before_takes_nothing_away(spec: RepoSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow one reads first and writes last, after the quick one has looked at what it wrote."""
    has_read, go_on = threading.Event(), threading.Event()

    def slowly(table: Table) -> Table:
        if not has_read.is_set():
            has_read.set()
            go_on.wait(10)
        return having(table, "slow")

    slow = threading.Thread(target=ref_table.update, args=(spec, slowly))
    slow.start()
    assert has_read.wait(10)
    quick = threading.Thread(target=ref_table.update, args=(spec, lambda table: having(table, "quick")))
    quick.start()
    quick.join(0.3)  # without the announcement it would be done by now
    go_on.set()
    slow.join(20), quick.join(20)
    assert set(Table.read(spec).entries) == {"slow", "quick"}
    assert list(paths.partial().iterdir()) == []


def test_many_writers_lose_nothing(spec: RepoSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    write = paths.write_atomically

    def hesitating(path: Path, content: bytes) -> None:
        time.sleep(0.002 * (len(content) % 5))
        write(path, content)

    monkeypatch.setattr(paths, "write_atomically", hesitating)
    names = [f"v{number}" for number in range(8)]
    threads = [
        threading.Thread(target=ref_table.update, args=(spec, lambda table, name=name: having(table, name)))
        for name in names
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert set(Table.read(spec).entries) == set(names)


def test_nobody_waits_for_the_dead_or_for_another_table(spec: RepoSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "from hubcli.base import paths; print(paths.unique())"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(paths.__file__).parents[2],
    ).stdout.strip()
    with ref_table._announced(ref_table._file(spec)) as own:
        own.with_name(f"{own.name.partition('.')[0]}.{dead}.writing").touch()
    other = ref_table._file(RepoSpec.parse("o/other"))
    monkeypatch.setattr(ref_table, "_PATIENCE", 600.0)
    with ref_table._announced(other):
        ref_table.update(spec, lambda table: having(table, "v1"))
    assert set(Table.read(spec).entries) == {"v1"}


def test_a_writer_that_cannot_announce_itself_goes_on(spec: RepoSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def touch(self: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", touch)
    ref_table.update(spec, lambda table: having(table, "v1"))
    assert set(Table.read(spec).entries) == {"v1"}


def test_a_silent_writer_is_not_waited_for_long(spec: RepoSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ref_table, "_PATIENCE", 0.05)
    with ref_table._announced(ref_table._file(spec)):  # this process lives: it counts as at work
        ref_table.update(spec, lambda table: having(table, "v1"))
    assert set(Table.read(spec).entries) == {"v1"}
