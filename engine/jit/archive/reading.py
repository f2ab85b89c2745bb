"""The text of a compiled function, read into the nodes and values of `listing.py`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from engine.jit.archive import schemas
from engine.jit.archive.kinds import ANY, NONE, TENSOR, Kind, dotted, parse_kind
from engine.jit.archive.listing import Block, Listing, Node, Value

if TYPE_CHECKING:
    from engine.jit.archive.program import FunctionRecord, Program

__all__ = ["graph_of"]

_CASTS = {
    "bool": ("aten::Bool", "bool"),
    "int": ("aten::Int", "int"),
    "float": ("aten::Float", "float"),
    "str": ("aten::str", "str"),
}
_KIND_OF = {bool: "bool", int: "int", float: "float", str: "str", complex: "complex"}
_ENDS = {ast.Break: "prim::BreakStmt", ast.Continue: "prim::ContinueStmt"}


def graph_of(program: Program, record: FunctionRecord, inlined: bool = False) -> Listing:
    """The listing of a function or method of a program; inlined: with the nodes of what it calls in place of calls."""
    graph = _Reader(program, record, inlined).run(_definition(program, record))
    graph._origin = program, record
    return graph


def _definition(program: Program, record: FunctionRecord) -> ast.FunctionDef:
    found = ast.parse(program.text(record)).body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


class _Reader:
    """Walks over the statements of a function, and names each value once."""

    def __init__(self, program: Program, record: FunctionRecord, inlined: bool) -> None:
        self.program, self.record, self.inlined = program, record, inlined
        self.depth = 0
        self.graph = Listing()
        self.block: Block = self.graph
        self.names: dict[str, Value] = {}  # the value that a variable has here
        self.taken: set[str] = set()
        self.number = 0

    def run(self, definition: ast.FunctionDef) -> Listing:
        for name, kind, _ in self.record.parameters:
            self.names[name] = self.output(self.graph._param, kind, name)
        self.statements(definition.body)
        return self.graph

    def known(self, path: str) -> Any:
        """The record of a function or class of the program, or None."""
        return self.program.functions.get(path) or self.program.classes.get(path)

    # --- values and nodes

    def output(self, node: Node, kind: Kind, name: str = "") -> Value:
        if name and name not in self.taken:
            found = name
        elif name:
            self.number += 1
            found = f"{name}.{self.number}"
        else:
            self.number += 1
            found = str(self.number)
        self.taken.add(found)
        value = Value(node, kind, found)
        node._outputs.append(value)
        return value

    def node(self, kind: str, inputs: list[Value], **constants: Any) -> Node:
        made = Node(self.block, kind, inputs, constants)
        self.block._nodes.append(made)
        return made

    def value(self, node_kind: str, inputs: list[Value], kind: Kind, **constants: Any) -> Value:
        return self.output(self.node(node_kind, inputs, **constants), kind)

    def constant(self, value: Any) -> Value:
        kind = NONE if value is None else Kind(_KIND_OF.get(type(value), "Tensor"))
        return self.value("prim::Constant", [], kind, value=value)

    # --- statements

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, s: ast.stmt) -> None:
        if isinstance(s, ast.Assign):
            self.assign(s.targets[0], self.expression(s.value))
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            self.assign(s.target, self.expression(s.value))
        elif isinstance(s, ast.Expr):
            self.expression(s.value)
        elif isinstance(s, ast.If):
            self.condition(s)
        elif isinstance(s, ast.For | ast.While):
            self.loop(s)
        elif isinstance(s, ast.Return):
            found = [self.expression(s.value)] if s.value is not None else [self.constant(None)]
            if self.block is self.graph:
                for value in found:
                    self.graph._return._read(value)
            else:
                self.node("prim::ReturnStmt", found)
        elif type(s) in _ENDS:
            self.node(_ENDS[type(s)], [])

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            if value.node().kind() != "prim::Param" and value._name.isdecimal() and not target.id.startswith("_"):
                self.rename(value, target.id)
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value._kind.inner or (TENSOR,) * len(target.elts)
            unpack = self.node("prim::TupleUnpack" if value._kind.name == "Tuple" else "prim::ListUnpack", [value])
            for part, kind in zip(target.elts, parts * len(target.elts)):
                self.assign(part, self.output(unpack, kind))
        elif isinstance(target, ast.Attribute):
            self.node("prim::SetAttr", [self.expression(target.value), value], name=target.attr)
        elif isinstance(target, ast.Subscript):
            self.node("aten::_set_item", [self.expression(target.value), self.expression(target.slice), value])

    def rename(self, value: Value, name: str) -> None:
        self.taken.discard(value._name)
        while name in self.taken:
            self.number += 1
            name = f"{name.partition('.')[0]}.{self.number}"
        self.taken.add(name)
        value._name = name

    def branch(self, node: Node, body: list[ast.stmt]) -> tuple[Block, dict[str, Value]]:
        """A block of `node`, and what the variables are at its end."""
        before, names = self.block, dict(self.names)
        made = Block(node)
        node._blocks.append(made)
        self.block = made
        self.statements(body)
        after, self.block, self.names = self.names, before, names
        return made, after

    def condition(self, s: ast.If) -> None:
        node = self.node("prim::If", [self.expression(s.test)])
        blocks = [self.branch(node, s.body), self.branch(node, s.orelse)]
        for name in dict.fromkeys(n for _, after in blocks for n in after):
            found = [after.get(name) for _, after in blocks]
            if all(v is self.names.get(name) for v in found):
                continue
            known = next(v for v in found if v is not None)
            for (block, _), value in zip(blocks, found):
                block._return._read(value or self.missing(block, known._kind))
            self.names[name] = self.output(node, known._kind, name)

    def missing(self, block: Block, kind: Kind) -> Value:
        """What a branch gives for a variable that it does not set: it ended before."""
        made = Node(block, "prim::Uninitialized", [], {})
        block._nodes.append(made)
        return self.output(made, kind)

    def loop(self, s: ast.For | ast.While) -> None:
        assigned = {
            n.id for part in s.body for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        carried = [n for n in self.names if n in assigned]
        if isinstance(s, ast.For):
            assert isinstance(s.iter, ast.Call)
            limit, start = self.expression(s.iter.args[0]), self.constant(True)
        else:
            limit, start = self.constant(9223372036854775807), self.expression(s.test)
        node = self.node("prim::Loop", [limit, start, *(self.names[n] for n in carried)])
        before, names = self.block, dict(self.names)
        body = Block(node)
        node._blocks.append(body)
        self.block = body
        index = self.output(body._param, Kind("int"), s.target.id if isinstance(s, ast.For) else "")  # type: ignore[attr-defined]
        if isinstance(s, ast.For):
            self.names[s.target.id] = index  # type: ignore[attr-defined]
        for name in carried:
            self.names[name] = self.output(body._param, self.names[name]._kind, name)
        self.statements(s.body)
        body._return._read(self.constant(True) if isinstance(s, ast.For) else self.expression(s.test))
        for name in carried:
            body._return._read(self.names[name])
        self.block, self.names = before, names
        for name in carried:
            self.names[name] = self.output(node, self.names[name]._kind, name)

    # --- expressions

    def expression(self, e: ast.expr) -> Value:
        if isinstance(e, ast.Constant):
            return self.constant(e.value)
        if isinstance(e, ast.UnaryOp) and isinstance(e.operand, ast.Constant):
            return self.constant(-e.operand.value)  # type: ignore[operator]
        if isinstance(e, ast.Name) and e.id in self.names:
            return self.names[e.id]
        if isinstance(e, ast.Attribute):
            return self.attribute(e)
        if isinstance(e, ast.Tuple):
            parts = [self.expression(x) for x in e.elts]
            return self.value("prim::TupleConstruct", parts, Kind("Tuple", tuple(p._kind for p in parts)))
        if isinstance(e, ast.List):
            parts = [self.expression(x) for x in e.elts]
            return self.value("prim::ListConstruct", parts, Kind("List", (parts[0]._kind if parts else TENSOR,)))
        if isinstance(e, ast.Dict):
            pairs = [self.expression(x) for pair in zip(e.keys, e.values) for x in pair if x is not None]
            kinds = (pairs[0]._kind, pairs[1]._kind) if pairs else (Kind("str"), TENSOR)
            return self.value("prim::DictConstruct", pairs, Kind("Dict", kinds))
        if isinstance(e, ast.Subscript):
            return self.subscript(e)
        if isinstance(e, ast.Call):
            return self.call(e)
        if isinstance(e, ast.IfExp):
            return self.choice(e)
        return self.value("prim::Expression", [], ANY, text=ast.unparse(e))

    def choice(self, e: ast.IfExp) -> Value:
        node = self.node("prim::If", [self.expression(e.test)])
        kind = TENSOR
        for part in (e.body, e.orelse):
            before = self.block
            self.block = Block(node)
            node._blocks.append(self.block)
            found = self.expression(part)
            self.block._return._read(found)
            kind, self.block = found._kind, before
        return self.output(node, kind)

    def attribute(self, e: ast.Attribute) -> Value:
        text = dotted(e) or ""
        if text.startswith("CONSTANTS.c"):
            return self.constant(self.program.constants[int(text[11:])])
        if text in ("inf", "nan") or text.startswith("__torch__."):
            return self.value("prim::Constant", [], ANY, name=text)
        owner = self.expression(e.value)
        return self.value("prim::GetAttr", [owner], self.kind_of_attribute(owner._kind, e.attr), name=e.attr)

    def kind_of_attribute(self, owner: Kind, name: str) -> Kind:
        record = self.known(owner.name)
        return getattr(record, "attributes", {}).get(name, TENSOR) if record is not None else TENSOR

    def subscript(self, e: ast.Subscript) -> Value:
        owner, index = self.expression(e.value), self.expression(e.slice)
        kind, place = owner._kind, index.toIValue()
        if kind.name == "Tuple":
            inner = kind.inner[place] if isinstance(place, int) and -len(kind.inner) <= place < len(kind.inner) else ANY
            return self.value("prim::TupleIndex", [owner, index], inner)
        return self.value("aten::__getitem__", [owner, index], kind.inner[-1] if kind.inner else TENSOR)

    def call(self, e: ast.Call) -> Value:
        text = dotted(e.func) or ""
        if text in ("annotate", "unchecked_cast", "uninitialized"):
            return self.annotated(text, e)
        inputs = [self.expression(a) for a in e.args]
        named = {k.arg or "": self.expression(k.value) for k in e.keywords}
        given = [*inputs, *named.values()]
        if text in _CASTS:
            kind, result = _CASTS[text]
            return self.value(kind, given, Kind(result))
        if text in ("print", "isinstance", "getattr", "hasattr"):
            names = {"print": ("prim::Print", NONE)}
            kind, result_kind = names.get(text, (f"prim::{text}", Kind("bool")))
            if text == "print":
                self.node(kind, given)
                return self.names.get("", Value(self.block._param, NONE))
            return self.value(kind, given, result_kind)
        if text.startswith("torch.") and text.count(".") == 1:
            return self.operator(f"aten::{text[6:]}", inputs, named)
        if text.startswith("ops.") and text.count(".") == 2:
            return self.operator("::".join(text.split(".")[1:]), inputs, named)
        if text.startswith("__torch__."):
            record = self.known(text)
            if (found := self.body_of(record, given)) is not None:
                return found
            kind = getattr(record, "returns", None) or Kind(text)
            return self.value(
                "prim::CallFunction" if hasattr(record, "returns") else "prim::CreateObject", given, kind, name=text
            )
        assert isinstance(e.func, ast.Attribute)
        owner = self.expression(e.func.value)
        record = self.known(owner._kind.name)
        method = getattr(record, "methods", {}).get(e.func.attr) if record is not None else None
        if method is not None and (found := self.body_of(method, [owner, *given])) is not None:
            return found
        result = getattr(method, "returns", None) or TENSOR
        return self.value("prim::CallMethod", [owner, *given], result, name=e.func.attr)

    def body_of(self, record: Any, given: list[Value]) -> Value | None:
        """The result of a called function, its nodes put here; None where the call stays a node."""
        if not self.inlined or not hasattr(record, "returns") or self.depth > 50:
            return None
        if len(given) != len(record.parameters):
            return None
        body = _definition(self.program, record).body
        returns = [n for part in body for n in ast.walk(part) if isinstance(n, ast.Return)]
        if len(returns) != 1 or returns[0] is not body[-1] or returns[0].value is None:
            return None
        before, self.names = self.names, {name: v for (name, _, _), v in zip(record.parameters, given)}
        self.depth += 1
        self.statements(body[:-1])
        result = self.expression(returns[0].value)
        self.depth -= 1
        self.names = before
        return result

    def annotated(self, text: str, e: ast.Call) -> Value:
        kind = parse_kind(e.args[0])
        if text == "uninitialized":
            return self.value("prim::Uninitialized", [], kind)
        value = self.expression(e.args[1])
        if text == "unchecked_cast":
            return self.value("prim::unchecked_cast", [value], kind)
        if value.node().kind().startswith("prim::"):  # a literal: the annotation is its type
            value._kind = kind
        return value

    def operator(self, name: str, inputs: list[Value], named: dict[str, Value]) -> Value:
        forms = schemas.find(name)
        try:
            args = [schemas.Value(f"%{v._name}", v._kind) for v in inputs]
            of_names = {n: schemas.Value(f"%{v._name}", v._kind) for n, v in named.items()}
            form, _, kind = schemas.match(forms, args, of_names) if forms else (None, "", TENSOR)
        except schemas.Mismatch:
            form, kind = (forms[0], forms[0].returns) if forms else (None, TENSOR)
        given = self.with_defaults(form, inputs, named) if form is not None else [*inputs, *named.values()]
        if kind == NONE:
            self.node(name, given)
            return Value(self.block._param, NONE)
        return self.value(name, given, kind)

    def with_defaults(self, form: schemas.Signature, inputs: list[Value], named: dict[str, Value]) -> list[Value]:
        """The inputs in the order of the parameters, defaults as constants."""
        found = list(inputs)
        for parameter in form.parameters[len(inputs) :]:
            if parameter.name in named:
                found.append(named[parameter.name])
            elif parameter.default is not schemas.MISSING:
                default = parameter.default
                if isinstance(default, list):
                    parts = [self.constant(x) for x in default]
                    found.append(self.value("prim::ListConstruct", parts, parameter.kind))
                else:
                    found.append(self.constant(default))
        return found
