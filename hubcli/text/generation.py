"""Choose one token after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import engine as torch
from engine import Tensor
from hubcli.errors import HubError
from hubcli.text.network import Cache, Decoder


def generate(
    network: Decoder,
    prompt: Sequence[int],
    count: int,
    *,
    stop: Set[int] = frozenset(),
    temperature: float = 0.0,
    seed: int = 0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Iterator[int]:
    """Yield at most `count` tokens that follow `prompt`, up to one of `stop`, which is not yielded.

    temperature: 0 takes the most probable token each time; what is larger draws from softmax(logits / temperature),
    the same tokens for the same `seed`.  top_k, top_p: draw from that many of the most probable tokens, or from the
    fewest whose probabilities come to `top_p`; the former is applied first.
    """
    generator = torch.Generator().manual_seed(seed)
    cache = Cache(network.config, len(prompt) + count)
    tokens = list(prompt)
    for _ in range(count):
        logits = network(torch.tensor(tokens), cache)
        token = _chosen(logits, temperature, generator, top_k, top_p)
        if token in stop:
            return
        yield token
        tokens = [token]


def _chosen(
    logits: Tensor, temperature: float, generator: torch.Generator, top_k: int | None, top_p: float | None
) -> int:
    if not bool(logits.isfinite().all()):
        raise HubError("the network gives numbers that are not finite: its weights are damaged, or of another network")
    if not temperature:
        return int(logits.argmax())
    if top_k is None and top_p is None:
        return int(torch.multinomial(torch.softmax(logits / temperature, 0), 1, generator=generator))
    logits, tokens = logits.topk(min(top_k or len(logits), len(logits)))
    shares = torch.softmax(logits / temperature, 0)
    if top_p is not None:
        shares = shares[: max(1, int((shares.cumsum(0) - shares < top_p).sum()))]  # up to the one that reaches top_p
    return int(tokens[torch.multinomial(shares, 1, generator=generator)])
