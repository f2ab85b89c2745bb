"""Helpers of the distributions: broadcasting of parameters, probabilities and logits, lazily computed properties."""

from __future__ import annotations

from functools import update_wrapper
from numbers import Number
from typing import Any

from engine.nn import functional as F
from engine.ops import functions as torch
from engine.tensor import Tensor

euler_constant = 0.57721566490153286060

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors broadcast to one shape; numbers take dtype and device of the first tensor."""
    if not all(isinstance(v, Tensor | Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    like = next((v for v in values if isinstance(v, Tensor)), None)
    options = {"dtype": torch.get_default_dtype()} if like is None else {"dtype": like.dtype, "device": like.device}
    return tuple(torch.broadcast_tensors(*[v if isinstance(v, Tensor) else torch.tensor(v, **options) for v in values]))


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=device)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the `dim` last dims."""
    return value if dim == 0 else value.sum(tuple(range(-dim, 0)))


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log odds (binary) or of log weights (*, n)."""
    return torch.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1 by the rounding of their dtype."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds (binary) or logarithms of probabilities."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """A property that is computed at its first use and then cached on the instance."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with torch.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """A lazy property on the class, which documentation tools take for a property."""

    def __init__(self, wrapped: Any) -> None:
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangle in rows.  mat (*, n, n) -> (*, entries at or below diagonal `diag`)."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = torch.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The matrix with this lower triangle and zeros above.  vec (*, entries) -> (*, n, n)."""
    count = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if abs(n - round(n)) > torch.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {count} which cannot be expressed as the lower triangular part of a "
            "square D x D matrix."
        )
    n = round(n)
    rows, columns = torch.tril_indices(n, n, diag, device=vec.device)
    flat = vec.new_zeros(vec.shape[:-1] + (n * n,))
    return flat.index_copy(-1, rows * n + columns, vec).reshape(vec.shape[:-1] + (n, n))
