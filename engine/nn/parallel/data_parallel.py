"""DataParallel: one process, a batch split over several GPUs.

https://docs.pytorch.org/docs/2.13/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

from typing import Any

from engine import cuda
from engine.nn.modules.module import Module
from engine.nn.parallel.parallel_apply import parallel_apply
from engine.nn.parallel.replicate import replicate
from engine.nn.parallel.scatter_gather import gather, scatter_kwargs
from engine.ops import functions as torch

__all__ = ["DataParallel", "data_parallel"]


def _devices(device_ids: Any) -> list[int]:
    if device_ids is None:
        return list(range(cuda.device_count()))
    return [d if isinstance(d, int) else torch.device(d).index or 0 for d in device_ids]


class DataParallel(Module):
    """Calls `module` on a part of the batch on each GPU and joins the outputs on the first.

    device_ids: the GPUs (None: all).  output_device: where the outputs come together.  dim: of the batch.  Without a
    GPU it hands everything on.  Gradients add up in the parameters, which are under `module.`; buffers are those of the
    first GPU.  RuntimeError for a module that is not on the first of `device_ids`.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids = _devices(device_ids)
        self.output_device = output_device if output_device is not None else (self.device_ids or [None])[0]

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return _apply(self.module, inputs, kwargs, self.device_ids, self.output_device, self.dim)


def _apply(module: Module, inputs: tuple, kwargs: dict, devices: list[int], output_device: Any, dim: int) -> Any:
    if not devices or not cuda.is_available():
        return module(*inputs, **kwargs)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device != torch.device("cuda", devices[0]):
            raise RuntimeError(
                "module must have its parameters and buffers on device "
                f"cuda:{devices[0]} (device_ids[0]) but found one of them on device: {tensor.device}"
            )
    parts, named = scatter_kwargs(inputs, kwargs, devices, dim)
    if not parts:
        parts, named = ((),), ({},)
    used = devices[: len(parts)]
    copies = [module, *replicate(module, used[1:])]  # the first is the module itself, which may set its attributes
    outputs = parallel_apply(copies, parts, named, used)
    return outputs[0] if len(outputs) == 1 else gather(outputs, output_device, dim)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict | None = None,
) -> Any:
    """module(*inputs, **module_kwargs), the batch split over GPUs as by `DataParallel`."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    devices = _devices(device_ids)
    first = output_device if output_device is not None else (devices or [None])[0]
    return _apply(module, inputs, module_kwargs or {}, devices, first, dim)
