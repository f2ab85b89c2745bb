"""`hub new`: the scaffold of a repository that passes `hub check`."""

from __future__ import annotations

from pathlib import Path

import click

from hubcli import output, scaffold


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Write a publishable repository into DIR: hubconf, model, README, licence, CI workflow.

    DIR must be empty or not exist.
    """
    created = scaffold.create(folder)
    output.Output.current().result(
        {"path": str(created.path), "files": list(created.files)},
        lambda: "\n".join((*created.files, "", f"next: hub check {created.path}")),
    )
