"""A decoder-only transformer, one network for all architectures of `config.ARCHITECTURES`, with cached keys and values.

Sources: GPT-2 (Radford et al. 2019), LLaMA (Touvron et al. 2023), RoPE (Su et al. 2021), grouped queries (Ainslie et
al. 2023)."""

from __future__ import annotations

import functools
from typing import Any

import engine as torch
import engine.nn.functional as F
from engine import Tensor, nn
from engine.ops.products import packed
from hubcli.text import steps
from hubcli.text.config import Config


class Cache:
    """The keys and values of all positions so far, in tensors that are as large as they will ever be.

    keys, values: (layers, key heads, capacity, head size).  length: positions that are filled.
    """

    def __init__(self, config: Config, capacity: int) -> None:
        shape = (config.layers, config.key_heads, capacity, config.head_size)
        self.keys, self.values = torch.empty(shape), torch.empty(shape)
        self.length = 0
        self.token: steps.Token | None = None  # the program of one token, once there is one
        self.cosines, self.sines = _rotations(config, capacity)

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of the next positions, (key heads, n, head size), and return those of all."""
        end = self.length + keys.shape[1]
        self.keys[layer, :, self.length : end] = keys
        self.values[layer, :, self.length : end] = values
        return self.keys[layer, :, :end], self.values[layer, :, :end]


def _rotations(config: Config, capacity: int) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of each position and pair, (capacity, rotary / 2)."""
    frequencies = config.rotary_base ** (
        -torch.arange(0, config.rotary, 2, dtype=torch.float64) / max(config.rotary, 1)
    )
    if config.frequencies:
        frequencies = frequencies / torch.tensor(config.frequencies, dtype=torch.float64)
    angles = torch.outer(torch.arange(capacity, dtype=torch.float64), frequencies)
    return angles.cos().float(), angles.sin().float()


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor, adjacent: bool) -> Tensor:
    """Turn each pair of the elements of a head by its angle.  x (heads, n, head size).

    adjacent: pairs are (2 i, 2 i + 1), else (i, i + rotary / 2).
    """
    half = cosine.shape[-1]
    if adjacent:
        first, second, rest = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2], x[..., 2 * half :]
        pairs = torch.stack((first * cosine - second * sine, second * cosine + first * sine), -1)
        return torch.cat((pairs.flatten(-2), rest), -1)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine, rest), -1)


class Linear(nn.Linear):
    """x @ weight^T + bias with the weight as its file has it: `matrix` instead of `weight`, which has no memory."""

    matrix: packed.PackedMatrix

    def forward(self, x: Tensor) -> Tensor:
        """x (n, in) -> (n, out)."""
        return together(x, self)[0]


class Embedding(nn.Embedding):
    """Rows of a matrix as its file has it."""

    matrix: packed.PackedMatrix

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (n) -> (n, width)."""
        return torch.from_numpy(self.matrix.rows(tokens.tolist()))


def together(x: Tensor, *layers: Linear) -> list[Tensor]:
    """The results of layers that read the same x (n, in)."""
    biases = [None if one.bias is None else one.bias.detach().numpy() for one in layers]
    return [torch.from_numpy(found) for found in packed.multiply(x.numpy(), [one.matrix for one in layers], biases)]


class Attention(nn.Module):
    """Causal attention; several heads may share one head of keys and values."""

    def __init__(self, config: Config, number: int, bias: bool) -> None:
        super().__init__()
        self.number, self.heads, self.size, self.rotary = number, config.heads, config.head_size, config.rotary
        self.adjacent = config.adjacent
        shared = config.key_heads * config.head_size
        self.query = Linear(config.width, config.heads * config.head_size, bias=bias)
        self.key = Linear(config.width, shared, bias=bias)
        self.value = Linear(config.width, shared, bias=bias)
        self.output = Linear(config.heads * config.head_size, config.width, bias=config.is_gpt2)
        self.query_norm = nn.RMSNorm(config.head_size, config.eps) if config.normalized_heads else None
        self.key_norm = nn.RMSNorm(config.head_size, config.eps) if config.normalized_heads else None

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        """x (n, width), the positions behind those in the cache -> (n, width)."""
        n, start = x.shape[0], cache.length
        query, key, value = (
            one.view(n, -1, self.size).transpose(0, 1) for one in together(x, self.query, self.key, self.value)
        )
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary:
            cosine, sine = cache.cosines[start : start + n], cache.sines[start : start + n]
            query, key = (_rotated(one, cosine, sine, self.adjacent) for one in (query, key))
        keys, values = cache.extend(self.number, key, value)
        shared = self.heads != keys.shape[0]
        found = F.scaled_dot_product_attention(
            query[None], keys[None], values[None], is_causal=n > 1, enable_gqa=shared
        )
        output: Tensor = self.output(found[0].transpose(0, 1).reshape(n, -1))
        return output


class FeedForward(nn.Module):
    """SwiGLU, for GPT-2 a GELU between two products."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = None if config.is_gpt2 else Linear(config.width, config.hidden, bias=False)
        self.up = Linear(config.width, config.hidden, bias=config.is_gpt2)
        self.down = Linear(config.hidden, config.width, bias=config.is_gpt2)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, width) -> (n, width)."""
        if self.gate is None:
            inner = F.gelu(self.up(x), approximate="tanh")
        else:
            gate, up = together(x, self.gate, self.up)
            inner = F.silu(gate) * up
        down: Tensor = self.down(inner)
        return down


class Layer(nn.Module):
    """Attention and a feed-forward network, each on normalized vectors and added to them."""

    def __init__(self, config: Config, number: int, bias: bool) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = _norm(config), _norm(config)
        self.attention = Attention(config, number, bias)
        self.feed = FeedForward(config)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        """x (n, width) -> (n, width)."""
        x = x + self.attention(self.attention_norm(x), cache)
        fed: Tensor = self.feed(self.feed_norm(x))
        return x + fed


class Decoder(nn.Module):
    """The network: tokens in, logits of the next token out.

    bias: whether queries, keys and values have one (GPT-2, Qwen2).
    """

    def __init__(self, config: Config, bias: bool = False) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width) if not config.rotary else None
        self.layers = nn.ModuleList([Layer(config, number, bias) for number in range(config.layers)])
        self.norm = _norm(config)
        self.head = Linear(config.width, config.vocabulary, bias=False)
        self.route = steps.route(self)

    @torch.no_grad()
    def forward(self, tokens: Tensor, cache: Cache) -> Tensor:
        """tokens (n), the ones behind those in the cache -> logits of what follows them, (vocabulary).

        More than one token at a time goes into an empty cache alone.  One token is a single call of generated code
        where there is such (`steps.py`).
        """
        n = tokens.shape[0]
        if n > 1 and cache.length:
            raise ValueError(f"{n} tokens at once go into an empty cache, not one of {cache.length}")
        capacity = cache.keys.shape[2]
        if cache.length + n > capacity:  # generated code would write behind it
            raise ValueError(
                f"the cache has room for {capacity} tokens: {cache.length} are in it, and {n} more do not fit"
            )
        made = None
        if n == 1:
            made = steps.logits(self, int(tokens[0]), cache, functools.partial(self._logits, tokens, cache))
        found = self._logits(tokens, cache) if made is None else torch.from_numpy(made)
        cache.length += n
        return found

    def _logits(self, tokens: Tensor, cache: Cache) -> Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[cache.length : cache.length + len(tokens)]
        for layer in self.layers:
            x = layer(x, cache)
        logits: Tensor = self.head(self.norm(x[-1:]))[0]
        return logits


def _norm(config: Config) -> Any:
    return nn.LayerNorm(config.width, config.eps) if config.is_gpt2 else nn.RMSNorm(config.width, config.eps)
