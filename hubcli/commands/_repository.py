"""What the reading and the executing commands have in common: from SPEC to a hubconf or a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hubcli import settings
from hubcli.cache import store
from hubcli.cache.store import CachedRepo, Checkout
from hubcli.commands import _options
from hubcli.errors import HubError, UsageError
from hubcli.spec import RepoSpec

if TYPE_CHECKING:
    from pathlib import Path

    from hubcli.commands._options import Arguments, Execution
    from hubcli.confined.broker import Broker
    from hubcli.confined.jobs import Job
    from hubcli.confined.sandbox import Mechanism
    from hubcli.reading.hubconf import HubConf
    from hubcli.running.invoke import Result

    Confined = tuple[Job, Mechanism, Broker]

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
            _options.sandboxed,
        )
    ):
        command = option(command)
    return command


def read(
    checkout: Checkout,
    execute: bool,
    trust: str | None,
    framework: str | None,
    sandbox: str | None,
) -> HubConf:
    """The hubconf: statically, or with --exec as it is after running, in a sandbox if it is foreign."""
    if not execute:
        given = {"--trust": trust, "--framework": framework, "--sandbox": sandbox}
        for option, value in given.items():
            if value is not None:
                raise UsageError(f"{option} is for --exec; nothing is run without it")
        return conf(checkout)
    from hubcli import trust as gate
    from hubcli.confined import jobs
    from hubcli.confined import sandbox as sandboxes
    from hubcli.confined.broker import Broker

    gate.require(checkout, "hubconf.py", trust)
    framework = framework or settings.current().framework
    chosen = sandboxes.choose(sandbox, default=True, local=checkout.kind == "local", framework=framework)
    if chosen.name == "none":
        from hubcli.running import invoke

        return invoke.listing(checkout, framework=framework, command=True)
    job = jobs.Job("list", checkout, framework=framework)
    return jobs.listing(job, chosen, Broker(checkout, "", framework=framework))


def conf(checkout: Checkout) -> HubConf:
    """The hubconf, read statically; errors name the spec."""
    from hubcli.reading import hubconf

    try:
        return hubconf.read(checkout.path)
    except HubError as error:
        error.spec = str(checkout.spec)
        raise


def located(spec: str, locked: bool, frozen: bool, lock_file: Path | None) -> Checkout:
    """Fetch SPEC, under --locked what the lock file says it is."""
    path = _options.lock_path(lock_file, locked or frozen)
    if locked or frozen:
        from hubcli import lockfile

        settings.override(lock=lockfile.require(path), offline=frozen or None)
    return store.ensure(RepoSpec.parse(spec))


def chosen(
    spec: str, entrypoint: str | None, given: Arguments, execution: Execution, command: str
) -> tuple[Checkout, str]:
    """Fetch SPEC, find the entrypoint that is meant in its source, and ask for trust in that.

    Arguments that its signature does not take are refused before anybody is asked.
    """
    checkout = store.ensure(RepoSpec.parse(spec), force_reload=execution.force_reload)
    from hubcli import trust
    from hubcli.reading import choice

    found = conf(checkout)
    name = choice.entrypoint(found, entrypoint, str(checkout.spec), command, renewal=checkout.renewal())
    require_fit(checkout, found, name, given)
    trust.require(checkout, name, execution.trust)
    return checkout, name


def require_fit(checkout: Checkout, found: HubConf, entrypoint: str, given: Arguments) -> None:
    """UsageError where the entrypoint's signature, as far as the source tells it, does not take the arguments."""
    from hubcli.reading import binding

    refusal = binding.refusal(checkout.path, found, entrypoint, given.args, given.kwargs)
    if refusal is not None:
        error = UsageError(f"{entrypoint}: {refusal.reason}", hint=refusal.hint, spec=str(checkout.spec))
        error.advise(checkout.renewal())
        raise error


def call(checkout: Checkout, entrypoint: str, given: Arguments, execution: Execution) -> Result:
    """Call the entrypoint in this process."""
    from hubcli.running import invoke

    return invoke.call(
        checkout,
        entrypoint,
        given.args,
        given.kwargs,
        framework=execution.framework,
        fresh=execution.force_reload,
        command=True,
    )


def confined(
    kind: str,
    checkout: Checkout,
    entrypoint: str,
    given: Arguments,
    execution: Execution,
    bounded: bool = False,
    **options: Any,
) -> Confined | None:
    """What a call in a child process needs, for the functions of `jobs`; None without a sandbox or bounds."""
    if execution.sandbox in (None, "off") and not bounded:
        return None
    from hubcli.confined import sandbox
    from hubcli.confined.broker import Broker
    from hubcli.confined.jobs import Job

    if execution.sandbox in (None, "off"):  # limits without walls
        chosen = sandbox.mechanism("none")
    else:
        chosen = sandbox.choose(
            execution.sandbox,
            default=False,
            local=checkout.kind == "local",
            framework=execution.framework,
            device=options.get("device"),
        )
    framework, fresh = execution.framework, execution.force_reload
    job = Job(kind, checkout, entrypoint, given.args, given.kwargs, framework, fresh, options=options)
    return job, chosen, Broker(checkout, entrypoint, framework=framework, fresh=fresh)


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
