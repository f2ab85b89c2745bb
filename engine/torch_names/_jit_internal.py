"""torch._jit_internal's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.jit import Future, _overload, _overload_method, export, ignore, is_scripting, unused
from engine.jit.scripting.annotations import (
    BroadcastingList1,
    BroadcastingList2,
    BroadcastingList3,
    BroadcastingList4,
    BroadcastingList5,
    BroadcastingList6,
)

__all__ = ["Final", "Future", "boolean_dispatch", "export", "ignore", "is_scripting", "unused"]
__all__ += ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "_overload", "_overload_method"]
__all__ += ["BroadcastingList4", "BroadcastingList5", "BroadcastingList6"]


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable,
    if_false: Callable,
    module_name: str,
    func_name: str,
) -> Callable:
    """A function that calls one of two, by the truth of one argument."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    fn.__name__ = func_name
    return fn


def _copy_to_script_wrapper(fn: Any) -> Any:
    """Return the function as it is: a mark for torch's compiler of modules."""
    return fn


def _qualified_name(obj: Any, mangle_name: bool = True) -> str:
    """The name of a class or function in an archive: `__torch__.module.Name`."""
    return f"__torch__.{obj.__module__}.{obj.__qualname__}"


def weak_module(cls: Any) -> Any:
    """Return the class as it is (torch 1.0)."""
    return cls


def weak_script_method(fn: Any) -> Any:
    """Return the method as it is (torch 1.0)."""
    return fn


weak_script = weak_script_method
