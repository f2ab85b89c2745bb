"""Weights without code: the file of a folder, and what config.json says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hubcli.errors import HubconfNotFoundError
from hubcli.reading import hubconf, model_files


def test_the_weights_of_a_folder_without_code(tmp_path: Path) -> None:
    assert model_files.in_folder(tmp_path) is None
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    assert model_files.in_folder(tmp_path) == index
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert model_files.in_folder(tmp_path) == tmp_path / "model.safetensors"
    with pytest.raises(HubconfNotFoundError, match=r"no hubconf\.py") as raised:
        hubconf.read(tmp_path)
    assert "it has model.safetensors: `hub show` describes that" in str(raised.value.hint)
    (tmp_path / "hubconf.py").write_text("")
    assert model_files.in_folder(tmp_path) is None


@pytest.mark.parametrize(
    ("config", "architecture", "context"),
    [
        ({"model_type": "llama", "max_position_embeddings": 4096}, "llama", 4096),
        ({"model_type": "gpt2", "n_positions": 1024}, "gpt2", 1024),
        ({"model_type": 3, "max_position_embeddings": "many"}, None, None),
        ({"max_position_embeddings": True, "n_positions": -1}, None, None),
        ([1], None, None),
        (None, None, None),
    ],
)
def test_what_the_configuration_says(tmp_path: Path, config: object, architecture: str, context: int) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    found = model_files.facts(tmp_path / "model.safetensors")
    assert found == {"architecture": architecture, "context_length": context}


def test_a_configuration_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    for content in (b"\xff", b"[" * 100_000, b'{"model_type": "' + b"a" * (1 << 20) + b'"}'):
        (tmp_path / "config.json").write_bytes(content)
        assert model_files.facts(tmp_path / "x")["architecture"] is None
