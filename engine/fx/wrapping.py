"""`wrap`: the functions of a module whose calls a trace records, instead of what they do."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["wrap"]

# (id of the globals of a module, a name there) -> the globals
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}


def wrap(fn_or_name: Any) -> Any:
    """Record calls of a function of this module as they stand when traced, not what it does; also as a decorator.

    At the top level of the module: `wrap("len")`, `wrap(function)`.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    caller = frame.f_back
    if caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name
