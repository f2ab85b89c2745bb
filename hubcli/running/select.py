"""The part of an entrypoint's result that is meant: `--select 0`, `--select model.encoder`, or the only model in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hubcli import output
from hubcli.errors import UsageError
from hubcli.running import invoke
from hubcli.running.invoke import Result

_SHOWN = 12


def selected(result: Result, path: str | None) -> Result:
    """`result` with the value at `path`: positions, keys and attributes, separated by points.

    Without a path a model in a tuple, list or dict is taken where it is the only one; else what there is stays.
    """
    if path is not None:
        return replace(result, value=at(result, path))
    if not isinstance(result.value, tuple | list | Mapping):
        return result
    models = [name for name, value in parts(result.value) if invoke.is_module(value)]
    if len(models) > 1:
        raise UsageError(
            f"{result.entrypoint} returned several models: {_listed(result.value)}",
            hint=f"choose one: --select {models[0]}",
            spec=result.spec,
        )
    if not models:
        return result
    output.message(f"{result.entrypoint} returned {_listed(result.value)}; taken: {models[0]}")
    return replace(result, value=at(result, models[0]))


def at(result: Result, path: str, option: str = "--select") -> Any:
    """The value at `path` in what was returned; UsageError, which names the option, if there is none."""
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
    """What a container holds, by key, position and field; of anything else nothing."""
    if isinstance(value, Mapping):
        yield from ((str(key), inner) for key, inner in value.items())
    elif isinstance(value, tuple | list):
        yield from ((str(index), inner) for index, inner in enumerate(value))
        names = getattr(value, "_fields", ())
        yield from zip(names, value)


def _listed(value: Any) -> str:
    """`0 (Net), 1 (tuple of 5)`: what a container holds."""
    if not isinstance(value, tuple | list | Mapping):
        return f"a {type(value).__name__}"
    count = len(value)
    shown = [f"{name} ({_kind(inner)})" for name, inner in list(parts(value))[: min(count, _SHOWN)]]
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return f"a {type(value).__name__} of {', '.join(shown) or 'nothing'}{more}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{name} of {len(value)}" if isinstance(value, tuple | list | Mapping) else name
