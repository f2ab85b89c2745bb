"""Looking after the cache: what verify finds and repairs, what prune takes, what a sweep clears."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.base import paths, settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts, prune, records, trees, verify, weights
from hubcli.cache.cache import Cache
from hubcli.errors import HubError
from hubcli.net.http import fetch as http
from tests.servers import Repository, Served, file_server, git_server

BODY = b"weights " * 500
SHA = hashlib.sha256(BODY).hexdigest()
HASHED = f"net-{SHA[:8]}.pth"
DAY = 86400


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": "", "a.txt": "one", "run.sh": "#!/bin/sh\n", "sub/b.txt": "b"})
    os.chmod(repo.work / "run.sh", 0o755)
    os.symlink("../a.txt", repo.work / "sub" / "link")
    repo.commit({"sub.txt": "sorts after sub/"}, tag="v1")
    return repo


@pytest.fixture
def server(tmp_path: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield served


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("net.pth", HASHED):
        (folder / name).write_bytes(BODY)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)
    with file_server(folder) as served:
        yield served


def spec(text: str) -> RepoSpec:
    return RepoSpec.parse(text)


def overwrite(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


def found(**options) -> list[tuple[str, str, bool]]:
    verified = Cache.current().verify(**options)
    return [(one.kind, one.problem.partition(":")[0], one.repaired) for one in verified.problems]


def age(path: Path, seconds: float) -> None:
    past = time.time() - seconds
    os.utime(path, (past, past), follow_symlinks=False)


class TestVerify:
    def test_gits_own_tree_id_comes_out(self, repo: Repository, server: Served) -> None:
        made = Cache.current().checkout(spec("o/r"))
        assert trees.identity(made.path) == made.tree == repo.git("rev-parse", "HEAD^{tree}")

    def test_a_whole_cache(self, server: Served, files: Served) -> None:
        Cache.current().checkout(spec("o/r"))
        Cache.current().checkout(spec("o/r:v1"))  # the same tree
        Cache.current().checkout(spec("o/r:v1"), Request.current(reload=True))
        weights.obtain(f"{files.url}/net.pth")
        weights.obtain(f"{files.url}/{HASHED}")  # the same content
        verified = Cache.current().verify()
        assert verified.problems == ()
        assert (verified.trees, verified.weights) == (2, 1)
        assert verified.bytes > 2 * 30 + len(BODY)

    @pytest.mark.parametrize("kind", ["stored", "deflated", "short", "no crc"])
    def test_an_archive_that_was_damaged_before_it_came(self, files: Served, tmp_path: Path, kind: str) -> None:
        """Its digest is the one that was recorded: what does not fit is the CRC-32 inside."""
        method = zipfile.ZIP_DEFLATED if kind in ("deflated", "short") else zipfile.ZIP_STORED
        with zipfile.ZipFile(tmp_path / "whole.zip", "w", method) as archive:
            archive.writestr("archive/data/0", bytes(range(256)) * 40)
        content = bytearray((tmp_path / "whole.zip").read_bytes())
        target = tmp_path / "files" / "damaged.pth"
        target.write_bytes(content)
        assert verify.damaged_entry(target) is None
        if kind == "no crc":  # as torch.serialization.set_crc32_options(False) writes it
            for place in (14, content.rindex(b"PK\x01\x02") + 16):
                content[place : place + 4] = bytes(4)
        else:
            place = content.index(b"archive/data/0") + len("archive/data/0") + (40 if kind == "stored" else 20)
            content[place : place + 4] = b"\xff\x00\xff\x00"
        target.write_bytes(content)
        weights.keep(f"{files.url}/damaged.pth", "damaged.pth", target)
        expected = None if kind == "no crc" else "archive/data/0"
        assert verify.damaged_entry(target) == expected
        problems = Cache.current().verify(repair=True).problems
        assert [(one.name, one.repaired) for one in problems] == ([] if expected is None else [("damaged.pth", False)])
        if expected is not None:
            assert problems[0].problem == "damaged: the CRC-32 of archive/data/0 in it is not what the archive says"

    def test_nothing_is_cached(self, hub_root: Path) -> None:
        assert Cache.current().verify() == verify.Verified(0, 0, 0, ())
        assert not hub_root.exists()

    @pytest.mark.parametrize(
        "damage",
        ["changed", "removed", "added", "mode", "link", "tree gone", "marker gone"],
    )
    def test_damaged_code_is_found_and_repaired_without_network(
        self, server: Served, hub_root: Path, damage: str
    ) -> None:
        made = Cache.current().checkout(spec("o/r:v1"))
        Cache.current().checkout(spec("o/r"))
        if damage == "changed":
            overwrite(made.path / "a.txt", b"two")
        elif damage == "removed":
            (made.path / "sub" / "b.txt").unlink()
        elif damage == "added":
            (made.path / "__pycache__").mkdir()
            (made.path / "__pycache__" / "hubconf.cpython-311.pyc").write_bytes(b"evil")
        elif damage == "mode":
            (made.path / "run.sh").chmod(0o444)
        elif damage == "link":
            (made.path / "sub" / "link").unlink()
            (made.path / "sub" / "link").symlink_to("b.txt")
        elif damage == "tree gone":
            shutil.rmtree(made.path)
        else:
            checkouts.marker(made.path).unlink()
        problem = "missing" if "gone" in damage else "changed"
        assert found() == [("code", problem, False)]
        server.reset()
        with settings.overriding(offline=True):
            assert found(repair=True) == [("code", problem, True)]
        assert server.requests == []
        again = Cache.current().lookup(spec("o/r:v1"))
        assert again is not None and again.commit == made.commit and again.generation != 1
        assert trees.identity(again.path) == made.tree
        both = Cache.current().lookup(spec("o/r"))
        assert both is not None and both.path == again.path == (hub_root / "o_r_v1").resolve()
        assert found() == [] and not made.path.exists()

    def test_a_damaged_database_too_needs_the_network(self, repo: Repository, server: Served, hub_root: Path) -> None:
        made = Cache.current().checkout(spec("o/r"))
        repo.commit({"a.txt": "the branch has moved on"})
        overwrite(made.path / "a.txt", b"two")
        for pack in (hub_root / "db").rglob("*.pack"):
            content = bytearray(pack.read_bytes())
            for place in range(12, len(content) - 20):
                content[place] ^= 0x55
            overwrite(pack, bytes(content))
        with settings.overriding(offline=True):
            ((kind, _, repaired),) = found(repair=True)
            assert (kind, repaired) == ("code", False)
        assert Cache.current().lookup(spec("o/r")) is not None  # damaged, but not lost
        assert found(repair=True) == [("code", "changed", True)]
        again = Cache.current().lookup(spec("o/r"))
        assert again is not None and again.commit == made.commit
        assert trees.identity(again.path) == made.tree

    def test_an_old_generation_goes_when_it_is_damaged(self, server: Served) -> None:
        old = Cache.current().checkout(spec("o/r"))
        new = Cache.current().checkout(spec("o/r"), Request.current(reload=True))
        overwrite(old.path / "a.txt", b"two")
        assert found(repair=True) == [("code", "an old generation has changed", True)]
        assert not old.path.exists() and new.path.is_dir() and found() == []

    @pytest.mark.parametrize("damage", ["changed", "truncated", "missing"])
    def test_damaged_weights_are_fetched_anew(self, files: Served, damage: str) -> None:
        _, path = weights.obtain(f"{files.url}/net.pth")
        before = path.stat()
        if damage == "missing":
            path.unlink()
        else:
            overwrite(path, BODY[::-1] if damage == "changed" else BODY[:100])
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # unnoticed by a hit
        problem = "missing" if damage == "missing" else "changed"
        assert found() == [("weights", problem, False)]
        assert found(repair=True) == [("weights", problem, True)]
        assert path.read_bytes() == BODY and found() == []

    def test_damaged_weights_are_dropped_where_they_cannot_be_fetched(self, files: Served, tmp_path: Path) -> None:
        _, path = weights.obtain(f"{files.url}/net.pth")
        overwrite(path, b"x")
        with settings.overriding(offline=True):
            assert found(repair=True) == [("weights", "changed", True)]
        assert not path.exists()
        (tmp_path / "files" / "net.pth").write_bytes(b"other")
        ((_, problem, repaired),) = found(repair=True)
        assert (problem, repaired) == (
            "missing; not repaired",
            False,
        )  # the server has another file now
        (tmp_path / "files" / "net.pth").write_bytes(BODY)
        assert weights.obtain(f"{files.url}/net.pth")[1].read_bytes() == BODY

    def test_files_of_ones_own_are_replaced_but_never_dropped(self, files: Served, tmp_path: Path) -> None:
        _, path = weights.obtain(f"{files.url}/net.pth", tmp_path / "mine")
        overwrite(path, b"mine")
        with settings.overriding(offline=True):
            assert found(repair=True) == [("weights", "changed", False)]
        assert path.read_bytes() == b"mine"
        assert found(repair=True) == [("weights", "changed", True)]
        assert path.read_bytes() == BODY

    def test_a_record_that_is_removed_meanwhile_is_no_problem(
        self, files: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weights.obtain(f"{files.url}/net.pth")
        (record,) = records.folder().glob("*.json")
        folder = records.folder

        class Listed:
            def glob(self, pattern: str) -> list[Path]:
                listed = list(folder().glob(pattern))
                record.unlink()
                return listed

        with monkeypatch.context() as patch:
            patch.setattr(records, "folder", Listed)
            assert [one for one in Cache.current().verify().problems if one.kind == "record"] == []

    def test_damaged_records_and_strange_blobs(self, server: Served, files: Served, hub_root: Path) -> None:
        Cache.current().checkout(spec("o/r"))
        weights.obtain(f"{files.url}/net.pth")
        (table,) = (hub_root / "refs").rglob("*.json")
        (record,) = (hub_root / "blobs" / "files").iterdir()
        for file in (table, record):
            file.write_text("{")
        stray = paths.blob("0" * 64)
        stray.parent.mkdir()
        stray.write_bytes(b"x")
        problems = found(repair=True)
        # the tree of a table that is gone is whole, and so is a blob whose record is gone
        assert problems == [("record", "damaged", True)] * 2 + [("weights", "changed", True)]
        assert found() == []
        assert weights.obtain(f"{files.url}/net.pth")[1].read_bytes() == BODY

    def test_what_is_removed_meanwhile_is_no_problem(self, server: Served, files: Served) -> None:
        made = Cache.current().checkout(spec("o/r"))
        weights.obtain(f"{files.url}/net.pth")
        table = verify.Table.read(spec("o/r"))
        check = verify._TreeCheck(spec("o/r:main"), table, table.entries["main"])
        (item,) = records.every()
        content = verify._WeightsCheck(item[1].content(), [item])
        Cache.current().remove(spec("o/r"))
        weights.remove("net.pth")
        assert not made.path.exists()
        assert check()[1] is None and content()[1] is None


class TestPrune:
    def test_nothing_young_goes(self, server: Served, files: Served, hub_root: Path) -> None:
        Cache.current().checkout(spec("o/r"))
        Cache.current().checkout(spec("o/r"), Request.current(reload=True))
        weights.obtain(f"{files.url}/net.pth")
        assert Cache.current().prune() == prune.Pruned((), 0)
        assert found() == []

    def test_nothing_is_cached(self, hub_root: Path) -> None:
        assert Cache.current().prune(max_size=0) == prune.Pruned((), 0)
        assert not hub_root.exists()

    def test_what_nothing_refers_to(self, repo: Repository, server: Served, files: Served, hub_root: Path) -> None:
        old = Cache.current().checkout(spec("o/r"))
        new = Cache.current().checkout(spec("o/r"), Request.current(reload=True))
        gone = Repository.create(repo.bare.parents[1], "o/gone")
        gone.commit({"hubconf.py": ""})
        lost = Cache.current().checkout(spec("o/gone"))
        (hub_root / "refs" / "github.com" / "o" / "gone.json").unlink()
        _, kept = weights.obtain(f"{files.url}/net.pth")
        stray = paths.blob("0" * 64)
        stray.parent.mkdir()
        stray.write_bytes(b"x" * 1000)
        link = hub_root / "checkpoints" / "dangling.pth"
        link.symlink_to("../blobs/sha256/11/11")
        mine = hub_root / "my_link"
        mine.symlink_to("/nowhere/of/hub")
        for path in (old.path, new.path, lost.path):
            age(checkouts.marker(path), 2 * DAY)
        for path in (stray, kept, *(hub_root / "db" / "github.com" / "o").iterdir()):
            age(path, 2 * DAY)
        planned = Cache.current().prune(dry_run=True)
        assert old.path.is_dir() and stray.exists() and os.path.lexists(link)
        pruned = Cache.current().prune()
        assert set(planned.removed) <= set(pruned.removed) and planned.freed > 1000
        for path in (old.path, checkouts.marker(old.path), lost.path, lost.path.parent, stray):
            assert not path.exists()
        assert not os.path.lexists(link) and os.path.lexists(mine)
        assert not os.path.lexists(hub_root / "o_gone_main")
        assert not list((hub_root / "db").rglob("gone-*"))
        assert new.path.is_dir() and kept.exists() and found() == []
        assert Cache.current().prune() == prune.Pruned((), 0)

    def test_the_grace_period_counts_from_the_last_use(self, server: Served) -> None:
        old = Cache.current().checkout(spec("o/r"))
        age(checkouts.marker(old.path), 9 * DAY)
        Cache.current().checkout(spec("o/r"), Request.current(reload=True))  # old since now
        assert Cache.current().prune() == prune.Pruned((), 0)
        time.sleep(0.02)
        assert Cache.current().prune(grace=0.01).removed and not old.path.exists()

    def test_a_clock_that_jumps_back_spares(self, server: Served, hub_root: Path) -> None:
        old = Cache.current().checkout(spec("o/r"))
        Cache.current().checkout(spec("o/r"), Request.current(reload=True))
        age(checkouts.marker(old.path), -400 * DAY)
        assert Cache.current().prune() == prune.Pruned((), 0)

    def test_leftovers(self, server: Served, hub_root: Path) -> None:
        made = Cache.current().checkout(spec("o/r"))
        partial = hub_root / "partial"
        dead, alive, far = _names()
        (partial / f"{dead}.tree").mkdir()
        (partial / f"{dead}.tree" / "a").write_text("x")
        (partial / f"x.{dead}.tmp").write_text("x")
        (partial / f"{alive}.tree").mkdir()
        (partial / f"{far}.tree").mkdir()
        other = dead[:-1] + ("1" if dead[-1] == "0" else "0")
        for unique, old in ((dead, False), (other, True)):
            download = partial / f"{'0' * 20}.{unique}"
            download.mkdir()
            (download / "body").write_bytes(b"x" * 100)
            if old:
                age(download / "body", 2 * DAY)
        (db,) = (hub_root / "db").rglob("*.git")
        (db / "shallow.lock").touch()
        (db / "objects" / "pack" / "tmp_pack_abc").write_text("x")
        unmarked = made.path.with_name(f"{made.commit}.7")
        unmarked.mkdir()
        Cache.current().prune()
        assert sorted(_left(hub_root)) == sorted([f"{alive}.tree", f"{far}.tree", f"{'0' * 20}.{dead}"])
        assert not (db / "shallow.lock").exists()
        assert not list(db.glob("objects/pack/tmp_*"))
        assert unmarked.exists()  # its marker may come any moment
        future = time.time() + 120
        _at(future, lambda: Cache.current().prune())
        assert not unmarked.exists() and Cache.current().lookup(spec("o/r")) is not None

    def test_a_fetch_sweeps_what_was_left(self, server: Served, hub_root: Path) -> None:
        made = Cache.current().checkout(spec("o/r"))
        dead, alive, _ = _names()
        (hub_root / "partial" / f"{dead}.trash").mkdir()
        (hub_root / "partial" / f"{alive}.tree").mkdir()
        (made.path.parent / f".{dead}.tmp").mkdir()
        Cache.current().checkout(spec("o/r"), Request.current(reload=True))
        assert _left(hub_root) == [f"{alive}.tree"]
        assert not list(made.path.parent.glob(".*"))

    def test_the_least_recently_used_go_first(
        self, repo: Repository, server: Served, files: Served, hub_root: Path
    ) -> None:
        for number in range(3):
            repo.commit({"big.bin": os.urandom(100_000)}, tag=f"t{number}")
            made = Cache.current().checkout(spec(f"o/r:t{number}"))
            age(checkouts.marker(made.path), (3 - number) * 3600)
        weights.obtain(f"{files.url}/net.pth")
        planned = Cache.current().prune(max_size=450_000, dry_run=True)
        assert planned.removed == ("o/r:t0", "o/r:t1")
        assert len(Cache.current().repos()) == 3
        assert Cache.current().prune(max_size=450_000) == planned
        assert [one.spec for one in Cache.current().repos()] == ["o/r:t2"]
        everything = Cache.current().prune(max_size=0)
        assert everything.removed == ("o/r:t2", "net.pth")
        assert Cache.current().repos() == [] and weights.list_blobs() == ()
        assert not list((hub_root / "db").rglob("*.git"))


def _left(root: Path) -> list[str]:
    """What is in partial/ beside the leases of this process."""
    return [path.name for path in (root / "partial").iterdir() if path.suffix != ".use"]


def _names() -> tuple[str, str, str]:
    """Name parts of a dead process, of one that lives, and of one on another machine."""
    code = "from hubcli.base import paths; print(paths.unique())"
    root = str(Path(paths.__file__).parents[2])
    child = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        check=True,
    )
    dead = child.stdout.strip()
    return dead, paths.unique(), "00000000" + dead[8:]


def _at(moment: float, work) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: moment)
        work()


class TestTwoVersions:
    def test_later_fields_are_no_obstacle(self, server: Served, files: Served, hub_root: Path) -> None:
        Cache.current().checkout(spec("o/r"))
        weights.obtain(f"{files.url}/net.pth")
        (table,) = (hub_root / "refs").rglob("*.json")
        document = json.loads(table.read_text())
        (section,) = document["remotes"].values()
        section["refs"]["main"]["signer"] = section["mirrors"] = document["more"] = "x"
        table.write_text(json.dumps(document))
        (record,) = (hub_root / "blobs" / "files").iterdir()
        record.write_text(json.dumps({**json.loads(record.read_text()), "signer": "x"}))
        with settings.overriding(offline=True):
            assert Cache.current().checkout(spec("o/r")).cached
            assert weights.obtain(f"{files.url}/net.pth")[1].read_bytes() == BODY
        assert found() == []

    def test_a_later_form_is_neither_read_nor_written_over(self, server: Served, hub_root: Path) -> None:
        Cache.current().checkout(spec("o/r"))
        (table,) = (hub_root / "refs").rglob("*.json")
        later = table.read_text().replace('"schema": 1', '"schema": 2')
        table.write_text(later)
        for work in (
            lambda: Cache.current().checkout(spec("o/r")),
            lambda: Cache.current().checkout(spec("o/r:v1")),
            lambda: Cache.current().remove(spec("o/r")),
            Cache.current().repos,
            Cache.current().prune,
            Cache.current().verify,
        ):
            with pytest.raises(HubError, match="later version of hub") as caught:
                work()
            assert "upgrade" in str(caught.value.hint)
        assert table.read_text() == later
