"""`hub help`: an entrypoint's signature and docstring."""

from __future__ import annotations

from pathlib import Path

import click

from hubcli import output
from hubcli.commands import _options, _repository
from hubcli.reading.hubconf import EntryPoint

_DOC = 20_000  # characters of a docstring that people are shown; --json has all of it


@click.command("help", cls=_options.Executing)
@click.argument("spec")
@click.argument("entrypoint")
@_repository.reading
@_options.locking
def help_(
    spec: str,
    entrypoint: str,
    execute: bool,
    trust: str | None,
    framework: str | None,
    sandbox: str | None,
    locked: bool,
    frozen: bool,
    lock_file: Path | None,
) -> None:
    """Show the signature and docstring of ENTRYPOINT in SPEC.

    They are read without executing anything unless --exec asks for it.
    """
    checkout = _repository.located(spec, locked, frozen, lock_file)
    conf = _repository.read(checkout, execute, trust, framework, sandbox)
    entry = conf.entrypoint(entrypoint, spec=str(checkout.spec))
    output.Output.current().result(
        {"name": entry.name, "signature": entry.signature, "doc": entry.doc},
        lambda: _text(entry),
    )


def _text(entry: EntryPoint) -> str:
    head = entry.name + (entry.signature or "(...)")
    if entry.external:
        body = "It comes from a package that is not in the repository: --exec asks the package."
    else:
        body = entry.doc or "It has no docstring."
    return output.printable(f"{head}\n\n{output.cut(body, _DOC)}")
