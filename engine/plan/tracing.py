"""Recording the ops of one call, for `plan.py`: what ran on which tensors, in order.

Note [Traces]
While a trace runs, every op function carries the code of a stub that calls the op and notes the call (`FUNCTIONS` in
dispatch.py; nothing is paid for it at other times).  A tensor is known by identity; one that no noted op made, and that
is no input, is a constant of the trace.  What a trace cannot hold, such as control flow that looked at values, it
names: `Unsupported`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from engine.autograd.graph import registered
from engine.dispatch import FUNCTIONS, Op, autocast, import_lazy
from engine.dispatch.listeners import copied
from engine.random import default_generator
from engine.tensor import Tensor, raw_array, wrap

__all__ = ["Call", "Ref", "Trace", "Unsupported", "mapped", "record", "recording", "refs_in", "tensors_in"]


class Unsupported(Exception):
    """The call cannot be replayed; the message says why."""


class Ref:
    """A value of the trace, by number."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"%{self.index}"


class _SetItem:
    """The record of `x[index] = value`, which is no op of its own but writes like one."""

    name = "setitem"
    view = False
    deterministic = True
    varargs = None
    positional: tuple[str, ...] = ("input", "index", "value")
    params = positional
    defaults: dict[str, Any] = {}


class _GetItem(_SetItem):
    """The record of `x[index]` with tensors in the index, which no op takes as tensors."""

    name = "getitem"
    positional = ("input", "index")
    params = positional


class _Whole(_SetItem):
    """The record of a function that is no op and is noted as one."""

    name = ""


def _record_of(function: Any) -> Any:
    return getattr(function, "op", _ITEMS.get(function, _Whole))


class Call:
    """One op: `function(*args, **kwargs)` with tensors as Refs; `outputs` the numbers of the tensors it returned."""

    __slots__ = ("_read", "args", "effect", "function", "inplace", "kwargs", "outputs")

    def __init__(self, function: Any, args: tuple, kwargs: dict, outputs: list[int], inplace: bool) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.outputs, self.inplace = outputs, inplace
        self._read: tuple[Any, Any, list[int]] = (None, None, [])  # what `refs` was found in, and what it is
        self.effect = False  # whether it does more than give its outputs: draws, writes to what it was not given

    @property
    def op(self) -> Op:
        found: Op = _record_of(self.function)
        return found

    @property
    def refs(self) -> list[int]:
        """The values it reads; the first is what an in-place op writes to."""
        args, kwargs, found = self._read
        if args is not self.args or kwargs is not self.kwargs:
            found = [r.index for r in refs_in((self.args, self.kwargs))]
            self._read = self.args, self.kwargs, found
        return found

    def bound(self) -> dict[str, Any]:
        """The arguments by the op's own names.  Unsupported for aliases and separate sizes."""
        record = self.op
        names = dict(zip(record.positional, self.args))
        if record.varargs or set(self.kwargs) - set(record.params):
            raise Unsupported(f"arguments of {record.name}")
        return {**record.defaults, **names, **self.kwargs}

    def __repr__(self) -> str:
        return f"{self.outputs} = {self.function.__name__}{self.args}{self.kwargs or ''}"


def mapped(value: Any, change: Callable[[Any], Any], leaf: type) -> Any:
    """`value` with `change(x)` for every x of type `leaf` in nested lists, tuples, dicts and slices."""
    if isinstance(value, leaf):
        return change(value)
    kind = type(value)
    if kind is list:
        return [mapped(v, change, leaf) for v in value]
    if isinstance(value, tuple):
        made = [mapped(v, change, leaf) for v in value]
        if kind is tuple:
            return tuple(made)
        return kind(*made) if hasattr(value, "_fields") else kind(made)
    if isinstance(value, dict):
        made_items = {k: mapped(v, change, leaf) for k, v in value.items()}
        if kind is dict:
            return made_items
        copy = value.copy()
        copy.update(made_items)
        return copy
    if kind is slice:
        return slice(*(mapped(v, change, leaf) for v in (value.start, value.stop, value.step)))
    return value


def _leaves(value: Any, leaf: type) -> Iterator[Any]:
    found: list[Any] = []
    mapped(value, found.append, leaf)
    return iter(found)


def tensors_in(value: Any) -> list[Tensor]:
    """The Tensors in nested lists, tuples, dicts and slices, in order."""
    return list(_leaves(value, Tensor))


def refs_in(value: Any) -> list[Ref]:
    """The Refs in nested lists, tuples, dicts and slices, in order."""
    return list(_leaves(value, Ref))


# What shows Python the values of a tensor.
_READS = ("item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__complex__",
          "__contains__")  # fmt: skip

_STUB = (lambda *args, **kwargs: _traced_(*args, **kwargs)).__code__  # type: ignore[name-defined]  # noqa: F821
_setitem: Any = Tensor.__setitem__
_getitem: Any = Tensor.__getitem__
_ITEMS = {_setitem: _SetItem, _getitem: _GetItem}
_lock = threading.Lock()  # op functions carry one trace at a time
_recorded: set[int] = set()  # the thread whose calls are noted now


def recording() -> bool:
    """Whether the calls of this thread are being noted: what has a plan of its own runs op by op meanwhile."""
    return bool(_recorded) and threading.get_ident() in _recorded


class Trace:
    """The calls of one run.  `values` are its tensors by number, `constants` the numbers of those it did not make.

    hold: values that depend on the inputs live as long as the trace, so that they can be looked at; else (None in
    `values`) only as long as the run needs them.
    """

    def __init__(self, inputs: Sequence[Tensor], hold: bool = True) -> None:
        self.hold = hold
        self.calls: list[Call] = []
        self.values: list[Tensor | None] = []
        self.kinds: list[tuple] = []  # shape and dtype of each value
        self.numbers: dict[int, int] = {}  # the latest of each tensor by its id
        self.arrays: dict[int, int] = {}  # the same by the id of its array, of values that are not held
        self.living: dict[int, Any] = {}  # id of such a tensor -> weak reference
        self.places: dict[int, Any] = {}  # id of such an array -> weak reference
        self.counters: list[Any] = []  # of versions: held, so that no other has its id
        self.constants: list[int] = []
        self.derived: list[bool] = []  # whether a value depends on the inputs
        self.inputs = [self._add(t, True) for t in inputs]
        self.owner = threading.get_ident()
        self.inside = False
        self.result: Any = None  # what the run returned, with Refs
        self.versions: list[tuple[Tensor, tuple[int, int]]] = []  # of the constants, when they were met
        self.created: set[int] = set()  # ids of tensors that came up during the run, and not out of an op
        self.held: list[Tensor] = []
        self.others: dict[Any, Any] = {
            f: f for f in _ITEMS
        }  # what is noted and no op function, as it is without a trace
        self.originals: dict[Any, Any] = {}  # the same of op functions
        self.expected: dict[int, int] = {}  # id of a version counter -> the version after the last call
        self.fresh: dict[int, Any] = {}  # number of such a constant -> its elements when it was met
        self.failure: Unsupported | None = None
        self.lenient = False  # whether random numbers are drawn anew, and what is kept is written to, by who replays it
        self.reads: list[str] = []  # how the values of derived tensors were read in Python

    def _add(self, tensor: Tensor, derived: bool) -> int:
        number, array = len(self.values), raw_array(tensor)
        self.kinds.append((array.shape, array.dtype))
        self.derived.append(derived)
        if self.hold or not derived:
            self.values.append(tensor)  # held, so that no other tensor gets its id
            self.numbers[id(tensor)] = number
        else:
            self.values.append(None)
            self._know(tensor, number)
        return number

    def _know(self, tensor: Tensor, number: int) -> None:
        """The number of a tensor that is not held, and of those on its array, as long as they live."""
        for thing, numbers, living in (
            (tensor, self.numbers, self.living),
            (raw_array(tensor), self.arrays, self.places),
        ):
            key = id(thing)
            numbers[key] = number
            if key not in living:
                living[key] = weakref.ref(thing, _forget(key, numbers, living))

    def _alias(self, tensor: Tensor) -> int | None:
        """The number of the value that is not held and whose array a tensor has."""
        array = raw_array(tensor)
        number = self.arrays.get(id(array))
        if number is None:  # its memory may have been laid out anew
            for key, reference in list(self.living.items()):
                other = reference()
                if other is not None and raw_array(other) is array:
                    number = self.numbers[key]
                    break
        if number is not None:
            self._know(tensor, number)
        return number

    def ref(self, tensor: Tensor) -> Ref:
        """The number of a tensor.  An unknown one is an alias (`detach()`) of a known one, or a constant."""
        number = self.numbers.get(id(tensor))
        if number is None:
            number = self._alias(tensor)
        if number is None:
            array = raw_array(tensor)
            for i in range(len(self.values) - 1, -1, -1):
                held = self.values[i]
                if held is not None and raw_array(held) is array:
                    number = self.numbers[id(held)]  # which may be an alias itself
                    self.numbers[id(tensor)] = number
                    self.values.append(tensor)
                    self.kinds.append(self.kinds[i])
                    self.derived.append(self.derived[i])
                    return Ref(number)
            number = self._add(tensor, False)
            self.constants.append(number)
            if id(tensor) in self.created:
                self.fresh[number] = tensor._array.copy()
            else:
                self.versions.append((tensor, _state(tensor)))
        return Ref(number)

    def note(self, function: FunctionType, args: tuple, kwargs: dict, result: Any) -> None:
        """Add one call."""
        op = _record_of(function)
        name = function.__name__
        if not op.deterministic and not self.lenient:
            raise Unsupported(f"{name} draws random numbers")
        if kwargs.get("out") is not None:
            raise Unsupported(f"{name} with out=")
        inplace = op is _SetItem or (name.endswith("_") and bool(args) and result is args[0])
        call = Call(
            function,
            mapped(args, self.ref, Tensor),
            mapped(kwargs, self.ref, Tensor),
            [],
            inplace,
        )
        derived = any(self.derived[i] for i in call.refs)
        made = tensors_in(result)
        if not made:
            if result is NotImplemented:
                return  # the operator of the other operand follows
            raise Unsupported(f"{name} returned {type(result).__name__}")
        if not inplace and any(id(t) in self.numbers for t in made):
            if len(made) > 1:
                raise Unsupported(f"{name} returned a tensor that it was given")
            return
        call.outputs = [self._add(t, derived) for t in made]
        self.calls.append(call)
        for t in (*made, *tensors_in((args, kwargs))):
            self._expect(t)

    def _expect(self, tensor: Tensor) -> None:
        if id(tensor._vc) not in self.expected:
            self.counters.append(tensor._vc)
        self.expected[id(tensor._vc)] = tensor._vc[0]

    def see(self, value: Any) -> None:
        """Number the tensors of a call before it writes to any.  Unsupported if one has changed behind the trace."""
        for tensor in tensors_in(value):
            self.ref(tensor)
            if id(tensor._vc) not in self.expected:
                self._expect(tensor)
            elif self.expected[id(tensor._vc)] != tensor._vc[0]:
                raise Unsupported("a tensor is written to in a way that no op shows")

    def given(self, value: Any) -> Any:
        """The arguments of a call, or its keywords, as the op takes them."""
        return value

    def read(self, name: str) -> None:
        """Values were read in Python by the method `name`."""
        self.reads.append(name)

    def wrapped(self, function: FunctionType) -> Callable[..., Any]:
        """What stands in for an op function meanwhile."""

        def traced(*args: Any, **kwargs: Any) -> Any:
            original = self.others.get(function) or self.originals.get(function)
            if original is None:
                original = self.originals[function] = _original(function)
            if self.inside or self.failure or threading.get_ident() != self.owner or self.dissolves(function):
                return original(*self.given(args), **self.given(kwargs))
            if autocast.state.on:
                args, kwargs = self.cast(function, args, kwargs)
            casts = autocast.state.count
            self.inside = True
            try:
                self.attempt(self.see, (args, kwargs))
                result = original(*self.given(args), **self.given(kwargs))
                if autocast.state.count != casts and self.failure is None:
                    self.failure = Unsupported(f"autocast casts inside of {function.__name__}")
            finally:
                self.inside = False
            given = args[0] if function is _setitem else result
            self.attempt(self.note, function, args, kwargs, given)
            return result

        return traced

    def dissolves(self, function: FunctionType) -> bool:
        """Whether the calls inside of a function are noted this time, instead of its own."""
        return False

    def cast(self, function: FunctionType, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The operands of a call under autocast, cast before it.  Here a failure: casts are below what is recorded."""
        self.failure = self.failure or Unsupported("autocast is on")
        return args, kwargs

    def made(self, tensor: Tensor) -> None:
        """A tensor came up that no op made."""
        self.created.add(id(tensor))
        self.held.append(tensor)

    def finish(self, seed: Tensor) -> None:
        """What can only be told at the end of the run is its failure, too.  seed: the generator's state before."""
        if self.failure is None and self.reads:
            self.failure = Unsupported(f"the values of a tensor are read in Python (Tensor.{self.reads[0]})")
        if self.failure is None and not self.lenient and not _equal(seed, default_generator.get_state()):
            self.failure = Unsupported("it draws random numbers")
        if self.failure is None and not self.lenient and any(_state(t) != state for t, state in self.versions):
            self.failure = Unsupported("it writes to parameters, buffers or other tensors it keeps")

    def attempt(self, step: Callable[..., None], *args: Any) -> None:
        """One step of the trace; what it cannot hold is its failure, the run goes on."""
        if self.failure is None:
            try:
                step(*args)
            except Unsupported as error:
                self.failure = error


def _forget(key: int, *tables: dict[int, Any]) -> Callable[[Any], None]:
    def forget(_: Any) -> None:
        for table in tables:
            table.pop(key, None)

    return forget


def _state(tensor: Tensor) -> tuple[int, int]:
    """What changes when the tensor is written to."""
    return tensor._vc[0], tensor._replaced


def _original(function: FunctionType) -> FunctionType:
    """The op function as it was: compiled now if this is its first call."""
    namespace = function.__globals__
    code = namespace["_traced_code_"]
    if code.co_name == "<lambda>":  # dispatch.py: Note [Compiled on first use]
        stub = function.__code__
        namespace["_compile_"]()
        code = namespace["_traced_code_"] = function.__code__
        function.__code__ = stub
    return copied(function, code)


def _watch(trace: Trace) -> None:
    """Give the op functions the stub's code."""
    for function in FUNCTIONS:
        if function.__code__ is not _STUB:
            namespace = function.__globals__
            namespace["_traced_"] = trace.wrapped(function)
            namespace["_traced_code_"] = function.__code__
            function.__code__ = _STUB


def _equal(first: Tensor, second: Tensor) -> bool:
    return bool((first._array == second._array).all())


def record(run: Callable[[], Any], inputs: Sequence[Tensor], trace: Trace | None = None) -> tuple[Trace, Any]:
    """Call `run()` and note what it does with `inputs`: (the trace, what it returned).

    Why the trace cannot be replayed stands in its `failure`; `run` is not disturbed by it.
    """
    import_lazy()  # all op functions there are
    trace = Trace(inputs) if trace is None else trace
    kept = {name: getattr(Tensor, name) for name in _READS}
    make, seed = wrap.__code__, default_generator.get_state()
    made = FunctionType(make, wrap.__globals__, "wrap")
    laying = registered.begin_conversion

    def again() -> None:
        """Some of the functions were written anew."""
        trace.originals = {}
        _watch(trace)

    def begin() -> None:
        laying()
        again()

    def wrapped(array: Any) -> Tensor:
        tensor = made(array)
        if not trace.inside and threading.get_ident() == trace.owner:
            trace.made(tensor)
        return tensor

    def reader(name: str) -> Callable[..., Any]:
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == trace.owner and not trace.inside:
                number = trace.numbers.get(id(tensor))
                if number is not None and trace.derived[number]:
                    trace.read(name)
            return kept[name](tensor, *args, **kwargs)

        return read

    noted = trace.wrapped(_getitem)

    def getitem(tensor: Tensor, index: Any) -> Any:
        named = tensors_in(index)  # one of no dims is a number, and the result then a view
        return noted(tensor, index) if named and all(t.ndim for t in named) else _getitem(tensor, index)

    with _lock:
        try:
            _recorded.add(threading.get_ident())
            if type(trace) is Trace:
                Tensor.__getitem__ = getitem  # type: ignore[attr-defined]
            for name in _READS:
                setattr(Tensor, name, reader(name))
            Tensor.__setitem__ = trace.wrapped(_setitem)  # type: ignore[attr-defined]
            wrap.__globals__["_traced_"] = wrapped
            wrap.__code__ = _STUB
            _watch(trace)
            registered.begin_conversion = begin
            autocast.after_install.append(again)
            result = run()
        finally:
            _recorded.clear()
            autocast.after_install.remove(again)
            Tensor.__setitem__ = _setitem  # type: ignore[attr-defined]
            Tensor.__getitem__ = _getitem  # type: ignore[attr-defined]
            registered.begin_conversion = laying
            wrap.__code__ = make
            wrap.__globals__.pop("_traced_", None)
            for function in FUNCTIONS:
                namespace = function.__globals__
                code = namespace.pop("_traced_code_", None)
                if code is not None:
                    function.__code__ = code
                namespace.pop("_traced_", None)
            for name in _READS:
                setattr(Tensor, name, kept[name])
    trace.finish(seed)
    trace.attempt(trace.see, result)
    if trace.failure is None:
        trace.result = mapped(result, trace.ref, Tensor)
    return trace, result
