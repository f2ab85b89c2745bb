"""The state that `forward` reads of modules beside parameters, buffers and modules: their classes, their plain
attributes.

Looked at in every call, so by functions that loop in C; where something is not the same object it is compared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, call, is_, itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from engine.core import dtypes
from engine.tensor import Tensor

__all__ = ["PLAIN", "Attributes"]

PLAIN = frozenset([bool, int, float, str, type(None)])
_COMPARED = PLAIN | {FunctionType, BuiltinFunctionType, MethodType, type, dtypes.dtype, Tensor}
_TABLES = ("_modules", "_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks")  # must be the same dicts
_LISTS = frozenset([list, dict, OrderedDict])
_own, _forward = attrgetter("__dict__"), attrgetter("forward")
_GONE = object()


def _plain(value: Any) -> bool:
    """Return whether a value is compared: what it is decides what `forward` does."""
    kind = type(value)
    return kind in _COMPARED or (kind is tuple and all(map(_plain, value)))


def _alike(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_alike, a, b))
    return (type(a) in PLAIN or type(a) is MethodType) and bool(a == b) and str(a) == str(b)  # -0.0 equals 0.0


def _entries(container: Any) -> dict[object, object]:
    """The entries of a list or a dict that are compared; none of another thing."""
    if type(container) not in _LISTS:
        return {}
    found = container.items() if isinstance(container, dict) else enumerate(container)
    return {k: v for k, v in found if _plain(v)}


class Attributes:
    """Classes and attributes of modules as they are now: numbers, strings, functions, dtypes, which tensors, tuples of
    these; in lists and dicts such entries.  Other objects may change, and are not kept alive.

    free: attributes, (id of the module's dict, name), that may change.
    """

    def __init__(self, modules: Sequence[object], free: Iterable[tuple[int, object]] = ()) -> None:
        self.modules = modules
        self.owns = [*map(_own, modules)]
        self.classes = [*map(type, modules)]
        self.kinds = list(dict.fromkeys(self.classes))
        self.forwards = [*map(_forward, self.kinds)]
        self.free = set(free)  # (id of a dict or list, name): what calls set themselves
        self.take()

    def take(self) -> None:
        """Take things as they are now."""
        names, lists = [], []
        for own in self.owns:
            names.append((*_TABLES, *self._compared(own)))
            lists += [(own, k, v, _entries(v)) for k, v in own.items() if type(v) in _LISTS and k[:1] != "_"]
        gets = [itemgetter(*n) for n in names]
        values = [get(own) for get, own in zip(gets, self.owns)]
        self.names, self.gets, self.values, self.lists = names, gets, values, lists
        self.flat = list(chain.from_iterable(values))
        self.count = sum(map(len, self.owns))

    def _compared(self, own: dict[str, object]) -> Iterator[str]:
        for name, value in own.items():
            kind = type(value)
            if (kind in _COMPARED or (kind is tuple and _plain(value))) and (id(own), name) not in self.free:
                yield name

    def contents(self) -> bool:
        """Return whether what a watch of modules and their dicts does not see is as it was."""
        return [*map(_forward, self.kinds)] == self.forwards and (
            not self.lists
            or all(self._alike(was, _entries(own.get(name)), then) for own, name, was, then in self.lists)
        )

    def hold(self) -> bool:
        """Return whether all is as it was."""
        if not (
            all(map(is_, map(_own, self.modules), self.owns))
            and all(map(is_, map(type, self.modules), self.classes))
            and self.contents()
        ):
            return False
        try:
            found = chain.from_iterable(map(call, self.gets, self.owns))
            if self.count == sum(map(len, self.owns)) and all(map(is_, found, self.flat)):
                return True
        except KeyError:  # an attribute is gone
            pass
        for own, names, values in zip(self.owns, self.names, self.values):
            now = {name: own.get(name, _GONE) for name in (*_TABLES, *self._compared(own))}
            if not self._alike(own, now, dict(zip(names, values))):
                return False
        self.take()
        return True

    def _alike(self, owner: Any, now: Mapping[Any, object], then: Mapping[Any, object]) -> bool:
        return all(
            _alike(now.get(name, _GONE), then.get(name, _GONE)) or (id(owner), name) in self.free
            for name in {**now, **then}
        )
