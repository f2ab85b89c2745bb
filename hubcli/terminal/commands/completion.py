"""`hub completion`: what a shell needs to complete hub's commands, specs and entrypoints."""

from __future__ import annotations

import contextlib
from importlib import resources
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from hubcli.base import output

_HOW = {
    "bash": 'eval "$(hub completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(hub completion zsh)"   in ~/.zshrc',
    "fish": "hub completion fish | source   in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(_HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes hub's commands, options, cached specs and entrypoints in a SHELL.

    Nothing is fetched or executed while it completes.
    """
    kind: Any = get_completion_class(shell)
    script = _bash() if shell == "bash" else kind(ctx.find_root().command, {}, "hub", "_HUB_COMPLETE").source()
    out = output.Output.current()
    out.result({"shell": shell, "script": script}, script)
    out.detail(_HOW[shell])


def _bash() -> str:
    text = (resources.files("hubcli") / "data" / "completion.bash").read_text("utf-8")
    return text.partition("\n")[2]  # without its comment


class Spec(click.ParamType):  # type: ignore[type-arg]
    """A SPEC, completed by what is cached and by folders."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Cached specs, without and with their refs; folders where a path is begun."""
        from hubcli.base.spec import RepoSpec
        from hubcli.cache.cache import Cache

        if incomplete[:1] in (".", "/", "~"):
            return [CompletionItem(incomplete, type="dir")]
        names: dict[str, None] = {}
        with contextlib.suppress(Exception):  # a damaged cache completes nothing
            for one in Cache.current().repos():
                names[str(RepoSpec.parse(one.spec).at(None))] = None
                names[one.spec] = None
        found = [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="dir")]


class Entrypoint(click.ParamType):  # type: ignore[type-arg]
    """An ENTRYPOINT of the SPEC before it, read from its source if it is here."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names, with the first lines of their docstrings."""
        from hubcli.base.spec import RepoSpec
        from hubcli.cache.cache import Cache
        from hubcli.reading import hubconf

        found = []
        with contextlib.suppress(Exception):  # whatever cannot be read completes nothing
            checkout = Cache.current().lookup(RepoSpec.parse(ctx.params["spec"]))
            if checkout is not None:
                for entry in hubconf.read(checkout.path).entrypoints:
                    if entry.name.startswith(incomplete):
                        found.append(CompletionItem(entry.name, help=entry.summary or None))
        return found


_TYPES = {"spec": Spec(), "specs": Spec(), "targets": Spec(), "entrypoint": Entrypoint(), "entrypoints": Entrypoint()}


def prepare(command: click.Command) -> None:
    """Let the arguments of a command complete."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.name in _TYPES:
            parameter.type = _TYPES[parameter.name]
    for below in getattr(command, "commands", {}).values():
        prepare(below)
