"""What the reading and the executing commands have in common: from SPEC to a hubconf or a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hubcli import hubconf, settings, store
from hubcli.errors import HubError, UsageError
from hubcli.hubconf import HubConf
from hubcli.spec import RepoSpec
from hubcli.store import CachedRepo, Checkout

if TYPE_CHECKING:
    from hubcli.commands._options import Arguments, Execution
    from hubcli.invoke import Result

Command = TypeVar("Command", bound=Callable[..., Any])


def reading(command: Command) -> Command:
    """The options of a command that reads a hubconf; `read` takes their values."""
    for option in reversed(
        (
            click.option("--exec", "execute", is_flag=True, help="Run hubconf.py to find out."),
            click.option(
                "--trust",
                type=click.Choice(settings.TRUST_CHOICES),
                help="With --exec: allow it once, at this commit, or at any.",
            ),
            click.option(
                "--framework",
                type=click.Choice(settings.FRAMEWORKS),
                help="With --exec: what `import torch` means.",
            ),
        )
    ):
        command = option(command)
    return command


def read(checkout: Checkout, execute: bool, trust: str | None, framework: str | None) -> HubConf:
    """The hubconf: statically, or with --exec as it is after running."""
    if not execute:
        for option, value in (("--trust", trust), ("--framework", framework)):
            if value is not None:
                raise UsageError(f"{option} is for --exec; nothing is run without it")
        return conf(checkout)
    from hubcli import invoke
    from hubcli import trust as gate

    gate.require(checkout, "hubconf.py", trust)
    return invoke.listing(
        checkout, framework=framework or settings.current().framework, command=True
    )


def conf(checkout: Checkout) -> HubConf:
    """The hubconf, read statically; errors name the spec."""
    try:
        return hubconf.read(checkout.path)
    except HubError as error:
        error.spec = str(checkout.spec)
        raise


def call(spec: str, entrypoint: str, given: Arguments, execution: Execution) -> Result:
    """Fetch SPEC, ask for trust, and call the entrypoint."""
    checkout = store.ensure(RepoSpec.parse(spec), force_reload=execution.force_reload)
    from hubcli import invoke, trust

    trust.require(checkout, entrypoint, execution.trust)
    return invoke.call(
        checkout,
        entrypoint,
        given.args,
        given.kwargs,
        framework=execution.framework or settings.current().framework,
        fresh=execution.force_reload,
        command=True,
    )


def repo_document(repo: CachedRepo) -> dict[str, Any]:
    """A cached repository as the JSON documents show it."""
    return {
        "name": repo.name,
        "spec": repo.spec,
        "path": str(repo.path),
        "commit": repo.commit,
        "size": repo.size,
        "last_used": repo.last_used,
    }
