"""Two GPUs of the stand-in for each test here, or the real ones with REQUIRE_CUDA=1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine import standin

pytestmark = pytest.mark.cuda


@pytest.fixture
def gpu() -> Iterator[Any]:
    """The CUDA backend."""
    with standin.running() as backend:
        yield backend


@pytest.fixture
def two(gpu: Any) -> Any:
    """The backend, where there are two devices."""
    if gpu.runtime.state.device_count < 2:
        pytest.skip("needs two GPUs")
    return gpu
