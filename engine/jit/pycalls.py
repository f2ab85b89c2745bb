"""From the source of a function to the text of an archive: Python's own functions, and comprehensions."""

from __future__ import annotations

import ast
from typing import Any

from engine.tensor import Tensor

from .frontend import unsupported
from .kinds import NONE, TENSOR, Kind
from .schemas import MISSING, Value
from .subscripts import Subscripts
from .sugared import Iterated, Many, Py

__all__ = ["PythonFunctions"]

INT, BOOL, STR = Kind("int"), Kind("bool"), Kind("str")
_PYTHON = {"len": "len", "ord": "ord", "chr": "chr", "hex": "hex", "oct": "oct", "bin": "bin", "hash": "hash",
           "round": "round", "pow": "pow", "sorted": "sorted", "divmod": "divmod"}  # fmt: skip


class PythonFunctions(Subscripts):
    """What an Emitter does with Python's builtins and comprehensions."""

    # -- functions of Python

    def python_builtin(self, name: str, node: ast.Call, hint: Kind | None) -> Any:
        """A call of one of Python's builtins; MISSING for one that TorchScript treats as any function."""
        step = getattr(self, f"_py_{name}", None)
        if step is not None:
            return step(node, hint)
        if name in _PYTHON:
            args, named = self.arguments(node)
            values, keys = self.values(args, named, node)
            if name == "len" and len(values) == 1:
                return self.length(args[0], values[0], node)
            return self.operator(_PYTHON[name], values, node, keys)
        obj = self.source.names.get(name)
        if isinstance(obj, type) and issubclass(obj, BaseException):
            return MISSING
        raise self.error(f"Python builtin {obj!r} is currently not supported in Torchscript", node)

    def length(self, given: Any, value: Value, node: Any) -> Value:
        if isinstance(given, Many):
            return Value(str(len(given.items)), INT, len(given.items))
        if value.kind.name == "Tuple":
            return Value(str(len(value.kind.inner)), INT, len(value.kind.inner))
        if self.unit.is_module(value.kind):
            info = self.unit.classes[value.kind.name]
            if not self.unit.has_method(value.kind, "__len__"):
                count = len(info.children) or len(info.module._parameters)
                return Value(str(count), INT, count)
        if self.unit.is_class(value.kind):
            return self.call_method(value, "__len__", [], {}, node)
        return self.operator("len", [value], node)

    def single(self, node: ast.Call, hint: Kind | None = None) -> Value:
        if len(node.args) != 1 or node.keywords:
            raise self.error("one argument is expected here", node)
        return self.expr(node.args[0], hint)

    def _cast(self, name: str, node: ast.Call) -> Value:
        if not node.args:
            return self.value_of(Py({"int": 0, "float": 0.0, "bool": False, "str": ""}[name]), node)
        value = self.single(node)
        if self.unit.is_class(value.kind) and not self.unit.is_enum(value.kind):
            return self.call_method(value, f"__{name}__", [], {}, node)
        if name != "str" and value.kind.name not in ("Tensor", "int", "float", "bool", "str", "number", "complex"):
            raise self.error(f"{name}() has no form for a value of type {value.kind}", node)
        const: Any = MISSING
        if value.const is not MISSING and value.const is not None and name != "str":
            const = {"int": int, "float": float, "bool": bool}[name](value.const)
        return Value(f"{name}({value.text})", Kind(name), const)

    def _py_int(self, node: ast.Call, hint: Any) -> Value:
        return self._cast("int", node)

    def _py_float(self, node: ast.Call, hint: Any) -> Value:
        if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            return self.value_of(Py(float(node.args[0].value)), node)
        return self._cast("float", node)

    def _py_bool(self, node: ast.Call, hint: Any) -> Value:
        return self._cast("bool", node)

    def _py_str(self, node: ast.Call, hint: Any) -> Value:
        return self._cast("str", node)

    def _py_complex(self, node: ast.Call, hint: Any) -> Value:
        values = [self.expr(a) for a in node.args]
        return Value(f"complex({', '.join(v.text for v in values)})", Kind("complex"))

    def _py_print(self, node: ast.Call, hint: Any) -> Value:
        values, _ = self.values(*self.arguments(node), node)
        return Value(f"print({', '.join(v.text for v in values)})", NONE)

    def text_of(self, value: Value) -> Value:
        """The value as text."""
        return value if value.kind == STR else Value(f"str({value.text})", STR)

    def _py_abs(self, node: ast.Call, hint: Any) -> Value:
        value = self.single(node)
        return self.builtin("aten" if value.kind == TENSOR else "prim", "abs", [value], {}, node)

    def _extreme(self, name: str, node: ast.Call) -> Value:
        args, named = self.arguments(node)
        values, keys = self.values(args, named, node)
        space = "aten" if values and all(v.kind == TENSOR for v in values) else "prim"
        if len(values) > 2:
            found = values[0]
            for value in values[1:]:
                found = self.builtin(space, name, [found, value], {}, node)
            return found
        if len(values) == 1 and values[0].kind.name == "Tuple":
            parts = values[0].parts or ()
            values = [self.list_of(list(parts), None, node)]
        return self.builtin(space, name, values, keys, node)

    def _py_max(self, node: ast.Call, hint: Any) -> Value:
        return self._extreme("max", node)

    def _py_min(self, node: ast.Call, hint: Any) -> Value:
        return self._extreme("min", node)

    def _reduced(self, name: str, node: ast.Call) -> Value:
        inner = node.args[0] if node.args else node
        value = self.expr(inner)  # type: ignore[arg-type]
        return self.operator(name, [value, *(self.expr(a) for a in node.args[1:])], node)

    def _py_sum(self, node: ast.Call, hint: Any) -> Value:
        return self._reduced("sum", node)

    def _py_any(self, node: ast.Call, hint: Any) -> Value:
        return self._reduced("any", node)

    def _py_all(self, node: ast.Call, hint: Any) -> Value:
        return self._reduced("all", node)

    def _py_list(self, node: ast.Call, hint: Kind | None) -> Any:
        if not node.args:
            return Value("[]", Kind("List", (hint.inner[0] if hint is not None and hint.name == "List" else TENSOR,)))
        source = self.iterable(node.args[0])
        if isinstance(source, Many):
            if all(isinstance(i, Value) and not self.unit.is_module(i.kind) for i in source.items):
                return self.list_of(source.items, None, node)
            return source
        return self.gathered(source, node)

    def gathered(self, source: Iterated, node: Any) -> Value:
        """What a loop goes over, in a list."""
        name, index, kept, self.lines = self.fresh(), self.fresh(), self.lines, []
        self.depth += 1
        value = self.value_of(source.item(index), node)
        self.put(f"{self.fresh()} = torch.append({name}, {value.text})")
        self.depth -= 1
        body, self.lines = self.lines, kept
        kind = Kind("List", (value.kind,))
        self.put(f"{name} = annotate({kind}, [])")
        self.put(f"for {index} in range({source.length}):")
        self.lines += body
        return Value(name, kind)

    def _py_dict(self, node: ast.Call, hint: Kind | None) -> Value:
        kinds = hint.inner if hint is not None and hint.name == "Dict" else (STR, TENSOR)
        if not node.args and not node.keywords:
            return Value("{}", Kind("Dict", tuple(kinds)))
        if node.keywords and not node.args:
            made = ast.Dict([ast.Constant(k.arg) for k in node.keywords], [k.value for k in node.keywords])
            return self.expr(ast.copy_location(ast.fix_missing_locations(made), node), hint)
        return self.operator("dict", [self.single(node)], node)

    def _py_tuple(self, node: ast.Call, hint: Any) -> Any:
        if not node.args:
            return self.tuple_of([])
        found = self.sugared(node.args[0])
        if isinstance(found, Many):
            return found
        value = self.value_of(found, node)
        if value.kind.name == "Tuple":
            return value
        if value.parts is not None:
            return self.tuple_of(list(value.parts))
        if value.kind.name == "List":
            return value  # its length is not known: torch needs a declared type here, a list serves where one may stand
        raise self.error(f"cannot statically infer the expected size of a {value.kind} in this context", node)

    def _py_range(self, node: ast.Call, hint: Any) -> Value:
        source = self._range(node)
        return self.gathered(source, node)

    _py_enumerate = _py_zip = _py_reversed = lambda self, node, hint: self._gathered_iterable(node)

    def _gathered_iterable(self, node: ast.Call) -> Any:
        source = self.iterable(node)
        return source if isinstance(source, Many) else self.gathered(source, node)

    def _py_isinstance(self, node: ast.Call, hint: Any) -> Value:
        test = self.told_by_call(node)
        assert test is not None
        return Value(test.text, BOOL, MISSING if test.static is None else test.static)

    _py_hasattr = _py_isinstance

    def _py_type(self, node: ast.Call, hint: Any) -> Py:
        value = self.single(node)
        if not self.unit.is_class(value.kind):
            raise self.error(f"type() of a {value.kind} is not a value of TorchScript", node)
        return Py(self.unit.classes[value.kind.name].python)

    def _py_getattr(self, node: ast.Call, hint: Any) -> Any:
        name = self.expr(node.args[1])
        if not isinstance(name.const, str):
            raise self.error("getattr's second argument must be a string literal", node)
        owner = self.sugared(node.args[0])
        if len(node.args) == 3 and not self.has(owner, name.const):
            return self.sugared(node.args[2])
        return self.attribute_of(owner, name.const, node)

    def has(self, owner: Any, name: str) -> bool:
        """Whether an attribute is there, known when the function is compiled."""
        if isinstance(owner, Py):
            return hasattr(owner.obj, name)
        value = self.value_of(owner)
        if not self.unit.is_class(value.kind):
            return value.kind == TENSOR and hasattr(Tensor, name)
        info = self.unit.classes[value.kind.name]
        if info.kind == "module":
            return hasattr(info.module, name)
        return name in info.attributes or name in info.constants or self.unit.has_method(value.kind, name)

    # -- comprehensions

    def _comprehension(self, node: Any, hint: Kind | None) -> Value:
        if len(node.generators) != 1:
            raise unsupported(self.source, node, "with several for clauses")
        part = node.generators[0]
        source = self.iterable(part.iter)
        outer = dict(self.env)
        if isinstance(source, Many):
            return self.unrolled(node, part, source, hint, outer)
        name, kept, self.lines = self.fresh(), self.lines, []
        index = self.fresh()
        self.depth += 1
        self.bind(part.target, source.item(index), node)
        tests = 0
        for condition in part.ifs:
            test = self.condition(condition)
            self.put(f"if {test.text}:")
            self.depth += 1
            self.refine(test.true)
            tests += 1
        if isinstance(node, ast.DictComp):
            key, value = self.expr(node.key), self.expr(node.value)
            kind = Kind("Dict", (key.kind, value.kind))
            self.put(f"{self.fresh()} = torch._set_item({name}, {key.text}, {value.text})")
        else:
            inner = hint.inner[0] if hint is not None and hint.name == "List" else None
            value = self.expr(node.elt, inner)
            kind = Kind("List", (value.kind,))
            self.put(f"{self.fresh()} = torch.append({name}, {value.text})")
        for _ in range(tests):
            self.depth -= 1
            self.put("else:")
            self.put("  pass")
        self.depth -= 1
        body, self.lines, self.env = self.lines, kept, outer
        self.put(f"{name} = annotate({kind}, {'{}' if kind.name == 'Dict' else '[]'})")
        self.put(f"for {index} in range({source.length}):")
        self.lines += body
        return Value(name, kind)

    def unrolled(self, node: Any, part: Any, source: Many, hint: Any, outer: dict[str, Any]) -> Value:
        """A comprehension over modules: each in turn."""
        found = []
        for item in source.items:
            self.bind(part.target, item, node)
            if any(self.condition(c).static is not True for c in part.ifs):
                continue
            if isinstance(node, ast.DictComp):
                found.append((self.held(self.expr(node.key)), self.held(self.expr(node.value))))
            else:
                found.append(self.held(self.expr(node.elt)))  # type: ignore[arg-type]
        self.env = outer
        if isinstance(node, ast.DictComp):
            kind = Kind("Dict", (found[0][0].kind, found[0][1].kind)) if found else Kind("Dict", (STR, TENSOR))
            return Value("{" + ", ".join(f"{k.text}: {v.text}" for k, v in found) + "}", kind)
        inner = hint.inner[0] if hint is not None and hint.name == "List" else None
        return self.list_of(found, inner, node)  # type: ignore[arg-type]
