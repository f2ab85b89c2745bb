"""What a recorded call is made of: values by number, calls on them, and walks through nested arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from engine.dispatch import Op
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.dispatch.record import Public

__all__ = ["Call", "Ref", "Unsupported", "getitem", "mapped", "record_of", "refs_in", "setitem", "tensors_in"]

Leaf = TypeVar("Leaf")


class Unsupported(Exception):
    """The call cannot be replayed; the message says why."""


class Ref:
    """A value of the trace, by number."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"%{self.index}"


class _SetItem:
    """The record of `x[index] = value`, which is no op of its own but writes like one."""

    name = "setitem"
    view = False
    deterministic = True
    varargs = None
    positional: tuple[str, ...] = ("input", "index", "value")
    params = positional
    defaults: dict[str, object] = {}


class _GetItem(_SetItem):
    """The record of `x[index]` with tensors in the index, which no op takes as tensors."""

    name = "getitem"
    positional = ("input", "index")
    params = positional


class _Whole(_SetItem):
    """The record of a function that is no op and is noted as one."""

    name = ""


setitem: FunctionType = Tensor.__setitem__  # type: ignore[assignment]  # a `def`
getitem: FunctionType = Tensor.__getitem__  # type: ignore[assignment]
_RECORDS: dict[object, type[_SetItem]] = {setitem: _SetItem, getitem: _GetItem}


def record_of(function: object) -> Op:
    """Return the record of a function: its op's, or one in that form of what is no op."""
    found: Op = getattr(function, "op", _RECORDS.get(function, _Whole))  # type: ignore[arg-type]  # a record in its form
    return found


class Call:
    """One op: `function(*args, **kwargs)` with tensors as Refs; `outputs` the numbers of the tensors it returned."""

    __slots__ = ("_read", "args", "effect", "function", "inplace", "kwargs", "outputs", "result")

    def __init__(
        self,
        function: Public,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        outputs: list[int],
        inplace: bool,
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.outputs, self.inplace = outputs, inplace
        self._read: tuple[object, object, list[int]] = (None, None, [])  # what `refs` was found in, and what it is
        self.effect = False  # whether it does more than give its outputs: draws, writes to what it was not given
        self.result: object = None  # what it returned, with Refs

    @property
    def op(self) -> Op:
        return record_of(self.function)

    @property
    def refs(self) -> list[int]:
        """The values it reads; the first is what an in-place op writes to."""
        args, kwargs, found = self._read
        if args is not self.args or kwargs is not self.kwargs:
            found = [r.index for r in refs_in((self.args, self.kwargs))]
            self._read = self.args, self.kwargs, found
        return found

    def bound(self) -> dict[str, Any]:
        """The arguments by the op's own names.  Unsupported for aliases and separate sizes."""
        record = self.op
        names = dict(zip(record.positional, self.args))
        if record.varargs or set(self.kwargs) - set(record.params):
            raise Unsupported(f"arguments of {record.name}")
        return {**record.defaults, **names, **self.kwargs}

    def __repr__(self) -> str:
        return f"{self.outputs} = {self.function.__name__}{self.args}{self.kwargs or ''}"


def mapped(value: Any, change: Callable[[Leaf], object], leaf: type[Leaf]) -> Any:
    """`value` with `change(x)` for every x of type `leaf` in nested lists, tuples, dicts and slices."""
    if isinstance(value, leaf):
        return change(value)
    kind = type(value)
    if kind is list:
        return [mapped(v, change, leaf) for v in value]
    if isinstance(value, tuple):
        made = [mapped(v, change, leaf) for v in value]
        if kind is tuple:
            return tuple(made)
        return kind(*made) if hasattr(value, "_fields") else kind(made)
    if isinstance(value, dict):
        made_items = {k: mapped(v, change, leaf) for k, v in value.items()}
        if kind is dict:
            return made_items
        copy = value.copy()
        copy.update(made_items)
        return copy
    if kind is slice:
        return slice(*(mapped(v, change, leaf) for v in (value.start, value.stop, value.step)))
    return value


def _leaves(value: object, leaf: type[Leaf]) -> Iterator[Leaf]:
    found: list[Leaf] = []
    mapped(value, found.append, leaf)
    return iter(found)


def tensors_in(value: object) -> list[Tensor]:
    """The Tensors in nested lists, tuples, dicts and slices, in order."""
    return list(_leaves(value, Tensor))


def refs_in(value: object) -> list[Ref]:
    """The Refs in nested lists, tuples, dicts and slices, in order."""
    return list(_leaves(value, Ref))
