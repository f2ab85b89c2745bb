"""Files that the user names in an entrypoint's arguments can be read in a sandbox, and no others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from engine import serialization
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.confined import jobs, named_files, sandbox
from hubcli.terminal import cli
from tests.engine.serialization import forge

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

HUBCONF = """import json
import os
import torch
from torch import nn

dependencies = ["torch"]


def net(path=None, paths=(), options=None, other=None, writes=None):
    for one in ([path] if path else []) + list(paths) + list((options or {}).values()):
        state = torch.load(one)
    if other:
        for one in other.split("|"):
            try:
                open(one).close()
            except OSError:
                continue
            raise SystemExit("could read " + one)
    if writes:
        try:
            open(writes.strip("|"), "ab").close()
        except OSError:
            pass
        else:
            raise SystemExit("could write")
    model = nn.Linear(2, 2, bias=False)
    model.load_state_dict({"weight": state["weight"].reshape(2, 2)})
    return model


def lists(folder):
    assert sorted(os.listdir(folder)) == ["a.pth", "b.pth"], os.listdir(folder)
    return net(os.path.join(folder, "a.pth"))
"""
CHECKPOINT = forge.zipped(forge.pickled({"weight": forge.tensor()}))


@pytest.fixture(params=["bubblewrap", "landlock", "best-effort"])
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The mechanism by which the commands run."""
    name: str = request.param
    reason = sandbox.reasons().get(name)
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    monkeypatch.setattr(sandbox, "choose", lambda *args, **kwargs: sandbox.mechanism(name))
    return name


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a repository and weights beside and above it."""
    made = tmp_path / "work" / "project"
    for folder in (made / "repo", made / "weights", made / "home"):
        folder.mkdir(parents=True)
    (made / "repo" / "hubconf.py").write_text(HUBCONF)
    for place in (made / "mine.pth", made / "weights" / "a.pth", made / "weights" / "b.pth", made.parent / "up.pth"):
        place.write_bytes(CHECKPOINT)
    monkeypatch.setenv("HOME", str(made / "home"))
    monkeypatch.chdir(made)
    return made


def check(*arguments: str) -> Result:
    return CliRunner().invoke(cli.hub, ["--json", "check", "./repo", *arguments])


@pytest.mark.long
def test_files_by_every_name(chosen, project):
    (project / "link.pth").symlink_to(project / "mine.pth")
    for given in (
        ("-k", "path=mine.pth"),
        ("-k", f"path={project}/mine.pth"),
        ("-k", "path=weights/a.pth"),
        ("-k", "path=./mine.pth"),
        ("-k", "path=../up.pth"),
        ("-k", "path=link.pth"),
        ("-k", 'paths=["mine.pth", "weights/b.pth"]'),
        ("-k", 'options={"x": "mine.pth"}'),
        ("--args", '["mine.pth"]'),
    ):
        result = check("net", *given)
        assert result.exit_code == 0, (given, result.output)
    result = check("lists", "-k", f"folder={project}/weights")
    assert result.exit_code == 0, result.output
    assert check("lists", "-k", "folder=./weights").exit_code == 0


def test_an_index_and_its_files(chosen, project):
    serialization.save_safetensors(
        {"weight": serialization.load(project / "mine.pth")["weight"]}, project / "x.safetensors"
    )
    (project / "x.index.json").write_text(json.dumps({"weight_map": {"weight": "x.safetensors"}}))
    assert check("net", "-k", "path=x.index.json").exit_code == 0


@pytest.mark.parametrize("chosen", ["bubblewrap", "landlock"], indirect=True)
def test_nothing_else_is_readable(chosen, project):
    others = f"{project}/weights/a.pth|{project.parent}/up.pth|weights/a.pth|"
    result = check("net", "-k", "path=mine.pth", "-k", f"other={others}")
    assert result.exit_code == 0, result.output
    result = check("net", "-k", f"path={project}/mine.pth", "-k", f"writes={project}/mine.pth|")
    assert result.exit_code == 0, result.output
    assert (project / "mine.pth").read_bytes() == CHECKPOINT


def found(*args: Any, **kwargs: Any) -> tuple[jobs.Job, named_files.Named]:
    checkout = Cache.current().checkout(RepoSpec.parse("./repo"))
    return named_files.find(jobs.Job("check", checkout, "net", args, kwargs))


def test_what_counts_as_named(project):
    """Words that happen to be folders do not, nor do addresses, the home folder and what lies above it, or .git."""
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("token")
    for text in (
        "weights",
        ".",
        "..",
        "/",
        str(project),
        str(project / "home"),
        "home/",
        "absent.pth",
        "",
        "x\0y",
        ".git/config",
        "file:///etc/hosts",
        "x" * 5000,
        "https://example.org/mine.pth",
    ):
        job = jobs.Job("check", Cache.current().checkout(RepoSpec.parse("./repo")), "net", (text,), {"k": [text]})
        assert found(text, k=[text]) == (job, named_files.Named((), ())), text
    job, named = found("mine.pth", 5, None, a="../up.pth", b=["./weights"])
    assert job.args == ("mine.pth", 5, None) and job.kwargs == {"a": str(project.parent / "up.pth"), "b": ["./weights"]}
    assert dict(named.linked) == {"mine.pth": str(project / "mine.pth"), "./weights": str(project / "weights")}
    assert set(named.read) == {str(project / "mine.pth"), str(project / "weights"), str(project.parent / "up.pth")}


def test_names_that_are_taken_stay(project, tmp_path):
    (tmp_path / "mine.pth").write_text("hub's own")
    named_files.link(found("mine.pth", "weights/a.pth")[1], tmp_path)
    assert (tmp_path / "mine.pth").read_text() == "hub's own"
    assert (tmp_path / "weights" / "a.pth").read_bytes() == CHECKPOINT
