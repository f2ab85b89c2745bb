"""The ONNX graph while it is written: values, constants, nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.onnx.errors import OnnxExporterError
from engine.onnx.tensors import code_of, from_array

__all__ = ["Value", "Writer"]


class Value:
    """A tensor of the graph: `shape` has None for a dim that varies; `array` where it is a constant."""

    __slots__ = ("array", "dtype", "name", "shape")

    def __init__(self, name: str, dtype: Any, shape: tuple[int | None, ...] | None, array: Any = None) -> None:
        self.name, self.dtype, self.shape, self.array = name, dtype, shape, array

    @property
    def rank(self) -> int:
        if self.shape is None:
            raise OnnxExporterError(f"the rank of {self.name} is not known")
        return len(self.shape)

    @property
    def static(self) -> tuple[int, ...]:
        """The shape where no dim varies.  OnnxExporterError otherwise."""
        if self.shape is None or None in self.shape:
            raise OnnxExporterError(
                f"a size of {self.name} varies ({list(self.shape or ())}), and its ONNX form fixes it"
            )
        return tuple(n for n in self.shape if n is not None)

    def dim(self, d: int) -> int:
        """One size, which must not vary."""
        n = (self.shape or ())[d]
        if n is None:
            raise OnnxExporterError(f"dim {d} of {self.name} varies, and its ONNX form fixes it")
        return n

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape or ())}"


class Writer:
    """Nodes in order, with names that are used once."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[dict[str, Any]] = []
        self.arrays: dict[str, Any] = {}  # initializers
        self.names: dict[str, int] = {}
        self.constants: dict[Any, Value] = {}
        self.scope = ""

    def unique(self, base: str) -> str:
        """A name that nothing has yet."""
        count = self.names.get(base)
        self.names[base] = 1 if count is None else count + 1
        return base if count is None else self.unique(f"{base}_{count}")

    # --- values

    def initializer(self, name: str, array: Any) -> Value:
        """A weight under its own name."""
        name = self.unique(name)
        self.arrays[name] = array
        return Value(name, dtypes.from_numpy(array.dtype), tuple(array.shape), array)

    def const(self, value: Any, dtype: Any = None) -> Value:
        """A constant of a number, list or array; one value for equal ones."""
        array = np.asarray(value, None if dtype is None else dtypes.to_numpy(dtype))
        key = (array.dtype.str, str(array.dtype), array.shape, array.tobytes()) if array.size <= 64 else None
        if key in self.constants:
            return self.constants[key]
        made = self.initializer("const" if array.ndim else "scalar", array)
        if key is not None:
            self.constants[key] = made
        return made

    def ints(self, values: Sequence[int]) -> Value:
        """int64 [n]."""
        return self.const(np.asarray(list(values), np.int64))

    def value(self, x: Any, dtype: Any = None) -> Value:
        """A Value of what may be a number, cast to `dtype`."""
        if not isinstance(x, Value):
            return self.const(x, dtype)
        return x if dtype is None else self.cast(x, dtype)

    # --- nodes

    def op(
        self,
        kind: str,
        *inputs: Any,
        dtype: Any = None,
        shape: tuple[int | None, ...] | None = None,
        outputs: int = 1,
        **attributes: Any,
    ) -> Any:
        """A node; its result, or a list of them for several outputs.  An input of None is left out.

        dtype: of the result, by default that of the first input.
        """
        given = [x if isinstance(x, Value) or x is None else self.const(x) for x in inputs]
        while given and given[-1] is None:
            given.pop()
        if dtype is None:
            dtype = _gives(kind, given)
        if shape is None and kind in _ELEMENTWISE and None not in given:
            shape = _together([x.shape for x in given])
        names = [self.unique(f"{self.scope or kind}") for _ in range(outputs)]
        node: dict[str, Any] = {
            "op_type": kind,
            "name": self.unique(f"node_{names[0]}"),
            "input": ["" if x is None else x.name for x in given],
            "output": names,
        }
        made = [_attribute(k.rstrip("_"), v) for k, v in attributes.items() if v is not None]
        if made:
            node["attribute"] = made
        self.nodes.append(node)
        values = [Value(name, dtype, shape) for name in names]
        return values[0] if outputs == 1 else values

    def cast(self, x: Value, dtype: Any) -> Value:
        """`x` in another dtype; a constant is cast now."""
        if x.dtype is dtype:
            return x
        if x.array is not None and x.array.size <= 64:
            return self.const(x.array.astype(dtypes.to_numpy(dtype)))
        return self.op("Cast", x, to=code_of(dtype), dtype=dtype, shape=x.shape)

    def sizes(self, items: Sequence[Any]) -> Value:
        """int64 [n] of ints and of scalar Values."""
        if all(not isinstance(x, Value) for x in items):
            return self.ints(items)
        parts = [
            self.op("Unsqueeze", x, self.ints([0]), dtype=dtypes.int64) if isinstance(x, Value) else self.ints([x])
            for x in items
        ]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0, dtype=dtypes.int64)

    def shape_of(self, x: Value) -> Value:
        """int64 [rank]; a constant where no size varies."""
        if x.shape is not None and None not in x.shape:
            return self.ints(x.static)
        return self.op("Shape", x, dtype=dtypes.int64, shape=(x.rank,))

    def size(self, x: Value, d: int) -> Any:
        """One size: an int, or an int64 scalar where it varies."""
        n = (x.shape or ())[d]
        if n is not None:
            return n
        return self.op("Gather", self.op("Shape", x, dtype=dtypes.int64), self.const(np.int64(d % x.rank)), axis=0)

    def reshape(self, x: Value, items: Sequence[Any]) -> Value:
        """Of sizes, ints or scalar Values; one that varies is left for ONNX to infer where it can be."""
        items = list(items)
        varying = [i for i, n in enumerate(items) if isinstance(n, Value)]
        if len(varying) == 1 and -1 not in [n for n in items if not isinstance(n, Value)] and 0 not in items:
            items[varying[0]] = -1
        allow = 1 if any(not isinstance(n, Value) and n == 0 for n in items) else None
        return self.op("Reshape", x, self.sizes(items), allowzero=allow)

    # --- the end

    def prune(self, outputs: Sequence[str]) -> None:
        """Without the nodes and constants that no output needs."""
        wanted, kept = set(outputs), []
        for node in reversed(self.nodes):
            if wanted.intersection(node["output"]):
                wanted.update(node["input"])
                kept.append(node)
        self.nodes = kept[::-1]
        self.arrays = {name: array for name, array in self.arrays.items() if name in wanted}


_TRUTHS = frozenset(
    ["And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"]
)
_ELEMENTWISE = _TRUTHS | frozenset(
    ["Abs", "Add", "Cast", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "Identity", "LeakyRelu", "Log", "Max",
     "Min", "Mod", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Softplus", "Sqrt", "Sub",
     "Tanh", "Where"]
)  # fmt: skip
_COUNTS = frozenset(["ArgMax", "ArgMin", "NonZero", "Shape", "Size"])


def _together(shapes: Sequence[Any]) -> Any:
    """The shape of an elementwise result; None where one of the operands' is not known."""
    if None in shapes:
        return None
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded))


def _gives(kind: str, given: Sequence[Any]) -> Any:
    """The dtype of what an operator gives of these inputs."""
    if kind in _TRUTHS:
        return dtypes.bool
    if kind in _COUNTS:
        return dtypes.int64
    first = given[1 if kind == "Where" else 0] if given else None
    return None if first is None else first.dtype


def _attribute(name: str, value: Any) -> dict[str, Any]:
    """The AttributeProto of a Python value; an array is a tensor."""
    if isinstance(value, bool | int | np.integer):
        return {"name": name, "i": int(value), "type": 2}
    if isinstance(value, float):
        return {"name": name, "f": value, "type": 1}
    if isinstance(value, str):
        return {"name": name, "s": value.encode(), "type": 3}
    if isinstance(value, np.ndarray):
        return {"name": name, "t": from_array("", value), "type": 4}
    values = list(value)
    if values and isinstance(values[0], str):
        return {"name": name, "strings": [v.encode() for v in values], "type": 8}
    if values and isinstance(values[0], float):
        return {"name": name, "floats": values, "type": 6}
    return {"name": name, "ints": [int(v) for v in values], "type": 7}
