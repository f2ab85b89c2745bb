"""`hub deps`: which dependencies are satisfied, by what, and the one command for the rest."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubcli import output, settings
from hubcli.cache.store import Checkout
from hubcli.commands import _options, _repository
from hubcli.errors import DependencyError, ExitStatus, HubError, UsageError
from hubcli.reading import dependencies, imports
from hubcli.reading.dependencies import Plan, Report

if TYPE_CHECKING:
    from hubcli.running.installer import Tool


@click.command()
@click.argument("spec")
@click.option(
    "--framework",
    type=click.Choice(settings.FRAMEWORKS),
    help="What provides torch (default: HUB_FRAMEWORK, else engine).",
)
@click.option("--install", "installing", is_flag=True, help="Install what is missing, never torch, by uv or pip.")
@click.option("--yes", is_flag=True, help="With --install: do not ask.")
@click.option("--system", is_flag=True, help="With --install: also outside a virtual environment.")
@_options.locking
@click.pass_context
def deps(
    ctx: click.Context,
    spec: str,
    framework: str | None,
    installing: bool,
    yes: bool,
    system: bool,
    locked: bool,
    frozen: bool,
    lock_file: Path | None,
) -> None:
    """Show which dependencies of SPEC are there; nothing is imported or executed.

    Besides those that it declares: what its code imports without declaring it, and what an installed package lacks.
    The exit status is 8 if any is missing.
    """
    if (yes or system) and not installing:
        raise UsageError(f"--{'yes' if yes else 'system'} is for --install; nothing is installed without it")
    framework = framework or settings.current().framework
    if installing and framework != "engine":
        raise UsageError("--install never installs torch, which --framework torch needs", hint="install it with pip")
    checkout = _repository.located(spec, locked, frozen, lock_file)
    report = _check(checkout, framework)
    installed: tuple[str, ...] = ()
    if installing:
        installed = _install(checkout, report, yes, system)
        report = _check(checkout, framework) if installed else report
    out = output.Output.current()
    for text in report.warnings:
        out.warning(text)
    for _, reason in report.plan.refused:
        out.message(f"hint: {reason}")
    out.result(
        {
            "dependencies": [
                {
                    "name": one.name,
                    "satisfied": one.satisfied,
                    "provided_by": one.provided_by,
                    "declared": one.declared,
                    "note": one.note,
                }
                for one in report.dependencies
            ],
            "install": report.install,
            "installed": list(installed) if installing else None,
        },
        lambda: _text(report, installed, spec),
    )
    if report.missing:
        ctx.exit(ExitStatus.DEPENDENCIES)


def _check(checkout: Checkout, framework: str) -> Report:
    return dependencies.check(
        _repository.conf(checkout).dependencies,
        root=checkout.path,
        framework=framework,
        survey=imports.survey(checkout.path),
    )


def _install(checkout: Checkout, report: Report, yes: bool, system: bool) -> tuple[str, ...]:
    """Show what would be run, ask, and run it; the distributions that came in."""
    if report.install is None:
        return ()
    from hubcli.running import installer

    installer.require_environment(system)
    using = installer.tool()
    plan = installer.resolve(report.plan, using)
    try:
        return _carried_out(plan, using, system, yes)
    except DependencyError as error:
        refused = list(installer.refusals(plan, using))
        other = installer.without(plan, refused)
        if other == plan:
            error.hint = "; ".join([str(error.hint), *map(str, refused)])
            raise
    for one in refused:
        output.message(f"hub: {one}")
    return _carried_out(other, using, system, yes)


def _carried_out(plan: Plan, using: Tool, system: bool, yes: bool) -> tuple[str, ...]:
    """Show the commands of a plan, ask, and run them; what was installed."""
    from hubcli.running import installer

    with installer.commands(plan, using, system) as prepared:
        for command in prepared:
            output.message("$ " + shlex.join(command))
        if not yes:
            _confirm()
        return installer.run(prepared)


def _confirm() -> None:
    if not _is_terminal():
        raise UsageError(
            "`hub deps --install` asks before it installs, and there is no terminal",
            hint="add --yes",
        )
    if not click.confirm("Run this?", err=True):
        raise HubError("nothing was installed")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _text(report: Report, installed: tuple[str, ...], spec: str) -> str:
    rows = [
        (one.name, "ok" if one.satisfied else "missing", one.provided_by or "", one.note or "")
        for one in report.dependencies
    ]
    parts = [output.printable(output.table(rows)) or "it declares no dependencies"]
    if installed:
        parts.append(f"installed: {', '.join(installed)}")
    if report.install is not None:
        itself = f"hub deps {shlex.quote(spec)} --install"
        parts.append(f"or let hub do it, which never brings torch along: {itself}\n\nrun: {report.install}")
    return "\n\n".join(parts)
