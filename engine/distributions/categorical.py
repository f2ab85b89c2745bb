"""`Categorical`."""

from __future__ import annotations

from typing import Any

from engine.distributions import constraints
from engine.distributions._parameters import exactly_one, expanded_param
from engine.distributions.distribution import Distribution
from engine.distributions.utils import lazy_property, logits_to_probs, probs_to_logits
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["Categorical"]


class Categorical(Distribution):
    """0 to n - 1 with weights `probs` (log weights `logits`).  probs (*, n) -> batch (*)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        exactly_one(probs, logits)
        if probs is not None:
            if probs.dim() < 1:
                raise ValueError("`probs` parameter must be at least one-dimensional.")
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            if logits.dim() < 1:
                raise ValueError("`logits` parameter must be at least one-dimensional.")
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._param = self.probs if probs is not None else self.logits
        self._num_events = self._param.size()[-1]
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Categorical:
        batch_shape = Size(batch_shape)
        shape = batch_shape + (self._num_events,)
        values = {name: self.__dict__[name].expand(shape) for name in ("probs", "logits") if name in self.__dict__}
        return expanded_param(self._expanded(batch_shape, _instance, _num_events=self._num_events, **values))

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Size:
        """The shape of `probs`."""
        return self._param.size()

    @property
    def mean(self) -> Tensor:
        return torch.full(self._extended_shape(), float("nan"), dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = Size(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        if not sample_shape.numel() or not rows.shape[0]:
            return torch.zeros(self._extended_shape(sample_shape), dtype=torch.int64, device=rows.device)
        drawn = torch.multinomial(rows, sample_shape.numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index = value.long().unsqueeze(-1)
        index, logs = torch.broadcast_tensors(index, self.logits)
        return logs.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        least = torch.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(torch.arange(self._num_events, dtype=torch.long, device=self._param.device), expand)
