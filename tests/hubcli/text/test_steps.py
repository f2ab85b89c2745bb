"""One token as one call of generated code, against the modules of the network."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import engine
from engine.backends.file_cache import Cache as FileCache
from engine.kernels import compiler, processor
from engine.ops.generated import launch
from engine.ops.generated.route import lanes
from engine.ops.products import packed
from hubcli.text import config, generation, steps, weights
from hubcli.text.network import Cache, Decoder
from tests.hubcli.text import models

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(autouse=True)
def fresh(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Generated code from the first call; what is compiled is shared by the tests of this run."""
    monkeypatch.setattr(compiler, "cache", FileCache(tmp_path_factory.getbasetemp().parent / "llvm"))
    monkeypatch.setattr(processor, "always", lambda: True)
    monkeypatch.setattr(launch.trials, "trusted", True)
    monkeypatch.setattr(packed, "_routes", {})
    yield


def network(kind: str, adjacent: bool = False) -> Decoder:
    """A network of the kind with heads of 16 elements, of which each vector has some, and weights drawn for it."""
    values = dict(models.CONFIGS[kind], max_position_embeddings=64, n_positions=64)
    values |= {"n_embd": 64} if kind == "gpt2" else {"hidden_size": 64, "intermediate_size": 88, "head_dim": 16}
    sizes = dataclasses.replace(config.of_json(values, "config.json"), adjacent=adjacent)
    with engine.device("meta"):
        shapes = {name: one.shape for name, one in Decoder(sizes, bias=kind in ("gpt2", "qwen2")).state_dict().items()}
    generator = np.random.default_rng(3)
    state = {}
    for name, shape in shapes.items():
        value = generator.standard_normal(shape, np.float32) * np.float32(0.3)
        norm = "norm" in name and name.endswith("weight")
        theirs = next(old for old, new in weights._NAMES.items() if new == _module(name))
        number = [part for part in name.split(".") if part.isdigit()]
        theirs = theirs.replace("N", number[0], 1) if number else theirs
        state[f"{theirs}.{name.rpartition('.')[2]}"] = engine.tensor(value + 1 if norm else value)
    return weights.network(sizes, state, kind)


def _module(name: str) -> str:
    return ".".join("N" if part.isdigit() else part for part in name.split(".")[:-1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["llama", "linear", "qwen2", "qwen3", "gpt2", "adjacent"])
def test_it_gives_what_the_modules_give(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if 16 % lanes():
        pytest.skip(f"a vector has {lanes()} elements")
    made = network("llama" if kind == "adjacent" else kind, kind == "adjacent")
    before = engine.get_num_threads()
    engine.set_num_threads(threads)
    try:
        mine, plain = Cache(made.config, 48), Cache(made.config, 48)
        for cache in (mine, plain):
            made(engine.tensor([5, 9, 60]), cache)
        for token in (7, 7, 21, 3, 40, 0, 63) * 5:
            found = made(engine.tensor([token]), mine)
            assert mine.token is not None and not made.route.disabled
            want = made._logits(engine.tensor([token]), plain)
            plain.length += 1
            assert float((found - want).abs().max()) <= 2e-5 * float(want.abs().max())
        filled = slice(0, mine.length)
        for one, other in ((mine.keys, plain.keys), (mine.values, plain.values)):
            assert engine.allclose(one[:, :, filled], other[:, :, filled], rtol=1e-4, atol=1e-4)
    finally:
        engine.set_num_threads(before)


def test_logits_stay_what_they_were() -> None:
    made = network("llama")
    cache = Cache(made.config, 8)
    first = made(engine.tensor([1]), cache)
    held = copy.deepcopy(first)
    made(engine.tensor([2]), cache)
    assert engine.equal(first, held)


def test_the_text_is_the_same_without_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    made = network("qwen3")
    found = list(generation.generate(made, [4, 8], 30))
    monkeypatch.setattr(processor, "available", lambda: False)
    assert found == list(generation.generate(made, [4, 8], 30))


def test_a_program_that_computes_something_else_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    made = network("gpt2")
    made.route.proven = False
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(steps.Token, "__call__", lambda self, token, position: np.ones(models.VOCABULARY, np.float32))
    with pytest.warns(RuntimeWarning, match="a token of a language model"):
        found = made(engine.tensor([5]), Cache(made.config, 4))
    assert made.route.disabled
    assert engine.equal(found, made._logits(engine.tensor([5]), Cache(made.config, 4)))


def test_heads_that_no_vector_fills_are_left_to_the_modules() -> None:
    sizes = config.of_json(models.CONFIGS["gpt2"], "config.json")  # heads of 6 elements
    made = weights.network(sizes, models.state("gpt2", engine), "gpt2")
    cache = Cache(sizes, 4)
    made(engine.tensor([5]), cache)
    assert cache.token is None and made.route.disabled


def test_a_full_cache_is_refused_before_anything_is_written() -> None:
    made = network("llama")
    cache = Cache(made.config, 3)
    for token in (1, 2, 3):
        made(engine.tensor([token]), cache)
    keys = cache.keys.clone()
    with pytest.raises(ValueError, match="room for 3 tokens: 3 are in it, and 1 more do not fit"):
        made(engine.tensor([4]), cache)
    assert cache.length == 3 and engine.equal(cache.keys, keys)
    with pytest.raises(ValueError, match="room for 3 tokens"):
        made(engine.tensor([1, 2, 3, 4]), Cache(made.config, 3))
