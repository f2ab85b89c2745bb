"""`hub list`: a repository's entrypoints, read without running anything, or what is cached."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hubcli.base import output, paths
from hubcli.cache.cache import Cache
from hubcli.errors import UsageError
from hubcli.terminal import repository, shared_options

if TYPE_CHECKING:
    from pathlib import Path

    from hubcli.base.request import Trust
    from hubcli.reading.hubconf import EntryPoint, HubConf


_SUMMARY = 200  # characters of a summary in a table


@click.command("list", cls=shared_options.Executing)
@click.argument("spec", required=False)
@repository.reading
@shared_options.locking
def list_(
    spec: str | None,
    execute: bool,
    trust: Trust | None,
    framework: str | None,
    sandbox: str | None,
    locked: bool,
    frozen: bool,
    lock_file: Path | None,
) -> None:
    """List the entrypoints of SPEC with the first line of their docstrings.

    Nothing is executed unless --exec asks for it.  Without SPEC: what is cached.
    """
    out = output.Output.current()
    if spec is None:
        if locked or frozen:
            raise UsageError("--locked needs a SPEC", hint="hub list owner/repo --locked")
        if execute:
            raise UsageError("--exec needs a SPEC", hint="hub list owner/repo --exec")
        repos = Cache.current().repos()
        if not repos:
            out.message(f"nothing is cached in {paths.hub_dir()}")
        out.result(
            {"repos": [repo.document() for repo in repos]},
            lambda: output.table([(repo.spec,) if out.quiet else (repo.spec, repo.commit[:12]) for repo in repos]),
        )
        return
    checkout = repository.located(spec, locked, frozen, lock_file)
    if checkout.cached and checkout.kind == "branch":
        out.message(f"cached: {checkout.standing()}")
    conf = repository.read(checkout, execute, trust, framework, sandbox)
    if conf.dynamic and not execute:
        out.message("hubconf.py makes more names when it runs; --exec runs it and lists them")
    out.result(
        {
            "spec": str(checkout.spec),
            "entrypoints": [_document(entry) for entry in conf.entrypoints],
            "dependencies": list(conf.dependencies),
            "dynamic": conf.dynamic,
        },
        lambda: "\n".join(entry.name for entry in conf.entrypoints) if out.quiet else _table(conf),
    )


def _document(entry: EntryPoint) -> dict[str, object]:
    names = ("name", "summary", "source", "external")
    return {name: value for name, value in asdict(entry).items() if name in names}


def _table(conf: HubConf) -> str:
    rows = [
        (entry.name, output.cut(entry.summary or "", _SUMMARY) or ("(from another package)" if entry.external else ""))
        for entry in conf.entrypoints
    ]
    return output.printable(output.table(rows)) or "hubconf.py defines no entrypoint"
