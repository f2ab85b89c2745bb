"""torch.futures' names: results are there at once."""

from __future__ import annotations

from typing import Any

from engine.jit import Future

__all__ = ["Future", "collect_all", "wait_all"]


def collect_all(futures: list[Future]) -> Future:
    """One Future of the list."""
    return Future(futures)


def wait_all(futures: list[Future]) -> list[Any]:
    """Their results."""
    return [future.wait() for future in futures]
