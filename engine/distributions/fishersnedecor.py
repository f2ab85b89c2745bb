"""`FisherSnedecor`."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

from engine.distributions import constraints
from engine.distributions.distribution import Distribution
from engine.distributions.gamma import Gamma
from engine.distributions.utils import broadcast_all
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi2 numbers, each over its degrees of freedom.  df1, df2 (*) -> batch (*)."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1, validate_args=validate_args)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2, validate_args=validate_args)
        numbers = isinstance(df1, Number) and isinstance(df2, Number)
        super().__init__(Size() if numbers else self.df1.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> FisherSnedecor:
        gammas = {"_gamma1": self._gamma1.expand(batch_shape), "_gamma2": self._gamma2.expand(batch_shape)}
        return self._expanded(batch_shape, _instance, "df1", "df2", **gammas)

    @property
    def mean(self) -> Tensor:
        df2 = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Tensor:
        df1, df2 = self.df1, self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * df2.pow(2) * (df1 + df2 - 2) / (df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        above = self._gamma1.rsample(sample_shape)
        below = self._gamma2.rsample(sample_shape).clamp(min=torch.finfo(above.dtype).tiny)
        return (above / below).clamp(min=torch.finfo(above.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        beta = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return beta + a * ratio.log() + (a - 1) * value.log() - (a + b) * torch.log1p(ratio * value)
