"""`hub cache`: where the cache is, what it holds, and how to get rid of it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from hubcli import output, paths
from hubcli.cache import store
from hubcli.commands import _quantities, _repository
from hubcli.errors import ExitStatus, HubError, NotFoundError, UsageError
from hubcli.spec import RepoSpec

if TYPE_CHECKING:
    from hubcli.cache.usage import Usage
    from hubcli.cache.verify import Problem, Verified

_FILTER = re.compile(r"(size|used)\s*([<>])\s*(.+)\Z", re.S)


@dataclass(frozen=True)
class _Item:
    """A line of the listing.  `idle` is the time since its last use in seconds."""

    name: str
    size: int
    idle: float
    document: dict[str, Any]


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
    from hubcli.cache import usage

    wanted = [_condition(text) for text in conditions]
    repos, weights = (_arranged(items, sort, wanted) for items in (_repos(), _weights()))
    taken = usage.measure(paths.hub_dir())
    document = {
        "repos": [item.document for item in repos],
        "weights": [item.document for item in weights],
        "usage": {"total": taken.total, **asdict(taken)},
    }
    out = output.Output.current()
    if out.quiet:
        out.result(document, lambda: "\n".join(dict.fromkeys(item.name for item in (*repos, *weights))))
    else:
        out.result(document, lambda: _table(repos, weights, taken, bool(wanted)))


@cache.command()
@click.argument("targets", nargs=-1, metavar="[SPEC_OR_FILE]...")
@click.option("--filter", "conditions", multiple=True, metavar="CONDITION", help="Remove what fits, e.g. 'used>30d'.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(targets: tuple[str, ...], conditions: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Remove a repository's ref, all its refs (SPEC without ref), or a weight file.

    With --filter: all that fits every CONDITION (as in `hub cache ls`).
    """
    from hubcli.cache import weights

    if bool(targets) == bool(conditions):
        raise UsageError(
            "`hub cache rm` takes names or --filter, and not both" if targets else "`hub cache rm` needs a name",
            hint="name what shall go (`hub cache ls` lists it), or give --filter 'used>30d'",
        )
    wanted = [_condition(text) for text in conditions]
    if wanted:
        items = _arranged(_repos(), "name", wanted)
        specs = [RepoSpec.parse(item.name) for item in items]
        files = list(dict.fromkeys(item.name for item in _arranged(_weights(), "name", wanted)))
    else:
        known = {weight.file for weight in weights.list_blobs()}
        files = [target for target in targets if target in known]
        specs = [_cached(target) for target in targets if target not in known]

    def remove(dry_run: bool) -> tuple[list[str], int]:
        removals = [store.remove(spec, dry_run=dry_run) for spec in specs]
        freed = sum(removal.freed for removal in removals)
        freed += sum(weights.remove(file, dry_run=dry_run) for file in files)
        return [name for removal in removals for name in removal.specs] + files, freed

    names, freed = remove(dry_run=True)
    if not dry_run and names:
        if not yes:
            _confirm(names, freed)
        names, freed = remove(dry_run=False)
    verb = "would free" if dry_run else "freed"
    output.Output.current().result(
        {"removed": names, "freed": freed},
        lambda: "\n".join([*names, f"{verb} {output.size(freed)}"]),
    )


@cache.command()
@click.option("--max-size", type=_quantities.SIZE, help="Also remove the least recently used above it.")
@click.option(
    "--grace",
    type=_quantities.DURATION,
    default="1d",
    show_default=True,
    help="Spare what is younger.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def prune(max_size: int | None, grace: float, dry_run: bool) -> None:
    """Drop what nothing refers to: old generations, partial downloads, stray files and databases.

    With --max-size also the least recently used repositories and weights, until the rest fits.
    """
    from hubcli.cache import prune as pruning

    pruned = pruning.prune(grace=grace, max_size=max_size, dry_run=dry_run)
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
    from hubcli.cache import verify as verifying

    found = verifying.verify(repair=repair)
    out = output.Output.current()
    document = {
        "checked": {"trees": found.trees, "weights": found.weights, "bytes": found.bytes},
        "problems": [
            {
                "kind": one.kind,
                "name": one.name,
                "path": str(one.path),
                "file": file,
                "what": what,
                "expected": expected,
                "found": seen,
                "problem": one.problem,
                "repaired": one.repaired,
                "superseded": one.superseded,
            }
            for one in found.problems
            for file, what, expected, seen in one.files or [(None, one.problem.partition(":")[0], None, None)]
        ],
    }
    out.result(document, lambda: _report(found))
    left = [one for one in found.problems if not one.repaired]
    if left and all(one.superseded for one in left):
        out.warning("old generations were changed; no look-up finds them, and hub cache prune drops them")
    elif left:
        if not repair:
            out.message("hint: `hub cache verify --repair` fetches anew what is wrong")
        click.get_current_context().exit(ExitStatus.FAILURE)


def _report(found: Verified) -> str:
    lines = [
        f"{one.name}: {_state(one)}: {one.problem}\n  {one.path}"
        + "".join(f"\n    {what}: {file}" for file, what, *_ in one.files[:20] if one.kind == "code")
        + (f"\n    and {len(one.files) - 20} more" if len(one.files) > 20 else "")
        for one in found.problems
    ]
    what = f"{found.trees} trees and {found.weights} weight files, {output.size(found.bytes)}"
    count = sum(not one.superseded for one in found.problems)
    lines.append(f"{what}: {count or 'no'} problem{'s' * (count != 1)}")
    return "\n".join(lines)


def _state(one: Problem) -> str:
    return "repaired" if one.repaired else "superseded" if one.superseded else "PROBLEM"


def _cached(target: str) -> RepoSpec:
    try:
        return RepoSpec.parse(target)
    except UsageError:
        if "/" in target or ":" in target:
            raise
        raise NotFoundError(  # it looks like the name of a file
            f"no weight file {target!r} in the cache", hint="`hub cache ls` lists what is there"
        ) from None


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


def _repos() -> list[_Item]:
    now = time.time()
    return [
        _Item(repo.spec, repo.size, now - repo.last_used, _repository.repo_document(repo)) for repo in store.repos()
    ]


def _weights() -> list[_Item]:
    from hubcli.cache import weights

    now = time.time()
    return [
        _Item(
            weight.file,
            weight.size,
            now - weight.last_used,
            {
                "file": weight.file,
                "sha256": weight.sha256,
                "size": weight.size,
                "url": weight.url,
                "last_used": weight.last_used,
            },
        )
        for weight in weights.list_blobs()
    ]


def _condition(text: str) -> Callable[[_Item], bool]:
    match = _FILTER.match(text.strip())
    if not match:
        raise UsageError(f"--filter {text!r} is not understood", hint="e.g. size>1GB or used>30d")
    field, sign, amount = match.groups()
    limit = _quantities.quantity(amount, "size" if field == "size" else "time", f"--filter {text!r}")

    def holds(item: _Item) -> bool:
        value = item.size if field == "size" else item.idle
        return value > limit if sign == ">" else value < limit

    return holds


def _arranged(items: list[_Item], sort: str, wanted: list[Callable[[_Item], bool]]) -> list[_Item]:
    kept = [item for item in items if all(holds(item) for holds in wanted)]
    if sort == "size":
        return sorted(kept, key=lambda item: -item.size)
    if sort == "used":
        return sorted(kept, key=lambda item: item.idle)
    return sorted(kept, key=lambda item: item.name)


def _table(repos: list[_Item], weights: list[_Item], taken: Usage, filtered: bool) -> str:
    rows = [
        (item.name, item.document[key][:12], output.size(item.size), _used(item))
        for items, key in ((repos, "commit"), (weights, "sha256"))
        for item in items
    ]
    kinds = {
        "code": taken.code,
        "weights": taken.weights,
        "git databases": taken.databases,
        "unfinished downloads": taken.partial,
        "records": taken.other,
    }
    parts = ", ".join(f"{name} {output.size(size)}" for name, size in kinds.items() if size)
    whole = f"{output.size(taken.total)} in {paths.hub_dir()}" + (f": {parts}" if parts else "")
    if not rows:
        return f"nothing {'fits' if filtered else 'is cached'} in {paths.hub_dir()}" + (f"\n{whole}" if parts else "")
    listed = f"{output.size(sum(item.size for item in (*repos, *weights)))} listed; " if filtered else ""
    return f"{output.table(rows)}\n{listed}{whole}"


def _used(item: _Item) -> str:
    return f"used {output.age(item.idle)} ago"
