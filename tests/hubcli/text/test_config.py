"""The sizes that files say, and what is wrong with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hubcli.errors import HubError, IntegrityError
from hubcli.text import config
from tests.hubcli.text import models

GGUF = {
    "general.architecture": "qwen3",
    "qwen3.block_count": 2,
    "qwen3.context_length": 32,
    "qwen3.embedding_length": 24,
    "qwen3.feed_forward_length": 40,
    "qwen3.attention.head_count": 4,
    "qwen3.attention.head_count_kv": 2,
    "qwen3.attention.key_length": 8,
    "qwen3.attention.layer_norm_rms_epsilon": 1e-5,
    "qwen3.rope.freq_base": 500.0,
}


def test_a_gguf_file_and_a_config_json_say_the_same() -> None:
    assert config.of_gguf(GGUF, 64, "w.gguf") == config.of_json(models.CONFIGS["qwen3"], "config.json")


def test_what_has_a_default_may_be_missing() -> None:
    few = {
        name: value for name, value in GGUF.items() if not name.endswith(("head_count_kv", "key_length", "freq_base"))
    }
    found = config.of_gguf(few, 64, "")
    assert (found.key_heads, found.head_size, found.rotary_base, found.frequencies) == (4, 6, 10000.0, ())


def test_positions_that_are_scaled_by_one_factor() -> None:
    scaled = {**GGUF, "qwen3.rope.scaling.type": "linear", "qwen3.rope.scaling.factor": 2.0}
    assert config.of_gguf(scaled, 64, "").frequencies == (2.0,) * 4


def test_a_window_bounds_the_context() -> None:
    assert config.of_json(models.CONFIGS["mistral"], "").context == 16
    assert (
        config.of_json({**models.CONFIGS["qwen2"], "sliding_window": 8, "use_sliding_window": False}, "").context == 32
    )


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"general.architecture": "mamba"}, HubError, "w has the architecture 'mamba', which hub has no network for"),
        ({"general.architecture": None}, HubError, "the architecture 'None'"),
        ({"qwen3.expert_count": 8}, HubError, "w is a mixture of experts"),
        ({"qwen3.rope.scaling.type": "yarn"}, HubError, "scales its positions by 'yarn'"),
        ({"qwen3.block_count": None}, IntegrityError, "w: qwen3.block_count is missing"),
        ({"qwen3.block_count": 0}, IntegrityError, "qwen3.block_count is '0', where a positive whole number"),
        ({"qwen3.block_count": True}, IntegrityError, "qwen3.block_count is 'True'"),
        ({"qwen3.context_length": 1 << 40}, IntegrityError, "qwen3.context_length is '1099511627776'"),
        (
            {"qwen3.attention.key_length": None, "qwen3.attention.head_count": 5},
            IntegrityError,
            "24 elements cannot be",
        ),
        ({"qwen3.rope.freq_base": -1.0}, IntegrityError, "qwen3.rope.freq_base is '-1.0', where a positive number"),
        ({"qwen3.rope.freq_base": float("nan")}, IntegrityError, "qwen3.rope.freq_base is 'nan'"),
    ],
)
def test_metadata_that_cannot_be_are_named(changes: dict[str, Any], error: type[HubError], words: str) -> None:
    metadata = {name: value for name, value in {**GGUF, **changes}.items() if value is not None}
    with pytest.raises(error, match=words):
        config.of_gguf(metadata, 64, "w")


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("llama", {"hidden_act": "gelu"}, "the activation 'gelu', not silu"),
        ("gpt2", {"activation_function": "relu"}, "the activation 'relu', not gelu_new"),
        ("gpt2", {"n_embd": 25}, "25 elements cannot be shared by 4 heads"),
        ("llama", {"rope_scaling": {"rope_type": "yarn"}}, "scales its positions by 'yarn'"),
        ("llama3", {"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling: factor is missing"),
    ],
)
def test_a_config_json_that_cannot_be_is_named(kind: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HubError, match=words):
        config.of_json({**models.CONFIGS[kind], **changes}, "config.json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"qwen3.attention.head_count_kv": 3}, "w: 4 heads cannot share 3 of keys and values"),
        ({"qwen3.rope.dimension_count": 1 << 24}, "w: 16777216 elements of a head of 8 are no pairs to rotate"),
        ({"qwen3.attention.key_length": 7}, "w: 7 elements of a head of 7 are no pairs"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(IntegrityError, match=words):
        config.of_gguf({**GGUF, **changes}, 64, "w").check("w")


def test_factors_that_are_not_one_per_pair_are_named() -> None:
    sizes = config.of_gguf(GGUF, 64, "w")
    assert sizes.check("w") is sizes
    with pytest.raises(IntegrityError, match="w: 1 factors for 4 pairs"):
        dataclasses.replace(sizes, frequencies=(2.0,)).check("w")
