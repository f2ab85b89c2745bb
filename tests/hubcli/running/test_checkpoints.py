"""--allow: which classes checkpoints may name, in every command that reads one, in a sandbox and under a lock file."""

from __future__ import annotations

import io
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from engine.serialization import allow
from engine.serialization.gguf import write_gguf
from engine.serialization.pickler import Global, Instance
from hubcli.base import settings
from hubcli.cache import lockfile
from hubcli.confined import sandbox
from hubcli.errors import LockMismatchError, UsageError
from hubcli.running import checkpoints
from hubcli.terminal import cli
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
    for command in (
        ("load", "o/m:v1", "net"),
        ("pull", "o/m:v1", "--weights", "net"),
        ("check", "o/m:v1", "net"),
        ("profile", "o/m:v1", "net", "--input-shape", "1,2"),
    ):
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
    assert "config.pth was refused: Unsupported global: __main__.Config was refused\n" in result.stderr


@pytest.mark.long
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


# -- files that are no checkpoint, in every command

WHOLE = forge.zipped(forge.pickled({"weight": WEIGHT}))
LEGACY = forge.legacy({"weight": forge.tensor((2, 2), (2, 1), 0, forge.storage(view=None))}, [("0", 4, forge.FLOATS)])
SAFE = forge.safetensors(b'{"weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}')
GGUF = io.BytesIO()
write_gguf(GGUF, {}, {"weight": np.ones((2, 8), np.float32)})
BAD = {
    "zip": (WHOLE[: len(WHOLE) // 2], "truncated"),
    "legacy": (LEGACY[:-9], "truncated"),
    "tar": (forge.tarred(forge.tar_parts())[:700], "truncated"),
    "safetensors": (SAFE[:-1], "truncated"),
    "header": (SAFE[:20], "truncated"),
    "gguf": (GGUF.getvalue()[:-1], "truncated"),
    "crc": (WHOLE.replace(forge.FLOATS, forge.FLOATS[:-1] + b"\x01"), "CRC-32"),
    "page": (b"<!DOCTYPE html><html>not found</html>", "a web page"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "Git LFS pointer"),
    "empty": (b"", "is empty"),
}


@pytest.mark.parametrize("kind", BAD)
def test_the_file_that_cannot_be_read_is_named(model, tmp_path, kind):
    content, reason = BAD[kind]
    Path("mine.pth").write_bytes(content)
    for command in (
        ("convert", "mine.pth", "out.safetensors"),
        ("show", "mine.pth"),
        ("load", "o/m:v1", "net", "-k", "path=mine.pth", "--trust", "once"),
    ):
        result = hub(*command)
        assert result.exit_code == 6, (command, result.output)
        assert "mine.pth was refused: " in result.stderr and reason in result.stderr
        assert result.stderr.count("mine.pth") == 1 or command[0] == "load"
    assert not Path("out.safetensors").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["zip", "crc", "safetensors", "gguf"])
def test_a_download_that_cannot_be_read_is_named_and_not_kept(model, files, tmp_path, kind):
    (tmp_path / "files" / "bad.pth").write_bytes(BAD[kind][0])
    given = ("load", "o/m:v1", "net", "-k", f"url={files.url}/bad.pth", "--trust", "once")
    for more in ((), ("--sandbox=best-effort",)):
        result = hub(*given, *more)
        assert result.exit_code == 6 and "bad.pth was refused: " in result.stderr and BAD[kind][1] in result.stderr
        assert not (tmp_path / "hub" / "checkpoints" / "bad.pth").exists()


# -- sharded checkpoints

PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
ROWS = """import torch
from torch import nn

dependencies = ["torch"]


def net(url):
    model = nn.Linear(2, 2)
    model.load_state_dict(torch.hub.load_state_dict_from_url(url, progress=False))
    assert model.weight.tolist() == [[1, 2], [3, 4]] and model.bias.tolist() == [1, 2]
    return model
"""


@pytest.fixture
def sharded(tmp_path: Path, files: Served, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is served, with two files and their index; the current folder has a repository."""
    served = tmp_path / "files"
    bias = b'{"bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    (served / PARTS[0]).write_bytes(SAFE)
    (served / PARTS[1]).write_bytes(forge.safetensors(bias, forge.FLOATS[:8]))
    index = {"metadata": {"total_size": 24}, "weight_map": {"weight": PARTS[0], "bias": PARTS[1]}}
    (served / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(ROWS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    return served


def test_the_url_of_an_index(sharded, files):
    url = f"{files.url}/model.safetensors.index.json"
    for more in ((), ("--sandbox=best-effort",), ("--offline",)):
        result = hub("--json", "load", "./repo", "net", "-k", f"url={url}", *more)
        assert result.exit_code == 0, result.output
        assert [one["file"] for one in json.loads(result.stdout)["weights"]] == ["model.safetensors.index.json", *PARTS]
    assert hub("cache", "verify").exit_code == 0


def test_an_index_leads_nowhere_else(sharded, files):
    index = sharded / "model.safetensors.index.json"
    (sharded.parent / "secret.safetensors").write_bytes(SAFE)
    for name in ("../secret.safetensors", f"{sharded.parent}/secret.safetensors", "http://127.0.0.1:9/x"):
        index.write_text(json.dumps({"weight_map": {"weight": name}}))
        result = hub("load", "./repo", "net", "-k", f"url={files.url}/{index.name}")
        assert result.exit_code == 6 and "which is no plain file beside it" in result.stderr, result.output
        assert not list(sharded.parent.glob("**/checkpoints/*secret*"))


def test_the_file_of_an_index_that_cannot_be_read_is_named(sharded, files):
    whole = (sharded / PARTS[1]).read_bytes()
    (sharded / PARTS[1]).write_bytes(whole[:-1])
    given = ("load", "./repo", "net", "-k", f"url={files.url}/model.safetensors.index.json")
    result = hub(*given)
    assert result.exit_code == 6 and f"{PARTS[1]} was refused: " in result.stderr and "truncated" in result.stderr
    (sharded / PARTS[1]).write_bytes(whole)
    assert hub(*given).exit_code == 0  # nothing was kept of it
    (sharded / PARTS[1]).unlink()


def test_convert_and_show_of_an_index(sharded):
    index = "files/model.safetensors.index.json"
    shown = json.loads(hub("--json", "show", index).stdout)
    assert shown["format"] == "sharded" and shown["files"] == [Path(index).name, *PARTS] and shown["bytes"] == 24
    assert [one["name"] for one in shown["tensors"]] == ["weight", "bias"]
    assert hub("convert", index, "one.safetensors").exit_code == 0
    assert hub("convert", index, "one.pth").exit_code == 0
    for name in ("one.safetensors", "one.pth"):
        told = json.loads(hub("--json", "show", name).stdout)
        assert told["tensors"] == shown["tensors"] and told["files"] == [name]
    (sharded / PARTS[0]).unlink()
    for command in (("convert", index, "two.pth"), ("show", index)):
        result = hub(*command)
        assert result.exit_code == 6 and f"{PARTS[0]}, which the index names, is not beside it" in result.stderr
    assert not Path("two.pth").exists()


# -- hub show of a file


def test_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.pth").write_bytes(CHECKPOINT)
    refused = hub("show", "net.pth")
    assert refused.exit_code == 6 and HINT in refused.stderr
    shown = hub("show", "net.pth", *ALLOWED)
    assert shown.exit_code == 0, shown.output
    assert "weight  float32  2 x 2" in shown.stdout and "config.width, other.n" in shown.stdout
    for name in ("net.ckpt", "./noext"):
        Path(name).write_bytes(WHOLE)
        assert json.loads(hub("--json", "show", name).stdout)["format"] == "zip"
    assert hub("show", "absent.safetensors").exit_code == 3
    assert hub("show", "o/m:v1", "--allow", "a.B").exit_code == 2


def test_python_permits_as_with_torch(model, url):
    """`torch.serialization.safe_globals` and `safe_names` around `hubcli.load`."""
    import hubcli
    from engine import serialization

    with serialization.safe_names(["__main__.Config", "absent_package.Other"]):
        made = hubcli.load("o/m:v1", "net", url=url, trust_repo=True, verbose=False)
    assert made.weight.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(hubcli.torch_hub.IntegrityError, match="Config was refused"):
        hubcli.load("o/m:v1", "net", url=url, trust_repo=True, verbose=False)
