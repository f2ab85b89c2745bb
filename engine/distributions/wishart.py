"""`Wishart`."""

from __future__ import annotations

import math
import warnings
from numbers import Number
from typing import Any

from engine.distributions import constraints
from engine.distributions.chi2 import Chi2
from engine.distributions.exp_family import ExponentialFamily
from engine.distributions.multivariate_normal import _half_log_det, _precision_to_scale_tril
from engine.distributions.utils import lazy_property
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["Wishart"]

_LOG_2 = math.log(2)


def _steps(df: Tensor, n: int) -> Tensor:
    """df, df - 1, ... df - n + 1.  df (*) -> (*, n)."""
    return df.unsqueeze(-1) - torch.arange(n, dtype=df.dtype, device=df.device)


class Wishart(ExponentialFamily):
    """Sums of `df` outer products of normal vectors: the law of scatter matrices.

    df (*) above n - 1, one of covariance_matrix, precision_matrix, scale_tril (*, n, n) -> batch (*), event (n, n).
    Draws by Bartlett's decomposition, drawn again where rounding made them singular.
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> dict[str, Any]:  # type: ignore[override]
        """The constraints of the parameters."""
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        from engine import linalg  # for its weight

        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(given) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        if isinstance(df, Number):
            batch_shape = Size(matrix.shape[:-2])
            self.df = torch.tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch_shape = Size(torch.broadcast_shapes(matrix.shape[:-2], df.shape))
            self.df = df.expand(batch_shape)
        n = matrix.shape[-1]
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        setattr(self, name, matrix.expand(batch_shape + (-1, -1)))
        if (self.df < n).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)
        self._dist_chi2 = Chi2(_steps(self.df.expand(batch_shape), n))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Wishart:
        batch = Size(batch_shape)
        square = batch + self.event_shape
        values = {
            name: self.__dict__[name].expand(square)
            for name in ("covariance_matrix", "precision_matrix", "scale_tril")
            if name in self.__dict__
        }
        df = self.df.expand(batch)
        return self._expanded(
            batch,
            _instance,
            df=df,
            _dist_chi2=Chi2(_steps(df, square[-1])),
            _unbroadcasted_scale_tril=self._unbroadcasted_scale_tril.expand(square),
            **values,
        )

    def _square(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape)

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

    def _df_steps(self) -> Tensor:
        return _steps(self.df, self._event_shape[-1])

    def _times(self, factor: Tensor) -> Tensor:
        return factor.expand(self._batch_shape).reshape(self._batch_shape + (1, 1))

    @property
    def mean(self) -> Tensor:
        return self._times(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        return self._times(torch.where(factor <= 0, math.nan, factor)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        matrix = self.covariance_matrix
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        return self._times(self.df) * (matrix**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Any = ()) -> Tensor:
        n = self._event_shape[-1]
        lengths = self._dist_chi2.rsample(sample_shape).sqrt()
        lengths = lengths.clamp(min=torch.finfo(lengths.dtype).eps)
        below = torch.randn(lengths.shape + (n,), dtype=lengths.dtype, device=lengths.device).tril(-1)
        factor = torch.matmul(self._unbroadcasted_scale_tril, lengths.diag_embed() + below)
        return torch.matmul(factor, factor.mT)

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        """Draws; those that rounding made singular again, `max_try_correction` (10) times.  -> (*sample, *, n, n)"""
        sample = self._bartlett_sampling(Size(sample_shape))
        for attempt in range(10 if max_try_correction is None else max_try_correction):
            singular = ~self.support.check(sample)
            if not singular.any():
                break
            if not attempt:
                warnings.warn("Singular sample detected.", stacklevel=2)
            again = self._bartlett_sampling(Size(sample_shape))
            sample = torch.where(singular[..., None, None], again, sample)
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        from engine import linalg  # for its weight

        if self._validate_args:
            self._validate_sample(value)
        df, n, factor = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        trace = torch.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            (df - n - 1) / 2 * linalg.slogdet(value).logabsdet
            - trace / 2
            - df * (n * _LOG_2 / 2 + _half_log_det(factor))
            - torch.mvlgamma(df / 2, n)
        )

    def entropy(self) -> Tensor:
        df, n = self.df, self._event_shape[-1]
        volume = n * _LOG_2 / 2 + _half_log_det(self._unbroadcasted_scale_tril)
        slope = torch.digamma(self._df_steps() / 2).sum(-1)
        return (n + 1) * volume + torch.mvlgamma(df / 2, n) - (df - n - 1) / 2 * slope + df * n / 2

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        from engine import linalg  # for its weight

        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        return half * (n * _LOG_2 - linalg.slogdet(-2 * x).logabsdet) + torch.mvlgamma(half, n)
