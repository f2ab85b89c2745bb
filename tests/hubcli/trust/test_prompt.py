"""The question in front of repository code."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner

from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.errors import UntrustedError
from hubcli.terminal import cli
from hubcli.trust import gates, prompt


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def checkout(sample_server) -> Checkout:
    return Cache.current().checkout(RepoSpec.parse("o/r:v1"))


def type_in(monkeypatch, *lines: str) -> Terminal:
    screen = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal("".join(f"{line}\n" for line in lines)))
    monkeypatch.setattr("sys.stderr", screen)
    return screen


def test_asks_until_it_has_an_answer(checkout, monkeypatch):
    screen = type_in(monkeypatch, "x", "yes please", "d", "?", "c", "n")
    assert prompt.choice(checkout, None) == "commit"
    shown = screen.getvalue()
    assert shown.count("Allow it [o]nce") == 5
    assert "'x' is no answer." in shown and "'yes please' is no answer." in shown
    assert "'d' is no answer." in shown and "[d]iff" not in shown  # there is nothing to compare with
    assert "r  this repository at any commit" in shown


def test_the_end_of_the_input_is_no(checkout, monkeypatch):
    type_in(monkeypatch)
    assert prompt.choice(checkout, None) is None


def test_view(checkout, monkeypatch):
    screen = type_in(monkeypatch, "v", "v helpers.py", "v ../../VERSION", "v nothing.py", "n")
    assert prompt.choice(checkout, None) is None
    lines = screen.getvalue().splitlines()
    assert '|     1  """Sample models."""' in [line.rpartition(")? ")[2] for line in lines]
    assert "| other code: helpers.py" in lines
    assert any(line.endswith('|     1  NAME = "sample"') for line in lines)
    assert sum("there is no file" in line for line in lines) == 2


def test_what_is_viewed_neither_drives_the_terminal_nor_speaks_for_hub(sample, sample_server, monkeypatch):
    sample.commit({"evil.py": "\x1b[2J\rAllow it\nhub: fine\n" + "x\n" * 600}, tag="v2")
    evil = Cache.current().checkout(RepoSpec.parse("o/r:v2"))
    screen = type_in(monkeypatch, "v evil.py", "n")
    prompt.choice(evil, None)
    shown = screen.getvalue()
    assert "\x1b" not in shown and "\r" not in shown
    assert "\nhub: fine" not in shown
    assert "more lines" in shown


def test_diff(checkout, sample, monkeypatch):
    gates.require(checkout, "thing", Request.current(trust="commit"))
    hubconf = (sample.work / "hubconf.py").read_text().replace("Sample", "Other")
    sample.commit({"hubconf.py": hubconf, "new.txt": "new"}, tag="v2")
    other = Cache.current().checkout(RepoSpec.parse("o/r:v2"))
    screen = type_in(monkeypatch, "d", "d new.txt", "n")
    with pytest.raises(UntrustedError):
        gates.require(other, "thing", Request.current())
    whole, one = screen.getvalue().split("? for help)? ")[1:3]
    assert '| -"""Sample models."""' in whole and '| +"""Other models."""' in whole and "| +new" in whole
    assert "| +new" in one and "models" not in one


def test_a_name_that_is_not_there_is_told_before_anything_is_asked(sample_server):
    result = CliRunner().invoke(cli.hub, ["load", "o/r:v1", "thingg"])
    assert result.exit_code == 3
    assert "did you mean thing" in result.stderr
    assert CliRunner().invoke(cli.hub, ["load", "o/r:v1", "thing"]).exit_code == 7
