"""`hub run MODEL --prompt`: text from a GGUF file, and from safetensors with its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from click.testing import CliRunner, Result
from tokenizers import decoders, pre_tokenizers

import engine
from engine.serialization import save_safetensors
from engine.serialization.gguf import write_gguf
from hubcli.terminal import cli
from tests.hubcli.text import models
from tests.hubcli.text.test_network import GREEDY

# letters for the tokens of the small models: what they say can be read
LETTERS = "".join(chr(ord("0") + number) for number in range(models.VOCABULARY))
PROMPT = "".join(LETTERS[token] for token in models.TOKENS)


def hub(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments), input=stdin)


def said(kind: str, count: int = 8) -> str:
    return "".join(LETTERS[token] for token in GREEDY[kind][:count])


def write_tokenizer(path: Path) -> None:
    vocabulary = {letter: number for number, letter in enumerate(LETTERS)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(path))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a GPT-2 in safetensors, and one with a Llama as GGUF, the working folder above them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    save_safetensors(models.state("gpt2", engine), tmp_path / "gpt2" / "model.safetensors")
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(models.CONFIGS["gpt2"]))
    write_tokenizer(tmp_path / "gpt2" / "tokenizer.json")
    write_llama(tmp_path / "llama.gguf")
    return tmp_path


def write_llama(path: Path, **metadata: Any) -> None:
    """Write the small Llama as llama.cpp's converter does: pairs side by side, other names."""
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in models.state("llama", engine).items():
        array = tensor.numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            array = array.reshape(-1, 2, 3, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        for old, new in names.items():
            name = name.replace(old, new)
        tensors[name.replace("model.layers", "blk")] = np.ascontiguousarray(array)
    write_gguf(
        path,
        {
            "general.architecture": "llama",
            "llama.block_count": models.LAYERS,
            "llama.context_length": models.CONTEXT,
            "llama.embedding_length": models.WIDTH,
            "llama.feed_forward_length": models.HIDDEN,
            "llama.attention.head_count": models.HEADS,
            "llama.attention.head_count_kv": 2,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 500.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": list(LETTERS),
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.eos_token_id": 1,
            **metadata,
        },
        tensors,
    )


@pytest.mark.parametrize(
    ("spec", "kind"), [("gpt2", "gpt2"), ("gpt2/model.safetensors", "gpt2"), ("llama.gguf", "llama")]
)
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
