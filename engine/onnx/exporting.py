"""`export`: a module recorded on example inputs, written as an ONNX file.

Note [Sizes that vary]
An exported graph must hold for every size that `dynamic_axes` leaves open, and one run shows only one size.  So the
program is recorded again with other sizes (twice and three times as large, or one more), and the recordings must be the
same program: the same operators, the same numbers.  A size that differs between them varies and is computed in the
graph, one that does not is a constant.  A number that differs and is no size of an input (Python computed it: a float,
a length of a list, a branch) was baked in: the export is refused, and says where.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.core.version import __version__
from engine.fx.node import Node
from engine.onnx.builders import BUILDERS
from engine.onnx.errors import OnnxExporterError
from engine.onnx.program import Translation
from engine.onnx.tensors import code_of, from_array
from engine.onnx.wire import encode
from engine.onnx.writer import Value, Writer
from engine.programs.record import RecordError, record
from engine.programs.values import mapped, tensors_in
from engine.serialization.writers import opened
from engine.tensor import Tensor, raw_array, wrap

__all__ = ["DEFAULT_OPSET", "OPSETS", "ONNXProgram", "export", "exporting", "input_names"]

DEFAULT_OPSET = 18
OPSETS = range(17, 24)
_IR = {17: 8, 18: 8, 19: 9, 20: 9}  # 10 from opset 21 on
LIMIT = 2_000_000_000  # bytes of weights up to which a file holds them itself: protobuf ends at 2 GB
_ALIGNED = 64
exporting: list[bool] = []  # not empty while a program is recorded for an export


class ONNXProgram:
    """An exported program: `save(path)`, or `model_proto`, its fields as Note [ONNX bytes] describes them."""

    def __init__(self, model: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.model_proto, self._arrays = model, arrays

    @property
    def input_names(self) -> list[str]:
        return [i["name"] for i in self.model_proto["graph"]["input"]]

    @property
    def output_names(self) -> list[str]:
        return [o["name"] for o in self.model_proto["graph"]["output"]]

    def save(self, destination: Any, *, external_data: bool | None = None) -> None:
        """Write the file; weights go to `<name>.data` beside it above 2 GB (external_data=None), or always, or never.

        destination: a path, or a binary file object (which takes up to 2 GB).
        """
        size = sum(a.nbytes for a in self._arrays.values())
        if hasattr(destination, "write"):
            if size > LIMIT or external_data:
                raise OnnxExporterError("weights beside the file need a path, not a file object")
            self._write(destination, self._with(from_array))
            return
        path = Path(os.fspath(destination))
        outside = size > LIMIT if external_data is None else external_data
        if size > LIMIT and not outside:
            raise OnnxExporterError(f"{size} bytes of weights do not fit into one file: external_data=True")
        if outside:
            tensors = self._outside(path)
        else:
            tensors = self._with(from_array)
        with opened(path) as file:
            self._write(file, tensors)

    def _with(self, make: Any) -> list[dict[str, Any]]:
        return [make(name, array) for name, array in self._arrays.items()]

    def _outside(self, path: Path) -> list[dict[str, Any]]:
        """The tensors in a data file beside the model."""
        made: list[dict[str, Any]] = []
        data = path.with_name(path.name + ".data")
        with opened(data) as file:
            for name, array in self._arrays.items():
                tensor = from_array(name, array)
                raw = tensor.pop("raw_data")
                if array.nbytes >= 1024:
                    file.write(b"\0" * (-file.tell() % _ALIGNED))
                    where = {"location": data.name, "offset": str(file.tell()), "length": str(array.nbytes)}
                    file.write(raw)
                    tensor["external_data"] = [{"key": k, "value": v} for k, v in where.items()]
                    tensor["data_location"] = 1
                else:
                    tensor["raw_data"] = raw
                made.append(tensor)
        return made

    def _write(self, file: Any, tensors: list[dict[str, Any]]) -> None:
        model = {**self.model_proto, "graph": {**self.model_proto["graph"], "initializer": tensors}}
        for piece in encode("ModelProto", model):
            file.write(piece)

    def __bytes__(self) -> bytes:
        import io

        file = io.BytesIO()
        self.save(file)
        return file.getvalue()


def export(
    model: Any,
    args: Any = (),
    f: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    external_data: bool | None = None,
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    training: Any = None,
    verbose: bool | None = None,
    **others: Any,
) -> ONNXProgram:
    """Write `model(*args, **kwargs)` as an ONNX file.

    The model runs on the example inputs, and what it did is written; docs/how-to/onnx.md has the operators.  The
    tensors among the arguments are the inputs in order; weights have their names in the state dict.

    Args:
        model: A module or function.
        args: Example arguments, a tuple or one tensor.
        f: A path or a binary file; None only returns the program.
        kwargs: Example keyword arguments.
        input_names: Names of the inputs; by default those of forward's parameters.
        output_names: Names of the outputs.
        opset_version: 17 to 23; 18 by default.
        dynamic_axes: `{name: {dim: label}}` or `{name: [dims]}`, the sizes that may vary; one label is one size.
        dynamic_shapes: The same by parameter, as torch.export takes it.
        external_data: Write weights to a file beside; by default above 2 GB.
        export_params: Only True.
        keep_initializers_as_inputs: Only False.
        training: Run in another mode than eval.
        verbose: Accepted, as are settings that change nothing of the graph (`do_constant_folding`, `dynamo`,
            `optimize`, `autograd_inlining`, ...).

    Returns:
        The `ONNXProgram`, with `save(path)` and `model_proto`.

    Raises:
        OnnxExporterError: something cannot be written; the message names it.
        UnsupportedOperatorError: an operator has no ONNX form.
        NotImplementedError: weights left out or as inputs, custom opsets.
        TypeError: an option that torch's exporter does not have.
    """
    _check_settings(others, export_params, keep_initializers_as_inputs)
    opset = DEFAULT_OPSET if opset_version is None else opset_version
    if opset not in OPSETS:
        raise ValueError(f"opset_version {opset} is not supported: {OPSETS[0]} to {OPSETS[-1]} are")
    positional, keyword = _arguments(args, kwargs, model)
    names = _named(model, positional, keyword, input_names)
    labels = _labels(dynamic_axes, dynamic_shapes, names, model, positional, keyword)
    was_training = getattr(model, "training", False)
    mode = getattr(training, "name", str(training))
    if was_training and mode in ("None", "EVAL"):
        model.eval()
    exporting.append(True)
    try:
        programs = _recorded(model, positional, keyword, names, labels)
    except RecordError as error:
        raise OnnxExporterError(str(error)) from None
    finally:
        exporting.pop()
        if was_training and mode in ("None", "EVAL"):
            model.train(was_training)
    made = _written(model, programs, opset, names, labels, list(output_names or ()))
    if verbose:
        print(programs[0].graph)
    if f is not None:
        made.save(f, external_data=external_data)
    return made


_SILENT = frozenset(
    [
        "do_constant_folding",
        "dynamo",
        "optimize",
        "verify",
        "profile",
        "report",
        "dump_exported_program",
        "artifacts_dir",
        "fallback",
        "autograd_inlining",
        "operator_export_type",
        "example_outputs",
        "strip_doc_string",
        "use_external_data_format",
        "enable_onnx_checker",
        "_retain_param_name",
    ]
)


def _check_settings(others: dict[str, Any], export_params: bool, as_inputs: bool) -> None:
    for name, value in others.items():
        if name in ("custom_opsets", "custom_translation_table", "export_modules_as_functions"):
            if value:
                raise NotImplementedError(f"torch.onnx.export({name}=...) is not supported")
        elif name not in _SILENT:
            raise TypeError(f"export() got an unexpected keyword argument '{name}'")
    if not export_params or as_inputs:
        raise NotImplementedError("torch.onnx.export: weights are always written, and never as inputs")


def _arguments(args: Any, kwargs: Any, model: Any) -> tuple[tuple, dict[str, Any]]:
    positional = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    keyword = dict(kwargs or {})
    if positional and isinstance(positional[-1], dict) and not keyword:
        names = _parameters(model)
        if positional[-1] and set(positional[-1]) <= set(names[len(positional) - 1 :]):
            return positional[:-1], dict(positional[-1])  # the older form: keywords at the end of args
    return positional, keyword


def _parameters(model: Any) -> list[str]:
    function = getattr(model, "forward", model)
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def input_names(model: Any, args: tuple, kwargs: dict[str, Any], given: Sequence[str] | None = None) -> list[str]:
    """A name for each input tensor: those given, then forward's parameters."""
    found: dict[int, str] = {}
    known = _parameters(model)
    for i, value in enumerate(args):
        _name_tensors(found, value, known[i] if i < len(known) else f"input_{i + 1}")
    for name, value in kwargs.items():
        _name_tensors(found, value, name)
    names = list(found.values())
    if given and len(given) > len(names):
        raise ValueError(f"{len(given)} input_names for {len(names)} tensors among the arguments")
    names[: len(given or ())] = list(given or ())
    if len(set(names)) < len(names):
        raise ValueError(f"two inputs have one name: {names}")
    return names


def _name_tensors(found: dict[int, str], value: Any, name: str) -> None:
    there = tensors_in(value)
    for i, tensor in enumerate(there):
        label = name if len(there) == 1 else f"{name}_{i}"
        while label in found.values():
            label += "_"
        found.setdefault(id(tensor), label)


def _labels(
    axes: Mapping[str, Any] | None, shapes: Any, names: list[str], model: Any, args: tuple, kwargs: dict[str, Any]
) -> dict[str, dict[int, str]]:
    """For each input or output the label of each dim that may vary."""
    found: dict[str, dict[int, str]] = {}
    if shapes is not None:
        axes = {**_axes_of_shapes(shapes, names, model, args, kwargs), **(axes or {})}
    for name, dims in (axes or {}).items():
        if isinstance(dims, Mapping):
            found[name] = {int(d): str(label) for d, label in dims.items()}
        else:
            found[name] = {int(d): f"{name}_dynamic_axes_{i + 1}" for i, d in enumerate(dims)}
    return found


def _axes_of_shapes(shapes: Any, names: list[str], model: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """`dynamic_axes` of torch.export's `dynamic_shapes`: by parameter or by position, of plain tensor arguments."""
    if not isinstance(shapes, Mapping):
        shapes = dict(zip(_parameters(model), shapes))
    if len(names) != len(args) + len(kwargs):
        raise NotImplementedError("dynamic_shapes of nested arguments is not supported: use dynamic_axes")
    by = dict(zip([*_parameters(model)[: len(args)], *kwargs], names))
    found: dict[str, Any] = {}
    for parameter, spec in shapes.items():
        items = spec.items() if isinstance(spec, Mapping) else enumerate(spec or ())
        name = by.get(parameter, parameter)
        found[name] = {
            d: label if isinstance(label, str) else getattr(label, "__name__", f"{name}_{d}")
            for d, label in items
            if label is not None and not isinstance(label, int)
        }
    return found


_named = input_names  # `export` has a parameter of that name


# --- recording


def _recorded(model: Any, args: tuple, kwargs: dict, names: list[str], labels: dict[str, dict[int, str]]) -> list[Any]:
    """The program for the example inputs, then for other sizes: Note [Sizes that vary]."""

    def once(given: tuple) -> Any:
        return record(model, given[0], given[1], leaves=BUILDERS, names=names)

    tensors = list({id(t): t for t in tensors_in((args, kwargs))}.values())
    sizes = _open_sizes(tensors, names, labels)
    programs = [once(_copied((args, kwargs), tensors, {}, names, labels))]
    if not sizes:
        return programs
    why: Exception | None = None
    for change in (lambda n: 2 * n, lambda n: 3 * n + 1, lambda n: n + 1, lambda n: 4 * n):
        other = {label: change(n) for label, n in sizes.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                programs.append(once(_copied((args, kwargs), tensors, other, names, labels)))
            except RecordError:
                raise
            except Exception as error:
                why = error
        if len(programs) == 3:
            break
    if len(programs) == 1:
        raise OnnxExporterError(f"the model runs with no other size of {sorted(sizes)}: {why}")
    for other in programs[1:]:
        _Same(programs[0], other, sizes).compare()
    return programs


def _open_sizes(tensors: list[Tensor], names: list[str], labels: dict[str, dict[int, str]]) -> dict[str, int]:
    """The example size of each label."""
    found: dict[str, int] = {}
    for tensor, name in zip(tensors, names):
        for d, label in labels.get(name, {}).items():
            if not -tensor.dim() <= d < tensor.dim():
                raise ValueError(f"dynamic_axes: {name} has {tensor.dim()} dims, not dim {d}")
            n = int(tensor.shape[d])
            if found.setdefault(label, n) != n:
                raise ValueError(f"dynamic_axes: {label!r} is {found[label]} and {n} in the example inputs")
    return found


def _copied(given: Any, tensors: list[Tensor], sizes: dict[str, int], names: list[str], labels: Any) -> Any:
    """The arguments with copies of their tensors, of other sizes."""
    made: dict[int, Tensor] = {}
    for tensor, name in zip(tensors, names):
        array = tensor.detach()._array
        for d, label in labels.get(name, {}).items():
            if label in sizes:
                array = np.take(array, np.arange(sizes[label]) % max(1, array.shape[d]), axis=d)
        made[id(tensor)] = wrap(np.array(array))
    return mapped(given, lambda t: made[id(t)], Tensor)


class _Same:
    """A comparison of two recordings: whether they are one program."""

    def __init__(self, first: Any, second: Any, sizes: dict[str, int]) -> None:
        self.first, self.second, self.sizes = first, second, sizes
        self.pairs: dict[Node, Node] = {}

    def refuse(self, node: Node, what: str) -> None:
        raise OnnxExporterError(
            f"the model bakes a size in: {what} at {node.name} depends on {sorted(self.sizes)} in a way that the "
            "program does not show (Python computed it); leave that size out of dynamic_axes, or compute it with "
            "x.shape, + - * // % alone"
        )

    def compare(self) -> None:
        one, two = list(self.first.graph.nodes), list(self.second.graph.nodes)
        for a, b in zip(one, two):
            self.pairs[a] = b
            if a.op != b.op or (a.target != b.target and a.op != "get_attr"):
                self.refuse(a, f"which operator runs ({a.target} or {b.target})")
            if a.op == "get_attr":
                self.constants(a, b)
            if not self.equal(a.args, b.args) or not self.equal(a.kwargs, b.kwargs):
                self.refuse(a, f"an argument of {getattr(a.target, '__name__', a.target)}")
            a.meta.setdefault("others", []).append(b)
        if len(one) != len(two):
            self.refuse(one[-1], f"how many operators run ({len(one)} or {len(two)})")

    def constants(self, a: Node, b: Node) -> None:
        import operator

        x, y = (raw_array(operator.attrgetter(n.target)(m)) for n, m in ((a, self.first), (b, self.second)))
        if x is not y and (x.shape != y.shape or x.tobytes() != y.tobytes()):
            self.refuse(a, f"the constant {a.target} {list(x.shape)}")

    def equal(self, x: Any, y: Any) -> bool:
        if isinstance(x, Node) or isinstance(y, Node):
            return isinstance(x, Node) and self.pairs.get(x) is y
        if isinstance(x, Tensor):
            return x is y
        if isinstance(x, list | tuple):
            return isinstance(y, list | tuple) and len(x) == len(y) and all(map(self.equal, x, y))
        if isinstance(x, dict):
            return isinstance(y, dict) and x.keys() == y.keys() and all(self.equal(x[k], y[k]) for k in x)
        if isinstance(x, slice):
            return isinstance(y, slice) and self.equal((x.start, x.stop, x.step), (y.start, y.stop, y.step))
        return bool(x == y) or (x != x and y != y)


# --- writing


def _varying(node: Node) -> Any:
    """The sizes of a node's tensor, None for those that differ between the recordings."""
    meta = node.meta["tensor_meta"]
    if not hasattr(meta, "shape"):
        return None
    shape = list(meta.shape)
    for other in node.meta.get("others", ()):
        for d, n in enumerate(other.meta["tensor_meta"].shape):
            if d < len(shape) and shape[d] != n:
                shape[d] = None
    return tuple(shape)


def _written(
    model: Any, programs: list[Any], opset: int, names: list[str], labels: dict[str, dict[int, str]], outputs: list[str]
) -> ONNXProgram:
    program, writer = programs[0], Writer(opset)
    inputs: dict[Node, Value] = {}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, name in zip(placeholders, names, strict=True):
        writer.names[name] = 1
        inputs[node] = Value(name, node.meta["tensor_meta"].dtype, _varying(node))
    for name in outputs:
        writer.names[name] = 1
    found = Translation(program, writer, _varying).run(inputs)
    if not found:
        raise OnnxExporterError("the model returns no tensor")
    if len(outputs) > len(found):
        raise ValueError(f"{len(outputs)} output_names for {len(found)} outputs")
    ends = _name_outputs(writer, found, outputs)
    writer.prune([v.name for v in ends])
    known = _known_sizes(placeholders, labels, names)
    result = next(node for node in program.graph.nodes if node.op == "output")
    given = list(_nodes(result.args[0]))
    graph = {
        "name": type(model).__name__ if hasattr(model, "forward") else getattr(model, "__name__", "main"),
        "node": writer.nodes,
        "input": [_info(v, _input_labels(v, labels)) for v in inputs.values()],
        "output": [_info(v, _output_labels(v, node, labels, known)) for v, node in zip(ends, given)],
    }
    made = {
        "ir_version": _IR.get(opset, 10),
        "producer_name": "engine",
        "producer_version": __version__,
        "graph": graph,
        "opset_import": [{"domain": "", "version": opset}],
    }
    return ONNXProgram(made, writer.arrays)


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _nodes(v)
    elif isinstance(value, list | tuple):
        for v in value:
            yield from _nodes(v)


def _name_outputs(writer: Writer, found: list[Value], names: list[str]) -> list[Value]:
    """The outputs under their names; one that is an input, a weight or given twice is copied."""
    makers = {name: node for node in writer.nodes for name in node["output"]}
    renamed: dict[str, str] = {}
    ends = []
    for i, value in enumerate(found):
        name = names[i] if i < len(names) else writer.unique("output" if len(found) == 1 else f"output_{i}")
        if value.name in makers and value.name not in renamed:
            renamed[value.name] = name
        else:
            source = renamed.get(value.name, value.name)
            writer.nodes.append({"op_type": "Identity", "name": f"node_{name}", "input": [source], "output": [name]})
        ends.append(Value(name, value.dtype, value.shape))
    for node in writer.nodes:
        node["input"] = [renamed.get(n, n) for n in node["input"]]
        node["output"] = [renamed.get(n, n) for n in node["output"]]
    return ends


def _known_sizes(nodes: list[Node], labels: dict[str, dict[int, str]], names: list[str]) -> dict[tuple, str]:
    """The label of the sizes that a dim of an input has in the recordings."""
    found: dict[tuple, str] = {}
    for node, name in zip(nodes, names):
        for d, label in labels.get(name, {}).items():
            found.setdefault(_sizes_at(node, d), label)
    return found


def _sizes_at(node: Node, d: int) -> tuple:
    return tuple(int(n.meta["tensor_meta"].shape[d]) for n in (node, *node.meta.get("others", ())))


def _input_labels(value: Value, labels: dict[str, dict[int, str]]) -> dict[int, str]:
    rank = len(value.shape or ())
    return {d % rank: label for d, label in labels.get(value.name, {}).items()}


def _output_labels(
    value: Value, node: Node, labels: dict[str, dict[int, str]], known: dict[tuple, str]
) -> dict[int, str]:
    own = {d % max(1, value.rank): label for d, label in labels.get(value.name, {}).items()}
    for d, n in enumerate(value.shape or ()):
        if n is None and d not in own:
            own[d] = known.get(_sizes_at(node, d), f"{value.name}_dim_{d}")
    return own


def _info(value: Value, labels: dict[int, str]) -> dict[str, Any]:
    dims: list[dict[str, Any]] = []
    for d, n in enumerate(value.shape or ()):
        dims.append(
            {"dim_param": labels.get(d, f"{value.name}_dim_{d}")} if n is None or d in labels else {"dim_value": n}
        )
    return {"name": value.name, "type": {"tensor_type": {"elem_type": code_of(value.dtype), "shape": {"dim": dims}}}}
