"""`hub completion`: what a shell needs to complete hub's commands, specs and entrypoints."""

from __future__ import annotations

import contextlib
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from hubcli import output

# click's own script leaves the words to readline, which breaks them at the colon of a ref
_BASH = """\
_hub_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" response item kind value cur before
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur="${words[${#words[@]}-1]}"
    before=""
    [[ $cur == *[:=@]* ]] && before="${cur%"${cur##*[:=@]}"}"
    response=$(env COMP_WORDS="$line" COMP_CWORD=$((${#words[@]} - 1)) _HUB_COMPLETE=bash_complete "${words[0]}")
    COMPREPLY=()
    while IFS= read -r item; do
        kind="${item%%,*}" value="${item#*,}"
        case "$kind" in
            dir) compopt -o dirnames 2> /dev/null ;;
            file) compopt -o default 2> /dev/null ;;
            plain) COMPREPLY+=("${value#"$before"}") ;;
        esac
    done <<< "$response"
}

complete -o nosort -F _hub_completion hub
"""
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
    script = _BASH if shell == "bash" else kind(ctx.find_root().command, {}, "hub", "_HUB_COMPLETE").source()
    out = output.Output.current()
    out.result({"shell": shell, "script": script}, script)
    out.detail(_HOW[shell])


class Spec(click.ParamType):  # type: ignore[type-arg]
    """A SPEC, completed by what is cached and by folders."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Cached specs, without and with their refs; folders where a path is begun."""
        from hubcli.cache import store
        from hubcli.spec import RepoSpec

        if incomplete[:1] in (".", "/", "~"):
            return [CompletionItem(incomplete, type="dir")]
        names: dict[str, None] = {}
        with contextlib.suppress(Exception):  # a damaged cache completes nothing
            for one in store.repos():
                names[str(RepoSpec.parse(one.spec).at(None))] = None
                names[one.spec] = None
        found = [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="dir")]


class Entrypoint(click.ParamType):  # type: ignore[type-arg]
    """An ENTRYPOINT of the SPEC before it, read from its source if it is here."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names, with the first lines of their docstrings."""
        from hubcli.cache import store
        from hubcli.reading import hubconf
        from hubcli.spec import RepoSpec

        found = []
        with contextlib.suppress(Exception):  # whatever cannot be read completes nothing
            checkout = store.lookup(RepoSpec.parse(ctx.params["spec"]))
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
