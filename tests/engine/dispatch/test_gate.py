"""The gate: who hears a call, in which order, and that nothing of it stays."""

from __future__ import annotations

import gc
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import engine
from engine import func, fx
from engine.dispatch import FUNCTIONS, gate, import_lazy
from engine.dispatch.gate import STUB, Listener, listening, rewritten, without_listeners

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    before = list(gate._stack)
    yield
    gc.collect()
    assert gate._stack == before and not gate._steps


def made(name: str = "f") -> FunctionType:
    def f(a: int, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    f.__name__ = name
    return f


def stub() -> tuple[FunctionType, list[str]]:
    """A function as the binder makes them: its first call compiles it."""
    space: dict[str, Any] = {}
    compiled: list[str] = []
    function = FunctionType(STUB, space, "late")

    def compile_now() -> FunctionType:
        compiled.append("late")
        function.__code__ = (lambda a: a * 10).__code__
        rewritten(function)
        return function

    space["_compile_"] = compile_now
    return function, compiled


def noting(seen: list[Any], name: str, change: Callable[[Any], Any] = lambda x: x) -> gate.Hear:
    def hear(function: FunctionType, args: Any, kwargs: Any, proceed: Any) -> Any:
        seen.append((name, function.__name__, args, kwargs))
        return change(proceed(*args, **kwargs))

    return hear


def names(seen: list[Any]) -> list[str]:
    found = [entry[0] for entry in seen]
    seen.clear()
    return found


def test_a_listener_is_called_in_place_of_the_function() -> None:
    f, seen = made(), []
    own = f.__code__
    with listening([f], noting(seen, "x", lambda result: (*result, "changed"))):
        assert f(1, c=5) == (1, 2, 5, "changed")
        assert f.__code__ is not own
    assert seen == [("x", "f", (1,), {"c": 5})]
    assert f.__code__ is own and f(1) == (1, 2, 3) and len(seen) == 1


def test_the_last_to_begin_hears_first_whoever_ends() -> None:
    f, seen = made(), []
    own = f.__code__
    a, b, c = (Listener(noting(seen, name)) for name in "abc")
    for listener in (a, b, c):
        listener.begin([f])
    f(1)
    assert names(seen) == ["c", "b", "a"]
    b.end()  # in the middle
    f(1)
    assert names(seen) == ["c", "a"]
    b.begin([f])
    f(1)
    assert names(seen) == ["b", "c", "a"]
    a.end()  # at the bottom
    f(1)
    assert names(seen) == ["b", "c"]
    b.end()
    c.end()
    assert f(1) == (1, 2, 3) and not seen and f.__code__ is own


def test_one_that_is_last_hears_after_those_that_began_before_it() -> None:
    f, seen = made(), []
    own = f.__code__
    a, bottom, b = (Listener(noting(seen, name)) for name in ("a", "bottom", "b"))
    a.begin([f])
    bottom.begin([f], last=True)
    b.begin([f])
    f(1)
    assert names(seen) == ["b", "a", "bottom"]
    for listener in (a, bottom, b):
        listener.end()
    assert f.__code__ is own


def test_what_was_begun_twice_ends_with_the_second_end() -> None:
    f, seen = made(), []
    listener = Listener(noting(seen, "x"))
    listener.begin([f])
    first = f.__code__
    listener.begin([f])
    assert f.__code__ is first and listener.count == 2
    f(1)
    assert names(seen) == ["x"]
    listener.end()
    f(1)
    assert names(seen) == ["x"]
    listener.end()
    with pytest.raises(RuntimeError, match="has not begun"):
        listener.end()


def test_codes_are_made_once() -> None:
    f = made()
    listener = Listener(noting([], "x"))
    codes = []
    for _ in range(3):
        listener.begin([f])
        codes.append(f.__code__)
        listener.end()
    assert codes[0] is codes[1] is codes[2]


def test_other_functions_from_now_on() -> None:
    f, g, seen = made("f"), made("g"), []
    listener, above = Listener(noting(seen, "x")), Listener(noting(seen, "above"))
    own = f.__code__, g.__code__
    listener.begin([f])
    above.begin([f, g])
    listener.change([g])
    f(1), g(1)
    assert [(name, called) for name, called, *_ in seen] == [("above", "f"), ("above", "g"), ("x", "g")]
    listener.end()
    above.end()
    assert (f.__code__, g.__code__) == own


@pytest.mark.parametrize("stubs", [False, True])
def test_the_first_call_is_heard_once(stubs: bool) -> None:
    f, compiled = stub()
    seen: list[Any] = []
    listener = Listener(noting(seen, "x"), stubs=stubs)
    listener.begin([f])
    assert f(4) == 40 and names(seen) == ["x"] and compiled == ["late"]
    assert f(5) == 50 and names(seen) == ["x"] and compiled == ["late"]
    listener.end()
    assert f(6) == 60 and not seen and compiled == ["late"]


def test_a_call_is_answered_before_anything_is_compiled() -> None:
    f, compiled = stub()
    listener = Listener(lambda function, args, kwargs, proceed: "recorded", stubs=True)
    listener.begin([f])
    assert f(object()) == "recorded" and not compiled
    listener.end()
    assert f.__code__ is STUB and f(1) == 10


def test_several_on_a_first_call() -> None:
    """Who hears stubs hears the first call before those who leave them alone; all hear it once."""
    f, _ = stub()
    seen: list[Any] = []
    a, b, c = (Listener(noting(seen, name), stubs=name == "b") for name in "abc")
    for listener in (a, b, c):
        listener.begin({f: None})
    f(1)
    assert names(seen) == ["b", "c", "a"]
    f(1)
    assert names(seen) == ["c", "b", "a"]
    for listener in (b, a, c):
        listener.end()
    assert f(1) == 10 and not seen


def test_a_function_that_is_rewritten_is_listened_to_again() -> None:
    f, seen = made(), []
    a, b = Listener(noting(seen, "a")), Listener(noting(seen, "b"))
    a.begin([f])
    b.begin([f])
    f.__code__ = new = (lambda a, b=2, *, c=3: "new").__code__
    rewritten(f)
    assert f(1) == "new" and names(seen) == ["b", "a"]
    a.end()
    b.end()
    assert f.__code__ is new


def test_what_is_compiled_between_two_times_is_heard_the_second_time() -> None:
    f, _ = stub()
    seen: list[Any] = []
    table: dict[FunctionType, None] = {}
    listener = Listener(noting(seen, "x"))
    listener.begin(table)
    listener.end()
    table[f] = None
    f(1)
    listener.begin(table)
    f(1)
    listener.end()
    assert names(seen) == ["x"]


def test_exceptions_pass_and_the_listener_ends() -> None:
    f, seen = made(), []
    own = f.__code__
    with (
        pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"),
        listening([f], noting(seen, "x")),
    ):
        f()
    assert f.__code__ is own and names(seen) == ["x"]


def test_a_finalizer_that_ends_a_listener_while_another_begins() -> None:
    """The last Proxy dies in a collection that happens at any allocation, also between reading and giving a code."""
    f, g, seen = made("f"), made("g"), []
    own = f.__code__, g.__code__
    dying = Listener(noting(seen, "dying"))
    dying.begin([f, g])

    class Ends(dict):
        """The codes of a listener, which are looked up in the middle of its beginning."""

        def get(self, key: Any, default: Any = None) -> Any:
            if dying.count:
                dying.end()
            return super().get(key, default)

    other = Listener(noting(seen, "other"))
    other._codes = Ends()
    other.begin([f, g])
    f(1), g(1)
    assert names(seen) == ["other", "other"]
    other.end()
    assert (f.__code__, g.__code__) == own


def test_threads_begin_and_end_as_they_like() -> None:
    functions = [made(f"f{i}") for i in range(20)]
    own = [f.__code__ for f in functions]
    heard = [0] * 4
    failures: list[BaseException] = []

    def work(i: int) -> None:
        me = threading.get_ident()

        def hear(function: FunctionType, args: Any, kwargs: Any, proceed: Any) -> Any:
            if threading.get_ident() == me:
                heard[i] += 1
            return proceed(*args, **kwargs)

        listener = Listener(hear)
        try:
            for n in range(50):
                listener.begin(functions)
                assert functions[n % 20](n) == (n, 2, 3)
                listener.end()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and heard == [50] * 4
    assert [f.__code__ for f in functions] == own


def test_signatures_of_what_is_listened_to() -> None:
    f = made()
    before = inspect.signature(f)
    loss: Any = engine.nn.functional.kl_div
    expected = inspect.signature(without_listeners(loss))  # a test before may have left one
    with listening([f, loss], noting([], "x")):
        assert inspect.signature(without_listeners(f)) == before != inspect.signature(f)
        assert inspect.signature(without_listeners(loss)) == expected
    assert without_listeners(f) is f


def codes() -> dict[FunctionType, CodeType]:
    return {f: f.__code__ for f in FUNCTIONS if f.__code__ is not STUB}


def test_the_engines_functions_have_the_same_codes_when_nobody_listens() -> None:
    """Proxies, vmap, hooks on saved tensors, a mode and a recorded program, nested and one after the other."""
    from engine.programs import record
    from engine.torch_names import _overriding, overrides

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    def run() -> None:
        x = engine.ones(3, 2, requires_grad=True)
        hooks = engine.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
        func.vmap(lambda t: t * 2 + 1)(x)
        with hooks, Mode():
            func.vmap(lambda t: (t * t).sum())(x).sum().backward()
        proxy = fx.Proxy(fx.Graph().placeholder("x"))
        with hooks:
            assert isinstance(engine.add(x, proxy), fx.Proxy)
            del proxy
            gc.collect()
            (x * x).sum().backward()
        record.record(lambda t: (t * 2).relu(), (x.detach(),))

    import_lazy()
    _overriding.end()  # of another test's subclass
    run()
    before = codes()
    run()
    after = codes()
    assert len(before) > 5 and all(after[f] is code for f, code in before.items())


def test_nothing_else_assigns_the_code_of_a_function() -> None:
    """Where a text is compiled its function gets the code; everything else goes through the gate."""
    found = {
        path.relative_to(ROOT / "engine").as_posix()
        for path in (ROOT / "engine").rglob("*.py")
        if re.search(r"__code__ =[^=]", path.read_text("utf-8"))
    }
    assert found == {"dispatch/gate.py", "dispatch/binder.py", "dispatch/arguments.py"}
