"""Samples of the op registry: the maker `t` handed to `@samples`, and one `Case` for each op and sample."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import engine
import engine.ops.deformable  # families that `lazy` leaves out
import engine.ops.detection
import engine.ops.lazy  # every other op
from engine.dispatch import COMPOSITES, OPS
from engine.tensor import Tensor, wrap


class Maker:
    """Makes random tensors, float64 and requiring grad unless said otherwise.  Deterministic by seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def _leaf(self, array: Any) -> Tensor:
        return wrap(np.asarray(array, np.float64)).requires_grad_()

    def __call__(self, *shape: int) -> Tensor:
        return self._leaf(self.rng.standard_normal(shape))

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return self._leaf(self.rng.uniform(low, high, shape))

    def positive(self, *shape: int) -> Tensor:
        return self.uniform(0.3, 2.5, *shape)

    def distinct(self, *shape: int) -> Tensor:
        """Values at least 0.1 apart, none within 0.04 of zero."""
        count = int(np.prod(shape))
        return self._leaf((self.rng.permutation(count) - count / 2 + 0.45).reshape(shape) * 0.1)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return wrap(np.asarray(self.rng.integers(low, high, shape)))

    def boolean(self, *shape: int) -> Tensor:
        return wrap(np.asarray(self.rng.random(shape) < 0.5))

    def complex(self, *shape: int) -> Tensor:
        draw = self.rng.standard_normal((2, *shape))
        return wrap(np.asarray(draw[0] + 1j * draw[1])).requires_grad_()

    def constant(self, value: Any) -> Tensor:
        return value.detach() if isinstance(value, Tensor) else wrap(np.asarray(value, np.float64))

    def of(self, value: Any, dtype: Any = None) -> Tensor:
        """Exactly these values, not requiring grad."""
        return wrap(np.asarray(value, dtype))


@dataclass(frozen=True)
class Case:
    """One op (or composite) with one sample."""

    name: str
    index: int
    label: str
    op: Any = field(compare=False)  # the Op record, None for a composite
    function: Any = field(compare=False)
    make: Any = field(compare=False)

    def __str__(self) -> str:
        return f"{self.name}-{self.index}-{self.label}"

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Fresh arguments, the same every time."""
        sample = self.make(Maker(zlib.crc32(self.name.encode())))[self.index]
        args = list(sample) if isinstance(sample, tuple) else [sample]
        kwargs = args.pop() if args and type(args[-1]) is dict else {}
        return args, kwargs

    def seeded(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, with the engine's generator at a fixed state for ops that draw."""
        if not self.deterministic:
            engine.manual_seed(7)
        return self.arguments()

    @property
    def deterministic(self) -> bool:
        return self.op is None or self.op.deterministic

    def call(self) -> Any:
        args, kwargs = self.seeded()
        return self.function(*args, **kwargs)


def _label(sample: Any) -> str:
    parts = []
    for a in sample if isinstance(sample, tuple) else (sample,):
        if isinstance(a, Tensor):
            parts.append("x".join(map(str, a._array.shape)) or "0d")
        elif isinstance(a, list | tuple) and any(isinstance(x, Tensor) for x in a):
            parts.append("+".join("x".join(map(str, x._array.shape)) or "0d" for x in a if isinstance(x, Tensor)))
        elif isinstance(a, dict):
            parts.append(",".join(f"{k}={v!r}" for k, v in a.items() if not isinstance(v, Tensor)))
        else:
            parts.append(repr(a).replace(" ", ""))
    return ",".join(parts).replace("[", "(").replace("]", ")")[:60]


def cases() -> list[Case]:
    """Every op and composite that has samples, in order of name."""
    found = []
    entries = [(name, record, record.function, record.samples) for name, record in OPS.items()]
    entries += [(name, None, f, f.__dict__.get("samples")) for name, f in COMPOSITES.items() if name not in OPS]
    for name, record, function, make in sorted(entries, key=lambda e: e[0]):
        if make is None:
            continue
        for index, sample in enumerate(make(Maker(zlib.crc32(name.encode())))):
            found.append(Case(name, index, _label(sample), record, function, make))
    return found


def tensors_of(value: Any) -> list[Tensor]:
    """All Tensors in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors_of(v)]
    return []


def mapped(value: Any, change: Any) -> Any:
    """`value` with every Tensor replaced by `change(tensor)`."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {k: mapped(v, change) for k, v in value.items()}
    if isinstance(value, list):
        return [mapped(v, change) for v in value]
    if type(value) is tuple:
        return tuple(mapped(v, change) for v in value)
    return value
