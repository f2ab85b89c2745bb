"""`RemovableHandle`: what every `register_*hook` returns."""

from __future__ import annotations

import functools
import itertools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias

from engine.core.slots import Several

__all__ = ["RemovableHandle", "noted", "warn_if_unserializable", "watchers"]

Call: TypeAlias = Callable[..., object]
Hooks: TypeAlias = MutableMapping[int, Callable[..., Any]]  # by the ids of their handles

_ids = itertools.count()

# What records programs (engine/programs/training): called with (function, args, kwargs) instead of a `noted` function.
watchers: Several[Callable[[Call, tuple[object, ...], dict[str, object]], object]] = Several()


def noted(function: Call) -> Call:
    """A function that a recorded program calls as a whole, with the objects as they are then: an optimizer's step."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        if watchers:
            return watchers[-1](function, args, kwargs)
        return function(*args, **kwargs)

    return call


class RemovableHandle:
    """Removes its hook from `hooks_dict` by `remove()`, or at the end of a `with` block."""

    def __init__(self, hooks_dict: Hooks, *, extra_dict: Hooks | list[Hooks] | None = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = next(_ids)
        extras = extra_dict if isinstance(extra_dict, list) else [extra_dict] if extra_dict is not None else []
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extras)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def __getstate__(self) -> tuple[Hooks | None, int]:
        return self.hooks_dict_ref(), self.id

    def __setstate__(self, state: tuple[Hooks | None, int]) -> None:
        hooks, self.id = state
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = ()


class HookDict(OrderedDict[int, Callable[..., Any]]):
    """An ordered dict of hooks by id; a class of its own only so that it can be weakly referenced."""


def warn_if_unserializable(hooks: HookDict | None) -> None:
    """Warn of each hook of a tensor that pickling leaves out, unless `unserializable_hook` marked it."""
    for hook in () if hooks is None else hooks.values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                "function with @torch.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=3,
            )
