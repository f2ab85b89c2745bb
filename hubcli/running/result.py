"""The result of an entrypoint's call, a model in numbers, and which objects are modules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubcli.cache.weights import Caller, Weight
from hubcli.running.isolation import Namespace


@dataclass(frozen=True)
class Result:
    """The value that an entrypoint returned, the seconds that the call took, and the weight files that it read.

    `call` is what was called: function, positional and named arguments.
    """

    value: Any
    spec: str
    entrypoint: str
    framework: str
    seconds: float
    weights: tuple[Weight, ...]
    namespace: Namespace | None  # None: a model file, which has no code
    caller: Caller | None = None
    call: tuple[Any, tuple[Any, ...], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Description:
    """A model in numbers: elements of its parameters and buffers, bytes of both, first device."""

    name: str
    parameters: int
    buffers: int
    bytes: int
    device: str | None


def is_module(value: object) -> bool:
    """Return whether `value` is an `nn.Module` of the engine or of torch; imports neither."""
    return any(isinstance(value, kind) for kind in _module_kinds())


def is_module_class(kind: type) -> bool:
    """Return whether a class is one of modules."""
    return any(issubclass(kind, one) for one in _module_kinds())


def _module_kinds() -> list[type]:
    found = [getattr(sys.modules.get(name), "Module", None) for name in ("engine.nn", "torch.nn")]
    return [kind for kind in found if isinstance(kind, type)]
