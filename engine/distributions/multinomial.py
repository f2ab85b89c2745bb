"""`Multinomial`."""

from __future__ import annotations

from typing import Any

from engine.distributions import constraints
from engine.distributions.binomial import Binomial
from engine.distributions.categorical import Categorical
from engine.distributions.distribution import Distribution
from engine.distributions.utils import broadcast_all
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """Counts of `total_count` draws of n categories of weights `probs`.  probs (*, n) -> batch (*), event (n)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Multinomial:
        batch_shape = Size(batch_shape)
        return self._expanded(
            batch_shape,
            _instance,
            total_count=self.total_count,
            _categorical=self._categorical.expand(batch_shape),
            _binomial=self._binomial.expand(batch_shape + self._event_shape),
        )

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        """The probabilities (*, n)."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The log probabilities (*, n)."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of `probs`."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        counts = torch.zeros((*drawn.shape[1:], self._event_shape[-1]), dtype=torch.int64, device=drawn.device)
        index = drawn.permute(*range(1, drawn.dim()), 0)
        counts.scatter_add_(-1, index, torch.ones_like(index))
        return counts.to(self.probs.dtype).reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -float("inf")), 0)
        orders = torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1)
        return orders + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = torch.tensor(float(self.total_count), dtype=self.probs.dtype, device=self.probs.device)
        values = self._binomial.enumerate_support(expand=False)[1:]
        weights = torch.exp(self._binomial.log_prob(values))
        repeats = (weights * torch.lgamma(values + 1)).sum([0, -1])
        return n * self._categorical.entropy() - torch.lgamma(n + 1) + repeats
