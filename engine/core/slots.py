"""Slots: the one route by which a low layer calls a high one.

A low layer may not import a high one, yet sometimes it must call it: the graph adds gradients, and addition is an op.
It then declares a slot, a typed attribute of a group, and the module that has the value fills it when it is imported:

    class Registered(Slots):                                # engine/autograd/graph.py, the low layer
        add: Slot[Callable[[Tensor, Tensor], Tensor]]       # must be filled before it is read
        at_end: Slot[Callable[[], None] | None] = None      # may stay as it is

    registered = Registered()

    registered.add = add                                    # engine/ops/registered.py, the high layer

Where several may register, or one for each key (a type, a kind of device), the slot is a list or a dict that says so:

    observers: Several[Callable[[str], None]] = Several()   # observers.append(...), observers.remove(...)
    word_kernels: Keyed[str, Callable[[int], Word]] = Keyed()  # word_kernels["cuda"] = ...

To read a slot is to read an attribute of a plain object, a list or a dict: nothing is called.  One that was not
filled holds an `Empty`, which says at its use which slot it is.
docs/explanation/architecture.md lists all slots: who declares each, who fills it and when.  A test compares the page
with the code.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NoReturn, TypeVar

__all__ = ["Empty", "Keyed", "Several", "Slot", "Slots"]

K = TypeVar("K")
T = TypeVar("T")
# The type of a slot is that of its value; the annotation marks it, for readers and for the test of the page.
Slot = Annotated[T, "slot"]


class Empty:
    """The value of a slot that was not filled: to use it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<empty slot {self._name}>"

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError(
            f"the slot {self._name} is empty: the module that fills it has not been imported; "
            "docs/explanation/architecture.md says which one that is"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self()


class Slots:
    """A group of slots: every name that a subclass annotates with `Slot[...]`.  Values in the class are defaults.

    Defaults are stored in the object, not in the class: an attribute of the object is read in either case, and a
    function is not made a method.  There is no `__getattr__`, which would make every read slower.
    """

    _defaults: ClassVar[dict[str, object]] = {}

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        names = [name for name, kind in cls.__annotations__.items() if str(kind).startswith("Slot[")]
        cls._defaults = {n: own[n] if n in own else Empty(f"{cls.__module__}.{cls.__name__}.{n}") for n in names}
        for name in names:
            if name in own:
                delattr(cls, name)

    def __init__(self) -> None:
        for name, value in self._defaults.items():
            setattr(self, name, value)


class Several(list[T]):
    """A slot for any number of values, in the order in which they were registered."""


class Keyed(dict[K, T]):
    """A slot for one value for each key."""
