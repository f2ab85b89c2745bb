"""What tests of the engine share."""

from __future__ import annotations

import pytest

from engine.backends.file_cache import Cache
from engine.kernels import compiler


@pytest.fixture(autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test compiles no other test of this run compiles again."""
    monkeypatch.setattr(compiler, "cache", Cache(tmp_path_factory.getbasetemp().parent / "llvm"))
