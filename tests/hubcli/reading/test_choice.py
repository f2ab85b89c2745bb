"""Which entrypoint is meant."""

from __future__ import annotations

import pytest

from hubcli.errors import NotFoundError, UsageError
from hubcli.reading import choice
from hubcli.reading.hubconf import EntryPoint, HubConf


def conf(*names: str, dynamic: bool = False, external: str = "") -> HubConf:
    entries = [EntryPoint(name, "", None, "()", "def") for name in names]
    entries += [EntryPoint(external, "", None, None, "import", True)] if external else []
    return HubConf(tuple(entries), (), dynamic, None)


def test_a_name_that_is_there():
    assert choice.entrypoint(conf("a", "b"), "b", "o/r", "load") == "b"
    assert choice.entrypoint(conf("a", external="b"), "b", "o/r", "load") == "b"


def test_a_name_that_is_not():
    with pytest.raises(NotFoundError) as caught:
        choice.entrypoint(conf("resnet18", "vgg"), "resnet19", "o/r", "load")
    assert (caught.value.hint, caught.value.spec) == ("did you mean resnet18", "o/r")


def test_a_name_that_may_yet_be_made():
    assert choice.entrypoint(conf("a", dynamic=True), "b", "o/r", "load") == "b"
    with pytest.raises(NotFoundError):
        choice.entrypoint(conf("a", dynamic=True), "b", "o/r", "load", dynamic=False)


def test_the_only_one(capsys):
    assert choice.entrypoint(conf("a", external="b"), None, "o/r", "load") == "a"
    assert choice.entrypoint(conf(external="b"), None, "o/r", "load") == "b"
    assert capsys.readouterr().err == "entrypoint: a, the only one\nentrypoint: b, the only one\n"


@pytest.mark.parametrize(
    ("made", "message", "hint"),
    [
        (conf("a", "b"), "name an entrypoint of o/r: a, b", "e.g. hub load o/r a"),
        (conf("a", dynamic=True), "name an entrypoint of o/r: a", "e.g. hub load o/r a"),
        (conf(), "o/r defines no entrypoint that can be read without running it", "hub list o/r --exec"),
        (conf(*(f"n{i:02}" for i in range(23))), "n18, n19 and 3 more", "e.g. hub load o/r n00"),
    ],
)
def test_no_choice(made, message, hint):
    with pytest.raises(UsageError) as caught:
        choice.entrypoint(made, None, "o/r", "load")
    assert message in caught.value.message
    assert caught.value.hint == hint
