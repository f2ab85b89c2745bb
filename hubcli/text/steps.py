"""One token through a network as one call of generated code (the extra `jit`): no Python between its kernels.

Each layer is seven stages, whose jobs the threads share: norm, products of queries, keys and values, attention head by
head, product, norm, products, activation, product (`engine/kernels/{products,decoding,program}.py`).  The first logits
of a network are compared with those of its modules, which serve where they differ or where there is no such code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Tensor
from engine.backends.cpu import threads
from engine.kernels import decoding
from engine.kernels.program import Program, Stage, Step
from engine.ops.generated.launch import Entry
from engine.ops.generated.route import GeneratedRoute, address, finite, lanes, linked
from engine.ops.products import packed

if TYPE_CHECKING:
    from hubcli.text.network import Cache, Decoder, Layer

__all__ = ["Token", "logits", "route"]

_ACTIVATED = 2048  # elements of an activation that are a job
_POSITIONS = (10, 15, 20)  # in the arguments of a layer's attention: position, positions in all, position


class Token:
    """The program of one token for a network and a cache.  LookupError where a kernel is not there for it."""

    def __init__(self, network: Decoder, cache: Cache) -> None:
        config = network.config
        if config.head_size % lanes():
            raise LookupError(config.head_size)
        self.network, self.config = network, config
        self.keys, self.values, *self.rotations = (
            one.numpy() for one in (cache.keys, cache.values, cache.cosines, cache.sines)
        )
        made = _zeros
        heads, shared = config.heads * config.head_size, config.key_heads * config.head_size
        self.x, self.normed = made(config.width), made(config.width)
        self.query, self.key, self.fresh, self.mixed = made(heads), made(shared), made(shared), made(heads)
        self.scores, self.sums = made(config.heads, cache.keys.shape[2]), made(config.heads)
        self.gate, self.up = made(config.hidden), made(config.hidden)
        self.logits = made(config.vocabulary)
        self.places = np.zeros((config.layers, 22), np.int64)
        stages: list[Stage] = []
        for number, layer in enumerate(network.layers):
            stages += self._layer(layer, number)
        stages += [
            self._norm(network.norm),
            _stage(packed.steps(self.normed, network.head.matrix, self.logits)),
        ]
        self.program = Program(stages, threads.get_num_threads())

    def __call__(self, token: int, position: int) -> np.ndarray:
        """Return the logits behind one more token, whose keys and values are in the cache then."""
        self.x[:] = self.network.embedding.matrix.rows([token])[0]
        if self.network.positions is not None:
            self.x += _array(self.network.positions.weight)[position]
        first, all_, last = _POSITIONS
        self.places[:, first] = self.places[:, last] = position
        self.places[:, all_] = position + 1
        self.program()
        return self.logits.copy()

    def _layer(self, layer: Layer, number: int) -> list[Stage]:
        attention, feed = layer.attention, layer.feed
        matrices = ((attention.query, self.query), (attention.key, self.key), (attention.value, self.fresh))
        inner = [(feed.up, self.up)] if feed.gate is None else [(feed.gate, self.gate), (feed.up, self.up)]
        return [
            self._norm(layer.attention_norm),
            _stage([step for one, out in matrices for step in packed.steps(self.normed, one.matrix, out, _bias(one))]),
            self._attention(layer, number),
            _stage(packed.steps(self.mixed, attention.output.matrix, self.x, _bias(attention.output), True)),
            self._norm(layer.feed_norm),
            _stage([step for one, out in inner for step in packed.steps(self.normed, one.matrix, out, _bias(one))]),
            self._activation(),
            _stage(packed.steps(self.up, feed.down.matrix, self.x, _bias(feed.down), True)),
        ]

    def _norm(self, norm: Any) -> Stage:
        bias = _bias(norm)
        code = _code(decoding.norm, self.config.is_gpt2, bias is not None, self.config.eps)
        weight = _array(norm.weight)
        args = _arguments(self.x, weight, weight if bias is None else bias, self.normed, self.config.width)
        return _stage([(code, args, 0, 1)])

    def _activation(self) -> Stage:
        code, args = _code(decoding.activation, not self.config.is_gpt2), _arguments(self.gate, self.up, 0)
        ends = range(0, self.config.hidden, _ACTIVATED)
        return _stage([(code, args, at, min(at + _ACTIVATED, self.config.hidden)) for at in ends])

    def _attention(self, layer: Layer, number: int) -> Stage:
        config, own = self.config, layer.attention
        size, capacity, group = config.head_size, self.keys.shape[2], config.heads // config.key_heads
        keys, values = self.keys[number], self.values[number]
        norms = [self.x if one is None else _array(one.weight) for one in (own.query_norm, own.key_norm)]
        place = self.places[number]
        place[:12] = _arguments(
            *(self.query, self.key, self.fresh, keys, values, *self.rotations, *norms, self.scores, 0, capacity)
        )
        place[12:16] = _arguments(self.scores, self.sums, capacity, 0)
        place[16:] = _arguments(self.scores, self.sums, values, self.mixed, 0, capacity)
        eps = config.eps if config.normalized_heads else None
        first = _code(decoding.scores, lanes(), size, group, config.rotary // 2, config.adjacent, eps)
        second, third = _code(decoding.exponentials), _code(decoding.mixed, lanes(), size, group)
        return [
            [
                [
                    (first, place[:12], head, head + 1),
                    (second, place[12:16], head * group, head * group + group),
                    (third, place[16:], head, head + 1),
                ]
                for head in range(config.key_heads)
            ]
        ]


def route(network: Decoder) -> GeneratedRoute:
    """Return the route of a network's tokens, not proven yet."""
    code = _code(decoding.norm, network.config.is_gpt2, network.config.is_gpt2, network.config.eps)
    return GeneratedRoute("a token of a language model", Entry(), 0, code)


def logits(network: Decoder, token: int, cache: Cache, plain: Callable[[], Tensor]) -> np.ndarray | None:
    """Return the logits behind one more token of the cache, None where its modules (`plain`) are to compute them."""
    found = network.route
    if found.disabled or not packed.generated() or not (found.proven or found.ready(paid=True)):
        return None
    want = None if found.proven else plain().numpy()  # before there is a program: its products are proven then
    if cache.token is None:
        try:
            cache.token = Token(network, cache)
        except LookupError:
            found.disabled = True
            return want
    step = functools.partial(cache.token, token, cache.length)
    if want is None:
        return step()
    if finite(want):
        found.decide(step(), want, step, plain, (want,))
    return want


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _stage(steps: Sequence[Step]) -> Stage:
    return [[[step] for step in steps]]


def _code(write: Callable[..., str], *options: Any) -> Callable[[], Any]:
    return lambda: linked(write, *options)


def _arguments(*given: np.ndarray | int) -> np.ndarray:
    """Return addresses and numbers as a kernel takes them; the arrays must live as long."""
    return np.array([one if isinstance(one, int) else address(one) for one in given], np.int64)


def _array(weight: Tensor) -> np.ndarray:
    return weight.detach().numpy()


def _bias(module: Any) -> np.ndarray | None:
    bias = getattr(module, "bias", None)
    return None if bias is None else _array(bias)
