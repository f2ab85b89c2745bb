"""`hub show`: all that is known of a repository, without executing it."""

from __future__ import annotations

import time
from typing import Any

import click

from hubcli import output, paths
from hubcli.cache import store
from hubcli.reading import hubconf
from hubcli.spec import RepoSpec


@click.command()
@click.argument("spec")
def show(spec: str) -> None:
    """Show all that is known of SPEC: commit, size, entrypoints, dependencies, weights, trust."""
    from hubcli import trust
    from hubcli.cache import weights

    checkout = store.ensure(RepoSpec.parse(spec))
    conf = hubconf.read(checkout.path)
    used = weights.used_by(str(checkout.spec))
    document: dict[str, Any] = {
        "spec": str(checkout.spec),
        "url": checkout.url,
        "ref": checkout.ref,
        "kind": checkout.kind,
        "commit": checkout.commit,
        "tree": checkout.tree,
        "size": None if checkout.kind == "local" else paths.disk_size(checkout.path),
        "path": str(checkout.path),
        "fetched_at": checkout.fetched_at,
        "entrypoints": [entry.name for entry in conf.entrypoints],
        "dependencies": list(conf.dependencies),
        "weights": [{"file": one.file, "sha256": one.sha256, "size": one.size, "url": one.url} for one in used],
        "trust": trust.describe(checkout),
    }
    output.Output.current().result(document, lambda: _table(document))


def _table(document: dict[str, Any]) -> str:
    shown = dict(document)
    if document["size"] is not None:
        shown["size"] = output.size(document["size"])
        stamp = time.localtime(document["fetched_at"])
        shown["fetched_at"] = time.strftime("%Y-%m-%d %H:%M:%S", stamp)
    shown["entrypoints"] = ", ".join(document["entrypoints"])
    shown["dependencies"] = ", ".join(document["dependencies"])
    shown["weights"] = ", ".join(f"{one['file']} ({output.size(one['size'])})" for one in document["weights"])
    return output.table([(key, str(value or "-")) for key, value in shown.items()])
