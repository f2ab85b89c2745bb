"""Owner and mode with real users: what another one plants in a cache or a list of consents does not run.

Needs root, which alone can be somebody else; a forked child takes the other user's number for good.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hubcli.base import paths, settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import ref_table, trees
from hubcli.cache.cache import Cache
from hubcli.errors import HubError
from hubcli.net.git import database
from hubcli.trust import gates, records

VICTIM, ATTACKER = 61_001, 61_002

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")


def as_user(number: int, work: Callable[[], object]) -> str:
    """What `work` gives or raises in a child that is user `number`, as text; stderr of the child comes first."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            os.close(read)
            os.dup2(write, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
            os.setgroups([])
            os.setgid(number)
            os.setuid(number)
            with open("/proc/self/status") as file:
                assert number == 0 or "CapEff:\t0000000000000000" in file.read()
            said = f"done: {work()}"
        except HubError as error:
            said = f"{type(error).__name__}: {error.message}"
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        text = file.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody reaches, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="hub-users-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cache(place, sample_server, monkeypatch) -> Path:
    """A cache with one repository, and a folder of settings; both root's as yet."""
    (place / "config").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    monkeypatch.setenv("HOME", str(place))
    root = place / "hub"
    settings.override(hub_dir=root)
    checkout = Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    # this imports what a child without rights to Python's folder needs
    gates.require(checkout, "thing", Request.current(trust="commit"))
    records.entries()
    trees._require_sound.cache_clear()
    paths.check_owner.cache_clear()
    yield root
    paths.check_owner.cache_clear()


def give(folder: Path, number: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, number, number, follow_symlinks=False)


def plant(root: Path, marker: Path) -> None:
    """As the attacker: other code in the place of the checkouts."""
    checkouts = root / "checkouts"
    shutil.copytree(checkouts, root / "mine", symlinks=True)
    for path in (root / "mine").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (hubconf,) = (root / "mine").rglob("hubconf.py")
    hubconf.write_text(f"open({str(marker)!r}, 'w')\ndef thing():\n    return 1\n")
    checkouts.rename(root / "theirs")
    (root / "mine").rename(checkouts)


def allowed() -> str:
    checkout = Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    gates.require(checkout, "thing", Request.current(trust="once"))
    return "allowed"


def test_root_does_not_use_what_others_may_replace(cache, place):
    assert as_user(ATTACKER, lambda: plant(cache, place / "ran")).find("Permission denied") > 0
    allowed()
    cache.chmod(0o777)
    assert as_user(ATTACKER, lambda: plant(cache, place / "ran")) == "done: None"
    paths.check_owner.cache_clear()
    with pytest.raises(HubError, match=f"others may write to {cache}, so that code from there is not safe"):
        allowed()
    assert not (place / "ran").exists()


def test_root_does_not_use_a_cache_that_was_there_before(cache, place):
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777)

    def make() -> None:
        shutil.copytree(cache, shared / "hub", symlinks=True)

    assert as_user(ATTACKER, make) == "done: None"
    settings.override(hub_dir=shared / "hub")
    with pytest.raises(HubError, match=f"belongs to another user \\(number {ATTACKER}\\)"):
        allowed()


def test_a_link_leads_through_what_others_may_replace(cache, place):
    """The names above a linked cache are root's own, those that the link leads through are not."""
    (place / "open").mkdir()
    cache.rename(place / "open" / "hub")
    cache.symlink_to(place / "open" / "hub")
    allowed()
    (place / "open").chmod(0o777)
    paths.check_owner.cache_clear()
    with pytest.raises(HubError, match=f"others may write to {place / 'open'}"):
        allowed()


def test_a_user_is_warned_and_runs_nothing_else(cache, place):
    give(place / "hub", VICTIM)
    give(place / "config", VICTIM)
    assert as_user(VICTIM, allowed) == "done: allowed"
    cache.chmod(0o777)
    assert as_user(ATTACKER, lambda: plant(cache, place / "ran")) == "done: None"
    said = as_user(VICTIM, lambda: [allowed() for _ in range(2)])
    assert said.count("so that others may choose what runs") == 1
    assert "IntegrityError: " in said and "is not what commit" in said, said
    assert not (place / "ran").exists()


@pytest.mark.parametrize("how", ["file", "folder", "other"])
def test_a_list_of_consents_that_others_may_write(cache, place, how):
    give(place / "hub", VICTIM)
    give(place / "config", VICTIM)
    file = paths.trust_file()
    spec = RepoSpec.parse("evil/repo")
    planted = {
        "version": 2,
        "trusted": [{"url": spec.canonical, "spec": "evil/repo", "commit": None, "when": "", "how": ""}],
    }

    def write() -> None:
        temporary = file.with_name("planted") if how != "file" else file
        temporary.write_text(json.dumps(planted))
        if how != "file":
            temporary.replace(file)

    assert "Permission denied" in as_user(ATTACKER, write)
    file.parent.chmod(0o755 if how == "file" else 0o777)
    file.chmod(0o666)
    assert as_user(ATTACKER, write) == "done: None"
    if how == "other":
        file.parent.chmod(0o755)
    for user in (VICTIM, 0):
        said = as_user(user, lambda: records.lookup(spec, "0" * 40))
        assert said.startswith("warning: ") and said.endswith("done: None"), said
        assert said.count("who may execute is not read from there") == 1
        assert "no consent is recorded there" in as_user(user, lambda: records.add(spec, None, "test"))


def test_a_database_that_others_may_write(cache, place):
    give(place / "hub", VICTIM)
    db = paths.db(ref_table.Table.read(RepoSpec.parse("o/r:v1")).key)
    db.chmod(0o777)

    def write() -> None:
        program = place / "program"
        (db / "config").unlink()
        (db / "config").write_text(f"[core]\n\talternateRefsCommand = {program}\n\tfsmonitor = {program}\n")

    assert as_user(ATTACKER, write) == "done: None"
    assert as_user(VICTIM, lambda: database.disarm(db)) == "done: None"
    assert (db / "config").read_bytes() == database.CONFIG
    assert (db / "config").stat().st_uid == VICTIM
    # where it cannot be put right, nothing is run from there
    write()
    os.chown(db, ATTACKER, ATTACKER)
    db.chmod(0o755)
    assert "which cannot be replaced" in as_user(VICTIM, lambda: database.disarm(db))


def test_what_hub_writes_is_not_for_others(cache, place, monkeypatch):
    old = os.umask(0o022)
    try:
        settings.override(hub_dir=place / "new")
        allowed()
    finally:
        os.umask(old)
    for path in (place / "new").rglob("*"):
        if not path.is_symlink():
            assert not path.stat().st_mode & stat.S_IWOTH, path
