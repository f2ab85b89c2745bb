"""Steps of layers that are no product: pooling, means over pixels; and of layers whose operand is copied first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.core.layouts import INNER
from engine.programs.graph import name as name_of
from engine.programs.graph import shape as shape_of
from engine.programs.inference.layers import Fused, pooling
from engine.programs.inference.plan import Environment, Step

if TYPE_CHECKING:
    from engine.programs.inference.lowering import Gives, _Lowering

__all__ = ["mean", "narrowed", "pool"]


def pool(lowering: _Lowering, entry: Fused, place: np.ndarray | None) -> Step:
    """The step of a maximum or average over windows."""
    from engine.backends.onednn import arrays

    how = pooling(entry.call)
    assert how is not None
    source, finish = lowering.source(entry.reads[0], True), lowering.finish(entry, place)

    def step(environment: Environment) -> None:
        x = source if isinstance(source, np.ndarray) else source(environment)
        arrays.pooling(x, finish(environment), *how)

    return Step(name_of(entry.call), step, entry.reads, [entry.out])


def mean(lowering: _Lowering, entry: Fused, place: np.ndarray | None) -> Step:
    """The step of a mean over pixels."""
    shape = shape_of(entry.reads[0])
    source, finish = lowering.source(entry.reads[0], True), lowering.finish(entry, place)
    count = np.float32(math.prod(shape[2:]))

    def step(environment: Environment) -> None:
        x = source if isinstance(source, np.ndarray) else source(environment)
        found = x.transpose(INNER[x.ndim])
        for _ in shape[2:]:  # a dim at a time: channels are added side by side
            found = np.add.reduce(found, -2)
        np.true_divide(found, count, out=finish(environment))

    return Step(name_of(entry.call), step, entry.reads, [entry.out])


def narrowed(name: str, entry: Fused, run: Any, narrow: Any, sources: list[np.ndarray | Gives], finish: Gives) -> Step:
    """The step of a layer whose operand is copied in narrow elements first; narrow: (the copy, where it goes)."""
    from engine.backends.onednn.primitives import address

    copied, buffer = narrow

    def step(environment: Environment) -> None:
        arrays = [s if isinstance(s, np.ndarray) else s(environment) for s in sources]
        made = finish(environment)
        at = address(buffer)
        copied(address(arrays[0]), at)
        run(at, address(made), *map(address, arrays[1:]))

    return Step(name, step, entry.reads, [entry.out])
