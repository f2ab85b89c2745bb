"""The types of a function's arguments, and torch's errors for others.

Parameters say it in their annotations: `Tensor`, `int`, `float`, `complex` (any number), `bool`, `str`,
`tuple[int, ...]` (beside `int`: one number for all), a union of these, `| None`.  Anything else is not looked at, but
for a parameter called `dtype`.
Kernels annotate what is no tensor; which of their parameters are tensors the op's record knows.

Each call tests them first, with one expression that is false for what nearly every call passes (`tests`); only where it
is true does `check_arguments` look at each argument in turn, and raises or lets the call go on with plain numbers
and dtypes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.core import dtypes
from engine.core.checks import size_of
from engine.core.device import device
from engine.dispatch import overriding
from engine.dispatch.gate import STUB, copied, rewritten
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.dispatch.record import Op

__all__ = [
    "Arguments",
    "argument_error",
    "by_name",
    "check_arguments",
    "checked",
    "combination_error",
    "operand_error",
    "sizes_error",
    "sizes_of",
]

NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}  # by which torch's functions take their arguments too
MISSING: Any = type("MISSING", (), {"__repr__": lambda self: "..."})()
INTS = "tuple[int, ...]"
# what an annotation names: torch's word for it; where several are allowed the first that is named counts
WORDS = {
    "Tensor": "Tensor",
    INTS: "tuple of ints",
    "tuple[float, ...]": "tuple of floats",
    "tuple[Tensor, ...]": "tuple of Tensors",
    "complex": "Number",
    "float": "float",
    "int": "int",
    "bool": "bool",
    "str": "str",
    "dtype": "torch.dtype",
}
# false for the usual argument of a kind; {p} is the parameter
UNUSUAL = {
    "Tensor": "not isinstance({p}, Tensor)",
    INTS: "not (({p}.__class__ is tuple or {p}.__class__ is list) and all_ints({p}))",
    "tuple[float, ...]": "not isinstance({p}, tuple | list)",
    "tuple[Tensor, ...]": "not isinstance({p}, tuple | list)",
    "complex": "{p}.__class__ is not float and {p}.__class__ is not int",
    "float": "{p}.__class__ is not float and {p}.__class__ is not int",
    "int": "{p}.__class__ is not int",
    "bool": "{p}.__class__ is not bool",
    "str": "{p}.__class__ is not str",
    "dtype": "{p}.__class__ is not dtype_class",
}


class Kind(NamedTuple):
    """The types that one parameter takes."""

    name: str
    allowed: frozenset[str]  # keys of WORDS; empty: anything
    optional: bool  # None is taken
    default: object = ...
    keyword: bool = False  # by keyword only

    @property
    def words(self) -> str:
        """torch's words for what the parameter takes."""
        return " or ".join(word for key, word in WORDS.items() if key in self.allowed)

    @property
    def mixed(self) -> bool:
        """Return whether its kinds are those of several signatures."""
        return len(self.allowed - {"int"} if INTS in self.allowed else self.allowed) > 1


@functools.cache
def _parsed(annotation: str) -> tuple[frozenset[str], bool]:
    parts = {p.strip() for p in annotation.split("|")}
    allowed = parts - {"None"}
    if not allowed or not allowed <= WORDS.keys():
        return frozenset(), True
    return frozenset(allowed), "None" in parts


def kind(name: str, annotation: object, default: object = ..., keyword: bool = False) -> Kind:
    """The kind of a parameter with this annotation and default."""
    if annotation is None and name == "dtype":
        annotation = "dtype | None"
    allowed, optional = _parsed(annotation) if isinstance(annotation, str) else (frozenset(), True)
    return Kind(name, allowed, optional or default is None, default, keyword)


class Arguments(NamedTuple):
    """The parameters of a function, in order."""

    kinds: tuple[Kind, ...]
    # where torch's parser knows several signatures, the fewest and the most arguments of each: what is wrong is one
    # argument if the number of them fits one signature, else their combination
    several: tuple[tuple[int, int], ...] = ()

    def given(self, values: Sequence[object]) -> list[str]:
        """Return the types of a call's values for an error message, and `name=type` for those by keyword."""
        pairs = list(zip(self.kinds, values))
        named = sorted((k.name, _type_name(v)) for k, v in pairs if k.keyword and v is not k.default)
        pairs = [(k, v) for k, v in pairs if not k.keyword]
        while pairs and pairs[-1][1] is pairs[-1][0].default:
            pairs.pop()
        return [_type_name(v) for _, v in pairs] + [f"{n}={t}" for n, t in named]

    def ambiguous(self, count: int) -> bool:
        """Return whether so many arguments do not say which of several signatures is meant."""
        return bool(self.several) and sum(low <= count <= high for low, high in self.several) != 1

    def tests(self, skip: Sequence[str] = ()) -> list[str]:
        """Expressions over the parameters, one of which is true where an argument must be looked at."""
        found = []
        for k in self.kinds:
            if not k.allowed or k.name in skip:
                continue
            allowed = k.allowed - {"int"} if k.allowed >= {"int", "complex"} else k.allowed
            # the quick ones first
            order = sorted(allowed, key=lambda a: (a == "Tensor", a != "int", a))
            tests = [UNUSUAL[a].format(p=k.name) for a in order]
            if k.optional:
                tests.insert(0, f"{k.name} is not None")
            found.append(" and ".join(tests))
        return found


def _type_name(value: object) -> str:
    """The type as C names it: `int`, `numpy.ndarray`, `torch.dtype`; classes of Python without their module."""
    kind = type(value)
    if kind in (dtypes.dtype, device):
        return "torch." + kind.__name__
    plain = kind.__flags__ & 1 << 9 or kind.__module__ == "builtins"  # Py_TPFLAGS_HEAPTYPE
    return kind.__name__ if plain else f"{kind.__module__}.{kind.__name__}"


def all_ints(values: Sequence[object]) -> bool:
    """Return whether all of a sequence are Python ints."""
    for x in values:  # noqa: SIM110  (twice as fast as all())
        if x.__class__ is not int:
            return False
    return True


def _is_int(x: object) -> bool:
    if isinstance(x, Tensor):
        return not x.dim() and x.dtype.category == dtypes.INTEGER and not x.requires_grad
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def _is_number(x: object) -> bool:
    if isinstance(x, Tensor):
        return not x.dim() and not x.requires_grad
    return isinstance(x, int | float | np.number | np.bool_)


def _is_index(x: object) -> bool:
    """Return whether a value may stand in a list of ints."""
    return hasattr(x, "__index__") and not isinstance(x, bool | np.bool_)


FITS: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda x: isinstance(x, Tensor),
    "int": _is_int,
    "float": _is_number,
    "complex": lambda x: isinstance(x, complex) or _is_number(x),
    "bool": lambda x: isinstance(x, bool | np.bool_),
    "str": lambda x: isinstance(x, str),
    "dtype": lambda x: isinstance(dtypes.of_type(x), dtypes.dtype),  # `float` is a dtype too
    INTS: lambda x: isinstance(x, tuple | list) and all(map(_is_index, x)),
    "tuple[float, ...]": lambda x: isinstance(x, tuple | list) and all(map(_is_number, x)),
    "tuple[Tensor, ...]": lambda x: isinstance(x, tuple | list),
}


def check_arguments(arguments: Arguments, name: str, values: Sequence[object]) -> list[object]:
    """The values, numbers of numpy and of 0-dim tensors as Python's; torch's TypeError for the first that is not taken.

    Types of Python that say a dtype become it.  `name`: of the function; of one that ends in "_", a method, positions
    are counted without the first.
    """
    found = list(values)
    for i, (k, value) in enumerate(zip(arguments.kinds, values)):
        if not k.allowed or (value is None and k.optional):
            continue
        if not any(FITS[a](value) for a in k.allowed):
            raise _refused(arguments, name, values, i + (name[-1:] != "_"), k, value)
        if isinstance(value, np.generic) or (isinstance(value, Tensor) and "Tensor" not in k.allowed):
            found[i] = value.item()
        elif "dtype" in k.allowed:
            found[i] = dtypes.of_type(value)
        elif INTS in k.allowed and isinstance(value, tuple | list) and not all_ints(value):
            found[i] = tuple(map(operator.index, value))
    return found


def _refused(
    arguments: Arguments, name: str, values: Sequence[object], position: int, k: Kind, value: object
) -> TypeError:
    if INTS in k.allowed and isinstance(value, tuple | list) and _is_index(value[0]):
        return sizes_error(name, k.name, [value])
    given = arguments.given(values)
    if k.mixed or arguments.ambiguous(len(given)):
        return combination_error(name, values, arguments)
    if INTS in k.allowed and isinstance(value, tuple | list):
        return sizes_error(name, k.name, [value], None if k.keyword else position)
    word = next(word for key, word in WORDS.items() if key in k.allowed)
    return argument_error(name, None if k.keyword else position, k.name, word, value)


def argument_error(name: str, position: int | None, param: str, word: str, value: object) -> TypeError:
    """torch's error for an argument of the wrong type; `position` is counted from 1, None for one by keyword."""
    place = "" if position is None else f" (position {position})"
    return TypeError(f"{name}(): argument '{param}'{place} must be {word}, not {_type_name(value)}")


def check_elements(tensors: Iterable[object], position: int = 0) -> None:
    """torch's error for a list of tensors of which one is none; `position`: of the list among the arguments, from 0."""
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument {position}, but got {type(x).__name__}")


def sizes_error(name: str, param: str, sizes: Sequence[object], position: int | None = 1) -> TypeError:
    """torch's error for sizes, given as separate arguments or as one, of which one is no int."""
    value = sizes[0] if len(sizes) == 1 else sizes
    if not isinstance(value, tuple | list) or (value is sizes and not _is_index(sizes[0])):
        return argument_error(name, position, param, "tuple of ints", sizes[0])
    at = next((i for i, x in enumerate(value) if not _is_index(x)), 0)
    kind = _type_name(value[at])
    if at:
        return TypeError(
            f"{name}(): argument '{param}' failed to unpack the object at pos {at + 1} with error "
            f'"type must be tuple of ints,but got {kind}"'
        )
    place = "" if position is None else f" (position {position})"
    return TypeError(
        f"{name}(): argument '{param}'{place} must be tuple of ints, but found element of type {kind} at pos 0"
    )


def sizes_of(name: str, param: str, sizes: Sequence[object]) -> tuple[int, ...]:
    """`size_of(*sizes)` with torch's error for the function and parameter."""
    try:
        return size_of(*sizes)
    except TypeError:
        raise sizes_error(name, param, sizes) from None


def by_name(function: str, param: str, more: dict[str, object]) -> object:
    """The argument `param` out of the keywords of a call that gave no sizes by position; TypeError for others."""
    for name in more:
        if name != param:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
    if not more:
        raise TypeError(f"{function}() missing 1 required positional argument: '{param}'")
    return more[param]


def combination_error(name: str, values: Sequence[object], arguments: Arguments) -> TypeError:
    """torch's error for arguments that fit none of a function's signatures."""
    own = name[-1:] == "_"  # a method: its first is not counted
    given = ", ".join(arguments.given(values)[own:])
    parts = [f"{k.words} {k.name}".strip() for k in arguments.kinds]
    return TypeError(
        f"{name}() received an invalid combination of arguments - got ({given}), but expected one of:\n"
        f" * ({', '.join(parts)})\n"
    )


def operand_error(record: Op, name: str, operands: Sequence[object], i: int) -> TypeError:
    """torch's error for operand `i` of the tensor parameters that is neither a Tensor nor a number it takes."""
    if record.arguments.ambiguous(len(operands)):
        return combination_error(name, operands, record.arguments)
    p, names = record.tensors[i], record.params
    return argument_error(name, names.index(p) + (name[-1:] != "_"), p, "Tensor", operands[i])


# --- functions that are no ops


def checked(
    function: FunctionType,
    several: tuple[tuple[int, int], ...] = (),
    name: str = "",
    inner: Mapping[str, str] | None = None,
) -> FunctionType:
    """`function` with its arguments checked; itself where none is annotated, or any number of them are taken.

    `name`: what errors call it, if not by its name.  `inner`: the names that torch's parser has for parameters whose
    documents have others; calls may use both, errors say these.
    The source that checks is written at the first call: README.md.
    """
    function.several = several  # type: ignore[attr-defined]  # its ops ask for it too
    code, annotations = function.__code__, function.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = any(_parsed(annotations.get(n, ""))[0] for n in names) or _numpys(names)
    if code.co_flags & 0x04 or not known:
        return function
    namespace: dict[str, object] = {"__name__": function.__module__}
    public = FunctionType(STUB, namespace, function.__name__)

    def compile_now() -> FunctionType:
        own = function
        if own.__code__ is not code:  # a method, too, to which a listener has come meanwhile
            own = copied(own, code)
            own.__annotations__ = annotations
        _compile_into(public, own, namespace, several, name or function.__name__, inner or {})
        return public

    namespace["_compile_"] = compile_now
    functools.update_wrapper(public, function)
    return public


def _numpys(names: Sequence[str]) -> dict[str, str]:
    """numpy's names of some of the parameters."""
    return {alias: p for alias, p in NUMPY_NAMES.items() if p in names and alias not in names}


def missing(name: str, **values: object) -> TypeError:
    """The error for those of these arguments that were not given, in Python's words."""
    which = [repr(p) for p, value in values.items() if value is MISSING]
    listed = " and ".join(which) if len(which) < 3 else f"{', '.join(which[:-1])}, and {which[-1]}"
    return TypeError(f"{name}() missing {len(which)} required positional argument{'s'[: len(which) > 1]}: {listed}")


def renamed(aliases: dict[str, str], positional: Sequence[str], defaults: Iterable[str]) -> tuple[list[str], list[str]]:
    """Lines that take numpy's names, and the parameters that may therefore be missing: from the first of them on."""
    lines = [f"if {alias} is not MISSING: {p} = {alias}" for alias, p in aliases.items()]
    start = min((positional.index(p) for p in aliases.values() if p in positional), default=len(positional))
    late = [p for p in positional[start:] if p not in defaults]
    if late:
        given = ", ".join(f"{p}={p}" for p in late)
        lines.append(f"if {' or '.join(f'{p} is MISSING' for p in late)}: raise missing(_name, {given})")
    return lines, late


def _compile_into(
    public: FunctionType,
    function: FunctionType,
    namespace: dict[str, object],
    several: tuple[tuple[int, int], ...],
    name: str,
    inner: Mapping[str, str],
) -> None:
    code = function.__code__
    count, keyword = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[: count + keyword]
    values = function.__defaults__ or ()
    defaults = dict(zip(names[count - len(values) : count], values))
    defaults.update(function.__kwdefaults__ or {})
    stars = code.co_varnames[count + keyword] if code.co_flags & 0x08 else None
    arguments = Arguments(
        tuple(kind(n, function.__annotations__.get(n), defaults.get(n, ...), i >= count) for i, n in enumerate(names)),
        several,
    )
    aliases = _numpys(names) | {theirs: own for own, theirs in inner.items()}
    lines, late = renamed(aliases, names[:count], defaults)
    head = [f"{n}=_d_{n}" if n in defaults else f"{n}=MISSING" if n in late else n for n in names]
    call = [*names[:count]]
    if keyword or aliases:
        head.insert(count, "*")
    head += [f"{alias}=MISSING" for alias in aliases]
    call += [f"{n}={n}" for n in names[count:]]
    if stars:
        head.append(f"**{stars}")
        call.append(f"**{stars}")
    text = (
        f"def call({', '.join(head)}):\n"
        + "".join(f"    {line}\n" for line in lines)
        + f"    if {' or '.join(arguments.tests()) or False}:\n"
        f"        if _asks(({', '.join(names)},)):\n"
        f"            return _again(_public, ({', '.join(names)},), {count}, {names!r}, _defaults)\n"
        f"        {', '.join(names)}, = check_arguments(_arguments, _name, ({', '.join(names)},))\n"
        f"    return _function({', '.join(call)})\n"
    )
    if inner:
        named = tuple(k._replace(name=inner.get(k.name, k.name)) for k in arguments.kinds)
        arguments = arguments._replace(kinds=named)
    namespace.update(
        {"_d_" + n: v for n, v in defaults.items()},
        _arguments=arguments,
        _name=name,
        _function=function,
        all_ints=all_ints,
        check_arguments=check_arguments,
        dtype_class=dtypes.dtype,
        Tensor=Tensor,
        _public=public,
        MISSING=MISSING,
        missing=missing,
        _asks=overriding.asks,
        _again=overriding.called_again,
        _defaults=defaults,
    )
    scope: dict[str, FunctionType] = {}
    exec(compile(text, f"<engine function {function.__name__}>", "exec"), namespace, scope)
    made = scope["call"]
    public.__defaults__, public.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
    public.__code__ = made.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)
    rewritten(public)
