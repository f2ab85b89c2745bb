"""Options of LinearCrossEntropyLoss; accepted and checked, without effect on values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core import dtypes

__all__ = ["LinearCrossEntropyOptions"]

_POLICIES = ("accurate", "balanced", "compact", "auto")
_KINDS = (None, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """The options with which torch cuts the batch into chunks; here the whole batch is one.

    chunking_method: None, "auto", "aspect_ratio" or "aspect_ratio:N"; batch_chunk_size: rows of a chunk; acc_policy:
    "accurate", "balanced", "compact" or "auto"; acc_dtype: that of sums.  Raises ValueError for other values.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Any = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        """Raise ValueError for a value that torch does not know."""
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto", "aspect_ratio"):
            name, _, factor = self.chunking_method.partition(":")
            if name != "aspect_ratio" or not factor.isdigit() or not int(factor):
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype not in _KINDS:
            listed = ", ".join(map(repr, _KINDS))
            raise ValueError(f"acc_dtype must be one of {{{listed}}}, got {self.acc_dtype!r}; None: the function picks")
