"""`StudentT`."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions import constraints
from engine.distributions.chi2 import Chi2
from engine.distributions.distribution import Distribution
from engine.distributions.utils import _standard_normal, broadcast_all
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["StudentT"]


class StudentT(Distribution):
    """loc + scale * a normal number / sqrt(a chi2 number / df).  df, loc, scale (*) -> batch (*)."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df, validate_args=validate_args)
        super().__init__(self.df.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> StudentT:
        return self._expanded(batch_shape, _instance, "df", "loc", "scale", _chi2=self._chi2.expand(batch_shape))

    @property
    def mean(self) -> Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        df = self.df
        spread = torch.where(df > 2, self.scale.pow(2) * df / (df - 2).masked_fill(df <= 2, 1), math.inf)
        return spread.masked_fill(df <= 1, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (x * torch.rsqrt(z / self.df))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        half = 0.5 * self.df
        norm = self.scale.log() + half.lgamma() - (half + 0.5).lgamma() + 0.5 * (self.df.log() + math.log(math.pi))
        return -(half + 0.5) * torch.log1p(y**2.0 / self.df) - norm

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        slope = (half + 0.5).digamma() - half.digamma()
        return self.scale.log() + (half + 0.5) * slope + 0.5 * self.df.log() + beta
