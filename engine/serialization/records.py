"""Storages and strided views as checkpoints describe them, every bound checked before memory is touched."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import dtypes
from engine.encoded import float8

from .errors import Limits, UnpicklingError, shown

__all__ = [
    "ELEMENT_TYPES",
    "MAX_DIMS",
    "QUANTIZED",
    "STORAGE_NAMES",
    "Budget",
    "RawStorage",
    "numpy_dtype",
    "root_of",
    "sparse_of",
    "strided",
]

# torch's storage class -> element type.
STORAGE_NAMES = {
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "UntypedStorage": "uint8",
    "_UntypedStorage": "uint8",
}
QUANTIZED = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
ELEMENT_TYPES = frozenset(d.name for d in dtypes.ALL) | float8.NAMES
_SYNONYMS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
_MAX_BYTES = 1 << 62
MAX_DIMS = 64


class Budget:
    """Bytes that one file may still make the reader allocate beyond its storages."""

    __slots__ = ("left", "total")

    def __init__(self, total: int) -> None:
        self.total = self.left = total

    def spend(self, nbytes: int) -> None:
        """Take `nbytes`; raises UnpicklingError when the file has asked for more than it may."""
        self.left -= nbytes
        if self.left < 0:
            raise UnpicklingError(f"the file would create more than {self.total} bytes of objects")

    def spend_on(self, storage: RawStorage, nbytes: int) -> None:
        """Take `nbytes` for a copy of a storage's elements in another form: one such copy is free for each storage."""
        if storage.copied:
            self.spend(nbytes)
            return
        storage.copied = True
        self.spend(nbytes - min(nbytes, 8 * storage.array.size))


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of torch's element type `name`; raises UnpicklingError if the engine lacks it."""
    name = _SYNONYMS.get(name, name)
    if name in QUANTIZED:
        return np.dtype(QUANTIZED[name])
    if name in float8.NAMES:
        return float8.numpy_dtype(name)
    if name not in ELEMENT_TYPES:
        raise UnpicklingError(f"the element type torch.{shown(name)} is not supported")
    return dtypes.to_numpy(getattr(dtypes, name))


class RawStorage:
    """One storage of a checkpoint.

    array: uint8 (nbytes,), writable, the root of all views on it.  name: element type.  location: torch's
    device tag (`cpu`, `cuda:0`).  swap: whether the bytes are in the other byte order; they are swapped at
    the first use, when the width of the elements is known.  moved: what a builder keeps per device.  copied: whether
    its elements were copied into another form.
    """

    __slots__ = ("array", "copied", "key", "location", "moved", "name", "swap")

    def __init__(self, array: np.ndarray, name: str, key: str, location: str = "cpu", swap: bool = False) -> None:
        self.array, self.name, self.key, self.location, self.swap = array, name, key, location, swap
        self.moved: Any = None
        self.copied = False

    def __repr__(self) -> str:
        return f"RawStorage({self.name}, key={self.key!r}, location={self.location!r}, nbytes={self.array.size})"

    @property
    def dtype(self) -> np.dtype:
        return numpy_dtype(self.name)

    def numpy(self) -> np.ndarray:
        """All whole elements as a 1-dimensional array (numel,) that shares the storage's memory."""
        dtype = self.dtype
        count = self.array.size // dtype.itemsize
        return strided(self, self.name, 0, (count,), (1,))

    def native(self, dtype: np.dtype) -> np.ndarray:
        """The bytes in this machine's order for elements of `dtype`; swapped in place of the first look."""
        if self.swap:
            unit = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
            if unit > 1:
                whole = self.array.size // unit * unit
                swapped = self.array[:whole].view(f"u{unit}")
                swapped.byteswap(inplace=True)
            self.swap = False
        return self.array


def root_of(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of `array`: the last one up the chain of bases."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _integers(values: Any, what: str) -> tuple[int, ...]:
    if type(values) is list:
        values = tuple(values)
    if not isinstance(values, tuple) or not all(type(v) is int for v in values):
        raise UnpicklingError(f"a tensor's {what} is not a tuple of integers")
    return values


def strided(
    storage: RawStorage, name: str, offset: Any, size: Any, stride: Any, limits: Limits = Limits()
) -> np.ndarray:
    """The view `size`, `stride` (elements) at `offset` (elements) of a storage, sharing its memory.

    size (n1, ..., nk), stride (s1, ..., sk) -> array (n1, ..., nk).  Raises UnpicklingError if any number is
    negative, absurd, or reaches outside the storage: nothing is ever read beyond it.
    """
    dtype = numpy_dtype(name)
    size, stride = _integers(size, "size"), _integers(stride, "stride")
    if type(offset) is not int or offset < 0:
        raise UnpicklingError(f"a tensor has the storage offset {shown(offset)}")
    if len(size) != len(stride):
        raise UnpicklingError(f"a tensor has {len(size)} sizes but {len(stride)} strides")
    if len(size) > MAX_DIMS:
        raise UnpicklingError(f"a tensor has {len(size)} dimensions, more than {MAX_DIMS}")
    width, nbytes = dtype.itemsize, storage.array.size
    numel, extent, last = 1, 1, offset
    for n, s in zip(size, stride):
        if n < 0 or s < 0:
            raise UnpicklingError(f"a tensor has a negative size or stride ({shown(n)}, {shown(s)})")
        numel *= n
        extent *= n or 1
        last += (n - 1) * s
        if extent > _MAX_BYTES:
            raise UnpicklingError(f"a tensor declares the absurd size {shown(size)}")
    if extent * width > _MAX_BYTES:
        raise UnpicklingError(f"a tensor declares the absurd size {shown(size)}")
    if numel == 0:
        return np.empty(size, dtype)
    if (last + 1) * width > nbytes:
        raise UnpicklingError(
            f"a tensor of size {shown(size)}, stride {shown(stride)}, offset {shown(offset)} reaches outside its "
            f"storage of {nbytes} bytes"
        )
    if numel * width > nbytes and numel > limits.expanded:
        raise UnpicklingError(f"a tensor repeats its storage of {nbytes} bytes to the size {shown(size)}")
    steps = [s * width if n > 1 else min(s, nbytes) * width for n, s in zip(size, stride)]
    return np.ndarray(size, dtype, storage.native(dtype), offset * width, steps)


def sparse_of(resolver: Any, layout: Any, data: Any) -> Any:
    """The sparse tensor of its parts, made by the resolver's builder.

    data: (indices, values, size, coalesced) of `torch.sparse_coo`, (crow, columns, values, size) of `torch.sparse_csr`.
    UnpicklingError for anything else, and for a builder that makes arrays.
    """
    make = getattr(resolver.builder, "sparse", None)
    if make is None:
        raise UnpicklingError("the file contains sparse tensors, which are not supported")
    count = {"torch.sparse_coo": 2, "torch.sparse_csr": 3}.get(layout if type(layout) is str else "", 0)
    if not count or type(data) is not tuple or len(data) not in (count + 1, count + 2):
        raise UnpicklingError(f"the parts of sparse tensors of the layout {shown(layout)} do not fit")
    size = data[count]
    if not isinstance(size, tuple) or any(type(n) is not int or not 0 <= n < 1 << 62 for n in size):
        raise UnpicklingError(f"sparse tensors have the size {shown(size)}")
    parts = [resolver.tensor_of(part) for part in data[:count]]
    return make(count == 3, parts, tuple(size), data[count + 1 :] == (True,))
