"""`hub check` is green only where something was checked, whatever an entrypoint returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from hubcli.terminal import cli

P, F, S = "passed", "failed", "skipped"
RETURNS = """
import torch
from collections import namedtuple
from dataclasses import dataclass
from torch import nn

dependencies = ["torch"]


class Bad(nn.Module):
    def forward(self, x):
        raise RuntimeError("this model never worked")


class Odd(nn.Module):
    def state_dict(self, *args, **kwargs):
        raise RuntimeError("no state")


@dataclass
class Both:
    net: nn.Module
    extra: int = 1


class Predictor:
    def __init__(self):
        self.net = nn.Linear(3, 1)

    def __call__(self, x):
        return self.net(x)


def net():
    return nn.Linear(3, 1)


def none():
    nn.Linear(3, 1).eval()


def number():
    return 7


def words():
    return "net"


def a_class():
    return Bad


def function():
    return lambda x: x


def predictor():
    return Predictor()


def names():
    return ["a", "b"]


def pair(good=True):
    return (net() if good else Bad()), {"help": print}


def a_dict(good=True):
    return {"model": net() if good else Bad(), "extra": 1}


def fields(good=True):
    return Both(net() if good else Bad())


def point(good=True):
    return namedtuple("Pair", "model extras")(net() if good else Bad(), 1)


def yields(good=True):
    yield net() if good else Bad()


def deep(good=True):
    return [((net() if good else Bad()),), 3]


def several(good=True):
    return net(), net() if good else Bad()


def stateless():
    return Odd(), 1
"""


@pytest.fixture
def returns(tmp_path: Path) -> Path:
    made = tmp_path / "returns"
    made.mkdir()
    (made / "hubconf.py").write_text(RETURNS)
    return made


def statuses(document: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in document["results"]:
        found.setdefault(row["entrypoint"], []).append(row["status"])
    return found


def checked(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(cli.hub, ["--json", "check", str(folder), *words, "--no-sandbox"])
    document = json.loads(result.stdout)
    assert result.exit_code == (1 if document["failed"] else 0), result.output
    return result.exit_code, document


CONTAINERS = ("pair", "a_dict", "fields", "point", "yields", "deep", "several")


@pytest.mark.long
@pytest.mark.parametrize("name", CONTAINERS)
def test_the_model_in_a_container_is_checked(returns, name) -> None:
    status, document = checked(returns, name, "--input-shape", "1,3", "--backward")
    assert (status, statuses(document)[name]) == (0, [P] * 6), document
    status, document = checked(returns, name, "--input-shape", "1,3", "-k", "good=false")
    assert (status, statuses(document)[name]) == (1, [P, P, P, P, F])
    assert "never worked" in document["results"][-1]["error"]


def test_which_of_several_models_fails(returns) -> None:
    _, document = checked(returns, "several", "--input-shape", "1,3", "-k", "good=false")
    assert document["results"][-1]["error"].startswith("1 (Bad) of the result: hubconf.py:")
    assert document["results"][-1]["error"].endswith("(hint: --select 1 checks it alone)")
    assert checked(returns, "several", "--input-shape", "1,3", "-k", "good=false", "--select", "0")[0] == 0
    status, document = checked(returns, "several", "--select", "5")
    assert (status, statuses(document)["several"]) == (1, [P, P, F, S])
    assert "--select '5'" in document["results"][2]["error"]


def test_a_state_dict_that_fails(returns) -> None:
    status, document = checked(returns, "stateless")
    assert (status, statuses(document)["stateless"]) == (1, [P, P, P, F])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "None: nothing was built"),
        ("number", "returned 7, an int"),
        ("words", "returned 'net', a str"),
        ("a_class", "returned the class Bad"),
    ],
)
def test_what_is_nothing_at_all_fails(returns, name, said) -> None:
    for more in ((), ("--input-shape", "1,3"), ("--allow-skipped",)):
        status, document = checked(returns, name, *more)
        (row,) = [row for row in document["results"] if row["status"] == "failed"]
        assert (status, row["stage"]) == (1, "build") and said in row["error"]


@pytest.mark.long
def test_what_was_not_checked_is_not_green(returns, tmp_path) -> None:
    junit = tmp_path / "j.xml"
    for name, more in (("function", ()), ("names", ()), ("names", ("--input-shape", "1,3"))):
        status, document = checked(returns, name, *more, "--junit", str(junit))
        (row,) = [row for row in document["results"] if row["status"] == "failed"]
        assert (status, row["stage"], row["entrypoint"]) == (1, "check", name)
        assert "not an nn.Module" in row["error"] and "--allow-skipped" in row["error"]
        root = ElementTree.parse(junit).getroot()
        assert root.get("failures") == "1" and len(list(root.iter("failure"))) == 1
        status, document = checked(returns, name, *more, "--allow-skipped")
        assert (status, document["failed"]) == (0, 0)


def test_what_can_be_called_is_run_where_it_is_named(returns) -> None:
    for name in ("function", "predictor"):
        status, document = checked(returns, name, "--input-shape", "1,3")
        assert (status, statuses(document)[name]) == (0, [P, P, P, S, P])


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("def a(width):\n    return 1\ndef b(depth):\n    return 2\n", 4),
        ("from collections import OrderedDict\n", 1),
        ("def a():\n    return print\n", 1),
    ],
)
def test_nothing_checked_in_a_whole_repository(tmp_path, text, skipped) -> None:
    (tmp_path / "hubconf.py").write_text(text)
    status, document = checked(tmp_path)
    assert (status, document["failed"], document["skipped"]) == (1, 1, skipped), document
    assert document["results"][-1]["stage"] == "check"
    assert checked(tmp_path, "--allow-skipped")[0] == 0


def test_helpers_beside_a_model_do_no_harm(tmp_path) -> None:
    (tmp_path / "hubconf.py").write_text(
        "from torch import nn\nfrom collections import OrderedDict\ndef net():\n    return nn.Linear(3, 1)\n"
        "def labels():\n    return ['a']\ndef transforms():\n    return print\ndef needs(width):\n    return width\n"
    )
    for more in ((), ("--input-shape", "1,3")):
        status, document = checked(tmp_path, *more)
        assert (status, document["failed"]) == (0, 0), document
