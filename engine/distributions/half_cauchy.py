"""`HalfCauchy`."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions._half import Half
from engine.distributions.cauchy import Cauchy
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """The absolute value of a Cauchy number around 0.  scale (*) -> batch (*)."""

    whole = Cauchy

    def expand(self, batch_shape: Any, _instance: Any = None) -> HalfCauchy:
        return super().expand(batch_shape, self._get_checked_instance(HalfCauchy, _instance))

    @property
    def mean(self) -> Tensor:
        return torch.full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
