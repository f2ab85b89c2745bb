"""The tokenizer of a model, by the package `tokenizers`: from a tokenizer.json, or from the metadata of a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubcli.errors import DependencyError, HubError, IntegrityError

if TYPE_CHECKING:
    import tokenizers

_CONTROL, _USER_DEFINED = 3, 4  # of tokenizer.ggml.token_type
_LONGEST = 256  # characters of a token that pairs are merged to; the cuts of a longer one take its square
_INCOMPLETE = "�"  # what a decoder makes of the first bytes of a letter
# Special tokens after which an answer is over, whatever a file says: many name the end of a document alone.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>")

# Expressions that cut text into words before pairs are merged, by the names that llama.cpp gives them in
# tokenizer.ggml.pre; they are those of the published tokenizer.json files.  None: GPT-2's own rule for bytes.
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA, _QWEN = _LETTERS + r"\p{N}{1,3}" + _REST, _LETTERS + r"\p{N}" + _REST
_DIGITS = r"\p{N}"  # each a word of its own, GPT-2's rule between them
_WORDS = {
    **dict.fromkeys(("default", "gpt-2", "gpt2", "mpt", "olmo"), None),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN),
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm"), _DIGITS),
}


class Tokenizer:
    """Text to tokens and back.  begin: the token before every text, None for none.  end: those after which a text is
    over."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, begin: int | None, end: frozenset[int]) -> None:
        self.tokenizer, self.begin, self.end = tokenizer, begin, end

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, `begin` before them."""
        ids = list(self.tokenizer.encode(text, add_special_tokens=self.begin is None).ids)
        return ids if self.begin is None or ids[:1] == [self.begin] else [self.begin, *ids]

    def encode_marked(self, text: str, mark: str) -> list[int]:
        """Return the tokens of a rendered chat: `begin` is the template's business, each `mark` begins a text anew.

        `chat.Marks` says why.  What stands behind a mark is the rest of a special token; it is encoded behind a line
        break, whose tokens are then left out: SentencePiece begins texts with a space.
        """
        first, *rest = text.split(mark)
        ids = self._plain(first)
        line = self._plain("\n")
        for part in rest:
            found = self._plain(f"\n{part}")
            ids += found[len(line) :] if found[: len(line)] == line else self._plain(part)
        return ids

    def _plain(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def special(self, controls_alone: bool = False) -> list[str]:
        """Return the tokens that control the model, and without `controls_alone` those that look so: `<tool_call>`."""
        looks = "(?!)" if controls_alone else r"<.+>|\[[A-Z_/]+\]"
        added = self.tokenizer.get_added_tokens_decoder().values()
        return [one.content for one in added if one.special or re.fullmatch(looks, one.content)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without what only controls the model."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))


class Stream:
    """The text of tokens that come one by one: each piece once, as soon as its letters are whole."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        self._tokenizer, self._tokens = tokenizer, list(before)
        self._start, self._shown = max(0, len(self._tokens) - 8), 0
        self._shown = len(self._text())

    def _text(self) -> str:
        return self._tokenizer.decode(self._tokens[self._start :])

    def add(self, token: int) -> str:
        """Return what `token` adds to the text; empty inside a letter of several tokens."""
        self._tokens.append(token)
        text = self._text()
        if text.endswith(_INCOMPLETE):
            return ""
        return self._taken(text)

    def rest(self) -> str:
        """Return what is left at the end, incomplete letters as they are."""
        return self._taken(self._text())

    def _taken(self, text: str) -> str:
        new, self._shown = text[self._shown :], len(text)
        if len(self._tokens) - self._start > 64:  # decode the last few anew, not all
            self._start = len(self._tokens) - 8
            self._shown = len(self._text())
        return new


def from_file(path: Path, *special: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json; `special` are the values of files beside it that say which tokens end
    a text: `eos_token_id` or `eos_token`."""
    library = _library()
    try:
        found = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exceptions
        raise IntegrityError(f"{path} is not a tokenizer.json: {str(error)[:200]}") from None
    ends: list[object] = []
    for values in special:
        end, word = values.get("eos_token_id"), values.get("eos_token")
        ends += end if isinstance(end, list) else [end]
        word = word.get("content") if isinstance(word, dict) else word
        ends += [found.token_to_id(word)] if isinstance(word, str) else []
    return Tokenizer(found, None, _known_ends(found) | {one for one in ends if type(one) is int})


def from_gguf(metadata: Mapping[str, Any], where: str) -> Tokenizer:
    """Return the tokenizer in a GGUF file: byte-level pairs (`gpt2`) or SentencePiece's pairs (`llama`).

    HubError for another kind, with the option that gives a tokenizer.json instead.
    """
    library = _library()
    kind, tokens = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not all(isinstance(one, str) for one in tokens):
        raise HubError(f"{where} holds no tokenizer", hint="give one: --tokenizer tokenizer.json")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if kind == "gpt2":
        made = _byte_level(library, metadata, vocabulary, where)
    elif kind == "llama":
        made = _sentence_pieces(library, metadata, vocabulary, tokens, where)
    else:
        raise HubError(
            f"{where} has a tokenizer of the kind {str(kind)[:40]!r}; known are gpt2 and llama",
            hint="give one: --tokenizer tokenizer.json",
        )
    types = metadata.get("tokenizer.ggml.token_type") or []
    added = {_CONTROL: [], _USER_DEFINED: []}  # type: dict[int, list[Any]]
    for token, of in zip(tokens, types):
        if of in added:
            added[of].append(library.AddedToken(token, special=of == _CONTROL, normalized=False))
    made.add_special_tokens(added[_CONTROL])
    made.add_tokens(added[_USER_DEFINED])
    begin = _token(metadata, "bos_token_id", len(tokens))
    wanted = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama")
    ends = {_token(metadata, name, len(tokens)) for name in ("eos_token_id", "eot_token_id", "eom_token_id")}
    return Tokenizer(made, begin if wanted else None, _known_ends(made) | {one for one in ends if one is not None})


def _known_ends(made: Any) -> frozenset[int]:
    added = made.get_added_tokens_decoder().items()
    return frozenset(number for number, one in added if one.special and one.content in _ENDS)


def _token(metadata: Mapping[str, Any], name: str, count: int) -> int | None:
    found = metadata.get(f"tokenizer.ggml.{name}")
    return found if isinstance(found, int) and 0 <= found < count else None


def _byte_level(library: Any, metadata: Mapping[str, Any], vocabulary: dict[str, int], where: str) -> Any:
    pairs = [tuple(str(one).split(" ", 1)) for one in metadata.get("tokenizer.ggml.merges") or []]
    cut = metadata.get("tokenizer.ggml.pre", "default")
    if not isinstance(cut, str) or cut not in _WORDS:
        raise HubError(
            f"{where} cuts words by the rule {str(cut)[:40]!r}, which hub does not know",
            hint="give its tokenizer: --tokenizer tokenizer.json",
        )
    rule = _WORDS[cut]
    made = _made(library, where, vocab=vocabulary, merges=pairs, ignore_merges=rule is _LLAMA)
    words = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule is None or rule is _DIGITS)
    if rule is not None:
        split = library.pre_tokenizers.Split(library.Regex(rule), "isolated")
        words = library.pre_tokenizers.Sequence([split, words])
    made.pre_tokenizer = words
    made.decoder = library.decoders.ByteLevel()
    return made


def _sentence_pieces(
    library: Any, metadata: Mapping[str, Any], vocabulary: dict[str, int], tokens: list[str], where: str
) -> Any:
    """SentencePiece's merges: of all pairs that make a token the one with the highest score comes first."""
    scores = metadata.get("tokenizer.ggml.scores") or []
    if len(scores) != len(tokens):
        raise IntegrityError(f"{where} has {len(scores)} scores for {len(tokens)} tokens")
    pairs = []
    for number in sorted(range(len(tokens)), key=lambda i: -scores[i]):
        token = tokens[number]
        cuts = [(token[:i], token[i:]) for i in range(1, len(token) if len(token) <= _LONGEST else 0)]
        cuts = [(a, b) for a, b in cuts if a in vocabulary and b in vocabulary]
        pairs += sorted(cuts, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    unknown = _token(metadata, "unknown_token_id", len(tokens))
    made = _made(
        library,
        where,
        vocab=vocabulary,
        merges=pairs,
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    steps = [library.normalizers.Replace(" ", "▁")]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, library.normalizers.Prepend("▁"))
    made.normalizer = library.normalizers.Sequence(steps)
    decoders = library.decoders
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


def _made(library: Any, where: str, **model: Any) -> Any:
    try:
        return library.Tokenizer(library.models.BPE(**model))
    except Exception as error:  # the library raises plain Exceptions
        raise IntegrityError(f"{where} has a tokenizer that does not fit together: {str(error)[:200]}") from None


def _library() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
    except ImportError:
        raise DependencyError(
            "text generation needs tokenizers, which is not installed", hint="run: python -m pip install 'hubcli[text]'"
        ) from None
    return tokenizers
