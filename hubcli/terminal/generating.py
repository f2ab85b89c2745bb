"""`hub run --prompt`: text from a weights file, printed as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.reading import model_files
from hubcli.terminal import answers, conversation, quantities, shared_options

Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--prompt",
        metavar="TEXT",
        help="Answer or continue TEXT (-: stdin); SPEC is a GGUF or safetensors file, or a folder with one.",
    ),
    click.option(
        "--chat/--no-chat",
        default=None,
        help="Write the prompt as the model's chat template says, or leave it as it is.  Default: --chat where there "
        "is a template.  --chat without --prompt: a conversation on the terminal.",
    ),
    click.option("--system", metavar="TEXT", help="What the model is to be, before the prompt of a chat."),
    click.option(
        "--tokens", type=click.IntRange(1, 1 << 20), metavar="N", default=128, help="Generate at most N.  [128]"
    ),
    click.option(
        "--temperature",
        type=quantities.TEMPERATURE,
        metavar="T",
        default=0.0,
        help="Draw from softmax(logits / T); 0 takes the most probable token.  [0]",
    ),
    click.option("--top-k", type=click.IntRange(1), metavar="N", help="Draw from the N most probable tokens alone."),
    click.option(
        "--top-p",
        type=quantities.SHARE,
        metavar="P",
        help="Draw from the most probable tokens alone whose probabilities come to P.",
    ),
    click.option("--seed", type=click.IntRange(0, (1 << 63) - 1), metavar="N", default=0, help="Of the draws.  [0]"),
    click.option(
        "--tokenizer",
        "tokenizer_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A tokenizer.json instead of the model's own.",
    ),
)
_NAMES = ("prompt", "chat", "system", "tokens", "temperature", "top_k", "top_p", "seed", "tokenizer_file")
_TAKEN = {"spec", "keywords", *_NAMES}


def options(command: Command) -> Command:
    """Return the options of text generation; `wanted` takes their values away from the others."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wanted(options: dict[str, Any]) -> dict[str, Any] | None:
    """Take the options of text generation out of `options`; None where there is neither --prompt nor --chat.

    UsageError for an option that does not go with --prompt, or with what there is instead.
    """
    given = {name: options.pop(name) for name in _NAMES}
    context = click.get_current_context()
    has_prompt = given["prompt"] is not None or given["chat"] is True
    for parameter in context.command.params:
        name = str(parameter.name)
        is_global = isinstance(parameter, click.Option) and parameter.hidden and not parameter.expose_value
        if is_global or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if has_prompt and name not in _TAKEN:
            written = parameter.opts[0] if isinstance(parameter, click.Option) else str(context.params[name])
            raise UsageError(f"{written} does not go with --prompt, which takes SPEC alone")
        if not has_prompt and name in _NAMES:
            raise UsageError(
                f"{parameter.opts[0]} is for --prompt", hint="hub run model.gguf --prompt 'Once upon a time'"
            )
    if not has_prompt:
        return None
    for name in ("top_k", "top_p"):
        if given[name] is not None and not given["temperature"]:
            raise UsageError(
                f"--{name.replace('_', '-')} chooses what is drawn from, and nothing is drawn",
                hint="add --temperature 0.8",
            )
    return given


def require_input(spec: str, sources: tuple[str, ...]) -> None:
    """Raise click's error for a missing option where neither --input nor --prompt is given."""
    folder = Path(spec).expanduser()
    if spec.endswith(".gguf") or (not sources and folder.is_dir() and model_files.in_folder(folder) is not None):
        raise UsageError(f"{spec} is a model for text: give --prompt TEXT")
    if not sources:
        context = click.get_current_context()
        parameter = next(one for one in context.command.params if one.name == "sources")
        raise click.MissingParameter(ctx=context, param=parameter)


def generate(
    spec: str,
    keywords: tuple[str, ...],
    prompt: str | None,
    chat: bool | None,
    system: str | None,
    tokenizer_file: Path | None,
    **drawing: Any,
) -> None:
    """Print what the model says to `prompt`, or hold a conversation; with --json the whole document at the end.

    keywords: KEY=VALUE of the chat template.  drawing: how many tokens, and how each is chosen.
    click.Abort after an interruption, when what was said so far is printed.
    """
    values = shared_options.arguments(keywords, None, None).kwargs
    answers.require_text("text of --system", system or "")
    if prompt is None:
        return conversation.hold(spec, system, values, tokenizer_file, drawing)
    text = _read() if prompt == "-" else prompt
    answers.require_text("prompt", text)
    from hubcli.text import files

    path = files.find(spec)
    begun = time.perf_counter()
    model = files.opened(path, tokenizer_file)
    loaded = time.perf_counter()
    templated = answers.is_chat(model, chat, system, values)
    ids = (
        answers.chat_tokens(model, answers.opening(system, text), values) if templated else model.tokenizer.encode(text)
    )
    out = output.Output.current()
    said = answers.say(out, model, ids, **drawing)
    ended = time.perf_counter()
    first = said.first or ended
    rate = (said.tokens - 1) / (ended - first) if said.tokens > 1 else None
    document = {
        "file": str(path),
        "architecture": model.network.config.architecture,
        "chat": templated,
        "system": system,
        "prompt": text,
        "text": said.text,
        "tokens": said.tokens,
        "prompt_tokens": len(ids),
        "finish": said.finish,
        "seconds": {
            "load": round(loaded - begun, 6),
            "first": round(first - loaded, 6),
            "all": round(ended - begun, 6),
        },
        "tokens_per_second": None if rate is None else round(rate, 3),
    }
    if out.json:
        out.result(document)
    else:
        speed = "" if rate is None else f", {rate:.1f} a second"
        form = " in the model's chat template (--no-chat: as it is)" if templated and chat is None else ""
        began = f"first token after {first - begun:.1f} s"
        out.message(f"prompt: {len(ids)} tokens{form}, {began}; text: {said.tokens} tokens{speed}")
    if said.finish == "interrupted":
        raise click.Abort


def _read() -> str:
    """Return what stdin has, without the line break that ends its last line."""
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt on stdin is not text in {sys.stdin.encoding}: {error.reason}") from None
    return text.removesuffix("\n").removesuffix("\r")
