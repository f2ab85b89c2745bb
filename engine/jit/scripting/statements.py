"""Statements, and the types of variables across branches and loops."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeAlias

from engine.jit.archive.kinds import NONE, TENSOR, Kind
from engine.jit.archive.schemas import Value, subtype, unified
from engine.jit.scripting.arithmetic import binary
from engine.jit.scripting.assignments import annotated, assign_name, bind, retyped
from engine.jit.scripting.attributes import attribute_kind
from engine.jit.scripting.conditions import condition
from engine.jit.scripting.context import Context
from engine.jit.scripting.frontend import unsupported
from engine.jit.scripting.iteration import iterable
from engine.jit.scripting.methods import method_info
from engine.jit.scripting.names import spelt
from engine.jit.scripting.subscripts import store, subscript
from engine.jit.scripting.sugared import Many, Py, Sugared
from engine.jit.scripting.values import expr, fitted, held, operator, refine, required, sugared, text_of, value_of

__all__ = ["assertion", "compile_function"]

# after a raise: torch's reader takes a call that raises for one that returns
_UNREACHED = "return \0"
_AUGMENTED = {
    ast.Add: "add_",
    ast.Sub: "sub_",
    ast.Mult: "mul_",
    ast.Div: "div_",
    ast.FloorDiv: "floor_divide_",
    ast.Pow: "pow_",
    ast.Mod: "remainder_",
    ast.BitAnd: "bitwise_and_",
    ast.BitOr: "bitwise_or_",
    ast.BitXor: "bitwise_xor_",
}

# variables at the end of a branch, whether the end cannot be reached, its lines
Branch: TypeAlias = tuple[dict[str, Sugared], bool, list[str]]


def compile_function(c: Context) -> None:
    """Fill in the info: its lines, its result's type."""
    info, node = c.info, c.source.node
    for name, kind, _ in info.parameters:
        c.env[name] = Value(spelt(name), kind)
    if not block(c, node.body):
        if info.returns is not None and info.returns != NONE and not subtype(NONE, info.returns):
            raise c.error("Function was not annotated as having type None, but does not return along all paths", node)
        c.put("return None")
        c.returned = NONE if c.returned is None else unified(c.returned, NONE)
    if info.returns is None:
        info.returns = c.returned or NONE
    never = "return None" if info.returns == NONE else f"return uninitialized({info.returns})"
    info.lines = [line.replace(_UNREACHED, never) for line in c.lines]


def block(c: Context, body: list[ast.stmt]) -> bool:
    """Statements in order; whether the end cannot be reached."""
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        step = _STATEMENTS.get(type(node))
        if step is None:
            raise unsupported(c.source, node)
        if step(c, node):
            return True
    return False


def nested(c: Context, body: list[ast.stmt], refined: dict[str, Kind]) -> Branch:
    """A branch: its variables at the end, whether it ends there, its lines."""
    outer, outer_lines, gone, frame = c.env, c.lines, dict(c.gone), c.frame
    c.env, c.lines = dict(outer), []
    c.frame = {n: v.kind for n, v in outer.items() if isinstance(v, Value)}
    c.depth += 1
    refine(c, refined)
    ends = block(c, body)
    c.depth -= 1
    env, lines = c.env, c.lines
    c.env, c.lines, c.gone, c.frame = outer, outer_lines, gone, frame
    return env, ends, lines


def _if(c: Context, node: ast.If) -> bool:
    test = condition(c, node.test)
    if test.static is not None:
        refine(c, test.true if test.static else test.false)
        return block(c, node.body if test.static else node.orelse)
    one = nested(c, node.body, test.true)
    two = nested(c, node.orelse, test.false)
    join(c, node, test.text, one, two)
    return one[1] and two[1]


def join(c: Context, node: ast.AST, test: str, one: Branch, two: Branch) -> None:
    """Both branches as an if statement, and the variables after it."""
    (env1, ends1, lines1), (env2, ends2, lines2) = one, two
    after: dict[str, Sugared] = {}
    for name in {**env1, **env2}:
        a, b = env1.get(name), env2.get(name)
        if ends1 and ends2:
            after = dict(c.env)
            break
        if ends1 or ends2:
            surviving = b if ends1 else a
            if surviving is not None:
                after[name] = surviving
            continue
        if a is None or b is None:
            which = "true" if a is None else "false"
            c.gone[name] = f"{name} is not defined in the {which} branch"
            continue
        after[name] = merged(c, node, name, a, b)
    c.put(f"if {test}:")
    c.lines += lines1 or ["  " * (c.depth + 1) + "pass"]
    c.put("else:")
    c.lines += lines2 or ["  " * (c.depth + 1) + "pass"]
    c.env = after


def merged(c: Context, node: ast.AST, name: str, a: Sugared, b: Sugared) -> Sugared:
    if a is b:
        return a
    if not isinstance(a, Value) or not isinstance(b, Value):
        if isinstance(a, Py) and isinstance(b, Py) and a.obj is b.obj:
            return a
        raise c.error(f"{name} is a Python value that differs between the branches of an if", node)
    kind = unified(a.kind, b.kind)
    before = c.env.get(name)
    if kind is None and isinstance(before, Value) and all(subtype(v.kind, before.kind) for v in (a, b)):
        kind = before.kind
    if kind is None:
        raise c.error(
            f"Type mismatch: {name} is set to type {a.kind} in the true branch and type {b.kind} in the false branch",
            node,
        )
    return Value(a.text, kind)


def loop(c: Context, node: ast.For | ast.While, header: str, before: Callable[[], None] | None = None) -> None:
    """A loop around a body whose variables keep their types."""
    outer = c.env
    assigned = {
        n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    outer_lines, c.lines, c.env = c.lines, [], dict(c.env)
    frame, c.frame = c.frame, {n: v.kind for n, v in outer.items() if isinstance(v, Value)}
    c.depth += 1
    c.loops += 1
    if before is not None:
        before()
    block(c, node.body)
    c.loops -= 1
    c.depth -= 1
    lines, env = c.lines, c.env
    c.lines, c.env, c.frame = outer_lines, outer, frame
    for name, value in outer.items():
        late = env.get(name)
        if isinstance(value, Value) and isinstance(late, Value) and name in assigned:
            if not subtype(late.kind, value.kind):
                raise retyped(c, name, value.kind, late.kind, node)
            c.env[name] = Value(value.text, value.kind)
    for name in env:
        if name not in outer:
            c.gone[name] = f"{name} is not defined in the body of the loop when it does not run"
    c.put(header)
    c.lines += lines or ["  " * (c.depth + 1) + "pass"]


def _while(c: Context, node: ast.While) -> bool:
    if node.orelse:
        raise c.error("else branches of while loops aren't supported", node)
    mark = len(c.lines)
    test = condition(c, node.test)
    prelude = c.lines[mark:]
    if test.static is False:
        return False
    if not prelude:
        loop(c, node, f"while {test.text if test.static is None else 'True'}:")
        return False
    del c.lines[mark:]

    def check() -> None:
        again = condition(c, node.test)
        c.put(f"if {again.text}:")
        c.put("  pass")
        c.put("else:")
        c.put("  break")

    loop(c, node, "while True:", check)
    return False


def _for(c: Context, node: ast.For) -> bool:
    if node.orelse:
        raise c.error("else branches of for loops aren't supported", node)
    source = iterable(c, node.iter)
    if isinstance(source, Many):
        for item in source.items:
            bind(c, node.target, item, node)
            if block(c, node.body):
                return True
        return False
    if isinstance(node.target, ast.Name) and source.plain:
        variable = node.target.id
        name = spelt(variable)
        c.names.add(name)

        def start() -> None:
            assign_name(c, variable, Value(name, Kind("int")), node, written=True)

        loop(c, node, f"for {name} in range({source.length}):", start)
        return False
    index = c.fresh()
    loop(c, node, f"for {index} in range({source.length}):", lambda: bind(c, node.target, source.item(index), node))
    return False


def _assign(c: Context, node: ast.Assign) -> bool:
    hint = None
    if node.type_comment and "ignore" not in node.type_comment:
        hint = annotated(c, ast.parse(node.type_comment.strip(), mode="eval").body)
    first = node.targets[0]
    if hint is None and isinstance(first, ast.Attribute):
        hint = attribute_kind(c, first)
    if hint is None and isinstance(first, ast.Name):
        known = c.env.get(first.id)
        hint = c.frame.get(first.id) if isinstance(known, Value) else None
    value = sugared(c, node.value, hint)
    if node.type_comment and hint is not None:
        value = required(c, value_of(c, value, node), hint, node)
    if len(node.targets) > 1 and isinstance(value, Value):
        value = held(c, value)
    for target in node.targets:
        bind(c, target, value, node)
    return False


def _annotated(c: Context, node: ast.AnnAssign) -> bool:
    kind = annotated(c, node.annotation)
    if node.value is None:
        raise c.error("Declaration without assignment is not supported in TorchScript", node)
    if isinstance(node.target, ast.Attribute) and c.owner is not None and c.in_init():
        c.owner.attributes.setdefault(node.target.attr, kind)
    value = required(c, expr(c, node.value, kind), kind, node)
    if value.kind != kind or value.text in ("[]", "{}", "None"):
        value = Value(f"annotate({kind}, {value.text})", kind)
    if isinstance(node.target, ast.Name):
        known = c.env.get(node.target.id)
        if isinstance(known, Value) and node.target.id in c.frame:
            raise c.error(
                "Attempting to declare and annotate the type of variable '"
                f"{node.target.id}' that is already defined in an outer block",
                node,
            )
        c.env.pop(node.target.id, None)
    bind(c, node.target, value, node)
    return False


def _augmented(c: Context, node: ast.AugAssign) -> bool:
    target, op = node.target, type(node.op)
    read = ast.copy_location(_loaded(target), target)
    if isinstance(target, ast.Subscript):
        container = held(c, expr(c, target.value))
        left = value_of(c, subscript(c, container, target.slice, target), node)
    else:
        container = None
        left = expr(c, read)
    right = expr(c, node.value)
    if left.kind == TENSOR and op in _AUGMENTED:
        value = operator(c, _AUGMENTED[op], [left, right], node)
    elif left.kind.name == "List" and op is ast.Add:
        value = operator(c, "add_", [left, right], node)
    else:
        value = binary(c, op, left, right, node)
    if isinstance(target, ast.Subscript) and container is not None:
        viewed = container.kind == left.kind == TENSOR and "torch.index(" not in left.text
        if viewed and op in _AUGMENTED:
            c.put(f"{c.fresh()} = {value.text}")
            return False
        store(c, container, target.slice, value, node)
    else:
        bind(c, target, value, node)
    return False


def _return(c: Context, node: ast.Return) -> bool:
    wanted = c.info.returns
    value = Value("None", NONE, None) if node.value is None else expr(c, node.value, wanted)
    if wanted is not None:
        fit = fitted(c, value, wanted)
        if fit is None:
            raise c.error(
                f"Return value was annotated as having type {wanted} but is actually of type {value.kind}", node
            )
        value = fit
    elif c.returned is not None:
        kind = unified(c.returned, value.kind)
        if kind is None:
            raise c.error(
                f"Previous return statement returned a value of type {c.returned} but this return statement "
                f"returns a value of type {value.kind}",
                node,
            )
        c.returned = kind
    if c.returned is None:
        c.returned = value.kind
    c.put(f"return {value.text}")
    return True


def _raise(c: Context, node: ast.Raise) -> bool:
    if node.exc is None:
        raise c.error("raise without an exception is not supported", node)
    given, message = node.exc, Value("''", Kind("str"))
    if isinstance(given, ast.Call):
        if given.args:
            message = text_of(expr(c, given.args[0]))
        given = given.func
    found = sugared(c, given)
    if not isinstance(found, Py) or not (isinstance(found.obj, type) and issubclass(found.obj, BaseException)):
        raise c.error("exceptions must derive from BaseException", node)
    name = f"{found.obj.__module__}.{found.obj.__qualname__}"
    c.put(f"ops.prim.RaiseException({message.text}, {name!r})")
    c.put(_UNREACHED)
    return True


def assertion(c: Context, node: ast.Assert) -> bool:
    test = condition(c, node.test)
    if test.static is True:
        refine(c, test.true)
        return False
    c.depth += 1
    outer_lines, c.lines = c.lines, []
    refine(c, test.true)
    one = (dict(c.env), False, c.lines)
    c.lines = []
    text = Value("''", Kind("str")) if node.msg is None else text_of(expr(c, node.msg))
    whole = (
        repr("AssertionError: " + text.const)
        if isinstance(text.const, str)
        else (f"torch.add('AssertionError: ', {text.text})")
    )
    c.put(f"ops.prim.RaiseException({whole})")
    c.put(_UNREACHED)
    two = (dict(c.env), True, c.lines)
    c.lines = outer_lines
    c.depth -= 1
    join(c, node, test.text or "False", one, two)
    return test.static is False


def _expression(c: Context, node: ast.Expr) -> bool:
    value = sugared(c, node.value)
    if isinstance(value, Value) and not value.text.isidentifier() and value.text != "None":
        if value.text.startswith(("print(", "ops.prim.RaiseException(")):
            c.put(value.text)
        else:
            c.put(f"{c.fresh()} = {value.text}")
    return False


def _delete(c: Context, node: ast.Delete) -> bool:
    for target in node.targets:
        if isinstance(target, ast.Name):
            c.env.pop(target.id, None)
            c.gone[target.id] = f"{target.id} was deleted"
            continue
        if not isinstance(target, ast.Subscript):
            raise unsupported(c.source, node)
        container, key = expr(c, target.value), expr(c, target.slice)
        c.put(f"{c.fresh()} = torch.Delete({container.text}, {key.text})")
    return False


def _pass(c: Context, node: ast.Pass) -> bool:
    return False


def _leave(c: Context, node: ast.AST | None) -> bool:
    if not c.loops:
        raise c.error(f"{type(node).__name__.lower()} outside of a loop, or in one that is unrolled", node)
    c.put(type(node).__name__.lower())
    return True


def _with(c: Context, node: ast.With) -> bool:
    if len(node.items) != 1:
        inner = ast.copy_location(ast.With(items=node.items[1:], body=node.body), node)
        node = ast.copy_location(ast.With(items=node.items[:1], body=[inner]), node)
    item = node.items[0]
    manager = sugared(c, item.context_expr)
    manager = held(c, value_of(c, manager, node))
    named = ""
    if item.optional_vars is not None:
        if not isinstance(item.optional_vars, ast.Name):
            raise unsupported(c.source, item.optional_vars)
        entered = method_info(c, manager, "__enter__", node)
        name = item.optional_vars.id
        named = f" as {spelt(name)}"
        c.env[name] = Value(spelt(name), entered.returns or NONE)
    for method in ("__enter__", "__exit__"):
        method_info(c, manager, method, node)
    c.put(f"with {manager.text}{named}:")
    c.depth += 1
    mark = len(c.lines)
    ends = block(c, node.body)
    if len(c.lines) == mark:
        c.put("pass")
    c.depth -= 1
    return ends


def _loaded(node: ast.expr) -> ast.expr:
    """Return the target of an assignment as what reads it."""
    return type(node)(**{k: getattr(node, k) for k in node._fields} | {"ctx": ast.Load()})


_STATEMENTS: dict[type[ast.stmt], Callable[[Context, Any], bool]] = {
    ast.If: _if,
    ast.While: _while,
    ast.For: _for,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Assert: assertion,
    ast.Expr: _expression,
    ast.Delete: _delete,
    ast.Pass: _pass,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.With: _with,
}
