"""The parameters and result of a function by its annotations or its type comment."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from engine.jit.archive.kinds import TENSOR, Kind
from engine.jit.scripting.frontend import CompileError, Source, annotation, split_comment
from engine.jit.scripting.infos import ClassInfo

if TYPE_CHECKING:
    from engine.jit.scripting.unit import Unit

__all__ = ["signature", "type_comment"]


def signature(
    unit: Unit, source: Source, owner: ClassInfo | None
) -> tuple[list[tuple[str, Kind, ast.expr | None]], Kind | None]:
    """Parameters as (name, type, default's tree or None) and the result's type, None where none is written."""
    a = source.node.args
    given = dict(getattr(source.function, "__annotations__", {}))
    comment = type_comment(source)
    names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    kinds: dict[str, Kind] = {}
    returns: Kind | None = None

    def known(value: Any, node: ast.AST) -> Kind:
        try:
            return annotation(value, unit.named, source.names)
        except ValueError as e:
            raise CompileError(str(e), source, node) from None

    own = names[1:] if owner is not None else names
    if comment is not None:
        parts, result = comment
        if parts == ["..."]:
            parts = []
        if len(parts) == len(names):
            own = names
        for name, text in zip(own, parts):
            kinds[name] = known(_typed_text(text), source.node)
        returns = known(_typed_text(result), source.node)
    for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs):
        if arg.type_comment and "ignore" not in arg.type_comment[:8]:
            kinds[arg.arg] = known(arg.type_comment.strip(), arg)
    for name, value in given.items():
        if name == "return":
            if value in ("Any", Any) and str(getattr(source.function, "__module__", "")).startswith("engine."):
                continue  # of the engine's own modules, whose result depends on their settings
            returns = known(value, source.node.returns or source.node)
        elif name in names:
            kinds[name] = known(value, source.node)
    defaults: dict[str, ast.expr] = {}
    positional = [*a.posonlyargs, *a.args]
    for arg, default in zip(reversed(positional), reversed(a.defaults)):
        defaults[arg.arg] = default
    for arg, given_default in zip(a.kwonlyargs, a.kw_defaults):
        if given_default is not None:
            defaults[arg.arg] = given_default
    return [(name, kinds.get(name, TENSOR), defaults.get(name)) for name in names], returns


def _typed_text(text: str) -> str:
    return "None" if text == "()" else text


def type_comment(source: Source) -> tuple[list[str], str] | None:
    found = source.node.type_comment
    if found is None:
        for line in source.lines[source.node.lineno - 1 : source.node.body[0].lineno + 1]:
            text = line.strip()
            if text.startswith("# type:") and "->" in text and "ignore" not in text[:14]:
                found = text.removeprefix("# type:")
                break
    return None if found is None or "->" not in found else split_comment(found)
