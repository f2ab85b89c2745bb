"""Options that several commands share, and the reading of an entrypoint's arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from hubcli import settings
from hubcli.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Execution:
    """How a command may run repository code.  `trust` is the option alone, for `trust.require`."""

    trust: str | None
    framework: str
    force_reload: bool


@dataclass(frozen=True)
class Arguments:
    """What to pass to an entrypoint."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def executing(command: Command) -> Command:
    """The options of every command that runs repository code; `execution(...)` reads them."""
    for option in reversed(
        (
            click.option(
                "--trust",
                type=click.Choice(settings.TRUST_CHOICES),
                help="Allow this repository's code to run: once, at this commit, or at any.",
            ),
            click.option(
                "--framework",
                type=click.Choice(settings.FRAMEWORKS),
                help="What `import torch` means (default: HUB_FRAMEWORK, else engine).",
            ),
            click.option("--sandbox/--no-sandbox", default=False, help="Run confined."),
            click.option("--force-reload", is_flag=True, help="Fetch anew, code and weights."),
            click.option("--locked", is_flag=True, help="Use exactly what hub.lock says."),
        )
    ):
        command = option(command)
    return command


def execution(
    *,
    trust: str | None,
    framework: str | None,
    sandbox: bool,
    force_reload: bool,
    locked: bool,
) -> Execution:
    """Check the values of `executing`; --sandbox and --locked are refused, never ignored."""
    for option, given in (("--sandbox", sandbox), ("--locked", locked)):
        if given:
            raise UsageError(
                f"{option} is not available in this version of hub",
                hint=f"run again without {option}",
            )
    return Execution(trust, framework or settings.current().framework, force_reload)


def entrypoint_arguments(command: Command) -> Command:
    """-k, --args and --pretrained; `arguments(...)` reads them."""
    for option in reversed(
        (
            click.option(
                "-k",
                "keywords",
                metavar="KEY=VALUE",
                multiple=True,
                help="A keyword argument; VALUE is JSON, else a string.  Repeatable.",
            ),
            click.option("--args", "positional", metavar="JSON_LIST", help="Positional arguments."),
            click.option(
                "--pretrained/--no-pretrained", default=None, help="Short for -k pretrained=true."
            ),
        )
    ):
        command = option(command)
    return command


def arguments(
    keywords: tuple[str, ...], positional: str | None, pretrained: bool | None
) -> Arguments:
    """The entrypoint's arguments from the values of `entrypoint_arguments`."""
    kwargs: dict[str, Any] = {}
    for item in keywords:
        key, equals, value = item.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"-k {item!r} is not KEY=VALUE", hint="e.g. -k num_classes=10")
        if key in kwargs:
            raise UsageError(f"-k {key} is given twice")
        kwargs[key] = _json_or_text(value)
    if pretrained is not None:
        if "pretrained" in kwargs:
            raise UsageError("pretrained is given by -k and by --pretrained/--no-pretrained")
        kwargs["pretrained"] = pretrained
    args: Any = []
    if positional is not None:
        try:
            args = json.loads(positional)
        except ValueError as error:
            raise UsageError(f"--args {positional!r} is not JSON: {error}") from None
        if not isinstance(args, list):
            raise UsageError(f"--args {positional!r} is not a JSON list", hint="e.g. '[10]'")
    return Arguments(tuple(args), kwargs)


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
