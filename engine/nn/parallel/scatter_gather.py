"""torch.nn.parallel.scatter_gather: what is split over devices, and put together again."""

from __future__ import annotations

from typing import Any

from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["gather", "scatter", "scatter_kwargs"]


def _device(target: Any) -> Any:
    return torch.device("cuda", target) if isinstance(target, int) else torch.device(target)


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> list:
    """One part of `inputs` a device: tensors are split along `dim`, other things are the same for all.

    A batch of fewer rows than devices gives fewer parts.  Gradients flow back into `inputs`.
    """
    targets = list(target_gpus)

    def split(value: Any) -> list[Any]:
        if isinstance(value, Tensor):
            return [part.to(_device(target)) for part, target in zip(value.chunk(len(targets), dim), targets)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [type(value)(*row) for row in zip(*map(split, value))]
        if isinstance(value, tuple | list) and value:
            return [type(value)(row) for row in zip(*map(split, value))]
        if isinstance(value, dict) and value:
            return [type(value)(row) for row in zip(*map(split, value.items()))]
        return [value for _ in targets]

    return split(inputs)


def scatter_kwargs(inputs: tuple, kwargs: dict | None, target_gpus: Any, dim: int = 0) -> tuple[tuple, tuple]:
    """(parts of the arguments, parts of the keyword arguments), as many of either."""
    parts = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(parts), len(named))
    parts += [() for _ in range(count - len(parts))]
    named += [{} for _ in range(count - len(named))]
    return tuple(parts), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The outputs of all devices on one, joined along `dim`; numbers (0-dim) become a vector."""
    first, target = outputs[0], _device(target_device)
    if isinstance(first, Tensor):
        moved = [o.to(target) for o in outputs]
        return torch.stack(moved) if not first.dim() else torch.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((k, gather([o[k] for o in outputs], target, dim)) for k in first)
    if hasattr(first, "_fields"):
        return type(first)(*(gather(list(row), target, dim) for row in zip(*outputs)))
    return type(first)(gather(list(row), target, dim) for row in zip(*outputs))
