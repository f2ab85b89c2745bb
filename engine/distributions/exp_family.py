"""`ExponentialFamily`: densities exp(<t(x), theta> - F(theta) + k(x)); entropy and KL by Bregman divergences."""

from __future__ import annotations

from typing import Any

from engine import autograd
from engine.distributions.distribution import Distribution
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution with natural parameters theta and log normalizer F, each of shape batch_shape."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """F(theta) - <theta, grad F(theta)> - the mean of k."""
        result = -self._mean_carrier_measure
        params = [p.detach().requires_grad_() for p in self._natural_params]
        with torch.enable_grad():
            normalizer = self._log_normalizer(*params)
            gradients = autograd.grad(normalizer.sum(), params, create_graph=True)
        result = result + normalizer
        for param, gradient in zip(params, gradients, strict=True):
            result = result - (param * gradient).reshape(self._batch_shape + (-1,)).sum(-1)
        return result
