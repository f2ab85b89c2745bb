"""The parameters `probs` and `logits`, for the distributions that have them."""

from __future__ import annotations

from numbers import Number
from typing import Any

from engine.distributions.utils import broadcast_all
from engine.tensor import Size


def exactly_one(probs: Any, logits: Any) -> None:
    """ValueError unless one of the two is given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


def take_binary(self: Any, probs: Any, logits: Any) -> Size:
    """Set `probs` or `logits` of a distribution, and `_param`; returns the batch shape."""
    exactly_one(probs, logits)
    given = logits if probs is None else probs
    (self._param,) = broadcast_all(given)
    setattr(self, "logits" if probs is None else "probs", self._param)
    return Size() if isinstance(given, Number) else self._param.size()


def expanded_param(new: Any) -> Any:
    """Point `_param` of an expanded twin at its own tensor."""
    new._param = new.__dict__["probs"] if "probs" in new.__dict__ else new.__dict__["logits"]
    return new
