"""`Lane`: a tensor of which a function under `vmap` sees one slice; and how calls that hold one are found.

Note [One slice seen, all computed]
Under `vmap` a function is called once.  What is mapped arrives as a `Lane`: a Tensor that says the shape of one slice
and holds all of them, the mapped dim first, in `_value`.  While a vmap runs, the functions of the op table look for
Lanes among their arguments; a call with one goes to the op's rule (`_table.py`), which computes all slices by an
ordinary call on the `_value`s.  So autograd records ordinary nodes, of all slices at once; a Lane of an outer vmap
inside a `_value` is met by the same way in that call.  An op without a rule is called once per slice.
A Lane has no array: what reads one without an op raises `Unmapped`, and `vmap` calls the function once a slice instead.
Nothing is added to functions while no vmap runs: they are listened to (`dispatch/gate.py`) from its beginning to its
end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from engine import backends, dispatch
from engine.autograd.function import under_vmap
from engine.core.slots import Slot, Slots
from engine.dispatch.gate import Listener
from engine.dispatch.overriding import disabled
from engine.tensor import Tensor

__all__ = ["Lane", "Refused", "Unmapped", "begin", "end", "levels", "plain", "randomness"]


class Registered(Slots):
    """The functions that Lanes call in the modules that compute with them."""

    call: Slot[Callable[..., Any]]  # call(function, level, args, kwargs): a call of an op by its rule
    apply: Slot[Callable[..., Any]]  # apply(cls, args, kwargs): a call of an `autograd.Function`


registered = Registered()


class Unmapped(RuntimeError):
    """Something that cannot be computed for all slices at once."""


class Refused(RuntimeError):
    """An error for a call that torch's vmap refuses, too."""


class _Flags:
    c_contiguous = True
    forc = True
    f_contiguous = writeable = owndata = False


class Logical:
    """The stand-in for the array of one slice: its shape and type.  Reading elements raises Unmapped."""

    flags = _Flags()
    base = None

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype
        self.ndim, self.itemsize = len(shape), dtype.itemsize
        self.size = 1
        for n in shape:
            self.size *= n
        self.nbytes = self.size * dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        found, step = [], self.itemsize
        for n in reversed(self.shape):
            found.append(step)
            step *= max(n, 1)
        return tuple(reversed(found))

    def __len__(self) -> int:
        return self.shape[0]

    def _unmapped(self, *args: Any, **kwargs: Any) -> Any:
        raise Unmapped("vmap: the elements of a slice are read")

    __array__ = __array_ufunc__ = __array_function__ = __getitem__ = __iter__ = __bool__ = __float__ = _unmapped
    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __eq__ = __ne__ = __lt__ = __gt__ = _unmapped
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        raise Unmapped(f"vmap: the array of a slice is asked for `{name}`")


backends._by_type[Logical] = backends.of_array(np.empty(0))

# The levels of the vmaps that run in this thread, the outermost first: (level, size).
_state = threading.local()
_lock = threading.RLock()


def levels() -> list[tuple[int, int]]:
    """(level, size) of every vmap that runs, the outermost first."""
    found: list[tuple[int, int]] | None = getattr(_state, "levels", None)
    if found is None:
        found = _state.levels = []
    return found


class Lane(Tensor):
    """One slice of `_value` as a function under vmap sees it: Note [One slice seen, all computed]."""

    _value: Tensor
    _level: int
    __torch_function__ = disabled

    @property
    def _array(self) -> Any:  # type: ignore[override]
        known = self.__dict__.get("_logical")
        if known is None:
            array = self._value._array
            known = self.__dict__["_logical"] = Logical(tuple(array.shape[1:]), array.dtype)
        return known

    _channels_last = None
    _view = _base = None
    _vc = property(lambda self: self._value._vc)
    _requires_grad = property(lambda self: self._value.requires_grad)  # type: ignore[assignment]
    device = property(lambda self: self._value.device)

    @property
    def _edge(self) -> Any:  # type: ignore[override]
        node = self._value.grad_fn
        return None if node is None else (node, self._value.output_nr)

    @property
    def data(self) -> Any:
        return lane(self._value.data, self._level)

    @property
    def requires_grad(self) -> bool:
        return self._value.requires_grad

    def contiguous(self, *args: Any, **kwargs: Any) -> Tensor:
        """The tensor itself."""
        return self

    def detach(self) -> Tensor:
        """Out of the graph."""
        return lane(self._value.detach(), self._level)

    def reshape(self, *shape: Any) -> Tensor:
        """Each slice in another shape."""
        size = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if isinstance(size, int):
            size = (size,)
        return lane(self._value.reshape(self._value.shape[0], *size), self._level)

    view = reshape

    def _unread(self, *args: Any, **kwargs: Any) -> Any:
        raise Unmapped("vmap: a value is read (`.item()`, `bool`, `tolist`, `numpy`)")

    item = tolist = numpy = __bool__ = __float__ = __int__ = __index__ = __array__ = requires_grad_ = _unread
    __setitem__ = backward = register_hook = retain_grad = storage = data_ptr = __dlpack__ = stride = _unread

    def __repr__(self, **_: Any) -> str:
        return f"BatchedTensor(lvl={self._level}, bdim=0, value={self._value!r})"


def _elementwise(name: str) -> Any:
    def method(self: Lane, *args: Any, **kwargs: Any) -> Any:
        args = tuple(plain(a) if isinstance(a, Lane) else a for a in args)
        return lane(getattr(self._value, name)(*args, **kwargs), self._level)

    method.__name__ = name
    method.__doc__ = f"`Tensor.{name}` of every slice."
    return method


for _name in ("to", "type_as", "float", "double", "half", "long", "int", "bool", "cpu", "zeros_like"):
    if hasattr(Tensor, _name):
        setattr(Lane, _name, _elementwise(_name))


def lane(value: Tensor, level: int) -> Lane:
    """`value`, the mapped dim first, as one slice at that level."""
    made = object.__new__(Lane)
    made.__dict__["_value"] = value
    made.__dict__["_level"] = level
    return made


def plain(tensor: Any) -> Any:
    """The tensor of all slices of all levels, the dims of the outer ones first."""
    while isinstance(tensor, Lane):
        tensor = tensor._value
    return tensor


# --- calls that hold a Lane


def _level_of(values: Any) -> int:
    """The innermost level among arguments and in their lists; -1 for none."""
    found = -1
    for value in values:
        if value.__class__ is Lane:
            found = max(found, value._level)
        elif value.__class__ is list or value.__class__ is tuple:
            found = max(found, _level_of(value))
    return found


def _heard(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[..., Any]) -> Any:
    level = _level_of(args)
    if kwargs:
        level = max(level, _level_of(kwargs.values()))
    if level < 0:
        return proceed(*args, **kwargs)
    return registered.call(function, level, args, kwargs)


_listener = Listener(_heard)


def randomness() -> str:
    """Return the `randomness` of the innermost vmap of this thread."""
    found: str = getattr(_state, "randomness", "error")
    return found


def begin(level: int, size: int) -> None:
    """A vmap starts."""
    with _lock:
        _listener.begin(dispatch.FUNCTIONS)
        if _listener.count == 1:
            under_vmap.append(registered.apply)
    levels().append((level, size))


def end() -> None:
    """The innermost vmap ends."""
    levels().pop()
    with _lock:
        _listener.end()
        if _listener.count == 0:
            under_vmap.clear()
