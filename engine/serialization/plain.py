"""Values of the standard library that checkpoints hold beside their tensors: options, paths, dates, numbers.

`CONSTRUCTORS` maps the path of a class, as a pickle names it, to a function of (unpickler, *arguments of the file).
Each checks its arguments and then makes the value itself: nothing that a file names is looked up in a module.  The
classes chosen are data: making, comparing, hashing, printing or dropping a value of them has no other effect.
`set_state` and `extend` are what BUILD and APPENDS do to those that are filled after they were made.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .errors import UnpicklingError, shown

if TYPE_CHECKING:
    from .unpickler import Unpickler

__all__ = ["CONSTRUCTORS", "extend", "inside", "is_namespace", "set_state"]

CONSTRUCTORS: dict[str, Callable[..., Any]] = {}

_DECIMAL = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,18})?|Inf(?:inity)?|s?NaN\d*)", re.IGNORECASE)
_FRACTION = re.compile(r"[+-]?\d+(?:/\d+)?")
_PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")


def _makes(*paths: str) -> Callable:
    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        for path in paths:
            CONSTRUCTORS[path] = run
        return run

    return register


def _refuse(kind: str, args: Any) -> UnpicklingError:
    return UnpicklingError(f"a {kind} is made from something other than its parts: {shown(args)}")


# Options


@_makes("argparse.Namespace")
def _namespace(u: Unpickler) -> Any:
    """An empty `argparse.Namespace`, which BUILD fills."""
    from argparse import Namespace  # weight: few files have one

    u.budget.spend(512)
    return Namespace()


@_makes("types.SimpleNamespace")
def _simple_namespace(u: Unpickler) -> SimpleNamespace:
    """An empty `types.SimpleNamespace`, which BUILD fills."""
    u.budget.spend(512)
    return SimpleNamespace()


def is_namespace(value: Any) -> bool:
    """Return whether a value holds its parts as attributes: argparse's or types' namespace."""
    kind = type(value)
    return kind is SimpleNamespace or (kind.__name__ == "Namespace" and kind.__module__ == "argparse")


def set_state(instance: Any, state: Any) -> bool:
    """Give a value of `CONSTRUCTORS` the state that the file has for it; return False for other objects."""
    kind = type(instance)
    if is_namespace(instance):
        # Names with two underscores are protocols: numpy takes an address from an `__array_interface__`.
        names = state if type(state) is dict else [None]
        if not all(type(k) is str and not k.startswith("__") and not hasattr(kind, k) for k in names):
            raise UnpicklingError(f"a {kind.__name__} has attributes that would hide its methods")
        instance.__dict__.update(state)
        return True
    if kind.__module__ == "uuid" and kind.__name__ == "UUID":
        if type(state) is not dict or not set(state) <= {"int", "is_safe"} or type(state.get("int")) is not int:
            raise _refuse("UUID", state)
        object.__setattr__(instance, "int", kind(int=state["int"]).int)
        return True
    return False


def extend(target: Any, items: list[Any]) -> bool:
    """Append items to a deque; return False for other objects."""
    if type(target) is not deque:
        return False
    target.extend(items)
    return True


def inside(value: Any) -> Any:
    """Return the container that a namespace or deque keeps its parts in (None for other values)."""
    if type(value) is deque:
        return value
    return vars(value) if is_namespace(value) else None


# Containers and numbers


@_makes("collections.deque")
def _deque(u: Unpickler, items: Any = (), maxlen: Any = None) -> deque:
    if type(items) not in (list, tuple) or not (maxlen is None or type(maxlen) is int):
        raise _refuse("deque", (items, maxlen))
    u.budget.spend(1024 + 8 * len(items))
    return deque(items, maxlen)


@_makes("builtins.slice")
def _slice(u: Unpickler, *parts: Any) -> slice:
    if not 1 <= len(parts) <= 3 or not all(type(part) in (int, float, str, type(None)) for part in parts):
        raise _refuse("slice", parts)
    u.budget.spend(64)
    return slice(*parts)


@_makes("builtins.range")
def _range(u: Unpickler, *parts: Any) -> range:
    if not 1 <= len(parts) <= 3 or not all(type(part) is int for part in parts):
        raise _refuse("range", parts)
    u.budget.spend(128)
    return range(*parts)


@_makes("decimal.Decimal")
def _decimal(u: Unpickler, text: Any) -> Any:
    if type(text) is not str or len(text) > u.limits.digits or not _DECIMAL.fullmatch(text):
        raise _refuse("Decimal", text)
    from decimal import Decimal

    u.budget.spend(128 + len(text))
    return Decimal(text)


@_makes("fractions.Fraction")
def _fraction(u: Unpickler, *parts: Any) -> Any:
    """From "3/4", or from 3 and 4 as Python writes it since 3.12; never from text with an exponent."""
    text = len(parts) == 1 and type(parts[0]) is str
    if text and (len(parts[0]) > u.limits.digits or not _FRACTION.fullmatch(parts[0])):
        raise _refuse("Fraction", parts)
    if not text and not (1 <= len(parts) <= 2 and all(type(part) is int for part in parts)):
        raise _refuse("Fraction", parts)
    from fractions import Fraction

    u.budget.spend(1024)
    try:
        return Fraction(*parts)
    except ZeroDivisionError:
        raise _refuse("Fraction", parts) from None


@_makes("uuid.UUID")
def _uuid(u: Unpickler) -> Any:
    """A UUID of zeros, whose number BUILD gives."""
    from uuid import UUID

    u.budget.spend(256)
    return UUID(int=0)


# Dates and times


def _bytes(u: Unpickler, raw: Any, size: int, kind: str) -> bytes:
    """The packed fields of a date or time; Python 2 wrote them as text."""
    if type(raw) is str:
        raw = raw.encode("latin1" if u.encoding == "bytes" else u.encoding, "replace")
    if type(raw) is not bytes or len(raw) != size:
        raise _refuse(kind, raw)
    u.budget.spend(128)
    return raw


def _zone(zone: Any, kind: str) -> Any:
    from datetime import timezone

    if zone is not None and type(zone) is not timezone:
        raise _refuse(kind, zone)
    return zone


@_makes("datetime.date")
def _date(u: Unpickler, raw: Any) -> Any:
    from datetime import date

    high, low, month, day = _bytes(u, raw, 4, "date")
    return date(high << 8 | low, month, day)


@_makes("datetime.time")
def _time(u: Unpickler, raw: Any, zone: Any = None) -> Any:
    from datetime import time

    hour, minute, second, *micro = _bytes(u, raw, 6, "time")
    fields = (hour & 127, minute, second, int.from_bytes(bytes(micro), "big"), _zone(zone, "time"))
    return time(*fields, fold=hour >> 7)


@_makes("datetime.datetime")
def _datetime(u: Unpickler, raw: Any, zone: Any = None) -> Any:
    from datetime import datetime

    high, low, month, day, hour, minute, second, *micro = _bytes(u, raw, 10, "datetime")
    fields = (hour, minute, second, int.from_bytes(bytes(micro), "big"), _zone(zone, "datetime"))
    return datetime(high << 8 | low, month & 127, day, *fields, fold=month >> 7)


@_makes("datetime.timedelta")
def _timedelta(u: Unpickler, *parts: Any) -> Any:
    from datetime import timedelta

    if len(parts) > 3 or not all(type(part) is int for part in parts):
        raise _refuse("timedelta", parts)
    u.budget.spend(128)
    return timedelta(*parts)


@_makes("datetime.timezone")
def _timezone(u: Unpickler, offset: Any, *name: Any) -> Any:
    from datetime import timedelta, timezone

    if type(offset) is not timedelta or len(name) > 1 or not all(type(text) is str for text in name):
        raise _refuse("timezone", (offset, *name))
    u.budget.spend(128)
    return timezone(offset, *name)


# Paths


def _path_of(name: str) -> Callable[..., Any]:
    def make(u: Unpickler, *parts: Any) -> Any:
        if not all(type(part) is str for part in parts):
            raise _refuse(name, parts)
        import pathlib

        u.budget.spend(1024 + sum(map(len, parts)))
        here = "Windows" if os.name == "nt" else "Posix"
        foreign = not name.startswith(("Pure", here))  # a path of the other system can be named, not opened
        return getattr(pathlib, f"Pure{name}" if foreign else name)(*parts)

    return make


for _name in _PATHS:
    CONSTRUCTORS[f"pathlib.{_name}"] = _path_of(_name)


@_makes("torch.torch_version.TorchVersion")
def _torch_version(u: Unpickler, text: Any) -> str:
    """`torch.__version__`, as text."""
    if type(text) is not str:
        raise _refuse("TorchVersion", text)
    return text


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each part of a namespace or deque."""
    container = inside(value)
    items = container.items() if isinstance(container, dict) else enumerate(container or ())
    return ((str(name), part) for name, part in items)
