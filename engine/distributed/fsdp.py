"""torch.distributed.fsdp's names: no model is spread over processes, so nothing is an instance."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

__all__ = ["CPUOffload", "FullyShardedDataParallel", "MixedPrecision", "ShardingStrategy", "fully_shard"]


class ShardingStrategy(Enum):
    """What is spread."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()


def fully_shard(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    raise NotImplementedError("torch.distributed.fsdp is not supported: the engine runs in one process")


class FullyShardedDataParallel:
    """NotImplementedError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fully_shard()


class CPUOffload:
    """NotImplementedError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fully_shard()


MixedPrecision = CPUOffload
