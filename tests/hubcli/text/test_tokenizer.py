"""Tokenizers from tokenizer.json and from GGUF metadata; text that comes token by token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from hubcli.errors import HubError, IntegrityError
from hubcli.text import tokenizer

TEXT = (
    "The quick brown fox jumps over 13 lazy dogs, 2024 times. It's naïve: größer, 東京, 😀!\n\n"
    "So they'd say  it again. "
)


def trained(pre: Any) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [TEXT] * 3,
        trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, special_tokens=["<|end|>", "<|begin|>"]),
    )
    return made


def metadata(made: tokenizers.Tokenizer, pre: str) -> dict[str, Any]:
    """Return what a GGUF file would say of a byte-level tokenizer."""
    import json

    model = json.loads(made.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [one if isinstance(one, str) else " ".join(one) for one in model["merges"]],
        "tokenizer.ggml.token_type": [3 if one.startswith("<|") else 1 for one in tokens],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
    }


@pytest.mark.parametrize("pre", ["gpt-2", "default", "qwen2", "llama-bpe", "smollm"])
def test_a_byte_level_tokenizer_of_a_gguf_file_is_that_of_the_tokenizer_json(pre: str, tmp_path: Path) -> None:
    words: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule := tokenizer._WORDS[pre]:
        split = pre_tokenizers.Split(tokenizers.Regex(rule), "isolated")
        rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "smollm")
        words = pre_tokenizers.Sequence([split, rest])
    made = trained(words)
    made.save(str(tmp_path / "tokenizer.json"))
    ours = tokenizer.from_gguf(metadata(made, pre), "w.gguf")
    theirs = tokenizer.from_file(tmp_path / "tokenizer.json", {"eos_token_id": [0, 5]})
    assert ours.encode(TEXT) == theirs.encode(TEXT) == made.encode(TEXT).ids
    assert ours.decode(ours.encode(TEXT)) == TEXT
    assert ours.encode("a<|end|>") == [*ours.encode("a"), 0]
    assert (ours.end, theirs.end) == ({0}, {0, 5}) and ours.begin is None


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["It", "'s", "Ġ", "Ġ2024", ":", "ĠIT", "'", "S", "Ċ"]),
        ("smollm", ["It", "'s", "ĠĠ", "2", "0", "2", "4", ":", "ĠIT", "'", "S", "Ċ"]),
        ("llama-bpe", ["It", "'s", "Ġ", "Ġ", "202", "4", ":", "ĠIT", "'S", "Ċ"]),
        ("qwen2", ["It", "'s", "Ġ", "Ġ", "2", "0", "2", "4", ":", "ĠIT", "'S", "Ċ"]),
    ],
)
def test_words_are_cut_as_the_published_tokenizers_do(pre: str, words: list[str]) -> None:
    made = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    ours = tokenizer.from_gguf(metadata(made, pre), "w.gguf")
    cut = ours.tokenizer.pre_tokenizer.pre_tokenize_str("It's  2024: IT'S\n")
    assert [word for word, _ in cut] == words


def test_a_first_token_is_added_once() -> None:
    made = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    ours = tokenizer.from_gguf({**metadata(made, "gpt-2"), "tokenizer.ggml.add_bos_token": True}, "")
    assert ours.encode("So") == ours.encode("<|begin|>So") and ours.encode("So")[0] == 1
    assert ours.decode(ours.encode("So")) == "So"


def sentence_pieces(**changes: Any) -> dict[str, Any]:
    """Return what a GGUF file would say of a SentencePiece tokenizer with byte fallback."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    learned = ["he", "ll", "▁he", "llo", "▁w", "or", "▁hello", "ld", "▁wor", "▁world"]
    letters = list("▁helowrd")
    types = [2, 3, 3, *[6] * 256, *[1] * (len(learned) + len(letters))]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(learned) + len(letters))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*pieces, *learned, *letters],
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **changes,
    }


def test_sentence_pieces_merge_by_score_and_fall_back_to_bytes() -> None:
    made = sentence_pieces()
    ours, piece = tokenizer.from_gguf(made, ""), made["tokenizer.ggml.tokens"]
    assert [piece[one] for one in ours.encode("hello world")] == ["<s>", "▁hello", "▁world"]
    assert [piece[one] for one in ours.encode("hold")] == ["<s>", "▁", "h", "o", "ld"]
    assert [piece[one] for one in ours.encode("é")] == ["<s>", "▁", "<0xC3>", "<0xA9>"]
    assert ours.decode(ours.encode("hello world é")[2:]) == " world é"
    plain = tokenizer.from_gguf(sentence_pieces(**{"tokenizer.ggml.add_space_prefix": False}), "")
    assert [piece[one] for one in plain.encode("hello")] == ["<s>", "he", "llo"]


def test_a_token_of_a_million_letters_costs_nothing() -> None:
    made = sentence_pieces()
    made["tokenizer.ggml.tokens"][-1] = "he" * 500_000
    ours = tokenizer.from_gguf(made, "")
    assert ours.encode("he") == [1, made["tokenizer.ggml.tokens"].index("▁he")]


@pytest.mark.parametrize("text", [TEXT, "東京😀" * 60, ""])
def test_a_stream_gives_each_letter_once_and_whole(text: str) -> None:
    ours = tokenizer.from_gguf(metadata(trained(pre_tokenizers.ByteLevel(add_prefix_space=False)), "gpt-2"), "")
    prompt = ours.encode("So they")
    stream = tokenizer.Stream(ours, prompt)
    pieces = [stream.add(token) for token in ours.encode(text)]
    assert "".join([*pieces, stream.rest()]) == text
    assert not any("�" in piece for piece in pieces)


def test_a_stream_of_sentence_pieces_keeps_the_space_between_words() -> None:
    ours = tokenizer.from_gguf(sentence_pieces(), "")
    stream = tokenizer.Stream(ours, ours.encode("hello"))
    assert stream.add(ours.encode("world")[1]) == " world"
    half = ours.encode("é")[2]
    assert stream.add(half) == "" and stream.rest() == "�"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"tokenizer.ggml.model": "bert"}, HubError, "of the kind 'bert'; known are gpt2 and llama"),
        ({"tokenizer.ggml.tokens": None}, HubError, "holds no tokenizer"),
        ({"tokenizer.ggml.tokens": [1]}, HubError, "holds no tokenizer"),
        ({"tokenizer.ggml.scores": [1.0]}, IntegrityError, "1 scores for 277 tokens"),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "unheard"}, HubError, "by the rule 'unheard'"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["x y"]},
            IntegrityError,
            "has a tokenizer that does not fit together",
        ),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["xy"]},
            IntegrityError,
            "has a tokenizer that does not fit together",
        ),
    ],
)
def test_what_is_no_tokenizer_is_said(changes: dict[str, Any], error: type[HubError], words: str) -> None:
    with pytest.raises(error, match=words):
        tokenizer.from_gguf(sentence_pieces(**changes), "w.gguf")


def test_a_file_that_is_no_tokenizer_is_said(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(IntegrityError, match=r"tokenizer\.json is not a tokenizer\.json"):
        tokenizer.from_file(tmp_path / "tokenizer.json", {})
