"""torch.nn.parallel.scatter_gather's names, for one device."""

from __future__ import annotations

from typing import Any

__all__ = ["gather", "scatter", "scatter_kwargs"]


def _one(devices: Any) -> None:
    if len(devices) > 1:
        raise NotImplementedError("several devices are not supported: the engine uses one device a process")


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> list:
    """`[inputs]` for the one device."""
    _one(target_gpus)
    return [inputs]


def scatter_kwargs(inputs: tuple, kwargs: dict | None, target_gpus: Any, dim: int = 0) -> tuple[tuple, tuple]:
    """((inputs,), (kwargs,)) for the one device."""
    _one(target_gpus)
    return (inputs,), (kwargs or {},)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The one output."""
    _one(outputs)
    return outputs[0]
