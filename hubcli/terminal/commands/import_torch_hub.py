"""`hub import-torch-hub`: take over what torch.hub has downloaded."""

from __future__ import annotations

import shlex

import click

from hubcli.base import output
from hubcli.cache import torch_hub_cache
from hubcli.workflows import migration
from hubcli.workflows.migration import Copy, File


@click.command()
@click.option("--dry-run", is_flag=True, help="Only report what is there.")
def import_torch_hub(dry_run: bool) -> None:
    """Take over the weights and repositories that torch.hub has in TORCH_HOME or ~/.cache/torch.

    Weights whose name has a digest are checked.  Repositories are pulled at the ref in the folder's name, for only git
    says which commit they are.  Nothing is executed, and torch.hub's own files stay.
    """
    made = migration.run(dry_run=dry_run)
    if made.trusted_list is not None:
        output.message(f"whom torch.hub trusts: hub trust import {shlex.quote(str(made.trusted_list))}")
    found = [*(one.path for one in made.weights), *(one.path for one in made.checkouts)]
    folders = ", ".join(dict.fromkeys(str(path.parent) for path in found))
    if folders and dry_run:
        output.message(f"found in {folders}")
    elif folders:
        size = migration.freed(made)
        output.message(f"imported from {folders}; torch.hub's own files stay there" + f" ({size})" * bool(made.weights))
    output.Output.current().result(
        {
            "dry_run": dry_run,
            "weights": [
                {
                    "path": str(one.path),
                    "size": one.size,
                    "sha256": one.sha256,
                    "status": one.status,
                    "reason": one.reason,
                }
                for one in made.weights
            ],
            "checkouts": [
                {
                    "path": str(one.path),
                    "spec": one.spec,
                    "status": one.status,
                    "changed": one.changed,
                    "reason": one.reason,
                }
                for one in made.checkouts
            ],
            "trusted_list": None if made.trusted_list is None else str(made.trusted_list),
        },
        lambda: (
            output.table([_weights(one, dry_run) for one in made.weights] + [_checkout(one) for one in made.checkouts])
            or f"torch.hub has nothing here: neither in {_places()}"
        ),
    )


def _weights(one: File, dry_run: bool) -> tuple[str, ...]:
    said = {"new": "would be imported" if dry_run else "imported", "there": "here already"}
    return (one.path.name, output.size(one.size), said.get(one.status) or f"refused: {one.reason}")


def _checkout(one: Copy) -> tuple[str, ...]:
    said = {"there": "here already", "found": f"would be pulled as {one.spec}", "pulled": f"pulled as {one.spec}"}
    text = said.get(one.status) or f"left: {one.reason}"
    return (one.path.name, "", f"{text}; {one.changed} files are others now" if one.changed else text)


def _places() -> str:
    return " nor in ".join(dict.fromkeys(map(str, torch_hub_cache.caches())))
