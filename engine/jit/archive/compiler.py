"""From the checked tree of an archive's code to Python functions over the engine.

A new text is written node by node; nothing of the archive's own text survives in it but local names, numbers and
quoted strings.  Names that we bind begin with a Greek lambda, which the archive's (ASCII) names cannot:
`λf3` a function of the archive, `λaten_conv2d` an operator, `self.λweight` an attribute.
Note [Why an archive's code needs no trust] in `grammar`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

from engine.jit.archive import operators
from engine.jit.archive.grammar import check_identifier, refused
from engine.jit.archive.kinds import Kind, dotted, parse_kind
from engine.jit.archive.tensor_operators import division_before_4
from engine.serialization.errors import shown

__all__ = ["FunctionWriter", "Scope", "text_of"]

_BUILTIN_VALUES = {"inf": "λinf", "nan": "λnan", "infj": "λinfj", "nanj": "λnanj"}
_CASTS = {
    "int": "λint",
    "float": "λfloat",
    "bool": "λbool",
    "str": "λstr",
    "complex": "λcomplex",
    "tuple": "λtuple",
    "list": "λlist",
}
_NUMBERS = frozenset(("int", "float", "number", "Scalar", "complex", "bool"))
_LARGEST = 1 << 64


class Scope:
    """What the names in the functions of one archive stand for; filled by the loader.

    resolve(path) gives ("function", key), ("class", key), ("enum", key, member) or None for a path `__torch__....`.
    bound: the globals of the new program.
    python: the functions that `ops.python.call0` and so on are in a program compiled in this process; None for an
    archive's, whose code names no Python function whatever it says.
    """

    def __init__(
        self, resolve: Callable[[str], tuple | None], constants: int, version: int, python: Sequence[Any] | None = None
    ) -> None:
        self.resolve, self.constants, self.version, self.python = resolve, constants, version, python
        self.bound: dict[str, Any] = {}

    def bind(self, name: str, value: Any) -> str:
        """Let the new program know `value` as `name`."""
        self.bound[name] = value
        return name


def text_of(value: str) -> str:
    """Text as torch's printer means it: bytes beyond ASCII are written as octal escapes of UTF-8."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


class FunctionWriter:
    """Writes one function of an archive anew.

    where: the file, for errors.  lines: pairs (line of the new text, line of the archive), appended to.
    """

    def __init__(self, scope: Scope, where: str, outer: frozenset[str] = frozenset()) -> None:
        self.scope, self.where, self.outer = scope, where, outer
        self.names: set[str] = set(outer)
        self.aliases: dict[str, str] = {}
        self.loops = 0
        self.out: list[str] = []
        self.origin: list[int] = []

    def fail(self, node: ast.AST, reason: str) -> Exception:
        return refused(self.where, node, reason)

    def put(self, node: ast.AST, depth: int, text: str) -> None:
        self.out.append(" " * depth + text)
        self.origin.append(getattr(node, "lineno", 0))

    # -- functions

    def function(self, node: ast.FunctionDef, name: str) -> None:
        """Append the text of `node` as a function called `name`."""
        parameters, defaults = self.parameters(node)
        self.names.update(parameters)
        self._collect(node.body)
        given = [None] * (len(parameters) - len(defaults)) + defaults
        written = [p if d is None else f"{p}={self.expression(d)}" for p, d in zip(parameters, given)]
        self.put(node, 0, f"def {name}({', '.join(written)}):")
        self.block(node.body, 1)

    def parameters(self, node: ast.FunctionDef) -> tuple[list[str], list[ast.expr]]:
        """Names and defaults; the other forms of parameters are refused."""
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or node.decorator_list:
            raise self.fail(node, "a function has a starred parameter, a keyword-only one or a decorator")
        names = [check_identifier(self.where, one, one.arg) for one in a.args]
        if len(set(names)) != len(names):
            raise self.fail(node, "a function has two parameters of one name")
        return names, list(a.defaults)

    def _collect(self, body: Sequence[ast.stmt]) -> None:
        """The names that statements assign."""
        pending: list[ast.AST] = list(body)
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.names.add(check_identifier(self.where, node, node.id))
            elif isinstance(node, ast.FunctionDef):
                self.names.add(check_identifier(self.where, node, node.name))
                continue
            pending.extend(ast.iter_child_nodes(node))

    # -- statements

    def block(self, body: Sequence[ast.stmt], depth: int) -> None:
        if depth > 90:
            raise self.fail(body[0], "statements are nested more than 90 deep")
        for node in body:
            writer = _STATEMENTS.get(type(node))
            if writer is None:
                raise self.fail(node, f"{type(node).__name__} cannot stand in a function")
            writer(self, node, depth)

    def _assign(self, node: ast.Assign, depth: int) -> None:
        if len(node.targets) != 1:
            raise self.fail(node, "an assignment has several targets")
        target = node.targets[0]
        if isinstance(target, ast.Name) and self._alias(target.id, node.value):
            self.put(node, depth, "pass")
            return
        self.put(node, depth, f"{self.target(target)} = {self.expression(node.value)}")

    def _alias(self, name: str, value: ast.expr) -> bool:
        """`_0 = __torch__.torch.nn.functional.relu`: the name stands for that function from here on."""
        path = dotted(value)
        if path is None or not path.startswith("__torch__."):
            return False
        found = self.scope.resolve(path)
        if found is None or found[0] == "enum":
            return False
        if self.aliases.get(name, path) != path:
            raise self.fail(value, f"{shown(name)} stands for two functions")
        self.aliases[name] = path
        return True

    def _annotated(self, node: ast.AnnAssign, depth: int) -> None:
        if node.value is None or not node.simple:
            raise self.fail(node, "a declaration without a value stands in a function")
        self.kind(node.annotation)
        self.put(node, depth, f"{self.target(node.target)} = {self.expression(node.value)}")

    def target(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return check_identifier(self.where, node, node.id)
        if isinstance(node, ast.Tuple) and node.elts:
            if any(isinstance(part, ast.Tuple) for part in node.elts):
                raise self.fail(node, "an assignment unpacks tuples inside tuples")
            return "".join(f"{self.target(part)}, " for part in node.elts)
        if isinstance(node, ast.Attribute):
            return f"{self.expression(node.value)}.{self.attribute(node, node.attr)}"
        raise self.fail(node, "an assignment goes to something other than a variable or an attribute")

    def _expression_statement(self, node: ast.Expr, depth: int) -> None:
        if not isinstance(node.value, ast.Call):
            raise self.fail(node, "a statement is an expression that calls nothing")
        self.put(node, depth, self.expression(node.value))

    def _return(self, node: ast.Return, depth: int) -> None:
        self.put(node, depth, "return" if node.value is None else f"return {self.expression(node.value)}")

    def _if(self, node: ast.If, depth: int) -> None:
        self.put(node, depth, f"if {self.expression(node.test)}:")
        self.block(node.body, depth + 1)
        if node.orelse:
            self.put(node, depth, "else:")
            self.block(node.orelse, depth + 1)

    def _while(self, node: ast.While, depth: int) -> None:
        if node.orelse:
            raise self.fail(node, "a loop has an else")
        self.put(node, depth, f"while {self.expression(node.test)}:")
        self.loops += 1
        self.block(node.body, depth + 1)
        self.loops -= 1

    def _for(self, node: ast.For, depth: int) -> None:
        call = node.iter
        ranged = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if node.orelse or not ranged or len(call.args) != 1 or call.keywords or not isinstance(node.target, ast.Name):
            raise self.fail(node, "a for loop has another form than `for i in range(n)`")
        self.put(node, depth, f"for {self.target(node.target)} in λrange({self.expression(call.args[0])}):")
        self.loops += 1
        self.block(node.body, depth + 1)
        self.loops -= 1

    def _with(self, node: ast.With, depth: int) -> None:
        if len(node.items) != 1:
            raise self.fail(node, "a with statement has several parts")
        item = node.items[0]
        named = "" if item.optional_vars is None else f" as {self.target(item.optional_vars)}"
        self.put(node, depth, f"with λwith({self.expression(item.context_expr)}){named}:")
        self.block(node.body, depth + 1)

    def _pass(self, node: ast.Pass, depth: int) -> None:
        self.put(node, depth, "pass")

    def _leave(self, node: ast.Break | ast.Continue, depth: int) -> None:
        if not self.loops:
            raise self.fail(node, "a break or continue stands outside of a loop")
        self.put(node, depth, "break" if isinstance(node, ast.Break) else "continue")

    def _closure(self, node: ast.FunctionDef, depth: int) -> None:
        """The body of a fork: a function without parameters that reads the variables around it."""
        if node.args.args:
            raise self.fail(node, "a function inside a function has parameters")
        self.parameters(node)
        inner = FunctionWriter(self.scope, self.where, frozenset(self.names))
        inner.aliases = dict(self.aliases)
        inner._collect(node.body)
        self.put(node, depth, f"def {check_identifier(self.where, node, node.name)}():")
        inner.block(node.body, depth + 1)
        self.out += inner.out
        self.origin += inner.origin

    # -- expressions

    def kind(self, node: ast.AST) -> Kind:
        try:
            return parse_kind(node)
        except ValueError as e:
            raise self.fail(node, str(e)) from None

    def attribute(self, node: ast.AST, name: str) -> str:
        return "λ" + check_identifier(self.where, node, name)

    def expressions(self, nodes: Sequence[ast.expr]) -> str:
        return ", ".join(map(self.expression, nodes))

    def expression(self, node: ast.expr) -> str:
        writer = _EXPRESSIONS.get(type(node))
        if writer is None:
            raise self.fail(node, f"{type(node).__name__} cannot stand in an expression")
        return writer(self, node)

    def _constant(self, node: ast.Constant) -> str:
        value = node.value
        if value is None or isinstance(value, bool):
            return repr(value)
        if isinstance(value, str):
            return repr(text_of(value))
        if isinstance(value, int):
            if value >= _LARGEST:
                raise self.fail(node, "a number does not fit 64 bits")
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else "λinf"
        if isinstance(value, complex):
            return f"λcomplex({value.real!r}, {value.imag!r})" if math.isfinite(abs(value)) else "λinfj"
        raise self.fail(node, f"a constant is of type {type(value).__name__}")

    def _name(self, node: ast.Name) -> str:
        if node.id in self.names and node.id not in self.aliases:
            return node.id
        if node.id in _BUILTIN_VALUES:
            return _BUILTIN_VALUES[node.id]
        raise self.fail(node, f"{shown(node.id)} is not a variable of the function")

    def _unary(self, node: ast.UnaryOp) -> str:
        return f"(-{self.expression(node.operand)})"

    def _tuple(self, node: ast.Tuple) -> str:
        inside = self.expressions(node.elts)
        return f"({inside},)" if len(node.elts) == 1 else f"({inside})"

    def _list(self, node: ast.List) -> str:
        return f"[{self.expressions(node.elts)}]"

    def _dict(self, node: ast.Dict) -> str:
        if any(key is None for key in node.keys):
            raise self.fail(node, "a dictionary is unpacked")
        pairs = zip(node.keys, node.values)
        return "{" + ", ".join(f"{self.expression(k)}: {self.expression(v)}" for k, v in pairs if k is not None) + "}"

    def _subscript(self, node: ast.Subscript) -> str:
        return f"{self.expression(node.value)}[{self.expression(node.slice)}]"

    def _attribute(self, node: ast.Attribute) -> str:
        path = dotted(node)
        root = (path or "").partition(".")[0]
        if path is not None and root not in self.names:
            if root == "CONSTANTS":
                return self._archive_constant(node, path)
            if root == "__torch__":
                found = self.scope.resolve(path)
                if found is not None and found[0] == "enum":
                    return f"λc{found[1]}.{found[2]}"
            raise self.fail(node, f"{shown(path)} is not a value that an archive may name")
        return f"{self.expression(node.value)}.{self.attribute(node, node.attr)}"

    def _archive_constant(self, node: ast.AST, path: str) -> str:
        name = path.removeprefix("CONSTANTS.")
        if not name.startswith("c") or not name[1:].isdecimal() or not name.isascii() or len(name) > 9:
            raise self.fail(node, f"{shown(path)} is not a constant of the archive")
        if int(name[1:]) >= self.scope.constants:
            raise self.fail(node, f"the constant {shown(path)} is not there: the archive has {self.scope.constants}")
        return f"λk{int(name[1:])}"

    # -- calls

    def _call(self, node: ast.Call) -> str:
        if any(keyword.arg is None for keyword in node.keywords):
            raise self.fail(node, "a call unpacks keyword arguments")
        function = node.func
        if isinstance(function, ast.Name):
            return self._named_call(node, function.id)
        if not isinstance(function, ast.Attribute):
            raise self.fail(node, "something other than a name or a method is called")
        path = dotted(function)
        root = (path or "").partition(".")[0]
        if path is not None and root not in self.names:
            if root == "torch":
                return self._operator(node, "aten", path[6:])
            if root == "ops" and path.count(".") == 2:
                return self._operator(node, *path.split(".")[1:])
            if root == "__torch__":
                return self._archive_call(node, path)
            raise self.fail(node, f"{shown(path)} is not something that an archive may call")
        if function.attr == "__new__":
            raise self.fail(node, "__new__ is called on something other than a class of the archive")
        value = self.expression(function.value)
        if function.attr == "tolist" and not node.args and not node.keywords:
            self.scope.bind("λtolist", operators.find("prim", "tolist"))
            return f"λtolist({value})"
        return f"{value}.{self.attribute(node, function.attr)}({self._arguments(node)})"

    def _arguments(self, node: ast.Call) -> str:
        named = [f"{check_identifier(self.where, node, str(k.arg))}={self.expression(k.value)}" for k in node.keywords]
        return ", ".join([*map(self.expression, node.args), *named])

    def _archive_call(self, node: ast.Call, path: str) -> str:
        if path.endswith(".__new__"):
            path = path.removesuffix(".__new__")
            found = self.scope.resolve(path)
            if found is None or found[0] != "class" or len(node.args) != 1 or dotted(node.args[0]) != path:
                raise self.fail(node, f"{shown(path)} is not a class of the archive")
            return f"λnew(λc{found[1]})"
        found = self.scope.resolve(path)
        if found is None or found[0] == "enum":
            raise self.fail(node, f"the archive has no function {shown(path)}")
        if found[0] == "class":
            return f"λmake(λc{found[1]}, {self._arguments(node)})"
        return f"λf{found[1]}({self._arguments(node)})"

    def _operator(self, node: ast.Call, namespace: str, name: str) -> str:
        check_identifier(self.where, node, name.replace(".", "_"))
        plain = not node.keywords
        if namespace == "aten":
            if plain and len(node.args) == 2 and not (name == "__is__" or name == "__isnot__"):
                sign = operators.INFIX.get(name) or operators.COMPARED.get(name)
                if sign is not None:
                    return f"({self.expression(node.args[0])} {sign} {self.expression(node.args[1])})"
            if plain and len(node.args) == 2 and name in operators.COMPARED:
                left, right = map(self.expression, node.args)
                constant = isinstance(node.args[1], ast.Constant) and node.args[1].value is not None
                same = f"λis({left}, {right})" if name == "__is__" else f"(not λis({left}, {right}))"
                return same if constant else f"({left} {operators.COMPARED[name]} {right})"
            if plain and len(node.args) == 1 and name in operators.PREFIX:
                return f"({operators.PREFIX[name]}{self.expression(node.args[0])})"
            if name == "div" and self.scope.version < 4:
                namespace, name = "old", "div"
        elif namespace == "prim" and name == "RaiseException":
            return f"λraise({self._arguments(node)})"
        bound = self._bound(node, namespace, name)
        return f"{bound}({', '.join([*map(self.expression, node.args), *self._named(node)])})"

    def _bound(self, node: ast.Call, namespace: str, name: str) -> str:
        if namespace == "python":
            return self._python(node, name)
        if (namespace, name) == ("old", "div"):
            return self.scope.bind("λold_div", division_before_4)
        stored = namespace == "aten" and any(k.arg == "out" for k in node.keywords)
        function = operators.find_into(name) if stored else operators.find(namespace, name)
        if function is None:
            raise self.fail(node, operators.why_not(shown(namespace), shown(name)))
        return self.scope.bind(f"λ{'into' if stored else namespace}_{name}", function)

    def _python(self, node: ast.Call, name: str) -> str:
        """A Python function that scripted code calls as it is."""
        functions = self.scope.python
        if functions is None:
            raise self.fail(node, f"python::{shown(name)} is a call of Python, which no archive may make")
        digits = name.removeprefix("call")
        if digits == name or not digits.isdecimal() or len(digits) > 9 or int(digits) >= len(functions):
            raise self.fail(node, f"python::{shown(name)} is none of the {len(functions)} functions of the program")
        return self.scope.bind(f"λpython_{name}", functions[int(digits)])

    def _named(self, node: ast.Call) -> list[str]:
        """Keyword arguments of an operator; dtypes and memory formats are numbers in an archive."""
        out = []
        for keyword in node.keywords:
            name = check_identifier(self.where, node, str(keyword.arg))
            value = keyword.value
            if operators.drops(name):
                if isinstance(value, ast.Constant) and value.value not in (None, 0, False):
                    raise self.fail(node, f"{name}={shown(value.value)} asks for a kind of memory that is not there")
                continue
            if name == "generator":
                if not (isinstance(value, ast.Constant) and value.value is None):
                    raise self.fail(node, "an operator is given a random number generator")
                continue
            text = self.expression(value)
            if name == "dtype":
                text = f"λdtype({text})"
            elif name == "memory_format":
                text = f"λmemory_format({text})"
            out.append(f"{name}={text}")
        return out

    def _named_call(self, node: ast.Call, name: str) -> str:
        if name in self.aliases:
            return self._archive_call(node, self.aliases[name])
        if name in self.names:
            raise self.fail(node, f"the variable {shown(name)} is called")
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, node)
        if name in _CASTS:
            if node.keywords or len(node.args) > (2 if name == "complex" else 1):
                raise self.fail(node, f"{name}() is called with other arguments than one value")
            return f"{_CASTS[name]}({self.expressions(node.args)})"
        raise self.fail(node, f"{shown(name)} is not a function that an archive may call")

    def _plain(self, node: ast.Call, count: int) -> list[ast.expr]:
        if node.keywords or len(node.args) != count:
            raise self.fail(node, f"a special form is called with {len(node.args)} arguments, not {count}")
        return node.args

    def _annotate(self, node: ast.Call) -> str:
        annotation, value = self._plain(node, 2)
        kind, text = self.kind(annotation), self.expression(value)
        return f"λas_{kind.name.lower()}({text})" if kind.name in _NUMBERS else text

    def _cast(self, node: ast.Call) -> str:
        annotation, value = self._plain(node, 2)
        self.kind(annotation)
        return self.expression(value)

    def _uninitialized(self, node: ast.Call) -> str:
        self.kind(self._plain(node, 1)[0])
        return "None"

    def _getattr(self, node: ast.Call) -> str:
        value, name = self._plain(node, 2)
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            raise self.fail(node, "getattr is given a name that is not a constant")
        return f"λgetattr({self.expression(value)}, {'λ' + text_of(name.value)!r})"

    def _isinstance(self, node: ast.Call) -> str:
        value, types = self._plain(node, 2)
        parts = types.elts if isinstance(types, ast.Tuple | ast.List) else [types]
        kinds = tuple(map(self.kind, parts))
        name = self.scope.bind(f"λkinds{len(self.scope.bound)}", kinds)
        return f"λisinstance({self.expression(value)}, {name})"

    def _fork(self, node: ast.Call) -> str:
        if not node.args or node.keywords:
            raise self.fail(node, "fork is called without a function")
        first, path = node.args[0], dotted(node.args[0])
        rest = "".join(f", {self.expression(arg)}" for arg in node.args[1:])
        if isinstance(first, ast.Name) and first.id in self.names and first.id not in self.aliases:
            return f"λfork({first.id}{rest})"
        path = self.aliases.get(path or "", path)
        found = self.scope.resolve(path) if path else None
        if found is None or found[0] != "function":
            raise self.fail(node, "fork is given something other than a function of the archive")
        return f"λfork(λf{found[1]}{rest})"

    def _print(self, node: ast.Call) -> str:
        if node.keywords:
            raise self.fail(node, "print is called with keyword arguments")
        return f"λprint({self.expressions(node.args)})"

    def _unwrap(self, node: ast.Call) -> str:
        self.scope.bind("λprim_unwrap", operators.find("prim", "unchecked_unwrap_optional"))
        return f"λprim_unwrap({self.expression(self._plain(node, 1)[0])})"


_STATEMENTS: dict[type, Callable[[FunctionWriter, Any, int], None]] = {
    ast.Assign: FunctionWriter._assign,
    ast.AnnAssign: FunctionWriter._annotated,
    ast.Expr: FunctionWriter._expression_statement,
    ast.Return: FunctionWriter._return,
    ast.If: FunctionWriter._if,
    ast.While: FunctionWriter._while,
    ast.For: FunctionWriter._for,
    ast.With: FunctionWriter._with,
    ast.Pass: FunctionWriter._pass,
    ast.Break: FunctionWriter._leave,
    ast.Continue: FunctionWriter._leave,
    ast.FunctionDef: FunctionWriter._closure,
}
_EXPRESSIONS: dict[type, Callable[[FunctionWriter, Any], str]] = {
    ast.Constant: FunctionWriter._constant,
    ast.Name: FunctionWriter._name,
    ast.UnaryOp: FunctionWriter._unary,
    ast.Tuple: FunctionWriter._tuple,
    ast.List: FunctionWriter._list,
    ast.Dict: FunctionWriter._dict,
    ast.Subscript: FunctionWriter._subscript,
    ast.Attribute: FunctionWriter._attribute,
    ast.Call: FunctionWriter._call,
}
_SPECIAL: dict[str, Callable[[FunctionWriter, ast.Call], str]] = {
    "annotate": FunctionWriter._annotate,
    "unchecked_cast": FunctionWriter._cast,
    "uninitialized": FunctionWriter._uninitialized,
    "getattr": FunctionWriter._getattr,
    "isinstance": FunctionWriter._isinstance,
    "fork": FunctionWriter._fork,
    "print": FunctionWriter._print,
    "unwrap_optional": FunctionWriter._unwrap,
    "_unwrap_optional": FunctionWriter._unwrap,
}
