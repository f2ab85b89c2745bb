"""Options of LinearCrossEntropyLoss; accepted, without effect on values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LinearCrossEntropyOptions"]


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How torch may cut the batch into chunks; here the whole batch is one."""

    batch_chunk_size: int | None = None
    acc_policy: Any = None
    acc_dtype: Any = None
    allow_retain_graph: bool = False
