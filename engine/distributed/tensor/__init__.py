"""torch.distributed.tensor's names: no tensor is spread over processes, so nothing is a DTensor."""

from __future__ import annotations

from typing import Any

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "ones",
    "rand",
    "randn",
    "zeros",
]


class DTensor:
    """A tensor spread over processes; there is none."""

    @staticmethod
    def from_local(*args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        return distribute_tensor(*args, **kwargs)


class DeviceMesh:
    """Devices in rows and columns; none are joined."""


class Placement:
    """The base of the placements of a tensor on a mesh."""


class Replicate(Placement):
    """Whole on every device."""


class Partial(Placement):
    """To be summed over the devices."""


class Shard(Placement):
    """Cut along `dim`."""

    def __init__(self, dim: int) -> None:
        self.dim = dim


class _StridedShard(Shard):
    """Cut along `dim` in blocks of `split_factor`."""


def distribute_tensor(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    raise NotImplementedError("torch.distributed.tensor is not supported: use DistributedDataParallel")


distribute_module = empty = full = ones = rand = randn = zeros = distribute_tensor
