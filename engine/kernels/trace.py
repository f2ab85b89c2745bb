"""Records array code in the source form: what an op's own kernel does to each element, in one pass.

A kernel of `engine/ops` is written with `xp` and arrays.  Called with `TracedModule` for xp and `Traced` for the
arrays it writes statements instead of computing, with numpy's own rules for types (each ufunc is asked).  So the
formula of an op stands in one place, and a chain of numpy passes becomes one kernel.

Note [Numbers in recorded kernels]
Python numbers among the arguments (a slope, a learning rate) become parameters, so that another value needs no other
kernel: `Number` stands for one, arithmetic on it is done on the host at each launch, and each comparison that the
kernel's code makes is kept as a guard; where a guard answers otherwise another kernel is recorded.  Code that wants the
bare float is refused (Untraceable); the caller then records with the numbers as constants.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from engine.kernels import form
from engine.kernels.form import Kernel, Value, call, compute_type, where

KNOWN = frozenset(form.ITEMSIZE)
DType: TypeAlias = np.dtype[Any]
DTypeLike: TypeAlias = "DType | type | str"
Reader = Callable[[Sequence[Any]], Any]  # of the numbers of a call: one of them, or what is made of some
Rule = Callable[..., Value]


class Untraceable(Exception):
    """Array code that the source form cannot hold."""


@functools.cache
def type_of(dtype: DTypeLike) -> str:
    """The form's name of a numpy dtype.  Raises Untraceable for others (complex, strings)."""
    name = str(np.dtype(dtype).name)
    if name not in KNOWN:
        raise Untraceable(f"no kernels of {name}")
    return name


class Number:
    """A Python number that may be another at the next call: Note [Numbers in recorded kernels]."""

    __slots__ = ("of", "trace", "value")

    def __init__(self, trace: Trace, value: Any, of: Reader) -> None:
        self.trace, self.value, self.of = trace, value, of

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for isinstance(x, float)
        return type(self.value)

    def _made(self, function: Callable[..., Any], *others: object) -> Number:
        values = [o.value if type(o) is Number else o for o in others]
        readers = [o.of if type(o) is Number else (lambda numbers, o=o: o) for o in others]
        return Number(self.trace, function(*values), lambda numbers: function(*[read(numbers) for read in readers]))

    def _guarded(self, function: Callable[..., bool], *others: object) -> bool:
        made = self._made(function, *others)
        answer = bool(made.value)
        self.trace.guards.append((made.of, answer))
        return answer

    def __bool__(self) -> bool:
        return self._guarded(bool, self)

    def __eq__(self, other: object) -> bool:
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> bool:
        return self._compared(operator.ne, other)

    def __lt__(self, other: object) -> bool:
        return self._compared(operator.lt, other)

    def __le__(self, other: object) -> bool:
        return self._compared(operator.le, other)

    def __gt__(self, other: object) -> bool:
        return self._compared(operator.gt, other)

    def __ge__(self, other: object) -> bool:
        return self._compared(operator.ge, other)

    def _compared(self, function: Callable[..., bool], other: object) -> bool:
        return NotImplemented if isinstance(other, Traced) else self._guarded(function, self, other)

    __hash__ = None  # type: ignore[assignment]

    def _refused(self, *args: object) -> NoReturn:
        raise Untraceable("the code wants a bare number")

    __float__ = __int__ = __index__ = __complex__ = __array__ = _refused
    __round__ = __trunc__ = __floor__ = __ceil__ = __format__ = _refused


def _arithmetic(function: Callable[..., Any], reflected: bool) -> Callable[[Number, object], Number]:
    def method(self: Number, other: object) -> Number:
        if isinstance(other, Traced):
            made: Number = NotImplemented
            return made
        return self._made(function, other, self) if reflected else self._made(function, self, other)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Number, f"__{_name}__", _arithmetic(getattr(operator, _name), False))
    setattr(Number, f"__r{_name}__", _arithmetic(getattr(operator, _name), True))
for _name in ("neg", "abs", "pos"):
    setattr(Number, f"__{_name}__", lambda self, f=getattr(operator, _name): self._made(f, self))


class Trace:
    """One recording: the kernel being written, its guards, and the numbers that became parameters."""

    def __init__(self, kernel: Kernel, replayed: bool = False) -> None:
        """replayed: the numbers are read from memory, an array a type, since a graph keeps its kernels' parameters."""
        self.kernel = kernel
        self.memory: dict[str, tuple[form.Array, list[Reader]]] | None = {} if replayed else None
        self.guards: list[tuple[Reader, bool]] = []
        self.numbers: list[tuple[str, str, Reader]] = []  # (parameter, type, its value)

    def number(self, number: Number, type: str) -> Value:
        """The parameter that holds a number in a type."""
        if type == "bool":
            raise Untraceable("a number as a truth value")
        if self.memory is not None:
            found = self.memory.get(type)
            if found is None:
                found = self.memory[type] = (self.kernel.array(f"numbers_{type}", type), [])
            found[1].append(number.of)
            return self.kernel.load(found[0], self.kernel.constant(len(found[1]) - 1, "index"))
        name = f"number{len(self.numbers)}"
        self.numbers.append((name, type, number.of))
        return self.kernel.scalar(name, type)


class Traced:
    """An array while it is recorded: one element of it, and numpy's dtype.  In-place code changes `value`."""

    __array_ufunc__ = None
    __slots__ = ("dtype", "trace", "value")
    ndim = 1  # hasattr(x, "ndim") is how kernels know arrays; shapes are the caller's affair
    size = 1 << 40  # code that reads the size picks the faster of equal routes

    def __init__(self, trace: Trace, value: Value, dtype: DTypeLike) -> None:
        self.trace, self.value = trace, value
        self.dtype: DType = np.dtype(dtype)

    def astype(self, dtype: DTypeLike | Number, copy: bool = True, **ignored: object) -> Traced:
        """A copy in another type, or itself."""
        if isinstance(dtype, Number):
            raise Untraceable("astype of a number")
        dtype = np.dtype(dtype)
        if dtype == self.dtype and not copy:
            return self
        return Traced(self.trace, _cast(self, dtype), dtype)

    def copy(self) -> Traced:
        """A copy."""
        return Traced(self.trace, self.value, self.dtype)

    def clip(self, low: object = None, high: object = None, out: Traced | None = None) -> Traced:
        """As numpy's."""
        return TracedModule(self.trace).clip(self, low, high, out=out)

    def __setitem__(self, mask: object, value: object) -> None:
        if mask is Ellipsis:
            self.value = _cast(_as_traced(self.trace, value, self.dtype), self.dtype)
            return
        if not isinstance(mask, Traced) or mask.dtype != np.bool_:
            raise Untraceable("an index")
        given = _cast(_as_traced(self.trace, value, self.dtype), self.dtype)
        self.value = where(mask.value, given, self.value)

    def __getattr__(self, name: str) -> NoReturn:
        raise Untraceable(f"the array's {name}")

    def _refused(self, *args: object) -> NoReturn:
        raise Untraceable("the code looks at values")

    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __getitem__ = __array__ = _refused
    __hash__ = None  # type: ignore[assignment]


def _operator(ufunc: str, reflected: bool = False, inplace: bool = False) -> Callable[..., Traced]:
    def method(self: Traced, *others: object) -> Traced:
        args = (*others, self) if reflected else (self, *others)
        return record(self.trace, ufunc, args, self if inplace else None)

    return method


for _name, _ufunc in {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}.items():
    setattr(Traced, f"__{_name}__", _operator(_ufunc))
    setattr(Traced, f"__r{_name}__", _operator(_ufunc, reflected=True))
    setattr(Traced, f"__i{_name}__", _operator(_ufunc, inplace=True))
for _name, _ufunc in {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
    "neg": "negative",
    "abs": "absolute",
    "invert": "invert",
    "pos": "positive",
}.items():
    setattr(Traced, f"__{_name}__", _operator(_ufunc))


# --- numpy's functions


def _cast(x: Traced, dtype: DTypeLike) -> Value:
    return x.trace.kernel.cast(x.value, compute_type(type_of(dtype)))


def _as_traced(trace: Trace, value: object, dtype: DTypeLike) -> Traced:
    """An operand in a dtype: an array, a number, or a numpy scalar that is a constant of the code."""
    if isinstance(value, Traced):
        return value
    type = compute_type(type_of(dtype))
    if builtins.type(value) is Number:
        return Traced(trace, trace.number(value, type), dtype)
    if isinstance(value, np.ndarray) and value.ndim:
        raise Untraceable("an array that is no operand")
    if isinstance(value, bool | int | float | np.generic | np.ndarray):
        plain = value.item() if isinstance(value, np.generic | np.ndarray) else value
        if isinstance(plain, complex):
            raise Untraceable("a complex number")
        return Traced(trace, trace.kernel.constant(plain, type), dtype)
    raise Untraceable(f"an operand of {builtins.type(value).__name__}")


def _resolved(ufunc: np.ufunc, args: Sequence[object]) -> tuple[DType, ...]:
    """The dtypes of the loop that numpy takes: inputs, then the output."""
    kinds: list[DType | type] = []
    for a in args:
        if isinstance(a, Traced | np.generic | np.ndarray):
            kinds.append(a.dtype)
        else:  # Python's numbers are weak
            plain = a.value if type(a) is Number else a
            kinds.append(bool if isinstance(plain, bool) else int if isinstance(plain, int) else float)
            if not isinstance(plain, bool | int | float):
                raise Untraceable(f"an operand of {type(plain).__name__}")
    return _loop(ufunc, tuple(kinds))


@functools.lru_cache(4096)
def _loop(ufunc: np.ufunc, kinds: tuple[DType | type, ...]) -> tuple[DType, ...]:
    asked = tuple([np.dtype(bool) if k is bool else k for k in kinds])
    try:
        return ufunc.resolve_dtypes((*asked, *(None,) * ufunc.nout))
    except (TypeError, ValueError):
        raise Untraceable(f"numpy has no {ufunc.__name__} of {kinds}") from None


def record(
    trace: Trace, name: str, args: Sequence[object], out: object = None, dtype: DTypeLike | None = None
) -> Traced:
    """A ufunc of numpy's, written down."""
    rule = UFUNCS.get(name)
    if rule is None:
        raise Untraceable(f"no rule for {name}")
    loop = _resolved(getattr(np, name), args)
    if dtype is not None and np.dtype(dtype) != loop[-1]:
        raise Untraceable("a ufunc told its type")
    values = []
    for a, kind in zip(args, loop):
        values.append(_cast(_as_traced(trace, a, kind), kind))
    if all(v.constant is not None for v in values):
        raise Untraceable("arithmetic of constants")
    try:
        made = rule(*values) if callable(rule) else trace.kernel.op(rule, *values)
    except form.FormError as error:
        raise Untraceable(str(error)) from None
    result = Traced(trace, trace.kernel.cast(made, compute_type(type_of(loop[-1]))), loop[-1])
    if isinstance(out, tuple):
        (out,) = out
    if out is None:
        return result
    if not isinstance(out, Traced):
        raise Untraceable("out= of something else")
    if not np.can_cast(loop[-1], out.dtype, "same_kind"):
        raise Untraceable(f"out= of {out.dtype}")
    out.value = _cast(result, out.dtype)
    return out


def _floating(v: Value) -> bool:
    return v.type in form.FLOATS


def _whole(name: str) -> Rule:
    """A rounding: of integers themselves."""
    return lambda a: call(name, a) if _floating(a) else a


def _by_bool(plain: str, of_bool: str) -> Rule:
    return lambda a, b: a.kernel.op(of_bool if a.type == "bool" else plain, a, b)


def _power(a: Value, b: Value) -> Value:
    if not _floating(a):
        raise Untraceable("a power of integers")
    if b.constant is not None and b.constant == 2:
        return a * a
    return call("pow", a, b)


def _fmax(name: str) -> Rule:
    def rule(a: Value, b: Value) -> Value:
        if not _floating(a):
            return call(name, a, b)
        return where(call("isnan", a), b, where(call("isnan", b), a, call("f" + name, a, b)))

    return rule


def _floor_divide(a: Value, b: Value) -> Value:
    raise Untraceable("division of integers" if not _floating(a) else "floor_divide")


def _remainder(a: Value, b: Value) -> Value:
    if not _floating(a):
        raise Untraceable("a remainder of integers")
    return call("remainder", a, b)


def _fmod(a: Value, b: Value) -> Value:
    if not _floating(a):
        raise Untraceable("a remainder of integers")
    return call("fmod", a, b)


def _always(answer: bool, name: str) -> Rule:
    """A test of floats; integers all answer alike."""
    return lambda a: call(name, a) if _floating(a) else a.kernel.op("eq" if answer else "ne", a, a)


def _logaddexp(a: Value, b: Value) -> Value:
    top, low = call("max", a, b), call("min", a, b)
    return where(a.kernel.op("eq", a, b), a + 0.6931471805599453, top + call("log1p", call("exp", low - top)))


def _signbit(a: Value) -> Value:
    return call("signbit", a) if _floating(a) else a.kernel.op("lt", a, 0)


def _sign(a: Value) -> Value:
    if a.type == "bool":
        raise Untraceable("the sign of a truth value")
    return call("sign", a)


def _shift(name: str) -> Rule:
    def rule(a: Value, b: Value) -> Value:
        raise Untraceable(name)

    return rule


UFUNCS: dict[str, str | Rule] = {
    **{n: n for n in "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh hypot copysign".split()},
    **{f"arc{n}": f"a{n}" for n in "sin cos tan sinh cosh tanh".split()},
    "arctan2": "atan2", "nextafter": "nextafter", "cbrt": "cbrt",
    "add": _by_bool("add", "lor"), "multiply": _by_bool("mul", "land"), "subtract": "sub", "negative": "neg",
    "true_divide": "div", "divide": "div", "power": _power, "float_power": _power,
    "floor_divide": _floor_divide, "remainder": _remainder, "mod": _remainder, "fmod": _fmod,
    "maximum": _by_bool("max", "lor"), "minimum": _by_bool("min", "land"), "fmax": _fmax("max"), "fmin": _fmax("min"),
    "absolute": lambda a: a if a.type == "bool" else call("abs", a),
    "fabs": "abs", "positive": lambda a: a, "conjugate": lambda a: a,
    "square": lambda a: a.kernel.op("land" if a.type == "bool" else "mul", a, a),
    "reciprocal": lambda a: 1 / a if _floating(a) else _floor_divide(a, a),
    "floor": _whole("floor"), "ceil": _whole("ceil"), "trunc": _whole("trunc"), "rint": _whole("rint"),
    "sign": _sign, "signbit": _signbit,
    "isnan": _always(False, "isnan"), "isinf": _always(False, "isinf"), "isfinite": _always(True, "isfinite"),
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
    "logical_and": lambda a, b: call("land", _truth(a), _truth(b)),
    "logical_or": lambda a, b: call("lor", _truth(a), _truth(b)),
    "logical_xor": lambda a, b: call("ne", _truth(a), _truth(b)),
    "logical_not": lambda a: call("not", _truth(a)),
    "bitwise_and": _by_bool("and", "land"), "bitwise_or": _by_bool("or", "lor"),
    "bitwise_xor": _by_bool("xor", "ne"), "invert": "invert",
    "left_shift": _shift("left_shift"), "right_shift": _shift("right_shift"),
    "logaddexp": _logaddexp,
}  # fmt: skip
_ALIASES = {
    "abs": "absolute",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "bitwise_not": "invert",
    "pow": "power",
    "conj": "conjugate",
}


def _truth(v: Value) -> Value:
    return v.kernel.cast(v, "bool")


class TracedModule:
    """The array module that a traced kernel gets for `xp`."""

    pi, inf, nan, e, newaxis = np.pi, np.inf, np.nan, np.e, None
    ndarray, generic, dtype = Traced, np.generic, np.dtype
    finfo, iinfo, issubdtype = staticmethod(np.finfo), staticmethod(np.iinfo), staticmethod(np.issubdtype)
    floating, integer, bool_ = np.floating, np.integer, np.bool_

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __getattr__(self, name: str) -> Callable[..., Traced]:
        name = _ALIASES.get(name, name)
        if name not in UFUNCS:
            raise Untraceable(f"xp.{name}")
        trace = self._trace

        def function(*args: object, out: object = None, dtype: DTypeLike | None = None, **more: object) -> Traced:
            if more.pop("where", True) is not True or more.keys() - {"casting"}:
                raise Untraceable(f"{name} with {sorted(more)}")
            count = getattr(np, name).nin
            if len(args) == count + 1:
                *args, out = args  # type: ignore[assignment]
            return record(trace, name, args, out, dtype)

        return function

    def where(self, condition: object, first: object, second: object) -> Traced:
        """As numpy's."""
        if not isinstance(condition, Traced):
            raise Untraceable("a condition that is no array")
        dtype = _resolved(np.maximum, (first, second))[-1] if _is_bare(first, second) else _result(first, second)
        a, b = (_cast(_as_traced(self._trace, x, dtype), dtype) for x in (first, second))
        return Traced(self._trace, where(_truth(condition.value), a, b), dtype)

    def clip(self, x: Traced, low: object = None, high: object = None, out: Traced | None = None) -> Traced:
        """As numpy's: nan stays."""
        found = x
        if low is not None:
            found = record(self._trace, "maximum", (found, low))
        if high is not None:
            found = record(self._trace, "minimum", (found, high))
        if out is None:
            return found.copy() if found is x else found
        out.value = _cast(found, out.dtype)
        return out

    def asarray(self, x: object, dtype: DTypeLike | None = None) -> Traced:
        """As numpy's, of an array."""
        if not isinstance(x, Traced):
            if type(x) is Number or dtype is None:
                raise Untraceable("a constant array")
            return _as_traced(self._trace, x, np.dtype(dtype))
        return x if dtype is None else x.astype(dtype, copy=False)

    ascontiguousarray = array = asarray

    def zeros_like(self, x: Traced, dtype: DTypeLike | None = None) -> Traced:
        """As numpy's."""
        return self.full_like(x, 0, dtype)

    def ones_like(self, x: Traced, dtype: DTypeLike | None = None) -> Traced:
        """As numpy's."""
        return self.full_like(x, 1, dtype)

    empty_like = zeros_like

    def full_like(self, x: Traced, value: object, dtype: DTypeLike | None = None) -> Traced:
        """As numpy's."""
        kind = np.dtype(x.dtype if dtype is None else dtype)
        return _as_traced(self._trace, value, kind)

    def result_type(self, *args: object) -> DType:
        """As numpy's."""
        return _result(*args)

    def float32(self, value: object) -> Traced | np.generic:
        """A number of that type."""
        return _typed(self._trace, value, np.float32)

    def float64(self, value: object) -> Traced | np.generic:
        """A number of that type."""
        return _typed(self._trace, value, np.float64)


def _typed(trace: Trace, value: object, kind: type[np.generic]) -> Traced | np.generic:
    if type(value) is Number or isinstance(value, Traced):
        return _as_traced(trace, value, kind).astype(kind)
    return kind(value)


def _is_bare(*args: object) -> bool:
    return not any(isinstance(a, Traced | np.generic | np.ndarray) for a in args)


def _result(*args: object) -> DType:
    plain: list[Any] = []
    for a in args:
        if isinstance(a, Traced):
            plain.append(a.dtype)
        elif type(a) is Number:
            plain.append(a.value)
        else:
            plain.append(a)
    try:
        return np.result_type(*plain)
    except TypeError as error:
        raise Untraceable(str(error)) from None
