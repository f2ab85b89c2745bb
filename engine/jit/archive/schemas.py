"""The operators that scripted code may call: what each takes and gives, and which form a call means.

`schemas.txt` has a line for each form of each operator on the list of `operators`, in the order in which torch 2.13
tries them; its head says where they come from.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.jit.archive.kinds import ANY, NONE, TENSOR, Kind
from engine.library.schema import MISSING, Argument, FunctionSchema, Type, parse_schema

__all__ = ["MISSING", "Mismatch", "Signature", "Value", "find", "lines", "match", "names", "subtype", "unified"]

_NUMBERS = ("int", "float", "complex")
_KINDS = {
    "Scalar": "number",
    "ScalarType": "int",
    "MemoryFormat": "int",
    "Layout": "int",
    "SymInt": "int",
    "Device": "Device",
}


@dataclass(eq=False)
class Value:
    """A value of compiled code: its text, its type, its constant where it is one, the parts of a literal tuple."""

    text: str
    kind: Kind
    const: Any = MISSING
    parts: tuple[Value, ...] | None = None


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operator."""

    name: str
    kind: Kind
    default: Any
    named: bool
    count: int | None


@dataclass(frozen=True)
class Signature:
    """One form of an operator."""

    text: str
    name: str
    parameters: tuple[Parameter, ...]
    returns: Kind


class Mismatch(Exception):
    """A call does not fit; the message says why."""


def _kind(of: Type) -> Kind:
    if of.kind in ("List", "Optional", "Tuple", "Dict", "Future"):
        return Kind(of.kind, tuple(map(_kind, of.inner)))
    return Kind(_KINDS.get(of.kind, of.kind))


def _parameter(argument: Argument) -> Parameter:
    of = argument.type
    while of.kind == "Optional":
        of = of.inner[0]
    return Parameter(argument.name, _kind(argument.type), argument.default, argument.kwarg_only, of.size)


def _signature(text: str) -> Signature:
    schema: FunctionSchema = parse_schema(text)
    returns = tuple(_kind(r.type) for r in schema.returns)
    names = tuple(r.name or "" for r in schema.returns)
    given = returns[0] if len(returns) == 1 else Kind("Tuple", returns, names) if returns else NONE
    return Signature(text, schema.name, tuple(map(_parameter, schema.arguments)), given)


@functools.cache
def lines() -> dict[str, list[str]]:
    """The signatures of each operator (`aten::add`), as text."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "schemas.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        head = line.partition("(")[0]
        text = line if "::" in head else f"aten::{line}"
        found.setdefault(text.partition("(")[0].partition(".")[0], []).append(text)
    return found


def names() -> list[str]:
    """The operators of `aten`, without their namespace."""
    return [name[6:] for name in lines() if name.startswith("aten::")]


@functools.cache
def find(name: str) -> tuple[Signature, ...]:
    """The forms of `aten::add`; none if it is not on the list."""
    return tuple(map(_signature, lines().get(name, ())))


def subtype(kind: Kind, of: Kind) -> bool:
    """Whether a value of one type may stand where another is declared."""
    if kind == of or of == ANY:
        return True
    if of.name == "Optional":
        return kind == NONE or subtype(kind.inner[0] if kind.name == "Optional" else kind, of.inner[0])
    if of.name in ("number", "Scalar"):
        return kind.name in (*_NUMBERS, "number", "Scalar")
    if of.name == "Union":
        parts = kind.inner if kind.name == "Union" else (kind,)
        return all(any(subtype(part, one) for one in of.inner) for part in parts)
    if of.name == "Tuple" and kind.name == "Tuple":
        return len(kind.inner) == len(of.inner) and all(map(subtype, kind.inner, of.inner))
    return (of.name, kind.name) in (("AnyListType", "List"), ("list", "List"), ("tuple", "Tuple"))


def unified(a: Kind, b: Kind) -> Kind | None:
    """The type of a value that is of one of two types, None if there is none."""
    if subtype(a, b):
        return b
    if subtype(b, a):
        return a
    if NONE in (a, b):
        other = b if a == NONE else a
        return other if other.name == "Optional" else Kind("Optional", (other,))
    if a.name == "Optional" or b.name == "Optional":
        inner = unified(*(k.inner[0] if k.name == "Optional" else k for k in (a, b)))
        return None if inner is None else Kind("Optional", (inner,))
    if a.name == b.name == "Tuple" and len(a.inner) == len(b.inner):
        parts = [unified(x, y) for x, y in zip(a.inner, b.inner)]
        return None if None in parts else Kind("Tuple", tuple(p for p in parts if p is not None))
    return None


def _free(kind: Kind) -> bool:
    return kind.name in ("t", "tVal", "t1", "t2", "T") or any(map(_free, kind.inner))


def _bound(kind: Kind, free: dict[str, Kind]) -> Kind:
    if kind.name in free and not kind.inner:
        return free[kind.name]
    return Kind(kind.name, tuple(_bound(k, free) for k in kind.inner), kind.names) if kind.inner else kind


def _learn(pattern: Kind, kind: Kind, free: dict[str, Kind]) -> bool:
    """Let type variables of the pattern be what they must be for a value of a type."""
    if not pattern.inner and pattern.name in ("t", "tVal", "t1", "t2", "T"):
        if pattern.name in free:
            return subtype(kind, free[pattern.name])
        free[pattern.name] = kind
        return True
    if pattern.name == "Optional" and kind.name != "Optional":
        return kind == NONE or _learn(pattern.inner[0], kind, free)
    if pattern.name != kind.name or len(pattern.inner) != len(kind.inner):
        return subtype(kind, _bound(pattern, free)) if not _free(pattern) else False
    return all(_learn(p, k, free) for p, k in zip(pattern.inner, kind.inner)) if pattern.inner else True


def converted(value: Value, kind: Kind, conversions: bool, count: int | None = None) -> Value | None:
    """The value as one of a type, with the conversions that torch makes for operators; None if it is none."""
    if subtype(value.kind, kind):
        if value.kind.name == "Optional" and kind.name != "Optional" and kind != ANY and kind.name != "Union":
            return None
        return value
    wanted = kind.inner[0] if kind.name == "Optional" else kind
    if wanted.name == "List" and count is not None and wanted.inner[0].name in ("int", "float", "bool"):
        one = converted(value, wanted.inner[0], conversions)
        if one is not None:
            return Value(f"[{', '.join([one.text] * count)}]", wanted)
    if wanted.name == "List" and value.kind.name == "Tuple":
        parts = value.parts or tuple(Value(f"({value.text})[{i}]", k) for i, k in enumerate(value.kind.inner))
        made = [converted(part, wanted.inner[0], conversions) for part in parts]
        if None not in made:
            text = f"[{', '.join(m.text for m in made if m is not None)}]"
            return Value(text if made else f"annotate({wanted}, [])", wanted)
    if wanted.name == "List" and value.kind.name == "List" and value.text == "[]":
        return Value(f"annotate({wanted}, [])", wanted)
    of_options = wanted.name == "List" and value.kind.name == "List" and wanted.inner[0].name == "Optional"
    if of_options and value.parts is not None and subtype(value.kind.inner[0], wanted.inner[0]):
        return Value(value.text, wanted)
    if not conversions:
        return None
    if value.kind == TENSOR and wanted.name in ("int", "float"):
        return Value(f"annotate({wanted.name}, {value.text})", wanted)
    if value.kind == TENSOR and wanted.name in ("number", "Scalar"):
        return Value(f"torch.ScalarImplicit({value.text})", wanted)
    if value.kind.name == "number" and wanted.name in ("int", "float"):
        return Value(f"annotate({wanted.name}, {value.text})", wanted)
    if value.kind.name == "str" and wanted.name == "Device":
        return Value(f"torch.device({value.text})", wanted)
    return None


def literal(value: Any, kind: Kind) -> Value:
    """A default of a signature."""
    while kind.name == "Optional" and value is not None:
        kind = kind.inner[0]
    if isinstance(value, list):
        return Value("[" + ", ".join(literal(v, kind.inner[0]).text for v in value) + "]", kind)
    if value == "Mean":
        value = 1
    if isinstance(value, str) and kind.name == "int":
        value = {"contiguous_format": 0, "preserve_format": 1, "strided": 0}.get(value, 0)
    return Value(repr(value), kind, value)


def _tried(s: Signature, args: Sequence[Value], named: dict[str, Value], conversions: bool) -> tuple[str, Kind]:
    """The arguments as text and the type of the result; Mismatch."""
    free: dict[str, Kind] = {}
    given: dict[str, Value] = {}
    positional = [p for p in s.parameters if not p.named]
    wide = [*args]
    last = positional[-1] if positional else None
    if len(wide) >= len(positional) and last is not None and last.kind.name == "List" and last.count is None:
        start, inner = len(positional) - 1, last.kind.inner[0]
        rest = wide[start:]
        if not _free(inner) and (len(rest) > 1 or not subtype(rest[0].kind, last.kind)):  # x.view(2, 3)
            made = [converted(v, inner, conversions) for v in rest]
            if None not in made:
                text = ", ".join(v.text for v in made if v is not None)
                wide = [*wide[:start], Value(f"[{text}]", last.kind)]
    if len(wide) > len(positional):
        raise Mismatch(f"Expected at most {len(positional)} arguments but found {len(args)} positional arguments.")
    for parameter, value in zip(positional, wide):
        given[parameter.name] = value
    for key, value in named.items():
        if key in given:
            raise Mismatch(f"Argument {key} specified twice in schema, submit a bug report!")
        given[key] = value
    known = {p.name for p in s.parameters}
    for key in named:
        if key not in known:
            raise Mismatch(f"Unknown keyword argument '{key}'.")
    texts: list[str] = []
    last_given = max((i for i, p in enumerate(positional) if p.name in given), default=-1)
    for i, parameter in enumerate(s.parameters):
        value = given.get(parameter.name)
        if value is None:
            if parameter.default is MISSING:
                raise Mismatch(f"Argument {parameter.name} not provided.")
            if parameter.named or i > last_given:
                continue
            fit: Value | None = literal(parameter.default, parameter.kind)
        elif _free(parameter.kind):
            fit = value = _as_list(value, parameter.kind)
            if value.text == "[]" and parameter.kind.name == "List" and not _free(_bound(parameter.kind, free)):
                fit = converted(value, _bound(parameter.kind, free), conversions)
            elif not _learn(parameter.kind, value.kind, free):
                fit = None
        else:
            fit = converted(value, parameter.kind, conversions, parameter.count)
        if fit is None:
            raise Mismatch(
                f"Expected a value of type '{_bound(parameter.kind, free)}' for argument '{parameter.name}' but "
                "instead "
                f"found type '{value.kind if value is not None else ''}'."
            )
        texts.append(f"{parameter.name}={fit.text}" if parameter.named else fit.text)
    return ", ".join(texts), _bound(s.returns, free)


def _as_list(value: Value, kind: Kind) -> Value:
    """A tuple whose parts have one type, where a list of any type stands."""
    if kind.name != "List" or value.kind.name != "Tuple" or not value.kind.inner or len(set(value.kind.inner)) > 1:
        return value
    return converted(value, Kind("List", (value.kind.inner[0],)), False) or value


def match(
    signatures: Sequence[Signature], args: Sequence[Value], named: dict[str, Value]
) -> tuple[Signature, str, Kind]:
    """The first form that a call fits: without conversions, else with them; Mismatch tells all forms."""
    told: dict[str, str] = {}
    for conversions, signature in itertools.product((False, True), signatures):
        try:
            return signature, *_tried(signature, args, named, conversions)
        except Mismatch as e:
            told[signature.text] = str(e)
    if len(told) == 1:
        ((text, why),) = told.items()
        raise Mismatch(f"\n{text}:\n{why}\n")
    forms = "".join(f"\n  {text}:\n  {why}\n  " for text, why in told.items())
    raise Mismatch(f"\nArguments for call are not valid.\nThe following variants are available:\n{forms}")
