"""--allow: which classes checkpoints may name, in every command that reads one, in a sandbox and under a lock file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from engine.serialization import allow
from engine.serialization.pickler import Global, Instance
from hubcli import cli, lockfile, settings
from hubcli.confined import sandbox
from hubcli.errors import LockMismatchError, UsageError
from hubcli.running import checkpoints
from tests.engine.serialization import forge
from tests.hubcli.models import Model
from tests.servers import Served, file_server, git_server

CONFIG = Instance(Global("__main__", "Config"), {"width": 3})
OTHER = Instance(Global("absent_package", "Other"), {"n": 1})
WEIGHT = forge.tensor((2, 2), (2, 1))
CHECKPOINT = forge.zipped(forge.pickled({"weight": WEIGHT, "config": CONFIG, "other": OTHER}))
ALLOWED = ("--allow", "__main__.Config", "--allow", "absent_package.Other")
HINT = "if you trust the file: --allow __main__.Config --allow absent_package.Other reads such objects"

HUBCONF = """import torch
from torch import nn

dependencies = ["torch"]


class Options:
    pass


def net(url=None, path=None):
    model = nn.Linear(2, 2, bias=False)
    state = torch.load(path) if path else torch.hub.load_state_dict_from_url(url, progress=False)
    assert state.pop("config").width == 3
    state.pop("other")
    model.load_state_dict(state)
    return model


def own(path):
    options = torch.load(path)["options"]
    assert type(options) is Options and options.width == 3
    return nn.Linear(options.width, 1)
"""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "files").mkdir()
    with file_server(tmp_path / "files") as served:
        yield served


@pytest.fixture
def model(tmp_path: Path, files: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """`o/m:v1` with the hubconf above; the current folder is an empty one."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    made = Model.create(tmp_path, files.url, hubconf=HUBCONF)
    (tmp_path / "files" / "config.pth").write_bytes(CHECKPOINT)
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield made


@pytest.fixture
def url(model: Model, files: Served) -> str:
    return f"{files.url}/config.pth"


def hub(*arguments: str) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments))


def test_every_command_that_runs_code(model, url):
    for command in (("load", "o/m:v1", "net"), ("pull", "o/m:v1", "--weights", "net"), ("check", "o/m:v1", "net"),
                    ("profile", "o/m:v1", "net", "--input-shape", "1,2")):  # fmt: skip
        given = (*command, "-k", f"url={url}", "--trust", "once")
        refused = hub(*given)
        assert refused.exit_code in (1, 6), refused.output
        assert "Unsupported global: __main__.Config was refused" in " ".join(refused.output.split())
        assert "--allow __main__.Config" in " ".join(refused.output.split())
        taken = hub(*given, *ALLOWED)
        assert taken.exit_code == 0, taken.output
    assert allow.get_safe_names() == [] and settings.current().allow == ()


def test_the_hint_names_all_of_them(model, url):
    result = hub("load", "o/m:v1", "net", "-k", f"url={url}", "--trust", "once")
    assert result.exit_code == 6 and HINT in result.stderr
    assert "config.pth was refused: Unsupported global: __main__.Config" in result.stderr


@pytest.mark.parametrize("name", [one for one, reason in sandbox.reasons().items() if reason is None] + ["best-effort"])
def test_in_a_sandbox(model, url, name, monkeypatch):
    monkeypatch.setattr(sandbox, "choose", lambda *args, **kwargs: sandbox.mechanism(name))
    given = ("load", "o/m:v1", "net", "-k", f"url={url}", "--trust", "once", "--sandbox")
    refused = hub(*given)
    assert refused.exit_code == 6 and HINT in refused.stderr
    assert hub(*given, *ALLOWED).exit_code == 0


def test_code_that_opens_a_file_by_itself(model, tmp_path):
    (tmp_path / "project" / "mine.pth").write_bytes(CHECKPOINT)
    given = ("load", "o/m:v1", "net", "-k", "path=mine.pth", "--trust", "once")
    refused = hub(*given)
    assert refused.exit_code == 6 and HINT in refused.stderr
    assert "hubconf.py:13: mine.pth was refused: Unsupported global: __main__.Config" in refused.stderr
    assert hub(*given, *ALLOWED).exit_code == 0


def test_classes_of_the_repository_are_built(model, tmp_path):
    options = Instance(Global("hubconf", "Options"), {"width": 3})
    (tmp_path / "project" / "own.pth").write_bytes(forge.zipped(forge.pickled({"options": options})))
    given = ("load", "o/m:v1", "own", "-k", "path=own.pth", "--trust", "once")
    refused = hub(*given)
    assert refused.exit_code == 6 and "--allow hubconf.Options" in refused.stderr
    assert hub(*given, "--allow", "hubconf.Options").exit_code == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("os.system", "os.system runs code instead of being data"),
        ("builtins.eval", "builtins.eval runs code instead of being data"),
        ("Config", "'Config' is not the name of a class"),
        ("a.*", "'a.*' is not the name of a class"),
        ("", "'' is not the name of a class"),
        ("a.b\x1b[31m", "is not the name of a class"),
    ],
)
def test_names_that_are_refused(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.pth").write_bytes(CHECKPOINT)
    for command in (("load", "o/m:v1", "net"), ("convert", "in.pth", "out.pth"), ("lock", "o/m:v1")):
        result = hub(*command, "--allow", name)
        assert result.exit_code == 2 and said in result.stderr
        assert "\x1b" not in result.stderr and result.stderr.count("\n") == 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["in.pth"]


def test_convert(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.pth").write_bytes(CHECKPOINT)
    refused = hub("convert", "in.pth", "out.safetensors")
    assert refused.exit_code == 6 and HINT in refused.stderr and not (tmp_path / "out.safetensors").exists()
    taken = hub("convert", "in.pth", "out.safetensors", *ALLOWED)
    assert taken.exit_code == 0 and "left out, not tensors: config.width, other.n" in taken.stderr
    assert hub("convert", "in.pth", "again.pth", *ALLOWED).exit_code == 0
    assert HINT in hub("convert", "again.pth", "b.safetensors").stderr


def test_what_no_option_allows_has_no_such_hint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.pth").write_bytes(forge.zipped(b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R."))
    result = hub("convert", "in.pth", "out.pth")
    assert result.exit_code == 6 and "--allow" not in result.stderr


# -- hub.lock


def lock(url: str, *more: str) -> Result:
    return hub("--json", "lock", "o/m:v1", "--weights", "net", "-k", f"url={url}", "--trust", "once", *more)


def test_a_lock_file_records_what_is_allowed(model, url):
    refused = lock(url)
    assert refused.exit_code == 6 and not Path("hub.lock").exists()
    made = lock(url, *ALLOWED, "--allow", "__main__.Config")
    assert made.exit_code == 0, made.output
    names = ["__main__.Config", "absent_package.Other"]
    assert json.loads(made.stdout)["repos"][0]["allow"] == names
    assert tomllib.loads(Path("hub.lock").read_text())["repo"][0]["allow"] == names
    given = ("load", "o/m:v1", "net", "-k", f"url={url}", "--trust", "once")
    for extra in (("--locked",), ("--frozen",), ("--locked", "--allow", "__main__.Config"), ("--locked", "--sandbox")):
        result = hub(*given, *extra)
        assert result.exit_code == 0, result.output
    assert hub(*given).exit_code == 6  # without --locked a lock file is no consent
    assert hub("lock", "o/m:v1").exit_code == 0  # pinned anew: what is recorded stays
    assert tomllib.loads(Path("hub.lock").read_text())["repo"][0]["allow"] == names
    assert hub("lock", "o/m:v1", "--locked").exit_code == 0


def test_under_a_lock_file_nothing_else_is_allowed(model, url):
    assert lock(url, *ALLOWED).exit_code == 0
    text = Path("hub.lock").read_text()
    given = ("load", "o/m:v1", "net", "-k", f"url={url}", "--trust", "once")
    for more in ((), ("--sandbox",)):
        result = hub(*given, "--locked", "--allow", "absent_package.More", *more)
        assert result.exit_code == 9, result.output
        assert "hub.lock does not record --allow absent_package.More for o/m:v1" in result.stderr
        assert "hint: hub lock o/m:v1 --allow absent_package.More records it" in result.stderr
    assert Path("hub.lock").read_text() == text
    Path("hub.lock").write_text(text.replace('    "absent_package.Other",\n', ""))
    assert hub(*given, "--locked").exit_code == 6
    assert hub("lock", "o/m:v1", "--allow", "a.B", "--locked").exit_code == 9


@pytest.mark.parametrize("value", ['"a.B"', "[1]", '["a"]', '["a.*"]', '["a.b c"]', "{}"])
def test_lock_files_with_something_else(model, url, value):
    assert lock(url, *ALLOWED).exit_code == 0
    text = re.sub(r"(?s)allow = \[.*?\]", lambda found: f"allow = {value}", Path("hub.lock").read_text())
    Path("hub.lock").write_text(text)
    result = hub("load", "o/m:v1", "net", "--locked")
    assert result.exit_code == 9 and "allow is not a list of classes" in result.stderr


def test_a_lock_file_allows_nothing_that_runs_code(model, url):
    assert lock(url, *ALLOWED).exit_code == 0
    Path("hub.lock").write_text(Path("hub.lock").read_text().replace("__main__.Config", "os.system"))
    result = hub("load", "o/m:v1", "net", "-k", f"url={url}", "--trust", "once", "--locked")
    assert result.exit_code == 9 and "os.system runs code" in result.stderr


def test_names_for_torch_itself_must_be_there():
    assert checkpoints._importable("argparse.Namespace").__name__ == "Namespace"
    for name in ("__main__.Absent", "no_such_package.X", "json.dumps"):
        with pytest.raises(UsageError, match="there is no such class, which torch itself would need"):
            checkpoints._importable(name)
    assert issubclass(LockMismatchError, Exception) and lockfile.NAME == "hub.lock"
