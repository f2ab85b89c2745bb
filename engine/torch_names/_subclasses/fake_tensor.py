"""torch._subclasses.fake_tensor's names that packages ask with."""

from __future__ import annotations

from typing import Any

__all__ = ["FakeTensor", "is_fake"]


class FakeTensor:
    """A tensor of shape and dtype alone; there is none."""


def is_fake(x: Any) -> bool:
    """False."""
    return False
