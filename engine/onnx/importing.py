"""`load`: an ONNX file as a module of engine ops.

A `Model` runs a GraphModule of one `call_function` node an ONNX node, on the functions of `engine/onnx/functions`.
Weights are its parameters under their own names where these can be attributes: `state_dict`, `.to` and training work,
and so do plans: shapes are computed from the inputs' sizes, which a plan knows.

A file is not trusted.  Loading computes nothing: it decodes (Note [ONNX bytes]), copies the weights, and checks that
every value is made once and before it is read.  No text of the file becomes Python text: names go through `_Names`.
"""

from __future__ import annotations

import inspect
import keyword
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.dispatch.gate import without_listeners
from engine.fx.graph import Graph
from engine.fx.graph_module import GraphModule
from engine.fx.node import Node
from engine.nn.modules.module import Module
from engine.nn.parameter import Parameter
from engine.onnx.errors import FormatError, UnsupportedOperatorError
from engine.onnx.functions import FUNCTIONS
from engine.onnx.tensors import CODES, array_of, dtype_of
from engine.onnx.wire import decode
from engine.tensor import Tensor, wrap

__all__ = ["Model", "Port", "describe", "load"]

OPSETS = range(7, 24)
# inputs that are sizes, places or counts: a constant becomes Python ints
_SIZES: dict[str, tuple[int, ...]] = {
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Unsqueeze": (1,),
    "Squeeze": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "Pad": (1, 3),
    "Resize": (3,),
    "Split": (1,),
    "TopK": (1,),
    "ConstantOfShape": (0,),
    "Trilu": (1,),
    "OneHot": (1,),
    "CumSum": (1,),
    "Col2Im": (1, 2),
}
_MANY = frozenset(["Dropout", "TopK", "LSTM", "GRU", "RNN", "Split"])  # which give a tuple
_RUNNING = {"BatchNormalization": (3, 4)}  # inputs that are buffers, not parameters
_TAKEN = frozenset(dir(GraphModule)) | {"training", "meta", "graph", "code"}


@dataclass(frozen=True)
class Port:
    """An input or output: `shape` has a label, or None, for a size that may vary; None for an unknown rank."""

    name: str
    dtype: Any
    shape: tuple[int | str | None, ...] | None


def load(source: Any) -> Model:
    """Read an ONNX file as a module.

    Args:
        source: A path, bytes, or a binary file object.

    Returns:
        A `Model`, an `nn.Module` whose parameters are the file's weights.

    Raises:
        FormatError: the source is no such file (a ValueError).
        UnsupportedOperatorError: docs/how-to/onnx.md lacks an operator.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _read(source, None)
    if hasattr(source, "read"):
        return _read(source.read(), None)
    path = Path(os.fspath(source))
    return _read(path.read_bytes(), path.parent)


def describe(path: Any) -> dict[str, Any]:
    """Describe an ONNX file: ports, counts of operators, weights, and reasons for which `load` would refuse it."""
    path = Path(os.fspath(path))
    model = decode("ModelProto", path.read_bytes())
    graph = _graph(model)
    versions = [o.get("version", 0) for o in model.get("opset_import", []) if o.get("domain", "") in ("", "ai.onnx")]
    weights = graph.get("initializer", [])
    names = {w.get("name", "") for w in weights}
    counts: dict[str, int] = {}
    for node in graph.get("node", []):
        kind = ".".join(filter(None, [node.get("domain", "").removeprefix("ai.onnx"), node.get("op_type", "")]))
        counts[kind] = counts.get(kind, 0) + 1
    return {
        "path": str(path),
        "format": "onnx",
        "size": path.stat().st_size,
        "producer": " ".join(filter(None, [model.get("producer_name"), model.get("producer_version")])),
        "opset": max(versions, default=0),
        "ir_version": model.get("ir_version", 0),
        "inputs": [_described(i) for i in graph.get("input", []) if i.get("name", "") not in names],
        "outputs": [_described(o) for o in graph.get("output", [])],
        "parameters": sum(max(0, math.prod(w.get("dims", []))) for w in weights),
        "operators": [
            {"name": name, "count": count, "supported": name in FUNCTIONS} for name, count in sorted(counts.items())
        ],
        "metadata": {e.get("key", ""): e.get("value", "") for e in model.get("metadata_props", [])},
    }


def _described(info: dict[str, Any]) -> dict[str, Any]:
    kind = info.get("type", {}).get("tensor_type")
    if kind is None:
        return {"name": info.get("name", ""), "dtype": "no tensor", "shape": None}
    shape, code = kind.get("shape"), kind.get("elem_type", 0)
    sizes = None if shape is None else list(_sizes(shape.get("dim", [])))
    return {"name": info.get("name", ""), "dtype": CODES.get(code, f"element type {code}"), "shape": sizes}


def _graph(model: dict[str, Any]) -> dict[str, Any]:
    graph: dict[str, Any] | None = model.get("graph")
    if graph is None or not (graph.get("node") or graph.get("output")):
        raise FormatError("there is no graph in it: this is no ONNX file")
    return graph


class Model(Module):
    """A loaded ONNX file: `model(*inputs)`, or by name, gives its output, or a tuple of several."""

    def __init__(self, program: GraphModule, inputs: list[Port], outputs: list[Port], about: dict[str, Any]) -> None:
        super().__init__()
        self.program = program
        self.inputs, self.outputs, self.about = inputs, outputs, about
        self.eval()

    def forward(self, *args: Tensor, **named: Tensor) -> Any:
        """The results for the inputs in order, or by name."""
        given = dict(zip([p.name for p in self.inputs], args))
        unknown = [n for n in named if n not in [p.name for p in self.inputs] or n in given]
        if unknown or len(args) > len(self.inputs):
            raise TypeError(f"the model takes {[p.name for p in self.inputs]}, not {unknown or len(args)}")
        given.update(named)
        missing = [p.name for p in self.inputs if p.name not in given]
        if missing:
            raise TypeError(f"the model takes {[p.name for p in self.inputs]}; {missing} are missing")
        for port in self.inputs:
            _check(port, given[port.name])
        return self.program(*(given[p.name] for p in self.inputs))


def _check(port: Port, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"input {port.name!r} is a {type(value).__name__}, not a Tensor")
    if value.dtype is not port.dtype:
        raise TypeError(f"input {port.name!r} is {value.dtype}, the model takes {port.dtype}")
    if port.shape is None:
        return
    fits = value.dim() == len(port.shape) and all(
        not isinstance(n, int) or n == have for n, have in zip(port.shape, value.shape)
    )
    if not fits:
        raise ValueError(f"input {port.name!r} has the shape {list(value.shape)}, the model takes {list(port.shape)}")


# --- reading


def _read(data: Any, folder: Path | None) -> Model:
    model = decode("ModelProto", data)
    graph = _graph(model)
    opset = _opset(model)
    if model.get("functions"):
        raise UnsupportedOperatorError("functions of the file's own are not supported: export it with them inlined")
    if graph.get("sparse_initializer"):
        raise UnsupportedOperatorError("sparse weights are not supported")
    _check_operators(graph)
    return _Importer(graph, opset, folder).model(
        {
            "opset": opset,
            "producer": " ".join(filter(None, [model.get("producer_name"), model.get("producer_version")])),
            "ir_version": model.get("ir_version", 0),
            "nodes": len(graph.get("node", [])),
            "operators": sorted({n.get("op_type", "") for n in graph.get("node", [])}),
            "metadata": {e.get("key", ""): e.get("value", "") for e in model.get("metadata_props", [])},
        }
    )


def _opset(model: dict[str, Any]) -> int:
    versions = [o.get("version", 0) for o in model.get("opset_import", []) if o.get("domain", "") in ("", "ai.onnx")]
    opset: int = max(versions, default=0)
    if opset not in OPSETS:
        raise UnsupportedOperatorError(f"opset {opset} is not supported: {OPSETS[0]} to {OPSETS[-1]} are")
    return opset


def _check_operators(graph: dict[str, Any]) -> None:
    missing: dict[str, None] = {}
    for node in graph.get("node", []):
        domain, name = node.get("domain", ""), node.get("op_type", "")
        if domain not in ("", "ai.onnx"):
            missing[f"{domain}.{name}"] = None
        elif name not in FUNCTIONS:
            missing[name] = None
    if missing:
        raise UnsupportedOperatorError(f"the model uses operators that are not supported: {', '.join(sorted(missing))}")


@cache
def _signature(function: Any) -> tuple[int, bool, frozenset[str]]:
    """(inputs at most, whether any number, attributes)."""
    parameters = inspect.signature(without_listeners(function)).parameters.values()
    inputs = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    return (
        inputs,
        any(p.kind is p.VAR_POSITIONAL for p in parameters),
        frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
    )


class _Importer:
    """A Graph of the nodes of an ONNX graph."""

    def __init__(self, graph: dict[str, Any], opset: int, folder: Path | None) -> None:
        self.source, self.opset, self.folder = graph, opset, folder
        self.graph = Graph()
        self.values: dict[str, Any] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.attributes: dict[str, Any] = {}
        self.names = _Names()
        self.buffers: set[str] = set()

    def model(self, about: dict[str, Any]) -> Model:
        source = self.source
        for tensor in source.get("initializer", []):
            name = tensor.get("name", "")
            if name in self.arrays:
                raise FormatError(f"two weights are called {name!r}")
            self.arrays[name] = array_of(tensor, self.folder)
        inputs = [_port(i) for i in source.get("input", []) if i.get("name", "") not in self.arrays]
        for i, port in enumerate(inputs):
            if port.name in self.values:
                raise FormatError(f"two inputs are called {port.name!r}")
            self.values[port.name] = self.graph.placeholder(_identifier(port.name, f"input_{i + 1}"))
        self.buffers = {
            name
            for node in source.get("node", [])
            for at in _RUNNING.get(node.get("op_type", ""), ())
            for name in node.get("input", [])[at : at + 1]
        }
        for node in source.get("node", []):
            self.add(node)
        outputs = [_port(o) for o in source.get("output", [])]
        if not outputs:
            raise FormatError("the graph has no outputs")
        ends = [self.read(port.name, "an output") for port in outputs]
        self.graph.output(ends[0] if len(ends) == 1 else tuple(ends))
        program = GraphModule(self.attributes, self.graph, "ONNX")
        return Model(program, inputs, outputs, about)

    def read(self, name: str, where: str) -> Any:
        """The node of a value; a weight becomes an attribute at its first use."""
        if name in self.values:
            return self.values[name]
        if name not in self.arrays:
            raise FormatError(f"{where} reads {name!r}, which nothing before it makes")
        return self.attribute(name, self.arrays[name], name in self.buffers)

    def attribute(self, name: str, array: np.ndarray, buffer: bool) -> Node:
        tensor = wrap(np.array(array))
        trained = tensor.is_floating_point() and not buffer and tensor.dim() > 0
        target = self.names.attribute(name)
        self.attributes[target] = Parameter(tensor) if trained else tensor
        made = self.values[name] = self.graph.get_attr(target)
        return made

    def add(self, node: dict[str, Any]) -> None:
        kind = node.get("op_type", "")
        where = f"node {node.get('name') or kind!r}"
        if kind == "Constant" and self.constant_node(node):
            return
        function = FUNCTIONS[kind]
        most, any_number, known = _signature(function)
        names = node.get("input", [])
        if len(names) > most and not any_number:
            raise FormatError(f"{where}: {kind} has {len(names)} inputs")
        args = [None if not n else self.argument(kind, i, n, where) for i, n in enumerate(names)]
        kwargs = self.options(node, where)
        outputs = node.get("output", [])
        if not outputs or any(n in self.values or n in self.arrays for n in outputs if n):
            raise FormatError(f"{where} makes {outputs}, which is there already")
        for name, value in (("opset", self.opset), ("outputs", len(outputs))):
            if name in known:
                kwargs[name] = value
        unknown = sorted(set(kwargs) - known)
        if unknown:
            raise UnsupportedOperatorError(f"{where}: {kind} with {', '.join(unknown)} is not supported")
        made = self.graph.call_function(function, tuple(args), kwargs)
        if kind not in _MANY:
            if any(outputs[1:]):
                raise UnsupportedOperatorError(f"{where}: {kind} with {len(outputs)} outputs is not supported")
            self.values[outputs[0]] = made
            return
        import operator

        for i, name in enumerate(outputs):
            if name:
                self.values[name] = self.graph.call_function(operator.getitem, (made, i))

    def argument(self, kind: str, at: int, name: str, where: str) -> Any:
        array = self.arrays.get(name)
        small = array is not None and array.dtype.kind == "i" and array.ndim < 2 and array.size <= 64
        if small and at in _SIZES.get(kind, (1,) if kind.startswith("Reduce") else ()):
            assert array is not None
            return array.reshape(-1).tolist()
        return self.read(name, where)

    def options(self, node: dict[str, Any], where: str) -> dict[str, Any]:
        """The attributes of a node as keywords.  A tensor is an attribute of the module."""
        found: dict[str, Any] = {}
        for attribute in node.get("attribute", []):
            name = attribute.get("name", "")
            if not name.isidentifier() or keyword.iskeyword(name) or name in found or name in ("opset", "outputs"):
                raise FormatError(f"{where} has the attribute {name!r}")
            found[name] = self.option(attribute, f"{where}, attribute {name}")
        return found

    def option(self, attribute: dict[str, Any], where: str) -> Any:
        kind = attribute.get("type", 0)
        if kind == 1:
            return attribute.get("f", 0.0)
        if kind == 2:
            return attribute.get("i", 0)
        if kind == 3:
            try:
                return bytes(attribute.get("s", b"")).decode()
            except UnicodeDecodeError:
                raise FormatError(f"{where} is no UTF-8 text") from None
        if kind == 4 and "t" in attribute:
            array = array_of(attribute["t"], self.folder)
            return self.constant(array)
        if kind in (6, 7):
            return list(attribute.get("floats" if kind == 6 else "ints", []))
        if kind == 8:
            return [bytes(s) for s in attribute.get("strings", [])]
        raise UnsupportedOperatorError(f"{where} is of a kind that is not supported (graphs, sparse tensors)")

    def constant_node(self, node: dict[str, Any]) -> bool:
        """A Constant of a tensor is as good as a weight: sizes are read from it."""
        attributes, outputs = node.get("attribute", []), node.get("output", [])
        if len(attributes) != 1 or len(outputs) != 1 or "t" not in attributes[0]:
            return False
        if outputs[0] in self.values or outputs[0] in self.arrays:
            raise FormatError(f"a Constant makes {outputs[0]!r}, which is there already")
        self.arrays[outputs[0]] = array_of(attributes[0]["t"], self.folder)
        self.buffers.add(outputs[0])
        return True

    def constant(self, array: np.ndarray) -> Node:
        target = self.names.attribute("constant_0")
        self.attributes[target] = wrap(np.array(array))
        return self.graph.get_attr(target)


class _Names:
    """Names of attributes: those of the weights where Python can have them."""

    def __init__(self) -> None:
        self.leaves: set[str] = set()
        self.folders: set[str] = set()

    def attribute(self, name: str) -> str:
        parts = name.split(".")
        plain = all(
            re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_]*", p) and p not in _TAKEN and not keyword.iskeyword(p) for p in parts
        )
        if not plain or len(parts) > 32 or len(name) > 1000 or not self.free(name):
            base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:80] or "constant"
            base = base if not plain else base.rstrip("0123456789")
            base = f"value_{base}" if base in _TAKEN or base[:1].isdigit() or keyword.iskeyword(base) else base
            count = len(self.leaves)
            name = f"{base}{count}" if base.endswith("_") else f"{base}_{count}"
            while not self.free(name):
                count += 1
                name = f"{base}_{count}"
            parts = [name]
        self.leaves.add(name)
        self.folders.update(".".join(parts[:i]) for i in range(1, len(parts)))
        return name

    def free(self, name: str) -> bool:
        parts = name.split(".")
        above = (".".join(parts[:i]) for i in range(1, len(parts)))
        return name not in self.leaves and name not in self.folders and not any(a in self.leaves for a in above)


def _identifier(name: str, otherwise: str) -> str:
    """An input's name as a parameter of `forward`."""
    plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    return name if plain and name != "self" and name[:1] != "_" else otherwise


def _port(info: dict[str, Any]) -> Port:
    kind = info.get("type", {}).get("tensor_type")
    name = info.get("name", "")
    if kind is None or not name:
        raise UnsupportedOperatorError(f"{name!r} is no tensor: sequences, maps and optional values are not supported")
    shape = kind.get("shape")
    sizes = None if shape is None else tuple(_sizes(shape.get("dim", [])))
    return Port(name, dtype_of(kind.get("elem_type", 0)), sizes)


def _sizes(dims: list[dict[str, Any]]) -> Iterator[int | str | None]:
    for dim in dims:
        yield dim["dim_value"] if "dim_value" in dim else dim.get("dim_param") or None
