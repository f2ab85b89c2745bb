"""Consent is for one URL and one commit, is asked before anything is fetched, and secrets stay with named hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from hubcli import torch_hub
from hubcli.base import paths, request, settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.confined import jobs, sandbox
from hubcli.confined.broker import Broker
from hubcli.errors import UntrustedError, UsageError
from hubcli.net.http import secret_scope
from hubcli.trust import gates, records
from tests.hubcli.hostile import HUBCONF
from tests.servers import Repository, git_server

TOKEN = "s3cret-token"


def key(text: str) -> str:
    return RepoSpec.parse(text).canonical


# What a consent is for


def test_every_url_has_its_own_key():
    different = [
        "https://example.org/owner/repo.git",
        "https://example.org/owner/repo",
        "https://example.org/Owner/repo",
        "http://example.org/owner/repo.git",
        "ssh://example.org/owner/repo.git",
        "ssh://git@example.org/owner/repo.git",
        "https://example.org:8443/owner/repo.git",
        "file:///good/owner/repo.git",
        "file:///evil/owner/repo.git",
        "file:///evil/owner/repo",
        "owner/repo",
        "http://github.com/owner/repo",
    ]
    assert len({key(text) for text in different}) == len(different)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Owner/Repo", "https://github.com/owner/repo"),
        ("owner/repo:v1", "https://GitHub.com/owner/repo.git@v2"),
        ("https://example.org:443/o/r", "https://EXAMPLE.org/o/r/"),
        ("https://example.org/%6F/r", "https://example.org/o/r"),
    ],
)
def test_one_repository_has_one_key(one, other):
    assert key(one) == key(other)


def test_trust_in_one_file_is_not_trust_in_another(monkeypatch):
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "file")
    records.add(RepoSpec.parse("file:///good/owner/repo.git"), None, "command")
    assert records.lookup(RepoSpec.parse("file:///evil/owner/repo.git"), "a" * 40) is None


def test_another_git_url_inherits_nothing_and_a_mirror_keeps_the_key(monkeypatch):
    records.add(RepoSpec.parse("o/r"), None, "command")
    monkeypatch.setenv("HUB_REWRITE", "https://github.com/=https://mirror.example/")
    assert records.lookup(RepoSpec.parse("o/r"), None) is not None
    monkeypatch.setenv("HUB_GIT_URL", "https://evil.example/{owner}/{repo}.git")
    assert records.lookup(RepoSpec.parse("o/r"), None) is None


# Where it is kept


def test_a_record_in_the_cache_counts_for_nothing(sample_server, hub_root, capsys):
    checkout = Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    planted = {"repo": "github.com/o/r", "spec": "o/r", "commit": None, "when": "", "how": "prompt"}
    new = {**planted, "url": checkout.spec.canonical}
    for document in ({"version": 1, "trusted": [planted]}, {"version": 2, "trusted": [new]}):
        (hub_root / "trust.json").write_text(json.dumps(document))
        for _ in range(2):
            with pytest.raises(UntrustedError):
                gates.require(checkout, "thing", Request.current())
    said = capsys.readouterr().err
    assert said.count(f"hub trust import {hub_root / 'trust.json'}") == 1
    (made,) = records.import_list(hub_root / "trust.json")
    assert (made.url, made.commit, made.how) == (checkout.spec.canonical, None, "import")
    gates.require(checkout, "thing", Request.current())
    assert not paths.trust_file().is_relative_to(hub_root)
    assert paths.trust_file().is_relative_to(paths.config_file().parent)


@pytest.mark.parametrize(
    "entry", [{"spec": "./x", "commit": None}, {"spec": "o/r", "commit": "--output=x"}, {"spec": "o/r"}, 3]
)
def test_an_old_record_is_imported_whole_or_not(tmp_path, entry):
    document = {"version": 1, "trusted": [{"spec": "o/first", "commit": None}, entry]}
    (tmp_path / "trust.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match="no list of repositories"):
        records.import_list(tmp_path / "trust.json")
    assert records.entries() == ()


# When it is asked


@pytest.mark.filterwarnings("ignore:entrypoint 'thing' returned")
def test_python_asks_for_the_commit_that_will_run(sample, sample_server, monkeypatch):
    gates.require(Cache.current().checkout(RepoSpec.parse("o/r")), "thing", Request.current(trust="commit"))
    assert torch_hub.load("o/r", "thing", trust_repo="check") is not None
    changed = (sample.work / "hubconf.py").read_text().replace("Thing(args, kwargs)", "sys.exit('other code ran')")
    sample.commit({"hubconf.py": changed})
    asked = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "n")
    for name, rest in (("load", ["thing"]), ("list", []), ("help", ["thing"])):
        with pytest.raises(UntrustedError):
            getattr(torch_hub, name)("o/r", *rest, trust_repo="check", force_reload=True)
    assert len(asked) == 3
    with pytest.warns(UserWarning, match="not among the trusted"), pytest.raises(SystemExit):
        torch_hub.load("o/r", "thing")


def test_code_of_a_command_has_nothing_fetched_that_nobody_allowed(sample_server, sample_folder, monkeypatch):
    from hubcli.running import invoke

    mine = Cache.current().checkout(RepoSpec.parse(str(sample_folder)))
    for options in ({}, {"trust_repo": True}, {"force_reload": True}):
        with pytest.raises(UntrustedError, match="o/r:v1, which running code asks for, is not trusted"):
            invoke.call(mine, "nested", ("o/r:v1", "thing"), options, command=True)
    assert sample_server.requests == []
    records.add(RepoSpec.parse("o/r"), "0" * 40, "command")  # another commit: it may be looked at, not run
    with pytest.raises(UntrustedError, match="at commit"):
        invoke.call(mine, "nested", ("o/r:v1", "thing"), command=True)


def test_consent_to_a_call_is_not_consent_to_what_its_code_loads(sample_server, sample, tmp_path):
    from hubcli.terminal import cli

    outer = Repository.create(tmp_path / "served", "o/outer")
    outer.commit({"hubconf.py": "import torch\ndef net():\n    return torch.hub.load('o/r:v1', 'thing')\n"}, tag="v1")
    for scope in ("once", "commit", "repo"):
        result = CliRunner().invoke(cli.hub, ["load", "o/outer:v1", "net", "--trust", scope])
        assert result.exit_code == 7, result.output
        assert "o/r:v1, which running code asks for, is not trusted" in result.output
    assert not any("/o/r.git" in one.path for one in sample_server.requests)
    assert {one.url for one in records.entries()} == {key("o/outer")}


def test_a_request_for_a_job_leaves_its_consent_behind(monkeypatch):
    monkeypatch.setattr(request, "_established", None)
    request.establish(Request(reload=True, trust="repo"))
    assert (Request.current().trust, Request.current().reload) == (None, True)


def threaded(folder: Path, body: str) -> Checkout:
    """Return a folder whose entrypoint `net` does `body` in a thread of its own, and raises what it raises."""
    folder.mkdir()
    code = f"""
import concurrent.futures
import torch

def net(*args, **kwargs):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit({body}, *args, **kwargs).result()
"""
    (folder / "hubconf.py").write_text(code)
    return Cache.current().checkout(RepoSpec.parse(str(folder)))


def test_a_thread_of_code_cannot_consent_either(sample_server, tmp_path):
    from hubcli.running import invoke

    mine = threaded(tmp_path / "mine", "torch.hub.load")
    for options in ({}, {"trust_repo": True}):
        with pytest.raises(UntrustedError, match="o/r:v1, which running code asks for, is not trusted"):
            invoke.call(mine, "net", ("o/r:v1", "thing"), options, command=True)
    assert sample_server.requests == [] and records.entries() == ()


# Where secrets go


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The user's server and another, each with a repository."""
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    monkeypatch.setenv("HUB_TOKEN", TOKEN)
    roots = tmp_path / "own", tmp_path / "evil"
    for root in roots:
        Repository.create(root, "a/b").commit({"hubconf.py": HUBCONF}, tag="v1")
    with git_server(roots[0]) as own, git_server(roots[1]) as evil:
        monkeypatch.setenv("HUB_GIT_URL", f"{own.url}/{{owner}}/{{repo}}.git")
        yield SimpleNamespace(own=own, evil=evil)


def secrets(served) -> list[str]:
    return [one.headers["Authorization"] for one in served.requests if "Authorization" in one.headers]


@pytest.mark.long
@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "best-effort"])
def test_sandboxed_code_spends_no_token_elsewhere(two, name, monkeypatch):
    if name != "best-effort" and sandbox.reasons()[name]:
        pytest.skip(f"{name}: {sandbox.reasons()[name]}")
    checkout = Cache.current().checkout(RepoSpec.parse("a/b:v1"))
    assert secrets(two.own)  # the user's own command may
    two.own.reset()

    def nested() -> UntrustedError | None:
        job = jobs.Job("load", checkout, "nested", (f"{two.evil.url}/a/b.git@v1", "net"))
        with sandbox.session() as here:
            broker = Broker(checkout, "nested", inbox=here.inbox)
            return sandbox.perform(job, sandbox.mechanism(name), here, broker=broker).error

    refused = nested()
    assert refused is not None and refused.code == "untrusted"
    assert two.evil.requests == []
    monkeypatch.setenv("HUB_TRUST", "once")
    assert nested() is None
    assert two.evil.requests and secrets(two.evil) == []


def test_a_folder_of_ones_own_names_no_host(two, sample_folder):
    from hubcli.running import invoke

    mine = Cache.current().checkout(RepoSpec.parse(str(sample_folder)))
    with settings.overriding(trust="once"):
        invoke.call(mine, "nested", ("a/b:v1", "net"), command=True)
    assert two.own.requests and secrets(two.own) == []


def test_a_thread_of_code_names_no_host_either(two, tmp_path):
    from hubcli.running import invoke

    mine = threaded(tmp_path / "threaded", "torch.hub.load")
    with settings.overriding(trust="once"):
        invoke.call(mine, "net", ("a/b:v1", "net"), command=True)
    assert two.own.requests and secrets(two.own) == []


def test_a_strangers_lock_file_names_no_host(two, tmp_path):
    from hubcli.terminal import cli

    (tmp_path / "hub.lock").write_text(f'version = 1\n[[repo]]\nspec = "{two.evil.url}/a/b.git@v1"\n')
    arguments = ["sync", "--lock-file", str(tmp_path / "hub.lock")]
    result = CliRunner().invoke(cli.hub, arguments)
    assert result.exit_code == 0, result.output
    assert two.evil.requests and secrets(two.evil) == []


def test_git_helpers_answer_for_named_hosts_only(two, monkeypatch, tmp_path):
    from hubcli.net.git import remote as git

    monkeypatch.delenv("HUB_TOKEN")
    config = tmp_path / "gitconfig"
    config.write_text('[credential]\n\thelper = "!f() { echo password=leak; }; f"\n[http]\n\tproxy = http://p\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))

    def passed() -> list[str]:
        return [value for name, value in git.Remote.of(two.evil.url).environment.items() if "CONFIG_KEY" in name]

    assert "credential.helper" in passed()[-5:]
    with secret_scope.naming(secret_scope.hosts(two.own.url)):
        assert passed().count("credential.helper") == 1  # ours, which is empty
        assert "http.proxy" in passed()


def test_naming_only_ever_narrows():
    with secret_scope.naming({"a", "b"}), secret_scope.naming({"b", "c"}):
        assert secret_scope.may_have_secrets("https://b/x") and not secret_scope.may_have_secrets("https://a/x")
        assert not secret_scope.may_have_secrets("https://c/x")
    assert secret_scope.may_have_secrets("https://c/x")


# Files of this machine


@pytest.mark.long
@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "best-effort"])
@pytest.mark.parametrize("entrypoint", ["weighted", "downloads", "retrieves", "nested"])
def test_a_child_reads_no_file_through_the_parent(tmp_path, isolated, name, entrypoint, monkeypatch):
    if name != "best-effort" and sandbox.reasons()[name]:
        pytest.skip(f"{name}: {sandbox.reasons()[name]}")
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,file")
    monkeypatch.setenv("HUB_TRUST", "once")
    secret = isolated / "secret.safetensors"
    secret.write_bytes(b"the secret")
    (tmp_path / "mirror").mkdir()
    monkeypatch.setenv("HUB_REWRITE", f"https://example.org/=file://{tmp_path}/mirror/")
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    away = "../home/secret.safetensors"
    for url in (
        f"file://{secret}",
        f"FILE://{secret}",
        f"https://example.org/{away}",
        f"https://example.org/%2e%2e/{away[3:]}",
        f"https://example.org/a/%252e%2e/{away}",
    ):
        job = jobs.Job("load", checkout, entrypoint, (url, "net") if entrypoint == "nested" else (url,))
        with sandbox.session() as here:
            broker = Broker(checkout, entrypoint, inbox=here.inbox)
            outcome = sandbox.perform(job, sandbox.mechanism(name), here, broker=broker)
            assert not any(b"the secret" in p.read_bytes() for p in here.inbox.rglob("*") if p.is_file())
        assert outcome.error is not None, outcome


def test_rewrites_stay_below_their_target(monkeypatch):
    monkeypatch.setenv("HUB_REWRITE", "https://a/x/=https://mirror/y/,https://b=file:///m")
    assert settings.rewrite_url("https://a/x/1/../2?q=../..") == "https://mirror/y/2?q=../.."
    assert settings.rewrite_url("https://a/x/a%20b") == "https://mirror/y/a%20b"
    for bad in ("https://a/x/../z", "https://a/x/%2e%2e/z", "https://a/x/1/..\\../../z", "https://b/../etc/passwd"):
        with pytest.raises(UsageError, match="leads out of"):
            settings.rewrite_url(bad)
