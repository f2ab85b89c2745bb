"""torch.distributed.device_mesh's names: no mesh can be made."""

from __future__ import annotations

from typing import Any

from engine.distributed.tensor import DeviceMesh

__all__ = ["DeviceMesh", "init_device_mesh"]


def init_device_mesh(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    raise NotImplementedError("torch.distributed.init_device_mesh is not supported: use DistributedDataParallel")
