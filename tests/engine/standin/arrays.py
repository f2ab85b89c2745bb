"""Arrays of the stand-in: CuPy's behaviour over memory that numpy can compute on.

They refuse to become, or to mix with, numpy arrays; they have the attributes, functions and keywords of CuPy's table
(`cupy_api.json`) and no others; ufuncs take the types for which CuPy has a loop.
"""

from __future__ import annotations

import functools
import json
import types
from pathlib import Path
from typing import Any

import numpy as np

from tests.engine.standin import machine
from tests.engine.standin.machine import Chunk, MemoryPointer, before_write, here, launch, no_capture

API: dict[str, Any] = json.loads(Path(__file__).with_name("cupy_api.json").read_text())["names"]
MEMBERS = {name.partition(".")[2]: entry for name, entry in API.items() if name.startswith("ndarray.")}
FLAGS = {name.partition(".")[2] for name in API if name.startswith("flags.")}
used: set[str] = set()  # names of the table that were reached, for the report


class Flags:
    """cupy's flags: fewer than numpy's."""

    __slots__ = ("_held", "_own")

    def __init__(self, held: np.ndarray, own: bool) -> None:
        self._held, self._own = held, own

    def __getattr__(self, name: str) -> bool:
        if name not in FLAGS:
            raise AttributeError(f"'cupy._core.flags.Flags' object has no attribute '{name}'")
        return self._own if name == "owndata" else bool(getattr(self._held.flags, name))


class Array:
    """cupy.ndarray.  Even 0-dim results stay arrays."""

    __slots__ = ("__weakref__", "_held", "base", "data")
    __array_ufunc__ = None  # numpy's operators give way
    __hash__ = None  # type: ignore[assignment]
    _held: np.ndarray
    data: MemoryPointer
    base: Array | None

    def __new__(
        cls, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> Array:
        shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        dtype = np.dtype(dtype)
        count = int(np.prod(shape)) if shape else 1
        if memptr is None:
            memptr = machine.allocate(count * dtype.itemsize)
        room = memptr.mem.chunk.raw[memptr.offset :]
        if strides is None:
            held = np.ndarray(shape, dtype, room, order=order)
        else:
            held = np.ndarray(shape, dtype, room, strides=strides)
        return _made(held, memptr, None)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def __getattr__(self, name: str) -> Any:
        if name not in MEMBERS:
            raise AttributeError(f"'ndarray' object has no attribute '{name}'")
        used.add("ndarray." + name)
        value = getattr(self._held, name)
        if not isinstance(value, types.BuiltinMethodType | types.MethodType):
            return _view(value, self) if isinstance(value, np.ndarray) else value
        method = getattr(np.ndarray, name)
        writes = name in ("fill", "sort", "partition", "put")
        if name == "dot":
            no_cublas()
        return functools.partial(_call, "ndarray." + name, method, MEMBERS[name], (0,) if writes else (), self)

    @property
    def flags(self) -> Flags:
        return Flags(self._held, self.base is None)

    @property
    def device(self) -> Any:
        from tests.engine.standin.module import Device

        return Device(self.data.device_id)

    @property
    def real(self) -> Array:
        return _view(self._held.real, self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Array:
        if self._held.dtype.kind == "c":
            return _view(self._held.imag, self)
        return _fresh(np.zeros_like(self._held))

    @imag.setter
    def imag(self, value: Any) -> None:
        _view(self._held.imag, self)[...] = value

    @property
    def T(self) -> Array:
        return _view(self._held.T, self)

    def __getitem__(self, index: Any) -> Any:
        inner = _in(index)
        if any(getattr(i, "dtype", None) == np.bool_ for i in (inner if isinstance(inner, tuple) else (inner,))):
            no_capture("boolean index")
        return _call("ndarray.__getitem__", np.ndarray.__getitem__, None, (), self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise TypeError(f"Unsupported type {type(value)}")  # also 0-dim: CuPy takes numpy's scalars alone
        _call("ndarray.__setitem__", np.ndarray.__setitem__, None, (0,), self, index, value)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Any:
        if not self._held.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self._held)))

    def copy(self, order: str = "C") -> Array:
        used.add("ndarray.copy")
        return _call("ndarray.copy", np.ndarray.copy, ["self", "order"], (), self, order)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        """A copy on the host; not blocking: it is there when the stream has been waited for."""
        no_capture("cudaMemcpyAsync to the host")
        stream = stream or machine.current_stream()
        with stream:
            launch([self.data.mem.chunk], [])
        if out is None:
            out = np.empty_like(self._held, order="C")
        elif out.dtype != self._held.dtype or out.shape != self._held.shape:
            raise ValueError("out has another shape or dtype")
        if blocking:
            out[...] = self._held
            stream.synchronize()
        else:
            out.view(np.uint8).reshape(-1)[...] = machine.FREED
            stream.later.append(lambda: out.__setitem__(..., self._held))
        return out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """From an array on the host."""
        if not isinstance(arr, np.ndarray) or arr.dtype != self._held.dtype or arr.shape != self._held.shape:
            raise ValueError("set: another type, shape or dtype")
        no_capture("cudaMemcpyAsync from the host")
        with stream or machine.current_stream():
            launch([], [self.data.mem.chunk])
        self._held[...] = arr

    def __bool__(self) -> bool:
        return bool(self._seen("__bool__"))

    def __int__(self) -> int:
        return int(self._seen("__int__"))

    def __float__(self) -> float:
        return float(self._seen("__float__"))

    def __index__(self) -> int:
        return self._seen("__index__").__index__()

    def __complex__(self) -> complex:
        return complex(self._seen("__complex__"))

    def _seen(self, what: str) -> np.ndarray:
        """The values, for the host, which waits."""
        no_capture(what)
        launch([self.data.mem.chunk], [])
        machine.current_stream().synchronize()
        return self._held

    def item(self, *args: Any) -> Any:
        return self._seen("item").item(*args)

    def tolist(self) -> Any:
        return self._seen("tolist").tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self._seen("tobytes").tobytes(order)


ndarray = Array


def _made(held: np.ndarray, memory: MemoryPointer, base: Array | None) -> Array:
    found = object.__new__(Array)
    found._held, found.data, found.base = held, memory, base
    return found


def _view(held: np.ndarray, source: Array) -> Array:
    """An array over memory of `source`."""
    base = source if source.base is None else source.base
    offset = held.__array_interface__["data"][0] - base.data.mem.ptr if held.size else source.data.offset
    return _made(held, MemoryPointer(base.data.mem, offset), base)


def _fresh(value: Any) -> Array:
    """An array of its own memory with these values, laid out as numpy did where that is dense."""
    value = np.asarray(value)
    memory = machine.allocate(value.nbytes)
    room = memory.mem.chunk.raw
    if value.flags.c_contiguous or not _dense(value):
        held = np.ndarray(value.shape, value.dtype, room)
    else:
        held = np.ndarray(value.shape, value.dtype, room, strides=value.strides)
    held[...] = value
    return _made(held, memory, None)


def _dense(value: np.ndarray) -> bool:
    step = value.itemsize
    for stride, size in sorted(zip(value.strides, value.shape)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return value.size > 0


def _in(value: Any) -> Any:
    """What numpy may see: the values of arrays; numpy's own arrays are the mistake this module looks for."""
    if isinstance(value, Array):
        return value._held
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple):
        return tuple(_in(v) for v in value)
    if isinstance(value, list):
        return [_in(v) for v in value]
    return value


def _arrays(values: Any, found: list[Array]) -> list[Array]:
    for v in values:
        if isinstance(v, Array):
            found.append(v)
        elif isinstance(v, tuple | list):
            _arrays(v, found)
    return found


def _one_device(arrays: list[Array]) -> None:
    for a in arrays:
        if a.data.device_id != here.device:
            raise ValueError(
                "Array device must be same as the current device: "
                f"array device = {a.data.device_id} while current = {here.device}"
            )


def check_keywords(name: str, entry: list[str] | None, count: int, kwargs: dict[str, Any]) -> None:
    """CuPy's TypeError for arguments that its function lacks."""
    if entry is None:
        if kwargs and not name.startswith("ndarray.__"):
            raise TypeError(f"{name}() takes no keywords, got {sorted(kwargs)}")
        return
    if not any(p.startswith("**") for p in entry):
        unknown = [k for k in kwargs if k not in entry]
        if unknown:
            raise TypeError(f"{name}() got an unexpected keyword argument '{unknown[0]}'")
    if count > len(entry) and not any(p.startswith("*") for p in entry):
        raise TypeError(f"{name}() takes {len(entry)} arguments, got {count}")


def _call(name: str, function: Any, entry: Any, written: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
    """One call of CuPy's, done by numpy: checked, accounted for, its results in memory of the device."""
    check_keywords(name, entry, len(args), kwargs)
    inputs = _arrays(args, [])
    _arrays(kwargs.values(), inputs)
    _one_device(inputs)
    targets = _arrays([args[i] for i in written], [])
    if kwargs.get("out") is not None:
        _arrays([kwargs["out"]], targets)
    inner = tuple(_in(a) for a in args)
    named = {k: _in(v) for k, v in kwargs.items()}
    chunks = [t.data.mem.chunk for t in targets]
    before_write(chunks)
    value = function(*inner, **named)
    return account(value, inputs, targets, lambda: function(*inner, **named))


def account(value: Any, inputs: list[Array], targets: list[Array], again: Any) -> Any:
    """The results of a call as arrays; its place in the order of the stream's work."""
    fresh: list[tuple[Array, int | None]] = []

    def wrap(one: Any, position: int | None) -> Any:
        if not isinstance(one, np.ndarray | np.generic):
            return one
        for t in targets:
            if one is t._held:
                return t
        if isinstance(one, np.ndarray):
            source = _source(one, inputs)
            if source is not None:
                return _view(one, source)
        made = _fresh(one)
        fresh.append((made, position))
        return made

    if isinstance(value, list):
        result: Any = [wrap(v, i) for i, v in enumerate(value)]
    elif isinstance(value, tuple) and any(isinstance(v, list | tuple) for v in value):  # (hist, [edges, ...])
        return tuple(account(v, inputs, targets, None) for v in value)
    elif isinstance(value, tuple) and any(isinstance(v, np.ndarray | np.generic) for v in value):
        parts = [wrap(v, i) for i, v in enumerate(value)]
        result = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    else:
        result = wrap(value, None)
    if fresh or targets:
        reads: list[Chunk] = [a.data.mem.chunk for a in inputs]
        writes = [t.data.mem.chunk for t in targets] + [a.data.mem.chunk for a, _ in fresh]
        before_write([a.data.mem.chunk for a, _ in fresh])

        def once_more() -> None:
            launch(reads, writes)
            found = again()
            for array, position in fresh:
                array._held[...] = found if position is None else found[position]

        launch(reads, writes, once_more)
    return result


def _source(value: np.ndarray, inputs: list[Array]) -> Array | None:
    """The input whose memory `value` looks at."""
    if not value.size:
        return None
    low = value.__array_interface__["data"][0]
    for a in inputs:
        mem = a.data.mem
        if mem.ptr <= low < mem.ptr + mem.size:
            return a
    return None


# --- operators and ufuncs


class Ufunc:
    """cupy.ufunc: numpy's, for the types CuPy has loops for."""

    def __init__(self, name: str, ufunc: np.ufunc, info: dict[str, Any]) -> None:
        self.name, self._ufunc, self.nin = name, ufunc, info["nin"]
        self.types = info["loops"]
        self._good: dict[Any, bool] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.check(args, kwargs)
        if len(args) > self.nin:
            kwargs["out"] = args[self.nin]
            args = args[: self.nin]
        return _call(self.name, self._ufunc, ["*args", "out", "dtype", "casting"], (), *args, **kwargs)

    def check(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """TypeError where CuPy has no loop for these types."""
        key = tuple(a._held.dtype if isinstance(a, Array) else type(a) for a in args[: self.nin])
        good = self._good.get(key)
        if good is None:
            good = self._good[key] = any(self._fits(loop, args[: self.nin]) for loop in self.types)
        if not good:
            raise TypeError(
                f"Wrong type ({[str(k) for k in key]}) of arguments for cupy ufunc '{self.name}': no loop for them"
            )

    @staticmethod
    def _fits(loop: str, args: tuple) -> bool:
        for char, a in zip(loop, args):
            wanted = _dtype(char)
            if isinstance(a, Array | np.generic):
                if not np.can_cast(a.dtype, wanted):
                    return False
            elif isinstance(a, bool | int | float | complex):
                kind = {bool: "b", int: "i", float: "f", complex: "c"}[type(a)]
                if "bifc".index(kind) > "bifc".index({"u": "i", "V": "f"}.get(wanted.kind, wanted.kind)):
                    return False
        return True

    def _needs(self, what: str, *names: str) -> None:
        if self.name not in names:
            raise NotImplementedError(f"`cupy_{self.name}.{what}` is not supported yet")

    # which exist, and for what: CuPy 14's _core/_kernel.pyx and _routines_indexing.pyx

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        self._needs("reduce", "add", "multiply")
        return _call("ufunc.reduce", self._ufunc.reduce, None, (), array, axis, dtype, out, keepdims)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        self._needs("accumulate", "add", "multiply")
        return _call("ufunc.accumulate", self._ufunc.accumulate, None, (), array, axis, dtype, out)

    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        self._needs("reduceat", "add")
        if str(array.dtype) == "bfloat16":
            raise RuntimeError("NVRTC: no operator += matches these operands")  # of CuPy's running sum
        return _call("ufunc.reduceat", self._ufunc.reduceat, None, (), array, indices, axis, dtype, out)

    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        self._needs("at", "add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor")
        kinds = {"add": "ilIQLqefd", "subtract": "iI", "maximum": "ilIQLqfd", "minimum": "ilIQLqfd"}
        char = a._held.dtype.char
        if char not in kinds.get(self.name, "ilILqQ"):
            raise TypeError(f"cupy.{self.name}.at does not support '{a._held.dtype}'")
        _call("ufunc.at", _float_extremes.get(self.name + char, self._ufunc.at), None, (0,), a, indices, b)

    def outer(self, A: Any, B: Any, **kwargs: Any) -> Any:
        return _call("ufunc.outer", self._ufunc.outer, ["*args", "**kwargs"], (), A, B, **kwargs)


def _rounded(extreme: np.ufunc, a: np.ndarray, indices: Any, b: Any) -> None:
    """As CuPy's atomics for floats do it: by fmaxf and fminf, which drop NaN and round float64 to float32."""
    if a.dtype == np.float64:
        a[indices], b = a[indices].astype(np.float32), np.asarray(b).astype(np.float32)
    extreme.at(a, indices, b)


_float_extremes = {
    name + char: functools.partial(_rounded, extreme)
    for name, extreme in (("maximum", np.fmax), ("minimum", np.fmin))
    for char in "fd"
}


@functools.cache
def _dtype(char: str) -> np.dtype:
    if char == "E":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(char)


@functools.cache
def ufunc(name: str) -> Ufunc:
    """The ufunc of a name in CuPy's table."""
    used.add(name)
    return Ufunc(name, getattr(np, name), API[name])


_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_COMPARE = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
_UNARY = {"neg": "negative", "invert": "invert", "abs": "absolute"}


def _operators() -> None:
    def method(name: str, swapped: bool = False, inplace: bool = False) -> Any:
        def call(self: Array, *other: Any) -> Any:
            if swapped:
                return ufunc(name)(*other, self)
            return ufunc(name)(self, *other, out=self) if inplace else ufunc(name)(self, *other)

        return call

    for short, name in _BINARY.items():
        setattr(Array, f"__{short}__", method(name))
        setattr(Array, f"__r{short}__", method(name, swapped=True))
        setattr(Array, f"__i{short}__", method(name, inplace=True))
    for short, name in (_COMPARE | _UNARY).items():
        setattr(Array, f"__{short}__", method(name))
    Array.__pos__ = lambda self: self.copy()  # type: ignore[attr-defined]
    Array.__matmul__ = lambda self, other: matmul(self, other)  # type: ignore[attr-defined]
    Array.__rmatmul__ = lambda self, other: matmul(other, self)  # type: ignore[attr-defined]


def no_cublas() -> None:
    """CuPy's cuBLAS wrapper in a capture: cupy_backends/cuda/libs/cublas.pyx, setStream."""
    if machine.capturing():
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


def matmul(a: Any, b: Any, /, *args: Any, **kwargs: Any) -> Any:
    """cupy.matmul; more than two dims of bfloat16 fail in CuPy 14."""
    no_cublas()
    if max(a.ndim, b.ndim) > 2 and "bfloat16" in (str(a.dtype), str(b.dtype)):
        raise TypeError("cupy.matmul: bfloat16 with more than 2 dims")
    if len(args):
        kwargs["out"] = args[0]
    return _call("matmul", np.matmul, API["matmul"], (), a, b, **kwargs)


_operators()
