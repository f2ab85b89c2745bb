"""Who may execute: the record, the command line's gate, and torch.hub's."""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import pytest

from hubcli.base import paths, settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.errors import HubError, NotFoundError, UntrustedError, UsageError
from hubcli.trust import gates, records


@pytest.fixture
def checkout(sample_server) -> Checkout:
    return Cache.current().checkout(RepoSpec.parse("o/r:v1"))


def consent(spec: RepoSpec, trust_repo: bool | str | None, *rest: Any) -> None:
    gates.consent(spec, Request.current(trust=gates.of_trust_repo(trust_repo, spec)), *rest)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answer(monkeypatch, text: str) -> Terminal:
    screen = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(text + "\n"))
    monkeypatch.setattr("sys.stderr", screen)
    return screen


def test_without_a_terminal_the_way_out_is_named(checkout):
    with pytest.raises(UntrustedError) as caught:
        gates.require(checkout, "thing", Request.current())
    assert caught.value.status == 7
    assert checkout.commit in str(caught.value)
    assert f"hub trust add o/r:{checkout.commit} (or run again with" in str(caught.value.hint)


def test_folders_of_ones_own_are_trusted(sample_folder, hub_root):
    mine = Cache.current().checkout(RepoSpec.parse(str(sample_folder)))
    gates.require(mine, "thing", Request.current())
    consent(mine.spec, False, "load")
    assert gates.describe(mine) == "local"
    assert not hub_root.exists()


@pytest.mark.parametrize(("choice", "scope"), [("commit", "commit"), ("repo", "repo")])
def test_consent_is_recorded(checkout, choice, scope):
    gates.require(checkout, "thing", Request.current(trust=choice))
    gates.require(checkout, "thing", Request.current())
    gates.require(checkout, "thing", Request.current(trust=choice))
    (entry,) = records.entries()
    assert (entry.url, entry.spec) == (checkout.url, "o/r")
    assert (entry.scope, entry.how) == (scope, "option")
    assert entry.commit == (checkout.commit if scope == "commit" else None)
    assert gates.describe(checkout) == scope


def test_once_is_not_recorded(checkout):
    gates.require(checkout, "thing", Request.current(trust="once"))
    assert records.entries() == ()
    assert gates.describe(checkout) == "untrusted"
    with pytest.raises(UntrustedError):
        gates.require(checkout, "thing", Request.current())


def test_a_commit_is_not_the_next_commit(checkout, sample):
    gates.require(checkout, "thing", Request.current(trust="commit"))
    sample.commit({"new.txt": "x"}, tag="v2")
    other = Cache.current().checkout(RepoSpec.parse("o/r:v2"))
    with pytest.raises(UntrustedError):
        gates.require(other, "thing", Request.current())
    gates.require(checkout, "thing", Request.current(trust="repo"))
    gates.require(other, "thing", Request.current())


def test_the_environment_consents_too(checkout, monkeypatch):
    monkeypatch.setenv("HUB_TRUST", "commit")
    gates.require(checkout, "thing", Request.current())
    assert records.entries()[0].how == "environment"
    monkeypatch.setenv("HUB_TRUST", "strict")
    records.remove(checkout.spec)
    with pytest.raises(UntrustedError):
        gates.require(checkout, "thing", Request.current())


@pytest.mark.parametrize("text", ["o", "once", "y", "Yes", "c", "commit", "r", "REPO"])
def test_the_prompt(checkout, monkeypatch, text):
    screen = answer(monkeypatch, text)
    gates.require(checkout, "thing", Request.current())
    shown = screen.getvalue()
    for part in (
        "o/r:v1 wants to run code on this machine",
        f"repository    o/r  ({checkout.url})",
        "ref           tag v1",
        f"commit        {checkout.commit}",
        "signature     not signed",
        "entrypoint    thing(*args, **kwargs)",
        "dependencies  torch, json",
        f"code          {checkout.path}",
    ):
        assert part in shown
    assert "since then" not in shown
    assert [entry.how for entry in records.entries()] == ([] if text[0] in "oyY" else ["prompt"])


@pytest.mark.parametrize("text", ["", "n", "no", "x", "yes please"])
def test_the_prompt_is_declined(checkout, monkeypatch, text):
    answer(monkeypatch, text)
    with pytest.raises(UntrustedError):
        gates.require(checkout, "thing", Request.current())
    assert records.entries() == ()


def test_what_changed_since_another_commit_was_trusted(checkout, sample, monkeypatch):
    gates.require(checkout, "thing", Request.current(trust="commit"))
    (when,) = [entry.when for entry in records.entries()]
    sample.git("rm", "-q", "helpers.py")
    hubconf = (sample.work / "hubconf.py").read_text().replace("Sample", "Other")
    sample.commit({"hubconf.py": hubconf, "new.py": "", "a\nb\x1b[2J.txt": ""}, tag="v2")
    other = Cache.current().checkout(RepoSpec.parse("o/r:v2"))
    with pytest.raises(UntrustedError, match=f"commit {checkout.commit} of it is, since {when}"):
        gates.require(other, "thing", Request.current())
    screen = answer(monkeypatch, "n")
    with pytest.raises(UntrustedError):
        gates.require(other, "thing", Request.current())
    lines = screen.getvalue().splitlines()
    start = lines.index(f"  trusted       commit {checkout.commit}, since {when}")
    assert [line.strip() for line in lines[start + 1 : start + 6]] == [
        "since then    files: 1 changed, 2 added, 1 removed; hubconf.py CHANGED",
        "M  hubconf.py",
        "D  helpers.py",
        "A  new.py",
        "A  a?b?[2J.txt",
    ]
    assert "\x1b" not in screen.getvalue()


def test_changes_of_other_files_only(checkout, sample, monkeypatch):
    gates.require(checkout, "thing", Request.current(trust="commit"))
    sample.commit({f"{number:02}.txt": "" for number in range(12)}, tag="v2")
    other = Cache.current().checkout(RepoSpec.parse("o/r:v2"))
    asked = gates.question(other, "thing")
    assert len(asked.changes) == 12
    screen = answer(monkeypatch, "n")
    with pytest.raises(UntrustedError):
        gates.require(other, "thing", Request.current())
    assert "files: 12 added; hubconf.py is the same" in screen.getvalue()
    assert "and 2 more" in screen.getvalue() and "10.txt" not in screen.getvalue()


def test_what_changed_may_not_be_known(checkout, sample, monkeypatch):
    gates.require(checkout, "thing", Request.current(trust="commit"))
    document = json.loads(paths.trust_file().read_text())
    document["trusted"][0]["commit"] = "--output=x"
    paths.trust_file().write_text(json.dumps(document))
    screen = answer(monkeypatch, "n")
    with pytest.raises(UntrustedError):
        gates.require(checkout, "no_such_thing", Request.current())
    assert "that commit is no longer in the cache" in screen.getvalue()
    assert "entrypoint    no_such_thing\n" in screen.getvalue()


def test_a_branch_has_no_signature(sample_server):
    branch = Cache.current().checkout(RepoSpec.parse("o/r"))
    assert gates.question(branch, "").signature is None
    # the commit is there through the branch: its tag was never fetched
    tag = Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    assert gates.question(tag, "").signature == "unknown: the cache has the commit, not the tag"


TORCH_LIST = "pytorch_vision\n\nsnakers4_silero-models\nfacebookresearch_pytorch_video\n"


def test_torchs_list_is_imported_when_asked(checkout, hub_root, tmp_path):
    (hub_root / "trusted_list").write_text("o_r\n")
    with pytest.raises(UntrustedError):  # never silently honoured
        gates.require(checkout, "thing", Request.current())
    (tmp_path / "list").write_text(TORCH_LIST)
    made = records.import_list(tmp_path / "list")
    names = ["pytorch/vision", "snakers4/silero-models", "facebookresearch/pytorch_video"]
    assert [(one.spec, one.commit, one.how) for one in made] == [(name, None, "import") for name in names]
    assert records.entries() == made
    assert records.import_list(tmp_path / "list") == ()
    assert len(records.import_list(hub_root / "trusted_list")) == 1
    gates.require(checkout, "thing", Request.current())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a_b\nnothing\n", "line 2: 'nothing' is not owner_repo"),
        (b"a_b\n../.._x\n", "line 2: "),
        (b"a_b\n_x\n", "line 2: '_x' is not owner_repo"),
        (b"~_x\n", "line 1: '~_x' is not owner_repo"),
        (b"host_owner/repo\n", "line 1: .* is not owner_repo"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_a_list_is_imported_whole_or_not(content, message, tmp_path):
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        records.import_list(tmp_path / "list")
    with pytest.raises(NotFoundError):
        records.import_list(tmp_path / "nowhere")
    assert records.entries() == ()


def test_taking_it_back(checkout):
    gates.require(checkout, "thing", Request.current(trust="commit"))
    gates.require(checkout, "thing", Request.current(trust="repo"))
    with pytest.raises(NotFoundError):
        records.remove(checkout.spec, "0" * 40)
    assert len(records.remove(checkout.spec, checkout.commit)) == 1
    assert len(records.remove(checkout.spec)) == 1
    with pytest.raises(NotFoundError):
        records.remove(checkout.spec)


def test_a_damaged_record_trusts_nobody(checkout):
    gates.require(checkout, "thing", Request.current(trust="repo"))
    paths.trust_file().write_text("{")
    with pytest.raises(HubError, match="cannot be read"):
        gates.require(checkout, "thing", Request.current())
    paths.trust_file().write_text(json.dumps({"version": 3, "trusted": []}))
    with pytest.raises(HubError, match="cannot be read"):
        records.entries()


# torch.hub's gate


def test_none_warns_once_per_repository(checkout):
    with pytest.warns(UserWarning, match="load runs code of o/r, which is not among the trusted"):
        consent(checkout.spec, None, "load")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consent(checkout.spec, None, "load")
        consent(RepoSpec.parse("o/r:other"), None, "load")


def test_true_records_and_check_accepts(checkout):
    consent(checkout.spec, True, "load")
    assert [entry.scope for entry in records.entries()] == ["repo"]
    consent(checkout.spec, True, "load")
    consent(checkout.spec, "check", "load", lambda question: pytest.fail(question))
    assert len(records.entries()) == 1


def test_check_accepts_a_trusted_commit(checkout):
    gates.require(checkout, "thing", Request.current(trust="commit"))
    consent(checkout.spec, "check", "load", lambda question: pytest.fail(question))


@pytest.mark.parametrize("value", [False, "check"])
@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ("n", UntrustedError, "Untrusted repository."),
        ("", UntrustedError, "Untrusted repository."),
        ("maybe", ValueError, "Unrecognized response maybe."),
        ("Y", None, ""),
        ("yes", None, ""),
    ],
)
def test_asking_as_torch_asks(sample_server, value, said, error, message):
    spec = RepoSpec.parse("o/r:v1")
    questions = []

    def ask(question):
        questions.append(question)
        return said

    if error is None:
        consent(spec, value, "load", ask)
        assert [entry.scope for entry in records.entries()] == ["repo"]
    else:
        with pytest.raises(error) as caught:
            consent(spec, value, "load", ask)
        assert str(caught.value) == message
    assert questions[0].startswith("The repository o_r does not belong to the list of trusted")
    assert sample_server.requests == []


def test_false_always_asks(checkout):
    consent(checkout.spec, True, "load")
    with pytest.raises(UntrustedError):
        consent(checkout.spec, False, "load", lambda question: "n")


def test_nobody_to_ask(checkout, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(UntrustedError, match="nobody to ask") as caught:
        consent(checkout.spec, "check", "load")
    assert "hub trust add o/r:v1 --repo" in str(caught.value.hint)
    with settings.overriding(trust="strict"), pytest.raises(UntrustedError):
        consent(checkout.spec, None, "load")


def test_other_values(checkout):
    with pytest.raises(UsageError, match="trust_repo must be"):
        consent(checkout.spec, "always", "load")
