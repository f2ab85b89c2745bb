"""The part of a result that is meant; what the commands make of it is in test_run."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
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
    assert select.selected(result(model), None).value is model
    assert capsys.readouterr().err == ""
    for value in ({"a": 1}, (), "text", None):
        assert select.selected(result(value), None).value is value
        kind = type(value).__name__
        assert f"warning: entrypoint 'net' returned a {kind}, not an nn.Module" in capsys.readouterr().err


@dataclass
class Bundle:
    net: object
    labels: object = ()


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda model: (model, {"help": print}), "0"),
        (lambda model: {"extra": 1, "model": model}, "model"),
        (lambda model: Bundle(model), "net"),
        (lambda model: SimpleNamespace(model=model), "model"),
        (lambda model: namedtuple("Pair", "model extras")(model, 1), "0"),
        (lambda model: ((model, 1), [2, {"x": 3}]), "0.0"),
        (lambda model: {"nets": [Bundle(model)]}, "nets.0.net"),
        (lambda model: [model, model], "0"),
        (lambda model: (model, [nn.Linear(2, 2)]), "0"),
    ],
)
def test_wherever_the_model_is(wrap, path):
    model = nn.Linear(1, 1)
    whole = result(wrap(model))
    ((where, found),) = select.models(whole)
    assert found.value is model and where == path
    assert select.selected(whole, path).value is model
    assert select.selected(whole, None).value is model


def test_several_models():
    pair = result({"a": nn.Linear(1, 1), "b": [nn.ReLU()], "c": nn.ReLU()})
    assert [path for path, _ in select.models(pair)] == ["a", "c"]
    with pytest.raises(UsageError, match="several models") as caught:
        select.selected(pair, None)
    assert caught.value.hint == "choose one: --select a"


def test_what_has_no_end():
    loop = []
    loop.append(loop)
    assert select.models(result(loop)) == []
    assert select.models(result([[[[[nn.ReLU()]]]]])) == []


@pytest.mark.parametrize("path", ["2", "model", "0.nothing", "0.__class__", "0._modules"])
def test_no_such_part(path):
    with pytest.raises(UsageError, match="has no"):
        select.selected(result((nn.Linear(1, 1), {})), path)
