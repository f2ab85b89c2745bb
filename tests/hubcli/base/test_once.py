"""What is said or done once per process."""

from __future__ import annotations

import pytest

from hubcli.base import once


def test_the_first_of_each_key() -> None:
    assert not once.done("a", 1)
    assert once.first("a", 1)
    assert once.done("a", 1)
    assert not once.first("a", 1)
    assert once.first("a", 2)
    assert once.first("a")


def test_a_warning_is_printed_once_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    once.warning("the token is stale", "host")
    once.warning("the token is still stale", "host")
    once.warning("the token is stale", "other host")
    once.warning("the same")
    once.warning("the same")
    said = [line for line in capsys.readouterr().err.splitlines() if line]
    assert said == ["warning: the token is stale"] * 2 + ["warning: the same"]


def test_no_test_remembers_another() -> None:
    """The fixture of all tests forgets: a server gets the port of an earlier one now and then."""
    assert not once.done("a", 1)
