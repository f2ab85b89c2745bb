"""The protobuf bytes: what is written reads back; hostile bytes are refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine.onnx import errors, tensors
from engine.onnx.wire import DEPTH, FormatError, decode, encode


def data(message: str, value: dict) -> bytes:
    return b"".join(bytes(piece) for piece in encode(message, value))


MODEL = {
    "ir_version": 8,
    "producer_name": "é",
    "graph": {
        "node": [
            {
                "input": ["a", ""],
                "output": ["b"],
                "op_type": "X",
                "attribute": [
                    {"name": "f", "f": 0.5, "type": 1},
                    {"name": "i", "i": -3, "type": 2},
                    {"name": "n", "ints": [1, -1, 2**40, -(2**63)], "floats": [0.25, -1.0], "type": 7},
                ],
            }
        ],
        "initializer": [{"dims": [2], "data_type": 1, "raw_data": b"\0" * 8, "double_data": [1.5]}],
    },
    "opset_import": [{"domain": "", "version": 18}],
}


def test_what_is_written_reads_back() -> None:
    found = decode("ModelProto", data("ModelProto", MODEL))
    assert bytes(found["graph"]["initializer"][0].pop("raw_data")) == b"\0" * 8
    found["graph"]["initializer"][0]["raw_data"] = b"\0" * 8
    assert found == MODEL


def test_the_bytes_are_protobufs() -> None:
    assert data("OperatorSetIdProto", {"domain": "ab", "version": 300}) == b"\x0a\x02ab\x10\xac\x02"
    assert data("AttributeProto", {"name": "x", "f": 1.0, "ints": [1, 150]}) == (
        b"\x0a\x01x\x15\0\0\x80\x3f\x42\x03\x01\x96\x01"
    )
    unpacked = b"\x40\x01\x40\x96\x01"  # the older form of repeated numbers
    assert decode("AttributeProto", unpacked) == {"ints": [1, 150]}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x0a", "end within a number"),
        (b"\x3a\x05abc", "reaches beyond"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "reaches beyond"),
        (b"\x08" + b"\xff" * 11, "more than ten bytes"),
        (b"\x0b", "wire type 3"),
        (b"\x0f\x01", "wire type 7"),
        (b"\x00\x01", "field 0"),
        (b"\x38\x01", "wire type 0"),
        (b"\x12\x02\xff\xfe", "no UTF-8"),
        (b"\x3a\x07\x2a\x05\x22\x03abc", "do not fill"),
    ],
)
def test_broken_bytes_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        decode("ModelProto", raw)


def test_nesting_is_bounded() -> None:
    raw = b""
    for _ in range(DEPTH):
        attribute = b"\x32" + _length(raw)
        node = b"\x2a" + _length(attribute)
        raw = b"\x0a" + _length(node)
    with pytest.raises(FormatError, match="nested deeper"):
        decode("GraphProto", raw)


def _length(raw: bytes) -> bytes:
    n, made = len(raw), b""
    while n > 127:
        made, n = made + bytes([n & 127 | 128]), n >> 7
    return made + bytes([n]) + raw


def test_any_damage_is_refused_or_read() -> None:
    rng = random.Random(0)
    whole = data("ModelProto", MODEL)
    for _ in range(2000):
        broken = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            decode("ModelProto", bytes(broken[: rng.randint(1, len(broken))]))
        except FormatError:
            continue


# --- tensors


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool", "complex64"]
)
def test_arrays_read_back(dtype: str) -> None:
    array = (np.arange(6).reshape(2, 3) - 2).astype(dtype)
    for one in (array, array.T, array[:0], array[0, 0]):
        made = tensors.array_of(tensors.from_array("x", np.asarray(one)), None)
        assert made.dtype == one.dtype and made.shape == one.shape and (made == one).all()


def test_typed_fields() -> None:
    def read(**fields) -> list:
        return tensors.array_of(fields, None).tolist()

    assert read(dims=[2], data_type=1, float_data=[0.5, 2.0]) == [0.5, 2.0]
    assert read(dims=[2], data_type=7, int64_data=[-1, 5]) == [-1, 5]
    assert read(dims=[1], data_type=9, int32_data=[1]) == [True]
    assert read(dims=[1], data_type=10, int32_data=[15360]) == [1.0]
    assert read(dims=[1], data_type=13, uint64_data=[-1]) == [2**64 - 1]
    assert read(dims=[1], data_type=14, float_data=[1.0, 2.0]) == [1 + 2j]


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        ({"dims": [3], "data_type": 1, "raw_data": b"1234"}, "4 bytes, not 12"),
        ({"dims": [-1], "data_type": 1, "raw_data": b""}, "has the shape"),
        ({"dims": [2**62, 4], "data_type": 1, "raw_data": b""}, "0 bytes, not"),
        ({"dims": [1] * 65, "data_type": 1, "raw_data": b"1234"}, "has the shape"),
        ({"dims": [2], "data_type": 1, "float_data": [1.0]}, "1 elements"),
        ({"dims": [1], "data_type": 99, "raw_data": b""}, "element type 99"),
        ({"dims": [1], "data_type": 8, "string_data": [b"a"]}, "element type strings"),
        ({"dims": [1], "data_type": 10, "int32_data": [70000]}, "do not fit"),
    ],
)
def test_broken_tensors_are_refused(tensor: dict, why: str) -> None:
    with pytest.raises(errors.FormatError, match=why):
        tensors.array_of(tensor, None)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ({"location": "../secret"}, "not inside the model's folder"),
        ({"location": "/etc/passwd"}, "not inside the model's folder"),
        ({"location": "a/../../secret"}, "not inside the model's folder"),
        ({"location": "link"}, "not inside the model's folder"),
        ({"location": "C:\\x"}, "not inside the model's folder"),
        ({"location": ""}, "not inside the model's folder"),
        ({"location": "absent"}, "not inside the model's folder"),
        ({"location": "data", "offset": "1"}, "reaches beyond"),
        ({"location": "data", "offset": "-4"}, "reaches beyond"),
        ({"location": "data", "length": "9999999999"}, "reaches beyond"),
        ({"location": "data", "offset": "x"}, "has the offset"),
    ],
)
def test_data_files_outside_are_refused(where: dict, why: str, tmp_path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"12345678")
    (folder / "data").write_bytes(b"12345678")
    (folder / "link").symlink_to(tmp_path / "secret")
    tensor = {"dims": [2], "data_type": 1, "data_location": 1}
    tensor["external_data"] = [{"key": k, "value": v} for k, v in where.items()]
    with pytest.raises(FormatError, match=why):
        tensors.array_of(tensor, folder)
    with pytest.raises(FormatError, match="was not read from a folder"):
        tensors.array_of(tensor, None)


def test_numbers_of_dtypes() -> None:
    from engine.core import dtypes

    assert tensors.code_of(dtypes.float32) == 1 and tensors.dtype_of(16) is dtypes.bfloat16
    with pytest.raises(FormatError, match="element type int4"):
        tensors.dtype_of(22)
