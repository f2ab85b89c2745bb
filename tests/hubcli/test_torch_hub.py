"""torch.hub's functions: names, messages, order, on a real repository."""

from __future__ import annotations

import os
import sys
import warnings

import pytest

from hubcli import torch_hub
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.errors import NetworkError, NotFoundError
from hubcli.trust import records
from tests.servers import dead_server

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_load_passes_arguments_on(sample_server):
    value = torch_hub.load("o/r:v1", "thing", 1234, pretrained=True)
    assert value.args == (1234,)
    assert value.kwargs == {"pretrained": True}


def test_github_is_accepted_as_a_keyword(sample_server):
    assert torch_hub.load(github="o/r:v1", model="noisy") == "sample"
    assert "thing" in torch_hub.list(github="o/r:v1")
    assert torch_hub.help(github="o/r:v1", model="strict") == "Takes what its signature says."
    value = torch_hub.load("o/r:v1", "thing", github="mine")
    assert value.kwargs == {"github": "mine"}


def test_list_and_help_import(sample_server):
    assert torch_hub.list("o/r:v1")[:3] == ["OrderedDict", "Thing", "broken"]
    assert torch_hub.help("o/r:v1", "thing") == "Make a thing.\n\nIt holds its arguments."
    assert torch_hub.help("o/r:v1", "noisy") is None


def test_messages(sample_server, capfd):
    torch_hub.load("o/r:v1", "strict", 1)
    capfd.readouterr()
    torch_hub.load("o/r:v1", "strict", 1)
    path = Cache.current().lookup(RepoSpec.parse("o/r:v1")).path
    assert capfd.readouterr() == ("", f"Using cache found in {path}\n")
    torch_hub.load("o/r:v1", "strict", 1, verbose=False)
    assert capfd.readouterr() == ("", "")


def test_what_the_entrypoint_prints_stays_on_stdout(sample_server, capfd):
    torch_hub.load("o/r:v1", "noisy")
    assert "printed" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: torch_hub.load("a", "m"), ValueError, "'a'"),
        (lambda: torch_hub.load("a/b/c/d", "m"), ValueError, "a/b/c/d"),
        (lambda: torch_hub.load("a/b:c:d", "m"), ValueError, "c:d"),
        (lambda: torch_hub.load("o/r", 3), ValueError, "Invalid input: model should be a string"),
        (lambda: torch_hub.help("o/r", None), ValueError, "Invalid input: model should be"),
        (
            lambda: torch_hub.load("o/r", "m", source="Web"),
            ValueError,
            'Unknown source: "web". Allowed values: "github" | "local".',
        ),
        (lambda: torch_hub.load(), TypeError, "repo_or_dir"),
        (lambda: torch_hub.load("o/r:v1", "nope"), RuntimeError, "Cannot find callable nope in hubconf"),
        (lambda: torch_hub.help("o/r:v1", "nope"), RuntimeError, "Cannot find callable nope"),
        (lambda: torch_hub.load("o/r:v1", "strict"), TypeError, "missing 1 required positional"),
        (lambda: torch_hub.load("o/r:v1", "broken"), ValueError, "cannot do"),
        (lambda: torch_hub.load("o/r:nowhere", "thing"), NotFoundError, "nowhere"),
        (lambda: torch_hub.load("o/nowhere", "thing"), NotFoundError, "nowhere"),
    ],
)
def test_errors(sample_server, call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


def test_local_folders(sample_folder, hub_root, monkeypatch):
    monkeypatch.chdir(sample_folder.parent)
    assert torch_hub.load("mine", "strict", 1, source="local", trust_repo=False) == (1, 2, False)
    assert torch_hub.load(str(sample_folder), "strict", 1, source="LOCAL") == (1, 2, False)
    assert torch_hub.load("./mine", "strict", 1) == (1, 2, False)
    with pytest.raises(FileNotFoundError):
        (sample_folder / "hubconf.py").unlink()
        torch_hub.load("mine", "strict", source="local")
    assert not hub_root.exists()


def test_trust_is_asked_before_the_download(sample_server, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda question: "n")
    for function in (torch_hub.load, torch_hub.help):
        with pytest.raises(RuntimeError, match=r"^Untrusted repository\.$"):
            function("o/r:v1", "thing", trust_repo="check")
    with pytest.raises(RuntimeError, match=r"^Untrusted repository\.$"):
        torch_hub.list("o/r:v1", trust_repo=False)
    assert sample_server.requests == []
    monkeypatch.setattr("builtins.input", lambda question: "y")
    torch_hub.load("o/r:v1", "thing", trust_repo="check")
    assert records.entries()[0].scope == "repo"


@pytest.mark.parametrize("cached", [False, True])
def test_arguments_that_cannot_fit_run_nothing(sample_server, sample, tmp_path, monkeypatch, cached):
    ran = tmp_path / "ran"
    sample.commit({"hubconf.py": f"open({str(ran)!r}, 'w').close()\ndef net(width):\n    return width\n"}, tag="v2")
    if cached:
        torch_hub.pull("o/r:v2")
    with pytest.raises(TypeError, match=r"net\(\) got an unexpected keyword argument 'colour'") as caught:
        torch_hub.load("o/r:v2", "net", 1, colour=2, trust_repo="check" if cached else True)
    assert caught.value.__notes__ == ["hint: its signature is net(width)"]
    assert not ran.exists()


def test_hits_need_no_network(sample_server, monkeypatch):
    torch_hub.load("o/r:v1", "thing")
    torch_hub.load("o/r", "thing")
    sample_server.reset()
    torch_hub.load("o/r:v1", "thing")
    torch_hub.load("o/r", "thing", skip_validation=True)
    assert sample_server.requests == []


def test_force_reload_keeps_the_old_on_failure(sample_server, sample, monkeypatch):
    assert torch_hub.load("o/r", "strict", 1) == (1, 2, False)
    text = (sample.work / "hubconf.py").read_text().replace("depth=2", "depth=3")
    sample.commit({"hubconf.py": text})
    assert torch_hub.load("o/r", "strict", 1) == (1, 2, False)
    assert torch_hub.load("o/r", "strict", 1, force_reload=True) == (1, 3, False)
    with dead_server() as url:
        monkeypatch.setenv("HUB_GIT_URL", f"{url}/{{owner}}/{{repo}}.git")
    monkeypatch.setenv("HUB_GIT_URL", f"{sample_server.url}/{{owner}}/{{repo}}.git")
    sample_server.credentials = "secret"
    with pytest.raises((NetworkError, NotFoundError)):
        torch_hub.load("o/r", "strict", 1, force_reload=True)
    assert torch_hub.load("o/r", "strict", 1) == (1, 3, False)


def test_two_refs_of_a_repository_in_one_process(sample_server, sample):
    sample.commit({"helpers.py": "NAME = 'two'\nclass Thing: pass\n"}, tag="v2")
    assert torch_hub.load("o/r:v1", "noisy") == "sample"
    assert torch_hub.load("o/r:v2", "noisy") == "two"
    assert torch_hub.load("o/r:v1", "noisy") == "sample"


def test_nothing_leaks(sample_server):
    before = list(sys.path), os.getcwd()
    plain = {name for name in sys.modules if name in ("hubconf", "helpers", "utils")}
    torch_hub.load("o/r:v1", "thing")
    with pytest.raises(ValueError):
        torch_hub.load("o/r:v1", "broken")
    assert (list(sys.path), os.getcwd()) == before
    assert {name for name in sys.modules if name in ("hubconf", "helpers", "utils")} == plain


def test_a_nested_load_in_python_warns_for_itself(sample_server, tmp_path):
    outer = tmp_path / "outer"
    outer.mkdir()
    (outer / "hubconf.py").write_text("import torch\ndef net():\n    return torch.hub.load('o/r:v1', 'thing')\n")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch_hub.load(str(outer), "net")
    texts = [str(one.message) for one in said]
    assert any("o/r, which is not among the trusted" in text for text in texts)


def test_directories(hub_root, tmp_path, monkeypatch):
    assert torch_hub.get_dir() == str(hub_root)
    torch_hub.set_dir(tmp_path / "other")
    assert torch_hub.get_dir() == str(tmp_path / "other")
    torch_hub.set_dir("~/hub")
    assert torch_hub.get_dir() == os.path.expanduser("~/hub")


def test_pull_returns_the_checkout(sample_server, sample):
    pulled = torch_hub.pull("o/r:v1")
    assert (pulled.kind, pulled.commit, pulled.cached) == (
        "tag",
        sample.git("rev-parse", "v1"),
        False,
    )
    assert torch_hub.pull("o/r:v1").cached
    assert torch_hub.pull("o/r:v1", force_reload=True).generation == 2


def test_model_zoo_name():
    assert torch_hub.load_url is torch_hub.load_state_dict_from_url
