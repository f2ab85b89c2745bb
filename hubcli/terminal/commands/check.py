"""`hub check`: the smoke test of a hub repository, for people and for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubcli.base import output
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.errors import RepositoryCodeError, UsageError
from hubcli.terminal import quantities, reports, shared_options

if TYPE_CHECKING:
    from hubcli.workflows.check import Row


@click.command(cls=shared_options.Executing)
@click.argument("spec")
@click.argument("entrypoints", nargs=-1, metavar="[ENTRYPOINT]...")
@shared_options.entrypoint_arguments
@shared_options.input_shapes("Also run forward on a random input of this shape; once for each input.")
@click.option("--backward", is_flag=True, help="Also run backward.")
@click.option("--device", metavar="D", help="Run on cpu or cuda[:N].")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write JUnit XML.")
@click.option(
    "--timeout",
    type=quantities.SECONDS,
    default=300.0,
    show_default=True,
    metavar="S",
    help="Seconds an entrypoint may take, downloads not counted.",
)
@click.option("--jobs", type=click.IntRange(1), help="Processes at once (default: one per core).")
@click.option("--allow-skipped", is_flag=True, help="Status 0 although nothing of an entrypoint could be checked.")
@shared_options.select
@shared_options.executing
@click.pass_context
def check(
    ctx: click.Context,
    /,
    spec: str,
    entrypoints: tuple[str, ...],
    keywords: tuple[str, ...],
    positional: str | None,
    pretrained: bool | None,
    shapes: tuple[str, ...],
    backward: bool,
    device: str | None,
    junit: Path | None,
    timeout: float,
    jobs: int | None,
    allow_skipped: bool,
    part: str | None,
    **options: Any,
) -> None:
    """Check ENTRYPOINTs of SPEC (default: all that it defines), each in a process of its own.

    Stages: read, dependencies, build, state-dict round trip, forward, backward.  The exit status is
    1 if any fails, and where nothing was checked: a named entrypoint that is skipped, or all of them.  Of a tuple, list
    or dict each model is checked.  Runs in a sandbox, without network: weights are fetched by hub itself.
    """
    given = shared_options.arguments(keywords, positional, pretrained)
    execution = shared_options.execution(**options)
    if backward and not shapes:
        raise UsageError("--backward needs an input", hint="add --input-shape 1,3,224,224")
    if junit is not None and not junit.parent.is_dir():
        raise UsageError(f"--junit {str(junit)!r}: there is no folder {junit.parent}")
    from hubcli.confined import sandbox
    from hubcli.trust import gates
    from hubcli.workflows import check as checks

    shaped = tuple(checks.shape(text) for text in shapes)
    framework, fresh = execution.framework, execution.request.reload
    plan = checks.CheckPlan(*given, framework, device, shaped, backward, timeout, jobs, fresh, part, allow_skipped)
    try:
        checkout = Cache.current().checkout(RepoSpec.parse(spec), execution.request)
        if checks.will_run(checkout, entrypoints, plan):
            gates.require(checkout, ", ".join(entrypoints), execution.request)
    except RepositoryCodeError as error:  # it cannot be read, so that nothing was published
        row = checks.Row("hubconf.py", checks.READ, "failed", 0.0, error.message, causes=error.causes)
        reports.finish_check(ctx, checks.Checked(spec, False, "none", (row,), 0.0), junit)
        return
    chosen = sandbox.choose(
        execution.sandbox, default=True, local=checkout.kind == "local", framework=framework, device=device
    )
    out = output.Output.current()
    with output.progress(f"checking {checkout.spec}", unit="stages") as bar:

        def done(row: Row) -> None:
            bar.update()
            out.detail(f"{row.entrypoint}: {row.stage}: {row.status} {row.error or ''}")

        checked = checks.check(checkout, entrypoints, plan, chosen, done)
    reports.finish_check(ctx, checked, junit)
