"""`GeneralizedPareto`."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

from engine.distributions import constraints
from engine.distributions.distribution import Distribution
from engine.distributions.utils import broadcast_all
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The law of what exceeds a high threshold: exponential for concentration 0, with a polynomial tail above it, on
    an interval below it.  loc, scale, concentration (*) -> batch (*).
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        given = (loc, scale, concentration)
        self.loc, self.scale, self.concentration = broadcast_all(*given)
        batch = Size() if all(isinstance(x, Number) for x in given) else self.loc.size()
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> GeneralizedPareto:
        return self._expanded(batch_shape, _instance, "loc", "scale", "concentration")

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def _shape_or_one(self) -> tuple[Tensor, Tensor]:
        """Return a mask of where the concentration is (nearly) 0, and the concentration with 1 there."""
        flat = torch.isclose(self.concentration, torch.zeros_like(self.concentration))
        return flat, self.concentration.masked_fill(flat, 1.0)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        flat, shape = self._shape_or_one()
        power = 1 / shape + torch.ones_like(z)
        bent = torch.where(power == 0, power, power * torch.log1p(shape * z))
        return -self.scale.log() - torch.where(flat, z, bent)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of more than `value`.  value (*) -> (*)."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        flat, shape = self._shape_or_one()
        return torch.where(flat, -z, -torch.log1p(shape * z) / shape)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of at most `value`.  value (*) -> (*)."""
        return torch.log1p(-self.log_survival_function(value).exp())

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        flat, shape = self._shape_or_one()
        left = torch.log1p(-value)
        bent = self.loc + self.scale / shape * torch.expm1(-shape * left)
        return torch.where(flat, self.loc - self.scale * left, bent)

    @property
    def mean(self) -> Tensor:
        exists = self.concentration < 1
        shape = torch.where(exists, self.concentration, 0.5)
        return torch.where(exists, self.loc + self.scale / (1 - shape), math.nan)

    @property
    def variance(self) -> Tensor:
        exists = self.concentration < 0.5
        shape = torch.where(exists, self.concentration, 0.25)
        found = self.scale**2 / ((1 - shape) ** 2 * (1 - 2 * shape))
        return torch.where(exists, found, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    def entropy(self) -> Tensor:
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, torch.where(self.concentration < 0, end, math.inf))
