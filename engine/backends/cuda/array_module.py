"""`xp` on CUDA: CuPy's module, and what the ops use of numpy that CuPy lacks, made of what it has.

The gaps, in CuPy 14: `accumulate` of maximum, minimum and logaddexp; `ufunc.at` for products, for types without an
atomic and for extremes of floats (its atomic rounds float64 to float32 and drops NaN); numbers made into arrays, and
joined arrays, by a copy from the host, which a captured graph cannot hold; `as_strided` without a `.base`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from engine.backends.cuda import blaslt, runtime
from engine.core.layouts import adopt

__all__ = ["ArrayModule"]

# types with an atomic of CuPy's, by ufunc; others go through the type named by `_wider`
_ATOMICS = {
    "add": frozenset(["int32", "int64", "uint32", "uint64", "float16", "float32", "float64"]),
    "maximum": frozenset(["int32", "int64", "uint32", "uint64"]),
    "minimum": frozenset(["int32", "int64", "uint32", "uint64"]),
    "multiply": frozenset(),
}
_WIDER = {
    "bool": "int32",
    "int8": "int32",
    "int16": "int32",
    "uint8": "int32",
    "uint16": "int32",
    "float16": "float32",
    "bfloat16": "float32",
}

_KEYS = {"float32": "int32", "float64": "int64"}  # whole numbers of the same size


def _mirrored(xp: Any, keys: Any) -> Any:
    """Bits of floats as whole numbers in the order of the floats; the same again leads back."""
    return xp.where(keys < 0, keys ^ np.iinfo(keys.dtype).max, keys)


# functions whose result is on the current device, whatever their operands
_MAKERS = (
    "arange",
    "array",
    "asarray",
    "ascontiguousarray",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
    "concatenate",
    "stack",
    "where",
)


def _made_inside(inside: Any, function: Any) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        with inside():
            return function(*args, **kwargs)

    return make


class ArrayModule:
    """CuPy's names; those of `_Ufunc`, `asarray` and `array` are the engine's."""

    def __init__(self, library: Any, backend: Any, inside: Any = None) -> None:
        """inside(): a context of the device on which arrays are made; None: the current one."""
        self._library, self.backend = library, backend
        if inside is not None:
            for name in _MAKERS:
                setattr(self, name, _made_inside(inside, getattr(self, name)))
        for name in ("add", "subtract", "multiply", "maximum", "minimum", "logaddexp"):
            setattr(self, name, _Ufunc(self, getattr(library, name), name))
        self.ndarray = library.ndarray
        self.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=self._as_strided))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._library, name)
        if not name.startswith("__"):
            setattr(self, name, found)
        return found

    def asarray(self, a: Any, dtype: Any = None, **options: Any) -> Any:
        """cupy.asarray; a number is filled in by a kernel."""
        if isinstance(a, bool | int | float | complex | np.generic):
            dtype = np.asarray(a).dtype if dtype is None else dtype
            return self._library.full((), a.item() if isinstance(a, np.generic) else a, dtype)
        return self._library.asarray(a, dtype, **options)

    def product(self, a: Any, b: Any) -> Any:
        """a @ b by cublasLt; None where that does not serve."""
        if a.ndim > 1 and b.ndim > 1:
            return blaslt.matmul(self, a, b) if blaslt.serves(a, b) else None
        if a.ndim == 2 and b.ndim == 1 and blaslt.serves(a, column := b[:, None]):
            return blaslt.matmul(self, a, column)[:, 0]
        if a.ndim == b.ndim == 1 and blaslt.serves(row := a[None], column := b[:, None]):
            return blaslt.matmul(self, row, column)[0, 0]
        if a.ndim == 1 and b.ndim == 2 and blaslt.serves(row := a[None], b):
            return blaslt.matmul(self, row, b)[0]
        return None

    def matmul(self, a: Any, b: Any, out: Any = None) -> Any:
        """cupy.matmul; by cublasLt, where that serves."""
        if blaslt.serves(a, b):
            return blaslt.matmul(self, a, b, out)
        common = np.result_type(a.dtype, b.dtype)
        if a.dtype != b.dtype or (common.kind in "fV" and common.itemsize == 2):  # CuPy has no batches of 16 bits
            wide = np.dtype("float32") if common.kind in "fV" and common.itemsize == 2 else common
            made = self.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False)).astype(common, copy=False)
            if out is None:
                return made
            out[...] = made
            return out
        return self._library.matmul(a, b) if out is None else self._library.matmul(a, b, out=out)

    def where(self, condition: Any, *choices: Any) -> Any:
        """cupy.where; of bfloat16 it gives float32, having no loop for that type."""
        found = self._library.where(condition, *choices)
        kinds = [c.dtype for c in choices if hasattr(c, "dtype")]
        if kinds and all(k.kind == "V" for k in kinds) and not any(isinstance(c, complex) for c in choices):
            return found.astype(kinds[0], copy=False)
        return found

    def concatenate(self, arrays: Any, axis: int = 0, **options: Any) -> Any:
        """cupy.concatenate; part by part in a capture, where CuPy would copy a list of addresses from the host."""
        if options or axis is None or not runtime.capturing():
            return self._library.concatenate(arrays, axis, **options)
        axis %= arrays[0].ndim
        begins = [0]
        for a in arrays:
            begins.append(begins[-1] + a.shape[axis])
        shape = (*arrays[0].shape[:axis], begins[-1], *arrays[0].shape[axis + 1 :])
        types = {a.dtype for a in arrays}
        made = self._library.empty(shape, types.pop() if len(types) == 1 else self._library.result_type(*arrays))
        for a, begin, end in zip(arrays, begins, begins[1:]):
            made[(slice(None),) * axis + (slice(begin, end),)] = a
        return made

    def stack(self, arrays: Any, axis: int = 0) -> Any:
        """cupy.stack, as `concatenate`."""
        axis %= arrays[0].ndim + 1
        return self.concatenate([self._library.expand_dims(a, axis) for a in arrays], axis)

    def _as_strided(self, x: Any, shape: Any = None, strides: Any = None) -> Any:
        """cupy.lib.stride_tricks.as_strided; the engine knows whose memory the result shows."""
        return adopt(self._library.lib.stride_tricks.as_strided(x, shape, strides), x)

    def array(self, a: Any, dtype: Any = None, **options: Any) -> Any:
        """cupy.array, as `asarray`."""
        if not options and isinstance(a, bool | int | float | complex | np.generic):
            return self.asarray(a, dtype)
        return self._library.array(a, dtype, **options)


class _Ufunc:
    """A ufunc of CuPy's with all of numpy's methods that the ops call."""

    def __init__(self, xp: ArrayModule, ufunc: Any, name: str) -> None:
        self._xp, self._ufunc, self._name = xp, ufunc, name
        self.nin, self.nout = 2, 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ufunc(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ufunc, name)

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Over one dim or several."""
        if self._name in ("add", "multiply"):
            return self._ufunc.reduce(array, axis, dtype, out, keepdims)
        if self._name == "logaddexp":
            raise NotImplementedError("logaddexp.reduce: ops use logsumexp")
        found = (array.max if self._name == "maximum" else array.min)(axis, keepdims=keepdims)
        return found if dtype is None else found.astype(dtype)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None) -> Any:
        """Running results along a dim: log2(n) steps, each joining runs of twice the length."""
        if self._name in ("add", "multiply"):
            return self._ufunc.accumulate(array, axis, dtype)
        found = array.copy() if dtype is None else array.astype(dtype)
        lines = found if axis in (found.ndim - 1, -1) else found.swapaxes(axis, -1)
        step = 1
        while step < lines.shape[-1]:
            lines[..., step:] = self._ufunc(lines[..., step:], lines[..., :-step])
            step *= 2
        return found

    def reduceat(self, array: Any, indices: Any, axis: int = 0) -> Any:
        """Over runs of a dim, 16-bit floats in float32: CuPy's running sum does not compile for bfloat16."""
        if array.dtype.kind in "fV" and array.dtype.itemsize == 2:
            return self._ufunc.reduceat(array.astype("float32"), indices, axis).astype(array.dtype)
        return self._ufunc.reduceat(array, indices, axis)

    def at(self, array: Any, indices: Any, values: Any = None) -> None:
        """array[indices] = ufunc(array[indices], values), each index as often as it occurs."""
        name = array.dtype.name
        if self._name == "subtract":  # only of two integer types in CuPy
            self._xp.add.at(array, indices, -values)
        elif name in _ATOMICS[self._name]:
            self._ufunc.at(array, indices, values)
        elif self._name == "multiply":
            self._in_rounds(array, indices, values)
        elif name in _KEYS and self._name != "add":
            self._by_keys(array, indices, values)
        elif array.dtype.kind == "c":  # sums of both parts
            values = self._xp.asarray(values, array.dtype)
            self.at(array.real, indices, values.real)
            self.at(array.imag, indices, values.imag)
        else:
            wide = array.astype(_WIDER[name])
            if hasattr(values, "astype"):
                values = values.astype(wide.dtype)
            self.at(wide, indices, values)
            array[...] = wide.astype(bool) if name == "bool" else wide

    def _by_keys(self, array: Any, indices: Any, values: Any) -> None:
        """The extreme of floats as that of whole numbers in the same order; NaN is the extreme of all, as in torch."""
        keys = self._keys(array)
        self._ufunc.at(keys, indices, self._keys(self._xp.asarray(values, array.dtype)))
        array[...] = _mirrored(self._xp, keys).view(array.dtype)

    def _keys(self, floats: Any) -> Any:
        xp = self._xp
        key = np.dtype(_KEYS[floats.dtype.name])
        limits = np.iinfo(key)
        keys = _mirrored(xp, xp.ascontiguousarray(floats).reshape(floats.shape).view(key))
        return xp.where(floats != floats, key.type(limits.max if self._name == "maximum" else limits.min), keys)

    def _in_rounds(self, array: Any, indices: Any, values: Any) -> None:
        """Every index once a round: its k-th occurrence in round k."""
        xp = self._xp
        parts = indices if isinstance(indices, tuple) else (indices,)
        numbers = xp.arange(array.size).reshape(array.shape)[parts]
        shape = numbers.shape
        flat = numbers.reshape(-1)
        if not flat.size:
            return
        values = xp.broadcast_to(xp.asarray(values, array.dtype), shape).reshape(-1)
        order = xp.argsort(flat, kind="stable")
        ordered = flat[order]
        positions = xp.arange(flat.size)
        begins = xp.searchsorted(ordered, ordered)
        rank = positions - begins
        cells = array if array.flags.c_contiguous else array.copy()
        line = cells.reshape(-1)
        for k in range(int(rank.max()) + 1):
            chosen = rank == k
            at = ordered[chosen]
            line[at] = line[at] * values[order[chosen]]
        if cells is not array:
            array[...] = cells
