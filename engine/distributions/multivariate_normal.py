"""`MultivariateNormal`, and products with batches of matrices."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions import constraints
from engine.distributions.distribution import Distribution
from engine.distributions.utils import _standard_normal, lazy_property
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["MultivariateNormal"]


def _batch_mv(mat: Tensor, vec: Tensor) -> Tensor:
    """mat (*, m, n), vec (*, n) -> (*, m)."""
    return torch.matmul(mat, vec.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(tril: Tensor, vec: Tensor) -> Tensor:
    """The square of the length of tril^-1 vec.  tril (*a, n, n), vec (*b, n) -> (broadcast of a and b)."""
    from engine import linalg  # for its weight

    solved = linalg.solve_triangular(tril, vec.unsqueeze(-1), upper=False)
    return solved.squeeze(-1).pow(2).sum(-1)


def _half_log_det(tril: Tensor) -> Tensor:
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse: the flipped matrix' factor is the inverse's transpose, flipped."""
    from engine import linalg  # for its weight

    factor = linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    unit = torch.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return linalg.solve_triangular(factor, unit.expand(factor.shape), upper=False)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors, by one of covariance, precision or the covariance's Cholesky factor.

    loc (*, n), the matrix (*, n, n) -> batch (*), event (n)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        from engine import linalg  # for its weight

        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            called = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(f"{called} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = Size(torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1]))
        matrix = matrix.expand(batch_shape + (-1, -1))
        setattr(self, name, matrix)
        self.loc = loc.expand(batch_shape + (-1,))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = scale_tril
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = linalg.cholesky(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(precision_matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> MultivariateNormal:
        batch_shape = Size(batch_shape)
        square = batch_shape + self._event_shape + self._event_shape
        values = {
            name: self.__dict__[name].expand(square)
            for name in ("covariance_matrix", "precision_matrix", "scale_tril")
            if name in self.__dict__
        }
        return self._expanded(
            batch_shape,
            _instance,
            loc=self.loc.expand(batch_shape + self._event_shape),
            _unbroadcasted_scale_tril=self._unbroadcasted_scale_tril,
            **values,
        )

    def _square(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        return self._square(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        return self._square(torch.matmul(factor, factor.mT))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        return self._square(torch.cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        half = _half_log_det(self._unbroadcasted_scale_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half

    def entropy(self) -> Tensor:
        half = _half_log_det(self._unbroadcasted_scale_tril)
        return (0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half).expand(self._batch_shape)
