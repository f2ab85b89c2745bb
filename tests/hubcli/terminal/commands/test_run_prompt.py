"""`hub run MODEL --prompt`: text from a GGUF file, and from safetensors with its configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubcli.terminal import cli
from tests.hubcli.text import models
from tests.hubcli.text.models import LETTERS, write_gpt2, write_llama
from tests.hubcli.text.test_network import GREEDY

PROMPT = "".join(LETTERS[token] for token in models.TOKENS)


def hub(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments), input=stdin)


def said(kind: str, count: int = 8) -> str:
    return "".join(LETTERS[token] for token in GREEDY[kind][:count])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a GPT-2 in safetensors, and one with a Llama as GGUF, the working folder above them."""
    monkeypatch.chdir(tmp_path)
    write_gpt2(tmp_path / "gpt2")
    write_llama(tmp_path / "llama.gguf")
    return tmp_path


@pytest.mark.parametrize("spec", ["gpt2", "gpt2/model.safetensors", "llama.gguf"])
def test_what_follows_the_prompt_is_printed(folder: Path, spec: str) -> None:
    kind = "llama" if spec == "llama.gguf" else "gpt2"
    result = hub("run", spec, "--prompt", PROMPT, "--tokens", "8")
    assert (result.exit_code, result.stdout) == (0, said(kind) + "\n")
    assert "prompt: 5 tokens" in result.stderr and "text: 8 tokens" in result.stderr


def test_the_document(folder: Path) -> None:
    document = json.loads(hub("--json", "run", "llama.gguf", "--prompt", PROMPT, "--tokens", "3").stdout)
    assert document["text"] == said("llama", 3) and document["prompt"] == PROMPT
    assert (document["architecture"], document["prompt_tokens"], document["tokens"]) == ("llama", 5, 3)
    assert document["finish"] == "length" and document["seconds"].keys() == {"load", "first", "all"}


def test_the_end_of_a_text_and_of_the_context(folder: Path) -> None:
    write_llama(folder / "ends.gguf", **{"tokenizer.ggml.eos_token_id": GREEDY["llama"][2]})
    document = json.loads(hub("--json", "run", "ends.gguf", "--prompt", PROMPT).stdout)
    assert (document["text"], document["finish"]) == (said("llama", 2), "stop")
    document = json.loads(hub("--json", "run", "llama.gguf", "--prompt", PROMPT).stdout)
    assert document["tokens"] <= models.CONTEXT - 5
    result = hub("run", "llama.gguf", "--prompt", PROMPT * 7)
    assert result.exit_code == 2 and "35 tokens, and the context of llama.gguf 32" in result.stderr


def test_draws_depend_on_the_seed(folder: Path) -> None:
    draw = lambda seed: hub("run", "gpt2", "--prompt", PROMPT, "--temperature", "3", "--seed", seed).stdout
    assert draw("1") == draw("1") != draw("2")


def test_a_prompt_from_stdin(folder: Path) -> None:
    assert hub("run", "gpt2", "--prompt", "-", "--tokens", "2", stdin=PROMPT).stdout == said("gpt2", 2) + "\n"


def test_control_characters_do_not_reach_the_terminal(folder: Path) -> None:
    escape = chr(256 + 27)  # which stands for that byte in such a vocabulary
    letters = [escape if number == GREEDY["llama"][1] else letter for number, letter in enumerate(LETTERS)]
    write_llama(folder / "loud.gguf", **{"tokenizer.ggml.tokens": letters})
    result = hub("run", "loud.gguf", "--prompt", PROMPT, "--tokens", "3")
    assert result.stdout == said("llama", 3).replace(LETTERS[GREEDY["llama"][1]], "") + "\n"
    assert "\x1b" not in hub("--json", "run", "loud.gguf", "--prompt", PROMPT, "--tokens", "3").stdout


@pytest.mark.parametrize(
    ("words", "status", "said_"),
    [
        (("gpt2", "net", "--prompt", "a"), 2, "net does not go with --prompt"),
        (("gpt2", "--prompt", "a", "--top", "3"), 2, "--top does not go with --prompt"),
        (("gpt2", "--prompt", "a", "--sandbox"), 2, "--sandbox does not go with --prompt"),
        (("gpt2", "--tokens", "3"), 2, "--tokens is for --prompt"),
        (("gpt2",), 2, "Missing option '--input'"),
        (("llama.gguf", "--input", "x.npy"), 2, "a GGUF file continues a text: give --prompt TEXT"),
        (("absent.gguf", "--prompt", "a"), 3, "there is no file absent.gguf"),
        ((".", "--prompt", "a"), 3, "has no model.safetensors"),
        (("gpt2/config.json", "--prompt", "a"), 2, "takes a GGUF or safetensors file, not config.json"),
        (("llama.gguf", "--prompt", ""), 2, "the prompt is empty"),
        (("llama.gguf", "--prompt", "a", "--tokenizer", "gpt2/config.json"), 6, "is not a tokenizer.json"),
        (("gpt2", "--prompt", "a", "--temperature", "nan"), 2, "--temperature"),
    ],
)
def test_what_does_not_go_is_said(folder: Path, words: tuple[str, ...], status: int, said_: str) -> None:
    result = hub("run", *words)
    assert (result.exit_code, said_ in result.stderr) == (status, True), result.stderr
    assert "Traceback" not in result.stderr


def test_files_that_are_damaged_or_missing_are_named(folder: Path) -> None:
    whole = (folder / "llama.gguf").read_bytes()
    (folder / "cut.gguf").write_bytes(whole[:-100])
    result = hub("run", "cut.gguf", "--prompt", "a")
    assert result.exit_code == 6 and "cut.gguf was refused" in result.stderr
    (folder / "gpt2" / "tokenizer.json").rename(folder / "elsewhere.json")
    result = hub("run", "gpt2", "--prompt", PROMPT)
    assert result.exit_code == 3 and "--tokenizer tokenizer.json" in result.stderr
    result = hub("run", "gpt2", "--prompt", PROMPT, "--tokens", "1", "--tokenizer", "elsewhere.json")
    assert result.stdout == said("gpt2", 1) + "\n"
    (folder / "gpt2" / "config.json").write_text("[1]")
    assert "config.json is not an object" in hub("run", "gpt2", "--prompt", "a").stderr
    (folder / "gpt2" / "config.json").unlink()
    assert "says what network" in hub("run", "gpt2", "--prompt", "a").stderr


def test_a_tokenizer_with_more_tokens_than_the_network_is_refused(folder: Path) -> None:
    letters = [*LETTERS, "~"]
    write_llama(folder / "more.gguf", **{"tokenizer.ggml.tokens": letters})
    result = hub("run", "more.gguf", "--prompt", "~")
    assert result.exit_code == 6 and "the tokenizer has token 64, and more.gguf 64 tokens" in result.stderr
