"""From the source of a function to the text of an archive: subscripts, assignment to parts, what loops go over."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from engine.nn.modules.container import ModuleDict

from .kinds import NONE, TENSOR, Kind
from .schemas import MISSING, Value
from .sugared import Bound, Iterated, Many, Py

if TYPE_CHECKING:
    from collections.abc import Callable

    from .frontend import Source
    from .unit import ClassInfo, FunctionInfo, Unit

__all__ = ["Subscripts"]

INT, STR = Kind("int"), Kind("str")
_INDICES = Kind("List", (Kind("Optional", (TENSOR,)),))


class Subscripts:
    """What an Emitter does with parts of values."""

    unit: Unit
    info: FunctionInfo
    source: Source
    owner: ClassInfo | None
    env: dict[str, Any]
    gone: dict[str, str]
    lines: list[str]
    depth: int

    if TYPE_CHECKING:
        expr: Callable[..., Value]
        sugared: Callable[..., Any]
        value_of: Callable[..., Value]
        held: Callable[[Value], Value]
        operator: Callable[..., Value]
        builtin: Callable[..., Value]
        fitted: Callable[[Value, Kind], Value | None]
        required: Callable[[Value, Kind, Any], Value]
        error: Callable[..., Exception]
        put: Callable[[str], None]
        fresh: Callable[[], str]
        constant: Callable[[Any], Value | None]
        in_order: Callable[..., list[Any]]
        tuple_of: Callable[[list[Value]], Value]
        list_of: Callable[..., Value]
        attribute_of: Callable[..., Any]
        truth: Callable[..., Value]
        condition: Callable[..., Any]
        refine: Callable[[dict[str, Kind]], None]
        binary: Callable[..., Value]
        in_init: Callable[[], bool]
        call_method: Callable[..., Value]

    # -- reading

    def subscript(self, found: Any, key: ast.expr, node: Any) -> Any:
        if isinstance(found, Many):
            return self.known_items(found.items, key, node)
        if isinstance(found, Py):
            made = self.constant(found.obj)
            if made is None:
                raise self.error(f"{found.obj!r} cannot be subscripted", node)
            found = made
        value = self.value_of(found, node)
        name = value.kind.name
        if self.unit.is_module(value.kind):
            return self.child_of(value, key, node)
        if name == "Tuple" or self.unit.is_tuple(value.kind):
            return self.tuple_item(value, key, node)
        if name == "Tensor":
            return self.of_tensor(value, key, node)[0]
        if isinstance(key, ast.Slice):
            start, end, step = self.bounds(key, node)
            if name not in ("List", "str"):
                raise self.error(f"'{value.kind}' object is not sliceable", node)
            return self.operator("slice", [value, start, end, step], node)
        index = self.expr(key)
        if name == "List":
            if index.kind != INT:
                raise self.error(f"list indices must be integers, not {index.kind}", node)
            return Value(f"{value.text}[{index.text}]", value.kind.inner[0])
        if name == "Dict":
            return Value(f"{value.text}[{self.required(index, value.kind.inner[0], node).text}]", value.kind.inner[1])
        if name == "str":
            return Value(f"ops.prim.StringIndex({value.text}, {index.text})", STR)
        if self.unit.is_class(value.kind):
            return self.call_method(value, "__getitem__", [index], {}, node)
        raise self.error(f"'{value.kind}' object is not subscriptable", node)

    def bounds(self, key: ast.Slice, node: Any) -> list[Value]:
        none, one = Value("None", NONE, None), Value("1", INT, 1)
        parts = [none if p is None else self.expr(p) for p in (key.lower, key.upper)]
        return [*parts, one if key.step is None else self.expr(key.step)]

    def constant_index(self, key: ast.expr, count: int, node: Any) -> int:
        index = self.expr(key)
        if not isinstance(index.const, int):
            raise self.error("tuple index must be a compile time constant", node)
        at = int(index.const)
        if not -count <= at < count:
            raise self.error("Tuple index out of range", node)
        return at % count

    def known_items(self, items: list[Any], key: ast.expr, node: Any) -> Any:
        if isinstance(key, ast.Slice):
            return Many(items[self.constant_slice(key, node)])
        return items[self.constant_index(key, len(items), node)]

    def constant_slice(self, key: ast.Slice, node: Any) -> slice:
        parts = []
        for part in (key.lower, key.upper, key.step):
            value = None if part is None else self.expr(part).const
            if value is MISSING:
                raise self.error("the bounds of a slice of a tuple must be constants", node)
            parts.append(value)
        return slice(*parts)

    def tuple_item(self, value: Value, key: ast.expr, node: Any) -> Any:
        kinds = value.kind.inner or tuple(self.unit.classes[value.kind.name].attributes.values())
        if not isinstance(key, ast.Slice):
            index = self.expr(key)
            if index.kind == INT and not isinstance(index.const, int):
                if len(set(kinds)) != 1:
                    raise self.error(f"Cannot index into a {value.kind} with a non-integer literal because we cannot "
                                     "resolve the output type", node)  # fmt: skip
                return Value(f"({value.text})[{index.text}]", kinds[0])
            at = self.constant_index(key, len(kinds), node)
            return value.parts[at] if value.parts is not None else Value(f"({value.text})[{at}]", kinds[at])
        value = self.held(value)
        whole = [Value(f"({value.text})[{i}]", k) for i, k in enumerate(kinds)]
        return self.tuple_of(whole[self.constant_slice(key, node)])

    def child_of(self, value: Value, key: ast.expr, node: Any) -> Any:
        """A part of a ModuleList, ModuleDict, Sequential or ParameterList."""
        info = self.unit.classes[value.kind.name]
        if isinstance(key, ast.Slice):
            return Many(self.children(value)[self.constant_slice(key, node)])
        if self.unit.has_method(value.kind, "__getitem__"):
            return self.call_method(value, "__getitem__", [self.expr(key)], {}, node)
        index = self.expr(key)
        names = list(info.children) or list(info.module._parameters)
        if isinstance(index.const, str) and index.const in names:
            return self.attribute_of(value, index.const, node)
        if isinstance(index.const, int) and -len(names) <= index.const < len(names):
            return self.attribute_of(value, names[index.const], node)
        if index.const is MISSING and len({c.path for c in info.children.values()}) >= 1:
            raise self.error(
                "Unable to extract string literal index. ModuleDict indexing is only supported with string literals. "
                "For "
                "example, 'i = \"a\"; self.layers[i](x)' will fail because i is not a literal. Enumeration of "
                "ModuleDict "
                "is supported, e.g. 'for k, v in self.items(): ...'" if index.kind == STR else
                "Expected integer literal for index. ModuleList/Sequential indexing is only supported with integer "
                "literals. For example, 'i = 4; self.layers[i](x)' will fail because i is not a literal. Enumeration "
                "is "
                "supported, e.g. 'for index, v in enumerate(self): out = v(inp)'", node,
            )  # fmt: skip
        raise self.error(f"the module has no part {index.const!r}", node)

    def children(self, value: Value) -> list[Any]:
        """The modules inside a module, in order; the parameters of a ParameterList."""
        info = self.unit.classes[value.kind.name]
        if info.children:
            return [self.attribute_of(value, name, None) for name in info.children]
        return [self.attribute_of(value, name, None) for name in info.module._parameters]

    # -- tensors

    def of_tensor(self, value: Value, key: ast.expr, node: Any) -> tuple[Value, Value | None, str]:
        """`x[key]`; for writing, what is indexed and the indices as text."""
        parts = list(key.elts) if isinstance(key, ast.Tuple) else [key]
        made: list[Any] = []
        for part in parts:
            if isinstance(part, ast.Slice):
                made.append(self.bounds(part, node))
            elif isinstance(part, ast.Constant) and part.value in (None, Ellipsis):
                made.append(part.value)
            elif isinstance(part, ast.Name) and part.id == "Ellipsis":
                made.append(Ellipsis)
            else:
                given = self.expr(part)
                if given.kind.name == "Tuple" and len(parts) == 1:
                    made += [Value(f"({self.held(given).text})[{i}]", k) for i, k in enumerate(given.kind.inner)]
                elif given.kind == NONE:
                    made.append(None)
                else:
                    made.append(given)
        if Ellipsis not in made:
            return self.sliced(value, made, [], node)
        at = made.index(Ellipsis)
        return self.sliced(value, made[:at], made[at + 1 :], node)

    def sliced(self, value: Value, front: list[Any], back: list[Any], node: Any) -> tuple[Value, Value | None, str]:
        """Index the first dims by `front`, the last by `back`."""
        indices: dict[int, Value] = {}
        dim = 0

        def step(current: Value, item: Any, at: int) -> tuple[Value, int]:
            where = Value(str(at), INT, at)
            if item is None:
                return self.operator("unsqueeze", [current, where], node), 1
            if isinstance(item, list):
                if item[0].const is None and item[1].const is None and item[2].const == 1:
                    return current, 1
                return self.operator("slice", [current, where, *item], node), 1
            if item.kind == INT or item.kind.name == "number":
                return self.operator("select", [current, where, item], node), 0
            if item.kind.name == "List":
                item = self.operator("tensor", [item], node)
            elif item.kind == Kind("bool"):
                item = self.operator("scalar_tensor", [item], node)
            elif item.kind != TENSOR:
                raise self.error(f"Unsupported operation: indexing tensor with unsupported index type '{item.kind}'. "
                                 "Only ints, slices, lists and tensors are supported", node)  # fmt: skip
            indices[at] = item
            return current, 1

        for item in front:
            value, further = step(value, item, dim)
            dim += further
        from_end = -1
        for item in reversed(back):
            if item is None:
                value = self.operator("unsqueeze", [value, Value(str(from_end), INT, from_end)], node)
                from_end -= 1
                continue
            value, further = step(value, item, from_end)
            from_end -= further
        if not indices:
            if not value.text.startswith("torch.") and (front or back):
                value = self.operator("alias", [value], node)
            return value, None, ""
        if any(at < 0 for at in indices):
            raise self.error("a tensor index after ... is not supported", node)
        inside = ", ".join(indices[i].text if i in indices else "None" for i in range(max(indices) + 1))
        text = f"annotate({_INDICES}, [{inside}])"
        return Value(f"torch.index({value.text}, {text})", TENSOR), value, text

    # -- writing

    def assign_subscript(self, target: ast.Subscript, value: Value, node: Any) -> None:
        container = self.expr(target.value)
        self.store(container, target.slice, value, node)

    def store(self, container: Value, key: ast.expr, value: Value, node: Any) -> None:
        """`container[key] = value`."""
        if container.kind == TENSOR:
            whole, base, indices = self.of_tensor(container, key, node)
            if base is not None:
                if value.kind != TENSOR:
                    like = f"dtype=ops.prim.dtype({base.text}), device=ops.prim.device({base.text})"
                    value = Value(f"torch.tensor({value.text}, {like})", TENSOR)
                self.put(f"{self.fresh()} = torch.index_put_({base.text}, {indices}, {value.text})")
            elif value.kind == TENSOR:
                self.put(f"{self.fresh()} = torch.copy_({whole.text}, {value.text})")
            else:
                self.put(
                    f"{self.fresh()} = torch.fill_({whole.text}, {self.required(value, Kind('number'), node).text})"
                )
            return
        if self.unit.is_class(container.kind):
            self.put(
                f"{self.fresh()} = {self.call_method(container, '__setitem__', [self.expr(key), value], {}, node).text}"
            )
            return
        if container.kind.name not in ("List", "Dict"):
            raise self.error(f"'{container.kind}' object does not support item assignment", node)
        index = self.expr(key)
        value = self.required(value, container.kind.inner[-1], node)
        self.put(f"{self.fresh()} = torch._set_item({container.text}, {index.text}, {value.text})")

    def attribute_kind(self, target: ast.Attribute) -> Kind | None:
        """The declared type of `self.name`, if there is one."""
        if isinstance(target.value, ast.Name) and isinstance(self.env.get(target.value.id), Value):
            kind = self.env[target.value.id].kind
            if self.unit.is_class(kind):
                return self.unit.classes[kind.name].attributes.get(target.attr)
        return None

    def assign_attribute(self, target: ast.Attribute, value: Value, node: Any) -> None:
        owner = self.expr(target.value)
        if not self.unit.is_class(owner.kind):
            raise self.error(f"Tried to set an attribute: {target.attr} on a non-class: {owner.kind}", node)
        info = self.unit.classes[owner.kind.name]
        kind = info.attributes.get(target.attr)
        if kind is None and info.kind == "object" and self.in_init():
            kind = info.attributes[target.attr] = value.kind
        if kind is None:
            what = "a constant" if target.attr in info.constants else "nonexistent"
            raise self.error(f"Tried to set {what} attribute: {target.attr}. Did you forget to initialize it in "
                             "__init__()?", node)  # fmt: skip
        fit = self.fitted(value, kind)
        if fit is None:
            raise self.error(f"Wrong type for attribute assignment. Expected {kind} but got {value.kind}", node)
        self.put(f"{owner.text}.{target.attr} = {fit.text}")

    # -- loops

    def iterable(self, node: ast.expr) -> Iterated | Many:
        """What `for x in node` goes over."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in self.env:
            special = {"range": self._range, "enumerate": self._enumerate, "zip": self._zip, "reversed": self._reversed}
            made = special.get(node.func.id)
            if made is not None:
                return made(node)
        found = self.sugared(node)
        return self.over(found, node)

    def over(self, found: Any, node: Any) -> Iterated | Many:
        if isinstance(found, Many | Iterated):
            return found
        if isinstance(found, Bound):
            raise self.error("a method is not iterable", node)
        listed = isinstance(found, Py) and isinstance(found.obj, list | tuple | range)
        if listed and self.constant(list(found.obj)) is None:
            return Many([self.value_of(Py(o), node) for o in found.obj])
        value = self.value_of(found, node)
        kind = value.kind
        if self.unit.is_module(kind):
            info = self.unit.classes[kind.name]
            if isinstance(info.module, ModuleDict):
                return Many([Value(repr(n), STR, n) for n in info.children])
            return Many(self.children(value))
        if kind.name == "Tuple":
            if value.parts is None:
                value = self.held(value)
                return Many([Value(f"({value.text})[{i}]", k) for i, k in enumerate(kind.inner)])
            return Many(list(value.parts))
        if kind.name == "Dict":
            value = self.operator("keys", [value], node)
            kind = value.kind
        value = self.held(value)
        if kind.name == "List":
            return Iterated(f"torch.len({value.text})", lambda i: Value(f"{value.text}[{i}]", kind.inner[0]))
        if kind == TENSOR:
            return Iterated(f"torch.len({value.text})", lambda i: Value(f"torch.select({value.text}, 0, {i})", TENSOR))
        if kind == STR:
            return Iterated(
                f"torch.len({value.text})", lambda i: Value(f"ops.prim.StringIndex({value.text}, {i})", STR)
            )
        if self.unit.is_class(kind) and self.unit.has_method(kind, "__len__"):
            count = self.call_method(value, "__len__", [], {}, node)
            return Iterated(count.text, lambda i: self.call_method(value, "__getitem__", [Value(i, INT)], {}, node))
        raise self.error(f"'{kind}' object is not iterable", node)

    def _range(self, node: ast.Call) -> Iterated:
        args = [self.required(self.value_of(v, node), INT, node) for v in self.in_order(list(node.args))]
        if not 1 <= len(args) <= 3 or node.keywords:
            raise self.error("range expects one to three arguments", node)
        if len(args) == 1:
            return Iterated(args[0].text, lambda i: Value(i, INT), plain=True)
        start, stop = self.held(args[0]), args[1]
        step = self.held(args[2]) if len(args) == 3 else Value("1", INT, 1)
        return Iterated(
            f"torch.__range_length({start.text}, {stop.text}, {step.text})",
            lambda i: Value(f"torch.__derive_index({i}, {start.text}, {step.text})", INT),
        )

    def _enumerate(self, node: ast.Call) -> Iterated | Many:
        inner = self.iterable(node.args[0])
        first = self.expr(node.args[1]) if len(node.args) > 1 else None
        for keyword in node.keywords:
            first = self.expr(keyword.value)
        if isinstance(inner, Many):
            if first is not None and not isinstance(first.const, int):
                raise self.error("enumerate of modules begins with a constant", node)
            begin = 0 if first is None else int(first.const)
            return Many([Many([Value(str(i), INT, i), item]) for i, item in enumerate(inner.items, begin)])

        def item(i: str) -> Many:
            number = Value(i, INT) if first is None else Value(f"torch.add({i}, {first.text})", INT)
            return Many([number, inner.item(i)])

        return Iterated(inner.length, item)

    def _zip(self, node: ast.Call) -> Iterated | Many:
        parts = [self.iterable(arg) for arg in node.args]
        known = [p for p in parts if isinstance(p, Many)]
        if len(known) == len(parts):
            return Many([Many(list(group)) for group in zip(*(p.items for p in known))])
        if known:
            count = min(len(p.items) for p in known)
            return Many([
                Many([p.items[i] if isinstance(p, Many) else p.item(str(i)) for p in parts]) for i in range(count)
            ])  # fmt: skip
        lengths = ", ".join(p.length for p in parts if isinstance(p, Iterated))
        return Iterated(
            f"ops.prim.min([{lengths}])", lambda i: Many([p.item(i) for p in parts if isinstance(p, Iterated)])
        )

    def _reversed(self, node: ast.Call) -> Iterated | Many:
        inner = self.iterable(node.args[0])
        if isinstance(inner, Many):
            return Many(inner.items[::-1])
        count = self.held(Value(inner.length, INT)).text
        return Iterated(count, lambda i: inner.item(f"torch.sub(torch.sub({count}, 1), {i})"))
