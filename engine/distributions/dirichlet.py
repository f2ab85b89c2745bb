"""`Dirichlet`."""

from __future__ import annotations

from typing import Any

from engine import nn
from engine.distributions import constraints
from engine.distributions.exp_family import ExponentialFamily
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["Dirichlet"]


def _Dirichlet_backward(x: Tensor, concentration: Tensor, grad_output: Tensor) -> Tensor:
    """The gradient of a draw `x` with respect to the concentration.  x, concentration, grad_output (*, n) -> (*, n)."""
    total = concentration.sum(-1, True).expand_as(concentration)
    slope = torch._dirichlet_grad(x, concentration, total)
    return slope * (grad_output - (x * grad_output).sum(-1, True))


class Dirichlet(ExponentialFamily):
    """Probabilities of n categories, of weights `concentration`.  concentration (*, n) -> batch (*), event (n)."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Dirichlet:
        batch_shape = Size(batch_shape)
        values = self.concentration.expand(batch_shape + self._event_shape)
        return self._expanded(batch_shape, _instance, concentration=values)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return torch._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return torch.xlogy(a - 1.0, value).sum(-1) + torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        weights = (self.concentration - 1).clamp(min=0.0)
        mode = weights / weights.sum(-1, True)
        corner = (self.concentration < 1).all(dim=-1, keepdim=True)
        largest = nn.functional.one_hot(mode.argmax(-1), self._event_shape[-1]).to(mode.dtype)
        return torch.where(corner, largest, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Tensor:
        n, a = self._event_shape[-1], self.concentration
        total = a.sum(-1)
        logs = torch.lgamma(a).sum(-1) - torch.lgamma(total)
        return logs - (n - total) * torch.digamma(total) - ((a - 1.0) * torch.digamma(a)).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.lgamma().sum(-1) - torch.lgamma(x.sum(-1))
