"""The fit of a call and an entrypoint's signature, by the source: found before anybody is asked and before code runs.

A refusal is final, so it is given only where nothing can make the callable another one than the source shows: no
decorator that may change it, no second definition, no metaclass, no namespace that is filled at run time.  Where that
is not certain the call itself shows it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hubcli.errors import RepositoryCodeError
from hubcli.reading.calls import last_name
from hubcli.reading.hubconf import HubConf
from hubcli.reading.names import Reader
from hubcli.reading.values import Class, Function, Imported, Module, Value

# decorators whose result is called as what they decorate is
_HARMLESS = {"cache", "enable_grad", "inference_mode", "lru_cache", "no_grad", "staticmethod", "wraps"}
_PLAIN_BASES = {"Module", "object"}


class Refusal(NamedTuple):
    """The reason why arguments do not fit, in the words of `inspect` and as Python's own error; the hint says what
    does."""

    reason: str
    error: TypeError
    hint: str


def refusal(
    root: Path, conf: HubConf, entrypoint: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Refusal | None:
    """Return why the entrypoint of the repository at `root` refuses the arguments for certain; None where it may
    take them."""
    entry = next((one for one in conf.entrypoints if one.name == entrypoint), None)
    if entry is None or entry.signature is None or entry.external or conf.dynamic:
        return None
    alike = _alike(entrypoint, entry.signature)
    if alike is None:
        return None
    try:
        alike(*args, **kwargs)
        return None
    except TypeError as error:
        own = error.with_traceback(None)
    try:
        inspect.signature(alike).bind(*args, **kwargs)
        reason = str(own)
    except TypeError as error:
        reason = str(error)
    if not _is_certain(root, entrypoint):
        return None
    return Refusal(reason, own, f"its signature is {entrypoint}{entry.signature}")


def _alike(name: str, signature: str) -> Callable[..., None] | None:
    """Return a function of that name that does nothing, with the parameters that `EntryPoint.signature` describes.

    Of the source only the names of parameters are left: a default is None, annotations are gone.
    """
    try:
        (read,) = ast.parse(f"def f{signature}: pass").body
        if not isinstance(read, ast.FunctionDef):
            return None
        given = read.args
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if one is not None:
                one.annotation = None
        given.defaults = [ast.Constant(None) for _ in given.defaults]
        given.kw_defaults = [None if one is None else ast.Constant(None) for one in given.kw_defaults]
        read.returns, read.decorator_list, read.body = None, [], [ast.Pass()]
        module = ast.fix_missing_locations(ast.Module([read], []))
        names: dict[str, Any] = {}
        exec(compile(module, "<signature>", "exec"), {"__builtins__": {}}, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    made: Any = names["f"]
    made.__name__ = made.__qualname__ = name
    found: Callable[..., None] = made
    return found


def _is_certain(root: Path, entrypoint: str) -> bool:
    reader = Reader(root)
    try:
        module = reader.load(root / "hubconf.py")
        name: str | None = entrypoint
        while name is not None:
            if module.dynamic or _times_bound(reader, module, name) != 1:
                return False
            value = module.names[name][0] if name in module.names else None
            if not isinstance(value, Imported):
                return value is not None and _is_as_written(reader, reader.resolve(value))
            if not value.target.is_file():
                return False
            module, name = reader.load(value.target), value.name
    except (RepositoryCodeError, RecursionError, OSError):
        pass
    return False


def _times_bound(reader: Reader, module: Module, name: str) -> int:
    """Return how often a module may bind a name, at its top or in a function that declares it global; many by a star.

    `net.__signature__ = ...` and the like count as another binding.
    """
    found = 0
    for node in ast.walk(module.tree):
        reader.spend()
        if isinstance(node, ast.ImportFrom | ast.Import):
            for one in node.names:
                found += 2 if one.name == "*" else (one.asname or one.name.partition(".")[0]) == name
        elif isinstance(node, ast.Global):
            found += 2 * (name in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found += isinstance(node.value, ast.Name) and node.value.id == name and node.attr != "__doc__"
    return found + sum(one == name for statement in module.tree.body for one in _bound(statement))


def _bound(statement: ast.AST) -> Iterator[str]:
    """Yield the names that a statement at the top of a module binds, other than by importing, and not inside
    functions."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store | ast.Del):
        yield statement.id
    if isinstance(statement, ast.ExceptHandler) and statement.name:
        yield statement.name
    if not isinstance(statement, ast.Lambda):
        for child in ast.iter_child_nodes(statement):
            yield from _bound(child)


def _is_as_written(reader: Reader, value: Value) -> bool:
    """Return whether nothing stands between a caller and the parameters in the source."""
    if isinstance(value, Function):
        return isinstance(value.node, ast.Lambda) or all(map(_is_harmless, value.node.decorator_list))
    if not isinstance(value, Class) or value.instance:
        return False
    node = value.node
    if node.decorator_list or node.keywords or "__new__" in reader.methods(node):
        return False
    return all(
        last_name(base) in _PLAIN_BASES or _is_as_written(reader, reader.resolve(reader.evaluate(base, value.module)))
        for base in node.bases
    )


def _is_harmless(decorator: ast.expr) -> bool:
    return last_name(decorator) in _HARMLESS
