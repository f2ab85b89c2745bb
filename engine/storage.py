"""Storage: the flat memory behind tensors.

Note [Storage]
A tensor holds an array (strides over memory that numpy or CuPy owns); its Storage is made when somebody asks.
The owner of the memory is the root of the array's chain of `.base`; one Storage exists for a root as long as
anyone holds it, so two tensors that share memory share `storage()` as well.  An owner other than an array (shared
memory, a mapped file) stands behind the root array as its buffer, so nothing here depends on its kind.

Note [Tensors of a storage]
Memory that moves (`share_memory_`) takes the tensors over it along.  A tensor that is alone with its memory is known at
once.  For others a root array knows its tensors by its list of weak references: every new tensor over old memory puts
a `_Seen` of its root there, which goes when the tensor goes.  That costs a view a third of its time, so it begins with
the first storage that moves while several tensors look at it: the one time when all objects of the process are walked.
"""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine import backends, dtypes
from engine.device import device
from engine.layouts import over_buffer

__all__ = ["Storage", "TypedStorage", "UntypedStorage", "registered", "root_of"]


class Registered:
    """What a higher layer does for storages; `engine/__init__.py` registers it.

    share(memory, tensor=None): move the memory, and every tensor over it, to where other processes can map it.
    """

    begin_following: Callable[[], None]  # the ops that give views are to call `follow` from now on
    share: Callable[..., None]


registered = Registered()


def root_of(array: Any) -> Any:
    """The array that owns the memory `array` looks at."""
    while True:
        base = array.base
        if base is None or type(base) is not type(array):
            return array
        array = base


class Following:
    """Whether root arrays know their tensors: Note [Tensors of a storage]."""

    on = False


following = Following()
_ref = weakref.ref


class _Seen(weakref.ref):  # type: ignore[type-arg]
    """Of a root array: a tensor looks at it."""

    __slots__ = ("tensor",)
    tensor: weakref.ref[Any]


def follow(tensor: Any, array: Any) -> None:
    """Let the root of `array`, which `tensor` looks at, know it."""
    if isinstance(array, np.ndarray):
        base = array.base
        root = array if type(base) is not type(array) else base if type(base.base) is not type(base) else root_of(base)
        seen = tensor._seen = _Seen(root)
        seen.tensor = _ref(tensor)


def follow_both(made: Any, source: Any) -> None:
    """Let the root know two tensors over the same memory."""
    follow(made, made.__dict__.get("_array"))  # not by name: an uninitialised one refuses to be read
    follow(source, source.__dict__.get("_array"))


def begin_following(kind: type) -> None:
    """From now on every root array knows its tensors (instances of `kind`)."""
    if following.on:
        return
    following.on = True
    registered.begin_following()
    for found in gc.get_objects():
        if isinstance(found, kind) and "_array" in found.__dict__:
            follow(found, found.__dict__["_array"])


def tensors_over(root: Any) -> list[Any]:
    """The tensors that look at the memory of `root`.  `begin_following` must have been called."""
    found: dict[int, Any] = {}
    for seen in weakref.getweakrefs(root):
        tensor = seen.tensor() if type(seen) is _Seen else None
        for one in () if tensor is None else (tensor, tensor._base):
            if one is not None and "_array" in one.__dict__ and root_of(one.__dict__["_array"]) is root:
                found[id(one)] = one
    return list(found.values())


_alive: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


class Memory:
    """One block of memory: its root array, seen as bytes."""

    __slots__ = ("__weakref__", "root")

    def __init__(self, root: Any) -> None:
        self.root = root

    def __reduce__(self) -> tuple[Any, ...]:
        flat = backends.of_array(self.root).to_host(self.flat(dtypes.uint8))
        return _rebuild_memory, (
            flat.tobytes(),
            str(backends.of_array(self.root).device_of(self.root)),
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        return Memory.of(backends.xp_of(self.root).array(self.flat(dtypes.uint8)))

    @staticmethod
    def of(array: Any) -> Memory:
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
        """Whether other processes can map it: Note [Shared storages] in multiprocessing/reductions.py."""
        return getattr(self.root.base, "shared", False) is True

    def flat(self, dtype: dtypes.dtype) -> Any:
        """The memory as a 1-d array of `dtype`; shares memory."""
        np_dtype = dtypes.to_numpy(dtype)
        count = self.nbytes // np_dtype.itemsize
        root = self.root
        flags = root.flags
        if flags.c_contiguous:
            flat = root.reshape(-1)
        elif flags.f_contiguous:
            flat = root.T.reshape(-1)
        else:  # a strided root (an array handed in by the user): its own block from the first element on
            return backends.xp_of(root).ascontiguousarray(root).reshape(-1)
        if flat.dtype == np_dtype:
            return flat
        return flat.view(np.uint8)[: count * np_dtype.itemsize].view(np_dtype)

    def strided(self, dtype: dtypes.dtype, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
        """A view as by `strided`, on a GPU that need not be the current one."""
        backend = backends.of_array(self.root)
        with backend.inside(backend.device_of(self.root)):
            return strided(self.flat(dtype), size, stride, offset)


def memory_of(tensor: Any) -> Memory:
    """The Memory behind a tensor, which is to know it."""
    if following.on:
        follow(tensor, tensor._array)
    return Memory.of(tensor._array)


def relocate(memory: Memory, root: Any) -> None:
    """Let `memory` be that of another root array, which has the same bytes."""
    _alive.pop(id(memory.root), None)
    memory.root = root
    _alive[id(root)] = memory


def _rebuild_memory(data: bytes, where: str) -> Memory:
    array = np.frombuffer(bytearray(data), np.uint8) if data else np.zeros(0, np.uint8)
    target = device(where)
    return Memory.of(array if target.type == "cpu" else backends.of_device(target).from_host(array, target))


def strided(array: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
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
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` bytes of a file, mapped into memory; what is written reaches it only if `shared`."""
        if not nbytes:
            return cls(0)
        if shared:
            with open(filename, "ab") as file:
                if os.fstat(file.fileno()).st_size < nbytes:  # of the file that is open: it is never cut off
                    file.truncate(nbytes)
        root = np.asarray(np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,)))
        return cls(Memory.of(root))

    def _flat(self) -> Any:
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
        """Bytes an element."""
        return self._dtype.itemsize

    @property
    def device(self) -> device:
        """Where the memory is."""
        return backends.of_array(self._memory.root).device_of(self._memory.root)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def is_shared(self) -> bool:
        """Whether other processes can map this memory."""
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

    def __setitem__(self, index: Any, value: Any) -> None:
        self._flat()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def fill_(self, value: Any) -> UntypedStorage:
        """Set every element."""
        self._flat()[...] = value
        return self

    def copy_(self, source: UntypedStorage) -> UntypedStorage:
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
        return f" {body}\n[{type(self).__name__}(device={self.device}) of size {self.size()}]"


class _Part(UntypedStorage):
    """A slice of an UntypedStorage, over the same memory."""

    def __init__(self, whole: UntypedStorage, start: int, stop: int) -> None:
        super().__init__(whole._memory)
        self._bytes = whole._flat()[start:stop]

    def _flat(self) -> Any:
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


class Storage(UntypedStorage):
    """The elements behind a tensor, typed: what `Tensor.storage()` gives."""

    def __init__(self, memory: Memory | int = 0, dtype: dtypes.dtype | None = None) -> None:
        self._dtype = dtypes.get_default_dtype() if dtype is None else dtype
        super().__init__(memory * self._dtype.itemsize if isinstance(memory, int) else memory)

    @property
    def dtype(self) -> dtypes.dtype:
        return self._dtype

    def __repr__(self) -> str:
        body = "\n ".join(str(v) for v in self.tolist())
        kind = f"torch.storage.TypedStorage(dtype={self._dtype!r}, device={self.device})"
        return f" {body}\n[{kind} of size {self.size()}]"


TypedStorage = Storage
