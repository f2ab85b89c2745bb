"""The code object that a function carries while something listens to its calls.

Note [Code of a listener]
To listen to a function its `__code__` is replaced: callers hold the function object, and everyone who has it is heard.
The new code is `return hear(args, kwargs)`, in which `hear` is a constant.  CPython takes only code with as many free
variables as the function's closure has cells, and every frame of such code must begin with the instruction that copies
the cells into it (COPY_FREE_VARS): whoever reads the frame's local variables, a debugger or a traceback that shows
them, follows those pointers.  So the code of a function with n cells is made from a function that was compiled with n
free variables.  `code.replace(co_freevars=...)` on code without that instruction leaves the pointers unset, and reading
the locals of such a frame ends the process.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any

__all__ = ["copied", "listener_code"]


@cache
def _template(count: int) -> CodeType:
    """Code of `return "hear"(args, kwargs)` with `count` free variables, the instruction that copies them included."""
    cells = ", ".join(f"cell{i}" for i in range(count))
    file = f"<engine listener, {count} cells>"
    text = (
        f"def outer({cells}):\n"
        "    def listener(*args, **kwargs):\n"
        "        return 'hear'.__call__(args, kwargs)\n"
        f"        [{cells}]  # never reached: it makes them free variables of this function\n"
        "    return listener\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(text, file, "exec"), scope)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    code: CodeType = scope["outer"](*[None] * count).__code__
    return code


def listener_code(code: CodeType, hear: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> CodeType:
    """Return code that calls `hear(args, kwargs)`, for a function whose own code is `code`.

    It has the name of `code` and its free variables: it fits the function's closure, and its frames can be read.
    """
    template = _template(len(code.co_freevars))
    return template.replace(
        co_name=code.co_name, co_qualname=code.co_qualname, co_freevars=code.co_freevars,
        co_consts=tuple(hear if c == "hear" else c for c in template.co_consts),
    )  # fmt: skip


def copied(function: FunctionType, code: CodeType | None = None) -> FunctionType:
    """Return a function with the code (its own, where `code` is None), globals, defaults and closure of `function`."""
    made = FunctionType(
        function.__code__ if code is None else code, function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    return made
