"""The text of an archive: the part of Python that torch's printer writes, and nothing beyond it.

Note [Why an archive's code needs no trust]
The text is parsed, never executed.  Each node of the tree must be of a kind listed here, each name a variable of the
function it stands in, and each call one of: an operator of the list in `operators`, a function or class of the same
archive, a method of a value.  `compiler` then writes a new program.  In it methods and attributes of the
archive's objects carry a prefix that no other object's have, so that `x.__class__` or `x.grad_fn` leads nowhere,
whatever `x` is at run time, and everything else that the program mentions is a name which only we bind.
What is left to a hostile archive is to take time and memory, which `hub run` bounds by --timeout and --max-memory.
"""

from __future__ import annotations

import ast
import re
import warnings

from engine.serialization import UnpicklingError
from engine.serialization.errors import shown

__all__ = ["MAX_DEPTH", "MAX_TEXT", "check_identifier", "parse", "refused"]

MAX_TEXT = 16 << 20  # bytes of one file of code; the largest known archives have two million
MAX_DEPTH = 150  # of nested expressions

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_KINDS = (
    # a file
    ast.Module, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg, ast.Import, ast.alias,
    # statements
    ast.Assign, ast.AnnAssign, ast.Expr, ast.Return, ast.If, ast.While, ast.For, ast.With, ast.withitem, ast.Pass,
    ast.Break, ast.Continue,
    # expressions
    ast.Name, ast.Attribute, ast.Call, ast.keyword, ast.Constant, ast.Subscript, ast.Tuple, ast.List, ast.Dict,
    ast.UnaryOp, ast.USub, ast.Load, ast.Store,
)  # fmt: skip
_WORDS = {
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.NamedExpr: "an assignment inside an expression",
    ast.Lambda: "a lambda",
    ast.JoinedStr: "an f-string",
    ast.Try: "a try statement",
    ast.Raise: "a raise statement",
    ast.ImportFrom: "an import",
    ast.Global: "a global statement",
    ast.Nonlocal: "a nonlocal statement",
    ast.Delete: "a del statement",
    ast.AsyncFunctionDef: "an async function",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Starred: "a starred expression",
    ast.Match: "a match statement",
    ast.Assert: "an assert statement",
    ast.Slice: "a slice",
    ast.AugAssign: "an augmented assignment",
}


def refused(where: str, node: ast.AST | None, reason: str) -> UnpicklingError:
    """The error for code at a place of the archive."""
    line = getattr(node, "lineno", None)
    at = f"{shown(where)}, line {line}" if line else shown(where)
    return UnpicklingError(f"the archive's code is refused: {reason} ({at})")


def check_identifier(where: str, node: ast.AST | None, name: str) -> str:
    """`name`, if it is made of ASCII letters, digits and underscores."""
    if not _IDENTIFIER.match(name) or len(name) > 1000:
        raise refused(where, node, f"the name {shown(name)} is not plain ASCII")
    return name


def parse(text: bytes, where: str) -> ast.Module:
    """The tree of one file of code; UnpicklingError for what is no Python, or holds a node that is not listed."""
    if len(text) > MAX_TEXT:
        raise refused(where, None, f"the file has {len(text)} bytes, more than {MAX_TEXT}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise refused(where, None, "the text is not UTF-8") from None
    except SyntaxError as e:
        raise UnpicklingError(
            f"the archive's code is refused: {shown(e.msg)} ({shown(where)}, line {e.lineno})"
        ) from None
    except (RecursionError, MemoryError):
        raise refused(where, None, "it is nested too deeply") from None
    except ValueError as e:
        raise refused(where, None, shown(e)) from None
    _check(tree, where)
    return tree


def _check(tree: ast.Module, where: str) -> None:
    """Refuse kinds of nodes that are not listed, and expressions nested too deeply; no recursion."""
    pending: list[tuple[ast.AST, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if not isinstance(node, _KINDS):
            what = _WORDS.get(type(node), f"Python's {type(node).__name__}")
            raise refused(where, node, f"{what} is not part of TorchScript's serialized form")
        if depth > MAX_DEPTH:
            raise refused(where, node, f"an expression is nested more than {MAX_DEPTH} deep")
        pending.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
