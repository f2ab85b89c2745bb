"""Schemas of operators: torch's text `ns::name.overload(Tensor x, int n=1, *, Tensor(a!) out) -> Tensor(a!)`, parsed.

The grammar is that of torch's native functions:
https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/README.md
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from engine.core import dtypes

__all__ = ["AliasInfo", "Argument", "FunctionSchema", "Type", "parse_schema"]

_TOKEN = re.compile(
    r'\s*(->|"(?:\\.|[^"])*"|\'(?:\\.|[^\'])*\'|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[\w.]+|::|\S)'
)
# the names that torch prints a type by in errors
_SPELT = {"Scalar": "number", "SymInt": "int", "ScalarType": "int", "Layout": "int", "MemoryFormat": "int"}
DTYPE_NUMBERS = dict(
    uint8=0,
    int8=1,
    int16=2,
    int32=3,
    int64=4,
    float16=5,
    float32=6,
    float64=7,
    complex64=9,
    complex128=10,
    bool=11,
    bfloat16=15,
    float=6,
    double=7,
    half=5,
    long=4,
    int=3,
    short=2,
)


@dataclass(frozen=True)
class AliasInfo:
    """`(a!)`: which memory a value shares, and whether it is written."""

    before_set: frozenset[str]
    is_write: bool
    after_set: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Type:
    """A type of a schema: its name, or what it is a list or an optional of."""

    kind: str  # "Tensor", "int", ..., "List", "Optional", "Tuple", "Dict"
    inner: tuple[Type, ...] = ()
    size: int | None = None  # of a list that also takes one number

    def __str__(self) -> str:
        if self.kind in ("List", "Optional", "Dict", "Tuple"):
            return f"{self.kind}[{', '.join(map(str, self.inner))}]"
        return _SPELT.get(self.kind, self.kind)

    @property
    def text(self) -> str:
        """As a schema writes it."""
        if self.kind == "List":
            return f"{self.inner[0].text}[{'' if self.size is None else self.size}]"
        if self.kind == "Optional":
            return f"{self.inner[0].text}?"
        if self.kind == "Tuple":
            return f"({', '.join(i.text for i in self.inner)})"
        if self.kind == "Dict":
            return f"Dict({', '.join(i.text for i in self.inner)})"
        return self.kind

    @property
    def of_tensors(self) -> bool:
        """Return whether values hold tensors."""
        return self.kind == "Tensor" or any(i.of_tensors for i in self.inner)

    def getElementType(self) -> Type:
        """Of a list or an optional, what it is of."""
        return self.inner[0]

    def annotation_str(self) -> str:
        """The type as Python writes it."""
        return str(self)


MISSING = type("MISSING", (), {"__repr__": lambda self: "MISSING"})()


@dataclass(frozen=True)
class Argument:
    """A parameter, or a return."""

    name: str
    type: Type
    default: Any = field(default=MISSING, compare=False)
    kwarg_only: bool = False
    alias_info: AliasInfo | None = None
    mark: str = ""  # the alias as it was written

    @property
    def default_value(self) -> Any:
        """The default, None where there is none."""
        return None if self.default is MISSING else self.default

    @property
    def real_type(self) -> Type:
        """The type."""
        return self.type

    @property
    def N(self) -> int | None:
        """The size of a list with one."""
        return self.type.size

    @property
    def is_out(self) -> bool:
        """Return whether it is an `out=`."""
        return self.kwarg_only and self.alias_info is not None and self.alias_info.is_write

    def has_default_value(self) -> bool:
        """Return whether it may be left out."""
        return self.default is not MISSING

    def __str__(self) -> str:
        written = _with_mark(self.type, self.mark)
        text = f"{written} {self.name}" if self.name else written
        return text if self.default is MISSING else f"{text}={_shown(self.type, self.default)}"


def _with_mark(of: Type, mark: str) -> str:
    if not mark:
        return of.text
    if of.inner and of.kind in ("List", "Optional"):
        return _with_mark(of.inner[0], mark) + of.text[len(of.inner[0].text) :]
    return of.text + mark


def _shown(of: Type, value: Any) -> str:
    if of.kind == "Optional" and value is not None:
        return _shown(of.inner[0], value)
    if isinstance(value, list):
        if of.size and len(set(map(str, value))) == 1 and len(value) == of.size:
            return _shown(of.inner[0], value[0])
        return "[" + ", ".join(_shown(of.inner[0] if of.inner else of, v) for v in value) + "]"
    if isinstance(value, dtypes.dtype):
        return str(DTYPE_NUMBERS.get(str(value).removeprefix("torch."), value))
    if isinstance(value, float):
        return f"{value:g}." if value == int(value) and abs(value) < 1e15 else f"{value!r}"
    return f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class FunctionSchema:
    """The signature of an operator: its name, its arguments and what it returns."""

    name: str  # with its namespace
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]

    @property
    def is_mutable(self) -> bool:
        """Return whether an argument is written."""
        return any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments)

    @property
    def positional(self) -> tuple[Argument, ...]:
        """The arguments that are not by keyword only."""
        return tuple(a for a in self.arguments if not a.kwarg_only)

    def __str__(self) -> str:
        parts = [str(a) for a in self.positional]
        named = [str(a) for a in self.arguments if a.kwarg_only]
        if named:
            parts += ["*", *named]
        back = ", ".join(map(str, self.returns))
        if len(self.returns) != 1 or self.returns[0].type.kind == "Tuple":
            back = f"({back})"
        overload = f".{self.overload_name}" if self.overload_name else ""
        return f"{self.name}{overload}({', '.join(parts)}) -> {back}"

    __repr__ = __str__


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.group(1), m.start(1)) for m in _TOKEN.finditer(text)]
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "eof"

    def take(self, wanted: str = "") -> str:
        found = self.next
        if (wanted and found != wanted) or found == "eof":
            raise RuntimeError(f"expected {wanted or 'more'} but found '{found}' here:\n{self.text}")
        self.at += 1
        return found

    def accept(self, wanted: str) -> bool:
        if self.next != wanted:
            return False
        self.at += 1
        return True

    def alias(self) -> tuple[AliasInfo, str]:
        """`(a)`, `(a!)`, `(a -> *)`, `(a|b)`, from its bracket on."""
        start = self.tokens[self.at][1]
        self.take("(")
        before, after, write, now = set(), set(), False, None
        now = before
        while not self.accept(")"):
            token = self.take()
            if token == "!":
                write = True
            elif token == "->":
                now = after
            elif token not in ("|", ","):
                now.add(token)
        end = self.tokens[self.at - 1][1] + 1
        return AliasInfo(frozenset(before), write, frozenset(after or before)), self.text[start:end]

    def type(self) -> tuple[Type, AliasInfo | None, str]:
        alias, mark = None, ""
        if self.accept("("):
            inner = []
            while not self.accept(")"):
                inner.append(self.type()[0])
                self.accept(",")
            of = Type("Tuple", tuple(inner))
        else:
            name = self.take()
            if name in ("Dict", "Future", "RRef", "Await") and self.accept("("):
                inner = []
                while not self.accept(")"):
                    inner.append(self.type()[0])
                    self.accept(",")
                of = Type(name, tuple(inner))
            else:
                if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
                    raise RuntimeError(f"expected a type but found '{name}' here:\n{self.text}")
                of = Type(name)
        while True:
            if self.next == "(":
                alias, mark = self.alias()
            elif self.accept("?"):
                of = Type("Optional", (of,))
            elif self.accept("["):
                size = None if self.next == "]" else int(self.take())
                self.take("]")
                of = Type("List", (of,), size)
            else:
                return of, alias, mark

    def value(self, of: Type) -> Any:
        if self.accept("["):
            found = []
            while not self.accept("]"):
                found.append(self.value(of.inner[0] if of.inner else of))
                self.accept(",")
            return found
        token = self.take()
        sign = 1
        if token == "-":
            token, sign = self.take(), -1
        plain = of
        while plain.kind in ("Optional", "List") and plain.inner:
            plain = plain.inner[0]
        if token in ("True", "False", "true", "false"):
            found = token in ("True", "true")
        elif token == "None":
            return None
        elif token[0] in "\"'":
            found = token[1:-1].encode().decode("unicode_escape")
        elif plain.kind == "ScalarType" and not token.isdigit():
            found = getattr(dtypes, token.removeprefix("torch."))
        else:
            try:
                found = int(token) * sign
            except ValueError:
                try:
                    found = float(token) * sign
                except ValueError:
                    found = token  # a name: Mean, contiguous_format, strided
            if plain.kind == "float" and isinstance(found, int):
                found = float(found)
        if of.kind == "List" and of.size:
            return [found] * of.size
        return found

    def arguments(self) -> tuple[Argument, ...]:
        self.take("(")
        found, named = [], False
        while not self.accept(")"):
            if self.accept("*"):
                named = True
            elif self.next == "...":
                raise RuntimeError(f"operators with a varying number of arguments are not supported: {self.text}")
            else:
                of, alias, mark = self.type()
                name = self.take()
                if not name.isidentifier():
                    raise RuntimeError(f"expected ident but found '{name}' here:\n{self.text}")
                default = self.value(of) if self.accept("=") else MISSING
                found.append(Argument(name, of, default, named, alias, mark))
            if self.next != ")":
                if self.next != ",":
                    raise RuntimeError(f"expected ) but found '{self.next}' here:\n{self.text}")
                self.take()
        return tuple(found)

    def returns(self) -> tuple[Argument, ...]:
        if self.next != "(":
            of, alias, mark = self.type()
            return (Argument("", of, alias_info=alias, mark=mark),)
        self.take("(")
        found = []
        while not self.accept(")"):
            of, alias, mark = self.type()
            name = self.take() if self.next not in (",", ")") else ""
            found.append(Argument(name, of, alias_info=alias, mark=mark))
            self.accept(",")
        return tuple(found)


def parse_schema(text: str) -> FunctionSchema:
    """The schema that a text says; RuntimeError where it says none."""
    head = re.match(r"\s*([A-Za-z_][\w]*(?:::[A-Za-z_]\w*)?)(?:\.(\w+))?\s*(?=\()", text)
    if head is None:
        raise RuntimeError(f"expected the name of an operator and its arguments here:\n{text}")
    parser = _Parser(text[head.end() :])
    arguments = parser.arguments()
    parser.take("->")
    returns = parser.returns()
    if parser.next != "eof":
        raise RuntimeError(f"expected the end but found '{parser.next}' here:\n{text}")
    names = [a.name for a in arguments]
    if len(set(names)) < len(names):
        raise RuntimeError(f"an argument is named twice in schema {text}")
    return FunctionSchema(head.group(1), head.group(2) or "", arguments, returns)
