"""Options that several commands share, and the reading of an entrypoint's arguments."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from hubcli.base import settings
from hubcli.base.request import Request, Trust
from hubcli.errors import UsageError
from hubcli.terminal import quantities

if TYPE_CHECKING:
    from hubcli.running.images import Preprocessing

Command = TypeVar("Command", bound=Callable[..., Any])
_SANDBOX = ("on", "off", "best-effort")


class Execution(NamedTuple):
    """The options with which a command runs repository code.

    `request` has --trust and --force-reload.  `sandbox` is the option alone (on, off, best-effort), for
    `sandbox.choose`.
    """

    request: Request
    framework: str
    sandbox: str | None = None


class Arguments(NamedTuple):
    """The arguments of an entrypoint."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Executing(click.Command):
    """A command that runs repository code: `--sandbox` takes a value, but only behind `=`.

    click would take the next word for the value, which is the SPEC.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `--sandbox=VALUE` as the option `--sandbox-VALUE`."""
        end = args.index("--") if "--" in args else len(args)
        for index, word in enumerate(args[:end]):
            name, equals, value = word.partition("=")
            if name == "--sandbox" and equals:
                if value not in _SANDBOX:
                    choices = ", ".join(map(repr, _SANDBOX))
                    raise click.BadParameter(f"{value!r} is not one of {choices}", ctx)
                args = [*args[:index], f"{name}-{value}", *args[index + 1 :]]
        words = list(args)  # the parser takes them away
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            hint = _as_an_argument(error, words) if any(one.name == "keywords" for one in self.params) else None
            if hint is None:
                raise
            raise UsageError(error.format_message(), hint=hint) from None


def _as_an_argument(error: click.UsageError, args: list[str]) -> str | None:
    """Return how what is no option, or one word too many, is given to the entrypoint."""
    if isinstance(error, click.NoSuchOption) and error.option_name.startswith("--"):
        name = error.option_name.removeprefix("--").replace("-", "_")
        written = next((word for word in args if word.startswith(f"{error.option_name}=")), "=VALUE")
        value = shlex.quote(written.partition("=")[2])
        return f"an argument of the entrypoint is written -k {name}={value}" if name.isidentifier() else None
    extra = re.match(r"Got unexpected extra arguments? \((.*)\)", error.message, re.DOTALL)
    if extra is None:
        return None
    given = shlex.quote(json.dumps([_value(word) for word in extra.group(1).split()]))
    return f"arguments of the entrypoint go by -k KEY=VALUE or --args {given}"


def sandboxed(command: Command) -> Command:
    """--sandbox, --no-sandbox, --sandbox=best-effort: one value, `sandbox`."""
    texts = {
        "--sandbox": "Run confined (--sandbox=best-effort: by what this machine has).",
        "--no-sandbox": "Run unconfined.",
    }
    flags = {"--sandbox": "on", "--no-sandbox": "off"}
    flags |= {f"--sandbox-{value}": value for value in _SANDBOX}
    for name, value in reversed(flags.items()):
        command = click.option(
            name,
            "sandbox",
            flag_value=value,
            default=None,
            help=texts.get(name),
            hidden=name not in texts,
        )(command)
    return command


def executing(command: Command) -> Command:
    """Return the options of every command that runs repository code; `execution(...)` reads them."""
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
            sandboxed,
            click.option("--force-reload", is_flag=True, help="Fetch anew, code and weights."),
            click.option(
                "--allow-missing", is_flag=True, help="Go on without declared dependencies that nothing imports."
            ),
            allowing,
            quantities.size_limit,
            *_LOCKING,
        )
    ):
        command = option(command)
    return command


def allowing(command: Command) -> Command:
    """--allow alone; `checkpoints.check_names` checks its values."""
    return click.option(
        "--allow",
        metavar="NAME",
        multiple=True,
        help="Read objects of this class in checkpoints, e.g. __main__.Config.  Repeatable.",
    )(command)


_LOCKING = (
    click.option("--locked", is_flag=True, help="Use exactly what hub.lock pins; that is consent to run it."),
    click.option("--frozen", is_flag=True, help="--locked and --offline."),
    click.option(
        "--lock-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Another lock file than ./hub.lock.",
    ),
)


def locking(command: Command) -> Command:
    """--locked, --frozen and --lock-file alone."""
    for option in reversed(_LOCKING):
        command = option(command)
    return command


def lock_path(lock_file: Path | None, locked: bool = True) -> Path:
    """Return the lock file that is meant; UsageError where one is named and not used."""
    if lock_file is not None and not locked:
        raise UsageError("--lock-file is for --locked and --frozen", hint="add --locked")
    return lock_file or Path("hub.lock")


def execution(
    *,
    trust: Trust | None,
    framework: str | None,
    sandbox: str | None,
    force_reload: bool,
    locked: bool,
    frozen: bool,
    lock_file: Path | None,
    allow_missing: bool = False,
    allow: tuple[str, ...] = (),
) -> Execution:
    """Check the values of `executing`; a lock file holds for the rest of the command, and so do --allow and others."""
    if allow:
        from hubcli.running import checkpoints

        checkpoints.check_names(allow)
    settings.override(allow_missing=allow_missing or None, allow=allow or None)
    path = lock_path(lock_file, locked or frozen)
    if locked or frozen:
        from hubcli.cache import lockfile

        settings.override(lock=lockfile.require(path), offline=frozen or None)
    request = Request.current(reload=force_reload, trust=trust)
    return Execution(request, framework or settings.current().framework, sandbox)


def entrypoint_arguments(command: Command) -> Command:
    """-k, --args and --pretrained; `arguments(...)` reads them."""
    for option in reversed(
        (
            click.option(
                "-k",
                "keywords",
                metavar="KEY=VALUE",
                multiple=True,
                help="A keyword argument; VALUE is JSON (or True, False, None), else a string.  Repeatable.",
            ),
            click.option("--args", "positional", metavar="JSON_LIST", help="Positional arguments."),
            click.option("--pretrained/--no-pretrained", default=None, help="Short for -k pretrained=true."),
        )
    ):
        command = option(command)
    return command


def select(command: Command) -> Command:
    """--select, for `running.select`."""
    return click.option(
        "--select",
        "part",
        metavar="PATH",
        help="Which part of a tuple or dict is the model, e.g. 0 or model.encoder.",
    )(command)


_PREPARING = (
    click.option(
        "--transform",
        metavar="PATH",
        help="The part of the result that prepares images and sounds; none: leave them.  Default: found by its name.",
    ),
    click.option("--preset", type=click.Choice(("imagenet",)), help="How to prepare an image."),
    click.option("--resize", type=click.IntRange(1, 16384), help="Shorter side of an image."),
    click.option("--crop", type=click.IntRange(1, 16384), help="Side of its central square."),
    click.option("--mean", metavar="R,G,B", help="Subtracted from the channels, which are in 0..1."),
    click.option("--std", metavar="R,G,B", help="Divide the channels by these."),
    click.option("--gray", is_flag=True, help="One channel instead of three."),
)


def preparing(command: Command) -> Command:
    """--transform and the options that prepare an image; `preparation(...)` reads them."""
    for option in reversed(_PREPARING):
        command = option(command)
    return command


def input_shapes(help: str, required: bool = False) -> Callable[[Command], Command]:
    """Return the option `--input-shape`, which may stand several times; the command takes it as `shapes`."""
    return click.option(
        "--input-shape", "shapes", multiple=True, required=required, metavar="N,C,H,W[:DTYPE]", help=help
    )


def preparation(options: dict[str, Any]) -> tuple[str | None, Preprocessing | None]:
    """Take the values of `preparing` out of `options`: the transform, and the preprocessing of images or None."""
    transform, gray = options.pop("transform"), options.pop("gray")
    preset, resize, crop, mean, std = (options.pop(name) for name in ("preset", "resize", "crop", "mean", "std"))
    if not gray and all(one is None for one in (preset, resize, crop, mean, std)):
        return transform, None
    from hubcli.running import images, transforms

    if transform not in (None, transforms.NONE):
        raise UsageError("--transform says how to prepare images, and so do --preset, --resize, --crop, ...")
    return transform, images.Preprocessing.of(preset, resize, crop, mean, std, gray)


def arguments(keywords: tuple[str, ...], positional: str | None, pretrained: bool | None) -> Arguments:
    """Return the entrypoint's arguments from the values of `entrypoint_arguments`."""
    kwargs: dict[str, Any] = {}
    for item in keywords:
        key, equals, value = item.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"-k {item!r} is not KEY=VALUE", hint="e.g. -k num_classes=10")
        if key in kwargs:
            raise UsageError(f"-k {key} is given twice")
        kwargs[key] = _value(value)
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


def _value(text: str) -> Any:
    """JSON; what Python would write for the same, with True, False, None and tuples; else the text."""
    try:
        return json.loads(text)
    except ValueError:
        if text in ("True", "False", "None") or text.lstrip()[:1] in ("(", "[", "{"):
            with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                return json.loads(json.dumps(ast.literal_eval(text.strip())))
        return text
