"""`LKJCholesky` (Lewandowski, Kurowicka and Joe 2009, J. Multivariate Analysis 100, 1989-2001)."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions import constraints
from engine.distributions.beta import Beta
from engine.distributions.distribution import Distribution
from engine.distributions.utils import broadcast_all
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, whose density is proportional to det**(concentration - 1).

    concentration (*), dim n -> batch (*), event (n, n).  1: uniform over correlation matrices.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        like = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        # the squared length of each row below the diagonal: section 3.2, all rows at once
        row = torch.arange(dim - 1, **like)
        row = torch.cat([row.new_zeros((1,)), row])
        rest = (self.concentration + 0.5 * (dim - 2)).unsqueeze(-1)
        self._beta = Beta(row + 0.5, rest - 0.5 * row)
        super().__init__(self.concentration.size(), Size((dim, dim)), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> LKJCholesky:
        batch = Size(batch_shape)
        beta = self._beta.expand(batch + (self.dim,))
        return self._expanded(batch, _instance, "concentration", dim=self.dim, _beta=beta)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        length = self._beta.sample(sample_shape).unsqueeze(-1)
        shape = self._extended_shape(sample_shape)
        drawn = torch.randn(shape, dtype=length.dtype, device=length.device).tril(-1)
        direction = drawn / drawn.norm(dim=-1, keepdim=True)
        direction[..., 0, :] = 0.0  # the first row has nothing below the diagonal
        rows = length.sqrt() * direction
        tiny = torch.finfo(rows.dtype).tiny
        return rows + (1 - (rows**2).sum(-1)).clamp(min=tiny).sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.dim
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = torch.arange(2, n + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + n - order
        half = self.concentration + 0.5 * (n - 1)  # the constant: page 1999 of the paper
        constant = 0.5 * (n - 1) * math.log(math.pi) + torch.mvlgamma(half - 0.5, n - 1) - torch.lgamma(half) * (n - 1)
        return (order * diagonal.log()).sum(-1) - constant
