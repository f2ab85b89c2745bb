"""What a model for text says to a prompt or to the messages of a chat, printed as it comes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from hubcli.base import output
from hubcli.errors import IntegrityError, UsageError

if TYPE_CHECKING:
    from hubcli.text.files import Model


def opening(system: str | None, text: str) -> list[dict[str, str]]:
    """Return the first messages of a chat."""
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": text}]


def require_text(name: str, text: str) -> None:
    """Raise UsageError where `text` has bytes that are no letters."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError(f"the {name} is not text in UTF-8")


def is_chat(model: Model, chat: bool | None, system: str | None, values: dict[str, Any]) -> bool:
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


def chat_tokens(model: Model, messages: list[dict[str, str]], values: dict[str, Any]) -> list[int]:
    """Return the tokens of a chat that asks for the answer to its last message.

    Special tokens in a message stay letters; those of the model's own answers are taken for what they are where they
    only look special: templates take `<think>` out of them.
    """
    from hubcli.text.chat import Marks

    assert model.chat is not None
    texts = [model.chat.text, *(one["content"] for one in messages)]
    of_users = Marks(model.tokenizer.special(), texts)
    of_models = Marks(model.tokenizer.special(controls_alone=True), texts)
    guarded = [
        {**one, "content": (of_models if one["role"] == "assistant" else of_users).guard(one["content"])}
        for one in messages
    ]
    return model.tokenizer.encode_marked(model.chat.render(guarded, values), of_users.mark)


class Said(NamedTuple):
    """A text, the clock at its first token, and why it ended: stop, length or interrupted."""

    text: str
    tokens: int
    first: float | None
    finish: str


def say(out: output.Output, model: Model, ids: list[int], tokens: int, **drawing: Any) -> Said:
    """Print what follows the tokens `ids` as it comes, at most `tokens` of them, until an interruption at most.

    UsageError where `ids` do not fit into the context, IntegrityError where the network does not know them.
    """
    from hubcli.text import generation
    from hubcli.text.tokenizer import Stream

    context, vocabulary = model.network.config.context, model.network.config.vocabulary
    if not ids:
        raise UsageError("the prompt is empty, and the model has no token to begin with")
    if max(ids) >= vocabulary:
        raise IntegrityError(f"the tokenizer has token {max(ids)}, and {model.path} {vocabulary} tokens")
    if len(ids) >= context:
        raise UsageError(f"the prompt has {len(ids)} tokens, and the context of {model.path.name} {context}")
    count = min(tokens, context - len(ids))
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
    return Said("".join(pieces), made, first, finish)
