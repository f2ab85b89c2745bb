"""Weights under the network's names, and what is wrong with them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import engine
from engine.ops.products.packed import PackedMatrix
from engine.serialization.gguf import GgufTensor
from engine.serialization.gguf_blocks import TYPES
from hubcli.errors import HubError, IntegrityError
from hubcli.text import config, weights
from tests.hubcli.text import models


def test_weights_that_are_not_there_are_named() -> None:
    tensors = models.state("llama", engine)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["other.weight"] = engine.zeros(1)
    with pytest.raises(IntegrityError, match=r"w\.gguf does not hold a llama network: .*layers\.1\.feed\.up\.weight"):
        weights.network(config.of_json(models.CONFIGS["llama"], ""), tensors, "w.gguf")


def test_sizes_that_do_not_fit_are_named() -> None:
    tensors = models.state("llama", engine)
    tensors["model.norm.weight"] = engine.zeros(3)
    with pytest.raises(IntegrityError, match=r"size mismatch for norm\.weight"):
        weights.network(config.of_json(models.CONFIGS["llama"], ""), tensors, "w.gguf")


def test_more_weights_than_memory_are_refused() -> None:
    weights.require_memory(1, 1, "w.gguf")
    if weights._free_memory() is not None:  # elsewhere the system itself says no
        with pytest.raises(HubError, match=r"w\.gguf has 1,000 weights, 4(\.0+)? TB in memory, and .* of it are free"):
            weights.require_memory(4 * 10**12, 1000, "w.gguf")


def test_factors_of_frequencies_come_from_the_file() -> None:
    assert weights.divisors({}) == ()
    assert weights.divisors({"rope_freqs.weight": engine.tensor([1.0, 8.0])}) == (1.0, 8.0)


def test_layers_that_are_said_and_not_there_are_not_made() -> None:
    sizes = dataclasses.replace(config.of_json(models.CONFIGS["llama"], ""), layers=1 << 24)
    with pytest.raises(IntegrityError, match=r"w\.gguf says that it has 16777216 layers, and holds weights of 2"):
        weights.network(sizes, models.state("llama", engine), "w.gguf")


@pytest.mark.parametrize("name", ["Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_other_types_of_gguf_are_repacked_exactly(name: str) -> None:
    kind = TYPES[name]
    raw = np.random.default_rng(1).integers(0, 256, (512 * 3 // kind.values, kind.bytes), np.uint8)
    for field in ("d", "dmin", "m"):
        if field in kind.layout.names:
            raw.view(kind.layout)[field] = np.float16(0.03)
    tensor = GgufTensor("w", (3, 512), name, raw.reshape(-1))
    found = weights.of_gguf(tensor)
    assert isinstance(found, PackedMatrix) and found.nbytes <= weights.bytes_of(tensor) < 4 * 3 * 512
    assert np.array_equal(found.widened(), tensor.array())
    assert np.array_equal(found.rows([2, 0]), tensor.array()[[2, 0]])
