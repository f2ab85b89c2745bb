"""`hub cache rm`: remove repositories and weights, after a question."""

from __future__ import annotations

import sys

import click

from hubcli.base import output
from hubcli.cache.cache import Cache
from hubcli.errors import HubError, UsageError
from hubcli.terminal import quantities
from hubcli.workflows import listing


@click.command()
@click.argument("targets", nargs=-1, metavar="[SPEC_OR_FILE]...")
@click.option("--filter", "conditions", multiple=True, metavar="CONDITION", help="Remove what fits, e.g. 'used>30d'.")
@click.option("--dry-run", is_flag=True, help="Only report what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(targets: tuple[str, ...], conditions: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Remove a repository's ref, all its refs (SPEC without ref), or a weight file.

    With --filter: all that fits every CONDITION (as in `hub cache ls`).
    """
    if bool(targets) == bool(conditions):
        raise UsageError(
            "`hub cache rm` takes names or --filter, and not both" if targets else "`hub cache rm` needs a name",
            hint="name what shall go (`hub cache ls` lists it), or give --filter 'used>30d'",
        )
    removal = listing.Removal.of(Cache.current(), targets, [quantities.condition(text) for text in conditions])
    names, freed = removal.carry_out(dry_run=True)
    if not dry_run and names:
        if not yes:
            _confirm(names, freed)
        names, freed = removal.carry_out(dry_run=False)
    verb = "would free" if dry_run else "freed"
    output.Output.current().result(
        {"removed": names, "freed": freed},
        lambda: "\n".join([*names, f"{verb} {output.size(freed)}"]),
    )


def _confirm(names: list[str], freed: int) -> None:
    if not _is_terminal():
        raise UsageError(
            "`hub cache rm` asks before it removes, and there is no terminal",
            hint="add --yes, or --dry-run to see what would go",
        )
    click.echo("\n".join(names), err=True)
    if not click.confirm(f"Remove these and free {output.size(freed)}?", err=True):
        raise HubError("nothing was removed")


def _is_terminal() -> bool:
    return sys.stdin.isatty()
