"""Weights that are published without code: which file of a folder they are, and what config.json beside them says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_CONTEXT = ("max_position_embeddings", "n_positions")
_LARGEST = 1 << 20  # bytes of config.json


def in_folder(folder: Path) -> Path | None:
    """Return the weights of a folder that is no repository for hub; None where there are none, or a hubconf.py."""
    if (folder / "hubconf.py").exists():
        return None
    return next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)


def facts(weights: Path) -> dict[str, Any]:
    """Return `architecture` and `context_length` as config.json beside the weights says, None where it does not."""
    values = _values(weights.with_name("config.json"))
    architecture = values.get("model_type")
    lengths = [values[name] for name in _CONTEXT if type(values.get(name)) is int]
    return {
        "architecture": architecture if isinstance(architecture, str) else None,
        "context_length": lengths[0] if lengths and lengths[0] >= 0 else None,
    }


def _values(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            found = json.loads(opened.read(_LARGEST + 1))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
