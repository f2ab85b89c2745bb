"""The schema that a function's annotations say."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.ops import functions as torch
from engine.torch_names.types import Number

__all__ = ["infer_schema"]

_PLAIN = {
    torch.Tensor: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    Number: "Scalar",
    torch.dtype: "ScalarType",
    torch.device: "Device",
}
_IN_LISTS = {torch.Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", Number: "Scalar"}


def _is_optional(annotation: Any) -> Any:
    """Return the type inside an Optional, None for any other annotation."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(annotation) if a is not type(None)]
        if len(inner) < len(typing.get_args(annotation)):
            return inner[0] if len(inner) == 1 else typing.Union[tuple(inner)]  # noqa: UP007
    return None


def _type_text(annotation: Any) -> str | None:
    """The schema's word for an annotation, None where it has none."""
    for python, text in _PLAIN.items():
        if annotation is python or annotation == python:
            return text
    inner = _is_optional(annotation)
    if inner is not None:
        text = _type_text(inner)
        return None if text is None else f"{text}?"
    if typing.get_origin(annotation) in (list, collections.abc.Sequence) and typing.get_args(annotation):
        of = typing.get_args(annotation)[0]
        optional = _is_optional(of)
        if optional is torch.Tensor:
            return "Tensor?[]"
        for python, text in _IN_LISTS.items():
            if of is python or of == python:
                return f"{text}[]"
    return None


def _default_text(value: Any) -> str | None:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, str | torch.device):
        return f'"{value}"'
    return None


def _returns_text(annotation: Any, fail: Callable[[str], Any]) -> str:
    if annotation is inspect.Parameter.empty:
        fail("No return type annotation was provided. Please add one.")
    if annotation is None or annotation is type(None):
        return "()"
    plain = {
        torch.Tensor: "Tensor",
        int: "SymInt",
        float: "float",
        bool: "bool",
        Number: "Scalar",
        list[torch.Tensor]: "Tensor[]",
    }
    if typing.get_origin(annotation) is tuple:
        parts = [_returns_text(part, fail) for part in typing.get_args(annotation)]
        return f"({', '.join(parts)})"
    if typing.get_origin(annotation) is list:
        annotation = list[typing.get_args(annotation)]
    for python, text in plain.items():
        if annotation is python or annotation == python:
            return text
    fail(f"Return has unsupported type {annotation}. The valid types are: {plain}.")
    raise AssertionError


def infer_schema(
    prototype_function: Callable[..., Any], /, *, mutates_args: str | Iterable[str], op_name: str | None = None
) -> str:
    """The schema of a function whose parameters and result are annotated; ValueError for what no schema can say.

    mutates_args: the names of parameters that are written; "unknown": every Tensor may be.
    """
    signature = inspect.signature(prototype_function)

    def fail(what: str) -> Any:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    try:
        hints = typing.get_type_hints(prototype_function)
    except (NameError, TypeError):
        hints = {}
    written = (
        set() if mutates_args == "unknown" else {mutates_args} if isinstance(mutates_args, str) else set(mutates_args)
    )
    parts: list[str] = []
    starred, marks = False, 0
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            fail("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        annotation = hints.get(name, parameter.annotation)
        if annotation is parameter.empty:
            fail(f"Parameter {name} must have a type annotation.")
        optional = parameter.default is None and _is_optional(annotation) is None
        text = _type_text(annotation)
        if text is None:
            if typing.get_origin(annotation) is tuple:
                fail(
                    f"Parameter {name} has unsupported type {annotation}. Tuple type annotation is not supported. "
                    "Please try to use a List instead."
                )
            fail(f"Parameter {name} has unsupported type {annotation}. The valid types are: {list(_PLAIN.values())}.")
        assert text is not None
        if optional and name in hints and parameter.default is None and not text.endswith("?"):
            fail(f"Parameter {name} has default None but its type {annotation} is not Optional.")
        if name in written or (mutates_args == "unknown" and text.startswith("Tensor")):
            if not text.startswith("Tensor"):
                fail(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
            text = f"Tensor(a{len([p for p in parts if p != '*'])}!){text[len('Tensor') :]}"
            marks += 1
        if parameter.default is parameter.empty:
            parts.append(f"{text} {name}")
            continue
        default = _default_text(parameter.default)
        if default is None:
            fail(
                f"Parameter {name} has an unsupported default value type {type(parameter.default)}. Please file an "
                "issue on GitHub so we can prioritize this."
            )
        parts.append(f"{text} {name}={default}")
    unknown = written - signature.parameters.keys()
    if unknown:
        fail(
            f"{sorted(unknown)} in mutates_args were not found in the custom op's signature. mutates_args should "
            "contain the names of all args that the custom op mutates, or just the string 'unknown' if you don't know."
        )
    back = _returns_text(hints.get("return", signature.return_annotation), fail)
    text = f"({', '.join(parts)}) -> {back}"
    return text if op_name is None else f"{op_name}{text}"


def supported_types() -> Sequence[str]:
    """The schema's words that annotations can say."""
    return tuple(_PLAIN.values())
