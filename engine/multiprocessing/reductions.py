"""Shared memory of storages, and how tensors reach other processes by it.

Note [Shared storages]
`share_memory_` moves a storage's bytes into a block that other processes can map, and every tensor over the old memory
to the same place in the new one.  Pickled for another process (`ForkingPickler`: queues, pipes, arguments of a
process), a CPU storage is moved so and sent as a handle: both processes see each other's writes.  Two strategies:
"file_descriptor" (Linux): an unlinked memfd.  The handle is the descriptor; nothing has a name, so nothing is left when
the last process ends, however it ends.  A process holds the descriptors of its blocks: mind `ulimit -n`.
"file_system": a named POSIX block, which needs no descriptor.  Note [Blocks] says who ends it.
Where there is neither (Windows), tensors reach other processes by value and `share_memory_` says that it cannot.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import sys
import threading
from functools import cache
from multiprocessing import reduction

import numpy as np

from engine import backends
from engine.core.storage import Memory, begin_following, move_tensors, relocate, tensors_over
from engine.multiprocessing import cuda
from engine.multiprocessing.blocks import Block, Bytes, Named, Unnamed, out_of_files
from engine.nn.parameter import Parameter
from engine.tensor import Tensor, wrap

__all__ = [
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "init_reductions",
    "reduce_storage",
    "reduce_tensor",
    "set_sharing_strategy",
    "share",
]


def _strategies() -> list[str]:
    """The strategies to share memory that this system has, the default first; none on Windows."""
    if not all(map(importlib.util.find_spec, ("fcntl", "_posixshmem"))):
        return []
    return ["file_descriptor", "file_system"] if hasattr(os, "memfd_create") else ["file_system"]


_STRATEGIES = _strategies()
_strategy = [*_STRATEGIES, "by_value"][:1]


def get_all_sharing_strategies() -> set[str]:
    """The strategies to share memory that this system has."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The strategy by which new blocks are shared: "file_descriptor" (the default on Linux) or "file_system"; else
    "by_value"."""
    return _strategy[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how new blocks are shared, for this process.  AssertionError for an unknown name."""
    assert new_strategy in _STRATEGIES, (
        f"invalid sharing strategy {new_strategy!r}, expected one of {get_all_sharing_strategies()}"
    )
    _strategy[0] = new_strategy


# --- moving


def share(memory: Memory, tensor: Tensor | None = None) -> None:
    """Move `memory` (of `tensor`, if it is known) to a block that other processes can map; does nothing if it is there.

    RuntimeError where the system has no room for it, NotImplementedError where it cannot share memory at all.
    """
    root = memory.root
    if not isinstance(root, np.ndarray) or memory.is_shared:
        return
    if not _STRATEGIES:
        raise NotImplementedError(
            "share_memory_() is not supported on this platform, which has no POSIX shared memory: tensors reach other "
            "processes by value"
        )
    low, high = np.lib.array_utils.byte_bounds(root) if root.size else (0, 0)
    kind: type[Block] = Unnamed if _strategy[0] == "file_descriptor" else Named
    try:
        block = kind.create(high - low, np.asarray(Bytes(low, high - low)))
    except OSError as error:
        if error.errno == errno.EMFILE and kind is Unnamed:
            raise RuntimeError(out_of_files()) from error
        reason = f"{error.strerror} ({errno.errorcode.get(error.errno, '')})" if error.errno else str(error)
        raise RuntimeError(f"unable to share {high - low} bytes by the {_strategy[0]} strategy: {reason}") from error
    if tensor is not None and _holders(tensor, memory) in _holders_of_one():
        over = [tensor]
    else:
        begin_following(Tensor)
        over = tensors_over(root)
        if tensor is not None and all(t is not tensor for t in over):  # made before, from an array
            over.append(tensor)
    fresh = block.memory().root
    move_tensors(over, low, fresh)
    relocate(memory, fresh)


def _holders(tensor: Tensor, memory: Memory) -> tuple[bool, int, int]:
    """Return whether `tensor` holds the root of its memory, and the reference counts of its array and of that root."""
    array = tensor.__dict__["_array"]
    return array is memory.root, sys.getrefcount(array), sys.getrefcount(memory.root)


@cache
def _holders_of_one() -> tuple[tuple[bool, int, int], tuple[bool, int, int]]:
    """`_holders` of a tensor whose memory nobody else sees: its array is the root, or the only view of it."""

    def of(tensor: Tensor) -> tuple[bool, int, int]:
        memory = Memory.of(tensor.__dict__["_array"])
        root = memory.root  # as in `share`
        found = _holders(tensor, memory)
        del root
        return found

    return of(wrap(np.zeros(1))), of(wrap(np.zeros(1)[:]))


# --- pickling for other processes


def reduce_storage(memory: Memory) -> tuple:
    """Pickle a storage for another process."""
    if not _STRATEGIES:  # as on Windows: by value
        return memory.__reduce__()
    try:
        if not isinstance(memory.root, np.ndarray):
            return cuda.reduce(memory) if backends.of_array(memory.root).kind == "cuda" else memory.__reduce__()
        share(memory)
        handle: tuple = memory.root.base.handle()
    except (OSError, RuntimeError) as error:
        # A queue pickles in a thread of its own, which would print the error and leave the receiver waiting for ever.
        if threading.current_thread().name != "QueueFeederThread":
            raise
        return _failed, (str(error),)
    return handle


def _failed(message: str) -> Memory:
    """Raise RuntimeError in the receiver of a tensor that could not be sent."""
    raise RuntimeError(f"the sender could not share a tensor: {message}")


def reduce_tensor(tensor: Tensor) -> tuple:
    """Pickle a tensor for another process.  RuntimeError for one with history."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    memory = Memory.of(tensor._array)
    if isinstance(memory.root, np.ndarray) and _STRATEGIES:
        with contextlib.suppress(RuntimeError):  # `reduce_storage` meets it again, and knows what to do
            share(memory, tensor)
    return tensor.__reduce_ex__(2)


def init_reductions() -> None:
    """Tell the standard library's pickler for other processes about storages and tensors."""
    reduction.ForkingPickler.register(Memory, reduce_storage)
    for kind in (Tensor, Parameter):
        reduction.ForkingPickler.register(kind, reduce_tensor)
