"""Primitives: made once per geometry, cached by each thread as long as they are used, run on arrays.

A primitive is oneDNN's compiled kernel for one set of shapes, strides and attributes; making one costs 0.2 to 1 ms.
`primitive(key, make)` gives the cached one; `make()` returns a `Primitive` or raises `Unsupported`, which is
remembered as None.  Implementations called `ref` are refused: they are 1000 times slower than numpy.

Threads: the cache, the memory objects and the scratch memory belong to one thread, so concurrent calls share nothing
that is written to (cffi lets other threads run meanwhile).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu.packing import aligned
from engine.backends.onednn import _abi, library, placement
from engine.core.layouts import INNER, lies_channels_last

_MOST_PRIMITIVES = 1024  # primitives per thread
_FEW = 1 << 15  # elements, or 32 multiplications each, for which waking a second thread takes longer than they do
_MISSING = object()
_F32 = np.dtype("float32")


class Unsupported(Exception):
    """oneDNN has no fast kernel for this; the caller falls back to numpy."""


class _Context(threading.local):
    """The state of one thread: stream, primitives, scratch memory."""

    generation = -1

    def reset(self) -> None:
        """Begin anew: first use in this thread, other number of threads, or a forked child."""
        # After a fork nothing is destroyed: the handles are copies of the parent's.
        if library.state.forked and self.generation >= 0:
            _leaked.append(self.__dict__.copy())
        self.count = self.threads = library.thread_count()
        library.set_threads(self.count)
        self.generation = library.state.generation
        self.primitives: dict[Hashable, Any] = {}
        self.workspaces: dict[str, np.ndarray] = {}
        self.scratch: Any = None  # the address of workspace "scratch"
        self.scratch_size = 0
        self.stream = _create("dnnl_stream_create", library.state.engine, _abi.IN_ORDER)


_context = _Context()


def use_threads(work: float) -> int:
    """Take one thread for little work and all for more; how many that are.  `work`: elements, 32 products an element.

    A kernel is made for the number of threads that it is run on.
    """
    threads = 1 if work < _FEW else _context.count
    if threads != _context.threads:
        library.set_threads(threads)
        _context.threads = threads
    return threads


_leaked: list[Any] = []


def check(status: int, what: str) -> None:
    """Raise Unsupported for any status but success."""
    if status != 0:
        raise Unsupported(f"oneDNN: {what} gave status {status}")


def _create(name: str, *args: Any) -> Any:
    """The handle that a create function of the library stores through its first argument."""
    holder = library.state.ffi.new("void **")
    check(getattr(library.state.library, name)(holder, *args), name)
    return holder[0]


class Desc:
    """A memory descriptor: sizes, element strides (None: the layout is oneDNN's choice) and element type."""

    __slots__ = ("count", "handle", "owned")

    def __init__(self, shape: Sequence[int], strides: Sequence[int] | None, element: int = _abi.F32) -> None:
        self.count = prod(shape)
        if strides is None:
            self.handle = _create("dnnl_memory_desc_create_with_tag", len(shape), list(shape), element, _abi.ANY)
        else:
            self.handle = _create(
                "dnnl_memory_desc_create_with_strides", len(shape), list(shape), element, list(strides)
            )
        self.owned = True

    @classmethod
    def borrowed(cls, handle: Any) -> Desc:
        """A descriptor that belongs to a primitive descriptor."""
        result = object.__new__(cls)
        result.handle, result.owned, result.count = handle, False, 0
        return result

    @property
    def nbytes(self) -> int:
        return int(library.state.library.dnnl_memory_desc_get_size(self.handle))

    def same(self, other: Desc) -> bool:
        """Return whether both describe the same layout."""
        return bool(library.state.library.dnnl_memory_desc_equal(self.handle, other.handle))

    def __del__(self) -> None:
        if getattr(self, "owned", False) and library is not None:  # not made: its shape was refused
            library.state.library.dnnl_memory_desc_destroy(self.handle)


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    """Strides in elements; of a dim of size 1, where numpy's mean nothing, what a dense array would have."""
    if array.flags.c_contiguous:
        strides, step = [0] * array.ndim, 1
        for d in range(array.ndim - 1, -1, -1):
            strides[d] = step
            step *= array.shape[d]
        return tuple(strides)
    item = array.itemsize
    return tuple([s // item for s in array.strides])


BITS = np.dtype("uint16")  # what arrays of bfloat16 are here: numpy has no such type
_ELEMENTS = {BITS: _abi.BF16, np.dtype("int8"): _abi.S8}


def element_of(array: np.ndarray) -> int:
    """oneDNN's element type of an array."""
    return _ELEMENTS.get(array.dtype, _abi.F32)


def array_desc(array: np.ndarray) -> Desc:
    """The descriptor of an array as it is laid out."""
    return Desc(array.shape, strides_of(array), element_of(array))


def activation_desc(array: np.ndarray) -> Desc:
    """The descriptor of (N, C, *size); where dims of size 1 leave it open, that of channels-last memory."""
    if array.ndim > 2 and lies_channels_last(array):
        strides, step = [0] * array.ndim, 1
        for d in (1, *range(array.ndim - 1, 1, -1), 0):
            strides[d] = step
            step *= array.shape[d]
        return Desc(array.shape, strides, element_of(array))
    return array_desc(array)


def desc_of(shape: Sequence[int], strides: Sequence[int]) -> Desc:
    """A descriptor with given strides."""
    return Desc(shape, strides)


def null() -> Any:
    """The absent argument."""
    return library.state.ffi.NULL


def any_desc(shape: Sequence[int], element: int = _abi.F32) -> Desc:
    """A descriptor whose layout the primitive chooses."""
    return Desc(shape, None, element)


def attributes(post: Sequence[tuple] = (), scales: dict[int, int] | None = None) -> Any:
    """Attributes with the scratch memory ours, and post-ops: ("eltwise", algorithm, alpha, beta), ("sum", scale),
    ("binary", algorithm, Desc).  scales: arguments that are multiplied, each with the mask of dims that have numbers of
    their own."""
    lib = library.state.library
    attr = _create("dnnl_primitive_attr_create")
    lib.dnnl_primitive_attr_set_scratchpad_mode(attr, _abi.USER_SCRATCHPAD)
    for argument, mask in (scales or {}).items():
        check(lib.dnnl_primitive_attr_set_scales_mask(attr, argument, mask), "scales")
    if post:
        chain = _create("dnnl_post_ops_create")
        for kind, *values in post:
            if kind == "eltwise":
                status = lib.dnnl_post_ops_append_eltwise(chain, *values)
            elif kind == "sum":
                status = lib.dnnl_post_ops_append_sum(chain, values[0], 0, _abi.AS_RESULT)
            else:
                status = lib.dnnl_post_ops_append_binary(chain, values[0], values[1].handle)
            check(status, f"post-op {kind}")
        check(lib.dnnl_primitive_attr_set_post_ops(attr, chain), "post-ops")
        lib.dnnl_post_ops_destroy(chain)
    return library.state.ffi.gc(attr, lib.dnnl_primitive_attr_destroy)


class PrimitiveDesc:
    """A primitive descriptor: what a primitive would be.  `name` is `convolution_forward` and the like.

    `hint`: only asked for by the descriptor of a backward, so its own speed does not matter.  `reference`: what is
    called so is fast too (of recurrent layers it is made of products).  `work`: see `use_threads`; by default the
    elements of its largest memory.
    """

    def __init__(
        self, name: str, *args: Any, hint: bool = False, reference: bool = False, work: float | None = None
    ) -> None:
        if work is None:
            work = max((a.count for a in args if isinstance(a, Desc)), default=0)
        self.work = work
        use_threads(work)
        function = f"dnnl_{name}_primitive_desc_create"
        handles = [a.handle if isinstance(a, Desc | PrimitiveDesc) else a for a in args]
        if name == "reorder":
            handle = _create(function, *handles)
        else:
            handle = _create(function, library.state.engine, *handles)
        lib, ffi = library.state.library, library.state.ffi
        self.handle = ffi.gc(handle, lib.dnnl_primitive_desc_destroy)
        self.implementation = self._implementation()
        if self.implementation.startswith("ref") and not (hint or reference):
            raise Unsupported(f"oneDNN: {name} has only {self.implementation}")

    def _implementation(self) -> str:
        ffi = library.state.ffi
        text = ffi.new("char **")
        library.state.library.dnnl_primitive_desc_query(self.handle, _abi.IMPLEMENTATION, 0, ffi.cast("void *", text))
        return ffi.string(text[0]).decode()

    def desc(self, query: int, index: int = 0) -> Desc:
        """The descriptor of one of its memories."""
        return Desc.borrowed(library.state.library.dnnl_primitive_desc_query_md(self.handle, query, index))


class Primitive:
    """A kernel ready to run on memories of the layouts given: `descs` is {argument number: Desc} in call order."""

    __slots__ = (
        "_args",
        "_count",
        "_execute",
        "_memories",
        "_primitive",
        "_scratch",
        "_set",
        "_threads",
        "extra",
        "plan",
        "scratch",
        "used",
    )

    def __init__(self, plan: PrimitiveDesc, descs: dict[int, Desc], **extra: Any) -> None:
        lib, ffi = library.state.library, library.state.ffi
        self.plan, self.extra = plan, extra
        self.used = True
        self._threads = use_threads(plan.work)
        self._set, self._execute = lib.dnnl_memory_set_data_handle, lib.dnnl_primitive_execute
        self._primitive = ffi.gc(_create("dnnl_primitive_create", plan.handle), lib.dnnl_primitive_destroy)
        scratchpad = plan.desc(_abi.SCRATCHPAD_MD)
        self.scratch = scratchpad.nbytes
        numbers = [*descs, _abi.SCRATCHPAD] if self.scratch else list(descs)
        self._count = len(numbers)
        self._args = ffi.new("exec_arg_t[]", self._count)
        self._memories: list[Any] = []
        self._scratch: Any = None  # the address that the last memory has
        for i, number in enumerate(numbers):
            which = scratchpad if number == _abi.SCRATCHPAD else descs[number]
            memory = _create("dnnl_memory_create", which.handle, library.state.engine, ffi.NULL)
            self._memories.append(ffi.gc(memory, lib.dnnl_memory_destroy))
            self._args[i].arg, self._args[i].memory = number, memory

    def __call__(self, *pointers: Any) -> None:
        """Run on memory at these addresses, in the order of `descs`."""
        self.place(pointers)
        self.again()

    def place(self, pointers: Sequence[Any]) -> None:
        """Say where the memory is, in the order of `descs`."""
        place = self._set
        for memory, pointer in zip(self._memories, pointers):
            place(memory, pointer)

    def again(self, *_: Any) -> None:
        """Run on memory where it was said to be."""
        context = _context
        if context.threads != self._threads:
            library.set_threads(self._threads)
            context.threads = self._threads
        if self._threads > 1:
            placement.apart()
        if self.scratch:
            if context.scratch_size < self.scratch:
                context.scratch = address(workspace("scratch", self.scratch))
                context.scratch_size = workspace("scratch", 0).size
            if self._scratch is not context.scratch:
                self._scratch = context.scratch
                self._set(self._memories[-1], self._scratch)
        status = self._execute(self._primitive, context.stream, self._count, self._args)
        if status:
            raise RuntimeError(f"oneDNN: {self.plan.implementation} gave status {status}")


def primitive(key: Hashable, make: Callable[[], Any]) -> Any:
    """Return this thread's cached primitive of `key`, made at first need; None where oneDNN has no fast kernel.

    That is a Primitive, or something with its `used` that runs one.  When there are too many, those go that were not
    used since the last time there were.
    """
    if _context.generation != library.state.generation and not ready():
        return None
    found = _context.primitives.get(key, _MISSING)
    if found is None:
        return None
    if found is not _MISSING:
        found.used = True
        return found
    try:
        found = make()
    except Unsupported:
        found = None
    cache = _context.primitives
    cache[key] = found
    if len(cache) > _MOST_PRIMITIVES:
        for key, old in list(cache.items())[:-1]:
            if old is None or not old.used:
                del cache[key]
            else:
                old.used = False
    return found


def workspace(role: str, nbytes: int) -> np.ndarray:
    """This thread's memory for `role`, grown to `nbytes`; its content lasts for one primitive."""
    found = _context.workspaces.get(role)
    if found is None or found.size < nbytes:
        found = _context.workspaces[role] = aligned(nbytes)
    return found


def address(array: np.ndarray) -> Any:
    """The address of an array's first element, for `Primitive.__call__`."""
    from_buffer = library.state.ffi.from_buffer
    if array.flags.c_contiguous:
        return from_buffer(array)
    if array.ndim > 2:
        inner = array.transpose(INNER[array.ndim])
        if inner.flags.c_contiguous:
            return from_buffer(inner)  # cheaper than to ask numpy for the address
    return library.state.ffi.cast("void *", array.__array_interface__["data"][0])


def reorder_between(source: Desc, target: Desc, scaled: bool = False) -> Primitive:
    """The copy from one layout to another; scaled: it takes the address of a number to multiply by, too."""
    engine = library.state.engine
    scales = {_abi.SRC: 0} if scaled else None
    plan = PrimitiveDesc("reorder", source, engine, target, engine, attributes((), scales))
    descs = {_abi.SRC: source, _abi.DST: target}
    return Primitive(plan, descs | {_abi.SCALES | _abi.SRC: desc_of((1,), (1,))} if scaled else descs)


def usable(*arrays: Any) -> bool:
    """Return whether oneDNN may work on these: float32 numpy arrays (None counts) with elements."""
    for a in arrays:
        if a is not None and (a.dtype is not _F32 or not a.size) and (a.dtype != _F32 or not a.size):
            return False
    return library.load() is not None and library.state.enabled


def ready() -> bool:
    """Return whether the library is there; makes sure that this thread's stream and number of threads hold."""
    if _context.generation != library.state.generation:
        if library.load() is None:
            return False
        _context.reset()
    return True
