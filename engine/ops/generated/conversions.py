"""Conversions of few elements as generated kernels (the extra `jit`); of many: `engine/ops/_half_conversion.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.core import dtypes
from engine.dispatch import kernel
from engine.ops import copying
from engine.ops.cuda.elementwise import kernel_from

__all__ = ["converted"]

_FLOATS = frozenset(["float16", "bfloat16", "float32", "float64"])
_WHOLE = frozenset(["bool", "uint8", "int32", "int64"])
# from which types a conversion to one is an instruction or two
_FROM = {
    **dict.fromkeys(_FLOATS, _FLOATS | {"int64", "uint8", "bool"}),
    "int64": _WHOLE | {"float32", "float64"},
    "int32": _WHOLE,
    "bool": _WHOLE | {"float32", "float64"},
}
_codes: dict[tuple[str, str], Callable[..., Any]] = {}


@kernel(copying.to_copy, "direct", only_launches=True)
def converted(
    xp: Any, input: Any, dtype: Any, where: Any, memory_format: Any, back: Any, non_blocking: bool = False
) -> Any:
    if dtype is None or where is not None or memory_format is not None or not input.flags.c_contiguous:
        return NotImplemented
    source, target = input.dtype.name, dtypes.to_numpy(dtype).name
    if source == target or source not in _FROM.get(target, ()):
        return NotImplemented
    found = _codes.get((source, target))
    if found is None:
        found = _codes[source, target] = kernel_from(f"{source} to {target}", lambda xp, x: x.astype(target))
    return found(xp, input)
