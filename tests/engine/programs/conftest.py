"""Fixtures of the tests of programs."""

from __future__ import annotations

import pytest

from engine.programs import passes

__all__ = ["checked_graphs"]


@pytest.fixture(autouse=True)
def checked_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are checked after each pass."""
    monkeypatch.setattr(passes, "check_each", True)
