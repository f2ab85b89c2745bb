"""The parameters `probs` and `logits`, for the distributions that have them."""

from __future__ import annotations

from numbers import Number
from typing import Any

from engine.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits
from engine.tensor import Size, Tensor


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


class Binary:
    """A distribution of one probability per event: `probs` or `logits` is given, the other one is computed."""

    @lazy_property
    def logits(self: Any) -> Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self: Any) -> Tensor:
        return logits_to_probs(self.logits, is_binary=True)


class BinaryWithShape(Binary):
    """One that also has torch's `param_shape`."""

    @property
    def param_shape(self: Any) -> Size:
        """The shape of `probs`."""
        return self._param.size()
