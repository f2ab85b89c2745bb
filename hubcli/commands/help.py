"""`hub help`: an entrypoint's signature and docstring."""

from __future__ import annotations

import click

from hubcli import output
from hubcli.cache import store
from hubcli.commands import _options, _repository
from hubcli.reading.hubconf import EntryPoint
from hubcli.spec import RepoSpec


@click.command("help", cls=_options.Executing)
@click.argument("spec")
@click.argument("entrypoint")
@_repository.reading
def help_(
    spec: str,
    entrypoint: str,
    execute: bool,
    trust: str | None,
    framework: str | None,
    sandbox: str | None,
) -> None:
    """Show the signature and docstring of ENTRYPOINT in SPEC.

    They are read without executing anything unless --exec asks for it.
    """
    checkout = store.ensure(RepoSpec.parse(spec))
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
    return output.printable(f"{head}\n\n{body}")
