"""`hub pull`: fetch and publish a repository's code, with `--weights` an entrypoint's weights too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from hubcli.base import output, settings
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts
from hubcli.cache.cache import Cache
from hubcli.errors import UsageError
from hubcli.reading import choice, hubconf
from hubcli.terminal import reports, repository, shared_options


@click.command(cls=shared_options.Executing)
@click.argument("spec")
@click.option("--weights", "entrypoint", metavar="ENTRYPOINT", help="Also fetch its weights.")
@click.option(
    "--accept-changed",
    is_flag=True,
    help="Fetch anew, and accept a tag that moved or weights that changed since they were seen first.",
)
@click.option("--dry-run", is_flag=True, help="Report what would be fetched, and how large it is.")
@click.option("--lfs", is_flag=True, help="Also fetch what Git LFS pointers in the code stand for.")
@shared_options.entrypoint_arguments
@shared_options.executing
def pull(
    spec: str,
    entrypoint: str | None,
    accept_changed: bool,
    dry_run: bool,
    lfs: bool,
    keywords: tuple[str, ...],
    positional: str | None,
    pretrained: bool | None,
    **options: Any,
) -> None:
    """Fetch the code of SPEC into the cache; nothing of it is executed.

    With --weights the code is executed: ENTRYPOINT is called (pretrained unless the arguments say otherwise), so
    that its weights are cached.  --dry-run reports sizes; those of weights that the code names only where the commit
    is trusted (or --trust is given), because their servers must be queried.
    """
    execution = shared_options.execution(**options)
    if dry_run:
        if entrypoint is not None or accept_changed or lfs or execution.request.reload:
            raise UsageError("--dry-run goes with SPEC, --trust and --locked alone")
        from hubcli.workflows import preview

        reports.preview(preview.look(RepoSpec.parse(spec), execution.request))
        return
    if accept_changed:
        if execution.request.lock is not None:
            raise UsageError("--accept-changed and --locked exclude each other")
        settings.override(accept_changed=True)
    given = shared_options.arguments(keywords, positional, pretrained)
    if entrypoint is None and (given.args or given.kwargs):
        raise UsageError("arguments are for an entrypoint", hint="add --weights ENTRYPOINT")
    out = output.Output.current()
    settings.override(lfs=lfs or None)
    request = replace(
        execution.request, reload=execution.request.reload or accept_changed, accept_changed=accept_changed, lfs=lfs
    )
    execution = execution._replace(request=request)
    cache = Cache.current()
    checkout = cache.checkout(RepoSpec.parse(spec), request)
    if lfs and checkouts.lacks_lfs(checkout):
        checkout = cache.checkout(checkout.spec, replace(request, reload=True))
    if checkout.cached and checkout.kind != "local":
        out.message(f"cached: {checkout.standing()}")
    conf = hubconf.read(checkout.path)
    names = [entry.name for entry in conf.entrypoints]
    if entrypoint is not None:
        choice.entrypoint(conf, entrypoint, str(checkout.spec), "load", renewal=checkout.renewal())
        repository.fetch_weights(checkout, conf, entrypoint, given, execution)
    out.result(
        {
            "spec": str(checkout.spec),
            "url": checkout.url,
            "ref": checkout.ref,
            "kind": checkout.kind,
            "commit": checkout.commit,
            "path": str(checkout.path),
            "cached": checkout.cached,
            "entrypoints": names,
        },
        lambda: output.table(
            [
                ("spec", str(checkout.spec)),
                (checkout.kind, f"{checkout.ref or ''} {checkout.commit or ''}".strip() or "-"),
                ("path", str(checkout.path)),
                ("entrypoints", ", ".join(names) or "-"),
            ]
        ),
    )
