"""The part of a result that is meant; what the commands make of it is in test_run."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace

import pytest

from engine import nn
from hubcli.errors import UsageError
from hubcli.running import select
from hubcli.running.invoke import Result


def result(value: object) -> Result:
    return Result(value, "o/r", "net", "engine", 0.0, (), None)  # type: ignore[arg-type]


def test_paths():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    pair = namedtuple("Pair", "model extras")(model, {"a.b": 1, "deep": [SimpleNamespace(x=5)]})
    for path, value in (("0", model), ("model", model), ("model.0", model[0]), ("1.deep.0.x", 5)):
        assert select.selected(result(pair), path).value is value or value == 5


def test_the_only_model(capsys):
    model = nn.Linear(1, 1)
    assert select.selected(result([1, model, (2, 3)]), None).value is model
    assert capsys.readouterr().err == "net returned a list of 0 (int), 1 (Linear), 2 (tuple of 2); taken: 1\n"
    for value in (model, {"a": 1}, (), "text"):
        assert select.selected(result(value), None).value is value


@pytest.mark.parametrize("path", ["2", "model", "0.nothing", "0.__class__", "0._modules"])
def test_no_such_part(path):
    with pytest.raises(UsageError, match="has no"):
        select.selected(result((nn.Linear(1, 1), {})), path)
