"""`__torch_function__`: classes and modes that handle calls of the engine's functions themselves.

Note [Calls that a class handles]
An object whose class has `__torch_function__` handles the calls in which it is an argument, a mode
(`TorchFunctionMode`) all calls inside its `with`.  Nothing is added to the functions of ops for this.  The first
instance of such a subclass of Tensor, the first foreign object of such a class that an op meets among its operands, and
a mode that is entered put a listener into every public function (`engine/torch_names/_overriding.py`), which looks at
the arguments and then runs the function's own code or asks the handlers.  So a program without them runs as before; one
with them pays for a look at the arguments of each call.
What a backward pass computes is not handled: as in torch its formulas are below all of this.  Classes in `always`,
whose handling stands for a layout's kernels, are asked there, too.
https://docs.pytorch.org/docs/2.13/notes/extending.html#extending-torch-python-api
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from engine.autograd.graph import registered
from engine.core.slots import Keyed, Several, Slot, Slots
from engine.dispatch.gate import Call, Listener
from engine.dispatch.table import OPS
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.dispatch.record import Op

    class Handler(Protocol):
        """A mode, or an argument whose class handles calls."""

        def __torch_function__(
            self, func: Call, types: Sequence[type], args: tuple[object, ...], kwargs: dict[str, object]
        ) -> object: ...


__all__ = [
    "Without",
    "always",
    "asks",
    "called_again",
    "disabled",
    "handled",
    "handlers_of",
    "hidden",
    "kind_of",
    "kinds",
    "listeners",
    "overriding",
    "plain",
    "second_look",
    "state",
    "unwrapped",
]


class _State(threading.local):
    def __init__(self) -> None:
        self.modes: list[Handler] = []  # those that are active, the innermost last
        self.without = False  # whether classes handle no calls


state = _State()
listening = [False]  # whether the functions carry listeners
listeners: Several[Listener] = Several()  # theirs, once they are there


class Handling(Slots):
    """The functions of `engine/torch_names` that classes and modes with handlers need."""

    start: Slot[Callable[..., None]]  # start(names): put the listeners into the functions of these names, or into all


handling = Handling()


def plain(function: Call) -> Call:
    """Return a function that goes on with a call without a handler: what is below the listeners of this note."""
    for listener in listeners:
        below = listener.below(function)
        if below is not function:
            return below
    return function


def disabled(
    func: Call, types: Sequence[type], args: Sequence[object] = (), kwargs: dict[str, object] | None = None
) -> object:
    """As `__torch_function__` of a class: calls are not handled, results are not made instances of it."""
    return func(*args, **(kwargs or {}))


class Without:
    """A context in which classes handle no calls; `modes=True`: nor modes."""

    def __init__(self, modes: bool = False) -> None:
        self._modes = modes

    def __enter__(self) -> Without:
        self._before = state.without, state.modes
        state.without = True
        if self._modes:
            state.modes = []
        return self

    def __exit__(self, *exc: object) -> None:
        state.without, state.modes = self._before


PLAIN, HANDLES, HOLDS = 0, 1, 2  # arguments: nothing to ask; one that handles calls; a sequence that may hold one
kinds: dict[type, int] = {Tensor: PLAIN}
# Classes that handle calls inside of backward passes and of others' handlers, too: layouts of the engine's.  With the
# names of the functions that they handle; None once those have their listeners.
always: Keyed[type, Callable[[], set[str]] | None] = Keyed()
hidden: Several[type] = Several()  # classes whose `__torch_function__` is called by other routes


def kind_of(cls: type) -> int:
    """PLAIN, HANDLES or HOLDS, found once for each class."""
    found = kinds.get(cls)
    if found is None:
        handler = getattr(cls, "__torch_function__", None)
        if handler is not None:
            found = PLAIN if handler is disabled or issubclass(cls, tuple(hidden)) else HANDLES
        else:
            found = HOLDS if issubclass(cls, list | tuple) else PLAIN
        kinds[cls] = found
    return found


def overriding(values: Iterable[Any]) -> list[Any]:
    """The arguments, also in their lists, that handle calls: one of each class, subclasses before their bases."""
    found: list[Any] = []
    for value in values:
        kind = kind_of(type(value))
        if kind == HANDLES:
            _insert(found, value)
        elif kind == HOLDS:
            for inner in value:
                if kind_of(type(inner)) == HANDLES:
                    _insert(found, inner)
    return found


def handlers_of(values: Iterable[object]) -> list[Any]:
    """Return the arguments that handle this call: where classes are disabled only those of a layout of the engine's."""
    found = overriding(values)
    return [v for v in found if type(v) in always] if state.without and found else found


def _insert(found: list[Any], value: object) -> None:
    cls = type(value)
    place = len(found)
    for i, known in enumerate(found):
        if type(known) is cls:
            return
        if place > i and issubclass(cls, type(known)):
            place = i
    found.insert(place, value)


def handled(func: Call, found: Sequence[Handler], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Return the result that the innermost mode, or the first argument whose handler does not decline, gives for a
    call.

    NotImplemented where all decline.
    """
    types = tuple(type(value) for value in found)
    modes = state.modes
    if modes:
        mode = modes[-1]
        state.modes = modes[:-1]
        try:
            result = mode.__torch_function__(func, types, args, kwargs)
        finally:
            state.modes = modes
        if result is not NotImplemented:
            return result
    for value in found:
        result = value.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    return NotImplemented


# --- what Tensor itself does


unwrapped: set[Call] = set()  # functions whose results are given as they are


def _torch_function(cls: type, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
    """The call, its plain results made instances of the class; NotImplemented beside classes that are not its bases."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with Without():
        result = func(*args, **(kwargs or {}))
        return result if func in unwrapped else _converted(result, cls)


def _converted(result: Any, cls: type) -> object:
    if cls is Tensor:
        return result
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, tuple | list):
        parts: list[Any] = [_converted(r, cls) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _as_subclass(self: Tensor, cls: type) -> Any:
    """This tensor as an instance of `cls`, a view that shares memory and history."""
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise TypeError("as_subclass(): argument 'cls' must be a class that derives from Tensor")
    with Without(modes=True):
        result: Tensor = OPS["alias"].function(self)
    if cls is not Tensor:
        result.__class__ = cls
        made(cls)
    return result


_as_subclass.__name__ = _as_subclass.__qualname__ = "as_subclass"
for _name, _value in (("__torch_function__", classmethod(_torch_function)), ("as_subclass", _as_subclass)):
    setattr(Tensor, _name, _value)


def made(cls: type) -> None:
    """An instance of a subclass of Tensor has been made."""
    if listening[0] or kind_of(cls) != HANDLES:
        return
    if cls not in always:
        handling.start()
    elif (names := always[cls]) is not None:
        always[cls] = None
        handling.start(names())


registered.subclass_made = made


def asks(values: Iterable[object]) -> bool:
    """Return whether one of the values is the first of its kind that handles calls."""
    return not listening[0] and bool(overriding(values))


def second_look(function: Call, record: Op, values: Sequence[object]) -> object:
    """The call of a function that met an operand which is no Tensor, handled by that operand; else NotImplemented.

    values: those of the record's parameters, in order.
    """
    if not asks(values):
        return NotImplemented
    return called_again(function, values, len(record.positional), record.params, record.defaults)


def called_again(
    function: Call, values: Sequence[object], positional: int, names: Sequence[str], defaults: dict[str, object]
) -> object:
    """The call once more, with listeners: what was left to its default is not given."""
    handling.start()
    left = [n in defaults and v is defaults[n] for n, v in zip(names, values)]
    while positional and left[positional - 1]:
        positional -= 1
    more = {n: v for n, v, default in list(zip(names, values, left))[positional:] if not default}
    return function(*values[:positional], **more)
