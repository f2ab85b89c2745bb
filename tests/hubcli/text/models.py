"""Small models whose weights a formula gives, the same in every framework."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, CONTEXT = 64, 24, 40, 2, 4, 32
TOKENS = (3, 17, 42, 5, 60)

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
