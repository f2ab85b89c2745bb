"""The stand-ins in a result for objects whose classes are not here, or are not to be run.

A `Placeholder` keeps what a pickle says of an object (class name, arguments, state, items) and calls nothing.  Its
attributes are those of the state, so that `checkpoint["config"].width` works; written again it names its class as
before.  An `EnumValue` is a member of an enumeration whose class cannot be imported: its value under the class's name.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from typing import Any

from .errors import shown
from .pickler import Global, PicklingError, Reduce, Token

__all__ = ["Absent", "EnumValue", "Placeholder", "is_scalar", "parts"]

_SCALARS = (str, int, float, bool, bytes, type(None))
_MOST_PARTS = 64


def is_scalar(value: Any) -> bool:
    """Return whether a value is text, a number, None or a short tuple of such: what members of enumerations are."""
    if type(value) is tuple:
        return len(value) <= _MOST_PARTS and all(type(part) in _SCALARS for part in value)
    return type(value) in _SCALARS


def _global(path: str) -> Global:
    module, _, name = path.rpartition(".")
    return Global(module, name)


class Absent:
    """A class or function by its name alone.  permitted: whether the caller has named it, so that objects of it are
    kept as placeholders; else it may only be a value or make a member of an enumeration."""

    __slots__ = ("path", "permitted")

    def __init__(self, path: str, permitted: bool = False) -> None:
        self.path, self.permitted = path, permitted

    def __repr__(self) -> str:
        return f"<placeholder of {shown(self.path)}>"

    def token(self) -> Token:
        """Return the token that writes it."""
        return _global(self.path)


class EnumValue:
    """The member of an enumeration by its value: equal to others of the same class name and value."""

    __slots__ = ("path", "value")

    def __init__(self, path: str, value: Any) -> None:
        self.path, self.value = path, value

    def __repr__(self) -> str:
        return f"<{shown(self.path)}: {shown(self.value)}>"

    def __eq__(self, other: object) -> bool:
        return type(other) is EnumValue and (self.path, self.value) == (other.path, other.value)

    def __hash__(self) -> int:
        return hash((self.path, self.value))

    def token(self) -> Token:
        """Return the token that writes it."""
        return Reduce(_global(self.path), self.value)


class Placeholder:
    """An object by what its pickle says: see the module.  Attributes that begin with `_` are its own."""

    __slots__ = ("_args", "_called", "_items", "_kwargs", "_pairs", "_path", "_state")

    def __init__(self, path: str, args: tuple, kwargs: dict[str, Any] | None = None, called: bool = False) -> None:
        self._path, self._args, self._kwargs, self._called = path, args, kwargs or {}, called
        self._state: Any = None
        self._items: list[Any] = []
        self._pairs: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        # Names with two underscores are protocols (`__array_interface__` is an address): never a file's to define.
        for part in () if name.startswith("__") else _dicts(self._state):
            if name in part:
                return part[name]
        raise AttributeError(
            f"the placeholder of {shown(self._path)} has no attribute {name!r}: its class was not imported"
        )

    def __getitem__(self, key: Any) -> Any:
        return self._pairs[key] if self._pairs else (self._items or self._args)[key]

    def __len__(self) -> int:
        return len(self._pairs or self._items or self._args)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pairs or self._items or self._args)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<placeholder of an object of {shown(self._path)}>"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self._kwargs:
            raise PicklingError(f"cannot save {self!r}: it was made with keyword arguments")
        cls = _global(self._path)
        made = (cls, self._args) if self._called else (copyreg.__newobj__, (cls, *self._args))  # type: ignore[attr-defined]
        return (*made, self._state, self._items or None, self._pairs.items() or None)

    def __copy__(self) -> Placeholder:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Placeholder:
        return self


def _dicts(state: Any) -> Iterator[dict[Any, Any]]:
    """Yield the dicts of attributes in a state: itself, or both parts of one of an object with slots."""
    for part in state if type(state) is tuple else (state,):
        if type(part) is dict:
            yield part


def parts(value: Placeholder) -> Iterator[tuple[str, Any]]:
    """Yield name and value of all that a placeholder holds: arguments, items and entries, attributes."""
    for group in (value._args, value._items):
        yield from ((str(index), part) for index, part in enumerate(group))
    for group in (value._kwargs, value._pairs, *_dicts(value._state)):
        yield from ((str(name), part) for name, part in group.items())
    if value._state is not None and not any(True for _ in _dicts(value._state)):
        yield "state", value._state
