"""Operators of TorchScript on numbers, lists, dictionaries and text; those on tensors are in `tensor_operators`.

`ATEN` and `PRIM` are the lists; each function takes its arguments in the order of the operator's schema.
"""

from __future__ import annotations

import builtins
import math
import operator
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

from engine.core import dtypes
from engine.library.schema import DTYPE_NUMBERS
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["ATEN", "PRIM", "aten", "prim", "refuse_kind", "shown", "to_dtype", "to_memory_format"]

ATEN: dict[str, Callable[..., Any]] = {}
PRIM: dict[str, Callable[..., Any]] = {}

_NUMBERED = {number: getattr(dtypes, name) for name, number in DTYPE_NUMBERS.items() if hasattr(dtypes, name)}
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def to_dtype(number: Any) -> Any:
    """The dtype with torch's number (6 is float32), None of None; RuntimeError for quantized and unknown ones."""
    if number is None or type(number) is dtypes.dtype:
        return number
    found = _NUMBERED.get(number) if type(number) is int else None
    if found is None:
        raise RuntimeError(f"element type number {number!r} is quantized or unknown: the engine has no such tensors")
    return found


def to_memory_format(number: Any) -> Any:
    """The memory format with torch's number, the preserving one of None."""
    if number is None:
        return torch.preserve_format
    if type(number) is not int or not 0 <= number < len(_FORMATS):
        raise RuntimeError(f"memory format number {number!r} is unknown")
    return getattr(torch, _FORMATS[number])


def aten(*names: str) -> Callable[[Callable], Callable]:
    """A decorator that puts a function on the list of `aten`, under its own name or these."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names or (function.__name__.strip("_"),):
            ATEN[name] = function
        return function

    return register


def prim(*names: str) -> Callable[[Callable], Callable]:
    """A decorator that puts a function on the list of `prim`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            PRIM[name] = function
        return function

    return register


def _number(value: Any) -> bool:
    return not isinstance(value, Tensor)


# -- numbers that share their names with tensors -----------------------------------------------------------

_FLOATS: dict[str, Callable[..., Any]] = {
    "acos": math.acos, "acosh": math.acosh, "asin": math.asin, "asinh": math.asinh, "atan": math.atan,
    "atanh": math.atanh, "cos": math.cos, "cosh": math.cosh, "erf": math.erf, "erfc": math.erfc, "exp": math.exp,
    "expm1": math.expm1, "lgamma": math.lgamma, "log": math.log, "log10": math.log10, "log1p": math.log1p,
    "sin": math.sin, "sinh": math.sinh, "sqrt": math.sqrt, "tan": math.tan, "ceil": math.ceil, "floor": math.floor,
    "round": float, "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite, "atan2": math.atan2,
    "copysign": math.copysign, "fmod": math.fmod, "gcd": math.gcd, "ldexp": math.ldexp, "frexp": math.frexp,
    "tanh": math.tanh,
}  # fmt: skip
_EDGES = {"log": -math.inf, "log10": -math.inf, "log1p": -math.inf}


def _either(name: str, of_floats: Callable[..., Any]) -> Callable[..., Any]:
    of_tensors = getattr(torch, name)
    edge = _EDGES.get(name, math.nan)

    def either(first: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(first, Tensor) or any(isinstance(value, Tensor) for value in rest):
            return of_tensors(first, *rest, **named)
        try:
            return of_floats(first, *rest)
        except OverflowError:
            return math.inf
        except ValueError:
            return edge if name in _EDGES and first == (-1 if name == "log1p" else 0) else math.nan

    either.__name__ = name
    return either


for _name, _function in _FLOATS.items():
    if hasattr(torch, _name):
        ATEN[_name] = _either(_name, _function)

ATEN.update(
    degrees=math.degrees,
    radians=math.radians,
    factorial=lambda n: math.factorial(builtins.min(n, 10_000)),
    gamma=math.gamma,
    fabs=math.fabs,
    modf=math.modf,
    abs=builtins.abs,
    mathremainder=math.remainder,
)


@aten("round")
def _round(x: Any, *rest: Any, **named: Any) -> Any:
    return float(builtins.round(x)) if _number(x) else torch.round(x, *rest, **named)


@aten("pow")
def _pow(base: Any, exponent: Any) -> Any:
    """Numbers give a float, so that no integer grows without bound."""
    if isinstance(base, Tensor) or isinstance(exponent, Tensor):
        return torch.pow(base, exponent)
    if isinstance(base, complex) or isinstance(exponent, complex):
        return complex(base) ** exponent
    try:
        result = float(base) ** exponent
    except OverflowError:
        return math.inf
    except ZeroDivisionError:
        return math.inf
    return result if type(result) is float else math.nan


@aten("remainder")
def _remainder(a: Any, b: Any) -> Any:
    return torch.remainder(a, b) if isinstance(a, Tensor) or isinstance(b, Tensor) else a % b


@aten("div", "divide", "true_divide")
def _div(a: Any, b: Any, *rest: Any, **named: Any) -> Any:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.div(a, b, *rest, **named)
    return a / b


@aten("__lshift__")
def _lshift(a: Any, b: Any) -> Any:
    if isinstance(a, Tensor):
        return torch.bitwise_left_shift(a, b)
    return (a << b & (1 << 64) - 1 ^ 1 << 63) - (1 << 63) if 0 <= b < 64 else 0


ATEN["__rshift__"] = operator.rshift
ATEN["__round_to_zero_floordiv"] = lambda a, b: int(a / b)


@aten("__range_length")
def _range_length(start: int, stop: int, step: int) -> int:
    if step == 0:
        raise RuntimeError("range() arg 3 must not be zero")
    return len(range(start, stop, step))


@aten("__derive_index")
def _derive_index(index: int, start: int, step: int) -> int:
    return start + index * step


@aten("floordiv")
def _floordiv(a: Any, b: Any) -> Any:
    return a // b


def _reduced(name: str, of_list: Callable[..., Any]) -> Callable[..., Any]:
    of_tensors = getattr(torch, name)

    def reduced(first: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(first, Tensor):
            return of_tensors(first, *rest, **named)
        if rest and isinstance(first, list) and isinstance(rest[0], list):  # prim::max of two lists
            return of_list(first, rest[0])
        return of_list(first, *rest)

    return reduced


for _name, _function in (
    ("max", builtins.max),
    ("min", builtins.min),
    ("sum", builtins.sum),
    ("any", builtins.any),
    ("all", builtins.all),
):
    ATEN[_name] = _reduced(_name, _function)
PRIM.update(max=ATEN["max"], min=ATEN["min"], abs=builtins.abs)

for _name in ("Int", "IntImplicit"):
    ATEN[_name] = int
for _name in ("Float", "FloatImplicit"):
    ATEN[_name] = float
ATEN["Bool"] = bool
ATEN["ComplexImplicit"] = complex


@aten("Complex")
def _complex(real: Any, imag: Any = 0) -> complex:
    return complex(float(real), float(imag)) if not isinstance(real, complex) else real


@aten("ScalarImplicit")
def _scalar(x: Any) -> Any:
    return x.item() if isinstance(x, Tensor) else x


@aten("as_tensor", "tensor")
def _tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype) if device is not None or dtype is not None else data
    _check_data(data)
    return torch.tensor(data, dtype=dtype, device=device, requires_grad=bool(requires_grad))


def _check_data(data: Any) -> None:
    while isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, int | float | complex | bool | list | Tensor):
        raise RuntimeError(f"a tensor is made of numbers, not of {type(data).__name__}")


# -- lists, dictionaries, text -----------------------------------------------------------------------------


@aten("len")
def _len(x: Any) -> int:
    return len(x)


@aten("append")
def _append(items: list, value: Any) -> list:
    items.append(value)
    return items


ATEN.update(
    extend=list.extend,
    insert=list.insert,
    clear=lambda x: x.clear(),
    reverse=list.reverse,
    remove=list.remove,
    Delete=operator.delitem,
    __getitem__=operator.getitem,
    _set_item=operator.setitem,
    __contains__=lambda items, value: value in items,
    list=list,
    dict=dict,
    keys=lambda d: list(d.keys()),
    values=lambda d: list(dict.values(d)),
    items=lambda d: list(dict.items(d)),
    update=dict.update,
    setdefault=dict.setdefault,
    popitem=dict.popitem,
    get=dict.get,
    ord=ord,
    chr=chr,
    hex=hex,
    oct=oct,
    bin=bin,
    hash=hash,
)


@aten("values")
def _values(x: Any) -> Any:
    return x.values() if isinstance(x, Tensor) else list(dict.values(x))


@aten("pop")
def _pop(x: Any, *rest: Any) -> Any:
    return x.pop(*rest) if isinstance(x, list | dict) else refuse_kind("pop", x)


@aten("copy")
def _copy(x: Any, *source: Any) -> Any:
    """A copy of a list or dictionary; of a tensor, one of its size and dtype with the elements of another."""
    if isinstance(x, Tensor):
        return torch.empty_like(x).copy_(*source)
    return x.copy() if isinstance(x, list | dict) else refuse_kind("copy", x)


@aten("count")
def _count(x: Any, *rest: Any) -> int:
    return x.count(*rest) if isinstance(x, list | str) else refuse_kind("count", x)


@aten("sort")
def _sort(x: Any, *rest: Any, **named: Any) -> Any:
    if isinstance(x, Tensor):
        if rest and "stable" in named:
            raise RuntimeError("aten::sort takes its stability by name only")
        return torch.sort(x, *rest, **named)
    return list.sort(x, reverse=bool(rest[0]) if rest else bool(named.get("reverse")))


@aten("sorted")
def _sorted(x: Any) -> list:
    return builtins.sorted(x)


def refuse_kind(what: str, x: Any) -> Any:
    """RuntimeError: an operator has no form for such a value."""
    raise RuntimeError(f"aten::{what} has no form for a {type(x).__name__}")


_STRINGS = (
    "capitalize center endswith expandtabs find isalnum isalpha isdecimal isdigit isidentifier islower isnumeric "
    "isprintable isspace istitle isupper ljust lower lstrip partition replace rfind rindex rjust rpartition rsplit "
    "rstrip splitlines startswith strip swapcase title upper zfill"
)


def _of_text(name: str) -> Callable[..., Any]:
    method = getattr(str, name)

    def of_text(text: Any, *rest: Any) -> Any:
        if not isinstance(text, str):
            return refuse_kind(name, text)
        return method(text, *rest)

    return of_text


for _name in _STRINGS.split():
    ATEN[_name] = _of_text(_name)
PRIM["StringIndex"] = operator.getitem


@aten("join")
def _join(text: str, parts: list) -> str:
    return str.join(text, parts)


@aten("split")
def _split(x: Any, *rest: Any, **named: Any) -> Any:
    if isinstance(x, str):
        return x.split(*rest)
    return list(torch.split(x, *rest, **named))


def shown(value: Any) -> str:
    """A value as `str` and `format` of TorchScript write it."""
    if isinstance(value, str):
        return value
    return str(list(value)) if isinstance(value, torch.Size) else str(value)


@aten("format")
def _format(text: str, *values: Any) -> str:
    """Each `{}` replaced in order; braces with anything between them stay as they are."""
    if not isinstance(text, str):
        return refuse_kind("format", text)
    parts = text.split("{}")
    if len(parts) - 1 > len(values):
        raise RuntimeError("Too few arguments for format string: " + text)
    pieces = [parts[0]]
    for value, part in zip(values, parts[1:]):
        pieces += (shown(value), part)
    return "".join(pieces)


_PERCENT = re.compile(r"%(%|[sdieEfFgGcx])")


@aten("percentFormat")
def _percent(text: str, *values: Any) -> str:
    rest = iter(values[0] if len(values) == 1 and isinstance(values[0], tuple) else values)

    def one(match: re.Match) -> str:
        kind = match[1]
        if kind == "%":
            return "%"
        value = next(rest, None)
        return shown(value) if kind == "s" else f"%{kind}" % value

    return _PERCENT.sub(one, text)


@aten("str")
def _str(value: Any) -> str:
    return shown(value)


@prim("Print")
def print_(*values: Any) -> None:
    """The values on stdout, as torch prints them."""
    sys.stdout.write(" ".join(map(shown, values)) + "\n")


@aten("warn")
def _warn(message: Any, stacklevel: int = 2) -> None:
    warnings.warn(shown(message), stacklevel=3)
