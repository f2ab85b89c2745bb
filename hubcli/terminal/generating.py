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
from hubcli.errors import IntegrityError, UsageError
from hubcli.terminal import quantities

Command = TypeVar("Command", bound=Callable[..., Any])
_DEFAULTS = {"prompt": None, "tokens": 128, "temperature": 0.0, "seed": 0, "tokenizer_file": None}
_TAKEN = {"spec", *_DEFAULTS}


def options(command: Command) -> Command:
    """Return the options of text generation; `given` takes their values away from the others."""
    for option in reversed(
        (
            click.option(
                "--prompt",
                metavar="TEXT",
                help="Continue TEXT (-: stdin); SPEC is a GGUF or safetensors file, or a folder with one.",
            ),
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
            click.option(
                "--seed", type=click.IntRange(0, (1 << 63) - 1), metavar="N", default=0, help="Of the draws.  [0]"
            ),
            click.option(
                "--tokenizer",
                "tokenizer_file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                metavar="FILE",
                help="A tokenizer.json instead of the model's own.",
            ),
        )
    ):
        command = option(command)
    return command


def wanted(options: dict[str, Any]) -> dict[str, Any] | None:
    """Take the options of text generation out of `options`; None where there is no --prompt.

    UsageError for an option that does not go with --prompt, or with what there is instead.
    """
    given = {name: options.pop(name) for name in _DEFAULTS}
    context = click.get_current_context()
    has_prompt = given["prompt"] is not None
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if has_prompt and name not in _TAKEN:
            written = parameter.opts[0] if isinstance(parameter, click.Option) else str(context.params[name])
            raise UsageError(f"{written} does not go with --prompt, which takes SPEC alone")
        if not has_prompt and name in _DEFAULTS:
            raise UsageError(
                f"{parameter.opts[0]} is for --prompt", hint="hub run model.gguf --prompt 'Once upon a time'"
            )
    return given if has_prompt else None


def require_input(spec: str, sources: tuple[str, ...]) -> None:
    """Raise click's error for a missing option where neither --input nor --prompt is given."""
    if spec.endswith(".gguf"):
        raise UsageError("a GGUF file continues a text: give --prompt TEXT")
    if not sources:
        context = click.get_current_context()
        parameter = next(one for one in context.command.params if one.name == "sources")
        raise click.MissingParameter(ctx=context, param=parameter)


def generate(spec: str, prompt: str, tokens: int, temperature: float, seed: int, tokenizer_file: Path | None) -> None:
    """Print the text that follows `prompt`; with --json the whole document at the end."""
    from hubcli.text import files, generation
    from hubcli.text.tokenizer import Stream

    out = output.Output.current()
    text = sys.stdin.read() if prompt == "-" else prompt
    path = files.find(spec)
    begun = time.perf_counter()
    model = files.opened(path, tokenizer_file)
    loaded = time.perf_counter()
    ids = model.tokenizer.encode(text)
    context = model.network.config.context
    if not ids:
        raise UsageError("the prompt is empty, and the model has no token to begin with")
    if max(ids) >= model.network.config.vocabulary:
        raise IntegrityError(f"the tokenizer has token {max(ids)}, and {path} {model.network.config.vocabulary} tokens")
    if len(ids) >= context:
        raise UsageError(f"the prompt has {len(ids)} tokens, and the context of {path.name} {context}")
    count = min(tokens, context - len(ids))
    stream, pieces, made, first = Stream(model.tokenizer, ids), [], 0, loaded
    for token in generation.generate(
        model.network, ids, count, stop=model.tokenizer.end, temperature=temperature, seed=seed
    ):
        if not made:
            first = time.perf_counter()
        made += 1
        pieces.append(stream.add(token))
        out.piece(pieces[-1])
    ended = time.perf_counter()
    pieces.append(stream.rest())
    out.piece(f"{pieces[-1]}\n")
    rate = (made - 1) / (ended - first) if made > 1 else None
    document = {
        "file": str(path),
        "architecture": model.network.config.architecture,
        "prompt": text,
        "text": "".join(pieces),
        "tokens": made,
        "prompt_tokens": len(ids),
        "finish": "stop" if made < count else "length",
        "seconds": {
            "load": round(loaded - begun, 6),
            "first": round(first - loaded, 6),
            "all": round(ended - begun, 6),
        },
        "tokens_per_second": None if rate is None else round(rate, 3),
    }
    if out.json:
        out.result(document)
        return
    speed = "" if rate is None else f", {rate:.1f} a second"
    out.message(f"prompt: {len(ids)} tokens, first token after {first - begun:.1f} s; text: {made} tokens{speed}")
