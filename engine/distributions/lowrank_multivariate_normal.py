"""`LowRankMultivariateNormal`."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions import constraints
from engine.distributions.distribution import Distribution
from engine.distributions.multivariate_normal import _batch_mahalanobis, _batch_mv, _half_log_det
from engine.distributions.utils import _standard_normal, lazy_property
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["LowRankMultivariateNormal"]


def _capacitance_tril(W: Tensor, D: Tensor) -> Tensor:
    """The Cholesky factor of I + W^T D^-1 W.  W (*, n, m), D (*, n) -> (*, m, m)."""
    from engine import linalg  # for its weight

    inner = torch.matmul(W.mT / D.unsqueeze(-2), W)
    return linalg.cholesky(inner + torch.eye(W.shape[-1], dtype=W.dtype, device=W.device))


def _lowrank_log_det(W: Tensor, D: Tensor, capacitance_tril: Tensor) -> Tensor:
    """log det(W W^T + diag(D)), by the matrix determinant lemma."""
    return 2 * _half_log_det(capacitance_tril) + D.log().sum(-1)


def _lowrank_mahalanobis(W: Tensor, D: Tensor, x: Tensor, capacitance_tril: Tensor) -> Tensor:
    """x^T (W W^T + diag(D))^-1 x, by Woodbury's identity."""
    inner = _batch_mv(W.mT / D.unsqueeze(-2), x)
    return (x.pow(2) / D).sum(-1) - _batch_mahalanobis(capacitance_tril, inner)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with covariance cov_factor cov_factor^T + diag(cov_diag).

    loc (*, n), cov_factor (*, n, m), cov_diag (*, n) -> batch (*), event (n)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        batch_shape = Size(torch.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]))
        self.loc = loc.expand(batch_shape + event_shape)
        self.cov_factor = cov_factor.expand(batch_shape + cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(batch_shape + event_shape)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = _capacitance_tril(cov_factor, cov_diag)

    def expand(self, batch_shape: Any, _instance: Any = None) -> LowRankMultivariateNormal:
        batch_shape = Size(batch_shape)
        shape = batch_shape + self._event_shape
        kept = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")
        return self._expanded(
            batch_shape,
            _instance,
            loc=self.loc.expand(shape),
            cov_diag=self.cov_diag.expand(shape),
            cov_factor=self.cov_factor.expand(shape + self.cov_factor.shape[-1:]),
            **{name: getattr(self, name) for name in kept},
        )

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        total = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return total.expand(self._batch_shape + self._event_shape)

    def _square(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor (*, n, n)."""
        from engine import linalg  # for its weight

        return linalg.cholesky(self.covariance_matrix)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance (*, n, n)."""
        W = self._unbroadcasted_cov_factor
        return self._square(torch.matmul(W, W.mT) + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance (*, n, n)."""
        from engine import linalg  # for its weight

        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        half = linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._square(self._unbroadcasted_cov_diag.reciprocal().diag_embed() - torch.matmul(half.mT, half))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        options = self.loc.dtype, self.loc.device
        inner = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], *options)
        outer = _standard_normal(shape, *options)
        spread = _batch_mv(self._unbroadcasted_cov_factor, inner)
        return self.loc + spread + self._unbroadcasted_cov_diag.sqrt() * outer

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        W, D = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        distance = _lowrank_mahalanobis(W, D, value - self.loc, self._capacitance_tril)
        logs = _lowrank_log_det(W, D, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + logs + distance)

    def entropy(self) -> Tensor:
        W, D = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        logs = _lowrank_log_det(W, D, self._capacitance_tril)
        return (0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + logs)).expand(self._batch_shape)
