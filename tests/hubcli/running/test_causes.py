"""What led to an error of repository code: one line each, in the terminal, in JSON, in check's rows and in JUnit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from hubcli import errors
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.errors import Cause, HubError, NetworkError, RepositoryCodeError, as_document, as_error
from hubcli.running import causes, invoke
from hubcli.terminal import cli

HUBCONF = """
dependencies = ["torch"]
import torch
from torch import nn


def wrapped():
    try:
        open("/no/such/best.pt")
    except OSError as error:
        raise RuntimeError("see the documentation") from error


def handled():
    try:
        {}["key"]
    except KeyError:
        raise RuntimeError("not found")


def hidden():
    try:
        {}["key"]
    except KeyError:
        raise RuntimeError("not found") from None


def group():
    raise ExceptionGroup("several", [ValueError("one"), ExceptionGroup("more", [TypeError("two")])])


def noted():
    error = ValueError("no")
    error.add_note("run setup.sh\\nfirst")
    raise error


def chain(count=20):
    def deeper(n):
        try:
            if n:
                deeper(n - 1)
            else:
                raise ValueError("the deepest")
        except Exception as error:
            raise RuntimeError(f"level {n}") from error

    deeper(count)


def circle():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    raise one


def wordless():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    raise ValueError("outer") from Odd()


def escapes():
    raise ValueError("outer") from ValueError("\\x1b[31mred\\nhint: nothing")


def kind(width: int = 3):
    try:
        {}["table"]
    except KeyError as error:
        raise ValueError("bad width") from error


def gap():
    return torch.ones(2) @ torch.ones(3)


def mirror():
    try:
        open("/no/such/local.pt")
    except OSError:
        return torch.hub.load_state_dict_from_url("ftp://example.org/x.pth")


class Net(nn.Module):
    def forward(self, x):
        try:
            raise KeyError("inside")
        except KeyError as error:
            raise ValueError("the shape of the input is wrong") from error


def model():
    return Net()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "hubconf.py").write_text(HUBCONF)
    return made


def line(text: str, after: str = "") -> int:
    lines = HUBCONF.splitlines()
    return lines.index(text, lines.index(after) if after else 0) + 1


def hub(*words: str) -> Result:
    return CliRunner().invoke(cli.hub, list(words))


def error_of(folder: Path, name: str, **kwargs: Any) -> HubError:
    with pytest.raises(HubError) as caught:
        invoke.call(
            Cache.current().checkout(RepoSpec.parse(str(folder))), name, (), kwargs, command=True, framework="engine"
        )
    return caught.value


def test_a_cause_and_a_context(folder) -> None:
    at = line('        open("/no/such/best.pt")')
    text = f"hubconf.py:{at}: FileNotFoundError: [Errno 2] No such file or directory: '/no/such/best.pt'"
    assert error_of(folder, "wrapped").causes == (Cause("cause", text),)
    at = line('        {}["key"]')
    assert error_of(folder, "handled").causes == (Cause("context", f"hubconf.py:{at}: KeyError: 'key'"),)
    assert error_of(folder, "hidden").causes == ()


def test_groups_and_notes(folder) -> None:
    assert error_of(folder, "group").causes == (
        Cause("part", "ValueError: one"),
        Cause("part", "ExceptionGroup: more (1 sub-exception)"),
        Cause("part", "TypeError: two"),
    )
    assert error_of(folder, "noted").causes == (Cause("note", "run setup.sh first"),)


def test_a_long_chain_is_cut_in_its_middle(folder) -> None:
    found = error_of(folder, "chain").causes
    assert len(found) == causes.MAX_SHOWN + 1
    assert found[0].text.endswith("RuntimeError: level 19") and found[-1].text.endswith("ValueError: the deepest")
    assert found[causes.MAX_SHOWN // 2] == Cause("note", "13 more between these")
    assert len(error_of(folder, "chain", count=400).causes) == causes.MAX_SHOWN + 1


def test_chains_that_mean_no_good(folder) -> None:
    assert [one.text for one in error_of(folder, "circle").causes] == ["ValueError: two"]
    assert error_of(folder, "wordless").causes == (Cause("cause", "Odd: no message"),)
    result = hub("load", str(folder), "escapes")
    assert "\x1b" not in result.stderr
    assert "\ncause: ValueError: [31mred hint: nothing\n" in result.stderr


def test_what_the_engine_tells_in_its_own_words_has_no_causes(folder) -> None:
    assert error_of(folder, "gap").causes == ()


def test_errors_of_hubs_own_tell_what_the_code_was_handling(folder) -> None:
    assert [one.kind for one in error_of(folder, "kind", width="x").causes] == ["cause"]
    found = error_of(folder, "mirror")
    assert not isinstance(found, RepositoryCodeError)
    assert [one.kind for one in found.causes] == ["context"] and "local.pt" in found.causes[0].text


def test_for_people_and_as_json(folder, tmp_path, monkeypatch) -> None:
    said = hub("load", str(folder), "chain", "-k", "count=1")
    lines = [one for one in said.stderr.splitlines() if one.startswith(("hub:", "cause:", "hint:"))]
    assert said.exit_code == 70
    assert [one.rpartition(": ")[2] for one in lines[:3]] == ["level 1", "level 0", "the deepest"]
    assert lines[3].startswith("hint:")
    monkeypatch.setenv("HUB_DEBUG", "1")
    lines = [one for one in hub("load", str(folder), "chain", "-k", "count=1").stderr.splitlines() if "cause: " in one]
    assert [one.rpartition(": ")[2] for one in lines[-2:]] == ["the deepest", "level 0"]
    monkeypatch.delenv("HUB_DEBUG")
    told = json.loads(hub("--json", "load", str(folder), "wrapped").stdout)["error"]
    assert told["causes"][0]["kind"] == "cause" and "best.pt" in told["causes"][0]["text"]


def test_forward_and_files(folder, tmp_path) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", np.ones((1, 1), np.float32))
    result = hub("run", str(folder), "model", "--input", str(tmp_path / "x.npy"))
    assert result.exit_code == 2 and "cause: hubconf.py" in result.stderr and "'inside'" in result.stderr
    result = hub("profile", str(folder), "model", "--input-shape", "1,1")
    assert "'inside'" in result.stderr
    result = hub("export", str(folder), "model", "--input-shape", "1,1", "-o", str(tmp_path / "x.onnx"))
    assert "'inside'" in result.stderr


def test_check_and_junit(folder, tmp_path) -> None:
    junit = tmp_path / "j.xml"
    result = hub("--json", "check", str(folder), "wrapped", "--sandbox=best-effort", "--junit", str(junit))
    (row,) = [row for row in json.loads(result.stdout)["results"] if row["status"] == "failed"]
    assert result.exit_code == 1 and "documentation" in row["error"] and "best.pt" in row["causes"][0]["text"]
    (failure,) = ElementTree.parse(junit).getroot().iter("failure")
    first, second = str(failure.text).splitlines()
    assert first == failure.get("message") == row["error"]
    assert second.startswith("cause: ") and "best.pt" in second
    assert "cause: hubconf.py" in hub("check", str(folder), "wrapped", "--no-sandbox").stdout


def test_in_a_sandbox_the_words_are_a_strangers(folder) -> None:
    result = hub("load", str(folder), "wrapped", "--sandbox=best-effort")
    assert result.exit_code == 70
    assert "\ncause: (from the sandbox) hubconf.py" in result.stderr


def test_no_secret_is_repeated(folder, monkeypatch) -> None:
    monkeypatch.setattr(errors, "_secrets", {"s3cr3t-of-mine"})
    monkeypatch.setenv("HUB_TOKEN", "t0ken-of-mine")
    (folder / "hubconf.py").write_text(
        "def net():\n    error = ValueError('s3cr3t-of-mine t0ken-of-mine')\n    error.add_note('s3cr3t-of-mine')\n"
        "    raise RuntimeError('x') from error\n"
    )
    for words in (("load", str(folder), "net"), ("--json", "check", str(folder), "net", "--no-sandbox")):
        result = hub(*words)
        assert "***" in result.output and "t0ken" not in result.output
        assert "check" in words or "s3cr3t" not in result.output


def test_between_processes() -> None:
    error = NetworkError("no", causes=[Cause("cause", "x"), Cause("note", "y")])
    assert as_error(as_document(error)).causes == error.causes
    sent = {"code": "error", "message": "m", "causes": [{"kind": "hint", "text": "rm"}, {"kind": "note", "text": 3}, 5]}
    assert as_error(sent).causes == ()
    assert as_error({**sent, "causes": "no list"}).causes == ()
    assert len(as_error({**sent, "causes": [{"kind": "note", "text": "x" * 9000}] * 500}).causes) == 16
