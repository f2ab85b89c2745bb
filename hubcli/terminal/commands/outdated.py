"""`hub outdated`: which refs are elsewhere than where hub.lock pins them."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from hubcli.base import output
from hubcli.base.spec import RepoSpec
from hubcli.cache import lockfile
from hubcli.errors import ExitStatus
from hubcli.terminal import shared_options
from hubcli.workflows import locking
from hubcli.workflows.locking import Outdated


@click.command()
@click.argument("specs", nargs=-1, metavar="SPEC...")
@click.option(
    "--lock-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Another lock file than ./hub.lock.",
)
@click.pass_context
def outdated(ctx: click.Context, specs: tuple[str, ...], lock_file: Path | None) -> None:
    """Ask the remotes which locked specs (all, or these) have moved or have a newer tag; nothing is fetched.

    Status 6 if a tag has moved: tags should stay.
    """
    lock = lockfile.require(shared_options.lock_path(lock_file))
    found = locking.outdated(lock, [RepoSpec.parse(spec) for spec in specs])
    moved = [one for one in found if one.kind == "tag" and one.moved]
    for one in moved:
        name = shlex.quote(one.spec)
        output.warning(
            f"{one.spec}: a tag should stay, and this one moved from {one.locked} to {one.current}; to accept it: hub "
            f"pull {name} --accept-changed && hub lock {name}"
        )
    output.Output.current().result(
        {
            "outdated": [
                {
                    "spec": one.spec,
                    "kind": one.kind,
                    "locked": one.locked,
                    "current": one.current,
                    "newer": one.newer,
                }
                for one in found
            ]
        },
        lambda: output.table([_row(one) for one in found]) or "nothing has moved",
    )
    if moved:
        ctx.exit(ExitStatus.INTEGRITY)


def _row(one: Outdated) -> tuple[str, ...]:
    current = "gone" if one.current is None else one.current[:12] if one.moved else ""
    return (
        one.spec,
        one.kind,
        one.locked[:12],
        "->" if current else "",
        current,
        f"newer: {one.newer}" if one.newer else "",
    )
