"""A stand-in for CuPy: numpy's functions on arrays that refuse to become, or to mix with, numpy arrays.

Running the registry on it shows every place where an op reaches for numpy behind `xp`'s back.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

from engine.backends import Backend
from engine.device import device


class Array:
    """Holds a numpy array; behaves like a CuPy array.  Even 0-dim results stay arrays, as CuPy's do."""

    __slots__ = ("__weakref__", "_held")
    __array_ufunc__ = None  # numpy's operators give way
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, held: Any) -> None:
        self._held = np.asarray(held) if not isinstance(held, np.ndarray) else held

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("implicit conversion of a device array to numpy")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._held, name)
        if isinstance(value, types.BuiltinMethodType | types.MethodType):
            return _wrapped(value)
        return _out(value)

    @property
    def base(self) -> Any:
        base = self._held.base
        if base is None:
            return None
        return _ROOTS.setdefault(id(base), Array(base)) if isinstance(base, np.ndarray) else None

    def __getitem__(self, index: Any) -> Any:
        return Array(self._held[_in(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._held[_in(index)] = _in(value)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Any:
        return (Array(x) for x in self._held)

    def __bool__(self) -> bool:
        return bool(self._held)

    def __int__(self) -> int:
        return int(self._held)

    def __float__(self) -> float:
        return float(self._held)

    def __index__(self) -> int:
        return self._held.__index__()

    def __complex__(self) -> complex:
        return complex(self._held)


_ROOTS: dict[int, Array] = {}


def _in(value: Any) -> Any:
    """What numpy may see: held arrays; a bare numpy array with dims is the mistake this module looks for."""
    if isinstance(value, Array):
        return value._held
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("a numpy array was mixed with device arrays")
    if isinstance(value, tuple):
        return tuple(_in(v) for v in value)
    if isinstance(value, list):
        return [_in(v) for v in value]
    if isinstance(value, dict):
        return {k: _in(v) for k, v in value.items()}
    return value


def _out(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return Array(value)
    if isinstance(value, list):
        return [_out(v) for v in value]
    if isinstance(value, tuple) and any(isinstance(v, np.ndarray | np.generic) for v in value):
        return type(value)(*map(_out, value)) if hasattr(value, "_fields") else tuple(map(_out, value))
    return value


def _wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _out(function(*(_in(a) for a in args), **{k: _in(v) for k, v in kwargs.items()}))

    return call


_KEPT = {"tolist", "item", "tobytes"}  # host values by request
for _name in _KEPT:
    setattr(Array, _name, (lambda n: lambda self, *a: getattr(self._held, n)(*a))(_name))
for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul and "
    "rand or ror xor rxor lshift rlshift rshift rrshift lt le gt ge eq ne neg pos abs invert divmod"
).split():
    _special = f"__{_name}__"
    setattr(Array, _special, (lambda n: lambda self, *a: _out(getattr(self._held, n)(*map(_in, a))))(_special))
for _name in ("iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift").split():
    _special = f"__{_name}__"

    def _inplace(self: Array, other: Any, _n: str = _special) -> Array:
        self._held = getattr(self._held, _n)(_in(other))
        return self

    setattr(Array, _special, _inplace)


class _Ufunc:
    """A ufunc with its methods."""

    def __init__(self, ufunc: Any) -> None:
        self._ufunc = ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _wrapped(self._ufunc)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return _wrapped(getattr(self._ufunc, name))


class Module:
    """Stands for the array module: numpy's names over `Array`."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._cache: dict[str, Any] = {}
        self.ndarray = Array

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._cache:
            value = getattr(self._module, name)
            if isinstance(value, types.ModuleType):
                value = Module(value)
            elif isinstance(value, np.ufunc):
                value = _Ufunc(value)
            elif callable(value) and not isinstance(value, type):
                value = _wrapped(value)
            self._cache[name] = value
        return self._cache[name]


class StandIn(Backend):
    """The backend of `Array`: kind "meta", so that no real device is claimed."""

    def __init__(self) -> None:
        super().__init__("meta", Module(np), Array)

    def device_of(self, array: Any) -> device:
        return device("meta")

    def from_host(self, array: np.ndarray, where: device) -> Array:
        return Array(np.array(array))

    def to_host(self, array: Array) -> np.ndarray:
        return array._held

    def pointer(self, array: Array) -> int:
        return array._held.__array_interface__["data"][0]
