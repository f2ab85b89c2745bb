"""numpy's scalars, plain arrays and dtypes in checkpoints, each made here from checked parts.

`CONSTRUCTORS` maps the path of a class or function, as a pickle names it, to a function of (unpickler, *arguments).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import UnpicklingError, shown

if TYPE_CHECKING:
    from .unpickler import Unpickler

__all__ = ["CONSTRUCTORS", "is_state", "set_state"]

CONSTRUCTORS: dict[str, Callable[..., Any]] = {}


def _makes(path: str) -> Callable:
    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        CONSTRUCTORS[path] = run
        return run

    return register


_PLAIN_DTYPE = re.compile(r"[<>=|]?(?:b1|[iu][1248]|f[248]|c(?:8|16)|[?bBhHiIlLqQefdFD]|[SU]\d{1,9})")


@_makes("numpy.dtype")
def _np_dtype(u: Unpickler, code: Any, align: Any = False, copy: Any = False) -> np.dtype:
    code = code.decode("ascii") if type(code) is bytes else code
    if type(code) is not str or not _PLAIN_DTYPE.fullmatch(code):
        raise UnpicklingError(f"the numpy dtype {shown(code)} is refused: only plain numbers and strings are read")
    u.budget.spend(256)
    return np.dtype(code, copy=True)


@_makes("numpy.ndarray")
def _np_empty(u: Unpickler, *args: Any) -> np.ndarray:
    raise UnpicklingError("a numpy.ndarray is made by a direct call, which is refused")


@_makes("numpy.core.multiarray._reconstruct")
def _np_reconstruct(u: Unpickler, cls: Any, shape: Any, code: Any) -> np.ndarray:
    if getattr(cls, "path", None) != "numpy.ndarray" or shape != (0,):
        raise UnpicklingError("only plain numpy arrays are read")
    u.budget.spend(256)
    return np.ndarray((0,), np.int8)


def _np_bytes(u: Unpickler, raw: Any, shape: Any, dtype: Any) -> bytes:
    if type(raw) is str:  # a Python 2 string that happened to decode
        raw = raw.encode("latin1" if u.encoding == "bytes" else u.encoding)
    if not isinstance(dtype, np.dtype) or type(raw) not in (bytes, bytearray):
        raise UnpicklingError("a numpy array lacks its dtype or its bytes")
    if type(shape) is not tuple or len(shape) > 32 or not all(type(n) is int and 0 <= n < 1 << 48 for n in shape):
        raise UnpicklingError("a numpy array has no proper shape")
    expected = dtype.itemsize
    for n in shape:
        expected *= n
    if expected != len(raw) or dtype.itemsize == 0:
        raise UnpicklingError(f"a numpy array of shape {shown(shape)} comes with {len(raw)} bytes")
    u.budget.spend(len(raw) + 256)
    return bytes(raw)


@_makes("numpy.core.multiarray.scalar")
def _np_scalar(u: Unpickler, dtype: Any, raw: Any) -> Any:
    return np.frombuffer(_np_bytes(u, raw, (), dtype), dtype)[0]


@_makes("numpy.core.numeric._frombuffer")
def _np_frombuffer(u: Unpickler, raw: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    raw = _np_bytes(u, raw, shape, dtype)
    return np.frombuffer(bytearray(raw), dtype).reshape(shape, order="F" if order == "F" else "C")


def is_state(state: Any) -> bool:
    return type(state) is tuple and len(state) == 5 and isinstance(state[2], np.dtype)


def set_state(u: Unpickler, target: Any, state: Any) -> None:
    """The state that numpy pickles for a dtype or an array, checked and then handed over."""
    if isinstance(target, np.dtype):
        if type(state) is not tuple or len(state) != 8 or any(x not in (None, ()) for x in state[2:5]):
            raise UnpicklingError("a numpy dtype has fields or a state of an unknown form, which is refused")
        order = state[1].decode("ascii") if type(state[1]) is bytes else state[1]
        if order not in ("<", ">", "|", "="):
            raise UnpicklingError(f"a numpy dtype has the byte order {shown(order)}")
        # For strings size and alignment are part of the state; they must be those of the code already read.
        size, alignment = state[5:7]
        own = (target.itemsize, target.alignment) if target.kind in "SU" else (-1, -1)
        if (size, alignment) not in ((-1, -1), own):
            raise UnpicklingError("a numpy dtype has a size that differs from its code")
        target.__setstate__((3, order, None, None, None, size, alignment, 0))
        return
    if type(state) is not tuple or len(state) != 5:
        raise UnpicklingError("a numpy array has a state of an unknown form")
    _, shape, dtype, fortran, raw = state
    raw = _np_bytes(u, raw, shape, dtype)
    target.__setstate__((1, shape, dtype, bool(fortran), raw))
