"""DataParallel: a pass-through with torch's attributes and state-dict keys (`module.`)."""

from __future__ import annotations

from typing import Any

from engine.nn.modules.module import Module

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Calls `module` as it is: batches are not split over devices.  Parameters are under `module.`."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device if output_device is not None else (self.device_ids or [None])[0]

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
    module_kwargs: dict | None = None,
) -> Any:  # fmt: skip
    """module(*inputs, **module_kwargs)."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return module(*inputs, **(module_kwargs or {}))
