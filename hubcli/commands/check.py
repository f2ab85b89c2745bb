"""`hub check`: the smoke test of a hub repository, for people and for CI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubcli import output, paths
from hubcli.cache import store
from hubcli.commands import _options, _quantities
from hubcli.errors import ExitStatus, RepositoryCodeError, UsageError
from hubcli.spec import RepoSpec

if TYPE_CHECKING:
    from hubcli.check import Checked, Row

_STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow", "needs-network": "yellow"}


@click.command(cls=_options.Executing)
@click.argument("spec")
@click.argument("entrypoints", nargs=-1, metavar="[ENTRYPOINT]...")
@_options.entrypoint_arguments
@click.option("--input-shape", "shapes", multiple=True, metavar="N,C,H,W[:DTYPE]",
              help="Also run forward on a random input of this shape; once for each input.")  # fmt: skip
@click.option("--backward", is_flag=True, help="Also run backward.")
@click.option("--device", metavar="D", help="Run on cpu or cuda[:N].")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write JUnit XML.")
@click.option("--timeout", type=_quantities.SECONDS, default=300.0, show_default=True,
              metavar="S", help="Seconds an entrypoint may take, downloads not counted.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), help="Processes at once (default: one a core).")
@click.option("--allow-skipped", is_flag=True, help="Status 0 although nothing of an entrypoint could be checked.")
@_options.select
@_options.executing
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
    given = _options.arguments(keywords, positional, pretrained)
    execution = _options.execution(**options)
    if backward and not shapes:
        raise UsageError("--backward needs an input", hint="add --input-shape 1,3,224,224")
    if junit is not None and not junit.parent.is_dir():
        raise UsageError(f"--junit {str(junit)!r}: there is no folder {junit.parent}")
    from hubcli import check as checks
    from hubcli import trust
    from hubcli.confined import sandbox

    plan = checks.CheckPlan(
        given.args,
        given.kwargs,
        execution.framework,
        device,
        tuple(checks.shape(text) for text in shapes),
        backward,
        timeout,
        jobs,
        execution.force_reload,
        part,
        allow_skipped,
    )
    try:
        checkout = store.ensure(RepoSpec.parse(spec), force_reload=execution.force_reload)
        if checks.will_run(checkout, entrypoints, plan):
            trust.require(checkout, ", ".join(entrypoints), execution.trust)
    except RepositoryCodeError as error:  # it cannot be read, so that nothing was published
        row = checks.Row("hubconf.py", checks.READ, "failed", 0.0, error.message, causes=error.causes)
        _finish(ctx, checks.Checked(spec, False, "none", (row,), 0.0), junit)
        return
    chosen = sandbox.choose(
        execution.sandbox,
        default=True,
        local=checkout.kind == "local",
        framework=execution.framework,
        device=device,
    )
    out = output.Output.current()
    with output.progress(f"checking {checkout.spec}", unit="stages") as bar:

        def done(row: Row) -> None:
            bar.update()
            out.detail(f"{row.entrypoint}: {row.stage}: {row.status} {row.error or ''}")

        checked = checks.check(checkout, entrypoints, plan, chosen, done)
    _finish(ctx, checked, junit)


def _finish(ctx: click.Context, checked: Checked, junit: Path | None) -> None:
    """Print what was found, and end with the status that it means."""
    from hubcli import check as checks

    out = output.Output.current()
    if junit is not None:
        paths.write_atomically(junit, checks.junit(checked))
    document = checks.document(checked)
    out.result(document, lambda: _print(checked, document))
    waiting = checked.count("needs-network")
    if waiting:
        out.warning(f"{waiting} not checked for want of a network: --no-sandbox gives it one")
    if checked.count("failed"):
        ctx.exit(ExitStatus.FAILURE)


def _print(checked: Checked, document: dict[str, Any]) -> str | None:
    """A table: drawn on a terminal, in colour; else as text."""
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("entrypoint", "stage", "status", "time", ""):
        table.add_column(title, justify="right" if title == "time" else "left", overflow="fold")
    before = None
    for row in checked.rows:
        table.add_row(
            Text(" ".join(output.printable(row.entrypoint).split()) if row.entrypoint != before else ""),
            Text(row.stage),
            Text(row.status, style=_STYLES[row.status]),
            Text(f"{row.seconds:.2f} s" if row.seconds >= 0.005 else ""),
            Text(output.printable(row.told())),
        )
        before = row.entrypoint
    total = (
        f"{document['passed']} passed, {document['failed']} failed, {document['skipped']} skipped in "
        f"{checked.seconds:.1f} s"
    )
    drawn = sys.stdout.isatty()
    console = Console(width=None if drawn else 160, file=sys.stdout if drawn else io.StringIO())
    console.print(table)
    console.print(Text(total, style="red" if document["failed"] else "green"))
    if drawn:
        return None
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())
