"""`hub run MODEL --chat` on a terminal: one message after the other, each answered with all before it."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.terminal import answers

_PROMPT = ">>> "


def hold(
    spec: str, system: str | None, values: dict[str, Any], tokenizer_file: Path | None, drawing: dict[str, Any]
) -> None:
    """Read messages from the terminal and print the answers, until the end of the input.

    Each answer is computed from the whole conversation.  An interruption ends an answer, what was said of it stays.
    UsageError where stdin is no terminal, with --json, and where the context is full.
    """
    out = output.Output.current()
    if out.json:
        raise UsageError("a conversation has no document", hint="give --prompt TEXT with --json")
    if not _on_terminal():
        raise UsageError(
            "--chat without --prompt is a conversation on a terminal, and stdin is none", hint="add --prompt -"
        )
    from hubcli.text import files

    model = files.opened(files.find(spec), tokenizer_file)
    answers.is_chat(model, True, system, values)
    with contextlib.suppress(ImportError):  # lines that can be edited; Windows has its own
        import readline  # noqa: F401
    out.message("Ctrl-C ends an answer, Ctrl-D the conversation")
    messages: list[dict[str, str]] = []
    while (text := _line()) is not None:
        if not text.strip():
            continue
        answers.require_text("message", text)
        more = [{"role": "user", "content": text}] if messages else answers.opening(system, text)
        said = answers.say(out, model, answers.chat_tokens(model, messages + more, values), **drawing)
        messages += [*more, {"role": "assistant", "content": said.text}]


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _line() -> str | None:
    """Return the next message, None at the end of the input."""
    try:
        return input(_PROMPT)
    except EOFError:
        output.Output.current().piece("\n")
        return None
