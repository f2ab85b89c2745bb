"""torch.distributed.rpc's names: calls to other processes, which there are none of."""

from __future__ import annotations

from typing import Any

__all__ = ["init_rpc", "is_available", "remote", "rpc_async", "rpc_sync", "shutdown"]


def is_available() -> bool:
    """False."""
    return False


def init_rpc(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    raise NotImplementedError("torch.distributed.rpc is not supported: use DistributedDataParallel")


rpc_sync = rpc_async = remote = shutdown = init_rpc
