"""TensorProtos: the arrays of an ONNX file, in the file or in data files beside it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.onnx.wire import FormatError

__all__ = ["CODES", "array_of", "code_of", "dtype_of", "from_array"]

# ONNX's numbers of element types
CODES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
}
_BY_NAME = {name: code for code, name in CODES.items()}
_REFUSED = {
    8: "strings",
    17: "float8",
    18: "float8",
    19: "float8",
    20: "float8",
    21: "uint4",
    22: "int4",
    23: "float4",
    24: "float8",
}
_TYPED = {
    1: "float_data",
    14: "float_data",
    11: "double_data",
    15: "double_data",
    7: "int64_data",
    12: "uint64_data",
    13: "uint64_data",
}


def code_of(dtype: Any) -> int:
    """ONNX's number of a torch dtype.  TypeError for one it has not."""
    name = str(dtype).rpartition(".")[2]
    if name not in _BY_NAME:
        raise TypeError(f"ONNX has no element type for {dtype}")
    return _BY_NAME[name]


def dtype_of(code: Any) -> Any:
    """The torch dtype of ONNX's number.  FormatError for one that is not read."""
    if code in CODES:
        return getattr(dtypes, CODES[code])
    raise FormatError(f"element type {_REFUSED.get(code, code)} is not supported")


def from_array(name: str, array: Any) -> dict[str, Any]:
    """The TensorProto of a numpy array."""
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    data = np.ascontiguousarray(array)
    return {
        "name": name,
        "dims": list(array.shape),
        "data_type": code_of(dtypes.from_numpy(array.dtype)),
        "raw_data": data.reshape(-1).view(np.uint8).data if data.size else b"",
    }


def array_of(tensor: dict[str, Any], folder: Path | None) -> np.ndarray:
    """The array of a TensorProto; `folder` has its data files (None: there may be none).  FormatError otherwise."""
    label = repr(tensor.get("name", ""))
    dims, code = tensor.get("dims", []), tensor.get("data_type", 0)
    dtype = np.dtype(dtypes.to_numpy(dtype_of(code)))
    if any(n < 0 for n in dims) or len(dims) > 64:
        raise FormatError(f"tensor {label} has the shape {dims}")
    count = math.prod(dims)
    if tensor.get("data_location") == 1:
        raw: Any = _external(tensor, label, count * dtype.itemsize, folder)
    elif "raw_data" in tensor:
        raw = tensor["raw_data"]
    else:
        return _typed(tensor, label, code, dtype, count).reshape(dims)
    if len(raw) != count * dtype.itemsize:
        raise FormatError(f"tensor {label} of shape {dims} has {len(raw)} bytes, not {count * dtype.itemsize}")
    return np.frombuffer(raw, dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype).reshape(dims)


def _typed(tensor: dict[str, Any], label: str, code: int, dtype: Any, count: int) -> np.ndarray:
    field = _TYPED.get(code, "int32_data")
    values = tensor.get(field, [])
    try:
        if field in ("float_data", "double_data"):
            made = np.asarray(values, "f4" if field == "float_data" else "f8").view(dtype)
        elif code in (10, 16):  # as the bits of 16-bit numbers
            made = np.asarray(values, "u2").view(dtype)
        elif field == "uint64_data":
            made = np.asarray([v & (1 << 64) - 1 for v in values], "u8").astype(dtype)
        else:
            made = np.asarray(values, "i8").astype(dtype)
    except (OverflowError, ValueError):
        raise FormatError(f"tensor {label} has numbers that do not fit its element type") from None
    if made.size != count:
        raise FormatError(f"tensor {label} has {made.size} elements, its shape says {count}")
    return made


def _external(tensor: dict[str, Any], label: str, size: int, folder: Path | None) -> Any:
    """The bytes of a tensor in a file of the model's folder, mapped."""
    where = {e.get("key", ""): e.get("value", "") for e in tensor.get("external_data", [])}
    name = where.get("location", "")
    if folder is None:
        raise FormatError(f"tensor {label} is in the file {name!r}, and the model was not read from a folder")
    parts = Path(name).parts
    if not name or "\\" in name or ":" in name or Path(name).is_absolute() or ".." in parts:
        raise FormatError(f"tensor {label} names the file {name!r}, which is not inside the model's folder")
    base = folder.resolve()
    path = (base / name).resolve()
    if not path.is_relative_to(base) or not path.is_file():
        raise FormatError(f"tensor {label} names the file {name!r}, which is not inside the model's folder")
    try:
        offset, length = int(where.get("offset", "0")), int(where.get("length", str(size)))
    except ValueError:
        raise FormatError(f"tensor {label} has the offset {where.get('offset')!r}") from None
    if offset < 0 or length != size or offset + length > os.path.getsize(path):
        raise FormatError(f"tensor {label} reaches beyond the file {name!r}")
    return np.memmap(path, np.uint8, "r", offset, (length,)).data if length else b""
