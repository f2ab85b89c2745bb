"""From the source of a function to the text of an archive: expressions, conditions, what loops go over."""

from __future__ import annotations

import ast
import enum
from typing import Any

from engine import dtypes
from engine.device import device as Device
from engine.nn.modules.container import ModuleDict
from engine.nn.modules.module import Module
from engine.tensor import Tensor

from .calls import MODULE_METHODS, Calls
from .frontend import unstarred, unsupported
from .helpers import number_of
from .kinds import NONE, TENSOR, Kind
from .schemas import MISSING, Mismatch, Value, converted, find, match, subtype, unified
from .sugared import Bound, Many, Py, Test

__all__ = ["Expressions"]

INT, FLOAT, BOOL, STR = Kind("int"), Kind("float"), Kind("bool"), Kind("str")
_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "remainder",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "__and__", ast.BitOr: "__or__", ast.BitXor: "__xor__",
    ast.LShift: "__lshift__", ast.RShift: "__rshift__",
}  # fmt: skip
_SPECIAL = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "lshift",
    ast.RShift: "rshift",
}  # fmt: skip
_COMPARED = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_TENSOR_ATTRIBUTES = {
    "shape": ("torch.size({})", Kind("List", (INT,))), "dtype": ("ops.prim.dtype({})", INT),
    "device": ("ops.prim.device({})", Kind("Device")), "ndim": ("torch.dim({})", INT),
    "T": ("torch.numpy_T({})", TENSOR), "mT": ("torch.mT({})", TENSOR), "mH": ("torch.mH({})", TENSOR),
    "real": ("torch.real({})", TENSOR), "imag": ("torch.imag({})", TENSOR), "layout": ("ops.prim.layout({})", INT),
    "requires_grad": ("ops.prim.requires_grad({})", BOOL), "data": ("ops.prim.data({})", TENSOR),
    "grad": ("ops.prim.grad({})", Kind("Optional", (TENSOR,))), "is_cuda": ("ops.prim.is_cuda({})", BOOL),
    "is_sparse": ("ops.prim.is_sparse({})", BOOL), "is_quantized": ("ops.prim.is_quantized({})", BOOL),
    "is_mkldnn": ("ops.prim.is_mkldnn({})", BOOL), "is_nested": ("ops.prim.is_nested({})", BOOL),
    "is_leaf": ("torch.is_leaf({})", BOOL), "is_cpu": ("ops.prim.is_cpu({})", BOOL),
    "is_meta": ("ops.prim.is_meta({})", BOOL), "H": ("ops.prim.H({})", TENSOR), "nbytes": ("ops.prim.nbytes({})", INT),
    "itemsize": ("ops.prim.itemsize({})", INT), "is_mps": ("ops.prim.is_mps({})", BOOL),
    "is_xpu": ("ops.prim.is_xpu({})", BOOL), "output_nr": ("torch.output_nr({})", INT),
}  # fmt: skip


class Expressions(Calls):
    """What an Emitter does with expressions."""

    # -- values

    def expr(self, node: ast.expr, hint: Kind | None = None) -> Value:
        """The value of an expression."""
        return self.value_of(self.sugared(node, hint), node)

    def sugared(self, node: ast.expr, hint: Kind | None = None) -> Any:
        """The value of an expression, or what is no value: a function, a method, a list of modules."""
        step = _EXPRESSIONS.get(type(node))
        if step is None:
            raise unsupported(self.source, node)
        return step(self, node, hint)

    def value_of(self, found: Any, node: ast.AST | None = None) -> Value:
        if isinstance(found, Value):
            return found
        if isinstance(found, Many):
            return self.tuple_of([self.value_of(item, node) for item in found.items])
        if isinstance(found, Py):
            made = self.constant(found.obj)
            if made is not None:
                return made
            raise self.error(f"Python value of type '{type(found.obj).__name__}' cannot be used as a value. Perhaps it "
                             "is a closed over global variable? If so, please consider passing it in as an argument or "
                             "use a local varible instead.", node)  # fmt: skip
        if isinstance(found, Bound):
            raise self.error(f"the method {found.name} cannot be used as a value: call it", node)
        if found is None:
            return Value("None", NONE, None)
        raise self.error(f"{found} cannot be used as a value", node)

    def tuple_of(self, parts: list[Value]) -> Value:
        text = ", ".join(p.text for p in parts) + ("," if len(parts) == 1 else "")
        return Value(f"({text})", Kind("Tuple", tuple(p.kind for p in parts)), parts=tuple(parts))

    def constant(self, obj: Any) -> Value | None:
        """A Python value as a constant of the program."""
        if obj is None:
            return Value("None", NONE, None)
        if isinstance(obj, enum.Enum):
            kind = self.unit.named(type(obj))
            return None if kind is None else Value(f"{kind.name}.{obj.name}", kind)
        for of in (bool, int, str):
            if type(obj) is of:
                return Value(repr(obj), Kind(of.__name__), obj)
        if type(obj) is float:
            return Value({"-inf": "torch.neg(inf)"}.get(repr(obj), repr(obj)), FLOAT, obj)  # inf and nan as they are
        if type(obj) is complex:
            return Value(f"complex({obj.real!r}, {obj.imag!r})", Kind("complex"), obj)
        if isinstance(obj, dtypes.dtype):
            return Value(str(number_of(obj)), INT, number_of(obj))
        if isinstance(obj, Device):
            return Value(f"torch.device({str(obj)!r})", Kind("Device"))
        if type(obj).__name__ in ("memory_format", "layout"):
            names = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
            number = next((i for i, n in enumerate(names) if str(obj).endswith("." + n)), 0)
            return Value(str(number), INT, number)
        if isinstance(obj, Tensor) and not obj.requires_grad:
            return Value(self.unit.constant(obj), TENSOR)
        if isinstance(obj, list | tuple) and not hasattr(obj, "_fields"):
            parts = [self.constant(one) for one in obj]
            if None in parts:
                return None
            if isinstance(obj, tuple) and type(obj).__name__ != "Size":
                return self.tuple_of([p for p in parts if p is not None])
            return self.list_of([p for p in parts if p is not None], None)
        if isinstance(obj, dict) and obj:
            keys, values = ([self.constant(o) for o in part] for part in (obj.keys(), obj.values()))
            if None in keys or None in values:
                return None
            text = ", ".join(f"{k.text}: {v.text}" for k, v in zip(keys, values))  # type: ignore[union-attr]
            return Value(f"{{{text}}}", Kind("Dict", (keys[0].kind, values[0].kind)))  # type: ignore[union-attr]
        return None

    def held(self, value: Value) -> Value:
        """The value under a name, so that it is computed once."""
        text = value.text
        if text.isidentifier() or value.const is not MISSING or text.startswith("CONSTANTS."):
            return value
        name = self.fresh()
        if text in ("[]", "{}"):
            text = f"annotate({value.kind}, {text})"
        self.put(f"{name} = {text}")
        return Value(name, value.kind)

    def fitted(self, value: Value, kind: Kind) -> Value | None:
        """The value as one of a type, None if it is none."""
        if kind.name in ("List", "Dict") and value.text in ("[]", "{}"):
            return Value(f"annotate({kind}, {value.text})", kind)
        if kind.name == "Optional" and value.text in ("[]", "{}") and kind.inner[0].name == value.kind.name:
            return Value(f"annotate({kind.inner[0]}, {value.text})", kind.inner[0])
        if self.unit.conforms(value.kind, kind):
            return value
        if kind.name == "Tuple" and value.parts is not None and len(value.parts) == len(kind.inner):
            made = [self.fitted(p, k) for p, k in zip(value.parts, kind.inner)]
            if None not in made:
                return Value(self.tuple_of([m for m in made if m is not None]).text, kind, parts=tuple(made))  # type: ignore[arg-type]
        if kind.name == "List" and value.parts is not None and value.kind.name == "List":
            made = [self.fitted(p, kind.inner[0]) for p in value.parts]
            if None not in made:
                text = ", ".join(m.text for m in made if m is not None)
                return Value(f"annotate({kind}, [{text}])", kind)
        return converted(value, kind, True)

    def required(self, value: Value, kind: Kind, node: ast.AST) -> Value:
        fit = self.fitted(value, kind)
        if fit is None:
            raise self.error(f"Expected a value of type '{kind}' but instead found type '{value.kind}'", node)
        return fit

    def in_order(self, nodes: list[ast.expr], hints: list[Kind | None] | None = None) -> list[Any]:
        """Expressions one after the other; statements that a later one needs come after the earlier ones."""
        found: list[Any] = []
        for i, node in enumerate(nodes):
            mark = len(self.lines)
            made = self.sugared(node, hints[i] if hints else None)
            if len(self.lines) > mark:
                late, self.lines = self.lines[mark:], self.lines[:mark]
                found = [
                    self.held(f) if isinstance(f, Value) and "(" in f.text and f.parts is None else f for f in found
                ]
                self.lines += late
            found.append(made)
        return found

    def taken_apart(self, nodes: list[ast.expr], found: list[Any], node: ast.expr) -> list[Any]:
        """What was found for the nodes, the elements of a tuple for a starred one."""
        made: list[Any] = []
        for one, value in zip(nodes, found):
            if not isinstance(one, ast.Starred):
                made.append(value)
            elif isinstance(value, Many):
                made += value.items
            else:
                value = self.value_of(value, node)
                if value.kind.name != "Tuple":
                    raise self.error(f"cannot use a {value.kind} with *: only tuples are taken apart", node)
                whole = self.held(value) if value.parts is None else value
                made += whole.parts or [Value(f"({whole.text})[{i}]", k) for i, k in enumerate(value.kind.inner)]
        return made

    # -- atoms

    def _constant(self, node: ast.Constant, hint: Any) -> Value:
        made = self.constant(node.value)
        if made is None:
            raise unsupported(self.source, node, repr(node.value))
        return made

    def _name(self, node: ast.Name, hint: Any) -> Any:
        name = node.id
        if name in self.env:
            return self.env[name]
        if name in self.gone:
            raise self.error(self.gone[name], node)
        if name in self.source.names:
            return Py(self.source.names[name])
        raise self.error(f"undefined value {name}", node)

    def _tuple(self, node: ast.Tuple, hint: Kind | None) -> Any:
        hints = (
            list(hint.inner)
            if hint is not None and hint.name == "Tuple" and len(hint.inner) == len(node.elts)
            else None
        )
        found = self.in_order([*map(unstarred, node.elts)], hints)  # type: ignore[arg-type]
        return self.tuple_of([self.value_of(p, node) for p in self.taken_apart(node.elts, found, node)])

    def _list(self, node: ast.List, hint: Kind | None) -> Value:
        inner = hint.inner[0] if hint is not None and hint.name in ("List", "Optional") else None
        if inner is not None and inner.name == "List" and hint is not None and hint.name == "Optional":
            inner = inner.inner[0]
        hints = [None if isinstance(n, ast.Starred) else inner for n in node.elts]
        parts = self.taken_apart(node.elts, self.in_order([*map(unstarred, node.elts)], hints), node)
        return self.list_of([self.value_of(p, node) for p in parts], inner, node)

    def list_of(self, parts: list[Value], inner: Kind | None, node: Any = None) -> Value:
        if not parts:
            return Value("[]", Kind("List", (inner or TENSOR,)))
        kind = parts[0].kind
        for part in parts[1:]:
            common = unified(kind, part.kind)
            if common is None or (common != kind and not {common.name, kind.name} & {"Optional", "Tuple"}):
                raise self.error(
                    f"Could not unify type list subtypes {kind} and {part.kind}: all elements of a list have one type",
                    node,
                )
            kind = common
        if inner is not None and all(subtype(p.kind, inner) for p in parts):
            kind = inner
        text = f"[{', '.join(p.text for p in parts)}]"
        made = Kind("List", (kind,))
        if any(p.kind != kind for p in parts):
            text = f"annotate({made}, {text})"
        return Value(text, made, parts=tuple(parts))

    def _dict(self, node: ast.Dict, hint: Kind | None) -> Value:
        kinds = hint.inner if hint is not None and hint.name == "Dict" else (STR, TENSOR)
        if not node.keys:
            return Value("{}", Kind("Dict", tuple(kinds)))
        if None in node.keys:
            raise unsupported(self.source, node, "with unpacking")
        found = [
            self.value_of(f, node)
            for f in self.in_order([n for kv in zip(node.keys, node.values) for n in kv if n is not None])
        ]
        keys, values = found[::2], found[1::2]
        kind = values[0].kind
        for value in values:
            kind = unified(kind, value.kind)  # type: ignore[assignment]
            if kind is None:
                raise self.error(
                    f"Dict values must contain only a single type, expected: {values[0].kind} but found {value.kind} "
                    "instead", node)  # fmt: skip
        if hint is not None and hint.name == "Dict":
            kind = hint.inner[1]
        made = Kind("Dict", (keys[0].kind, kind))
        inside = ", ".join(f"{k.text}: {v.text}" for k, v in zip(keys, values))
        text = f"{{{inside}}}"
        return Value(text if all(v.kind == kind for v in values) else f"annotate({made}, {text})", made)

    def _joined(self, node: ast.JoinedStr, hint: Any) -> Value:
        form, parts = "", []
        for piece in node.values:
            if isinstance(piece, ast.Constant):
                form += str(piece.value)
                continue
            if not isinstance(piece, ast.FormattedValue) or piece.format_spec is not None:
                raise unsupported(self.source, node, "with a format specification")
            form += "{}"
            parts.append(piece.value)
        if not parts:
            return Value(repr(form), STR, form)
        values = [self.value_of(v, node) for v in self.in_order(parts)]
        return Value(f"torch.format({', '.join([repr(form), *(v.text for v in values)])})", STR)

    # -- operators

    def operator(self, name: str, args: list[Value], node: Any, named: dict[str, Value] | None = None) -> Value:
        """A call of `aten::name`."""
        return self.builtin("aten", name, args, named or {}, node)

    def builtin(self, space: str, name: str, args: list[Value], named: dict[str, Value], node: Any) -> Value:
        """A call of an operator of the list."""
        forms = find(f"{space}::{name}")
        if not forms:
            from .operators import why_not

            raise self.error(f"Unknown builtin op: {space}::{name}: {why_not(space, name)}", node)
        if "input" in named and any(p.name == "self" for p in forms[0].parameters):
            named = {("self" if key == "input" else key): value for key, value in named.items()}
        try:
            _, text, kind = match(forms, args, named)
        except Mismatch as e:
            raise self.error(str(e), node) from None
        called = f"torch.{name}" if space == "aten" else f"ops.{space}.{name}"
        return Value(f"{called}({text})", kind)

    def _binop(self, node: ast.BinOp, hint: Any) -> Value:
        left, right = (self.value_of(v, node) for v in self.in_order([node.left, node.right]))
        return self.binary(type(node.op), left, right, node)

    def binary(self, op: Any, left: Value, right: Value, node: Any) -> Value:
        name = _BINARY.get(op)
        if name is None:
            raise unsupported(self.source, node)
        if self.unit.is_class(left.kind):
            return self.call_method(left, f"__{_SPECIAL[op]}__", [right], {}, node)
        if op is ast.Mod and left.kind == STR:
            parts = right.parts if right.parts is not None else (right,)
            return Value(f"torch.percentFormat({', '.join([left.text, *(p.text for p in parts)])})", STR)
        if left.kind.name == "Tuple" and op in (ast.Mult, ast.Add):
            parts = left.parts or tuple(
                Value(f"({self.held(left).text})[{i}]", k) for i, k in enumerate(left.kind.inner)
            )
            if op is ast.Mult and isinstance(right.const, int):
                return self.tuple_of([self.held(p) for p in parts] * right.const)
            if op is ast.Add and right.kind.name == "Tuple":
                more = right.parts or tuple(
                    Value(f"({self.held(right).text})[{i}]", k) for i, k in enumerate(right.kind.inner)
                )
                return self.tuple_of([*parts, *more])
        if op is ast.FloorDiv and TENSOR in (left.kind, right.kind):
            name = "floor_divide"
        if right.kind == TENSOR and left.kind.name in ("int", "float", "number", "complex", "bool"):
            swapped = {"add": "add", "mul": "mul", "sub": "rsub"}.get(name)
            if swapped is not None:
                return self.operator(swapped, [right, left], node)
            if name == "div":
                return self.operator("mul", [self.operator("reciprocal", [right], node), left], node)
            if name in ("floor_divide", "remainder"):
                left = self.operator("scalar_tensor", [left], node)
        return self.operator(name, [left, right], node)

    def _unary(self, node: ast.UnaryOp, hint: Any) -> Value:
        if isinstance(node.op, ast.Not):
            return self._bool(node, hint)
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            made = self.constant(-node.operand.value)  # type: ignore[operator]
            if made is not None:
                return made
        value = self.expr(node.operand)
        if isinstance(node.op, ast.UAdd):
            return value
        if self.unit.is_class(value.kind):
            return self.call_method(value, "__neg__" if isinstance(node.op, ast.USub) else "__invert__", [], {}, node)
        return self.operator("neg" if isinstance(node.op, ast.USub) else "bitwise_not", [value], node)

    def _bool(self, node: ast.expr, hint: Any) -> Value:
        test = self.condition(node)
        if test.static is not None:
            return Value(repr(test.static), BOOL, test.static)
        return Value(test.text, BOOL)

    def _boolop(self, node: ast.BoolOp, hint: Any) -> Value:
        return self._bool(node, hint)

    def _compare(self, node: ast.Compare, hint: Any) -> Value:
        if len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
            left, right = (self.value_of(v, node) for v in self.in_order([node.left, node.comparators[0]]))
            return self.compared(type(node.ops[0]), left, right, node)
        return self._bool(node, hint)

    def compared(self, op: Any, left: Value, right: Value, node: Any) -> Value:
        name = _COMPARED[op]
        if self.unit.is_class(left.kind) and not self.unit.is_tuple(left.kind) and not self.unit.is_enum(left.kind):
            return self.call_method(left, f"__{name}__", [right], {}, node)
        if self.unit.is_enum(left.kind):
            return Value(f"torch.{name}({left.text}, {right.text})", BOOL)
        if right.kind == TENSOR and left.kind != TENSOR:
            name = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(name, name)
            left, right = right, left
        if left.kind == right.kind and left.kind.name == "Tuple":
            return self.tuples_compared(name, left, right, node)
        return self.operator(name, [left, right], node)

    def tuples_compared(self, name: str, left: Value, right: Value, node: Any) -> Value:
        left, right = self.held(left), self.held(right)
        parts = [
            self.operator("eq", [Value(f"({left.text})[{i}]", k), Value(f"({right.text})[{i}]", k)], node).text
            for i, k in enumerate(left.kind.inner)
        ]
        text = parts[0] if parts else "True"
        for part in parts[1:]:
            text = f"torch.__and__({text}, {part})"
        return Value(text if name == "eq" else f"torch.__not__({text})", BOOL)

    # -- conditions

    def condition(self, node: ast.expr) -> Test:
        """An expression as a condition."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            return Test(
                f"torch.__not__({inner.text})",
                None if inner.static is None else not inner.static,
                inner.false,
                inner.true,
            )
        if isinstance(node, ast.BoolOp):
            found = self.condition(node.values[0])
            for value in node.values[1:]:
                found = self.combined(isinstance(node.op, ast.And), found, value)
            return found
        if isinstance(node, ast.Compare):
            special = self.comparison(node)
            if special is not None:
                return special
        if isinstance(node, ast.Call):
            told = self.told_by_call(node)
            if told is not None:
                return told
        value = self.expr(node)
        if value.const is not MISSING and not isinstance(node, ast.Compare):
            return Test(value.text if value.kind == BOOL else repr(bool(value.const)), bool(value.const))
        true = self.truth(value, node)
        return Test(true.text, None if true.const is MISSING else bool(true.const))

    def truth(self, value: Value, node: Any) -> Value:
        """`bool(value)`, as a condition takes it."""
        if value.kind == BOOL:
            return value
        if value.kind == NONE:
            return Value("False", BOOL, False)
        if value.kind.name in ("Tensor", "int", "float", "number"):
            return Value(f"bool({value.text})", BOOL)
        if value.kind.name in ("List", "Dict", "str"):
            return Value(f"torch.ne(torch.len({value.text}), 0)", BOOL)
        if self.unit.is_class(value.kind) and self.unit.has_method(value.kind, "__bool__"):
            return self.call_method(value, "__bool__", [], {}, node)
        raise self.error(f"Could not cast value of type {value.kind} to bool", node)

    def combined(self, both: bool, first: Test, node: ast.expr) -> Test:
        """`first and node`, or `first or node`; the second is looked at where the first lets it."""
        if first.static is not None and first.static != both:
            return first
        taken = first.true if both else first.false
        outer, kept = dict(self.env), self.lines
        self.lines = []
        self.depth += 1
        if first.static is None:
            self.refine(taken)
        second = self.condition(node)
        self.depth -= 1
        prelude, self.lines, self.env = self.lines, kept, outer
        if first.static is not None:
            self.lines += [line[2:] for line in prelude]
            return second
        true = {**first.true, **second.true} if both else {}
        false = {**first.false, **second.false} if not both else {}
        if second.static is not None:
            return first if second.static == both else Test(repr(second.static), second.static, true, false)
        if prelude or "(" in second.text or "[" in second.text:
            name = self.fresh()
            inside = [*prelude, "  " * (self.depth + 1) + f"{name} = {second.text}"]
            short = ["  " * (self.depth + 1) + f"{name} = {not both}"]
            self.put(f"if {first.text}:")
            self.lines += inside if both else short
            self.put("else:")
            self.lines += short if both else inside
            return Test(name, None, true, false)
        return Test(f"torch.{'__and__' if both else '__or__'}({first.text}, {second.text})", None, true, false)

    def comparison(self, node: ast.Compare) -> Test | None:
        """`is None`, `in`, and chains; None for plain comparisons."""
        if len(node.ops) > 1:
            parts, left = [], node.left
            for op, right in zip(node.ops, node.comparators):
                parts.append(ast.copy_location(ast.Compare(left, [op], [right]), node))
                left = right
            return self.condition(ast.copy_location(ast.BoolOp(ast.And(), list(parts)), node))
        op, right = node.ops[0], node.comparators[0]
        if isinstance(op, ast.Is | ast.IsNot):
            return self.identity(node, isinstance(op, ast.IsNot))
        if isinstance(op, ast.In | ast.NotIn):
            item, container = self.in_order([node.left, right])
            found = self.contains(container, self.value_of(item, node), node)
            return self.negated(found) if isinstance(op, ast.NotIn) else found
        return None

    @staticmethod
    def negated(test: Test) -> Test:
        return Test(
            f"torch.__not__({test.text})", None if test.static is None else not test.static, test.false, test.true
        )

    def contains(self, container: Any, item: Value, node: Any) -> Test:
        if isinstance(container, Py) and isinstance(container.obj, set | frozenset | dict):
            container = Py(list(container.obj))
        if isinstance(container, Value) and self.unit.is_module(container.kind):
            names = list(self.unit.classes[container.kind.name].module._modules)
            if isinstance(item.const, str):
                return Test("True", item.const in names)
        container = self.value_of(container, node)
        if container.kind.name == "Tuple":
            parts = container.parts or tuple(
                Value(f"({container.text})[{i}]", k) for i, k in enumerate(container.kind.inner)
            )
            item = self.held(item)
            tests = [self.operator("eq", [item, p], node).text for p in parts if p.kind == item.kind]
            text = tests[0] if tests else "False"
            for test in tests[1:]:
                text = f"torch.__or__({text}, {test})"
            return Test(text, None if tests else False)
        if self.unit.is_class(container.kind):
            return Test(self.call_method(container, "__contains__", [item], {}, node).text)
        return Test(self.operator("__contains__", [container, item], node).text)

    def identity(self, node: ast.Compare, negative: bool) -> Test:
        left, right = node.left, node.comparators[0]
        if isinstance(left, ast.Constant) and left.value is None:
            left, right = right, left
        a, b = self.sugared(left), self.sugared(right)
        if isinstance(a, Py) and isinstance(b, Py):
            same = a.obj is b.obj
            return Test(repr(same != negative), same != negative)
        if not isinstance(a, Value) and isinstance(b, Value) and b.kind == NONE:
            same = isinstance(a, Py) and a.obj is None
            return Test(repr(same != negative), same != negative)
        x, y = self.value_of(a, node), self.value_of(b, node)
        name = "__isnot__" if negative else "__is__"
        text = f"torch.{name}({x.text}, {y.text})"
        if y.kind != NONE:
            return Test(text)
        if x.kind == NONE:
            return Test(repr(not negative), not negative)
        if x.kind.name == "Union" and NONE in x.kind.inner:
            rest = tuple(k for k in x.kind.inner if k != NONE)
            inner = rest[0] if len(rest) == 1 else Kind("Union", rest)
        elif x.kind.name == "Optional":
            inner = x.kind.inner[0]
        elif x.kind.name == "Any":
            return Test(text)
        else:
            return Test(repr(negative), negative)
        refined = {left.id: inner} if isinstance(left, ast.Name) else {}
        empty = {left.id: NONE} if isinstance(left, ast.Name) else {}
        return Test(text, None, refined if negative else empty, empty if negative else refined)

    def _ternary(self, node: ast.IfExp, hint: Kind | None) -> Any:
        test = self.condition(node.test)
        if test.static is not None:
            self.refine(test.true if test.static else test.false)
            return self.sugared(node.body if test.static else node.orelse, hint)
        name, made = self.fresh(), []
        for branch, refined in ((node.body, test.true), (node.orelse, test.false)):
            outer, kept, self.lines = dict(self.env), self.lines, []
            self.depth += 1
            self.refine(refined)
            value = self.expr(branch, hint)
            self.depth -= 1
            made.append((value, self.lines))
            self.lines, self.env = kept, outer
        (a, before_a), (b, before_b) = made
        kind = unified(a.kind, b.kind)
        if kind is None:
            raise self.error(
                f"Type mismatch: the branches of an if-expression have the types {a.kind} and {b.kind}", node
            )
        indent = "  " * (self.depth + 1)
        self.put(f"if {test.text}:")
        self.lines += [*before_a, f"{indent}{name} = {self.spelt_as(a, kind)}"]
        self.put("else:")
        self.lines += [*before_b, f"{indent}{name} = {self.spelt_as(b, kind)}"]
        return Value(name, kind)

    @staticmethod
    def spelt_as(value: Value, kind: Kind) -> str:
        return (
            value.text if value.kind == kind and value.text not in ("[]", "{}") else f"annotate({kind}, {value.text})"
        )

    # -- attributes

    def _attribute(self, node: ast.Attribute, hint: Any) -> Any:
        found = self.sugared(node.value)
        return self.attribute_of(found, node.attr, node)

    def attribute_of(self, found: Any, name: str, node: Any) -> Any:
        if isinstance(found, Py):
            if isinstance(found.obj, Module):
                raise self.error(f"the module '{type(found.obj).__name__}' is no attribute of self: a function cannot "
                                 "use a module that is a global variable", node)  # fmt: skip
            try:
                return Py(getattr(found.obj, name))
            except AttributeError:
                raise self.error(f"{found.obj!r} has no attribute '{name}'", node) from None
        if isinstance(found, Many):
            return Bound(self.value_of(found, node), name)
        if isinstance(found, Bound):
            raise self.error(f"a method has no attribute '{name}'", node)
        value = self.value_of(found, node)
        if value.kind == TENSOR and name in _TENSOR_ATTRIBUTES:
            form, kind = _TENSOR_ATTRIBUTES[name]
            return Value(form.format(value.text), kind)
        if name in value.kind.names:  # of an operator's results: `x.max(dim=1).values`
            at = value.kind.names.index(name)
            return Value(f"({value.text})[{at}]", value.kind.inner[at])
        if value.kind.name == "Device" and name in ("type", "index"):
            kind = STR if name == "type" else Kind("Optional", (INT,))
            return Value(f"ops.prim.{name}({value.text})", kind)
        if self.unit.is_class(value.kind):
            return self.class_attribute(value, name, node)
        if value.kind.name == "Optional" or value.kind == NONE:
            raise self.error(f"'{value.kind}' object has no attribute or method '{name}'. Did you forget to check that "
                             "it is not None?", node)  # fmt: skip
        return Bound(value, name)

    def class_attribute(self, value: Value, name: str, node: Any) -> Any:
        info = self.unit.classes[value.kind.name]
        if info.kind == "tuple" and name in info.attributes:
            index = list(info.attributes).index(name)
            return Value(f"({value.text})[{index}]", info.attributes[name])
        if info.kind == "enum":
            if name == "name":
                return Value(f"ops.prim.EnumName({value.text})", STR)
            if name == "value":
                return Value(f"ops.prim.EnumValue({value.text})", info.attributes["value"])
        if name in info.constants:
            made = self.constant(info.constants[name])
            if made is not None:
                return made
        if info.kind == "interface" and name in info.methods:
            return Bound(value, name)
        if info.kind == "module":
            return self.module_attribute(value, info, name, node)
        if name in info.attributes:
            return Value(f"{value.text}.{name}", info.attributes[name])
        if self.unit.has_method(value.kind, name):
            return Bound(value, name)
        if isinstance(getattr(info.python, name, None), property):
            return self.call_method(value, name, [], {}, node)
        raise self.error(f"Tried to access nonexistent attribute or method '{name}' of type '{info.path}'. Did you "
                         "forget to initialize an attribute in __init__()?", node)  # fmt: skip

    def module_attribute(self, value: Value, info: Any, name: str, node: Any) -> Any:
        if name in info.children or name in info.attributes:
            kind = info.interfaces.get(name) or (
                Kind(info.children[name].path) if name in info.children else info.attributes[name]
            )
            if kind == NONE:
                return Value("None", NONE, None)
            text = f"{value.text}.{name}" if name.isidentifier() else f"getattr({value.text}, {name!r})"
            return Value(text, kind)
        if isinstance(getattr(info.python, name, None), property) and name not in ("weight", "bias"):
            return self.call_method(value, name, [], {}, node)
        given = getattr(info.module, name, MISSING)
        if name in MODULE_METHODS and isinstance(info.module, ModuleDict):
            return Bound(value, name)
        if self.unit.has_method(value.kind, name):
            return Bound(value, name)
        if given is not MISSING and (callable(given) or isinstance(given, type)):
            return Py(given)
        reason = info.failed.get(name)
        if reason is not None:
            raise self.error(f"Module '{info.name}' has no attribute '{name}' {reason}", node)
        raise self.error(f"Module '{info.name}' has no attribute '{name}'", node)

    # -- subscripts

    def _subscript(self, node: ast.Subscript, hint: Any) -> Any:
        return self.subscript(self.sugared(node.value), node.slice, node)

    def _starred(self, node: ast.Starred, hint: Any) -> Any:
        raise unsupported(self.source, node)


_EXPRESSIONS: dict[type, Any] = {
    ast.Constant: Expressions._constant, ast.Name: Expressions._name, ast.Tuple: Expressions._tuple,
    ast.List: Expressions._list, ast.Dict: Expressions._dict, ast.JoinedStr: Expressions._joined,
    ast.BinOp: Expressions._binop, ast.UnaryOp: Expressions._unary, ast.BoolOp: Expressions._boolop,
    ast.Compare: Expressions._compare, ast.IfExp: Expressions._ternary, ast.ListComp: Expressions._comprehension,
    ast.DictComp: Expressions._comprehension, ast.GeneratorExp: Expressions._comprehension,
    ast.Attribute: Expressions._attribute, ast.Subscript: Expressions._subscript, ast.Starred: Expressions._starred,
    ast.Call: Expressions._call,
}  # fmt: skip
