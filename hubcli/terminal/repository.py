"""The common part of the reading and the executing commands: from SPEC to a hubconf or a result."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hubcli.base import output, settings
from hubcli.base.request import Request, Trust
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.errors import HubError, UsageError
from hubcli.terminal import shared_options

if TYPE_CHECKING:
    from pathlib import Path

    from hubcli.cache.weights import Weight
    from hubcli.confined.broker import Broker
    from hubcli.confined.jobs import Job
    from hubcli.confined.sandbox import Mechanism
    from hubcli.reading.hubconf import HubConf
    from hubcli.running.inference import Pass
    from hubcli.running.result import Result
    from hubcli.terminal.shared_options import Arguments, Execution
    from hubcli.workflows.run import Inputs

    Confined = tuple[Job, Mechanism, Broker]

Command = TypeVar("Command", bound=Callable[..., Any])


def reading(command: Command) -> Command:
    """Return the options of a command that reads a hubconf; `read` takes their values."""
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
            shared_options.sandboxed,
        )
    ):
        command = option(command)
    return command


def read(
    checkout: Checkout,
    execute: bool,
    trust: Trust | None,
    framework: str | None,
    sandbox: str | None,
) -> HubConf:
    """Return the hubconf: statically, or with --exec as it is after running, in a sandbox if it is foreign."""
    if not execute:
        given = {"--trust": trust, "--framework": framework, "--sandbox": sandbox}
        for option, value in given.items():
            if value is not None:
                raise UsageError(f"{option} is for --exec; nothing is run without it")
        return conf(checkout)
    from hubcli.confined import jobs
    from hubcli.confined import sandbox as sandboxes
    from hubcli.confined.broker import Broker
    from hubcli.trust import gates

    gates.require(checkout, "hubconf.py", Request.current(trust=trust))
    framework = framework or settings.current().framework
    chosen = sandboxes.choose(sandbox, default=True, local=checkout.kind == "local", framework=framework)
    if chosen.name == "none":
        from hubcli import torch_hub
        from hubcli.running import invoke

        if framework == "torch":
            torch_hub.serve_torch()
        return invoke.listing(checkout, framework=framework, command=True)
    job = jobs.Job("list", checkout, framework=framework)
    return jobs.listing(job, chosen, Broker(checkout, "", framework=framework))


def conf(checkout: Checkout) -> HubConf:
    """Return the hubconf, read statically; errors name the spec."""
    from hubcli.reading import hubconf

    try:
        return hubconf.read(checkout.path)
    except HubError as error:
        error.spec = str(checkout.spec)
        raise


def located(spec: str, locked: bool, frozen: bool, lock_file: Path | None) -> Checkout:
    """Fetch SPEC, under --locked what the lock file says it is."""
    path = shared_options.lock_path(lock_file, locked or frozen)
    if locked or frozen:
        from hubcli.cache import lockfile

        settings.override(lock=lockfile.require(path), offline=frozen or None)
    return Cache.current().checkout(RepoSpec.parse(spec))


def chosen(
    spec: str, entrypoint: str | None, given: Arguments, execution: Execution, command: str
) -> tuple[Checkout, str]:
    """Fetch SPEC, find the entrypoint that is meant in its source, and ask for trust in that.

    Arguments that its signature does not take are refused before anybody is asked.
    """
    checkout = Cache.current().checkout(RepoSpec.parse(spec), execution.request)
    from hubcli.reading import choice
    from hubcli.trust import gates

    found = conf(checkout)
    name = choice.entrypoint(found, entrypoint, str(checkout.spec), command, renewal=checkout.renewal())
    require_fit(checkout, found, name, given)
    gates.require(checkout, name, execution.request)
    overdue = checkout.overdue()
    if overdue is not None and not settings.current().offline:
        output.message(overdue)
    return checkout, name


def require_fit(checkout: Checkout, found: HubConf, entrypoint: str, given: Arguments) -> None:
    """UsageError where the entrypoint's signature, as far as the source shows it, does not take the arguments."""
    from hubcli.reading import binding

    refusal = binding.refusal(checkout.path, found, entrypoint, given.args, given.kwargs)
    if refusal is not None:
        error = UsageError(f"{entrypoint}: {refusal.reason}", hint=refusal.hint, spec=str(checkout.spec))
        error.advise(checkout.renewal())
        raise error


def call(checkout: Checkout, entrypoint: str, given: Arguments, execution: Execution) -> Result:
    """Call the entrypoint in this process."""
    from hubcli import torch_hub
    from hubcli.running import invoke

    if execution.framework == "torch":
        torch_hub.serve_torch()
    return invoke.call(
        checkout,
        entrypoint,
        given.args,
        given.kwargs,
        framework=execution.framework,
        fresh=execution.request.reload,
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
    """Return what a call in a child process needs, for the functions of `jobs`; None without a sandbox or bounds."""
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
    framework, fresh = execution.framework, execution.request.reload
    job = Job(kind, checkout, entrypoint, given.args, given.kwargs, framework, fresh, options=options)
    return job, chosen, Broker(checkout, entrypoint, framework=framework, fresh=fresh)


def fetch_weights(
    checkout: Checkout,
    conf: HubConf,
    entrypoint: str,
    given: Arguments,
    execution: Execution,
) -> Sequence[Weight]:
    """Call the entrypoint, pretrained where it knows the word and nothing else was said."""
    from hubcli.confined import jobs
    from hubcli.trust import gates

    signature = next((one.signature for one in conf.entrypoints if one.name == entrypoint), None)
    kwargs = dict(given.kwargs)
    if re.search(r"[(,]\s*pretrained\b", signature or ""):
        kwargs.setdefault("pretrained", True)
    given = shared_options.Arguments(given.args, kwargs)
    require_fit(checkout, conf, entrypoint, given)
    gates.require(checkout, entrypoint, execution.request)
    child = confined("load", checkout, entrypoint, given, execution)
    if child is not None:
        used = jobs.load(*child, None).weights
    else:
        used = call(checkout, entrypoint, given, execution).weights
    for weight in used:
        output.message(f"weights: {weight.file} ({output.size(weight.size)})")
    return used


def passed(
    spec: str,
    entrypoint: str | None,
    given: Arguments,
    execution: Execution,
    inputs: Inputs,
    job_options: dict[str, Any],
    timeout: float | None,
    max_memory: int | None,
) -> Pass:
    """Run a repository's entrypoint, an archive or an ONNX file on `inputs`: here, or in a child if that is asked for.

    `job_options` are those of a job: device, select, transform, raw.
    """
    from hubcli.running import archives, onnx_files
    from hubcli.workflows import run

    bounded = timeout is not None or max_memory is not None
    file = onnx_files.named(spec, entrypoint)
    if file is not None:
        if execution.sandbox not in (None, "off"):
            raise UsageError("an ONNX file holds no code that a sandbox would confine", hint="leave out --sandbox")
        if bounded:
            raise UsageError("--timeout and --max-memory are for code and archives, not for ONNX files")
        load = partial(onnx_files.opened, file, execution.framework)
        return run.here(load, inputs, job_options["select"], job_options["device"], job_options["transform"])
    archive = archives.find(spec)
    if archive is None:
        checkout, entrypoint = chosen(spec, entrypoint, given, execution, "run")
        load = partial(call, checkout, entrypoint, given, execution)
    else:
        checkout = archives.checkout_of(archive)
        if execution.framework == "torch":
            raise UsageError("archives run on the engine, not with --framework torch")
        job_options = {**job_options, "archive": str(archive.resolve())}
        load = partial(archives.load, archive, entrypoint, given.args, given.kwargs)
    child = confined("run", checkout, entrypoint or "", given, execution, bounded, **job_options)
    if child is None:
        return run.here(load, inputs, job_options["select"], job_options["device"], job_options["transform"])
    from hubcli.confined import jobs

    return jobs.run_each(*child, list(inputs.read()), timeout, max_memory)
