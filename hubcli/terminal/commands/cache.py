"""`hub cache`: where the cache is, what it holds, and how to get rid of it."""

from __future__ import annotations

from dataclasses import asdict

import click

from hubcli.base import output, paths
from hubcli.cache.cache import Cache
from hubcli.errors import ExitStatus
from hubcli.terminal import quantities, reports
from hubcli.terminal.commands.cache_rm import rm
from hubcli.workflows import listing


@click.group()
def cache() -> None:
    """See and clear the cache."""


@cache.command("dir")
def dir_() -> None:
    """Print where the cache is."""
    root = str(paths.hub_dir())
    output.Output.current().result({"path": root}, root)


@cache.command()
@click.option("--sort", type=click.Choice(("name", "size", "used")), default="name")
@click.option("--filter", "conditions", multiple=True, metavar="CONDITION", help="e.g. 'size>1GB'")
def ls(sort: str, conditions: tuple[str, ...]) -> None:
    """List repositories and weights, and what the whole cache takes on the disk.

    CONDITION is size or used (time since), < or >, a number with a unit: size>100MB, used>30d.  With -q: names alone.
    """
    here = Cache.current()
    wanted = [quantities.condition(text) for text in conditions]
    repos, weights = (listing.arranged(items, sort, wanted) for items in (listing.repos(here), listing.weights()))
    taken = here.usage()
    document = {
        "repos": [item.document for item in repos],
        "weights": [item.document for item in weights],
        "usage": {"total": taken.total, **asdict(taken)},
    }
    out = output.Output.current()
    if out.quiet:
        out.result(document, lambda: "\n".join(dict.fromkeys(item.name for item in (*repos, *weights))))
    else:
        out.result(document, lambda: reports.cached(repos, weights, taken, bool(wanted)))


@cache.command()
@click.option("--max-size", type=quantities.SIZE, help="Also remove the least recently used, down to this size.")
@click.option(
    "--grace",
    type=quantities.DURATION,
    default="1d",
    show_default=True,
    help="Leave what is younger than this.",
)
@click.option("--dry-run", is_flag=True, help="Only report what would be removed.")
def prune(max_size: int | None, grace: float, dry_run: bool) -> None:
    """Drop what nothing refers to: old generations, partial downloads, stray files and databases.

    With --max-size also the least recently used repositories and weights, until the rest fits.
    """
    pruned = Cache.current().prune(grace=grace, max_size=max_size, dry_run=dry_run)
    verb = "would free" if dry_run else "freed"
    output.Output.current().result(
        {"removed": list(pruned.removed), "freed": pruned.freed},
        lambda: "\n".join([*pruned.removed, f"{verb} {output.size(pruned.freed)}"]),
    )


@cache.command()
@click.option("--repair", is_flag=True, help="Repair what can be repaired.")
def verify(repair: bool) -> None:
    """Hash every tree and weight file again; status 1 if one is not what it must be.

    Names every file that was changed, is missing or is extra, and archives that are damaged inside.

    Old generations, which no look-up finds, are a warning.

    With --repair trees are written anew, weights fetched anew or dropped; status 1 if that failed.
    """
    found = Cache.current().verify(repair=repair)
    out = output.Output.current()
    out.result(found.document(), lambda: reports.verified(found))
    left = [one for one in found.problems if not one.repaired]
    if left and all(one.superseded for one in left):
        out.warning("old generations were changed; no look-up finds them, and hub cache prune drops them")
    elif left:
        if not repair:
            out.message("hint: `hub cache verify --repair` fetches anew what is wrong")
        click.get_current_context().exit(ExitStatus.FAILURE)


cache.add_command(rm)
