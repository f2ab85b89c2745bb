"""`ContinuousBernoulli` (Loaiza-Ganem and Cunningham 2019, https://arxiv.org/abs/1907.06845)."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions import constraints
from engine.distributions._parameters import BinaryWithShape, expanded_param, take_binary
from engine.distributions.exp_family import ExponentialFamily
from engine.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs
from engine.nn.functional import binary_cross_entropy_with_logits
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(BinaryWithShape, ExponentialFamily):
    """On [0, 1], with density proportional to probs**x (1 - probs)**(1 - x).  probs or logits (*) -> batch (*).

    lims: between them, around 1/2, the normalizing constant and the moments are Taylor series.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        batch = take_binary(self, probs, logits)
        if probs is not None:
            if validate_args is not None and not constraints.unit_interval.check(self.probs).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = self._param = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> ContinuousBernoulli:
        new = self._expanded(batch_shape, _instance, "probs", "logits", _lims=self._lims)
        return expanded_param(new)

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new(*args, **kwargs)

    def _steep(self) -> tuple[Tensor, Tensor]:
        """Return a mask of where `probs` is outside the limits, and `probs` with the lower limit elsewhere."""
        low, high = self._lims
        steep = (self.probs <= low) | (self.probs > high)
        return steep, torch.where(steep, self.probs, low)

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of the normalizing constant.  -> (*)"""
        steep, p = self._steep()
        lower = torch.where(p <= 0.5, p, 0.0)
        upper = torch.where(p >= 0.5, p, 1.0)
        gap = (torch.log1p(-p) - p.log()).abs().log()
        exact = gap - torch.where(p <= 0.5, torch.log1p(-2.0 * lower), (2.0 * upper - 1.0).log())
        x = (self.probs - 0.5) ** 2
        return torch.where(steep, exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        steep, p = self._steep()
        exact = p / (2.0 * p - 1.0) + 1.0 / (torch.log1p(-p) - p.log())
        x = self.probs - 0.5
        return torch.where(steep, exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        steep, p = self._steep()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / (torch.log1p(-p) - p.log()) ** 2
        x = (self.probs - 0.5) ** 2
        return torch.where(steep, exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    @lazy_property
    def probs(self) -> Tensor:
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torch.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        loss = binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._cont_bern_log_norm() - loss

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        steep, p = self._steep()
        exact = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = torch.where(steep, exact, value)
        return torch.where(value <= 0.0, 0.0, torch.where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        steep, p = self._steep()
        left = torch.log1p(-p)
        exact = (torch.log1p(-p + value * (2.0 * p - 1.0)) - left) / (p.log() - left)
        return torch.where(steep, exact, value)

    def entropy(self) -> Tensor:
        left = torch.log1p(-self.probs)
        return self.mean * (left - self.probs.log()) - self._cont_bern_log_norm() - left

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        low, high = (end - 0.5 for end in self._lims)
        steep = (x <= low) | (x > high)
        cut = torch.where(steep, x, low)
        exact = torch.expm1(cut).abs().log() - cut.abs().log()
        return torch.where(steep, exact, 0.5 * x + x**2 / 24.0 - x**4 / 2880.0)
