"""Storage: the flat memory behind tensors.

A tensor holds an array (strides over memory that numpy or CuPy owns); its Storage is made when somebody asks.
The owner of the memory is the root of the array's chain of `.base`; one Storage exists for a root as long as
anyone holds it, so two tensors that share memory share `storage()` as well.  An owner other than an array (shared
memory, a mapped file) stands behind the root array as its buffer, so nothing here depends on its kind.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from engine import backends
from engine.core import dtypes
from engine.core.device import device
from engine.core.layouts import over_buffer, root_of
from engine.core.storage_tensors import (  # noqa: F401
    begin_following,
    follow,
    follow_both,
    following,
    move_tensors,
    registered,
    tensors_over,
)
from engine.core.tensor_messages import warn_of_typed_storage

if TYPE_CHECKING:
    Where: TypeAlias = device | str | int
    from engine.core.arrays import Array
    from engine.tensor import Tensor

__all__ = ["Storage", "TypedStorage", "UntypedStorage", "registered", "root_of"]


_alive: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


class Memory:
    """One block of memory: its root array, seen as bytes."""

    __slots__ = ("__weakref__", "root")

    def __init__(self, root: Array) -> None:
        self.root = root

    def __reduce__(self) -> tuple[object, ...]:
        flat = backends.of_array(self.root).to_host(self.flat(dtypes.uint8))
        return _rebuild_memory, (
            flat.tobytes(),
            str(backends.of_array(self.root).device_of(self.root)),
        )

    def __deepcopy__(self, memo: dict[int, object]) -> Memory:
        return Memory.of(backends.xp_of(self.root).array(self.flat(dtypes.uint8)))

    @staticmethod
    def of(array: Array) -> Memory:
        """The Memory behind `array`, one object for all arrays that share it."""
        root = root_of(array)
        found = _alive.get(id(root))
        if found is None or found.root is not root:
            found = _alive[id(root)] = Memory(root)
        return found

    @property
    def nbytes(self) -> int:
        return int(self.root.nbytes)

    @property
    def pointer(self) -> int:
        return backends.of_array(self.root).pointer(self.root)

    @property
    def is_shared(self) -> bool:
        """Return whether other processes can map it: Note [Shared storages] in multiprocessing/reductions.py."""
        return getattr(self.root.base, "shared", False) is True

    def flat(self, dtype: dtypes.dtype) -> Array:
        """The memory as a 1-d array of `dtype`; shares memory."""
        np_dtype = dtypes.to_numpy(dtype)
        count = self.nbytes // np_dtype.itemsize
        root = self.root
        flags = root.flags
        if flags.c_contiguous:
            flat = root.reshape(-1)
        elif flags.f_contiguous:
            flat = root.T.reshape(-1)
        else:  # a strided root (an array of the user's): its own block from the first element on
            block: Array = backends.xp_of(root).ascontiguousarray(root)
            return block.reshape(-1)
        if flat.dtype == np_dtype:
            return flat
        return flat.view(np.uint8)[: count * np_dtype.itemsize].view(np_dtype)

    def strided(self, dtype: dtypes.dtype, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Array:
        """A view as by `strided`, on a GPU that need not be the current one."""
        backend = backends.of_array(self.root)
        with backend.inside(backend.device_of(self.root)):
            return strided(self.flat(dtype), size, stride, offset)


def memory_of(tensor: Tensor) -> Memory:
    """The Memory behind a tensor, which is to know it."""
    if following.on:
        follow(tensor, tensor._array)
    return Memory.of(tensor._array)


def relocate(memory: Memory, root: Array) -> None:
    """Let `memory` be that of another root array, which has the same bytes."""
    _alive.pop(id(memory.root), None)
    memory.root = root
    _alive[id(root)] = memory


def resize(memory: Memory, nbytes: int) -> None:
    """Give `memory` another size; what both have is copied, and the tensors that fit follow it.

    A tensor that reaches beyond the new end stays with the old memory.  RuntimeError for memory that something else
    owns: other processes, a file, a GPU.
    """
    root = memory.root
    if nbytes == memory.nbytes:
        return
    if not isinstance(root, np.ndarray) or memory.is_shared or isinstance(root.base, np.memmap):
        raise RuntimeError("Trying to resize storage that is not resizable")
    old = memory.flat(dtypes.uint8)
    fresh = np.zeros(nbytes, np.uint8)
    kept = min(nbytes, old.size)
    fresh[:kept] = old[:kept]
    begin_following(registered.tensor)
    low = np.lib.array_utils.byte_bounds(root)[0] if root.size else 0
    over = [
        t
        for t in tensors_over(root)
        if not t._array.size or np.lib.array_utils.byte_bounds(t._array)[1] - low <= nbytes
    ]
    move_tensors(over, low, fresh)
    relocate(memory, fresh)


def _rebuild_memory(data: bytes, where: str) -> Memory:
    array = np.frombuffer(bytearray(data), np.uint8) if data else np.zeros(0, np.uint8)
    target = device(where)
    return Memory.of(array if target.type == "cpu" else backends.of_device(target).from_host(array, target))


def strided(array: Array, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Array:
    """A view of the memory behind `array`: sizes, strides and offset in elements of its dtype.

    Raises RuntimeError, as torch, when it would reach outside that memory.
    """
    dtype = dtypes.from_numpy(array.dtype)
    flat = Memory.of(array).flat(dtype)
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {list(stride)} and {list(size)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if any(s < 0 for s in size) or offset < 0:
        raise RuntimeError(f"as_strided: negative sizes or offset: size {list(size)}, storage_offset {offset}")
    item = dtype.itemsize
    reach = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
    if offset + reach > flat.size and reach:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {item} "
            f"requiring a storage size of {(offset + reach) * item} are out of bounds for storage of size "
            f"{flat.size * item}"
        )
    if reach == 0:
        return flat[:0].reshape(size)
    strides = tuple(s * item for s in stride)
    if isinstance(flat, np.ndarray):
        return over_buffer(flat, flat.dtype, size, strides, offset * item)
    return backends.xp_of(flat).lib.stride_tricks.as_strided(flat[offset:], size, strides)


class UntypedStorage:
    """The bytes behind a tensor: `nbytes()`, `data_ptr()`, `tolist()`, indexing by byte."""

    _dtype = dtypes.uint8

    def __init__(self, memory: Memory | int = 0) -> None:
        if isinstance(memory, int):
            memory = Memory.of(np.zeros(memory, np.uint8))
        self._memory = memory

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """Return the first `nbytes` bytes of a file, mapped into memory.

        If `shared`, what is written reaches the file, which is made or grown to that size first; else the file must be
        as large.  RuntimeError for one that is not, that cannot be opened, or that is no regular file.
        """
        return cls(_mapped(os.fspath(filename), shared, nbytes) if nbytes else 0)

    def _flat(self) -> Array:
        return self._memory.flat(self._dtype)

    def nbytes(self) -> int:
        """Size in bytes."""
        return self._memory.nbytes

    def size(self) -> int:
        """Number of elements (bytes for an untyped storage)."""
        return self._memory.nbytes // self._dtype.itemsize

    __len__ = size

    def data_ptr(self) -> int:
        """Address of the first byte."""
        return self._memory.pointer

    def element_size(self) -> int:
        """Bytes per element."""
        return self._dtype.itemsize

    @property
    def device(self) -> device:
        """The device of the memory."""
        return backends.of_array(self._memory.root).device_of(self._memory.root)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    is_hpu = is_sparse = is_sparse_csr = False

    @property
    def filename(self) -> str | None:
        """The file that `from_file` mapped, or None."""
        found = getattr(self._memory.root.base, "filename", None)
        return None if found is None else str(found)

    def get_device(self) -> int:
        """The number of the GPU; -1 on the CPU."""
        index = self.device.index
        return -1 if index is None else index

    def is_pinned(self, device: Where = "cuda") -> bool:
        """Return whether the memory is page-locked, for copies to the GPU that need not wait."""
        return bool(backends.is_pinned(self._memory.root))

    def pin_memory(self, device: Where = "cuda") -> UntypedStorage:
        """A copy in page-locked memory.  RuntimeError without a GPU."""
        return self._moved(lambda tensor: tensor.pin_memory())

    def cpu(self) -> UntypedStorage:
        """This storage, or a copy of it on the CPU."""
        return self.to(device("cpu"))

    def cuda(self, device: Where | None = None, non_blocking: bool = False) -> UntypedStorage:
        """This storage, or a copy of it on a GPU, the current one by default."""
        return self.to("cuda" if device is None else device, non_blocking)

    def to(self, device: Where, non_blocking: bool = False) -> UntypedStorage:
        """This storage, or a copy of it on a device."""
        return self._moved(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def _moved(self, move: Callable[[Tensor], Tensor]) -> UntypedStorage:
        tensor = registered.tensor._from_array(self._flat())
        found = move(tensor)
        return self if found is tensor else self._over(Memory.of(found._array))

    def _over(self, memory: Memory) -> UntypedStorage:
        """Another storage of this kind."""
        return UntypedStorage(memory)

    def new(self, *args: int | Sequence[complex]) -> UntypedStorage:
        """Make a storage of this kind: empty, of a number of elements, or of a sequence of numbers."""
        source = args[0] if args else 0
        if isinstance(source, int):
            return self._over(Memory.of(np.zeros(source, dtypes.to_numpy(self._dtype))))
        return self._over(Memory.of(np.array(source, dtypes.to_numpy(self._dtype))))

    def resizable(self) -> bool:
        """Return whether `resize_` is possible."""
        root = self._memory.root
        return isinstance(root, np.ndarray) and not self.is_shared() and not isinstance(root.base, np.memmap)

    def resize_(self, size: int) -> None:
        """Change the number of elements.  Tensors over this storage follow it, if they fit.

        RuntimeError for storages that other processes, a file or a GPU own.
        """
        resize(self._memory, size * self._dtype.itemsize)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of its type, or with `dtype` (a class, its name, or a dtype) the storage as that type."""
        if dtype is None:
            return "torch.storage.UntypedStorage"
        wanted = registered.type_named(dtype.rpartition(".")[2]) if isinstance(dtype, str) else dtype
        element = wanted if isinstance(wanted, dtypes.dtype) else getattr(wanted, "dtype", None)
        if element is None:
            raise RuntimeError(f"Cannot convert a storage to type {dtype}")
        return self if type(self) is Storage and self._dtype is element else self._converted(element)

    def _converted(self, dtype: dtypes.dtype) -> Storage:
        """A typed storage with the elements converted to `dtype`."""
        return Storage(Memory.of(self._flat().astype(dtypes.to_numpy(dtype))), dtype)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def is_shared(self) -> bool:
        """Return whether other processes can map this memory."""
        return self.is_cuda or self._memory.is_shared

    def share_memory_(self) -> UntypedStorage:
        """Move the memory, and every tensor over it, to where other processes can map it; nothing on CUDA."""
        if not self.is_cuda:
            registered.share(self._memory)
        return self

    def tolist(self) -> list[Any]:
        """The elements as a list of Python numbers."""
        found: list[Any] = backends.of_array(self._memory.root).to_host(self._flat()).tolist()
        return found

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and type(self) is not Storage:
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
            return _Part(self, start, max(start, stop))
        found = self._flat()[index]
        return found.item() if getattr(found, "ndim", 0) == 0 else found.tolist()

    def __setitem__(self, index: int | slice, value: complex | Array) -> None:
        self._flat()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def fill_(self, value: complex) -> UntypedStorage:
        """Set every element."""
        self._flat()[...] = value
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool | None = None) -> UntypedStorage:
        """Copy the elements of another storage of the same length."""
        if len(source) != len(self):
            raise RuntimeError(
                f"size mismatch: cannot copy a storage of {len(source)} elements into one of {len(self)}"
            )
        self._flat()[...] = source._flat()
        return self

    def clone(self) -> UntypedStorage:
        """A copy with memory of its own."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        root = self._memory.root
        twin._memory = Memory.of(backends.xp_of(root).array(self._memory.flat(self._dtype)))
        return twin

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._memory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._memory is other._memory and self._dtype is other._dtype

    def __hash__(self) -> int:
        return hash((id(self._memory), self._dtype))

    @property
    def _cdata(self) -> int:
        return id(self._memory)

    def __repr__(self) -> str:
        body = "\n ".join(str(v) for v in self.tolist())
        return f" {body}\n[torch.storage.UntypedStorage(device={self.device}) of size {self.size()}]"


class _Part(UntypedStorage):
    """A slice of an UntypedStorage, over the same memory."""

    def __init__(self, whole: UntypedStorage, start: int, stop: int) -> None:
        super().__init__(whole._memory)
        self._bytes = whole._flat()[start:stop]

    def _flat(self) -> Array:
        return self._bytes

    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self._bytes.size)

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Address of the first byte."""
        return backends.of_array(self._bytes).pointer(self._bytes)

    def clone(self) -> UntypedStorage:
        """A copy with memory of its own."""
        return UntypedStorage(Memory.of(backends.xp_of(self._bytes).array(self._bytes)))


class TypedStorage(UntypedStorage):
    """The elements behind a tensor, typed: what `Tensor.storage()` gives."""

    def __init__(self, memory: Memory | int = 0, dtype: dtypes.dtype | None = None) -> None:
        warn_of_typed_storage()
        self._dtype = dtypes.get_default_dtype() if dtype is None else dtype
        super().__init__(memory * self._dtype.itemsize if isinstance(memory, int) else memory)

    @property
    def dtype(self) -> dtypes.dtype:
        return self._dtype

    def _over(self, memory: Memory) -> Storage:
        return Storage(memory, self._dtype)

    def pickle_storage_type(self) -> str:
        """The name of its class in files of torch: `FloatStorage`."""
        return f"{dtypes.scalar_name(self._dtype)}Storage"

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of its type (`torch.FloatStorage`), or the storage as another type."""
        if dtype is None:
            return f"torch.{'cuda.' if self.is_cuda else ''}{self.pickle_storage_type()}"
        return super().type(dtype, non_blocking)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return super().__getitem__(index)

    def __repr__(self) -> str:
        body = "\n ".join(str(v) for v in self.tolist())
        kind = f"torch.storage.TypedStorage(dtype={self._dtype!r}, device={self.device})"
        return f" {body}\n[{kind} of size {self.size()}]"


def _mapped(filename: str, shared: bool, nbytes: int) -> Memory:
    try:
        found = os.stat(filename) if os.path.lexists(filename) or not shared else None
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise RuntimeError(f"<{filename}> is no regular file: only these can be mapped")
        if shared and (found is None or found.st_size < nbytes):
            with open(filename, "ab") as grown:
                grown.truncate(nbytes)
        elif found is not None and found.st_size < nbytes:
            raise RuntimeError(
                f"file <{filename}> size <{found.st_size}> is smaller than the required mapping size <{nbytes}>"
            )
        return Memory.of(np.asarray(np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))))
    except OSError as error:
        how = "read-write" if shared else "read-only"
        raise RuntimeError(
            f"unable to open file <{filename}> in {how} mode: {error.strerror} ({error.errno})"
        ) from error


def _conversion(name: str, dtype: dtypes.dtype) -> Callable[[UntypedStorage], Storage]:
    def convert(self: UntypedStorage) -> Storage:
        return self._converted(dtype)

    convert.__name__, convert.__doc__ = name, f"A storage with the elements converted to {dtype!r}."
    return convert


for _name, _dtype in {
    "double": dtypes.float64,
    "float": dtypes.float32,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "long": dtypes.int64,
    "int": dtypes.int32,
    "short": dtypes.int16,
    "char": dtypes.int8,
    "byte": dtypes.uint8,
    "bool": dtypes.bool,
    "complex_float": dtypes.complex64,
    "complex_double": dtypes.complex128,
}.items():
    setattr(UntypedStorage, _name, _conversion(_name, _dtype))

Storage = TypedStorage  # the name of torch 0.4 to 1.12
