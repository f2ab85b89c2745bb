"""From the source of a function to the text of an archive: statements, and the types of variables.

Note [Scripted functions]
A function's tree is walked once; each expression becomes text in the form that archives have (`torch.add(x, y)`), with
its type.  The text is a program like any that `jit.load` reads, so that what is scripted runs, is shown and is saved by
what there is for archives.  Types decide what a name, a method or a condition means, as in torch: `x is None` of a
Tensor is False when the function is compiled, and the branch is not looked at.
Variables keep their names; break, continue and early returns stay as they are, which both readers understand.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from .expressions import Expressions
from .frontend import CompileError, FrontendError, Source, annotation, split_comment, unsupported
from .kinds import NONE, TENSOR, Kind
from .schemas import Value, subtype, unified
from .sugared import Iterated, Many, Py

if TYPE_CHECKING:
    from .unit import ClassInfo, FunctionInfo, Unit

__all__ = ["Emitter", "signature", "spelt"]

_RESERVED = frozenset(
    """torch ops inf nan infj nanj annotate unchecked_cast uninitialized CONSTANTS range getattr isinstance fork int
    float bool str print tuple list complex unwrap_optional""".split()
)
# after a raise: torch's reader takes a call that raises for one that returns
_UNREACHED = "return \0"
_AUGMENTED = {
    ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_", ast.FloorDiv: "floor_divide_",
    ast.Pow: "pow_", ast.Mod: "remainder_", ast.BitAnd: "bitwise_and_", ast.BitOr: "bitwise_or_",
    ast.BitXor: "bitwise_xor_",
}  # fmt: skip


def signature(unit: Unit, source: Source, owner: ClassInfo | None) -> tuple[list[tuple[str, Kind, Any]], Kind | None]:
    """Parameters as (name, type, default's tree or None) and the result's type, None where none is written."""
    a = source.node.args
    given = dict(getattr(source.function, "__annotations__", {}))
    comment = _comment(source)
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
    defaults: dict[str, Any] = {}
    positional = [*a.posonlyargs, *a.args]
    for arg, default in zip(reversed(positional), reversed(a.defaults)):
        defaults[arg.arg] = default
    for arg, default in zip(a.kwonlyargs, a.kw_defaults):
        if default is not None:
            defaults[arg.arg] = default
    return [(name, kinds.get(name, TENSOR), defaults.get(name)) for name in names], returns


def _typed_text(text: str) -> str:
    return "None" if text == "()" else text


def _comment(source: Source) -> tuple[list[str], str] | None:
    found = source.node.type_comment
    if found is None:
        for line in source.lines[source.node.lineno - 1 : source.node.body[0].lineno + 1]:
            text = line.strip()
            if text.startswith("# type:") and "->" in text and "ignore" not in text[:14]:
                found = text.removeprefix("# type:")
                break
    return None if found is None or "->" not in found else split_comment(found)


def spelt(name: str) -> str:
    """A variable's name as the text has it."""
    if name in _RESERVED or name.startswith("__torch__"):
        return name + "_"
    return name if name.isascii() else "u_" + name.encode("unicode_escape").decode().replace("\\", "_")


class Emitter(Expressions):
    """One function on its way to text."""

    def __init__(self, unit: Unit, info: FunctionInfo, source: Source, owner: ClassInfo | None) -> None:
        self.unit, self.info, self.source, self.owner = unit, info, source, owner
        self.env: dict[str, Any] = {}
        self.gone: dict[str, str] = {}  # variables of one branch only, with the reason
        self.frame: dict[str, Kind] = {}  # the variables of the blocks around this one, which keep their types
        self.lines: list[str] = []
        self.depth = 1
        self.temporary = 0
        self.loops = 0
        self.returned: Kind | None = None
        self.names = {n.id for n in ast.walk(source.node) if isinstance(n, ast.Name)}
        self.names |= {a.arg for a in ast.walk(source.node) if isinstance(a, ast.arg)}

    # -- the function

    def run(self) -> None:
        """Fill in the info: its lines, its result's type."""
        info, node = self.info, self.source.node
        for name, kind, _ in info.parameters:
            self.env[name] = Value(self.spelt(name), kind)
        try:
            ends = self.block(node.body)
        except (CompileError, FrontendError) as e:
            raise self.told(e) from None
        if not ends:
            if info.returns is not None and info.returns != NONE and not subtype(NONE, info.returns):
                raise self.error(
                    "Function was not annotated as having type None, but does not return along all paths", node
                )
            self.put("return None")
            self.returned = NONE if self.returned is None else unified(self.returned, NONE)
        if info.returns is None:
            info.returns = self.returned or NONE
        never = "return None" if info.returns == NONE else f"return uninitialized({info.returns})"
        info.lines = [line.replace(_UNREACHED, never) for line in self.lines]

    def told(self, error: Exception) -> Exception:
        """An error with the functions that led to it."""
        if not getattr(error, "stack", None):
            error.stack = []  # type: ignore[attr-defined]
        return error

    def error(self, message: str, node: ast.AST | None = None) -> CompileError:
        return CompileError(message, self.source, node)

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self) -> str:
        """A name that the function does not use."""
        while True:
            name = f"_{self.temporary}"
            self.temporary += 1
            if name not in self.names:
                return name

    spelt = staticmethod(spelt)

    # -- blocks

    def block(self, body: list[ast.stmt]) -> bool:
        """Statements in order; whether the end cannot be reached."""
        for node in body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # a docstring
            step = _STATEMENTS.get(type(node))
            if step is None:
                raise unsupported(self.source, node)
            if step(self, node):
                return True
        return False

    def nested(self, body: list[ast.stmt], refined: dict[str, Kind]) -> tuple[dict[str, Any], bool, list[str]]:
        """A branch: its variables at the end, whether it ends there, its lines."""
        outer, kept, gone, frame = self.env, self.lines, dict(self.gone), self.frame
        self.env, self.lines = dict(outer), []
        self.frame = {n: v.kind for n, v in outer.items() if isinstance(v, Value)}
        self.depth += 1
        self.refine(refined)
        ends = self.block(body)
        self.depth -= 1
        env, lines = self.env, self.lines
        self.env, self.lines, self.gone, self.frame = outer, kept, gone, frame
        return env, ends, lines

    def refine(self, refined: dict[str, Kind]) -> None:
        """Let variables have the types that a condition told."""
        for name, kind in refined.items():
            value = self.env.get(name)
            if isinstance(value, Value) and value.kind != kind:
                if kind == NONE:
                    self.env[name] = Value(value.text, NONE, None)
                    continue
                self.put(f"{value.text} = unchecked_cast({kind}, {value.text})")
                self.env[name] = Value(value.text, kind)

    def _if(self, node: ast.If) -> bool:
        test = self.condition(node.test)
        if test.static is not None:
            self.refine(test.true if test.static else test.false)
            return self.block(node.body if test.static else node.orelse)
        one = self.nested(node.body, test.true)
        two = self.nested(node.orelse, test.false)
        self.join(node, test.text, one, two)
        return one[1] and two[1]

    def join(self, node: ast.AST, test: str, one: Any, two: Any) -> None:
        """Both branches as an if statement, and the variables after it."""
        (env1, ends1, lines1), (env2, ends2, lines2) = one, two
        after: dict[str, Any] = {}
        for name in {**env1, **env2}:
            a, b = env1.get(name), env2.get(name)
            if ends1 and ends2:
                after = dict(self.env)
                break
            if ends1 or ends2:
                kept = b if ends1 else a
                if kept is not None:
                    after[name] = kept
                continue
            if a is None or b is None:
                which = "true" if a is None else "false"
                self.gone[name] = f"{name} is not defined in the {which} branch"
                continue
            after[name] = self.merged(node, name, a, b)
        self.put(f"if {test}:")
        self.lines += lines1 or ["  " * (self.depth + 1) + "pass"]
        self.put("else:")
        self.lines += lines2 or ["  " * (self.depth + 1) + "pass"]
        self.env = after

    def merged(self, node: ast.AST, name: str, a: Any, b: Any) -> Any:
        if a is b:
            return a
        if not isinstance(a, Value) or not isinstance(b, Value):
            if isinstance(a, Py) and isinstance(b, Py) and a.obj is b.obj:
                return a
            raise self.error(f"{name} is a Python value that differs between the branches of an if", node)
        kind = unified(a.kind, b.kind)
        before = self.env.get(name)
        if kind is None and isinstance(before, Value) and all(subtype(v.kind, before.kind) for v in (a, b)):
            kind = before.kind
        if kind is None:
            raise self.error(
                f"Type mismatch: {name} is set to type {a.kind} in the true branch and type {b.kind} in the false "
                "branch", node,
            )  # fmt: skip
        return Value(a.text, kind)

    def loop(self, node: Any, header: str, before: Any = None) -> None:
        """A loop around a body whose variables keep their types."""
        outer = self.env
        assigned = {
            n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        kept, self.lines, self.env = self.lines, [], dict(self.env)
        frame, self.frame = self.frame, {n: v.kind for n, v in outer.items() if isinstance(v, Value)}
        self.depth += 1
        self.loops += 1
        if before is not None:
            before()
        self.block(node.body)
        self.loops -= 1
        self.depth -= 1
        lines, env = self.lines, self.env
        self.lines, self.env, self.frame = kept, outer, frame
        for name, value in outer.items():
            late = env.get(name)
            if isinstance(value, Value) and isinstance(late, Value) and name in assigned:
                if not subtype(late.kind, value.kind):
                    raise self.retyped(name, value.kind, late.kind, node)
                self.env[name] = Value(value.text, value.kind)
        for name in env:
            if name not in outer:
                self.gone[name] = f"{name} is not defined in the body of the loop when it does not run"
        self.put(header)
        self.lines += lines or ["  " * (self.depth + 1) + "pass"]

    def retyped(self, name: str, was: Kind, now: Kind, node: ast.AST) -> CompileError:
        return self.error(
            f"Variable '{name}' previously had type {was} but is now being assigned to a value of type {now}", node
        )

    def _while(self, node: ast.While) -> bool:
        if node.orelse:
            raise self.error("else branches of while loops aren't supported", node)
        mark = len(self.lines)
        test = self.condition(node.test)
        prelude = self.lines[mark:]
        if test.static is False:
            return False
        if not prelude:
            self.loop(node, f"while {test.text if test.static is None else 'True'}:")
            return False
        del self.lines[mark:]

        def check() -> None:
            again = self.condition(node.test)
            self.put(f"if {again.text}:")
            self.put("  pass")
            self.put("else:")
            self.put("  break")

        self.loop(node, "while True:", check)
        return False

    def _for(self, node: ast.For) -> bool:
        if node.orelse:
            raise self.error("else branches of for loops aren't supported", node)
        source = self.iterated(node.iter)
        if isinstance(source, Many):
            for item in source.items:
                self.bind(node.target, item, node)
                if self.block(node.body):
                    return True
            return False
        if isinstance(node.target, ast.Name) and source.plain:
            name = self.spelt(node.target.id)
            self.names.add(name)

            def start() -> None:
                self.assign_name(node.target.id, Value(name, Kind("int")), node, written=True)

            self.loop(node, f"for {name} in range({source.length}):", start)
            return False
        index = self.fresh()
        self.loop(
            node, f"for {index} in range({source.length}):", lambda: self.bind(node.target, source.item(index), node)
        )
        return False

    # -- assignment

    def bind(self, target: ast.expr, value: Any, node: ast.AST) -> None:
        """Give a target a value, or what is no value, under its name."""
        if isinstance(target, ast.Tuple | ast.List):
            parts = self.parts_of(value, len(target.elts), node, target)
            if parts is None:
                return
            for one, part in zip(target.elts, parts):
                self.bind(one, part, node)
            return
        if not isinstance(value, Value):
            if isinstance(target, ast.Name):
                self.env[target.id] = value
                return
            value = self.value_of(value, node)
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value, node)
        elif isinstance(target, ast.Attribute):
            self.assign_attribute(target, value, node)
        elif isinstance(target, ast.Subscript):
            self.assign_subscript(target, value, node)
        else:
            raise unsupported(self.source, target)

    def parts_of(self, value: Any, count: int, node: ast.AST, target: Any) -> list[Any] | None:
        """What an unpacking gives each of `count` targets."""
        if isinstance(value, Many):
            found = list(value.items)
        elif isinstance(value, Value) and value.kind.name == "Tuple":
            if value.parts is not None:
                found = [self.held(p) for p in value.parts]
            else:
                name = self.held(value).text
                found = [Value(f"({name})[{i}]", k) for i, k in enumerate(value.kind.inner)]
        elif isinstance(value, Value) and self.unit.is_tuple(value.kind):
            name = self.held(value).text
            kinds = list(self.unit.classes[value.kind.name].attributes.values())
            found = [Value(f"({name})[{i}]", k) for i, k in enumerate(kinds)]
        elif isinstance(value, Value) and value.kind.name == "List":
            names = [self.fresh() for _ in range(count)]
            self.put(f"{', '.join(names)}, = {value.text}")
            return [Value(n, value.kind.inner[0]) for n in names]
        elif isinstance(value, Value) and value.kind == TENSOR:
            names = [self.fresh() for _ in range(count)]
            self.put(f"{', '.join(names)}, = torch.unbind({value.text}, 0)")
            return [Value(n, TENSOR) for n in names]
        else:
            shown = value.kind if isinstance(value, Value) else value
            raise self.error(f"{shown} cannot be used as a tuple", node)
        if len(found) != count:
            raise self.error(
                f"{'Too many' if len(found) > count else 'need'} values to unpack: need {count} but found {len(found)}",
                node,
            )
        return found

    def assign_name(self, name: str, value: Value, node: ast.AST, written: bool = False) -> None:
        before = self.env.get(name)
        wanted = self.frame.get(name) if isinstance(before, Value) else None
        if wanted is not None:
            fit = self.fitted(value, wanted)
            if fit is None:
                raise self.retyped(name, wanted, value.kind, node)
            value = fit
        if value.text == "[]" and value.kind.name == "List":
            value = Value(f"annotate({value.kind}, [])", value.kind)
        text = self.spelt(name)
        if value.text != text and not written:
            self.put(f"{text} = {value.text}")
        self.env[name] = Value(text, value.kind)
        self.gone.pop(name, None)

    def _assign(self, node: ast.Assign) -> bool:
        hint = None
        if node.type_comment and "ignore" not in node.type_comment:
            hint = self.annotated(ast.parse(node.type_comment.strip(), mode="eval").body)
        first = node.targets[0]
        if hint is None and isinstance(first, ast.Attribute):
            hint = self.attribute_kind(first)
        if hint is None and isinstance(first, ast.Name):
            known = self.env.get(first.id)
            hint = self.frame.get(first.id) if isinstance(known, Value) else None
        value = self.sugared(node.value, hint)
        if node.type_comment and hint is not None:
            value = self.required(self.value_of(value, node), hint, node)
        if len(node.targets) > 1 and isinstance(value, Value):
            value = self.held(value)
        for target in node.targets:
            self.bind(target, value, node)
        return False

    def annotated(self, node: ast.AST) -> Kind:
        """The type that an annotation in the body means."""
        try:
            return annotation(ast.unparse(node), self.unit.named, self.source.names)
        except ValueError as e:
            raise self.error(str(e), node) from None

    def _annotated(self, node: ast.AnnAssign) -> bool:
        kind = self.annotated(node.annotation)
        if node.value is None:
            raise self.error("Declaration without assignment is not supported in TorchScript", node)
        if isinstance(node.target, ast.Attribute) and self.owner is not None and self.in_init():
            self.owner.attributes.setdefault(node.target.attr, kind)
        value = self.required(self.expr(node.value, kind), kind, node)
        if value.kind != kind or value.text in ("[]", "{}", "None"):
            value = Value(f"annotate({kind}, {value.text})", kind)
        if isinstance(node.target, ast.Name):
            known = self.env.get(node.target.id)
            if isinstance(known, Value) and node.target.id in self.frame:
                raise self.error("Attempting to declare and annotate the type of variable '"
                                 f"{node.target.id}' that is already defined in an outer block", node)  # fmt: skip
            self.env.pop(node.target.id, None)
        self.bind(node.target, value, node)
        return False

    def _augmented(self, node: ast.AugAssign) -> bool:
        target, op = node.target, type(node.op)
        read: Any = ast.copy_location(_loaded(target), target)
        if isinstance(target, ast.Subscript):
            container = self.held(self.expr(target.value))
            left = self.subscript(container, target.slice, target)
        else:
            container = None
            left = self.expr(read)
        right = self.expr(node.value)
        if left.kind == TENSOR and op in _AUGMENTED:
            value = self.operator(_AUGMENTED[op], [left, right], node)
        elif left.kind.name == "List" and op is ast.Add:
            value = self.operator("add_", [left, right], node)
        else:
            value = self.binary(op, left, right, node)
        if isinstance(target, ast.Subscript) and container is not None:
            viewed = container.kind == left.kind == TENSOR and "torch.index(" not in left.text
            if viewed and op in _AUGMENTED:
                self.put(f"{self.fresh()} = {value.text}")
                return False
            self.store(container, target.slice, value, node)
        else:
            self.bind(target, value, node)
        return False

    # -- other statements

    def _return(self, node: ast.Return) -> bool:
        wanted = self.info.returns
        value = Value("None", NONE, None) if node.value is None else self.expr(node.value, wanted)
        if wanted is not None:
            fit = self.fitted(value, wanted)
            if fit is None:
                raise self.error(
                    f"Return value was annotated as having type {wanted} but is actually of type {value.kind}", node
                )
            value = fit
        elif self.returned is not None:
            kind = unified(self.returned, value.kind)
            if kind is None:
                raise self.error(
                    f"Previous return statement returned a value of type {self.returned} but this return statement "
                    f"returns a value of type {value.kind}", node,
                )  # fmt: skip
            self.returned = kind
        if self.returned is None:
            self.returned = value.kind
        self.put(f"return {value.text}")
        return True

    def _raise(self, node: ast.Raise) -> bool:
        if node.exc is None:
            raise self.error("raise without an exception is not supported", node)
        given, message = node.exc, Value("''", Kind("str"))
        if isinstance(given, ast.Call):
            if given.args:
                message = self.text_of(self.expr(given.args[0]))
            given = given.func
        found = self.sugared(given)
        if not isinstance(found, Py) or not (isinstance(found.obj, type) and issubclass(found.obj, BaseException)):
            raise self.error("exceptions must derive from BaseException", node)
        name = f"{found.obj.__module__}.{found.obj.__qualname__}"
        self.put(f"ops.prim.RaiseException({message.text}, {name!r})")
        self.put(_UNREACHED)
        return True

    def _assert(self, node: ast.Assert) -> bool:
        test = self.condition(node.test)
        if test.static is True:
            self.refine(test.true)
            return False
        one = (dict(self.env), False, [])
        self.depth += 1
        kept, self.lines = self.lines, []
        self.refine(test.true)
        one = (dict(self.env), False, self.lines)
        self.lines = []
        text = Value("''", Kind("str")) if node.msg is None else self.text_of(self.expr(node.msg))
        whole = repr("AssertionError: " + text.const) if isinstance(text.const, str) else (
            f"torch.add('AssertionError: ', {text.text})")  # fmt: skip
        self.put(f"ops.prim.RaiseException({whole})")
        self.put(_UNREACHED)
        two = (dict(self.env), True, self.lines)
        self.lines = kept
        self.depth -= 1
        self.join(node, test.text or "False", one, two)
        return test.static is False

    def _expression(self, node: ast.Expr) -> bool:
        value = self.sugared(node.value)
        if isinstance(value, Value) and not value.text.isidentifier() and value.text != "None":
            if value.text.startswith(("print(", "ops.prim.RaiseException(")):
                self.put(value.text)
            else:
                self.put(f"{self.fresh()} = {value.text}")
        return False

    def _delete(self, node: ast.Delete) -> bool:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.env.pop(target.id, None)
                self.gone[target.id] = f"{target.id} was deleted"
                continue
            if not isinstance(target, ast.Subscript):
                raise unsupported(self.source, node)
            container, key = self.expr(target.value), self.expr(target.slice)
            self.put(f"{self.fresh()} = torch.Delete({container.text}, {key.text})")
        return False

    def _pass(self, node: ast.Pass) -> bool:
        return False

    def _leave(self, node: Any) -> bool:
        if not self.loops:
            raise self.error(f"{type(node).__name__.lower()} outside of a loop, or in one that is unrolled", node)
        self.put(type(node).__name__.lower())
        return True

    def _with(self, node: ast.With) -> bool:
        if len(node.items) != 1:
            inner = ast.copy_location(ast.With(items=node.items[1:], body=node.body), node)
            node = ast.copy_location(ast.With(items=node.items[:1], body=[inner]), node)
        item = node.items[0]
        manager = self.sugared(item.context_expr)
        if manager is None:  # `torch.autograd.profiler.record_function`: nothing in an archive
            return self.block(node.body)
        manager = self.held(self.value_of(manager, node))
        named = ""
        if item.optional_vars is not None:
            if not isinstance(item.optional_vars, ast.Name):
                raise unsupported(self.source, item.optional_vars)
            entered = self.method_info(manager, "__enter__", node)
            name = item.optional_vars.id
            named = f" as {self.spelt(name)}"
            self.env[name] = Value(self.spelt(name), entered.returns or NONE)
        for method in ("__enter__", "__exit__"):
            self.method_info(manager, method, node)
        self.put(f"with {manager.text}{named}:")
        self.depth += 1
        mark = len(self.lines)
        ends = self.block(node.body)
        if len(self.lines) == mark:
            self.put("pass")
        self.depth -= 1
        return ends

    def in_init(self) -> bool:
        """Whether this is the `__init__` of a class of the user's."""
        return self.info.name == "__init__"

    def iterated(self, node: ast.expr) -> Iterated | Many:
        """What a loop goes over."""
        return self.iterable(node)


def _loaded(node: Any) -> Any:
    made = type(node)(**{k: getattr(node, k) for k in node._fields})
    made.ctx = ast.Load()
    return made


_STATEMENTS: dict[type, Any] = {
    ast.If: Emitter._if, ast.While: Emitter._while, ast.For: Emitter._for, ast.Assign: Emitter._assign,
    ast.AnnAssign: Emitter._annotated, ast.AugAssign: Emitter._augmented, ast.Return: Emitter._return,
    ast.Raise: Emitter._raise, ast.Assert: Emitter._assert, ast.Expr: Emitter._expression, ast.Delete: Emitter._delete,
    ast.Pass: Emitter._pass, ast.Break: Emitter._leave, ast.Continue: Emitter._leave, ast.With: Emitter._with,
}  # fmt: skip
