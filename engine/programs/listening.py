"""Run a function and let a recorder hear its calls at the gate (`engine/dispatch/gate.py`)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any, TypeVar

from engine.dispatch import FUNCTIONS, autocast, import_lazy
from engine.dispatch.gate import Call, Listener
from engine.programs.recorder import Recorder
from engine.programs.values import Unsupported, getitem, mapped, setitem, tensors_in
from engine.random import default_generator
from engine.tensor import Tensor, wrap

__all__ = ["recording", "run_recorded"]

T = TypeVar("T")
# What shows Python the values of a tensor.
_READS: dict[FunctionType, str] = {
    vars(Tensor)[name]: name
    for name in (
        "item",
        "tolist",
        "numpy",
        "__array__",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "__contains__",
    )
}
_lock = threading.Lock()  # functions report to one recorder at a time
_present: list[Recorder] = []  # the recorder of the run that goes on now


def recording() -> bool:
    """Return whether the calls of this thread are being noted: what has a plan of its own runs op by op meanwhile."""
    return bool(_present) and any(threading.get_ident() == one.owner for one in _present)


def run_recorded(
    run: Callable[[], T], inputs: Sequence[Tensor], recorder: Recorder | None = None
) -> tuple[Recorder, T]:
    """Call `run()` and note what it does with `inputs`: (the recorder, what it returned).

    Why the record cannot be replayed stands in the recorder's `failure`; `run` is not disturbed by it.
    """
    import_lazy()  # all op functions there are
    recorder = Recorder(inputs) if recorder is None else recorder
    seed = default_generator.get_state()
    with _lock, _listening(recorder):
        result = run()
    recorder.finish(seed)
    recorder.attempt(recorder.see, result)
    if recorder.failure is None:
        recorder.result = mapped(result, recorder.ref, Tensor)
    return recorder, result


@contextlib.contextmanager
def _listening(recorder: Recorder) -> Iterator[None]:
    """The functions report to the recorder."""
    begun: list[Listener] = []
    rows: list[tuple[Listener, Iterable[Any]]] = [
        (_readers, _READS),
        (_wraps, (wrap,)),
        (_whole, {setitem: None, **recorder.whole}),
        (_ops, FUNCTIONS),
    ]
    if getitem not in recorder.whole:
        rows.append((_indexing, (getitem,)))
    _present.append(recorder)
    try:
        for listener, functions in rows:
            listener.begin(functions)
            begun.append(listener)
        yield
    finally:
        _present.clear()
        for listener in reversed(begun):
            listener.end()


def _hear(function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object], proceed: Call) -> object:
    """A call that is noted, if it is one of the run."""
    recorder = _present[0] if _present else None
    if recorder is None:  # another thread's call, while the run ends
        return proceed(*args, **kwargs)
    if not recorder.active() or recorder.dissolves(function):
        return proceed(*recorder.given(args), **recorder.given(kwargs))
    if autocast.state.on:
        args, kwargs = recorder.cast(function, args, kwargs)
    casts = autocast.state.count
    recorder.inside = True
    try:
        recorder.attempt(recorder.see, (args, kwargs))
        result = proceed(*recorder.given(args), **recorder.given(kwargs))
        if autocast.state.count != casts and recorder.failure is None:
            recorder.failure = Unsupported(f"autocast casts inside of {function.__name__}")
    finally:
        recorder.inside = False
    recorder.attempt(recorder.note, function, args, kwargs, args[0] if function is setitem else result)
    return result


def _hear_index(function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object], proceed: Call) -> object:
    """`x[index]`: one call where tensors are in the index; one of no dims is a number, and the result then a view."""
    named = tensors_in(args[1:])
    if named and all(t.ndim for t in named):
        return _hear(function, args, kwargs, proceed)
    return proceed(*args, **kwargs)


def _listening_now() -> Recorder | None:
    """The recorder that notes what this thread does outside of ops."""
    for recorder in _present:
        if not recorder.inside and threading.get_ident() == recorder.owner:
            return recorder
    return None


def _hear_wrap(function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object], proceed: Call) -> object:
    tensor: Tensor = proceed(*args, **kwargs)
    recorder = _listening_now()
    if recorder is not None:
        recorder.made(tensor)
    return tensor


def _hear_read(function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object], proceed: Call) -> object:
    recorder = _listening_now()
    if recorder is not None and args:
        number = recorder.numbers.get(id(args[0]))
        if number is not None and recorder.derived[number]:
            recorder.read(_READS[function])
    return proceed(*args, **kwargs)


_ops, _whole, _indexing = Listener(_hear), Listener(_hear), Listener(_hear_index)
_wraps, _readers = Listener(_hear_wrap), Listener(_hear_read)
