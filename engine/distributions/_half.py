"""The base of the distributions of the absolute value of a variable around 0."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions import constraints
from engine.distributions.distribution import Distribution
from engine.distributions.transformed_distribution import TransformedDistribution
from engine.distributions.transforms import AbsTransform
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["Half"]


class Half(TransformedDistribution):
    """The absolute value of a number of `whole(0, scale)`, a distribution symmetric around 0."""

    whole: type[Distribution]
    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(self.whole(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale before the absolute value is taken."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return torch.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value = torch.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        found = self.base_dist.log_prob(value) + math.log(2)
        return torch.where(value >= 0, found, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
