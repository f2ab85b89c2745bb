"""Copies of a Module on several devices, whose gradients reach its parameters: torch.nn.parallel.replicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.core.device import device as device_of
from engine.nn.modules.module import Module
from engine.tensor import Tensor

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """Return one copy of `network` for each of `devices` (numbers of GPUs, names or device objects).

    Parameters of a copy are plain attributes, not leaves: their gradients add up in those of `network`, unless
    `detach`.  A tensor that is on the device already is not copied: buffers that it writes are those of `network`.
    """
    return [_replica(network, device_of(device), detach) for device in devices]


def _replica(network: Module, device: device_of, detach: bool) -> Any:
    moved: dict[int, Tensor] = {}  # tensors and modules that occur twice do so in the copy

    def on(tensor: Tensor) -> Tensor:
        if id(tensor) not in moved:
            there = tensor.to(device)
            moved[id(tensor)] = there.detach() if detach else there.view_as(there) if there is tensor else there
        return moved[id(tensor)]

    copies = {module: module._replicate_for_data_parallel() for module in network.modules()}
    for module, copy in copies.items():
        for key, child in module._modules.items():
            copy._modules[key] = None if child is None else copies[child]
        copy._former_parameters = {}
        for key, parameter in module._parameters.items():
            if parameter is None:
                copy._parameters[key] = None
            else:
                copy._former_parameters[key] = on(parameter)
                setattr(copy, key, on(parameter))
        for key, buffer in module._buffers.items():
            if buffer is not None:
                there = buffer.to(device)
                copy._buffers[key] = there.detach() if detach and there.requires_grad else there
    return copies[network]
