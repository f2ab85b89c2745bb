"""`hub trust`: see and change who may execute."""

from __future__ import annotations

from pathlib import Path

import click

from hubcli.base import output
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.errors import UsageError
from hubcli.trust import records
from hubcli.trust.records import Trusted


@click.group()
def trust() -> None:
    """See and change which repositories may run code."""


@trust.command()
def ls() -> None:
    """List the repositories that may run code."""
    _show(records.entries(), "nothing is trusted but your own folders")


@trust.command()
@click.argument("spec")
@click.option("--commit", "scope", flag_value="commit", default=True, help="At this commit.")
@click.option("--repo", "scope", flag_value="repo", help="At any commit, also future ones.")
def add(spec: str, scope: str) -> None:
    """Let SPEC run code: at the commit that it names now, or with --repo at any.

    The code is fetched if it is not in the cache; nothing is executed.
    """
    parsed = RepoSpec.parse(spec)
    if parsed.kind == "local":
        raise UsageError(f"{spec} is a folder of your own: its code runs without consent", spec=spec)
    commit = None if scope == "repo" else Cache.current().checkout(parsed).commit
    _show((records.add(parsed, commit, "command"),), "")


@trust.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def import_(file: Path) -> None:
    """Let the repositories of a list run code.

    FILE is torch.hub's trusted_list (one owner_repo per line, any commit; it is in ~/.cache/torch/hub), or the
    trust.json that early versions of hub stored in the cache.  hub reads neither by itself.
    """
    _show(records.import_list(file), "nothing new in it")


@trust.command()
@click.argument("spec")
@click.option("--commit", "scope", flag_value="commit", help="Only for the commit of SPEC.")
@click.option("--repo", "scope", flag_value="repo", help="All of the repository (the default).")
def rm(spec: str, scope: str | None) -> None:
    """Take the consent for SPEC back."""
    parsed = RepoSpec.parse(spec)
    commit = None
    if scope == "commit":
        found = Cache.current().lookup(parsed)
        commit = parsed.ref if parsed.is_commit else found.commit if found else None
        if commit is None:
            raise UsageError(
                f"{spec} is not in the cache, so that its commit is unknown",
                hint="write the commit as the ref, or use --repo",
                spec=spec,
            )
    _show(records.remove(parsed, commit), "")


def _show(entries: tuple[Trusted, ...], nothing: str) -> None:
    out = output.Output.current()
    rows = [(one.spec,) if out.quiet else (one.spec, one.commit or "any", one.when) for one in entries]
    out.result(
        {
            "trusted": [
                {"spec": one.spec, "url": one.url, "commit": one.commit, "scope": one.scope, "when": one.when}
                for one in entries
            ]
        },
        lambda: output.table(rows) or ("" if out.quiet else nothing),
    )
