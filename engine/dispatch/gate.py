"""The gate: the one place where something listens to calls of the engine's functions.

What a listener is
    A function `hear(function, args, kwargs, proceed)` that is called in place of some of the engine's functions.  It
    returns the result of the call: usually `proceed(*args, **kwargs)`, which goes on to the next listener and at last
    to the function's own code; or something else, as a Proxy does for a call that it records.

        def hear(function, args, kwargs, proceed):
            print("called:", function.__name__)
            return proceed(*args, **kwargs)

        with listening([engine.add], hear):
            engine.add(x, 1)

    `listening` is for one time.  Who comes and goes often (each vmap), or stays as long as an object lives (Proxies),
    holds a `Listener(hear)` and calls `begin(functions)` and `end()`: begun several times, it ends with the last `end`.
    The listeners: fx.Proxy, `__torch_function__`, saved-tensor hooks, vmap, autocast of composites, recorded programs.

How a function is listened to
    Its `__code__` is replaced by `return hear(function, args, kwargs, proceed)`, all four constants or arguments.
    Callers hold the function object, so everyone who has it is heard, methods and `from engine import add` included.
    A function's code is assigned here, and where its text is compiled (`binder.py`, `arguments.py`), nowhere else.

The order
    The listener that began last hears first, and `proceed` goes on to the one that began before it: the innermost
    `with` is the nearest to the calls that are written in it, as a decorator put on last is the first to run.
    Listeners may end in any order.  One kind hears after all others, whenever it began (`begin(..., last=True)`):
    autocast, whose casts belong to the function's own work, so that recorders note the call as it was written.
    A call that a listener makes itself is heard like any other; who does not want to hear its own calls must say so
    (a flag of the thread, as in `__torch_function__` and recorders).

Functions that change meanwhile
    A function is compiled at its first call, and again when something changes what its text must do (the first
    converted tensor, autocast, other routes).  Who compiles calls `rewritten`, and the listeners are put on again.
    Until its first call it carries `STUB`.  Listeners leave a stub alone, its first call compiles and is then heard;
    `Listener(hear, stubs=True)` hears that call before anything is compiled; the others hear it after those.  Each
    hears it once.

Threads, exceptions, finalizers
    The code of a function is the same for all threads: a listener looks at state of its own thread and proceeds for the
    others.  An exception passes through; `listening` ends in any case.  All changes are made under one lock, and
    one after the other: a finalizer that ends a listener (the last Proxy dies) while another begins waits for it.

What it costs
    Nothing without listeners: functions carry the very code objects that they had.  With some, a call
    costs one call of `hear` and one of `proceed`.  Codes are made once for a listener and a function, so that to begin
    or end again is one assignment for each function.

Reading the local variables of a frame
    CPython takes only code with as many free variables as the function's closure has cells, and every frame of such
    code must begin with the instruction that copies the cells into it (COPY_FREE_VARS): a debugger, or a traceback that
    shows the local variables of the frame, follows those pointers.  So the code for a function with n
    cells is made from a function that was compiled with n free variables.  `code.replace(co_freevars=...)` on code
    without that instruction leaves the pointers unset, and reading the locals of such a frame ends the process.
"""

from __future__ import annotations

import contextlib
import linecache
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import Any, TypeVar

__all__ = ["STUB", "Listener", "copied", "listener_code", "listening", "rewritten", "without_listeners"]

Call = Callable[..., Any]  # a function of the engine: what it returns is the caller's to know
Hear = Callable[[FunctionType, tuple[Any, ...], dict[str, Any], Call], object]
F = TypeVar("F")

# The code of a function before its first call: `_compile_` of its globals gives it the code of its own.
STUB = (lambda *args, **kwargs: _compile_()(*args, **kwargs)).__code__  # type: ignore[name-defined]  # noqa: F821

_lock = threading.RLock()
_stack: list[Listener] = []  # those that listen; the last one hears first
_compiled: dict[FunctionType, None] = {}  # functions that carried a stub once and have been compiled, in order
_steps: list[Callable[[], None]] = []  # changes that wait, at most of this thread: it holds the lock
_changing = False


class Listener:
    """`hear`, and the functions whose calls it hears between `begin` and `end`.  stubs: also first calls."""

    def __init__(self, hear: Hear, stubs: bool = False) -> None:
        self.hear, self.stubs = hear, stubs
        self.count = 0  # how many times it has begun and not ended
        self._functions: Mapping[FunctionType, object] = {}  # those it was begun with
        self._heard: dict[FunctionType, None] = {}  # those of them that carry its code: not the stubs
        self._known = 0  # how much of `_compiled` has been looked at
        # the code below its own, its own, and what `proceed` is for that
        self._codes: dict[FunctionType, tuple[CodeType, CodeType, Call]] = {}

    def begin(self, functions: Iterable[FunctionType], last: bool = False) -> None:
        """Hear the calls of `functions` from now on; first of all, or with `last` after all others.

        A dict is looked at again later: functions that are added to it are heard once they are compiled.  If it has
        begun before, this is only counted.
        """
        with _lock:
            self.count += 1
            if self.count == 1:
                _change(lambda: self._begin(functions, last))

    def change(self, functions: Iterable[FunctionType]) -> None:
        """Hear the calls of these functions, not those it began with."""
        with _lock:
            _change(lambda: self._replace(functions))

    def end(self) -> None:
        """Hear nothing more, if it was begun once."""
        with _lock:
            if self.count == 0:
                raise RuntimeError("a listener is ended that has not begun")
            self.count -= 1
            if self.count == 0:
                _change(self._end)

    def below(self, function: Call) -> Call:
        """Return what `proceed` is in a call of `function`; the function itself where this listener has no part."""
        known = self._codes.get(function) if isinstance(function, FunctionType) else None
        return known[2] if known is not None and self.count and function in self._heard else function

    def _begin(self, functions: Iterable[FunctionType], last: bool) -> None:
        if functions is self._functions:
            self._look_again()
        else:
            self._take(functions)
        if last:
            _stack.insert(0, self)
            for function in self._heard:
                _build(function)
            return
        _stack.append(self)
        codes = self._codes
        for function in self._heard:
            code = function.__code__
            known = codes.get(function)
            if known is None or known[0] is not code:
                known = self._above(function, code)
            function.__code__ = known[1]

    def _replace(self, functions: Iterable[FunctionType]) -> None:
        before = self._heard
        self._take(functions)
        if self in _stack:
            for function in {**before, **self._heard}:
                _build(function)

    def _end(self) -> None:
        codes = self._codes
        for function in self._heard:
            below, above, _ = codes[function]
            if function.__code__ is above:
                function.__code__ = below
            else:
                _build(function, self)
        _stack.remove(self)

    def _take(self, functions: Iterable[FunctionType]) -> None:
        self._functions = functions if isinstance(functions, dict) else dict.fromkeys(functions)
        self._heard = dict.fromkeys(f for f in list(self._functions) if self.stubs or _own_code(f) is not STUB)
        self._known = len(_compiled)

    def _look_again(self) -> None:
        """Hear what was compiled since it was begun the last time, too."""
        if self._known != len(_compiled):
            for function in list(_compiled)[self._known :]:
                if function in self._functions:
                    self._heard[function] = None
            self._known = len(_compiled)

    def _above(self, function: FunctionType, code: CodeType) -> tuple[CodeType, CodeType, Call]:
        """The entry of a function whose code below this listener is `code`."""
        known = self._codes.get(function)
        if known is None or known[0] is not code:
            proceed = _first_call(function) if code is STUB else copied(function, code)
            known = self._codes[function] = code, listener_code(code, self.hear, function, proceed), proceed
        return known


@contextlib.contextmanager
def listening(functions: Iterable[FunctionType], hear: Hear) -> Iterator[None]:
    """A context in which `hear(function, args, kwargs, proceed)` is called in place of `functions`."""
    listener = Listener(hear)
    listener.begin(functions)
    try:
        yield
    finally:
        listener.end()


def rewritten(function: FunctionType) -> None:
    """Listen again to a function that has just been given another code of its own."""
    with _lock:
        _change(lambda: _rewritten(function))


def without_listeners(function: F) -> F | FunctionType:
    """Return a function as it is without listeners, for `inspect.signature`; itself where it has none."""
    if not isinstance(function, FunctionType):
        return function
    with _lock:
        code = _own_code(function)
    if code is function.__code__:
        return function
    made = copied(function, code)
    made.__annotations__ = function.__annotations__
    made.__dict__.update(function.__dict__)  # `__wrapped__`
    return made


# --- changes, one at a time


def _change(step: Callable[[], None]) -> None:
    """Do one step; while another one is being done (a finalizer runs inside of it), after that."""
    global _changing
    _steps.append(step)
    if _changing:
        return
    _changing = True
    try:
        while _steps:
            _steps.pop(0)()
    finally:
        _changing = False


def _rewritten(function: FunctionType) -> None:
    _compiled[function] = None
    for listener in _stack:
        if function in listener._functions:
            listener._heard[function] = None
    _build(function)


def _own_code(function: FunctionType) -> CodeType:
    """The code of a function below all listeners."""
    code = function.__code__
    for listener in reversed(_stack):
        known = listener._codes.get(function)
        if known is not None and known[1] is code:
            code = known[0]
    return code


def _build(function: FunctionType, without: Listener | None = None) -> None:
    """Give a function the code of its listeners, one on the other."""
    code = _own_code(function)
    for listener in _stack:
        if listener is not without and function in listener._heard:
            code = listener._above(function, code)[1]
    function.__code__ = code


def _first_call(function: FunctionType) -> Call:
    """Return `proceed` for a stub: it compiles the function and goes on with the listeners that leave stubs alone."""

    def first(*args: object, **kwargs: object) -> object:
        function.__globals__["_compile_"]()
        with _lock:
            call: Call = copied(function, _own_code(function))
            for listener in _stack:
                if not listener.stubs and function in listener._heard:
                    call = _heard_by(listener.hear, function, call)
        return call(*args, **kwargs)

    return first


def _heard_by(hear: Hear, function: FunctionType, proceed: Call) -> Call:
    return lambda *args, **kwargs: hear(function, args, kwargs, proceed)


# --- the code


@cache
def _template(count: int) -> CodeType:
    """Code of `return hear(function, args, kwargs, proceed)` with `count` free variables; strings for the constants."""
    cells = ", ".join(f"cell{i}" for i in range(count))
    file = f"<engine listener, {count} cells>"
    text = (
        f"def outer({cells}):\n"
        "    def listener(*args, **kwargs):\n"
        "        return ('hear' if True else None)('function', args, kwargs, 'proceed')\n"
        f"        [{cells}]  # never reached: it makes them free variables of this function\n"
        "    return listener\n"
    )
    scope: dict[str, Callable[..., FunctionType]] = {}
    exec(compile(text, file, "exec"), scope)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    code: CodeType = scope["outer"](*[None] * count).__code__
    return code


def listener_code(code: CodeType, hear: Hear, function: FunctionType, proceed: Call) -> CodeType:
    """Return code that calls `hear(function, args, kwargs, proceed)`, for a function whose own code is `code`.

    It has the name of `code` and its free variables: it fits the function's closure, and its frames can be read.
    """
    template = _template(len(code.co_freevars))
    constants = {"hear": hear, "function": function, "proceed": proceed}
    return template.replace(
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_freevars=code.co_freevars,
        co_consts=tuple(constants.get(c, c) if isinstance(c, str) else c for c in template.co_consts),
    )


def copied(function: FunctionType, code: CodeType | None = None) -> FunctionType:
    """Return a function with the code (its own, where `code` is None), globals, defaults and closure of `function`."""
    made = FunctionType(
        function.__code__ if code is None else code,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made
