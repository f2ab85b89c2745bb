"""Values of the quantized types of GGUF, against numbers that llama.cpp's own package computed (`gguf_numbers.py`)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine.serialization.gguf_blocks import TYPES, dequantized, group_values, grouped, quantized

from .gguf_numbers import RECORD
from .gguf_numbers import TYPES as RECORDED

NUMBERS = json.loads(RECORD.read_text())
FLOAT32 = np.dtype(np.float32)


def blocks(name: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(NUMBERS[name]["blocks"]), np.uint8)


def test_all_types_that_are_read_have_numbers() -> None:
    assert {one.name for one in TYPES.values() if one.groups} == set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_values(name: str) -> None:
    """Bit for bit: the same operations in the same order."""
    found = dequantized(TYPES[name], blocks(name), FLOAT32)
    np.testing.assert_array_equal(found, np.array(NUMBERS[name]["values"], np.float32), strict=True)


@pytest.mark.parametrize("name", RECORDED)
def test_groups_have_the_same_values(name: str) -> None:
    kind, raw = TYPES[name], np.tile(blocks(name), 700)
    size, data = grouped(kind, raw)
    assert size == (16 if name in ("Q2_K", "Q3_K", "Q6_K") else 32)
    np.testing.assert_array_equal(group_values(size, data), dequantized(kind, raw, FLOAT32), strict=True)
    assert grouped(kind, raw[:0])[1].size == 0


@pytest.mark.parametrize("name", RECORDED)
def test_many_blocks_are_as_one(name: str) -> None:
    """More than fit into one step, and no multiple of it."""
    kind, raw = TYPES[name], blocks(name)
    once = dequantized(kind, raw, FLOAT32)
    times = (1 << 17) // once.size + 3
    many = dequantized(kind, np.tile(raw, times), FLOAT32)
    np.testing.assert_array_equal(many, np.tile(once, times))


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes_round_once(name: str, dtype: str) -> None:
    kind, raw = TYPES[name], np.tile(blocks(name), 700)
    found = dequantized(kind, raw, np.dtype(dtype))
    np.testing.assert_array_equal(found, dequantized(kind, raw, FLOAT32).astype(dtype), strict=True)


@pytest.mark.parametrize("name", RECORDED)
def test_blocks_at_any_address(name: str) -> None:
    raw = blocks(name)
    moved = np.frombuffer(b"\0" + raw.tobytes(), np.uint8)[1:]
    np.testing.assert_array_equal(dequantized(TYPES[name], moved, FLOAT32), dequantized(TYPES[name], raw, FLOAT32))


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.filterwarnings("error")
def test_scales_that_are_no_numbers(name: str) -> None:
    raw = np.full(TYPES[name].bytes, 0xFF, np.uint8)
    assert not np.isfinite(dequantized(TYPES[name], raw, FLOAT32)).any()
    assert not dequantized(TYPES[name], np.zeros_like(raw), FLOAT32).any()


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0"])
def test_quantization(name: str) -> None:
    row = NUMBERS[f"to {name}"]
    assert quantized(TYPES[name], np.array(row["values"], np.float32)).tobytes().hex() == row["blocks"]


def test_quantization_of_other_types() -> None:
    with pytest.raises(TypeError, match="not as Q4_K"):
        quantized(TYPES["Q4_K"], np.zeros(256, np.float32))
