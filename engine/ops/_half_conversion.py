"""Conversions of many elements that numpy does one by one, by the fastest route available: 16-bit floats and 64-bit
integers as float32 and back, bytes as float32, truth values and 32-bit integers as 64-bit ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.ops.fusing import fused_later

__all__ = ["converter"]


def _widened(array: Any) -> Any:
    from engine.backends.cpu.half_floats import widen

    return widen(array)


def _narrowed(array: Any) -> Any:
    from engine.backends.cpu.half_floats import narrow

    return narrow(array, _F16)


def _cut(array: Any) -> Any:
    with np.errstate(all="ignore"):
        return array.astype(dtypes.to_numpy(dtypes.bfloat16))


def _numpys(target: Any) -> Callable[[Any], Any]:
    def convert(array: Any) -> Any:
        with np.errstate(all="ignore"):
            return array.astype(target)

    return convert


def _by_processor(name: str, own: Any, target: str) -> Any:
    """Return a conversion between a 16-bit type and float32 by generated code, where the extra `jit` is; `own(array)`
    elsewhere.

    Of 38 thousand elements each takes 3 us; those by bits take 20 (float16 to float32), 58 (back), 11 (bfloat16 to
    float32), and ml_dtypes' of float32 to bfloat16 18.
    """
    generated = fused_later(name, lambda xp, x: x.astype(target), lambda xp, x: own(x))

    def convert(array: Any) -> Any:
        if array.size >= _GENERATED and array.flags.c_contiguous:
            found = generated(np, array)
            if found is not NotImplemented:
                return found
        return own(array)

    return convert


_F32, _F16, _F64, _I64, _I32, _BOOL = map(np.dtype, ("float32", "float16", "float64", "int64", "int32", "bool"))
_GENERATED = 1 << 12  # elements
# by dtypes: to ask one for its name takes as long as to convert ten thousand elements
_CONVERTS: dict[tuple[np.dtype, np.dtype], Callable[[Any], Any]] = {
    (_F16, _F32): _by_processor("float", _widened, "float32"),
    (_F32, _F16): _by_processor("half", _narrowed, "float16"),
    # Of 98 thousand elements: 12 us on one thread, numpy's take 25; of bytes 4, numpy's take 8.
    (_F32, _I64): _by_processor("long", _numpys(_I64), "int64"),
    (_F64, _I64): _by_processor("long", _numpys(_I64), "int64"),
    (_I64, _F32): _by_processor("float", _numpys(_F32), "float32"),
    (_I64, _F64): _by_processor("double", _numpys(_F64), "float64"),
    (np.dtype("uint8"), _F32): _by_processor("float", _numpys(_F32), "float32"),
    (_BOOL, _F32): _by_processor("float", _numpys(_F32), "float32"),
    # Of few elements these are direct launches (`generated/conversions.py`); of many, threads share them.
    (_BOOL, _I64): _by_processor("long", _numpys(_I64), "int64"),
    (_I32, _I64): _by_processor("long", _numpys(_I64), "int64"),
    (_I64, _I32): _by_processor("int", _numpys(_I32), "int32"),
}
_AT_FIRST = len(_CONVERTS)


def converter(source: np.dtype, target: np.dtype) -> Callable[[Any], Any] | None:
    """The function that converts many elements faster than numpy does; None where there is none for these types."""
    found = _CONVERTS.get((source, target))
    if (
        found is None and "V" in (source.kind, target.kind) and len(_CONVERTS) == _AT_FIRST
    ):  # ml_dtypes is loaded by now
        half = dtypes.to_numpy(dtypes.bfloat16)
        _CONVERTS[half, _F32] = _by_processor("float", _widened, "float32")
        _CONVERTS[_F32, half] = _by_processor("bfloat16", _cut, "bfloat16")
        found = _CONVERTS.get((source, target))
    return found
