"""The tensors over each block of memory, so that memory that moves can take them along.

Note [Tensors of a storage]
Memory that moves (`share_memory_`) takes the tensors over it along.  A tensor that is alone with its memory is known at
once.  For others a root array knows its tensors by its list of weak references: every new tensor over old memory puts
a `_Seen` of its root there, which goes when the tensor goes.  That costs a view a third of its time, so it begins with
the first storage that moves while several tensors look at it: the one time when all objects of the process are walked.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from engine.core.layouts import over_buffer, root_of
from engine.core.slots import Slot, Slots

if TYPE_CHECKING:
    from engine.core.arrays import Array
    from engine.tensor import Tensor


class Registered(Slots):
    """The functions of higher layers that storages call; `engine/__init__.py` registers them.

    share(memory, tensor=None): move the memory, and every tensor over it, to where other processes can map it.
    """

    begin_following: Slot[Callable[[], None]] = lambda: None  # ops that give views call `follow` from now on
    tensor: Slot[type[Tensor]]  # the class of Tensor
    type_named: Slot[Callable[[str], object]]  # the class of a typed storage, from its name ("FloatStorage")
    share: Slot[Callable[..., None]]


registered = Registered()


class Following:
    """The state of following: whether root arrays know their tensors: Note [Tensors of a storage]."""

    on = False


following = Following()
_ref = weakref.ref


class _Seen(weakref.ref):  # type: ignore[type-arg]
    """Of a root array: a tensor looks at it."""

    __slots__ = ("tensor",)
    tensor: weakref.ref[Tensor]


def follow(tensor: Tensor, array: Array | None) -> None:
    """Let the root of `array`, which `tensor` looks at, know it."""
    if isinstance(array, np.ndarray):
        base = array.base
        root = array if type(base) is not type(array) else base if type(base.base) is not type(base) else root_of(base)
        seen = tensor._seen = _Seen(root)  # type: ignore[attr-defined]  # no name of the stub
        seen.tensor = _ref(tensor)


def follow_both(made: Tensor, source: Tensor) -> None:
    """Let the root know two tensors over the same memory."""
    follow(made, made.__dict__.get("_array"))  # not by name: an uninitialised one refuses to be read
    follow(source, source.__dict__.get("_array"))


def begin_following(kind: type[Tensor]) -> None:
    """From now on every root array knows its tensors (instances of `kind`)."""
    if following.on:
        return
    following.on = True
    registered.begin_following()
    for found in gc.get_objects():
        if isinstance(found, kind) and "_array" in found.__dict__:
            follow(found, found.__dict__["_array"])


def tensors_over(root: Array) -> list[Tensor]:
    """The tensors that look at the memory of `root`.  `begin_following` must have been called."""
    found: dict[int, Tensor] = {}
    for seen in weakref.getweakrefs(root):
        tensor = seen.tensor() if type(seen) is _Seen else None
        for one in () if tensor is None else (tensor, tensor._base):
            if one is not None and "_array" in one.__dict__ and root_of(one.__dict__["_array"]) is root:
                found[id(one)] = one
    return list(found.values())


def move_tensors(over: list[Tensor], low: int, fresh: Array) -> None:
    """Let tensors look at the memory of the root array `fresh`, which has what was from the address `low` on."""
    moved: dict[int, tuple[Array, Array]] = {}
    for t in over:
        array = t.__dict__["_array"]
        if id(array) not in moved:
            offset = array.__array_interface__["data"][0] - low if array.size else 0
            moved[id(array)] = (array, over_buffer(fresh, array.dtype, array.shape, array.strides, offset))
        t.__dict__["_array"] = moved[id(array)][1]
        if following.on:
            follow(t, t.__dict__["_array"])
