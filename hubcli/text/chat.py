"""The chat template of a model: how messages become the text that it was trained on.

From `chat_template.jinja` or `tokenizer_config.json` beside the weights, or from the metadata of a GGUF file."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubcli.errors import DependencyError, IntegrityError, UsageError

_LONGEST_TEMPLATE = 1 << 20  # characters, as below
_LONGEST_TEXT = 1 << 23
_SECONDS, _MEMORY = 5, 512 << 20  # of CPU time, bytes
_GRACE = 30  # seconds on the clock beyond those of CPU time
_PASSED_ON = ("TZ", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # the environment of the process
_GGUF_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "sep_token": "seperator_token_id",  # as llama.cpp spells it
}
RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


@dataclass(frozen=True)
class Template:
    """A chat template.  tokens: the special tokens that it may name.  where: the file, for errors."""

    text: str
    tokens: Mapping[str, str]
    where: str

    def render(
        self, messages: Sequence[Mapping[str, str]], values: Mapping[str, Any] | None = None, seconds: int = _SECONDS
    ) -> str:
        """Return the text that asks for the answer to `messages`, each with a `role` and a `content`.

        values: what else the template reads, as enable_thinking.  seconds: of CPU time that it may take.
        DependencyError without jinja2, UsageError where the template does not take the messages, IntegrityError where
        it fails, needs too much or does not end.
        """
        if importlib.util.find_spec("jinja2") is None:
            raise DependencyError(
                f"{self.where} has a chat template, and jinja2, which renders it, is not installed",
                hint="run: python -m pip install 'hubcli[text]'; --no-chat gives the prompt to the model as it is",
            )
        given = {"tools": None, "documents": None, **self.tokens, **(values or {})}
        question = {
            "template": self.text,
            "values": {**given, "messages": list(messages), "add_generation_prompt": True},
            "longest": _LONGEST_TEXT,
        }
        answer = self._asked(json.dumps(question).encode(), seconds)
        if "refused" in answer:
            raise UsageError(
                f"the chat template of {self.where} does not take this: {answer['refused']}",
                hint="--no-chat gives the prompt to the model as it is",
            )
        if "text" not in answer:
            raise self._failed(answer.get("error", "its process ended"))
        return str(answer["text"])

    def _asked(self, question: bytes, seconds: int) -> dict[str, Any]:
        entries = [entry for entry in sys.path if entry]
        program = (
            f"import sys; sys.path[:] = {entries!r}; from hubcli.text.template_process import main; "
            f"main({seconds}, {_MEMORY})"
        )
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        command = [sys.executable, "-I", "-B", "-X", "utf8", "-c", program]
        try:
            done = subprocess.run(
                command, input=question, capture_output=True, env=environment, timeout=seconds + _GRACE, check=False
            )
        except subprocess.TimeoutExpired:
            raise self._failed(f"it does not end within {seconds + _GRACE} s") from None
        if done.returncode < 0:
            raise self._failed(f"it needs more than {seconds} s or {_MEMORY >> 20} MB")
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise self._failed(f"its process ended with {last!r}") from None
        return dict(answer)

    def _failed(self, why: str) -> IntegrityError:
        return IntegrityError(
            f"the chat template of {self.where} cannot be rendered: {why}",
            hint="--no-chat gives the prompt to the model as it is",
        )


class Marks:
    """Marks in the words of others: the special tokens that they spell stay letters.

    A template's own special tokens control the model; the same letters in a message would end it and begin another
    in the system's name.  `guard` writes `mark`, a character that is nowhere else, behind the first letter of each
    special token in a message; where the rendered text has it, `Tokenizer.encode_marked` begins anew.
    """

    def __init__(self, special: Iterable[str], texts: Iterable[str]) -> None:
        taken = set().union(*texts)
        self.mark = next(chr(code) for code in range(0xF0000, 0x10FFFE) if chr(code) not in taken)
        longest_first = sorted((one for one in special if len(one) > 1), key=len, reverse=True)
        self._at = re.compile("(?=" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None

    def guard(self, text: str) -> str:
        """Return a message with the mark inside each special token that it spells."""
        if self._at is None:
            return text
        starts = {found.start() for found in self._at.finditer(text)}
        return "".join(letter + self.mark if at in starts else letter for at, letter in enumerate(text))


def beside(path: Path, described: Mapping[str, Any], tokens: Mapping[str, Any]) -> Template | None:
    """Return the template of a folder, None where it has none.

    described: the values of tokenizer_config.json.  tokens: those of special_tokens_map.json.
    """
    named = {**_special(tokens), **_special(described)}
    file = path / "chat_template.jinja"
    if file.is_file():
        if file.stat().st_size > 4 * _LONGEST_TEMPLATE:
            raise IntegrityError(f"{file} is larger than {4 * _LONGEST_TEMPLATE} bytes")
        try:
            return _template(file.read_text("utf-8"), named, str(file))
        except UnicodeDecodeError:
            raise IntegrityError(f"{file} is not text in UTF-8") from None
    return _template(described.get("chat_template"), named, str(path / "tokenizer_config.json"))


def of_gguf(metadata: Mapping[str, Any], where: str) -> Template | None:
    """Return the template in a GGUF file, None where it has none."""
    words = metadata.get("tokenizer.ggml.tokens")
    words = words if isinstance(words, list) else []
    named = {}
    for name, key in _GGUF_TOKENS.items():
        number = metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(number, int) and 0 <= number < len(words):
            named[name] = str(words[number])
    return _template(metadata.get("tokenizer.chat_template"), named, where)


def _special(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of a file, each a string or an object with its `content`."""
    found = {}
    for name, value in values.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _template(value: Any, tokens: Mapping[str, str], where: str) -> Template | None:
    if isinstance(value, list):  # several, each with a name
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        if named and "default" not in named:
            raise IntegrityError(f"{where} has chat templates, none of which is named default")
        value = named.get("default")
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise IntegrityError(f"{where}: chat_template is not text")
    if len(value) > _LONGEST_TEMPLATE:
        raise IntegrityError(f"{where}: its chat template has more than {_LONGEST_TEMPLATE} characters")
    return Template(value, tokens, where)
