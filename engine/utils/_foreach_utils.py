"""torch.utils._foreach_utils' names: lists of tensors sorted into those that one call may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.optim.foreach import _group_tensors_by_device_and_dtype  # noqa: F401
from engine.tensor import Tensor

__all__: list[str] = []


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The devices that `torch._foreach_*` serve beside the CPU."""
    return ["cuda"]


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _device_has_foreach_support(device: Any) -> bool:
    """Return whether `torch._foreach_*` serve tensors there."""
    return device.type in ("cpu", "cuda")


def _has_foreach_support(tensors: Sequence[Any], device: Any) -> bool:
    """Return whether `torch._foreach_*` take these: Tensors, or None, of that device."""
    return _device_has_foreach_support(device) and all(one is None or type(one) is Tensor for one in tensors)
