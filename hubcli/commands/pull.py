"""`hub pull`: fetch and publish a repository's code, with `--weights` an entrypoint's weights too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hubcli import output, settings
from hubcli.cache import store
from hubcli.commands import _options, _repository
from hubcli.errors import UsageError
from hubcli.reading import choice, hubconf
from hubcli.spec import RepoSpec

if TYPE_CHECKING:
    from hubcli.cache.weights import Weight
    from hubcli.reading.hubconf import HubConf


@click.command(cls=_options.Executing)
@click.argument("spec")
@click.option("--weights", "entrypoint", metavar="ENTRYPOINT", help="Also fetch its weights.")
@click.option(
    "--accept-changed",
    is_flag=True,
    help="Fetch anew, and accept a tag that moved or weights that changed since they were seen first.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be fetched, and how large it is.")
@click.option("--lfs", is_flag=True, help="Also fetch what Git LFS pointers in the code stand for.")
@_options.entrypoint_arguments
@_options.executing
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

    With --weights the code is executed: ENTRYPOINT is called (pretrained unless told otherwise), so
    that its weights are cached.  --dry-run tells sizes; those of weights that the code names only where the commit is
    trusted (or --trust is given), for their servers have to be asked.
    """
    execution = _options.execution(**options)
    if dry_run:
        if entrypoint is not None or accept_changed or lfs or execution.force_reload:
            raise UsageError("--dry-run goes with SPEC, --trust and --locked alone")
        _preview(RepoSpec.parse(spec), execution.trust)
        return
    if accept_changed:
        if settings.current().lock is not None:
            raise UsageError("--accept-changed and --locked exclude each other")
        settings.override(accept_changed=True)
        execution = execution._replace(force_reload=True)
    given = _options.arguments(keywords, positional, pretrained)
    if entrypoint is None and (given.args or given.kwargs):
        raise UsageError("arguments are for an entrypoint", hint="add --weights ENTRYPOINT")
    out = output.Output.current()
    settings.override(lfs=lfs or None)
    checkout = store.ensure(RepoSpec.parse(spec), force_reload=execution.force_reload)
    if lfs and store.lacks_lfs(checkout):
        checkout = store.ensure(checkout.spec, force_reload=True)
    if checkout.cached and checkout.kind != "local":
        out.message(f"cached: {checkout.standing()}")
    conf = hubconf.read(checkout.path)
    names = [entry.name for entry in conf.entrypoints]
    if entrypoint is not None:
        choice.entrypoint(conf, entrypoint, str(checkout.spec), "load", renewal=checkout.renewal())
        fetch_weights(checkout, conf, entrypoint, given, execution)
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


def _preview(spec: RepoSpec, option: str | None) -> None:
    from hubcli import preview

    made = preview.look(spec, option)
    weights = [{"url": one.url, "size": one.size, "cached": one.cached} for one in made.weights]
    names = ("ref", "kind", "commit", "cached", "files", "size", "larger")
    document = {"spec": str(spec), **{name: getattr(made, name) for name in names}, "weights": weights}
    rows = [
        ("spec", str(spec)),
        (made.kind, f"{made.ref or ''} {made.commit or ''}".strip() or "-"),
        ("code", f"{made.files} files, {output.size(made.size)}{', here already' if made.cached else ''}"),
    ]
    if made.larger:
        rows.append(("", f"and {made.larger} of more than {output.size(preview.SMALL)} each"))
    for one in made.weights:
        known = "?" if one.size is None else output.size(one.size)
        rows.append(("weights", f"{known}{', here already' if one.cached else ''}  {one.url}"))
    if made.weights and not made.trusted:
        output.message("the servers of the weights are asked for sizes once the code is trusted (--trust once)")
    output.Output.current().result(document, lambda: output.table(rows))


def fetch_weights(
    checkout: store.Checkout,
    conf: HubConf,
    entrypoint: str,
    given: _options.Arguments,
    execution: _options.Execution,
) -> Sequence[Weight]:
    """Call the entrypoint, pretrained where it knows the word and nothing else was said."""
    from hubcli import trust
    from hubcli.confined import jobs

    signature = next((one.signature for one in conf.entrypoints if one.name == entrypoint), None)
    kwargs = dict(given.kwargs)
    if re.search(r"[(,]\s*pretrained\b", signature or ""):
        kwargs.setdefault("pretrained", True)
    given = _options.Arguments(given.args, kwargs)
    _repository.require_fit(checkout, conf, entrypoint, given)
    trust.require(checkout, entrypoint, execution.trust)
    confined = _repository.confined("load", checkout, entrypoint, given, execution)
    if confined is not None:
        used = jobs.load(*confined, None).weights
    else:
        used = _repository.call(checkout, entrypoint, given, execution).weights
    for weight in used:
        output.message(f"weights: {weight.file} ({output.size(weight.size)})")
    return used
