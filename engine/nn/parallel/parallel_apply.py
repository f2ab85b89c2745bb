"""Calls of several Modules, each with its inputs and on its device: torch.nn.parallel.parallel_apply."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from engine.core.device import device as device_of
from engine.cuda import device as on_gpu
from engine.nn.modules.module import Module
from engine.tensor import Tensor

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj: Any) -> Tensor | None:
    """Return the first Tensor in `obj`, which may hold lists, tuples and dicts, or None."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, dict):
        obj = list(obj.items())
    if isinstance(obj, list | tuple):
        return next((found for found in map(get_a_var, obj) if found is not None), None)
    return None


def parallel_apply(
    modules: Sequence[Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Return `module(*input, **kwargs)` for each; an input that is no tuple or list is the only argument.

    The calls follow one another: GPUs work side by side all the same, because a call returns once its kernels are in
    the queue.  `devices` are current during the call; without them those of the inputs.  Raises AssertionError unless
    all have one length.
    """
    keywords = [{}] * len(modules) if kwargs_tup is None else list(kwargs_tup)
    where = [None] * len(modules) if devices is None else list(devices)
    for name, given in (("inputs", inputs), ("kwargs_tup", keywords), ("devices", where)):
        if len(given) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the number of {name} {len(given)}"
            )
    outputs = []
    for module, given, named, device in zip(modules, inputs, keywords, where):
        with _current(device, given):
            arguments = given if isinstance(given, list | tuple) else (given,)
            outputs.append(module(*arguments, **named))
    return outputs


def _current(device: Any, given: Any) -> contextlib.AbstractContextManager[Any]:
    tensor = get_a_var(given)
    target = device_of(device) if device is not None else None if tensor is None else tensor.device
    if target is None or target.type != "cuda":
        return contextlib.nullcontext()
    return on_gpu(target)
