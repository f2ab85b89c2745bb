"""The weights of a file under the network's names, each linear layer as (out, in).

Matrices of float32, float16, bfloat16, Q8_0 and Q4_0 stay as the file has them, in its mapping where it has one.  Those
of other quantized types of GGUF are repacked exactly when they are read, as bytes with a scale and a shift for each
group of 32 (Q4_1, Q5_0, Q5_1, Q4_K, Q5_K: 1.25 bytes a weight) or 16 (Q2_K, Q3_K, Q6_K: 1.5).  Vectors are float32.
Layers that the transformers library stores as (in, out), those of GPT-2, are transposed in their own type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import engine as torch
from engine import Tensor
from engine.backends.cpu import half_floats
from engine.ops.products.packed import PackedMatrix
from engine.serialization.gguf import GgufTensor
from engine.serialization.gguf_blocks import dequantized, group_values, grouped
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


Weight = Tensor | PackedMatrix
_PACKED_TYPES = ("Q8_0", "Q4_0")  # of GGUF
_PACKED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def network(config: Config, tensors: dict[str, Weight], where: str) -> Decoder:
    """Return the network with the weights of a file, which are taken out of `tensors` one by one.

    IntegrityError for names or shapes that are not those of the architecture.
    """
    state = dict(_named(config, tensors))
    if "embedding.weight" in state:
        state.setdefault("head.weight", state["embedding.weight"])
    layers = {name.split(".")[1] for name in state if name.startswith("layers.")}
    if len(layers) != config.layers:  # before that many are made
        raise IntegrityError(f"{where} says that it has {config.layers} layers, and holds weights of {len(layers)}")
    bias = any(name.endswith("attention.query.bias") for name in state)
    matrices = {name: one for name, one in state.items() if isinstance(one, PackedMatrix)}
    try:
        with torch.device("meta"):
            made = Decoder(config, bias)
            shapes = {name: torch.empty(one.shape) for name, one in matrices.items()}
        made.load_state_dict({**state, **shapes}, assign=True)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:4]]
        raise IntegrityError(
            f"{where} does not hold a {config.architecture} network: {' '.join(lines)[:300]}"
        ) from None
    for name, matrix in matrices.items():
        made.get_submodule(name.removesuffix(".weight")).matrix = matrix
    return made.eval().requires_grad_(False)


def of_gguf(tensor: GgufTensor) -> Weight:
    """Return a tensor of a GGUF file; UnpicklingError for a type whose values are not read."""
    tensor.check()
    kind = tensor.kind
    if len(tensor.shape) == 2 and kind.dense is None:
        shape = tensor.shape[0], tensor.shape[1]
        if kind.name in _PACKED_TYPES:
            widen = lambda raw: dequantized(kind, raw, np.dtype(np.float32))
            return PackedMatrix(kind.name.lower(), shape, tensor.data, widen)
        size, data = grouped(kind, tensor.data)
        return PackedMatrix(f"groups_{size}", shape, data, lambda raw: group_values(size, raw))
    array = tensor.array(None)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _matrix(tensor: Tensor) -> PackedMatrix:
    """Return a matrix of any type, packed; widened to float32 if there is no such form."""
    if tensor.dtype not in _PACKED_DTYPES:
        tensor = tensor.float()
    tensor = tensor.detach().contiguous()
    form, outputs, inputs = str(tensor.dtype).removeprefix("torch."), *tensor.shape
    raw = tensor.view(torch.int16).numpy() if form == "bfloat16" else tensor.numpy()
    return PackedMatrix(form, (outputs, inputs), raw.reshape(-1).view(np.uint8), _WIDEN[form])


def _bfloat16(raw: np.ndarray) -> np.ndarray:
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


_WIDEN = {
    "float32": lambda raw: raw.view(np.float32),
    "float16": lambda raw: half_floats.widen(raw.view(np.float16)),
    "bfloat16": _bfloat16,
}


def divisors(tensors: Mapping[str, Weight]) -> tuple[float, ...]:
    """Return what a GGUF file divides the frequencies of positions by (Llama 3.1), empty where it does not."""
    found = tensors.get("rope_freqs.weight")
    return tuple(found.float().tolist()) if isinstance(found, Tensor) else ()


def _named(config: Config, tensors: dict[str, Weight]) -> Iterator[tuple[str, Weight]]:
    for name in list(tensors):
        weight = tensors.pop(name)
        if name.endswith(_BUFFERS):
            continue
        name = name.removeprefix("transformer.")
        module, _, kind = name.rpartition(".")
        number = re.search(r"(?<=\.)\d+(?=\.)", module)
        known = _NAMES.get(module if number is None else f"{module[: number.start()]}N{module[number.end() :]}")
        if known is None:
            yield name, weight  # for the error that names it
            continue
        known = known.replace("N", number.group(), 1) if number is not None else known
        if isinstance(weight, Tensor) and config.is_gpt2 and kind == "weight" and ".c_" in module:
            weight = weight.t()  # (in, out) in this library's files
        matrix = kind == "weight" and not known.endswith(("norm", "positions"))
        if isinstance(weight, PackedMatrix):
            weight = weight if matrix else torch.from_numpy(weight.widened())
        elif matrix and weight.ndim == 2:
            weight = _matrix(weight)
        else:
            weight = weight.float()
        if known.endswith("joined"):
            for part, piece in zip(("query", "key", "value"), _thirds(weight)):
                yield f"{known.removesuffix('joined')}{part}.{kind}", piece
            continue
        yield f"{known}.{kind}", weight


def _thirds(weight: Weight) -> Sequence[Weight]:
    if isinstance(weight, Tensor):
        return weight.chunk(3)
    third = -(-weight.shape[0] // 3)
    return [weight.part(at, min(at + third, weight.shape[0])) for at in range(0, weight.shape[0], third)]


def require_memory(nbytes: int, count: int, where: str) -> None:
    """HubError where the `nbytes` of so many weights do not fit into the memory that is free."""
    free = _free_memory()
    if free is not None and nbytes > free:
        from hubcli.base import output

        raise HubError(
            f"{where} has {count:,} weights, {output.size(nbytes)} in memory, and {output.size(free)} of it are free",
            hint="take a smaller model, or one of a smaller type of weights, such as Q4_0",
        )


def bytes_of(tensor: GgufTensor) -> int:
    """Return how much memory a weight of a GGUF file takes at most: its bytes in the file, or those of its groups."""
    count = math.prod(tensor.shape)
    if len(tensor.shape) != 2:
        return 4 * count
    quantized = tensor.kind.dense is None and tensor.type not in _PACKED_TYPES
    return count * 3 // 2 if quantized else tensor.data.nbytes


def _free_memory() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None
