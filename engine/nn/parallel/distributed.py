"""DistributedDataParallel of one process: a pass-through with `no_sync`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Calls `module` as it is: one process, nothing to average.  Parameters are under `module.`."""

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0,
        broadcast_buffers: bool = True, *_: Any, find_unused_parameters: bool = False, **__: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.module = module
        self.device_ids = device_ids
        self.output_device = output_device
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context without effect: there is nothing to synchronize."""
        yield
