"""Sizes and spans of time as people write them: `1.5GB`, `30d`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from hubcli.base import settings
from hubcli.errors import UsageError

if TYPE_CHECKING:
    from hubcli.workflows.listing import Condition, Item

Command = TypeVar("Command", bound=Callable[..., Any])
_UNITS = {
    "size": {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    "time": {"S": 1, "M": 60, "H": 3600, "D": 86400},
}
_FILTER = re.compile(r"(size|used)\s*([<>])\s*(.+)\Z", re.S)
_EXAMPLES = {"size": "500MB, 2GB", "time": "90s, 30m, 12h, 7d"}


def quantity(text: str, kind: Literal["size", "time"], where: str) -> float:
    """Return the bytes or seconds that `text` means; UsageError, naming `where`, if it means none."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", text.strip())
    if match and float(match.group(1)) == 0:
        return 0.0
    factor = _UNITS[kind].get(match.group(2).upper()) if match else None
    if match is None or factor is None:
        raise UsageError(f"{where}: {text!r} is no {kind}", hint=f"write it like {_EXAMPLES[kind]}")
    return float(match.group(1)) * factor


class _Quantity(click.ParamType):  # type: ignore[type-arg]
    def __init__(self, kind: Literal["size", "time"]) -> None:
        self.kind = kind
        self.name = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse; what is a number already stays."""
        if not isinstance(value, str):
            return float(value)
        named = param.opts[0] if param is not None else self.name
        number = quantity(value, self.kind, named)
        return int(number) if self.kind == "size" else number


class _Finite(click.FloatRange):
    """A number that is neither nan nor infinite; `unit` says what of."""

    def __init__(self, least: float, most: float, unit: str) -> None:
        super().__init__(least, most)
        self.unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse; neither nan nor inf is a quantity."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no {self.unit}.", param, ctx)
        return number


SECONDS = _Finite(0.1, 1e9, "number of seconds")
TEMPERATURE = _Finite(0, 100, "temperature")
SHARE = _Finite(0, 1, "probability")
SIZE = _Quantity("size")
DURATION = _Quantity("time")


def size_limit(command: Command) -> Command:
    """--size-limit, which `http`, `git` and `store` obey."""

    def obey(context: click.Context, option: click.Parameter, value: int | None) -> None:
        settings.override(size_limit=value)

    return click.option(
        "--size-limit",
        type=SIZE,
        expose_value=False,
        callback=obey,
        help="Refuse a repository or a weight file that is larger, e.g. 2GB.",
    )(command)


def condition(text: str) -> Condition:
    """Return the test that `size>1GB` or `used>30d` stands for."""
    match = _FILTER.match(text.strip())
    if not match:
        raise UsageError(f"--filter {text!r} is not understood", hint="e.g. size>1GB or used>30d")
    field, sign, amount = match.groups()
    limit = quantity(amount, "size" if field == "size" else "time", f"--filter {text!r}")

    def holds(item: Item) -> bool:
        value = item.size if field == "size" else item.idle
        return value > limit if sign == ">" else value < limit

    return holds
