"""Weights under the network's names, and what is wrong with them."""

from __future__ import annotations

import dataclasses

import pytest

import engine
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
