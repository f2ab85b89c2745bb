"""Small models whose weights a formula gives, the same in every framework."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, pre_tokenizers
from tokenizers import models as bpe

import engine
from engine.serialization import save_safetensors
from engine.serialization.gguf import write_gguf

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, CONTEXT = 64, 24, 40, 2, 4, 32
TOKENS = (3, 17, 42, 5, 60)
# letters for the tokens of the small models: what they say can be read
LETTERS = "".join(chr(ord("0") + number) for number in range(VOCABULARY))

_LLAMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **_LLAMA},
    "llama3": {
        "model_type": "llama",
        **_LLAMA,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "linear": {"model_type": "llama", **_LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"model_type": "mistral", **_LLAMA, "sliding_window": 16},
    "qwen2": {"model_type": "qwen2", **_LLAMA, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **_LLAMA, "head_dim": 8},
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_positions": CONTEXT,
        "n_embd": WIDTH,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "eos_token_id": 1,
    },
}


def values(number: int, count: int, scale: float = 0.3) -> list[float]:
    """Return the elements of the tensor of that number: no two tensors alike, none with a pattern."""
    return [scale * math.sin(1.0 + 7.0 * number + 0.37 * i + 0.011 * i * i) for i in range(count)]


def shapes(kind: str) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a model's tensors as the transformers library writes them."""
    values_ = CONFIGS[kind]
    if kind == "gpt2":
        found = {"wte.weight": (VOCABULARY, WIDTH), "wpe.weight": (CONTEXT, WIDTH)}
        for layer in range(LAYERS):
            at = f"h.{layer}."
            for name, out, into in (
                ("attn.c_attn", 3 * WIDTH, WIDTH),
                ("attn.c_proj", WIDTH, WIDTH),
                ("mlp.c_fc", 4 * WIDTH, WIDTH),
                ("mlp.c_proj", WIDTH, 4 * WIDTH),
            ):
                found |= {f"{at}{name}.weight": (into, out), f"{at}{name}.bias": (out,)}
            for name in ("ln_1", "ln_2"):
                found |= {f"{at}{name}.weight": (WIDTH,), f"{at}{name}.bias": (WIDTH,)}
        return found | {"ln_f.weight": (WIDTH,), "ln_f.bias": (WIDTH,)}
    size = values_.get("head_dim", WIDTH // HEADS)
    found = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, out, into in (
            ("self_attn.q_proj", HEADS * size, WIDTH),
            ("self_attn.k_proj", 2 * size, WIDTH),
            ("self_attn.v_proj", 2 * size, WIDTH),
            ("self_attn.o_proj", WIDTH, HEADS * size),
            ("mlp.gate_proj", HIDDEN, WIDTH),
            ("mlp.up_proj", HIDDEN, WIDTH),
            ("mlp.down_proj", WIDTH, HIDDEN),
        ):
            found[f"{at}{name}.weight"] = (out, into)
            if kind == "qwen2" and name[10:] in ("q_proj", "k_proj", "v_proj"):
                found[f"{at}{name}.bias"] = (out,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{name}.weight"] = (WIDTH,)
        if kind == "qwen3":
            found |= {f"{at}self_attn.q_norm.weight": (size,), f"{at}self_attn.k_norm.weight": (size,)}
    return found if kind == "qwen2" else found | {"lm_head.weight": (VOCABULARY, WIDTH)}


def state(kind: str, torch: Any) -> dict[str, Any]:
    """Return a model's tensors in a framework; factors of norms are near 1."""
    found = {}
    for number, (name, shape) in enumerate(shapes(kind).items()):
        tensor = torch.tensor(values(number, math.prod(shape))).view(shape)
        found[name] = tensor + 1 if "norm" in name or (".ln_" in f".{name}" and name.endswith("weight")) else tensor
    return found


def close(found: Sequence[float], expected: Sequence[float]) -> bool:
    """Return whether numbers agree to four digits."""
    return len(found) == len(expected) and all(abs(a - b) <= 1e-4 * max(1.0, abs(b)) for a, b in zip(found, expected))


def write_tokenizer(path: Path) -> None:
    """Write a tokenizer.json that knows single letters."""
    vocabulary = {letter: number for number, letter in enumerate(LETTERS)}
    made = tokenizers.Tokenizer(bpe.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(path))


def write_gpt2(folder: Path) -> None:
    """Write the small GPT-2 as the transformers library does."""
    folder.mkdir()
    save_safetensors(state("gpt2", engine), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIGS["gpt2"]))
    write_tokenizer(folder / "tokenizer.json")


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
    for name, tensor in state("llama", engine).items():
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
            "llama.block_count": LAYERS,
            "llama.context_length": CONTEXT,
            "llama.embedding_length": WIDTH,
            "llama.feed_forward_length": HIDDEN,
            "llama.attention.head_count": HEADS,
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
