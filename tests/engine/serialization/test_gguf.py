"""GGUF files: what is written is read; damaged and hostile ones are refused by a sentence that names the fault."""

from __future__ import annotations

import io
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.serialization import UnpicklingError
from engine.serialization.errors import Limits
from engine.serialization.gguf import GgufFile, open_gguf, write_gguf
from engine.serialization.gguf_blocks import TYPES

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def string(text: str | bytes, length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(name: str | bytes = "w", dims: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(
    keys: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: bytes = bytes(32),
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A file made by hand; `counts` are what it declares of its tensors and keys."""
    keys, tensors = keys or [], [tensor()] if tensors is None else tensors
    found = counts or (len(tensors), len(keys))
    head = b"GGUF" + struct.pack("<IQQ", version, *found) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def read(content: bytes, limits: Limits = Limits()) -> GgufFile:
    return open_gguf(io.BytesIO(content), limits=limits)


# -- sound files -----------------------------------------------------------------------------------------


def test_metadata_of_every_type() -> None:
    numbers = {U8: ("B", 200), I8: ("b", -3), U16: ("<H", 60000), I16: ("<h", -300), U32: ("<I", 1 << 31),
               I32: ("<i", -5), F32: ("<f", 0.5), BOOL: ("?", True), U64: ("<Q", 1 << 63), I64: ("<q", -1 << 40),
               F64: ("<d", 0.1)}  # fmt: skip
    keys = [key(f"n.{kind}", kind, struct.pack(form, value)) for kind, (form, value) in numbers.items()]
    keys += [
        key(f"a.{kind}", ARRAY, array(kind, 3, 3 * struct.pack(form, value))) for kind, (form, value) in numbers.items()
    ]
    keys += [key("text", STRING, string("Grüße")), key("empty", ARRAY, array(STRING, 0))]
    keys.append(key("tokens", ARRAY, array(STRING, 3, string("a") + string("") + string(b"\xe4"))))
    keys.append(key("pairs", ARRAY, array(ARRAY, 2, array(U8, 2, b"\1\2") + array(STRING, 1, string("x")))))
    expected = {f"n.{kind}": value for kind, (_, value) in numbers.items()}
    expected |= {f"a.{kind}": [value] * 3 for kind, (_, value) in numbers.items()}
    expected |= {"text": "Grüße", "empty": [], "tokens": ["a", "", b"\xe4"], "pairs": [[1, 2], ["x"]]}
    found = read(gguf(keys)).metadata
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in expected.items()}


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_made_by_hand(version: int) -> None:
    values = np.arange(6, dtype="<f4")
    found = read(gguf(tensors=[tensor("w", (3, 2))], data=values.tobytes(), version=version))
    assert found.version == version
    one = found.tensors["w"]
    assert (one.name, one.shape, one.type, one.data.nbytes, one.data.dtype) == ("w", (2, 3), "F32", 24, np.uint8)
    np.testing.assert_array_equal(one.array(), values.reshape(2, 3))


METADATA = {
    "general.architecture": "gpt2",
    "gpt2.context_length": 1024,
    "gpt2.epsilon": 0.5,
    "flag": False,
    "negative": -2,
    "large": 1 << 40,
    "small": -1 << 40,
    "tokens": ["a", "ü", b"\xff"],
    "scores": [0.5, 1.0],
    "ids": [1, 2, -3],
    "flags": [True, False],
    "none": [],
    "nested": [[1], [2, 3]],
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 64)).astype(np.float32)
    dense: dict[str, Any] = {
        "f32": x,
        "f16": x.astype(np.float16),
        "bf16": x.astype(ml_dtypes.bfloat16),
        "f64": x.astype(np.float64),
        "i8": np.arange(-3, 3, dtype=np.int8),
        "i16": np.arange(-3, 3, dtype=np.int16),
        "i32": np.arange(-3, 3, dtype=np.int32),
        "i64": np.arange(-3, 3),
        "scalar": np.array(2, np.float32),
        "empty": np.zeros((0, 3), np.float32),
        "strided": x.T,
    }
    others = {"as bf16": (x, "BF16"), "q8": (x, "Q8_0"), "q4": (x, "Q4_0")}
    path = tmp_path / "a.gguf"
    assert write_gguf(path, METADATA, dense | others) == path.stat().st_size
    found = open_gguf(path)
    assert found.metadata == METADATA
    assert list(found.tensors) == [*dense, *others]
    for name, value in dense.items():
        np.testing.assert_array_equal(found.tensors[name].array(None), value, strict=True)
        np.testing.assert_array_equal(found.tensors[name].array(), value.astype(np.float32), strict=True)
    np.testing.assert_array_equal(found.tensors["as bf16"].array(None), dense["bf16"], strict=True)
    scale = np.abs(x.reshape(5, 2, 32)).max(axis=-1, keepdims=True)
    for name, levels in (("q8", 127), ("q4", 8)):
        one = found.tensors[name]
        assert one.dtype == "float32"
        assert one.array(None).dtype == np.float32
        error = np.abs(one.array() - x).reshape(5, 2, 32)
        assert (error <= 1.01 * scale / levels).all()
    again = io.BytesIO()
    write_gguf(again, found.metadata, found.tensors)
    assert again.getvalue() == path.read_bytes()


def test_dense_values_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    write_gguf(path, {}, {"a": np.ones((4, 4), np.float32), "b": np.ones(4, np.float16)})
    before = path.read_bytes()
    found = open_gguf(path, mmap=True).tensors
    for one in found.values():
        assert np.shares_memory(one.array(None), one.data)
        one.array(None)[:] = 7  # of this process alone
    assert path.read_bytes() == before
    assert found["b"].array().base is None or not np.shares_memory(found["b"].array(), found["b"].data)


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignments(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "a.gguf"
    x = np.arange(5, dtype=np.float64)
    write_gguf(path, {"general.alignment": alignment, "odd": "x"}, {"i": np.ones(3, np.int8), "x": x})
    for mmap in (True, False):
        values = open_gguf(path, mmap=mmap).tensors["x"].array(None)
        assert values.flags.aligned
        np.testing.assert_array_equal(values, x)


def test_the_last_padding_may_be_missing() -> None:
    assert read(gguf(tensors=[tensor(dims=(3,))], data=bytes(12))).tensors["w"].shape == (3,)
    assert read(gguf(tensors=[tensor(dims=(3,))], data=bytes(32))).tensors["w"].shape == (3,)
    assert read(gguf(tensors=[], data=b"")[:24]).tensors == {}


def test_a_file_that_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    write_gguf(path, {}, {"a": np.ones(4, np.float32)})
    with path.open("rb") as f:
        found = open_gguf(f)
    path.unlink()
    assert found.tensors["a"].array().sum() == 4


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_type_is_named(name: str) -> None:
    kind = TYPES[name]
    found = read(gguf(tensors=[tensor(dims=(kind.values, 2), kind=kind.code)], data=bytes(2 * kind.bytes)))
    one = found.tensors["w"]
    assert (one.type, one.shape, one.data.nbytes) == (name, (2, kind.values), 2 * kind.bytes)
    if kind.dense or kind.groups:
        assert not one.array().any()
        return
    with pytest.raises(UnpicklingError, match=f"the tensor w has the type {name}, which is not supported"):
        one.array()


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_is_that_of_the_result(name: str, dtype: str) -> None:
    kind, values = TYPES[name], 1 << 22
    content = gguf(
        tensors=[tensor(dims=(1 << 12, 1 << 10), kind=kind.code)], data=bytes(values // kind.values * kind.bytes)
    )
    one = read(content).tensors["w"]
    tracemalloc.start()
    try:
        result = one.array(dtype)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.shape == (1 << 10, 1 << 12)
    assert peak < result.nbytes + (3 << 20)


# -- refused files ---------------------------------------------------------------------------------------

HUGE = 1 << 63
REFUSED = {
    "no magic": (b"GGML" + bytes(60), "the file is no GGUF file"),
    "version 1": (gguf(version=1), "the version 1, which is not supported"),
    "version 4": (gguf(version=4), "the version 4, which is not supported"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian, which is not supported"),
    "only the magic": (b"GGUF", "truncated inside its version"),
    "no counts": (b"GGUF" + struct.pack("<I", 3), "truncated inside its count of tensors"),
    "half the counts": (b"GGUF" + struct.pack("<IQ", 3, 0), "truncated inside its count of keys"),
    "more tensors": (gguf(counts=(HUGE, 0)), f"declares {HUGE} tensors, which it has no room for"),
    "more keys": (gguf(counts=(0, HUGE)), f"declares {HUGE} keys, which it has no room for"),
    "key twice": (gguf([key("a", U8, b"\1"), key("a", U8, b"\1")]), "has the key a twice"),
    "key not UTF-8": (gguf([key(b"a\xff", U8, b"\1")]), r"the text of the key number 0 is not UTF-8: b'a\\xff'"),
    "long key": (gguf([key("a" * 1025, U8, b"\1")]), "the key number 0 has a name of 1025 bytes, more than 1024"),
    "huge key": (gguf([string("a", HUGE)], data=bytes(99)), "truncated inside the key number 0"),
    "unknown type": (gguf([key("a", 13, b"\1")]), "the key a has the unknown type 13"),
    "bool of 2": (gguf([key("a", BOOL, b"\2")]), "the key a is a bool of the value 2"),
    "bools of 2": (gguf([key("a", ARRAY, array(BOOL, 3, b"\0\1\2"))]), "the key a is a bool of the value 2"),
    "text not UTF-8": (gguf([key("a", STRING, string(b"\xc3"))]), "the text of the key a is not UTF-8"),
    "huge text": (gguf([key("a", STRING, string("b", HUGE))]), "truncated inside the key a"),
    "array of nothing": (gguf([key("a", ARRAY, array(13, 1))]), "the key a is an array of the unknown type 13"),
    "huge array": (gguf([key("a", ARRAY, array(U8, HUGE))]), f"an array of {HUGE} values, which the file has no"),
    "huge strings": (gguf([key("a", ARRAY, array(STRING, HUGE))]), f"the key a is an array of {HUGE} values"),
    "huge string of many": (
        gguf([key("a", ARRAY, array(STRING, 2, string("b") + string("b", HUGE)))]), "truncated inside the key a",
    ),
    "huge array of arrays": (gguf([key("a", ARRAY, array(ARRAY, HUGE))]), f"the key a is an array of {HUGE} values"),
    "nested": (
        gguf([key("a", ARRAY, array(ARRAY, 1) * 4 + array(U8, 0))]), "the key a has arrays nested more than 4 deep",
    ),
    "alignment 0": (gguf([key("general.alignment", U32, bytes(4))]), "general.alignment is 0, not a power of two"),
    "alignment 24": (gguf([key("general.alignment", U32, b"\x18\0\0\0")]), "general.alignment is 24, not a power"),
    "alignment of text": (gguf([key("general.alignment", STRING, string("8"))]), "general.alignment is 8, not a power"),
    "alignment true": (gguf([key("general.alignment", BOOL, b"\1")]), "general.alignment is True, not a power"),
    "alignment huge": (gguf([key("general.alignment", U64, struct.pack("<Q", HUGE))]), "the tensor w .*is truncated"),
    "tensor twice": (gguf(tensors=[tensor(), tensor(offset=32)], data=bytes(64)), "has the tensor w twice"),
    "tensor not UTF-8": (gguf(tensors=[tensor(b"\xff")]), "the text of the tensor number 0 is not UTF-8"),
    "long tensor": (gguf(tensors=[tensor("a" * 1025)]), "the tensor number 0 has a name of 1025 bytes"),
    "many dims": (gguf(tensors=[tensor(dims=(1,) * 65)]), "the tensor w has 65 dimensions, more than 64"),
    "dims beyond the file": (
        gguf(tensors=[string("w") + struct.pack("<I", 60)], data=bytes(60)), "truncated inside the tensor w",
    ),
    "huge dim": (gguf(tensors=[tensor(dims=(HUGE,))]), "the tensor w declares the absurd size"),
    "huge product": (gguf(tensors=[tensor(dims=(1 << 32, 1 << 32))]), "the tensor w declares the absurd size"),
    "huge and zero": (gguf(tensors=[tensor(dims=(0, HUGE))]), "the tensor w declares the absurd size"),
    "unknown tensor type": (gguf(tensors=[tensor(kind=4)]), "the tensor w has the unsupported type 4"),
    "part of a block": (
        gguf(tensors=[tensor(dims=(48, 2), kind=2)]), r"rows of 48 values, which blocks of 32 \(Q4_0\) do not fill",
    ),
    "quantized scalar": (gguf(tensors=[tensor(dims=(), kind=2)]), "rows of 1 values, which blocks of 32"),
    "misaligned": (gguf(tensors=[tensor(offset=4)], data=bytes(64)), "the offset 4, which is no multiple of 32"),
    "huge offset": (gguf(tensors=[tensor(offset=HUGE)]), "the tensor w follows a hole"),
    "hole": (gguf(tensors=[tensor(offset=32)], data=bytes(64)), "the tensor w follows a hole"),
    "overlap": (gguf(tensors=[tensor("a"), tensor("b")]), "the tensor b overlaps another"),
    "partial overlap": (
        gguf(tensors=[tensor("a", (16,)), tensor("b", (8,), 0, 32)], data=bytes(64)), "the tensor b overlaps another",
    ),
    "truncated data": (
        gguf(tensors=[tensor(dims=(9,))]), r"the tensor w of shape \(9,\), type F32 is truncated",
    ),
    "no data": (gguf(data=b"")[:50], "truncated"),
    "bytes behind": (gguf(data=bytes(65)), "33 bytes behind its last tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    content, message = REFUSED[case]
    with pytest.raises(UnpicklingError, match=message):
        read(content)


SOUND = gguf(
    [key("general.name", STRING, string("m")), key("t", ARRAY, array(STRING, 2, string("a") + string("bc")))]
    + [key("n", ARRAY, array(ARRAY, 1, array(F32, 2, bytes(8)))), key("b", BOOL, b"\1")],
    [tensor("a", (4, 2)), tensor("b", (64,), 8, 32), tensor("c", (256,), 12, 128)],
    bytes(32) + bytes(68 + 28) + bytes(144),
)


def test_truncated_everywhere(tmp_path: Path) -> None:
    read(SOUND)
    for size in range(len(SOUND)):
        with pytest.raises(UnpicklingError):
            read(SOUND[:size])
    path = tmp_path / "short.gguf"
    path.write_bytes(SOUND[:-1])
    with pytest.raises(UnpicklingError, match=r"short\.gguf: the tensor c of shape .* is truncated"):
        open_gguf(path)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(header=64), "the GGUF header is larger than 64 bytes: it reaches the key number 1"),
        (Limits(header_values=3), "the GGUF header has more than 3 values"),
        (Limits(header_values=150), "the GGUF header has more than 150 values"),
        (Limits(line=4), "the key number 0 has a name of 12 bytes, more than 4"),
    ],
)
def test_limits(limits: Limits, message: str) -> None:
    with pytest.raises(UnpicklingError, match=message):
        read(SOUND, limits)


def test_counts_are_checked_before_memory_is_taken() -> None:
    """Arrays that the file has room for, but of values that cost more than their bytes."""
    content = gguf([key("a", ARRAY, array(U8, 1 << 22, bytes(1 << 22)))])
    tracemalloc.start()
    try:
        with pytest.raises(UnpicklingError, match="more than 1000 values"):
            read(content, Limits(header_values=1000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(content)


def uses(content: bytes) -> None:
    """Read everything; UnpicklingError is the one error that a file may raise."""
    try:
        found = read(content)
        for one in found.tensors.values():
            one.array()
    except UnpicklingError:
        pass


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    content = bytearray(SOUND)
    for at, value in changes:
        content[at] = value
    uses(bytes(content))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_moved_bytes(data: st.DataObject) -> None:
    start, stop, at = sorted(data.draw(st.tuples(*[st.integers(0, len(SOUND))] * 3)))
    uses(data.draw(st.sampled_from([SOUND[:start] + SOUND[stop:], SOUND[:at] + SOUND[start:stop] + SOUND[at:]])))


# -- what cannot be written ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "tensors", "error", "message"),
    [
        ({"a": None}, {}, TypeError, "GGUF has no form for the metadata None"),
        ({"a": 1 + 2j}, {}, TypeError, "GGUF has no form for the metadata"),
        ({"a": ["x", 1]}, {}, TypeError, "an array of GGUF metadata has one type"),
        ({}, {"w": np.ones(3, np.complex64)}, TypeError, "the tensor 'w' has the type complex64, which GGUF lacks"),
        ({}, {"w": (np.ones(32), "Q9")}, TypeError, "the tensor 'w' has the type Q9, which GGUF lacks"),
        ({}, {"w": (np.ones(256, np.float32), "Q4_K")}, TypeError, "not as Q4_K"),
        ({}, {"w": (np.ones((32, 3)), "Q8_0")}, ValueError, "no rows of whole blocks of 32"),
        ({}, {"w": (np.ones(()), "Q8_0")}, ValueError, "no rows of whole blocks of 32"),
    ],
)
def test_not_written(metadata: dict, tensors: dict, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        write_gguf(tmp_path / "a.gguf", metadata, tensors)
    assert not list(tmp_path.glob("*.gguf*"))
