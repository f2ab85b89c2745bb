"""`Guard`: the conditions under which a program, for inference or for training, gives what its module gives.

They are looked at in every call, so by functions that loop in C: a network has hundreds of parameters; or, once they
have held some times, by generated code (generated_guards.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import chain
from operator import attrgetter, is_, itemgetter, methodcaller
from typing import Any

import numpy as np

from engine.backends.onednn import library
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.core.layouts import asks_channels_last
from engine.dispatch import autocast
from engine.nn.modules import _hooks
from engine.nn.modules.module import Module
from engine.programs import generated_guards
from engine.programs.module_guards import Attributes
from engine.programs.name_guards import Names
from engine.tensor import Tensor, raw_array

__all__ = ["Guard", "of_parameters", "signature"]

WATCHED = (3, 10, 100)  # times that a guard held, after which a watch is made: few, where it changes and changes back
_TABLES = ("_modules", "_parameters", "_buffers")
_FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_HOOKS = (*_FORWARD_HOOKS, "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = (_hooks.forward, _hooks.forward_pre, _hooks.backward, _hooks.backward_pre)
_values, _first, _training = methodcaller("values"), itemgetter(0), itemgetter("training")
_counter, _replaced, _aliases = attrgetter("_vc"), attrgetter("_replaced"), attrgetter("_aliases")
_own, _needs = attrgetter("__dict__"), attrgetter("_requires_grad")
_own_hooks, _post_hooks = attrgetter("_hooks"), attrgetter("_post_accumulate_hooks")


class Guard:
    """What must stay of modules: their tables of modules, parameters and buffers, their classes and plain attributes.

    tensors: those that a program reads beside parameters and buffers.
    elements: the elements of the tensors must stay, too (`Elements`): they are a part of the program.
    gradients: so must which tensors require grad (`Gradients`).  names: so must what code reads by name.
    """

    def __init__(
        self,
        modules: Iterable[Module],
        *,
        tensors: Iterable[Tensor] = (),
        elements: bool = False,
        gradients: bool = False,
        names: Names | None = None,
    ) -> None:
        self.owners = list(modules)
        self.modules = [m.__dict__ for m in self.owners]
        hooks = _HOOKS if gradients else _FORWARD_HOOKS
        self.hooks = [own[name] for own in self.modules for name in hooks if own.get(name) is not None]
        self.tables = [own[name] for own in self.modules for name in _TABLES]
        self.entries = list(chain.from_iterable(map(_values, self.tables)))
        self.attributes = Attributes(self.owners, self._set_by_hooks() if elements else ())
        known = {id(t): t for t in (*tensors, *(e for e in self.entries if isinstance(e, Tensor)))}
        self.tensors = list(known.values())
        self.index = {key: i for i, key in enumerate(known)}
        self.elements = Elements(self.tensors) if elements else None
        self.gradients = Gradients(self.tensors, self.hooks) if gradients else None
        self._parts = [part.hold for part in (self.elements, self.gradients, names) if part is not None]
        self._watch: generated_guards.Watch | None = None
        self._times = 0  # that it held

    def _set_by_hooks(self) -> list[tuple[int, str]]:
        return [
            (id(own), hook.name)
            for own in self.modules
            for hook in own["_forward_pre_hooks"].values()
            if of_parameters({0: hook})
        ]

    def holds(self) -> bool:
        """Return whether all is as it was."""
        entries = self.entries
        if self.tables:  # of modules: a step may have none
            if sum(map(len, self.tables)) != len(entries):
                return False
            if not all(map(is_, chain.from_iterable(map(_values, self.tables)), entries)):
                return False
        for hold in self._parts:
            if not hold():
                return False
        return not self.tables or self.attributes.hold()

    # --- of programs for inference

    def plain(self) -> bool:
        """Return whether all modules are in eval mode and without hooks that a program would not call."""
        if any(map(_training, self.modules)) or (any(self.hooks) and not all(map(of_parameters, self.hooks))):
            return False
        return not (_hooks.forward or _hooks.forward_pre)

    def reads(self, tensors: Iterable[Tensor]) -> None:
        """A program has read these, too."""
        more = [t for t in tensors if id(t) not in self.index]
        if more:
            self.tensors += more
            self.index |= {id(t): i for i, t in enumerate(self.tensors)}
            if self.elements is not None:
                self.elements.take()
            self._watch, self._times = None, 0

    def held(self) -> bool:
        """`holds`, which after some calls `unchanged` answers."""
        if not self.holds():
            return False
        self._times += 1
        if self._times in WATCHED and self.elements is not None and generated_guards.available():
            watch = self._watching(self.elements)
            self._watch = watch if self.plain() and self.holds() else None
        return True

    def _watching(self, elements: Elements) -> generated_guards.Watch:
        counters = [*elements.counters]
        for aliases in map(_aliases, self.tensors):
            if aliases is not None:
                counters += [aliases.made, *aliases.counters]
        own = [*self.modules, _hooks.forward, _hooks.forward_pre]
        dicts = [*own, *self.hooks, *self.tables, *elements.dicts]
        return generated_guards.Watch(dicts, counters, [*self.owners, *self.tensors])

    def unchanged(self) -> bool:
        """Return whether a watch says that it holds, and is `plain`; nothing if False."""
        watch = self._watch
        return (
            watch is not None
            and self.elements is not None
            and self.elements.generation == library.state.generation
            and watch.same()
            and self.attributes.contents()
        )

    def same(self, other: Guard | None) -> bool:
        """Return whether nothing has changed since `other` was made."""
        return other is not None and other.holds()


class Elements:
    """The memory of tensors and their versions."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.generation = library.state.generation
        self.take()

    def take(self) -> None:
        """Take things as they are now."""
        self.dicts, self.counters = [*map(_own, self.tensors)], [*map(_counter, self.tensors)]
        self.versions = self._versions()

    def _versions(self) -> list[object]:
        aliases = sum([a.writes() for a in map(_aliases, self.tensors) if a is not None])
        return [*map(_first, self.counters), *map(_replaced, self.tensors), aliases]

    def hold(self) -> bool:
        """Return whether all is as it was."""
        return (
            all(map(is_, map(_own, self.tensors), self.dicts))
            and all(map(is_, map(_counter, self.tensors), self.counters))
            and self._versions() == self.versions
            and self.generation == library.state.generation
        )


class Gradients:
    """Which tensors require grad, grad mode and its like, and whether hooks wait that a program would not call."""

    def __init__(self, tensors: list[Tensor], hooks: list[object]) -> None:
        self.tensors = [t for t in tensors if t._array.dtype.kind in "fcV"]
        self.hooks = hooks
        self.environment, self.needs, self.hooked = _environment(), [*map(_needs, self.tensors)], self._hooked()

    def _hooked(self) -> bool:
        if any(self.hooks) or any(_GLOBAL_HOOKS):
            return True
        return any(map(_own_hooks, self.tensors)) or any(map(_post_hooks, self.tensors))

    def hold(self) -> bool:
        """Return whether all is as it was."""
        needs = [*map(_needs, self.tensors)]
        if needs != self.needs and [*map(bool, needs)] != [*map(bool, self.needs)]:
            return False
        return _environment() == self.environment and self._hooked() is self.hooked


def _environment() -> tuple[object, ...]:
    return (
        mode.enabled,
        mode.inference,
        dtypes.get_default_dtype(),
        library.state.generation,
        autocast.state.on,
    )


def of_parameters(hooks: Mapping[int, object]) -> bool:
    """Return whether hooks only set an attribute, in eval mode of parameters and buffers: what they compute is
    traced.
    """
    return all(getattr(type(hook), "of_parameters", False) for hook in hooks.values())


def signature(value: object, objects: list[object] | None = None) -> Hashable:
    """Structure, shapes, dtypes and other arguments of a call as a key; None for arguments that have no such key.

    objects: gets what is neither a tensor nor a plain value, and is a part of the key by its identity.
    """
    seen: dict[int, int] = {}

    def of(v: Any) -> Hashable:
        if isinstance(v, Tensor):
            array = raw_array(v)
            if not isinstance(array, np.ndarray) or asks_channels_last(array):
                raise TypeError
            number = seen.setdefault(id(v), len(seen))
            return "tensor", array.shape, array.dtype, number
        if type(v) in (list, tuple):
            return type(v), *map(of, v)
        if type(v) is dict:
            return dict, *((k, of(x)) for k, x in v.items())
        if v is None or type(v) in (int, float, bool, str) or isinstance(v, dtypes.dtype):
            return type(v), v
        if objects is not None and not isinstance(v, np.ndarray | np.generic | dict | list | tuple | set):
            objects.append(v)
            return type(v), id(v)
        raise TypeError

    try:
        return of(value), dtypes.get_default_dtype()
    except TypeError:
        return None
