"""`HalfNormal`."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions._half import Half
from engine.distributions.normal import Normal
from engine.tensor import Tensor

__all__ = ["HalfNormal"]


class HalfNormal(Half):
    """The absolute value of a Normal number around 0.  scale (*) -> batch (*)."""

    whole = Normal

    def expand(self, batch_shape: Any, _instance: Any = None) -> HalfNormal:
        return super().expand(batch_shape, self._get_checked_instance(HalfNormal, _instance))

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)
