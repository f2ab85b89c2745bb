"""What debuggers, profilers and crash reporters do to a process: nothing of it may end the interpreter.

docs/explanation/python_objects.md lists the places that this concerns.
What could is done in a process of its own, whose exit status is the test.
"""

from __future__ import annotations

import copy
import gc
import inspect
import linecache
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest

import engine
from engine.backends.references import LOCAL, LOCAL_AND_ONE
from engine.dispatch.gate import copied, listener_code
from engine.kernels import cpython, direct, processor
from engine.programs import generated_guards

BEGIN = """
import faulthandler, gc, inspect, sys, threading, traceback, warnings
faulthandler.enable()
warnings.simplefilter("ignore")
import engine
from engine import func, fx, nn
import engine.nn.functional as F
from engine.torch_names import overrides

def listeners():
    functions = [f for f in gc.get_objects() if type(f) is type(listeners)]
    found = [f for f in functions if f.__code__.co_filename.startswith("<engine listener")]
    return [f for f in found if f.__closure__] + [f for f in found if not f.__closure__][:40]

def read(error):
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            dict(frame.f_locals)
            inspect.getargvalues(frame)
        error = error.__context__

def read_all():
    found = listeners()
    for function in found:
        try:
            function(object())
        except Exception as error:
            read(error)
    print(len(found) > 5)

def train(x):
    for _ in range(20):
        y = nn.Linear(5, 3)((x * 2 + 1).relu()).softmax(1).cumsum(1)
        y.sum().backward()
        x.grad = None
    return y
"""


def run(text: str) -> list[str]:
    code = BEGIN + textwrap.dedent(text) + "\nprint('fine')\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.split()
    assert lines[-1] == "fine"
    return lines


def test_locals_of_failed_calls_of_functions_that_are_listened_to() -> None:
    """Modes, subclasses, proxies, vmap, hooks on saved tensors and recorded programs: each has its listener."""
    lines = run("""
        train(engine.randn(4, 5, requires_grad=True))  # what is compiled is listened to
        with engine.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            read_all()
        func.vmap(lambda x: (read_all(), x * 2)[1], randomness="different")(engine.ones(3, 2))
        from engine.programs import record
        try:
            record.record(lambda x: (read_all(), x * 2)[1], (engine.ones(2),), leaves=("layer_norm", "lstm"))
        except record.RecordError:
            pass
        fx.symbolic_trace(lambda x: (read_all(), x * 2)[1])
        class Mode(overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                dict(sys._getframe(1).f_locals)
                return function(*args, **(kwargs or {}))
        with Mode():
            read_all()
        class Tagged(engine.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return super().__torch_function__(function, types, args, kwargs or {})
        engine.ones(2).as_subclass(Tagged)
        read_all()
    """)
    assert lines.count("True") >= 5 and "False" not in lines, lines


def test_tracers_profilers_collectors_and_other_interpreters() -> None:
    """A sub-interpreter is told by numpy that it cannot be loaded twice."""
    lines = run("""
        def look(frame, event, arg):
            dict(frame.f_locals)
            return look
        x = engine.randn(4, 5, requires_grad=True)
        train(x)
        for begin in (sys.settrace, sys.setprofile):
            begin(look)
            train(x)
            func.vmap(lambda t: t * 2)(x)
            begin(None)

        def work():
            train(engine.randn(4, 5, requires_grad=True))
        threads = [threading.Thread(target=work) for _ in range(3)]
        [t.start() for t in threads]
        with open("/dev/null", "w") as out:
            while any(t.is_alive() for t in threads):
                for frame in sys._current_frames().values():
                    while frame:
                        dict(frame.f_locals)
                        frame = frame.f_back
                faulthandler.dump_traceback(out, all_threads=True)

        for thing in gc.get_objects():
            gc.get_referents(thing)
        gc.get_referrers(x)
        gc.collect()

        inner = "try:\\n import engine\\nexcept ImportError:\\n pass"
        if sys.version_info < (3, 13):
            import _xxsubinterpreters as interpreters
            number = interpreters.create(isolated=False)
        else:
            import _interpreters as interpreters
            number = interpreters.create("legacy")
        interpreters.run_string(number, inner)
        interpreters.destroy(number)
        train(x)
    """)
    assert lines == ["fine"]


# --- the parts


def _failing(count: int) -> FunctionType:
    cells = [f"c{i}" for i in range(count)]
    text = (
        f"def outer({', '.join(cells)}):\n    def inner(a=1, *, b=2): return a, b, {', '.join(cells)}\n    return inner"
    )
    scope: dict[str, Any] = {}
    exec(text, scope)
    made: FunctionType = scope["outer"](*range(10, 10 + count))
    return made


@pytest.mark.parametrize("count", range(5))
def test_the_code_of_a_listener_shows_the_cells_of_its_function(count: int) -> None:
    function = _failing(count)

    def hear(function: FunctionType, args: Any, kwargs: Any, proceed: Any) -> Any:
        if args == ("fail",):
            raise ValueError("heard")
        return proceed(*args, **kwargs)

    function.__code__ = listener_code(function.__code__, hear, function, copied(function))
    assert function(5, b=6) == (5, 6, *range(10, 10 + count))
    assert function.__name__ == function.__code__.co_name == "inner"
    with pytest.raises(ValueError, match="heard") as caught:
        function("fail")
    frame = next(f for f, _ in traceback.walk_tb(caught.value.__traceback__) if f.f_code is function.__code__)
    expected = {"args": ("fail",), "kwargs": {}, **{f"c{i}": 10 + i for i in range(count)}}
    assert frame.f_locals == expected
    assert "return" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    assert inspect.getclosurevars(function).nonlocals == {f"c{i}": 10 + i for i in range(count)}


def test_no_code_gets_free_variables_by_hand() -> None:
    """Replaced `co_freevars` without the instruction that copies them end the process: only `listener_code` may."""
    made: list[CodeType] = []
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("engine"):
            made += [v.__code__ for v in vars(module).values() if isinstance(v, FunctionType)]
    with engine.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        made += [f.__code__ for f in gc.get_objects() if isinstance(f, FunctionType)]
    copying = __import__("dis").opmap["COPY_FREE_VARS"]
    bad = [c for c in made if c.co_freevars and copying not in (c.co_code[0], c.co_code[2])]
    assert not bad


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy])
def test_functions_are_copied_and_have_signatures(copies: Callable[[Any], Any]) -> None:
    for function in (engine.add, engine.nn.functional.relu, engine.nn.functional.max_pool2d):
        assert copies(function) is function and inspect.signature(function)


def test_references_of_what_nobody_else_holds() -> None:
    class Holder:
        pass

    def counts() -> tuple[int, int, int]:
        held = [object()][0]
        holder = Holder()
        holder.held = inner = [object()][0]  # type: ignore[attr-defined]
        also = other = [object()][0]
        assert also is other
        return sys.getrefcount(held), sys.getrefcount(inner), sys.getrefcount(other)

    assert counts() == (LOCAL, LOCAL_AND_ONE, LOCAL_AND_ONE)


def test_a_gradient_that_somebody_holds_is_copied() -> None:
    held = []
    x = engine.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: held.append(gradient))
    (y * 1).sum().backward()
    (x * 1).register_hook(held.append)
    before = held[0].clone()
    x.grad.mul_(5)
    assert engine.equal(held[0], before)


@pytest.mark.parametrize("change", ["setattr", "new", "delattr", "object", "dict", "class", "__dict__"])
def test_what_is_watched_changes_with_the_object(change: str) -> None:
    """On 3.13 attributes change without the number of their dict: nothing is watched there."""
    if not generated_guards.available():
        pytest.skip("dicts have no numbers here, or no code can be generated")

    class Thing:
        def __init__(self) -> None:
            self.a = 1

    class Other(Thing):
        pass

    thing = Thing()
    watch = generated_guards.Watch([thing.__dict__], [], [thing])
    assert watch.same()
    {
        "setattr": lambda: setattr(thing, "a", 1000),
        "new": lambda: setattr(thing, "b", 1),
        "delattr": lambda: delattr(thing, "a"),
        "object": lambda: object.__setattr__(thing, "a", 1000),
        "dict": lambda: thing.__dict__.update(a=1000),
        "class": lambda: setattr(thing, "__class__", Other),
        "__dict__": lambda: setattr(thing, "__dict__", {"a": 1}),
    }[change]()
    assert not watch.same()


def test_nothing_is_read_where_an_identity_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(address: int) -> None:
        raise AssertionError(address)

    monkeypatch.setattr(cpython.platform, "python_implementation", lambda: "PyPy")
    monkeypatch.setattr(cpython.ctypes.c_uint64, "from_address", read, raising=False)
    assert not any(map(cpython.readable.__wrapped__, ("arrays", "calls", "dicts")))
    monkeypatch.setattr(cpython, "readable", cpython.readable.__wrapped__)
    assert processor.available.__wrapped__() is False and not direct.readable() and not generated_guards.available()
