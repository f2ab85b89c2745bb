"""16-bit floats as float32 and back, by the fastest route available."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.dispatch.choosing import worth_loading

__all__ = ["CONVERTS"]


def _widened(array: Any) -> Any:
    from engine.backends.cpu.half_floats import widen

    return widen(array)


def _narrowed(array: Any) -> Any:
    from engine.backends.cpu.half_floats import narrow

    return narrow(array, _F16)


def _by_processor(name: str, own: Any, target: str) -> Any:
    """Return a conversion between float16 and float32 by the processor's instructions, where the extra `jit` is;
    `own(array)` elsewhere.

    A million take 0.2 ms, where those by bits take 0.4 (to float32) and 1.5.
    """
    made: Any = None

    def convert(array: Any) -> Any:
        nonlocal made
        if array.size >= _GENERATED and array.flags.c_contiguous:
            if made is None:
                if not worth_loading(array.size):
                    return own(array)
                from engine.ops import generated

                made = generated.fused(name, lambda xp, x: x.astype(target), lambda xp, x: own(x)) or _left
            found = made(np, array)
            if found is not NotImplemented:
                return found
        return own(array)

    return convert


def _left(xp: Any, array: Any) -> Any:
    return NotImplemented


_F16 = np.dtype("float16")
_GENERATED = 1 << 16  # elements
CONVERTS = {
    ("bfloat16", "float32"): _widened,
    ("float16", "float32"): _by_processor("float", _widened, "float32"),
    ("float32", "float16"): _by_processor("half", _narrowed, "float16"),
}
