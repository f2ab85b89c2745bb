"""The `hub` command: finds the commands, and turns errors into message, hint and exit status.

A command's module is imported when the command runs; `hub --help` loads click and nothing heavier.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from hubcli.base.version import __version__

# name: (module:attribute, one help line)
COMMANDS: Mapping[str, tuple[str, str]] = {
    "search": ("hubcli.terminal.commands.search:search", "Find published repositories by words."),
    "pull": ("hubcli.terminal.commands.pull:pull", "Fetch a repository's code into the cache."),
    "list": ("hubcli.terminal.commands.list:list_", "List entrypoints, or what is cached."),
    "help": ("hubcli.terminal.commands.help:help_", "Explain an entrypoint, or a command of hub."),
    "show": ("hubcli.terminal.commands.show:show", "Show all that is known of a repository."),
    "deps": ("hubcli.terminal.commands.deps:deps", "Show which dependencies are satisfied, and by what."),
    "load": ("hubcli.terminal.commands.load:load", "Call an entrypoint and describe the model."),
    "run": ("hubcli.terminal.commands.run:run", "Run a forward pass on each input file."),
    "check": ("hubcli.terminal.commands.check:check", "Smoke-test every entrypoint, for CI."),
    "new": ("hubcli.terminal.commands.new:new", "Write a new repository that passes `hub check`."),
    "profile": ("hubcli.terminal.commands.profile:profile", "Show where time and memory go."),
    "convert": (
        "hubcli.terminal.commands.convert:convert",
        "Rewrite a checkpoint in another format, safely.",
    ),
    "export": ("hubcli.terminal.commands.export:export", "Write a model as an ONNX file."),
    "lock": ("hubcli.terminal.commands.lock:lock", "Pin commits, digests and weights in hub.lock."),
    "sync": ("hubcli.terminal.commands.sync:sync", "Fetch exactly what hub.lock says."),
    "outdated": ("hubcli.terminal.commands.outdated:outdated", "Show what has moved since it was locked."),
    "mirror": ("hubcli.terminal.commands.mirror:mirror", "Write what hub.lock names as static files, for a team."),
    "cache": ("hubcli.terminal.commands.cache:cache", "See and clear the cache."),
    "import-torch-hub": (
        "hubcli.terminal.commands.import_torch_hub:import_torch_hub",
        "Take over torch.hub's downloads.",
    ),
    "env": ("hubcli.terminal.commands.env:env", "Show versions, paths and backends, for a bug report."),
    "trust": ("hubcli.terminal.commands.trust:trust", "See and change who may execute."),
    "completion": ("hubcli.terminal.commands.completion:completion", "Print the completion script of a shell."),
}
# what other tools call them
ALIASES: Mapping[str, tuple[str, ...]] = {
    "ls": ("list",),
    "rm": ("cache", "rm"),
    "info": ("show",),
    "download": ("pull",),
}


class HubGroup(click.Group):
    """A group that imports its commands at their first use and reports errors by docs/reference/exit_status.md."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; the global options may stand behind its name, too."""
        if cmd_name in ALIASES:
            first, *rest = ALIASES[cmd_name]
            found = self.get_command(ctx, first)
            for name in rest:
                found = found.get_command(ctx, name) if isinstance(found, click.Group) else None
            return found
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        _add_global_options(command)
        if "_HUB_COMPLETE" in os.environ:
            importlib.import_module(COMMANDS["completion"][0].partition(":")[0]).prepare(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of the name given."""
        name = args[0]
        if name not in COMMANDS and name not in ALIASES and not name.startswith("-"):
            import difflib

            close = difflib.get_close_matches(name, [*COMMANDS, *ALIASES], 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table's help lines; no command is imported for that."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command under settings of its own; what it raises becomes an exit status."""
        from hubcli.base import settings

        with settings.overriding():
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
            except Exception as error:
                # behind a command's name --json may stand after the word that is wrong
                ctx.exit(_report(error, ctx.params["as_json"] or "--json" in ctx.obj))
        return result

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit with the status of the table."""
        _open_streams()
        arguments = list(sys.argv[1:] if args is None else args)
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        extra = {"prog_name": "hub", "obj": options, **extra, "standalone_mode": False}
        try:
            status = super().main(arguments, *rest, **extra)
        except Exception as error:  # a global option is wrong, or the user has interrupted
            status = _report(error, "--json" in options)
        sys.exit(status if isinstance(status, int) else 0)


@click.group(cls=HubGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hub", message="%(prog)s %(version)s")
@click.option(
    "--hub-dir",
    type=click.Path(file_okay=False),
    help="The cache folder (default: TORCH_HUB_DIR, else ~/.torch/hub).",
)
@click.option("--offline", is_flag=True, help="Never use the network.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="No messages and no progress bars; lists are names alone.")
@click.option("-v", "--verbose", is_flag=True, help="More messages.")
def hub(hub_dir: str | None, offline: bool, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Pull, inspect and run models that git repositories publish in a hubconf.py.

    SPEC is owner/repo[:ref], host/owner/repo[:ref], a URL[@ref], or a folder such as ./dir.
    The options below may stand anywhere on the line.
    """
    from hubcli.base import paths, settings

    if hub_dir is not None:
        paths.set_dir(hub_dir)
    settings.override(
        offline=offline or None,
        json=as_json or None,
        quiet=quiet or None,
        verbose=verbose or None,
    )


def _open_streams() -> None:
    """Open what the caller has closed, on nothing: the first file of ours must not become stdin or stdout."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    import os

    while os.open(os.devnull, os.O_RDWR) < 2:
        pass
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _add_global_options(command: click.Command) -> None:
    """Let a command, and those below it, take the options of `hub` as well; its help does not repeat them."""
    if any(one.name == "as_json" for one in command.params):
        return
    for option in hub.params:
        if isinstance(option, click.Option) and option.name != "version":
            command.params.append(
                click.Option(
                    [*option.opts, str(option.name)],
                    type=option.type,
                    is_flag=option.is_flag,
                    hidden=True,
                    expose_value=False,
                    callback=_obey,
                )
            )
    if isinstance(command, click.Group):
        for below in command.commands.values():
            _add_global_options(below)


def _obey(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    from hubcli.base import paths, settings

    if option.name == "hub_dir":
        if value is not None:
            paths.set_dir(value)
    elif value:
        settings.override(**{"json" if option.name == "as_json" else str(option.name): True})


def main() -> NoReturn:
    """The console script.  No code that runs in this process, in whichever thread, finds the command's arguments."""
    arguments = sys.argv[1:]
    del sys.argv[1:], sys.orig_argv[len(sys.orig_argv) - len(arguments) :]
    try:
        hub.main(arguments)
    except SystemExit as end:
        background = sys.modules.get("hubcli.running.background")  # there if a repository's code may have run
        if background is not None:
            background.leave(end.code if isinstance(end.code, int) else 0)
        raise


def _report(error: Exception, as_json: bool) -> int:
    """Print the error as the user wants it; the exit status."""
    from hubcli.errors import ExitStatus

    if isinstance(error, BrokenPipeError):
        _let_go_of_stdout()  # its reader has gone: nothing to say
        return ExitStatus.FAILURE
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        _say(error.format_message())  # the help, for somebody who typed a group's name alone
        return ExitStatus.USAGE
    if isinstance(error, click.Abort):
        _say("interrupted")
        return ExitStatus.INTERRUPTED
    if _debug():
        import traceback

        from hubcli.errors import masked

        _say(masked("".join(traceback.format_exception(error))).rstrip())
    status, code, message, hint, spec = _describe(error)
    causes = getattr(error, "causes", ())
    if as_json:
        import json

        from hubcli.base.output import encodable, visible_json

        led = [{"kind": one.kind, "text": one.text} for one in causes]
        body = {"code": code, "message": message, "hint": hint, "spec": spec, "causes": led}
        document = {"schema_version": 1, "error": body}
        text = json.dumps(document, ensure_ascii=False, indent=2)
        try:
            sys.stdout.write(encodable(visible_json(text) + "\n", sys.stdout))
            sys.stdout.flush()
        except OSError as refused:  # nothing can be reported on stdout
            _let_go_of_stdout()
            return _report(refused, False)
    else:
        from hubcli.base.output import causes as lines
        from hubcli.base.output import indented

        _say(indented(f"hub: {message}"))
        for line in lines(causes, "(from the sandbox) " if getattr(error, "foreign", False) else ""):
            _say(line)
        if hint:
            _say(indented(f"hint: {hint}"))
    return status


def _let_go_of_stdout() -> None:
    """Have nothing flushed at exit: it would fail again."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)


def _describe(error: Exception) -> tuple[int, str, str, str | None, str | None]:
    """Status, code, message, hint and spec of any error."""
    from hubcli.errors import ExitStatus, HubError

    if isinstance(error, HubError) and error.foreign:
        hint = error.hint and f"(from the sandbox) {error.hint}"
        return error.status, error.code, f"in the sandbox: {error.message}", hint, error.spec
    if isinstance(error, HubError):
        return error.status, error.code, error.message, error.hint, error.spec
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        hint = f"try `{context.command_path} --help`" if context is not None else None
        return ExitStatus.USAGE, "usage", error.format_message(), hint, None
    if isinstance(error, OSError):
        from hubcli.base import os_errors

        return ExitStatus.FAILURE, "os", *os_errors.described(error), None
    if isinstance(error, MemoryError):
        return ExitStatus.FAILURE, "memory", f"memory does not suffice: {error}".rstrip(": "), None, None
    message = f"{type(error).__name__}: {error}"
    hint = "this is a fault of hub; HUB_DEBUG=1 shows where"
    return ExitStatus.FAILURE, "internal", message, hint, None


def _debug() -> bool:
    from hubcli.base import settings
    from hubcli.errors import HubError

    try:
        return settings.current().debug
    except HubError:  # the settings themselves are what is wrong
        return False


def _say(text: str) -> None:
    from hubcli.base.output import encodable, printable

    sys.stderr.write(encodable(printable(text) + "\n", sys.stderr))
    sys.stderr.flush()
