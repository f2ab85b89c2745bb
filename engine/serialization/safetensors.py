"""The safetensors format: u64 length, JSON header, raw tensors (https://github.com/huggingface/safetensors)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.core.checks import contiguous_strides

from .errors import DEFAULT_LIMITS, Limits, UnpicklingError, shown
from .records import MAX_DIMS, RawStorage, strided
from .source import ALIGNMENT, Source

if TYPE_CHECKING:
    from .gguf import LazyArray

__all__ = ["looks_like", "read_safetensors", "write_safetensors"]

_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_CODES = {name: code for code, name in _NAMES.items()}


def looks_like(head: bytes, size: int) -> bool:
    """Return whether a file of `size` bytes that begins with `head` (16 bytes) can be of this format."""
    if len(head) < 9:
        return False
    (length,) = struct.unpack_from("<Q", head)
    return head[8:9] == b"{" and 2 <= length <= size - 8


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise UnpicklingError("the safetensors header has a key twice")
    return result


def _not_a_number(text: str) -> Any:
    raise UnpicklingError(f"the safetensors header has the number {shown(text)}")


def _header(source: Source, limits: Limits) -> tuple[dict[str, Any], int]:
    if source.size < 8:
        raise UnpicklingError("the safetensors file is truncated inside its length")
    (length,) = struct.unpack_from("<Q", source.data)
    if length > limits.header:
        raise UnpicklingError(f"the safetensors header of {length} bytes is larger than {limits.header}")
    if 8 + length > source.size:
        raise UnpicklingError(f"the safetensors file is truncated inside its header of {length} bytes")
    raw = bytes(source.data[8 : 8 + length])
    # each comma, brace or bracket may begin a value, and a value costs many times the byte that it is written with
    values = sum(map(raw.count, (b",", b"{", b"[")))
    if values > limits.header_values:
        raise UnpicklingError(f"the safetensors header has {values} values, more than {limits.header_values}")
    try:
        header = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_not_a_number,
            parse_float=_not_a_number,
        )
    except UnpicklingError:
        raise
    except (ValueError, RecursionError) as e:
        raise UnpicklingError(f"the safetensors header is not JSON: {shown(e)}") from None
    if type(header) is not dict:
        raise UnpicklingError("the safetensors header is not an object")
    return header, 8 + length


def _numbers(values: Any, name: str, what: str) -> list[int]:
    if type(values) is not list or not all(type(v) is int and 0 <= v < 1 << 62 for v in values):
        raise UnpicklingError(f"the tensor {shown(name)} has {what} {shown(values)}")
    return values


def read_safetensors(
    source: Source, limits: Limits = DEFAULT_LIMITS
) -> tuple[dict[str, tuple[np.ndarray, RawStorage]], dict[str, str]]:
    """Tensors by name (array and storage, shared with the file where it is mapped) and the metadata.

    Raises UnpicklingError for duplicate keys, unknown types, sizes that disagree, overlaps and holes.
    """
    header, begin = _header(source, limits)
    metadata = header.pop("__metadata__", {})
    if type(metadata) is not dict or not all(type(v) is str for v in metadata.values()):
        raise UnpicklingError("the safetensors metadata is not a map from text to text")
    entries = []
    for name, info in header.items():
        if type(info) is not dict or info.keys() != {"dtype", "shape", "data_offsets"}:
            raise UnpicklingError(f"the tensor {shown(name)} is not described by dtype, shape and data_offsets")
        element = _NAMES.get(info["dtype"]) if type(info["dtype"]) is str else None
        if element is None:
            raise UnpicklingError(f"the tensor {shown(name)} has the unsupported dtype {shown(info['dtype'])}")
        shape = _numbers(info["shape"], name, "the shape")
        if len(shape) > MAX_DIMS:  # before they are multiplied: the product would be a number of that many digits
            raise UnpicklingError(f"the tensor {shown(name)} has {len(shape)} dimensions, more than {MAX_DIMS}")
        offsets = _numbers(info["data_offsets"], name, "the offsets")
        if len(offsets) != 2 or offsets[0] > offsets[1]:
            raise UnpicklingError(f"the tensor {shown(name)} has the offsets {shown(offsets)}")
        entries.append((offsets[0], offsets[1], name, element, shape))
    entries.sort(key=lambda e: e[:2])
    result, at = {}, 0
    for start, stop, name, element, shape in entries:
        if start != at:
            raise UnpicklingError(f"the tensor {shown(name)} {'overlaps another' if start < at else 'follows a hole'}")
        if begin + stop > source.size:
            raise UnpicklingError(f"the tensor {shown(name)} is truncated")
        storage = RawStorage(source.view(begin + start, stop - start), element, name)
        expected = storage.dtype.itemsize
        for n in shape:
            expected *= n
        if expected != stop - start:
            raise UnpicklingError(
                f"the tensor {shown(name)} of shape {shown(shape)} has {stop - start} bytes, not {expected}"
            )
        result[name] = (strided(storage, element, 0, tuple(shape), contiguous_strides(tuple(shape)), limits), storage)
        at = stop
    if begin + at != source.size:
        raise UnpicklingError(f"the safetensors file has {source.size - begin - at} bytes behind its last tensor")
    # The header's order, not that of the data: it is the order the writer gave the names.
    return {name: result[name] for name in header}, metadata


def write_safetensors(
    tensors: Mapping[str, np.ndarray | LazyArray], f: Any, metadata: Mapping[str, str] | None = None
) -> int:
    """Write arrays by name to a binary file object; returns the number of bytes.

    Each tensor is written whole and contiguous, widest elements first so that all are aligned; the data begin at
    a multiple of 64 bytes.  Memory that tensors share is written once for each; a `LazyArray` is computed when it is
    written.  Raises TypeError for names or metadata that are not text and for complex128, which the format lacks.
    """
    from engine.core import dtypes
    from engine.encoded import float8

    header: dict[str, Any] = {}
    if metadata:
        if not all(type(k) is str and type(v) is str for k, v in metadata.items()):
            raise TypeError("safetensors metadata must map str to str")
        header["__metadata__"] = dict(metadata)
    described, at = {}, 0
    order = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    for name, array in order:
        if type(name) is not str or name == "__metadata__":
            raise TypeError(f"{name!r} cannot name a tensor in a safetensors file")
        eight = array.dtype.name in float8.NAMES
        code = _CODES.get(array.dtype.name if eight else dtypes.from_numpy(array.dtype).name)
        if code is None:
            raise TypeError(f"the tensor {name!r} has dtype {array.dtype}, which safetensors lacks")
        described[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    header.update((name, described[name]) for name in tensors)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    f.write(struct.pack("<Q", len(text)) + text)
    for _, values in order:
        array = np.asarray(values)
        swapped = array.dtype.kind in "iufc" and array.itemsize > 1
        little = array.astype(array.dtype.newbyteorder("<"), copy=False) if swapped else array
        f.write(memoryview(np.ascontiguousarray(little).reshape(-1).view(np.uint8)))
    return 8 + len(text) + at
