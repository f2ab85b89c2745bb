"""What tests of generated code share."""

from __future__ import annotations

import pytest

from engine.core.lru import LRU
from engine.ops.generated import launch


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is launched, whatever takes longer."""
    monkeypatch.setattr(launch.trials, "trusted", True)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel of another test, nothing switched off."""
    monkeypatch.setattr(launch, "_entries", {})
    monkeypatch.setattr(launch, "_rows", LRU(4096))
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setenv("ENGINE_ROUTES", "static")
