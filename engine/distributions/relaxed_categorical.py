"""`ExpRelaxedCategorical`, `RelaxedOneHotCategorical`."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions import constraints
from engine.distributions.categorical import Categorical
from engine.distributions.distribution import Distribution
from engine.distributions.transformed_distribution import TransformedDistribution
from engine.distributions.transforms import ExpTransform
from engine.distributions.utils import broadcast_all, clamp_probs
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(Distribution):
    """The logarithm of a `RelaxedOneHotCategorical` vector.  temperature, probs (*, n) -> batch (*), event (n)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector  # with sum of exp 1
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> ExpRelaxedCategorical:
        values = {"temperature": self.temperature, "_categorical": self._categorical.expand(batch_shape)}
        return self._expanded(batch_shape, _instance, **values)

    @property
    def param_shape(self) -> Size:
        """The shape of `probs`."""
        return self._categorical.param_shape

    @property
    def logits(self) -> Tensor:
        """The log probabilities (*, n)."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities (*, n)."""
        return self._categorical.probs

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        n = self._categorical._num_events
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        temperature = torch.as_tensor(self.temperature, dtype=logits.dtype, device=logits.device)
        score = logits - value * temperature
        score = (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1)
        return score + math.lgamma(n) + (n - 1) * temperature.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """Vectors of the simplex that are nearly one-hot at low `temperature` (Maddison et al. 2016, arxiv 1611.00712).

    temperature (), probs or logits (*, n) -> batch (*), event (n).
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> RelaxedOneHotCategorical:
        return super().expand(batch_shape, self._get_checked_instance(RelaxedOneHotCategorical, _instance))

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log probabilities (*, n)."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities (*, n)."""
        return self.base_dist.probs
