"""The GGUF format of llama.cpp, versions 2 and 3: metadata, descriptions of tensors, aligned data, little endian.

    file        "GGUF", u32 version, u64 count of tensors, u64 count of keys, the keys, the tensors, padding, data
    key         string, u32 type, value; an array is u32 type, u64 count, values
    tensor      string, u32 count of dims, u64 each (the fastest first), u32 type, u64 offset from the begin of the data
    string      u64 count of bytes, UTF-8

The data begin at a multiple of `general.alignment` (32), as does each tensor in them.
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import DEFAULT_LIMITS, Limits, UnpicklingError, shown
from .gguf_blocks import TYPE_CODES, TYPES, ElementType, dequantized, quantized
from .records import MAX_DIMS, RawStorage, numpy_dtype
from .source import Source, naming

__all__ = ["MAGIC", "GgufFile", "GgufTensor", "LazyArray", "open_gguf", "read_gguf", "storage_of", "write_gguf"]

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32  # bytes, where `general.alignment` is absent
_NUMBERS = {  # code of a type of metadata -> its dtype
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_NESTING = 4  # arrays in arrays; llama.cpp writes none
_KEY_BYTES, _TENSOR_BYTES = 8 + 4 + 1, 8 + 4 + 4 + 8  # the least that one takes in the file
_COST = 16  # values of the header that a key, an array or a tensor counts for: it costs as much
_MAX_BYTES = 1 << 62


@dataclass(frozen=True, eq=False)
class GgufTensor:
    """A tensor of a GGUF file.

    shape: in torch's order, the fastest dim last.  type: as ggml names it (`F32`, `Q4_K`, ...).  data: the bytes,
    uint8 (nbytes,), shared with the file where it is mapped.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: np.ndarray

    @property
    def kind(self) -> ElementType:
        """The element type, with the size of its blocks."""
        return TYPES[self.type]

    @property
    def dtype(self) -> str:
        """The name of the dtype that holds the values: the file's own, or float32 for quantized ones."""
        return self.kind.dense or "float32"

    def check(self) -> None:
        """Raise UnpicklingError for a type whose values are not read (IQ2_XS and its like)."""
        if self.kind.dense is None and self.kind.groups is None:
            raise UnpicklingError(f"the tensor {shown(self.name)} has the type {self.type}, which is not supported")

    def array(self, dtype: str | None = "float32") -> np.ndarray:
        """The values, an array of `shape`; None stands for the tensor's own dtype.

        Shares the memory of `data` where no conversion is needed.  Quantized values are computed in float32, a few
        blocks at a time.  Raises UnpicklingError as `check` does.
        """
        self.check()
        kind, wanted = self.kind, numpy_dtype(dtype or self.dtype)
        if kind.dense is not None:
            found = self.data.view(numpy_dtype(kind.dense).newbyteorder("<")).reshape(self.shape)
            return found.astype(wanted, copy=not found.flags.aligned)
        return dequantized(kind, self.data, wanted).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class GgufFile:
    """The contents of a GGUF file; the tensors hold its mapping.

    metadata: by key, as Python's numbers, bools, strings and lists of them; an element of a list of strings that is
    not UTF-8 (a token may be any bytes) is bytes.
    """

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


class LazyArray:
    """The values of a tensor in its own dtype, computed when numpy asks for them and not retained.

    Raises UnpicklingError, when it is made, for a type whose values are not read.
    """

    def __init__(self, tensor: GgufTensor) -> None:
        tensor.check()
        self.tensor, self.shape, self.dtype = tensor, tensor.shape, numpy_dtype(tensor.dtype)
        self.nbytes = math.prod(tensor.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.tensor.array(None), dtype, copy=copy)


class _Header:
    """The part of a file before its data, read from front to back; no byte of it is trusted."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self.data, self.size, self.limits = source.data, source.size, limits
        self.at = self.values = 0

    def take(self, nbytes: int, what: str) -> int:
        """Return the offset of the next `nbytes` and go past them."""
        start = self.at
        if nbytes > self.size - start:
            raise UnpicklingError(f"the GGUF file is truncated inside {what}")
        if start + nbytes > self.limits.header:
            raise UnpicklingError(f"the GGUF header is larger than {self.limits.header} bytes: it reaches {what}")
        self.at += nbytes
        return start

    def count(self, values: int) -> None:
        """Add to the number of values that the header has; each costs many times its bytes."""
        self.values += values
        if self.values > self.limits.header_values:
            raise UnpicklingError(f"the GGUF header has more than {self.limits.header_values} values")

    def u32(self, what: str) -> int:
        return struct.unpack_from("<I", self.data, self.take(4, what))[0]

    def u64(self, what: str) -> int:
        return struct.unpack_from("<Q", self.data, self.take(8, what))[0]

    def raw(self, what: str) -> memoryview:
        """Return the bytes of a string."""
        length = self.u64(what)
        start = self.take(length, what)
        return self.data[start : start + length]

    def name(self, what: str) -> str:
        raw = self.raw(what)
        if len(raw) > self.limits.line:
            raise UnpicklingError(f"{what} has a name of {len(raw)} bytes, more than {self.limits.line}")
        return self.text(raw, what)

    def text(self, raw: memoryview, what: str) -> str:
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            raise UnpicklingError(f"the text of {what} is not UTF-8: {shown(bytes(raw[:32]))}") from None

    def value(self, code: int, what: str) -> Any:
        """Return a value of metadata of the type `code`."""
        if code == _STRING:
            return self.text(self.raw(what), what)
        if code == _ARRAY:
            return self.array(what, 1)
        if code not in _NUMBERS:
            raise UnpicklingError(f"{what} has the unknown type {code}")
        return self.numbers(code, 1, what)[0]

    def numbers(self, code: int, count: int, what: str) -> list[Any]:
        dtype = _NUMBERS[code]
        found = np.frombuffer(self.data, dtype, count, self.take(count * dtype.itemsize, what)) if count else ()
        if code == _BOOL and count and found.view(np.uint8).max() > 1:
            raise UnpicklingError(f"{what} is a bool of the value {found.view(np.uint8).max()}")
        return found.tolist() if count else []

    def array(self, what: str, depth: int) -> list[Any]:
        code, count = self.u32(what), self.u64(what)
        least = {_STRING: 8, _ARRAY: 12}.get(code) or (_NUMBERS[code].itemsize if code in _NUMBERS else 0)
        if not least:
            raise UnpicklingError(f"{what} is an array of the unknown type {code}")
        if count > (self.size - self.at) // least:
            raise UnpicklingError(f"{what} is an array of {count} values, which the file has no room for")
        self.count(count + _COST)
        if code == _STRING:
            return self.strings(count, what)
        if code != _ARRAY:
            return self.numbers(code, count, what)
        if depth == _NESTING:
            raise UnpicklingError(f"{what} has arrays nested more than {_NESTING} deep")
        return [self.array(what, depth + 1) for _ in range(count)]

    def strings(self, count: int, what: str) -> list[str | bytes]:
        found: list[str | bytes] = []
        data, unpack, limit = self.data, struct.Struct("<Q").unpack_from, min(self.size, self.limits.header)
        at = self.at
        for _ in range(count):
            begin = at + 8
            stop = begin + unpack(data, at)[0] if begin <= limit else limit + 1
            if stop > limit:
                self.at = at
                self.raw(what)  # raises the error that fits
            try:
                found.append(str(data[begin:stop], "utf-8"))
            except UnicodeDecodeError:
                found.append(bytes(data[begin:stop]))
            at = stop
        self.at = at
        return found


def _metadata(header: _Header, count: int) -> dict[str, Any]:
    if count > (header.size - header.at) // _KEY_BYTES:
        raise UnpicklingError(f"the GGUF file declares {count} keys, which it has no room for")
    header.count(count * _COST)
    result: dict[str, Any] = {}
    for i in range(count):
        key = header.name(f"the key number {i}")
        what = f"the key {shown(key)}"
        if key in result:
            raise UnpicklingError(f"the GGUF file has {what} twice")
        result[key] = header.value(header.u32(what), what)
    return result


def _alignment(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", _ALIGNMENT)
    if type(value) is not int or value < 1 or value & (value - 1):
        raise UnpicklingError(f"general.alignment is {shown(value)}, not a power of two")
    return value


@dataclass(frozen=True)
class _Entry:
    """A tensor as the header describes it: `offset` bytes behind the begin of the data."""

    name: str
    shape: tuple[int, ...]
    kind: ElementType
    offset: int
    nbytes: int


def _entry(header: _Header, number: int) -> _Entry:
    name = header.name(f"the tensor number {number}")
    what = f"the tensor {shown(name)}"
    dims = header.u32(what)
    if dims > MAX_DIMS:  # before they are multiplied: the product would be a number of that many digits
        raise UnpicklingError(f"{what} has {dims} dimensions, more than {MAX_DIMS}")
    header.count(_COST + dims)
    shape = struct.unpack_from(f"<{dims}Q", header.data, header.take(8 * dims, what))[::-1]
    code, offset = header.u32(what), header.u64(what)
    kind = TYPE_CODES.get(code)
    if kind is None:
        raise UnpicklingError(f"{what} has the unsupported type {code}")
    if math.prod(n or 1 for n in shape) * 8 > _MAX_BYTES:
        raise UnpicklingError(f"{what} declares the absurd size {shown(shape)}")
    row = shape[-1] if shape else 1
    if row % kind.values:
        raise UnpicklingError(
            f"{what} has rows of {row} values, which blocks of {kind.values} ({kind.name}) do not fill"
        )
    return _Entry(name, shape, kind, offset, math.prod(shape) // kind.values * kind.bytes)


def _entries(header: _Header, count: int) -> dict[str, _Entry]:
    if count > (header.size - header.at) // _TENSOR_BYTES:
        raise UnpicklingError(f"the GGUF file declares {count} tensors, which it has no room for")
    result: dict[str, _Entry] = {}
    for i in range(count):
        one = _entry(header, i)
        if one.name in result:
            raise UnpicklingError(f"the GGUF file has the tensor {shown(one.name)} twice")
        result[one.name] = one
    return result


def _check_places(entries: Mapping[str, _Entry], begin: int, alignment: int, size: int) -> None:
    """Refuse tensors that are misaligned, overlap, leave holes or reach beyond the file, and bytes behind the last."""
    at = end = begin
    for one in sorted(entries.values(), key=lambda e: (e.offset, e.nbytes)):
        start, what = begin + one.offset, f"the tensor {shown(one.name)}"
        if one.offset % alignment:
            raise UnpicklingError(f"{what} has the offset {one.offset}, which is no multiple of {alignment}")
        if start != at:
            raise UnpicklingError(f"{what} {'overlaps another' if start < at else 'follows a hole'}")
        end = start + one.nbytes
        if end > size:
            raise UnpicklingError(f"{what} of shape {shown(one.shape)}, type {one.kind.name} is truncated")
        at = _aligned(end, alignment)
    if size > at:
        raise UnpicklingError(f"the GGUF file has {size - end} bytes behind its last tensor")


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def read_gguf(source: Source, limits: Limits = DEFAULT_LIMITS) -> GgufFile:
    """The metadata and tensors of a GGUF file, whose data are shared with the file where it is mapped.

    Raises UnpicklingError for what is not exactly of the format: other versions, duplicate names, unknown types,
    sizes that disagree, overlaps and holes.
    """
    if bytes(source.data[:4]) != MAGIC:
        raise UnpicklingError("the file is no GGUF file")
    header = _Header(source, limits)
    header.at = len(MAGIC)
    version = header.u32("its version")
    if version not in _VERSIONS:
        if version and not version & 0xFFFF:
            raise UnpicklingError("the GGUF file is big endian, which is not supported")
        raise UnpicklingError(f"the GGUF file has the version {version}, which is not supported (2 and 3 are)")
    tensors, keys = header.u64("its count of tensors"), header.u64("its count of keys")
    metadata = _metadata(header, keys)
    alignment = _alignment(metadata)
    entries = _entries(header, tensors)
    begin = _aligned(header.at, alignment)
    _check_places(entries, begin, alignment, source.size)
    found = {
        one.name: GgufTensor(one.name, one.shape, one.kind.name, source.view(begin + one.offset, one.nbytes))
        if one.nbytes
        else GgufTensor(one.name, one.shape, one.kind.name, np.empty(0, np.uint8))
        for one in entries.values()
    }
    return GgufFile(version, metadata, found)


def open_gguf(f: Any, mmap: bool | None = None, limits: Limits = DEFAULT_LIMITS) -> GgufFile:
    """Read the metadata of a GGUF file and where its tensors are, which are read when they are used.

    f: path or binary file object.  mmap: as `load` takes it.  Raises UnpicklingError, with the file's name, for a bad
    file, OSError where it cannot be read.
    """
    with naming(f):
        source = Source(f, mmap)
        try:
            found = read_gguf(source, limits)
            source.finish(source.size)
            return found
        finally:
            source.close()


def storage_of(tensor: GgufTensor) -> tuple[np.ndarray, RawStorage]:
    """The values of a tensor in its own dtype (quantized ones as float32) and the storage that holds them."""
    array = tensor.array(None)
    flat = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
    return array, RawStorage(flat, tensor.dtype, tensor.name)


# -- writing -------------------------------------------------------------------------------------------

_CODE_OF = {np.dtype(dtype): code for code, dtype in _NUMBERS.items()}


def write_gguf(f: Any, metadata: Mapping[str, Any], tensors: Mapping[str, Any]) -> int:
    """Write a GGUF file of version 3; returns the number of bytes.

    f: path or binary file object.  metadata: values by key; whole numbers become u32, or i32 and 64 bits where they
    need them, others f32; numpy's scalars and arrays keep their type.  tensors: by name an array (F32, F16, BF16, F64,
    I8 to I64), a pair of an array and the type to write it as (F32, F16, BF16, Q8_0, Q4_0), or a GgufTensor as it is.
    Raises TypeError and ValueError for what the format lacks.
    """
    from .writers import opened  # for the weight: readers need none of it

    alignment = int(metadata.get("general.alignment", _ALIGNMENT))
    ready = [value if isinstance(value, GgufTensor) else _tensor(name, value) for name, value in tensors.items()]
    head = [MAGIC, struct.pack("<IQQ", 3, len(ready), len(metadata))]
    for key, value in metadata.items():
        head += (_string(key), _typed(value))
    at = 0
    for name, one in zip(tensors, ready):
        dims = struct.pack(f"<I{len(one.shape)}Q", len(one.shape), *reversed(one.shape))
        head += (_string(name), dims, struct.pack("<IQ", one.kind.code, at))
        at += _aligned(one.data.size, alignment)
    text = b"".join(head)
    text += bytes(-len(text) % alignment)
    with opened(f) as out:
        out.write(text)
        for one in ready:
            out.write(memoryview(one.data))
            out.write(bytes(-one.data.size % alignment))
    return len(text) + at


def _tensor(name: str, value: Any) -> GgufTensor:
    array, form = value if isinstance(value, tuple) else (value, None)
    array = np.asarray(array)
    kind = TYPES.get(form) if form else next((k for k in TYPES.values() if k.dense == array.dtype.name), None)
    if kind is None:
        raise TypeError(f"the tensor {name!r} has the type {form or array.dtype}, which GGUF lacks")
    if kind.dense is not None:
        data = np.ascontiguousarray(array, numpy_dtype(kind.dense).newbyteorder("<")).reshape(-1).view(np.uint8)
    else:
        if not array.ndim or array.shape[-1] % kind.values:
            raise ValueError(f"the tensor {name!r} of shape {array.shape} has no rows of whole blocks of {kind.values}")
        data = quantized(kind, np.ascontiguousarray(array, np.float32))
    return GgufTensor(name, array.shape, kind.name, data.reshape(-1))


def _string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Any) -> bytes:
    """A value of metadata behind the code of its type."""
    code, raw = _encoded(value)
    return struct.pack("<I", code) + raw


def _encoded(value: Any) -> tuple[int, bytes]:
    """The code of the type of a value, and its bytes."""
    if isinstance(value, str | bytes):
        return _STRING, _string(value)
    many = isinstance(value, list | tuple)
    numbers = all(isinstance(one, bool | int | float) for one in (value if many else [value]))
    if many and not numbers:
        parts = [_encoded(one) for one in value]
        if len({code for code, _ in parts}) > 1:
            raise TypeError(f"an array of GGUF metadata has one type, not those of {shown(list(value))}")
        return _ARRAY, struct.pack("<IQ", parts[0][0], len(parts)) + b"".join(raw for _, raw in parts)
    array = value if isinstance(value, np.ndarray | np.generic) else _smallest(value) if numbers else None
    code = None if array is None else _CODE_OF.get(array.dtype)
    if array is None or code is None:
        raise TypeError(f"GGUF has no form for the metadata {shown(value)}")
    if array.ndim:
        return _ARRAY, struct.pack("<IQ", code, array.size) + array.tobytes()
    return code, array.tobytes()


def _smallest(value: Any) -> np.ndarray:
    """Numbers in the type that llama.cpp would read them in."""
    values = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(one, float) for one in values):
        return np.asarray(value, "<f4")
    if not values or all(isinstance(one, bool) for one in values):
        return np.asarray(value, "?")
    low, high = min(values), max(values)
    signed = low < 0
    wide = high >= 1 << 31 or low < -(1 << 31) if signed else high >= 1 << 32
    return np.asarray(value, f"<{'i' if signed else 'u'}{8 if wide else 4}")
