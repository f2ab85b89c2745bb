"""The weights of a file under the network's names, each linear layer as (out, in), all in float32."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import engine as torch
from engine import Tensor
from hubcli.errors import HubError, IntegrityError
from hubcli.text.config import Config
from hubcli.text.network import Decoder

# llama.cpp's names, then those of the transformers library for Llama and its kin, and for GPT-2
_NAMES = {
    "token_embd": "embedding",
    "position_embd": "positions",
    "output_norm": "norm",
    "output": "head",
    "blk.N.attn_norm": "layers.N.attention_norm",
    "blk.N.attn_q": "layers.N.attention.query",
    "blk.N.attn_k": "layers.N.attention.key",
    "blk.N.attn_v": "layers.N.attention.value",
    "blk.N.attn_qkv": "layers.N.attention.joined",
    "blk.N.attn_output": "layers.N.attention.output",
    "blk.N.attn_q_norm": "layers.N.attention.query_norm",
    "blk.N.attn_k_norm": "layers.N.attention.key_norm",
    "blk.N.ffn_norm": "layers.N.feed_norm",
    "blk.N.ffn_gate": "layers.N.feed.gate",
    "blk.N.ffn_up": "layers.N.feed.up",
    "blk.N.ffn_down": "layers.N.feed.down",
    "model.embed_tokens": "embedding",
    "model.norm": "norm",
    "lm_head": "head",
    "model.layers.N.input_layernorm": "layers.N.attention_norm",
    "model.layers.N.self_attn.q_proj": "layers.N.attention.query",
    "model.layers.N.self_attn.k_proj": "layers.N.attention.key",
    "model.layers.N.self_attn.v_proj": "layers.N.attention.value",
    "model.layers.N.self_attn.o_proj": "layers.N.attention.output",
    "model.layers.N.self_attn.q_norm": "layers.N.attention.query_norm",
    "model.layers.N.self_attn.k_norm": "layers.N.attention.key_norm",
    "model.layers.N.post_attention_layernorm": "layers.N.feed_norm",
    "model.layers.N.mlp.gate_proj": "layers.N.feed.gate",
    "model.layers.N.mlp.up_proj": "layers.N.feed.up",
    "model.layers.N.mlp.down_proj": "layers.N.feed.down",
    "wte": "embedding",
    "wpe": "positions",
    "ln_f": "norm",
    "h.N.ln_1": "layers.N.attention_norm",
    "h.N.attn.c_attn": "layers.N.attention.joined",
    "h.N.attn.c_proj": "layers.N.attention.output",
    "h.N.ln_2": "layers.N.feed_norm",
    "h.N.mlp.c_fc": "layers.N.feed.up",
    "h.N.mlp.c_proj": "layers.N.feed.down",
}
_BUFFERS = ("rope_freqs.weight", "rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")  # no parameters


def network(config: Config, tensors: dict[str, Tensor], where: str, interleaved: bool = False) -> Decoder:
    """Return the network with the weights of a file, which are taken out of `tensors` one by one.

    interleaved: queries and keys have the pairs that RoPE turns side by side, as GGUF files of Llama do.
    IntegrityError for names or shapes that are not those of the architecture.
    """
    state = dict(_named(config, tensors, interleaved))
    if "embedding.weight" in state:
        state.setdefault("head.weight", state["embedding.weight"])
    layers = {name.split(".")[1] for name in state if name.startswith("layers.")}
    if len(layers) != config.layers:  # before that many are made
        raise IntegrityError(f"{where} says that it has {config.layers} layers, and holds weights of {len(layers)}")
    bias = any(name.endswith("attention.query.bias") for name in state)
    try:
        with torch.device("meta"):
            made = Decoder(config, bias)
        made.load_state_dict(state, assign=True)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:4]]
        raise IntegrityError(
            f"{where} does not hold a {config.architecture} network: {' '.join(lines)[:300]}"
        ) from None
    return made.eval().requires_grad_(False)


def divisors(tensors: Mapping[str, Tensor]) -> tuple[float, ...]:
    """Return what a GGUF file divides the frequencies of positions by (Llama 3.1), empty where it does not."""
    found = tensors.get("rope_freqs.weight")
    return () if found is None else tuple(found.float().tolist())


def _named(config: Config, tensors: dict[str, Tensor], interleaved: bool) -> Iterator[tuple[str, Tensor]]:
    for name in list(tensors):
        tensor = tensors.pop(name)
        if name.endswith(_BUFFERS):
            continue
        name = name.removeprefix("transformer.")
        module, _, kind = name.rpartition(".")
        number = re.search(r"(?<=\.)\d+(?=\.)", module)
        known = _NAMES.get(module if number is None else f"{module[: number.start()]}N{module[number.end() :]}")
        if known is None:
            yield name, tensor  # for the error that names it
            continue
        known = known.replace("N", number.group(), 1) if number is not None else known
        tensor = tensor.float()
        if config.is_gpt2 and kind == "weight" and ".c_" in module:  # (in, out) in this library's files
            tensor = tensor.t().contiguous()
        if known.endswith("joined"):
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3)):
                yield f"{known.removesuffix('joined')}{part}.{kind}", piece
            continue
        if interleaved and known.endswith(("attention.query", "attention.key")):
            tensor = _apart(tensor, config.head_size)
        yield f"{known}.{kind}", tensor


def _apart(tensor: Tensor, size: int) -> Tensor:
    """Return the rows of each head with the first of each pair before all second ones."""
    if tensor.shape[0] % size:
        return tensor  # whose shape the network refuses
    rest: Any = tensor.shape[1:]
    return tensor.view(-1, size // 2, 2, *rest).transpose(1, 2).reshape(tensor.shape)


def require_memory(count: int, where: str) -> None:
    """HubError where `count` elements of float32 do not fit into the memory that is free."""
    free = _free_memory()
    if free is not None and 4 * count > free:
        from hubcli.base import output

        needed = output.size(4 * count)
        raise HubError(
            f"{where} has {count:,} weights, {needed} in float32, and {output.size(free)} of memory are free",
            hint="weights are computed with in float32 so far: take a smaller model",
        )


def _free_memory() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None
