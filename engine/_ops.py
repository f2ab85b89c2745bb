"""torch.ops' namespaces: `torch.ops.aten.add` is `torch.add`; the operators of other libraries are not there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import engine

__all__ = ["OpNamespace", "OpOverload"]


class OpOverload:
    """An operator under its dotted name; its overloads (`.default`, `.Tensor`, ...) are all the one function."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = self.__name__ = self._qualified_op_name = name
        self._function = function
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def overloads(self) -> list[str]:
        """`default`."""
        return ["default"]

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self._name}')>"


def _refuse(op: str, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(f"torch.ops.aten.{op} is not supported: the engine has no such operator")


class OpNamespace:
    """`torch.ops.NAME`.  In `aten` every function of `torch` and `torch.nn.functional`; in the others nothing.

    Operators of `aten` that the engine lacks (`_to_copy`) can be named, as code does that registers its own for them;
    calling one raises NotImplementedError.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, op: str) -> OpOverload:
        if not op.startswith("__") and self.name == "aten":
            for home in (engine, engine.nn.functional, engine.Tensor):
                function = getattr(home, op, None)
                if callable(function):
                    made = OpOverload(f"aten::{op}", function)
                    setattr(self, op, made)
                    return made
            return OpOverload(f"aten::{op}", functools.partial(_refuse, op))
        raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{op}'")

    def __repr__(self) -> str:
        return f"<OpNamespace {self.name}>"
