"""Settings of the shufflers in a chain of data pipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from engine.utils.data.datapipes.iter import Shuffler

__all__ = ["apply_random_seed", "apply_shuffle_settings"]


def _chain(datapipe: Any) -> Iterator[Any]:
    """A pipe and all that it reads from."""
    if isinstance(datapipe, IterDataPipe | MapDataPipe):
        yield datapipe
        for source in vars(datapipe).values():
            yield from _chain(source)


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """`datapipe` itself, with every shuffler in it enabled or disabled; None leaves them."""
    if shuffle is not None:
        for pipe in _chain(datapipe):
            if isinstance(pipe, Shuffler):
                pipe.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """`datapipe` itself, with a seed drawn from the Generator `rng` for every shuffler in it."""
    from engine.ops import functions as torch

    for pipe in _chain(datapipe):
        if isinstance(pipe, Shuffler):
            pipe.set_seed(int(torch.randint(0, 2**62, (), generator=rng)))
    return datapipe
