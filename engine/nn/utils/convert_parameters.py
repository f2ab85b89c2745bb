"""Parameters as one vector and back."""

from __future__ import annotations

from collections.abc import Iterable

from engine.nn.modules._state import typename
from engine.ops import functions as torch
from engine.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters flattened into one.  -> (sum of sizes)."""
    device, parts = None, []
    for param in parameters:
        device = _check_param_device(param, device)
        parts.append(param.view(-1))
    return torch.cat(parts)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Slices of a vector (sum of sizes) as the data of the parameters."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {typename(vec)}")
    device, pointer = None, 0
    for param in parameters:
        device = _check_param_device(param, device)
        count = param.numel()
        param.data = vec[pointer : pointer + count].view_as(param).data
        pointer += count


def _check_param_device(param: Tensor, old_param_device: int | None) -> int:
    """The device index; TypeError when it differs from the one before."""
    index = param.get_device() if param.is_cuda else -1
    if old_param_device is not None and old_param_device != index:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return index
