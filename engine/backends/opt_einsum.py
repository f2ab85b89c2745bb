"""torch.backends.opt_einsum's names: einsum contracts from left to right."""

from __future__ import annotations

from typing import Any

__all__ = ["get_opt_einsum", "is_available"]

enabled = False
strategy = None


def is_available() -> bool:
    """False: the package is not used."""
    return False


def get_opt_einsum() -> Any:
    """None: the package is not used."""
    return None
