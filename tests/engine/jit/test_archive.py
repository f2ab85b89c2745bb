"""Archives that torch wrote (`make_archives.py`) load, run and give torch's numbers."""

from __future__ import annotations

import copy
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import jit, nn
from engine.serialization import UnpicklingError

FOLDER = Path(__file__).parent / "archives"
VERSIONS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


@cache
def table(version: str) -> dict[str, Any]:
    return json.loads((FOLDER / version / "cases.json").read_text())


CASES = [(version, name) for version in VERSIONS for name in table(version)]


def rebuilt(form: Any, arrays: Any) -> Any:
    """A stored value: arrays become tensors."""
    ((kind, inside),) = form.items()
    if kind == "array":
        return engine.from_numpy(np.array(arrays[inside]))
    if kind == "dict":
        return {key: rebuilt(value, arrays) for key, value in inside}
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(rebuilt(value, arrays) for value in inside)
    return inside


def assert_equal(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    if isinstance(expected, engine.Tensor):
        assert isinstance(found, engine.Tensor)
        assert (found.dtype, tuple(found.shape)) == (expected.dtype, tuple(expected.shape))
        if expected.dtype == engine.float16:
            tolerance = 2e-3
        np.testing.assert_allclose(found.detach().numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_equal(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert_equal(a, b)
    elif isinstance(expected, float):
        assert type(found) is float
        assert found == pytest.approx(expected, rel=1e-6)
    else:
        assert type(found) is type(expected)
        assert found == expected


@pytest.mark.parametrize(("version", "name"), CASES)
def test_numbers_of_torch(version: str, name: str) -> None:
    case = table(version)[name]
    module = jit.load(str(FOLDER / version / f"{name}.pt"))
    assert list(module.state_dict()) == case["state"]
    with np.load(FOLDER / version / f"{name}.npz") as arrays:
        for call in case["calls"]:
            inputs = [rebuilt(form, arrays) for form in call["inputs"]]
            assert_equal(module(*inputs), rebuilt(call["output"], arrays))
