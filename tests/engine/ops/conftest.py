"""What tests of generated code share."""

from __future__ import annotations

import pytest

from engine.backends.file_cache import Cache
from engine.kernels import compiler
from engine.ops.generated import launch


@pytest.fixture
def launched(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is launched, whatever takes longer; code is shared by the tests of this run."""
    monkeypatch.setattr(compiler, "cache", Cache(tmp_path_factory.getbasetemp().parent / "llvm"))
    monkeypatch.setattr(launch.trials, "trusted", True)
