"""`hub run --prompt`: text from a weights file, printed as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from hubcli.base import output
from hubcli.errors import IntegrityError, UsageError
from hubcli.reading import model_files
from hubcli.terminal import quantities, shared_options

if TYPE_CHECKING:
    from hubcli.text.files import Model

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
        "is a template.",
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
    """Take the options of text generation out of `options`; None where there is no --prompt.

    UsageError for an option that does not go with --prompt, or with what there is instead.
    """
    given = {name: options.pop(name) for name in _NAMES}
    context = click.get_current_context()
    has_prompt = given["prompt"] is not None
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
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
    prompt: str,
    chat: bool | None,
    system: str | None,
    tokenizer_file: Path | None,
    **drawing: Any,
) -> None:
    """Print what the model says to `prompt`; with --json the whole document at the end.

    keywords: KEY=VALUE of the chat template.  drawing: how many tokens, and how each is chosen.
    click.Abort after an interruption, when what was said so far is printed.
    """
    values = shared_options.arguments(keywords, None, None).kwargs
    text = _read() if prompt == "-" else prompt
    for name, words in (("prompt", text), ("text of --system", system or "")):
        if not words.isascii() and any("\ud800" <= letter <= "\udfff" for letter in words):
            raise UsageError(f"the {name} is not text in UTF-8")
    from hubcli.text import files

    path = files.find(spec)
    begun = time.perf_counter()
    model = files.opened(path, tokenizer_file)
    loaded = time.perf_counter()
    templated = _is_chat(model, chat, system, values)
    ids = _chat(model, text, system, values) if templated else model.tokenizer.encode(text)
    context = model.network.config.context
    if not ids:
        raise UsageError("the prompt is empty, and the model has no token to begin with")
    if max(ids) >= model.network.config.vocabulary:
        raise IntegrityError(f"the tokenizer has token {max(ids)}, and {path} {model.network.config.vocabulary} tokens")
    if len(ids) >= context:
        raise UsageError(f"the prompt has {len(ids)} tokens, and the context of {path.name} {context}")
    out = output.Output.current()
    said = _say(out, model, ids, min(drawing.pop("tokens"), context - len(ids)), drawing)
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


def _is_chat(model: Model, chat: bool | None, system: str | None, values: dict[str, Any]) -> bool:
    """Return whether the prompt is a message to be put into the model's template; UsageError for what needs that."""
    from hubcli.text.chat import RESERVED

    templated = model.chat is not None and chat is not False
    needing = "--chat" if chat else "--system" if system is not None else "-k" if values else None
    if needing is not None and not templated:
        why = "--no-chat leaves it out" if model.chat is not None else f"{model.path.name} has none"
        raise UsageError(f"{needing} is for the chat template of a model, and {why}")
    for name in values:
        if name in RESERVED:
            raise UsageError(f"-k {name}: hub gives that to the chat template itself")
    return templated


def _chat(model: Model, text: str, system: str | None, values: dict[str, Any]) -> list[int]:
    """Return the tokens of a chat that asks for the answer to `text`."""
    from hubcli.text.chat import Marks

    assert model.chat is not None
    marks = Marks(model.tokenizer.special(), [model.chat.text, text, system or ""])
    messages = [] if system is None else [{"role": "system", "content": marks.guard(system)}]
    messages.append({"role": "user", "content": marks.guard(text)})
    return model.tokenizer.encode_marked(model.chat.render(messages, values), marks.mark)


class _Said(NamedTuple):
    """A text, the clock at its first token, and why it ended: stop, length or interrupted."""

    text: str
    tokens: int
    first: float | None
    finish: str


def _say(out: output.Output, model: Model, ids: list[int], count: int, drawing: dict[str, Any]) -> _Said:
    """Print what follows the tokens `ids` as it comes, at most `count` tokens, until an interruption at most."""
    from hubcli.text import generation
    from hubcli.text.tokenizer import Stream

    stream, pieces, first, made, finish = Stream(model.tokenizer, ids), [], None, 0, "stop"
    try:
        for token in generation.generate(model.network, ids, count, stop=model.tokenizer.end, **drawing):
            first = first or time.perf_counter()
            made += 1
            pieces.append(stream.add(token))
            out.piece(pieces[-1])
        finish = "stop" if made < count else "length"
    except KeyboardInterrupt:
        finish = "interrupted"
    pieces.append(stream.rest())
    out.piece(f"{pieces[-1]}\n")
    return _Said("".join(pieces), made, first, finish)
