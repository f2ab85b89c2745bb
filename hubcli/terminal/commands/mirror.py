"""`hub mirror`: what hub.lock names as static files, for a web server or a bucket."""

from __future__ import annotations

from pathlib import Path

import click

from hubcli.base import output
from hubcli.cache import lockfile
from hubcli.net.storage import targets
from hubcli.terminal import shared_options
from hubcli.workflows import mirror as mirroring
from hubcli.workflows.mirror import Item, Mirrored


@click.command()
@click.argument("target", metavar="DIR|s3://...|https://...", type=click.Path())
@click.option("--prune", is_flag=True, help="Remove from the mirror what this lock file does not name.")
@click.option("--lfs", is_flag=True, help="Also write what Git LFS pointers in the code stand for.")
@click.option(
    "--lock-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Another lock file than ./hub.lock.",
)
def mirror(target: str, prune: bool, lfs: bool, lock_file: Path | None) -> None:
    """Write the code and weights that the lock file pins as a tree of static files.

    Any web server or bucket serves it.  Clients that set HUB_MIRROR to its address ask it first for what a
    commit or digest names, check what comes, and fall back to the origin.  A second run writes what is new.
    s3:// needs the extra `mirror`; https:// is written with PUT.
    """
    lock = lockfile.require(shared_options.lock_path(lock_file))
    made = mirroring.write(lock, targets.of(target), prune=prune, lfs=lfs)
    written = sum(item.size for item in made.items if item.written)
    output.message(
        f"written: {output.size(written)}; HUB_MIRROR with the address of {made.target} makes clients use it"
    )
    if made.pointers:
        output.message(f"{made.pointers} Git LFS files are not in the mirror; --lfs writes them")
    output.Output.current().result(
        {
            "target": made.target,
            "files": [
                {
                    "file": item.place,
                    "name": _name(item),
                    "url": item.pin.url,
                    "size": item.size,
                    "written": item.written,
                }
                for item in made.items
            ],
            "written": written,
            "removed": made.removed,
        },
        lambda: _table(made),
    )


def _name(item: Item) -> str:
    return mirroring.name_of(item.pin)


def _table(made: Mirrored) -> str:
    rows = [(_name(item), output.size(item.size), "written" if item.written else "there") for item in made.items]
    rows += [(f"{made.removed} other files", "", "removed")] if made.removed else []
    return output.table(rows) or "the lock file names nothing"
