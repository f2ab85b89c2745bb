"""From a recorded program to an ONNX graph.

Note [Writes in ONNX]
ONNX has no memory: a node gives a new value.  The translation keeps, for each tensor of the program, its value of the
moment.  An in-place op gives the tensor a new one; where the tensor is a view, the write goes on to what it views (by
the view's inverse: a reshape back, a permutation back, a scatter), and other views of the same memory are made anew, by
the view's own op, when they are read next.  What nobody reads falls away with the nodes that no output needs.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from engine.core import dtypes
from engine.dispatch.gate import without_listeners
from engine.fx.node import Node, map_arg
from engine.onnx.builders import BUILDERS
from engine.onnx.builders.indexing import write_at
from engine.onnx.errors import OnnxExporterError, UnsupportedOperatorError
from engine.onnx.writer import Value, Writer
from engine.programs.record import leaf_name
from engine.tensor import raw_array

__all__ = ["Translation"]

_ARITHMETIC = {operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul"}


class _Cell:
    """A tensor of the program: its value of the moment, and what it is a view of."""

    __slots__ = ("base", "node", "parts", "stale", "value")

    def __init__(self, value: Any, node: Node, base: _Cell | None = None) -> None:
        self.value, self.node, self.base, self.stale = value, node, base, False
        self.parts: list[_Cell] = []  # its views
        if base is not None:
            base.parts.append(self)


class Translation:
    """Writes the nodes of a recorded graph; `varying(node)` are the sizes of its tensor, None for one that varies."""

    def __init__(self, module: Any, writer: Writer, varying: Callable[[Node], Any]) -> None:
        self.module, self.writer, self.varying = module, writer, varying
        self.cells: dict[Node, Any] = {}

    def run(self, inputs: dict[Node, Value]) -> list[Value]:
        """The values of the outputs, in order."""
        outputs: list[Value] = []
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.cells[node] = _Cell(inputs[node], node)
            elif node.op == "get_attr":
                array = raw_array(operator.attrgetter(node.target)(self.module))
                self.cells[node] = _Cell(self.writer.initializer(node.target, array), node)
            elif node.op == "output":
                map_arg(node.args[0], lambda n: outputs.append(self.read(n)))
            else:
                self.writer.scope = node.name
                self.step(node)
        return outputs

    # --- values

    def read(self, node: Node) -> Any:
        """The value of a node now: a Value, a list of them, or a size."""
        cell = self.cells[node]
        return self.fresh(cell) if isinstance(cell, _Cell) else cell

    def fresh(self, cell: _Cell) -> Any:
        if cell.stale and cell.base is not None:
            node = cell.node
            if node.target is operator.getitem:
                maker = node.args[0]
                again = self.call(maker, {maker.args[0]: self.fresh(cell.base)})[node.args[1]]
                cell.value = self.described(again, cell.value)
            else:
                cell.value = self.call(node, {node.args[0]: self.fresh(cell.base)})
            cell.stale = False
        return cell.value

    def write(self, cell: _Cell, value: Value) -> None:
        """Note [Writes in ONNX]."""
        cell.value, cell.stale = value, False
        if cell.base is not None:
            self.write_upwards(cell, value)
        for part in cell.parts:
            self.spoil(part)

    def write_upwards(self, cell: _Cell, value: Value) -> None:
        base = cell.base
        assert base is not None
        before = self.fresh(base)
        base.value = self.inverse(cell.node, before, value)
        for part in base.parts:
            if part is not cell:
                self.spoil(part)
        if base.base is not None:
            self.write_upwards(base, base.value)

    def spoil(self, cell: _Cell) -> None:
        cell.stale = True
        for part in cell.parts:
            self.spoil(part)

    def inverse(self, node: Node, base: Value, value: Value) -> Value:
        """Return the base of a view after `value` has been written to the view."""
        name, writer = key_of(node.target), self.writer
        if node.target is operator.getitem:
            return self.described(write_at(writer, base, self.part_index(node, base), value), base)
        builder = BUILDERS.get(name)
        back = "" if builder is None else builder.back
        if back == "reshape":
            return self.described(writer.op("Reshape", value, writer.shape_of(base)), base)
        if name in ("transpose", "permute", "t"):
            order = self.permutation(name, node, base.rank)
            perm = [order.index(d) for d in range(base.rank)]
            return self.described(writer.op("Transpose", value, perm=perm), base)
        if back == "index":
            arguments = self.bound(node, {})
            if name == "__getitem__":
                index = arguments["index"]
            else:
                index = [slice(None)] * (arguments["dim"] % base.rank)
                if name == "select":
                    index.append(arguments["index"])
                else:
                    index.append(slice(arguments["start"], arguments["start"] + arguments["length"]))
                index = tuple(index)
            return self.described(write_at(writer, base, index, value), base)
        raise OnnxExporterError(f"a write into what {name} gave (node {node.name}) has no ONNX form")

    def part_index(self, node: Node, base: Value) -> tuple[Any, ...]:
        """Return the index, in the tensor that was cut, of a part that `chunk`, `split` or `unbind` gave."""
        maker, number = node.args
        name = key_of(maker.target)
        if not isinstance(number, int) or not ("chunk" in name or "split" in name or name == "unbind"):
            raise OnnxExporterError(f"a write into what {name} gave (node {maker.name}) has no ONNX form")
        d = self.bound(maker, {}).get("dim", 0) % base.rank
        if name == "unbind":
            return (slice(None),) * d + (number,)
        sizes = [meta.shape[d] for meta in maker.meta["tensor_meta"]]
        base.dim(d)  # which must not vary
        return (slice(None),) * d + (slice(sum(sizes[:number]), sum(sizes[: number + 1])),)

    def permutation(self, name: str, node: Node, rank: int) -> list[int]:
        order = list(range(rank))
        arguments = self.bound(node, {})
        if name == "permute":
            dims = arguments["dims"]
            dims = dims[0] if dims and isinstance(dims[0], list | tuple) else dims
            return [d % rank for d in dims]
        first, second = (arguments["dim0"], arguments["dim1"]) if name == "transpose" else (0, rank - 1)
        order[first], order[second] = order[second], order[first]
        return order

    @staticmethod
    def described(value: Value, like: Value) -> Value:
        return Value(value.name, like.dtype, like.shape, value.array)

    # --- steps

    def step(self, node: Node) -> None:
        target = node.target
        if node.op == "call_method" and target == "size":
            self.cells[node] = self.writer.size(self.read(node.args[0]), int(node.args[1]))
        elif "value" in node.meta:
            self.cells[node] = self.arithmetic(node)
        elif target is operator.setitem:
            cell = self.cells[node.args[0]]
            index, value = map_arg(node.args[1:], self.read)
            before = self.fresh(cell)
            self.write(cell, self.described(write_at(self.writer, before, index, value), before))
            self.cells[node] = cell
        elif target is operator.getitem:
            self.take(node)
        elif node.meta.get("writes"):
            cell = self.cells[node.args[0]]
            before = self.fresh(cell)
            self.write(cell, self.writer.cast(self.described(self.call(node, {}), before), before.dtype))
            self.cells[node] = cell
        else:
            value = self.call(node, {})
            base = self.cells[node.args[0]] if node.meta.get("view") and isinstance(node.args[0], Node) else None
            self.cells[node] = _Cell(value, node, base if isinstance(base, _Cell) else None)

    def take(self, node: Node) -> None:
        source = self.read(node.args[0])
        value = source[node.args[1]]
        if isinstance(value, Value):
            dtype = node.meta["tensor_meta"].dtype
            value = self.writer.cast(value, dtype) if value.dtype is not None else value
            value = Value(value.name, dtype, self.varying(node), value.array)
            maker = node.args[0]
            base = self.cells[maker.args[0]] if maker.meta.get("view") and isinstance(maker.args[0], Node) else None
            self.cells[node] = _Cell(value, node, base if isinstance(base, _Cell) else None)
        else:
            self.cells[node] = value

    def arithmetic(self, node: Node) -> Any:
        """A size computed from sizes."""
        first, second = (self.read(a) if isinstance(a, Node) else a for a in node.args)
        if not isinstance(first, Value) and not isinstance(second, Value):
            return node.target(first, second)
        writer = self.writer
        a, b = (writer.value(x, dtypes.int64) for x in (first, second))
        if node.target in _ARITHMETIC:
            return writer.op(_ARITHMETIC[node.target], a, b, shape=())
        rest = writer.op("Mod", a, b, shape=())
        if node.target is operator.mod:
            return rest
        return writer.op("Div", writer.op("Sub", a, rest), b, shape=())  # rounds down, as Python does

    def bound(self, node: Node, instead: dict[Any, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of its parameters; what has its default is there too."""
        read = lambda n: instead[n] if n in instead else self.read(n)
        args, kwargs = map_arg(node.args, read), map_arg(node.kwargs, read)
        record = getattr(node.target, "op", None)
        if record is None:
            signature = _signature(node.target)
            found = signature.bind(*args, **kwargs)
            found.apply_defaults()
            return dict(found.arguments)
        kwargs = {record.aliases.get(k, k): v for k, v in kwargs.items() if k != "out"}
        if record.varargs:
            at = record.positional.index(record.varargs)
            if len(args) > at:
                args = (*args[:at], args[at:])
        return {**record.defaults, **dict(zip(record.positional, args)), **kwargs}

    def call(self, node: Node, instead: dict[Any, Any]) -> Any:
        """The result of a call by its builder."""
        name = key_of(node.target)
        builder = BUILDERS.get(name)
        if builder is None:
            raise UnsupportedOperatorError(
                f"the operator {name!r} (node {node.name}) has no ONNX form: docs/how-to/onnx.md"
            )
        arguments = self.bound(node, instead)
        wanted = builder.parameters
        for parameter in [p for p in arguments if p not in wanted]:
            if not builder.ignores(parameter, arguments.pop(parameter), node.target):
                raise UnsupportedOperatorError(f"{name}({parameter}=...) (node {node.name}) has no ONNX form")
        self.writer.scope = node.name
        meta = node.meta["tensor_meta"]
        if getattr(getattr(meta, "dtype", None), "is_complex", False):
            raise UnsupportedOperatorError(f"{name} (node {node.name}) gives complex numbers, which have no ONNX form")
        if "result" in wanted:
            arguments["result"] = Value("", getattr(meta, "dtype", None), self.varying(node))
        try:
            value = builder.build(self.writer, **arguments)
        except OnnxExporterError as error:
            raise type(error)(f"{name} (node {node.name}): {error}") from None
        except (IndexError, TypeError, ValueError, ZeroDivisionError) as error:  # a form of the call that it has not
            raise UnsupportedOperatorError(f"{name} (node {node.name}) in this form: {error}") from error
        if not isinstance(value, Value) or not hasattr(meta, "dtype"):
            return value
        if value.dtype is not None and value.dtype is not meta.dtype:
            value = self.writer.cast(value, meta.dtype)
        return Value(value.name, meta.dtype, self.varying(node), value.array)


_signatures: dict[Any, inspect.Signature] = {}


def _signature(function: Any) -> inspect.Signature:
    found = _signatures.get(function)
    if found is None:
        found = _signatures[function] = inspect.signature(getattr(function, "__wrapped__", without_listeners(function)))
    return found


def key_of(target: Any) -> str:
    """The name under which a call stands in the table."""
    record = getattr(target, "op", None)
    name = record.name if record is not None else leaf_name(target) or getattr(target, "__name__", repr(target))
    return str(name)
