"""Autocast: which ops compute in a 16-bit type, which in float32, while a context of `engine.amp` is active.

Note [Autocast]
Which type an op computes in is its option `autocast`, as torch lists them
(https://docs.pytorch.org/docs/2.13/amp.html); composites reach such ops.  The text of an op with that option has one
line more, which casts its operands through the graph, so that gradients come back in the parameters' own type; it is
written into the ops when the first context is entered, and costs nothing before.  A composite with the option is
listened to from then on (`gate.py`), after all others.  A leaf that requires grad is cast once for the outermost
context (its weights are read many times).
"""

from __future__ import annotations

import threading
from types import FunctionType

import numpy as np

from engine import backends
from engine.autograd.graph import registered
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch.gate import Call, Listener
from engine.dispatch.record import Op
from engine.dispatch.table import COMPOSITES, providers, with_fact
from engine.tensor import Tensor

__all__ = ["State", "cast_operands", "changes", "install", "line", "state", "target_of"]

_CAST = frozenset(map(np.dtype, ("float32", "float16")))


class State(threading.local):
    """Of one thread: whether a context is active, its types by device, and the casts of weights."""

    def __init__(self) -> None:
        self.on = False  # for any device
        self.enabled: dict[str, bool] = {}
        self.types: dict[str, dtypes.dtype] = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}
        self.caching = True
        self.depth = 0
        self.casts: dict[int, tuple[Tensor, int, dtypes.dtype, bool, Tensor]] = {}
        self.count = 0  # how many operands were given in another type

    def enable(self, kind: str, enabled: bool) -> None:
        """Switch it for a kind of device."""
        self.enabled[kind] = enabled
        self.on = any(self.enabled.values())
        if enabled:
            install()


state = State()
_installed: list[bool] = []
_categories: dict[str, dict[str, str]] = {"cpu": {}, "cuda": {}}  # by kind of device and name; filled by `install`


def line(record: Op) -> str:
    """The line of an op's text that casts its operands; "" for an op without the option, or before the first use."""
    if not _installed or not record.autocast or not record.tensors:
        return ""
    names = ", ".join(record.tensors)
    return f"if autocast_state.on: {names}, = cast_operands('{record.name}', ({names},))"


def install() -> None:
    """Write the line into the ops with the option, once in a process."""
    if _installed:
        return
    given: dict[str, str | dict[str, str]] = with_fact("autocast")
    for kind, categories in _categories.items():
        categories.update({name: c if isinstance(c, str) else c.get(kind, "") for name, c in given.items()})
    _installed.append(True)
    _composites.update((COMPOSITES[name], name) for name in given if name in COMPOSITES)
    _listener.begin(_composites, last=True)
    providers.rewrite(lambda record: record.name in given)


def _hear_composite(
    function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object], proceed: Call
) -> object:
    """Cast the tensors of a composite before its call goes on."""
    if state.on:
        values = cast_operands(_composites[function], (*args, *kwargs.values()))
        args, kwargs = values[: len(args)], dict(zip(kwargs, values[len(args) :]))
    return proceed(*args, **kwargs)


_composites: dict[FunctionType, str] = {}  # those with the option, and their names
_listener = Listener(_hear_composite)


def target_of(name: str, operands: tuple[object, ...], category: str = "") -> dtypes.dtype | None:
    """The type that the active context asks of the operands of an op, or of what is no op and has a category; None
    where it asks for none."""
    kind = next((_kind(x) for x in operands if isinstance(x, Tensor)), "cpu")
    if not state.enabled.get(kind):
        return None
    category = category or _categories[kind].get(name, "")
    if category == "lower":
        return state.types[kind]
    if category == "float32":
        return dtypes.float32
    if category == "widest":
        floating = [x.dtype for x in operands if isinstance(x, Tensor) and x.dtype.is_floating_point]
        if len(set(floating)) > 1:
            return dtypes.float64 if dtypes.float64 in floating else dtypes.float32
    return None


def changes(tensor: Tensor, target: dtypes.dtype) -> bool:
    """Return whether a tensor is cast to `target`: float32 and the 16-bit types are; float64, integers, complex are
    not.
    """
    have = tensor._array.dtype
    return (have in _CAST or tensor.dtype is dtypes.bfloat16) and tensor.dtype is not target


def cast_operands(name: str, operands: tuple[object, ...], category: str = "") -> tuple[object, ...]:
    """The operands of an op in the type that the active context asks for."""
    target = target_of(name, operands, category)
    if target is None:
        return operands
    return tuple([_as(x, target) if isinstance(x, Tensor) else x for x in operands])


def _kind(tensor: Tensor) -> str:
    array = tensor._array
    return "cpu" if isinstance(array, np.ndarray) else backends.of_array(array).kind


def _as(tensor: Tensor, target: dtypes.dtype) -> Tensor:
    """float32 and the 16-bit types as `target`; float64, integers and complex numbers as they are."""
    if not changes(tensor, target):
        return tensor
    state.count += 1
    if not (state.caching and tensor._requires_grad is True and tensor._edge is None and target.itemsize == 2):
        return _cast(tensor, target)
    found = state.casts.get(id(tensor))
    recorded = mode.enabled
    if (
        found is not None
        and found[0] is tensor
        and found[1] == tensor._vc[0]
        and found[2] is target
        and found[3] == recorded
    ):
        return found[4]
    made = _cast(tensor, target)
    state.casts[id(tensor)] = (tensor, tensor._vc[0], target, recorded, made)
    return made


def _cast(tensor: Tensor, target: dtypes.dtype) -> Tensor:
    made: Tensor = registered.cast(tensor, target)
    return made
