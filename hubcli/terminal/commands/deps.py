"""`hub deps`: which dependencies are satisfied, by what, and the one command for the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hubcli.base import output, settings
from hubcli.cache.checkouts import Checkout
from hubcli.errors import ExitStatus, HubError, UsageError
from hubcli.reading import dependencies, imports
from hubcli.reading.dependencies import Report
from hubcli.terminal import reports, repository, shared_options


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
@shared_options.locking
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
    checkout = repository.located(spec, locked, frozen, lock_file)
    report = _check(checkout, framework)
    installed: tuple[str, ...] = ()
    if installing:
        installed = _install(report, yes, system)
        report = _check(checkout, framework) if installed else report
    out = output.Output.current()
    for text in report.warnings:
        out.warning(text)
    for _, reason in report.plan.refused:
        out.message(f"hint: {reason}")
    names = ("name", "satisfied", "provided_by", "declared", "note")
    document = {
        "dependencies": [{name: getattr(one, name) for name in names} for one in report.dependencies],
        "install": report.install,
        "installed": list(installed) if installing else None,
    }
    out.result(document, lambda: reports.dependencies(report, installed, spec))
    if report.missing:
        ctx.exit(ExitStatus.DEPENDENCIES)


def _check(checkout: Checkout, framework: str) -> Report:
    return dependencies.check(
        repository.conf(checkout).dependencies,
        root=checkout.path,
        framework=framework,
        survey=imports.survey(checkout.path),
    )


def _install(report: Report, yes: bool, system: bool) -> tuple[str, ...]:
    from hubcli.running import installer

    nothing = report.install is None
    return () if nothing else installer.install(report.plan, system, (lambda: None) if yes else _confirm)


def _confirm() -> None:
    if not _is_terminal():
        raise UsageError("`hub deps --install` asks before it installs, and there is no terminal", hint="add --yes")
    if not click.confirm("Run this?", err=True):
        raise HubError("nothing was installed")


def _is_terminal() -> bool:
    return sys.stdin.isatty()
