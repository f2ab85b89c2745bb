"""The device `meta`: tensors of shape and dtype without values.

A `MetaArray` holds a numpy array whose strides are all 0, so it takes a few bytes whatever its shape.  An operation on
it is the one of numpy, whose result gives up its memory at once; what is written to a MetaArray is lost.  So shapes,
dtypes and errors are those of the CPU, each at the cost of the computation there; models are built without memory and
without drawing values, which is what it is for.  Strides are told as those of a contiguous array, also of views.
A kernel that reads values (a check of indices, LAPACK) runs again on arrays of harmless ones: 0 (or 1) for integers,
an identity for square matrices, 0.5 else.  Where the shape of the result follows from values that is an error, as in
torch.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

from engine.backends import Backend
from engine.core.device import device

__all__ = ["Meta", "MetaArray"]

META = device("meta")


def _hollow(shape: Any, dtype: Any) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


_UNKNOWN = (
    "aten::{}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel registered "
    "for this operator. The shape of its result depends on values."
)


class ValuesAsked(RuntimeError):
    """Values of a MetaArray were asked for."""


def _harmless(value: Any, whole: int) -> Any:
    """An array of the same shape and dtype whose values no kernel objects to; few bytes whatever the shape."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)([_harmless(v, whole) for v in value])
    if not isinstance(value, MetaArray):
        return value
    shape, dtype = value._held.shape, value._held.dtype
    if dtype.kind in "biu":
        return np.broadcast_to(np.full((), whole, dtype), shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        return np.broadcast_to(np.eye(shape[-1], dtype=dtype), shape)
    return np.broadcast_to(np.full((), 0.5, dtype), shape)


class MetaArray:
    """Shape and dtype; behaves like an array whose values nobody reads."""

    __slots__ = ("__weakref__", "_held", "base")
    __array_ufunc__ = None  # numpy's operators give way
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, held: np.ndarray, base: Any = None) -> None:
        self._held, self.base = held, base

    @property
    def shape(self) -> tuple[int, ...]:
        return self._held.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        self._held = _hollow(np.empty(0).reshape(0).shape if shape is None else shape, self._held.dtype)

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in bytes of a contiguous array of this shape."""
        found, step = [], self._held.dtype.itemsize
        for size in reversed(self._held.shape):
            found.append(step)
            step *= max(size, 1)
        return tuple(reversed(found))

    @property
    def flags(self) -> Any:
        """The flags of a contiguous array."""
        return np.empty(0).flags

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (0, False), "shape": self.shape, "strides": self.strides}

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert meta device type tensor to numpy")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._held, name)
        return _wrapped(value) if isinstance(value, types.BuiltinMethodType | types.MethodType) else _out(value)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> MetaArray:
        return MetaArray(_hollow(self._held.shape, dtype))

    def copy(self, *args: Any) -> MetaArray:
        return MetaArray(self._held)

    def view(self, dtype: Any = None) -> MetaArray:
        if dtype is None:
            return MetaArray(self._held, self)
        before, after = self._held.dtype.itemsize, np.dtype(dtype).itemsize
        shape = self._held.shape
        if before != after:
            shape = (*shape[:-1], shape[-1] * before // after)
        return MetaArray(_hollow(shape, dtype), self)

    def fill(self, value: Any) -> None:
        """Nothing."""

    def __getitem__(self, index: Any) -> Any:
        return _out(self._held[_in(index)], self)

    def __setitem__(self, index: Any, value: Any) -> None:
        _ = self._held[_in(index)].shape  # an index that does not fit is an error

    def nonzero(self) -> Any:
        """Not known: an error."""
        raise NotImplementedError(_UNKNOWN.format("nonzero"))

    def __len__(self) -> int:
        return len(self._held)

    def _nothing(self, *_: Any) -> Any:
        raise ValuesAsked("Tensor.item() cannot be called on meta tensors")

    __bool__ = __int__ = __float__ = __index__ = __complex__ = item = tolist = tobytes = _nothing


def _in(value: Any) -> Any:
    if isinstance(value, MetaArray):
        return value._held
    if isinstance(value, tuple):
        return tuple(_in(v) for v in value)
    if isinstance(value, list):
        return [_in(v) for v in value]
    return value


def _out(value: Any, base: Any = None) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return MetaArray(_hollow(value.shape, value.dtype), base)
    if isinstance(value, list):
        return [_out(v) for v in value]
    if isinstance(value, tuple) and any(isinstance(v, np.ndarray | np.generic) for v in value):
        return type(value)(*map(_out, value)) if hasattr(value, "_fields") else tuple(map(_out, value))
    return value


def _elementwise(function: Any) -> Any:
    """A function of elements, at the cost of one: shapes broadcast, the dtype is that of single elements."""

    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            return out[0] if isinstance(out, tuple) else out
        shape = np.broadcast_shapes(*(np.shape(_in(a)) for a in args))
        ones = [_hollow((1,) * a.ndim, a.dtype) if isinstance(a, MetaArray) else a for a in args]
        with np.errstate(all="ignore"):
            found = function(*ones, **kwargs)
        if found is NotImplemented:
            return found
        if isinstance(found, tuple):
            return tuple(MetaArray(_hollow(shape, part.dtype)) for part in found)
        return MetaArray(_hollow(shape, found.dtype))

    return call


def _wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        into = kwargs.pop("out", None)
        with np.errstate(all="ignore"):
            result = _out(function(*map(_in, args), **{k: _in(v) for k, v in kwargs.items()}))
        return result if into is None else into[0] if isinstance(into, tuple) else into

    return call


for _name in ("matmul", "rmatmul"):
    setattr(MetaArray, f"__{_name}__", (lambda n: lambda self, x: _out(getattr(self._held, n)(_in(x))))(f"__{_name}__"))
for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor rxor lshift "
    "rlshift rshift rrshift lt le gt ge eq ne neg pos abs invert divmod"
).split():
    _by_element = _elementwise(lambda x, *more, _n=f"__{_name}__": getattr(x, _n)(*more))
    setattr(MetaArray, f"__{_name}__", (lambda f: lambda self, *more: f(self, *more))(_by_element))
for _name in "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split():
    setattr(MetaArray, f"__{_name}__", lambda self, other: self)


class _Ufunc:
    """A ufunc with its methods."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc, self._call = ufunc, (_elementwise if ufunc.signature is None else _wrapped)(ufunc)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return (lambda *args, **kwargs: None) if name == "at" else _wrapped(getattr(self._ufunc, name))


def _factory(shape: Any, dtype: Any = float, *args: Any, **kwargs: Any) -> MetaArray:
    return MetaArray(_hollow(shape, dtype))


def _full(shape: Any, value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> MetaArray:
    return MetaArray(_hollow(shape, np.asarray(_in(value)).dtype if dtype is None else dtype))


def _like(array: Any, *args: Any, dtype: Any = None, shape: Any = None, **kwargs: Any) -> MetaArray:
    return MetaArray(_hollow(array.shape if shape is None else shape, array.dtype if dtype is None else dtype))


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing, in the place of a function that writes into its first argument."""


class _Module:
    """numpy's names over MetaArrays."""

    ndarray = MetaArray
    empty = zeros = ones = staticmethod(_factory)
    full = staticmethod(_full)
    empty_like = zeros_like = ones_like = full_like = staticmethod(_like)
    copyto = put = putmask = place = put_along_axis = fill_diagonal = staticmethod(_nothing)

    def __init__(self, module: Any = np) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, types.ModuleType):
            value = _Module(value)
        elif isinstance(value, np.ufunc):
            value = _Ufunc(value)
        elif callable(value) and not isinstance(value, type):
            value = _wrapped(value)
        setattr(self, name, value)
        return value


class Meta(Backend):
    """The backend of `MetaArray`."""

    def __init__(self) -> None:
        super().__init__("meta", _Module(), MetaArray)
        self.xp.backend = self  # whose `kernel` calls of ops go through

    def device_of(self, array: Any) -> device:
        return META

    def from_host(self, array: np.ndarray, where: device, non_blocking: bool = False) -> MetaArray:
        return MetaArray(_hollow(array.shape, array.dtype))

    def item(self, array: MetaArray) -> Any:
        return array.item()

    def to_host(self, array: MetaArray, non_blocking: bool = False) -> np.ndarray:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def pointer(self, array: MetaArray) -> int:
        return 0

    def kernel(self, function: Any) -> Any:
        """The kernel, with harmless values where it reads some."""
        if getattr(function, "size_by_values", False):

            def refuse(*args: Any, **kwargs: Any) -> Any:
                raise NotImplementedError(_UNKNOWN.format(function.__name__))

            return refuse

        @functools.wraps(function)
        def call(xp: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return function(xp, *args, **kwargs)
            except NotImplementedError:  # what leaves the device
                raise
            except Exception as error:
                failure = error  # a real one comes again
            for whole in (0, 1):
                try:
                    with np.errstate(all="ignore"):
                        given = {k: _harmless(v, whole) for k, v in kwargs.items()}
                        return _out(function(np, *(_harmless(a, whole) for a in args), **given))
                except Exception as error:
                    failure = failure if isinstance(error, ValuesAsked) else error
            raise failure

        return call
