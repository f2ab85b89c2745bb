"""`hub new`: the scaffold of a repository that passes `hub check`."""

from __future__ import annotations

from pathlib import Path

import click

from hubcli.base import output
from hubcli.workflows import scaffold


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--owner", help="Who will own the repository (default: git's github.user).")
@click.option("--git/--no-git", default=True, help="Run git init, or leave it out.")
@click.option(
    "--hub-source",
    "source",
    metavar="git+https://...",
    help="What its workflow installs hub from (default: where this hub was installed from).",
)
def new(folder: Path, owner: str | None, git: bool, source: str | None) -> None:
    """Write a publishable repository into DIR: hubconf, model, README, licence, CI workflow.

    DIR must be empty or not exist.
    """
    created = scaffold.create(folder, owner=owner, git=git, source=source)
    out = output.Output.current()
    if created.owner is None:
        out.message("README.md and hubconf.py say OWNER: put your name there, or set git's github.user, or use --owner")
    if created.source is None:
        out.message(
            "where CI gets hub from is not known: put its git address into .github/workflows/hub-check.yml, or use "
            "--hub-source"
        )
    out.result(
        {
            "path": str(created.path),
            "files": list(created.files),
            "owner": created.owner,
            "git": created.git,
            "source": created.source,
        },
        lambda: "\n".join((*created.files, "", f"next: hub check {created.path}")),
    )
