"""Python functions as TorchScript reads them: their source, where an error is, what the language lacks.

Types are read from annotations, and from the comments `# type: (Tensor, int) -> Tensor` of older code.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import enum
import inspect
import textwrap
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.core import dtypes
from engine.core.device import device as Device
from engine.jit.archive.kinds import ANY, NONE, TENSOR, Kind
from engine.jit.archive.schemas import unified
from engine.tensor import Size, Tensor

__all__ = [
    "CompileError",
    "FrontendError",
    "NotSupportedError",
    "Source",
    "UnsupportedNodeError",
    "annotation",
    "broadcast_count",
    "kind_of_value",
    "source_of",
]


@dataclass
class Source:
    """A function's tree, with what is needed to tell a place in it and what its names mean."""

    node: ast.FunctionDef
    name: str
    file: str
    first: int  # the line of the file in which the text begins
    lines: list[str]
    names: dict[str, Any]
    function: Any

    def place(self, node: ast.AST | None) -> str:
        """The lines around a node as torch shows them, with its columns marked."""
        line = getattr(node, "lineno", self.node.lineno)
        start = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", start + 1) if getattr(node, "end_lineno", line) == line else None
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        stop = len(text) if end is None else end
        before = self.lines[max(line - 4, 0) : line - 1]
        after = self.lines[line : line + 3]
        mark = " " * start + "~" * max(stop - start, 1) + " <--- HERE"
        body = "\n".join([*before, text, mark, *after]).rstrip()
        return f'  File "{self.file}", line {line + self.first - 1}\n{textwrap.indent(body, "")}\n'


class FrontendError(Exception):
    """What stands in a function is no TorchScript."""

    def __init__(self, where: Source | None, node: ast.AST | None, message: str) -> None:
        self.msg = message
        self.place = "" if where is None else where.place(node)
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.msg}:\n{self.place}" if self.place else self.msg


class NotSupportedError(FrontendError):
    """The language lacks it."""


class UnsupportedNodeError(NotSupportedError):
    """The language lacks a kind of statement or expression."""


def unstarred(node: ast.expr) -> ast.expr:
    """`x` of `*x`; any other expression itself."""
    return node.value if isinstance(node, ast.Starred) else node


class CompileError(RuntimeError):
    """A function cannot be compiled: types that do not fit, names without a meaning, operators that are not there."""

    def __init__(self, message: str, where: Source | None = None, node: ast.AST | None = None) -> None:
        super().__init__(f"{message}:\n{where.place(node)}" if where is not None else message)


_NODES = {
    ast.Try: "try blocks",
    ast.Lambda: "lambda functions",
    ast.Import: "import statements",
    ast.ImportFrom: "import statements",
    ast.Global: "global variables",
    ast.Nonlocal: "nonlocal variables",
    ast.Set: "set literals",
    ast.SetComp: "set comprehensions",
    ast.GeneratorExp: "generator expressions",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Await: "await",
    ast.ClassDef: "class definitions",
    ast.AsyncFunctionDef: "async function definitions",
    ast.AsyncFor: "async for loops",
    ast.AsyncWith: "async with",
    ast.NamedExpr: "assignment expressions",
    ast.Match: "match statements",
}


def unsupported(where: Source, node: ast.AST | None, reason: str = "") -> UnsupportedNodeError:
    """The error for a kind of node, in torch's words."""
    name = _NODES.get(type(node), type(node).__name__)
    return UnsupportedNodeError(where, node, f"{name} {reason + ' ' if reason else ''}aren't supported")


def source_of(function: Any, name: str | None = None) -> Source:
    """The source of a Python function; OSError in torch's words where there is none."""
    function = inspect.unwrap(function) if not hasattr(function, "__wrapped__") else function
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        raise NotSupportedError(None, None, f"Compiled functions are Python functions, not {function!r}")
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "<unknown>"
    except (OSError, TypeError) as e:
        raise OSError(
            f"Can't get source for {function}. TorchScript requires source access in order to carry out compilation, "
            "make sure original .py files are available."
        ) from e
    text = textwrap.dedent("".join(lines))
    try:
        tree = ast.parse(text, type_comments=True)
    except SyntaxError:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            raise NotSupportedError(
                None, None, f"Expected a single top-level function: {file}:{first} is an expression"
            ) from None
    found = tree.body[0] if tree.body else None
    if len(tree.body) != 1 or not isinstance(found, ast.FunctionDef):
        raise RuntimeError(f"Expected a single top-level function: {file}:{first}\n{text}")
    names = dict(vars(builtins))
    names.update(function.__globals__)
    for key, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            names[key] = cell.cell_contents
        except ValueError:
            continue
    source = Source(found, name or found.name, file, first, text.split("\n"), names, function)
    _check(source)
    return source


def _check(source: Source) -> None:
    """Refuse what the language lacks, before any meaning is looked for."""
    a = source.node.args
    if a.kwarg is not None or a.vararg is not None:
        raise NotSupportedError(
            source,
            a.kwarg or a.vararg,
            "Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults",
        )


# -- types -------------------------------------------------------------------------------------------------

_PLAIN: dict[Any, Kind] = {
    Tensor: TENSOR,
    int: Kind("int"),
    float: Kind("float"),
    bool: Kind("bool"),
    str: Kind("str"),
    complex: Kind("complex"),
    None: NONE,
    type(None): NONE,
    Any: ANY,
    Device: Kind("Device"),
    dtypes.dtype: Kind("int"),
    Size: Kind("List", (Kind("int"),)),
    list: Kind("list"),
    tuple: Kind("tuple"),
}


# what the comments of older code name without importing it
_COMMENTS: dict[str, Any] = {
    "Tensor": Tensor,
    "typing": typing,
    "Any": Any,
    "List": list,
    "Dict": dict,
    "Tuple": tuple,
    "Optional": typing.Optional,
    "Union": typing.Union,
    "Number": float,
}


def annotation(given: Any, named: Callable[[type], Kind | None], names: dict[str, Any] | None = None) -> Kind:
    """The type that an annotation means.  named: the type of a class of the user's.  ValueError if it means none."""
    if isinstance(given, str):
        try:
            given = eval(given, {**_COMMENTS, **(names or {})})  # the user's own annotation
        except Exception as e:
            raise ValueError(f"Unknown type name '{given}' ({e})") from None
    if isinstance(given, typing.ForwardRef):
        return annotation(given.__forward_arg__, named, names)
    try:
        if given in _PLAIN:
            return _PLAIN[given]
    except TypeError:
        pass
    origin, args = typing.get_origin(given), typing.get_args(given)
    if origin is typing.Annotated or hasattr(given, "__metadata__"):
        return annotation(given.__origin__, named, names)
    recurse = lambda one: annotation(one, named, names)
    if origin in (list, collections.abc.Sequence):
        return Kind("List", (recurse(args[0]),))
    if origin is dict:
        return Kind("Dict", (recurse(args[0]), recurse(args[1])))
    if origin is tuple:
        return Kind("Tuple", tuple(map(recurse, args)) if args != ((),) else ())
    if origin in (typing.Union, types.UnionType):
        parts = [recurse(a) for a in args]
        rest = [p for p in parts if p != NONE]
        if len(rest) == 1:
            return Kind("Optional", (rest[0],))
        if {p.name for p in rest} == {"int", "float", "complex"}:
            number = Kind("number")
            return Kind("Optional", (number,)) if len(rest) < len(parts) else number
        return Kind("Union", tuple(parts))
    if origin is typing.Final or str(origin) == "typing.Final":
        return recurse(args[0])
    if getattr(given, "__name__", "") == "Number" and getattr(given, "__module__", "") == "numbers":
        return Kind("number")
    if isinstance(given, type):
        if issubclass(given, Tensor):
            return TENSOR
        found = named(given)
        if found is not None:
            return found
    raise ValueError(f"Unknown type annotation: '{given}'")


def broadcast_count(given: Any, names: dict[str, Any] | None = None) -> int | None:
    """2 of `BroadcastingList2[int]`, also inside an Optional: one number may stand for the list."""
    if isinstance(given, str):
        if "BroadcastingList" not in given:
            return None
        try:
            given = eval(given, dict(names or {}))  # the user's own annotation
        except Exception:
            return None
    for one in (given, *typing.get_args(given)):
        found = getattr(one, "__metadata__", ())
        if found and isinstance(found[0], int):
            return int(found[0])
    return None


def split_comment(comment: str) -> tuple[list[str], str] | None:
    """`(Tensor, int) -> Tensor` as the texts of its types."""
    try:
        tree = ast.parse(comment.replace("->", ">>", 1).strip(), mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(tree, ast.BinOp):
        return None
    left = tree.left.elts if isinstance(tree.left, ast.Tuple) else [tree.left]
    return [ast.unparse(one) for one in left], ast.unparse(tree.right)


def kind_of_value(value: Any, named: Callable[[type], Kind | None]) -> Kind | None:
    """The type of an attribute, as torch infers it; None for what is no value of TorchScript."""
    if value is None:
        return NONE
    if isinstance(value, Tensor):
        return TENSOR
    for kind in (bool, int, float, str, complex):
        if type(value) is kind:
            return Kind(kind.__name__)
    if isinstance(value, dtypes.dtype):
        return Kind("int")
    if isinstance(value, Device):
        return Kind("Device")
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        parts = [kind_of_value(one, named) for one in value]
        if None in parts:
            return None
        kinds = tuple(p for p in parts if p is not None)
        if isinstance(value, tuple) and not isinstance(value, Size):
            return Kind("Tuple", kinds)
        return Kind("List", (_common(kinds),)) if kinds and _common(kinds) is not None else None  # type: ignore[arg-type]
    if isinstance(value, dict):
        keys = _common(tuple(k for k in (kind_of_value(one, named) for one in value) if k is not None))
        values = _common(tuple(k for k in (kind_of_value(one, named) for one in value.values()) if k is not None))
        if not value or keys is None or values is None or keys.name not in ("str", "int", "float", "bool"):
            return None
        return Kind("Dict", (keys, values))
    if isinstance(value, enum.Enum | tuple) or getattr(type(value), "_is_script_class", False):
        return named(type(value))
    return None


def _common(kinds: tuple[Kind, ...]) -> Kind | None:
    found: Kind | None = None
    for kind in kinds:
        found = kind if found is None else unified(found, kind)
        if found is None:
            return None
    return found
