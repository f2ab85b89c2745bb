"""`hub import-torch-hub`: what torch.hub left behind is found, checked, taken over, and left in place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubcli.base.spec import RepoSpec
from hubcli.cache import weights
from hubcli.cache.cache import Cache
from hubcli.terminal import cli
from hubcli.workflows import migration
from tests.servers import Repository

BODY = b"weights of a network" * 10
NAME = f"net-{hashlib.sha256(BODY).hexdigest()[:8]}.pth"


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def run(*more: str) -> dict:
    result = hub("--json", "import-torch-hub", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def old(isolated: Path) -> Path:
    """torch.hub's folder, with weights."""
    folder = isolated / "cache" / "torch" / "hub"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / NAME).write_bytes(BODY)
    (folder / "checkpoints" / "plain.pth").write_bytes(b"no digest")
    (folder / "checkpoints" / "bad-12345678.pth").write_bytes(b"another")
    (folder / "checkpoints" / f"{NAME}.0123456789abcdef0123456789abcdef.partial").write_bytes(b"half")
    return folder


def unpack(old: Path, sample: Repository, name: str) -> Path:
    """As torch.hub unpacks an archive of a repository."""
    shutil.copytree(sample.work, old / name, ignore=shutil.ignore_patterns(".git"))
    (old / name / "__pycache__").mkdir()
    (old / name / "__pycache__" / "hubconf.cpython-311.pyc").write_bytes(b"x")
    return old / name


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("*") if p.is_file()
    }


def test_weights(old, hub_root):
    before = state(old)
    assert {Path(one["path"]).name: one["status"] for one in run("--dry-run")["weights"]} == {
        NAME: "new",
        "plain.pth": "new",
        "bad-12345678.pth": "refused",
    }
    assert not hub_root.exists()
    made = run()
    assert [one["status"] for one in made["weights"]] == ["refused", "new", "new"]
    assert "invalid hash value" in made["weights"][0]["reason"]
    assert made["weights"][1]["sha256"] == hashlib.sha256(BODY).hexdigest()
    assert (hub_root / "checkpoints" / NAME).read_bytes() == BODY
    assert not (hub_root / "checkpoints" / "bad-12345678.pth").exists()
    assert state(old) == before
    assert [one["status"] for one in run()["weights"]] == ["refused", "there", "there"]


def test_what_was_imported_is_used_offline(old):
    run()
    shutil.rmtree(old)
    assert hub("--offline", "cache", "prune").exit_code == 0
    from hubcli.base import settings

    with settings.overriding(offline=True):
        weight, path = weights.obtain(f"https://example.org/{NAME}")
        assert path.read_bytes() == BODY and weight.sha256 == hashlib.sha256(BODY).hexdigest()
        assert weights.obtain("https://example.org/plain.pth")[1].read_bytes() == b"no digest"


@pytest.mark.parametrize("variable", ["TORCH_HOME", "XDG_CACHE_HOME", None])
def test_where_it_looks(variable, tmp_path, monkeypatch, isolated):
    place = tmp_path / "elsewhere"
    base = {"TORCH_HOME": place, "XDG_CACHE_HOME": place / "torch", None: isolated / ".cache" / "torch"}[variable]
    monkeypatch.delenv("XDG_CACHE_HOME")
    if variable:
        monkeypatch.setenv(variable, str(place))
    (base / "hub" / "checkpoints").mkdir(parents=True)
    (base / "hub" / "checkpoints" / NAME).write_bytes(BODY)
    assert [one["path"] for one in run("--dry-run")["weights"]] == [str(base / "hub" / "checkpoints" / NAME)]


def test_hubs_own_cache_is_not_imported(old, monkeypatch):
    monkeypatch.setenv("TORCH_HUB_DIR", str(old))
    made = run()
    assert made["weights"] == made["checkouts"] == []
    assert "torch.hub has nothing here" in hub("import-torch-hub").stdout


def test_a_checkout_is_pulled_and_compared(old, sample, sample_server):
    same = unpack(old, sample, "o_r_v1")
    other = unpack(old, sample, "o_r_main")
    (other / "hubconf.py").write_text("raise SystemExit('executed')\n")
    (other / "gone.py").write_text("")
    before = state(old)
    sample_server.reset()
    found = run("--dry-run")["checkouts"]
    assert [(one["spec"], one["status"]) for one in found] == [("o/r:main", "found"), ("o/r:v1", "found")]
    assert sample_server.requests == []
    made = {one["spec"]: one for one in run()["checkouts"]}
    assert (made["o/r:v1"]["status"], made["o/r:v1"]["changed"]) == ("pulled", 0)
    assert (made["o/r:main"]["status"], made["o/r:main"]["changed"]) == ("pulled", 2)
    assert Cache.current().lookup(RepoSpec.parse("o/r:v1")) is not None and state(old) == before and same.is_dir()
    assert {one["status"] for one in run()["checkouts"]} == {"there"}
    assert hub("--offline", "list", "o/r:main").exit_code == 0


def test_the_folders_are_named(old, isolated, monkeypatch):
    """Where from: the user may delete what is there, and must know which."""
    where = str(old / "checkpoints")
    told = hub("import-torch-hub", "--dry-run").stderr
    assert f"found in {where}" in told and "stay" not in told
    told = hub("import-torch-hub").stderr
    assert f"imported from {where}; " in told and "stay there" in told
    monkeypatch.setenv("TORCH_HOME", str(isolated / "none"))
    shutil.rmtree(old)
    nothing = hub("import-torch-hub").stdout
    assert str(isolated / "none") in nothing and str(isolated / "cache" / "torch") in nothing


def test_names_with_underscores(old, sample, sample_server, tmp_path):
    named = Repository.create(tmp_path / "served", "team/my_models")
    named.commit({"hubconf.py": "def a():\n    pass\n"}, tag="v1")
    named.git("branch", "release/1_0")
    named.push()
    for name in ("team_my_models_v1", "team_my_models_release_1_0"):
        unpack(old, named, name)
    (old / "trusted_list").write_text("team_my_models\nnonsense\n../x_y\n")
    made = run()
    pulled = {one["spec"]: one["status"] for one in made["checkouts"]}
    assert pulled == {"team/my_models:v1": "pulled", "team/my_models:release/1_0": "pulled"}
    assert made["trusted_list"] == str(old / "trusted_list")
    specs = [str(spec) for spec in migration._specs("team_my_models_release_1_0", ["team_my_models"])]
    assert specs[:3] == [f"team/my_models:release{rest}" for rest in ("_1_0", "/1_0", "/1/0")]
    assert [str(spec) for spec in migration._specs("pytorch_vision_v0.10.0", [])] == ["pytorch/vision:v0.10.0"]
    assert len(list(migration._specs("_".join("abcdefghijklmnop"), []))) <= 6


def test_what_cannot_be_pulled_is_left(old, sample, sample_server):
    unpack(old, sample, "nobody_nothing_main")
    unpack(old, sample, "o_r_v1")
    unpack(old, sample, "-x_y_z")
    left = {Path(one["path"]).name: one for one in run()["checkouts"]}
    assert (left["nobody_nothing_main"]["status"], left["-x_y_z"]["status"]) == ("left", "left")
    assert "no repository at" in left["nobody_nothing_main"]["reason"] and left["-x_y_z"]["spec"] is None
    assert left["o_r_v1"]["status"] == "pulled"
    assert "left: " in hub("import-torch-hub").stdout
    assert hub("cache", "rm", "o/r:v1", "--yes").exit_code == 0
    result = hub("--offline", "--json", "import-torch-hub")
    assert {one["reason"] for one in json.loads(result.stdout)["checkouts"] if one["spec"] == "o/r:v1"} == {
        "hub is offline"
    }


def test_the_first_use_says_so_once(old, sample_server, tmp_path, monkeypatch):
    hint = f"torch.hub has downloads in {old / 'checkpoints'}: `hub import-torch-hub` takes them over"
    assert hint in hub("pull", "o/r:v1").stderr
    assert "import-torch-hub" not in hub("pull", "o/r").stderr
    monkeypatch.setenv("TORCH_HUB_DIR", str(tmp_path / "fresh"))
    shutil.rmtree(old)
    assert "import-torch-hub" not in hub("pull", "o/r:v1").stderr


def test_a_link_is_not_followed_into_the_cache(old, hub_root):
    """A name that lies in hub's cache already stays what it is."""
    (hub_root / "checkpoints").mkdir(parents=True)
    os.symlink(hub_root / "nowhere", hub_root / "checkpoints" / NAME)
    assert next(one for one in run()["weights"] if one["path"].endswith(NAME))["status"] == "there"
    assert not (hub_root / "nowhere").exists()
