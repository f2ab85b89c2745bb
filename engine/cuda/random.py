"""torch.cuda.random: a generator for each GPU; the same numbers as on the CPU for the same seed."""

from __future__ import annotations

import importlib
from typing import Any

from engine.backends import cuda as _cuda
from engine.core.device import device as _device
from engine.cuda._device import current_device, index_of, initialized

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def _generator(index: int) -> Any:
    return importlib.import_module("engine.random").default_for(_device("cuda", index))


def _here() -> int:
    return current_device() if initialized() else 0


def manual_seed(seed: int) -> None:
    """Start the generator of the current GPU anew; nothing without a GPU."""
    if _cuda.device_count() > 0:
        _generator(_here()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Start the generators of all GPUs anew; nothing without a GPU."""
    for index in range(_cuda.device_count()):
        _generator(index).manual_seed(seed)


def seed() -> None:
    """Start the generator of the current GPU from a random number; nothing without a GPU."""
    if _cuda.device_count() > 0:
        _generator(_here()).seed()


def seed_all() -> None:
    """Start the generators of all GPUs from one random number; nothing without a GPU."""
    count = _cuda.device_count()
    if count > 0:
        number = _generator(0).seed()
        for index in range(1, count):
            _generator(index).manual_seed(number)


def initial_seed() -> int:
    """The seed of the current GPU's generator."""
    return int(_generator(_here()).initial_seed())


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of a GPU's generator, a ByteTensor on the CPU.  RuntimeError without a GPU."""
    return _generator(index_of(device)).get_state()


def get_rng_state_all() -> list:
    """The states of all GPUs' generators; empty without a GPU."""
    return [get_rng_state(index) for index in range(_cuda.device_count())]


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the state of a GPU's generator.  RuntimeError without a GPU."""
    _generator(index_of(device)).set_state(new_state)


def set_rng_state_all(new_states: Any) -> None:
    """Set the states of all GPUs' generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
