"""The model in an entrypoint's result: `--select 0`, `--select model.encoder`, or the only one there is.

load, run, check, profile and export take what `selected` or `models` gives, and so they agree.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.running import invoke
from hubcli.running.result import Result, is_module

_SHOWN = 12
_DEPTH = 3  # containers inside containers
_MOST = 1000  # parts that are looked at


def selected(result: Result, path: str | None) -> Result:
    """`result` with the value at `path`: positions, keys and attributes, separated by points.

    Without a path the only model in a container is taken; where there is none, what there is stays.
    """
    found = models(result, path)
    if not found:
        kind = type(result.value).__name__
        output.warning(f"entrypoint {result.entrypoint!r} returned {output.a(kind)}, not an nn.Module")
        return result
    if len(found) > 1:
        raise several(result, found)
    ((where, chosen),) = found
    if path is None and where:
        output.message(f"{result.entrypoint} returned {_listed(result.value)}; taken: {where}")
    return chosen


def several(result: Result, found: list[tuple[str, Result]]) -> UsageError:
    """Return the error for more than one model."""
    return UsageError(
        f"{result.entrypoint} returned several models: {_listed(result.value)}",
        hint=f"choose one: --select {found[0][0]}",
        spec=result.spec,
    )


def models(result: Result, path: str | None = None) -> list[tuple[str, Result]]:
    """Each model in a result, with its path; "" is the result itself.

    With a path what it leads to, whatever that is.  Else containers are searched, those inside them only where they
    hold no model themselves.
    """
    with invoke.running(result, command=True):
        if path is not None:
            return [(path, replace(result, value=at(result, path)))]
        return [(name, replace(result, value=value)) for name, value in _found(result.value)]


def _found(value: Any) -> list[tuple[str, Any]]:
    level, seen = [("", value)], 0
    for _ in range(_DEPTH + 1):
        found = {id(value): (name, value) for name, value in reversed(level) if is_module(value)}
        if found:
            return list(reversed(found.values()))
        level = [
            (f"{name}.{inner}" if name else inner, part)
            for name, value in level
            for inner, part in itertools.islice(parts(value), max(_MOST - seen, 0))
        ]
        seen += len(level)
    return []


def at(result: Result, path: str, option: str = "--select") -> Any:
    """Return the value at `path` in what was returned; UsageError, which names the option, if there is none."""
    value = result.value
    for number, name in enumerate(path.split(".")):
        found = dict(parts(value))
        if name in found:
            value = found[name]
        elif not name.startswith("_") and hasattr(value, name):
            value = getattr(value, name)
        else:
            where = ".".join(path.split(".")[:number]) or "the result"
            raise UsageError(
                f"{option} {path!r}: {where} has no {name!r}",
                hint=f"it is {_listed(value)}",
                spec=result.spec,
            )
    return value


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a container holds, by key, position and field; of anything else nothing."""
    if isinstance(value, Mapping):
        yield from ((str(key), inner) for key, inner in value.items())
    elif isinstance(value, tuple | list):
        yield from ((str(index), inner) for index, inner in enumerate(value))
        names = getattr(value, "_fields", ())
        yield from zip(names, value)
    elif is_module(value) or isinstance(value, type):
        return
    elif dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
        yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))
    elif isinstance(value, SimpleNamespace):
        yield from vars(value).items()


def _is_container(value: Any) -> bool:
    plain = isinstance(value, tuple | list | Mapping | SimpleNamespace)
    return plain or (dataclasses.is_dataclass(value) and not isinstance(value, type) and not is_module(value))


def _listed(value: Any) -> str:
    """`0 (Net), 1 (tuple of 5)`: what a container holds."""
    if not _is_container(value):
        return f"a {type(value).__name__}"
    held = [(name, inner) for name, inner in parts(value) if not _is_field(value, name)]
    shown = [f"{name} ({_kind(inner)})" for name, inner in held[:_SHOWN]]
    more = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    return f"a {type(value).__name__} of {', '.join(shown) or 'nothing'}{more}"


def _is_field(value: Any, name: str) -> bool:
    """Return whether it is the second name of a namedtuple's part."""
    return isinstance(value, tuple) and not name.isdigit()


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{name} of {len(value)}" if isinstance(value, tuple | list | Mapping) else name
