"""`hub help`: an entrypoint's signature and docstring, or how to use a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.reading import choice
from hubcli.reading.hubconf import EntryPoint
from hubcli.terminal import repository, shared_options

if TYPE_CHECKING:
    from hubcli.base.request import Trust

_DOC = 20_000  # characters of a docstring that people are shown; --json has all of it


@click.command("help", cls=shared_options.Executing)
@click.argument("spec", required=False)
@click.argument("entrypoint", required=False)
@repository.reading
@shared_options.locking
@click.pass_context
def help_(
    ctx: click.Context,
    spec: str | None,
    entrypoint: str | None,
    execute: bool,
    trust: Trust | None,
    framework: str | None,
    sandbox: str | None,
    locked: bool,
    frozen: bool,
    lock_file: Path | None,
) -> None:
    """Show the signature and docstring of ENTRYPOINT in SPEC, or how to use a command of hub: `hub help load`.

    They are read without executing anything unless --exec asks for it.  ENTRYPOINT may be left out
    where SPEC has only one.
    """
    out = output.Output.current()
    usage = _usage(ctx.find_root(), [word for word in (spec, entrypoint) if word is not None])
    if usage is not None:
        name = " ".join(word for word in ("hub", spec, entrypoint) if word is not None)
        out.result({"name": name, "signature": None, "doc": usage}, usage)
        return
    checkout = repository.located(str(spec), locked, frozen, lock_file)
    conf = repository.read(checkout, execute, trust, framework, sandbox)
    name = choice.entrypoint(
        conf, entrypoint, str(checkout.spec), "help", dynamic=not execute, renewal=checkout.renewal()
    )
    entry = conf.entrypoint(name, spec=str(checkout.spec), renewal=checkout.renewal())
    out.result(
        {"name": entry.name, "signature": entry.signature, "doc": entry.doc},
        lambda: _text(entry),
    )


def _usage(root: click.Context, words: list[str]) -> str | None:
    """Return the help of the command that the words name; None if they begin with a SPEC."""
    context, command = root, root.command
    for number, word in enumerate(words):
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None and number == 0:
            import difflib

            close = difflib.get_close_matches(
                word, command.list_commands(root) if isinstance(command, click.Group) else ()
            )
            if close and word.isidentifier() and not os.path.isdir(word):
                raise UsageError(f"there is no command {word!r}", hint=f"did you mean `hub help {close[0]}`?")
            return None
        if found is None:
            path = context.command_path
            raise UsageError(
                f"`{path}` has no command {word!r}", hint=f"`hub help {path.partition(' ')[2]}` lists them"
            )
        command, context = found, click.Context(found, info_name=word, parent=context)
    return command.get_help(context)


def _text(entry: EntryPoint) -> str:
    head = entry.name + (entry.signature or "(...)")
    if entry.external:
        body = "It comes from a package that is not in the repository: --exec asks the package."
    else:
        body = entry.doc or "It has no docstring."
    return output.printable(f"{head}\n\n{output.cut(body, _DOC)}")
