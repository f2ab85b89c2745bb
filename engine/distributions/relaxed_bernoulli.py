"""`LogitRelaxedBernoulli`, `RelaxedBernoulli`."""

from __future__ import annotations

from typing import Any

from engine.distributions import constraints
from engine.distributions._parameters import BinaryWithShape, expanded_param, take_binary
from engine.distributions.distribution import Distribution
from engine.distributions.transformed_distribution import TransformedDistribution
from engine.distributions.transforms import SigmoidTransform
from engine.distributions.utils import broadcast_all, clamp_probs
from engine.nn.functional import logsigmoid
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(BinaryWithShape, Distribution):
    """The log odds of a `RelaxedBernoulli` number.  temperature a Tensor or number, probs (*) -> batch (*)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        super().__init__(take_binary(self, probs, logits), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> LogitRelaxedBernoulli:
        return expanded_param(self._expanded(batch_shape, _instance, "probs", "logits", temperature=self.temperature))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(torch.rand(shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        away = logits - value * self.temperature
        logs = self.temperature.log() if isinstance(self.temperature, Tensor) else torch.tensor(self.temperature).log()
        return logs + away + 2 * logsigmoid(-away)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers in (0, 1) that are nearly Bernoulli at low `temperature` (Maddison et al. 2016, arxiv 1611.00712)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> RelaxedBernoulli:
        return super().expand(batch_shape, self._get_checked_instance(RelaxedBernoulli, _instance))

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities of 1."""
        return self.base_dist.probs
