"""`hub deps`: which dependencies are satisfied, by what, and the one command for the rest."""

from __future__ import annotations

import click

from hubcli import output, settings
from hubcli.cache import store
from hubcli.commands import _repository
from hubcli.errors import ExitStatus
from hubcli.reading import dependencies
from hubcli.reading.dependencies import Report
from hubcli.spec import RepoSpec


@click.command()
@click.argument("spec")
@click.option(
    "--framework",
    type=click.Choice(settings.FRAMEWORKS),
    help="What provides torch (default: HUB_FRAMEWORK, else engine).",
)
@click.pass_context
def deps(ctx: click.Context, spec: str, framework: str | None) -> None:
    """Show which dependencies of SPEC are there; nothing is imported or executed.

    The exit status is 8 if any is missing.
    """
    checkout = store.ensure(RepoSpec.parse(spec))
    conf = _repository.conf(checkout)
    report = dependencies.check(
        conf.dependencies,
        root=checkout.path,
        framework=framework or settings.current().framework,
    )
    out = output.Output.current()
    if report.missing and report.install is None and report.hint:
        out.message(f"hint: {report.hint}")
    out.result(
        {
            "dependencies": [
                {"name": one.name, "satisfied": one.satisfied, "provided_by": one.provided_by}
                for one in report.dependencies
            ],
            "install": report.install,
        },
        lambda: _text(report),
    )
    if report.missing:
        ctx.exit(ExitStatus.DEPENDENCIES)


def _text(report: Report) -> str:
    rows = [(one.name, "ok" if one.satisfied else "missing", one.provided_by or "") for one in report.dependencies]
    text = output.printable(output.table(rows)) or "it declares no dependencies"
    return text if report.install is None else f"{text}\n\nrun: {report.install}"
