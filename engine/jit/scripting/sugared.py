"""What an expression of a scripted function can be besides a value: a function, a method, a list of modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from engine.jit.archive.kinds import Kind
from engine.jit.archive.schemas import Value

__all__ = ["Bound", "Iterated", "Many", "Py", "Sugared", "Test"]


@dataclass(eq=False)
class Py:
    """Something of Python's that is no value of the program: a function, a class, a module of Python."""

    obj: Any


@dataclass(eq=False)
class Bound:
    """A method of a value that is not called yet."""

    value: Value
    name: str


@dataclass(eq=False)
class Many:
    """Values known one by one when the function is compiled: the modules of a list, a tuple."""

    items: list[Sugared]


@dataclass(eq=False)
class Iterated:
    """What a loop goes over while the program runs.  plain: the numbers from 0 themselves."""

    length: str
    item: Callable[[str], Sugared]
    plain: bool = False


@dataclass(eq=False)
class Test:
    """A condition: its text, its truth if it is known, and the types that variables have where it is true or false."""

    text: str
    static: bool | None = None
    true: dict[str, Kind] = field(default_factory=dict)
    false: dict[str, Kind] = field(default_factory=dict)


Sugared: TypeAlias = Value | Py | Bound | Many
