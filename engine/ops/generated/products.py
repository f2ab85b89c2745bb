"""One row times a weight, in generated code (the extra `jit`): what a language model does for each token.

All the time is that of reading the weight once.  16-bit ones are read as they lie and summed in float32; libraries,
made for many rows, take one and a half to three times as long.  Note [Generated kernels on the CPU].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu import halves
from engine.kernels import cpu
from engine.kernels.form import Kernel
from engine.ops.generated import launch

__all__ = ["one_row"]

TYPES = ("float32", "bfloat16", "float16")
_entries: dict[Any, launch.Entry] = {}


def kernel(type: str, biased: bool) -> Kernel:
    """out[i] = sum over j of weight[i, j] * row[j], and bias[i]; row is float32."""
    k = Kernel("row", "rows")
    weight, row = k.array("weight", type), k.array("row", "float32")
    bias = k.array("bias", type) if biased else None
    out, width = k.array("out", type, written=True), k.scalar("width", "index")
    start = k.index * width
    found = k.reduce("sum", width, lambda j: k.load(weight, start + j) * k.load(row, j))
    with k.once():
        k.store(out, k.index, found if bias is None else found + k.load(bias, k.index))
    return k


def one_row(xp: Any, row: Any, weight: Any, bias: Any) -> Any:
    """row (1, K), weight (M, K) and bias (M) or None, all contiguous and of one of TYPES -> (1, M)."""
    name, outputs, width = weight.dtype.name, *weight.shape
    kind = name, bias is None, launch.magnitude(weight.size)
    entry = _entries.setdefault(kind, launch.Entry())
    built = launch.ready(entry, weight.size, lambda: cpu.build(kernel(name, bias is not None)))
    made = np.empty((1, outputs), weight.dtype)
    wide = row if name == "float32" else halves.widen(row)
    given = (weight, wide, made, width) if bias is None else (weight, wide, bias, made, width)
    built(given, outputs, width)
    return made
