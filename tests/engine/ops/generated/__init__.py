"""Tests of engine/ops/generated."""

from __future__ import annotations

from typing import Any

from engine.dispatch import OPS
from engine.ops import generated


def kernel_of(name: str, present: Any = None) -> Any:
    """The generated kernel of an op in front of its own code."""
    return generated.kernel_of(OPS[name], present or OPS[name].kernel)
