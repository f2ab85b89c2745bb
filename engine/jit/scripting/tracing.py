"""`jit.trace`: what a function or module did on example inputs, as a program.

Note [Traces as programs]
The calls are recorded by `engine.programs.record`, as for plans and ONNX: a graph of functions of the op table,
parameters by their names, sizes that follow the inputs' shapes.  Each node becomes a line of an archive's text; the
operators are found by the names of the op table and the forms that `schemas` has.  What Python did with values (a
branch, a loop, a number) is fixed as it was; the recorder warns, and `check_trace` runs the trace beside the function.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.core.device import device as Device
from engine.core.grad_mode import no_grad
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.jit.archive import objects
from engine.jit.archive.kinds import NONE, TENSOR, Kind
from engine.jit.archive.schemas import Mismatch, Value, find, match
from engine.jit.scripting import library, markers
from engine.jit.scripting.calls import call_forms
from engine.jit.scripting.context import Writer
from engine.jit.scripting.frontend import CompileError
from engine.jit.scripting.infos import ClassInfo, FunctionInfo
from engine.jit.scripting.names import qualified
from engine.jit.scripting.programs import instance, program_of
from engine.jit.scripting.subscripts import sliced
from engine.jit.scripting.unit import Unit
from engine.jit.scripting.values import constant, tuple_of
from engine.nn.modules.module import Module
from engine.programs.record import RecordError, leaf_name, record
from engine.programs.values import mapped, tensors_in
from engine.tensor import Tensor

__all__ = ["trace_function", "trace_module"]

_LEAVES = frozenset(
    """layer_norm rms_norm lstm gru rnn_tanh rnn_relu lstm_cell gru_cell group_norm instance_norm batch_norm dropout
    feature_dropout alpha_dropout
    interpolate pad scaled_dot_product_attention matmul linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d einsum split chunk stack cat __getitem__ softmax log_softmax embedding gelu silu leaky_relu
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d binary_cross_entropy_with_logits
    rot90 squeeze_ unsqueeze_ transpose_ swapaxes_ swapdims_ t_
    cross_entropy mse_loss normalize where std var norm tensordot topk grid_sample stft
    istft fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn hfftn
    ihfftn""".split()
)
# what the op table calls otherwise than aten
_ATEN = {
    "setitem": "copy_",
    "truediv": "div",
    "floordiv": "floordiv",
    "getitem": "__getitem__",
    "mod": "remainder",
    "realpart": "real",
    "imaginarypart": "imag",
    "matrix_diagonal": "diag",
    "logsigmoid": "log_sigmoid",
}


class TraceError(CompileError):
    """A program that cannot be traced."""


def kind_of(value: Any) -> Kind:
    """The type of an input or output of a trace."""
    if isinstance(value, Tensor):
        return TENSOR
    if isinstance(value, dict):
        first = next(iter(value.items()), None)
        if first is None:
            raise RuntimeError("an empty dictionary cannot be an input or output of a traced function")
        _consistent("Dictionary inputs to traced functions must have consistent type", map(kind_of, value))
        _consistent("Dictionary inputs to traced functions must have consistent type", map(kind_of, value.values()))
        return Kind("Dict", (kind_of(first[0]), kind_of(first[1])))
    if isinstance(value, list):
        if not value:
            raise RuntimeError("List trace inputs must have elements")
        _consistent("List inputs to traced functions must have consistent element type", map(kind_of, value))
        return Kind("List", (kind_of(value[0]),))
    if isinstance(value, tuple):
        return Kind("Tuple", tuple(map(kind_of, value)))
    for of in (bool, int, float, str):
        if type(value) is of:
            return Kind(of.__name__)
    if value is None:
        return NONE
    raise RuntimeError(
        f"Type '{type(value).__name__}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, and Tuples "
        "of Tensors can be traced"
    )


def _consistent(demand: str, kinds: Iterable[Kind]) -> None:
    """RuntimeError where the parts of a container are of several types."""
    first, *rest = kinds
    for other in rest:
        if other != first:
            raise RuntimeError(f"{demand}. Found {first} and {other}")


@dataclass(eq=False, kw_only=True)
class _Printer(Writer):
    """The lines of a recorded graph.  root: what was recorded; of: what the nodes so far gave."""

    root: Any
    of: dict[Node, Any] = field(default_factory=dict)

    def error(self, message: str, node: ast.AST | None = None) -> CompileError:
        """Return the error that says why the graph is no program."""
        return TraceError(message)

    # -- values

    def value(self, given: Any) -> Value:
        """An argument of a node."""
        if isinstance(given, Node):
            made: Value = self.of[given]
            return made
        if isinstance(given, list | tuple) and not isinstance(given, str):
            parts = [self.value(g) for g in given]
            if not parts:
                return Value("annotate(List[int], [])", Kind("List", (Kind("int"),)))
            optional = any(p.kind == NONE for p in parts)
            first = next((p.kind for p in parts if p.kind != NONE), NONE)
            if all(p.kind in (first, NONE) for p in parts) and first != NONE:
                of = Kind("Optional", (first,)) if optional else first
                return Value(f"[{', '.join(p.text for p in parts)}]", Kind("List", (of,)), parts=tuple(parts))
            return tuple_of(parts)
        if isinstance(given, dtypes.dtype | Device) or given is None or isinstance(given, bool | float | str | complex):
            return constant(self, given)  # type: ignore[return-value]
        if isinstance(given, int):
            return Value(str(int(given)), Kind("int"), int(given))
        if isinstance(given, Tensor):
            return Value(self.unit.constant(given.detach()), TENSOR)
        if type(given).__name__ in ("memory_format", "layout"):
            return constant(self, given)  # type: ignore[return-value]
        raise TraceError(f"a value of type {type(given).__name__} is an argument of a traced operator")

    # -- nodes

    def run(self, graph: Graph, inputs: list[tuple[str, Value]]) -> Any:
        """Print all nodes; the structure of the output with Values in it."""
        given = iter(inputs)
        result: Any = None
        for node in graph.nodes:
            if node.op == "placeholder":
                self.of[node] = next(given)[1]
            elif node.op == "get_attr":
                self.of[node] = self.attribute(str(node.target))
            elif node.op == "output":
                result = node.args[0]
            else:
                made = self.call_node(node)
                self.keep(node, made)
        return result

    def keep(self, node: Node, made: Any) -> None:
        if not isinstance(made, Value):
            self.of[node] = made
            return
        name = self.name_of(node)
        self.put(f"{name} = {made.text}")
        self.of[node] = Value(name, made.kind)

    def name_of(self, node: Node) -> str:
        name = str(node.name)
        if not name.isascii() or name in ("torch", "ops", "annotate", "range", "float", "int", "bool", "str", "list"):
            name = self.fresh()
        self.names.add(name)
        return name

    def attribute(self, path: str) -> Value:
        """A parameter, a buffer or a constant of the trace."""
        found: Any = self.root
        for part in path.split("."):
            found = getattr(found, part)
        if self.owner is None or path.startswith("constant_"):
            return Value(self.unit.constant(found.detach()), TENSOR)
        text = "self"
        for part in path.split("."):
            text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
        name = self.fresh()
        self.put(f"{name} = {text}")
        return Value(name, TENSOR)

    def call_node(self, node: Node) -> Any:
        function = node.target
        if function is operator.getitem and isinstance(node.args[0], Node):
            held = self.of[node.args[0]]
            if isinstance(held, Value) and held.kind.name == "Tuple" and isinstance(node.args[1], int):
                return Value(f"({held.text})[{node.args[1]}]", held.kind.inner[node.args[1]])
            if isinstance(held, Value) and held.kind.name == "List":
                return Value(f"{held.text}[{node.args[1]}]", held.kind.inner[0])
        name = str(function) if isinstance(function, str) else _name_of(function)
        if name == "scripted":
            return self.scripted(node)
        with_indices = True in node.args[6:] or node.kwargs.get("return_indices", False)
        if name in ("max_pool1d", "max_pool2d", "max_pool3d") and not with_indices:
            args = [[] if i == 2 and a is None else a for i, a in enumerate(node.args[:6])]
            return self.aten(
                name,
                [self.value(a) for a in args],
                {k: self.value(v) for k, v in node.kwargs.items() if k != "return_indices"},
                node,
            )
        if library.replaced(function) is not None:
            args = [self.value(a) for a in node.args]
            named = {k: self.value(v) for k, v in node.kwargs.items()}
            return call_forms(self, library.forms(function, args, named) or [(function, args, named)], None)
        step = _STEPS.get(name)
        if step is not None:
            return step(self, node)
        return self.plain(node, _ATEN.get(name, name))

    def plain(self, node: Node, name: str) -> Value:
        args = [self.value(a) for a in node.args]
        named = {k: self.value(v) for k, v in node.kwargs.items()}
        return self.aten(name, args, named, node)

    def aten(self, name: str, args: list[Value], named: dict[str, Value], node: Any) -> Value:
        """A call by the operator's own forms; keywords that no form has go where the op table has them."""
        if name.endswith(("_loss", "entropy", "_div", "_logits")):
            kinds = {"none": 0, "mean": 1, "sum": 2}
            args = [self.value(kinds[v.const]) if v.const in kinds else v for v in args]
            named = {k: self.value(kinds[v.const]) if k == "reduction" else v for k, v in named.items()}
        for candidate in (name, name.removesuffix("_all").removesuffix("_dim"), f"special_{name}", f"fft_{name}"):
            forms = find(f"aten::{candidate}")
            if not forms:
                continue
            if "input" in named and any(p.name == "self" for p in forms[0].parameters):
                named = {("self" if k == "input" else k): v for k, v in named.items()}
            named = {
                k: v
                for k, v in named.items()
                if not (v.kind == NONE and all(p.name != k for f in forms for p in f.parameters))
            }
            while args and args[-1].kind == NONE and not self.fits(forms, args, named):
                args = args[:-1]
            try:
                _, text, kind = match(forms, args, named)
            except Mismatch as e:
                raise TraceError(f"the traced operator {name} has no form for its arguments: {e}") from None
            return Value(f"torch.{candidate}({text})", kind)
        raise TraceError(f"the operator {name} cannot be expressed in a TorchScript program")

    @staticmethod
    def fits(forms: Any, args: list[Value], named: dict[str, Value]) -> bool:
        try:
            match(forms, args, named)
        except Mismatch:
            return False
        return True

    # -- operators that the op table has otherwise

    def _setitem(self, node: Node) -> Value:
        target, index, value = (node.args[0], node.args[1], node.args[2])
        whole, base, indices = self.indexed(target, index)
        given = self.value(value)
        if base is not None:
            if given.kind != TENSOR:
                like = f"dtype=ops.prim.dtype({base.text}), device=ops.prim.device({base.text})"
                given = Value(f"torch.tensor({given.text}, {like})", TENSOR)
            return Value(f"torch.index_put_({base.text}, {indices}, {given.text})", TENSOR)
        if given.kind == TENSOR:
            return Value(f"torch.copy_({whole.text}, {given.text})", TENSOR)
        return Value(f"torch.fill_({whole.text}, {given.text})", TENSOR)

    def _getitem(self, node: Node) -> Value:
        return self.indexed(node.args[0], node.args[1])[0]

    def indexed(self, given: Any, index: Any) -> tuple[Value, Value | None, str]:
        """`given[index]`; for writing, what is indexed and the indices as text."""
        value, parts = self.value(given), list(index) if isinstance(index, tuple) else [index]
        made: list[Any] = []
        for part in parts:
            if isinstance(part, slice):
                bounds = [self.value(p) for p in (part.start, part.stop, 1 if part.step is None else part.step)]
                made.append(bounds)
            elif part is None or part is Ellipsis:
                made.append(part)
            else:
                made.append(self.value(part))
        if Ellipsis not in made:
            return sliced(self, value, made, [], None)
        at = made.index(Ellipsis)
        if any(isinstance(part, Value) and part.kind.name in ("Tensor", "List", "bool") for part in made[at + 1 :]):
            # an operator's list of indices counts dims from the front
            count = _dims(given) - sum(map(_dims_indexed, parts))
            every = [self.value(None), self.value(None), self.value(1)]
            return sliced(self, value, [*made[:at], *[every] * count, *made[at + 1 :]], [], None)
        return sliced(self, value, made[:at], made[at + 1 :], None)

    def _size(self, node: Node) -> Value:
        args = ", ".join(self.value(a).text for a in node.args)
        return Value(f"torch.size({args})", Kind("int") if len(node.args) > 1 else Kind("List", (Kind("int"),)))

    def _to_copy(self, node: Node) -> Value:
        given = dict(zip(("input", "dtype", "device"), node.args)) | dict(node.kwargs)
        value, dtype = self.value(given["input"]), self.value(given.get("dtype"))
        if dtype.kind == NONE:
            return Value(f"torch.clone({value.text})", TENSOR)
        return Value(f"torch.to({value.text}, {dtype.text})", TENSOR)

    def scripted(self, node: Node) -> Value:
        """A call of a compiled function, which stays one."""
        raise TraceError("a compiled function in a trace")


# operators that the op table has otherwise
_STEPS: dict[str, Callable[[_Printer, Node], Value]] = {
    "setitem": _Printer._setitem,
    "getitem": _Printer._getitem,
    "index": _Printer._getitem,
    "__getitem__": _Printer._getitem,
    "size": _Printer._size,
    "to_copy": _Printer._to_copy,
}


def _dims(given: Any) -> int:
    """How many dims an argument of a node has."""
    return len(given.meta["tensor_meta"].shape if isinstance(given, Node) else given.shape)


def _dims_indexed(part: Any) -> int:
    """How many dims a part of an index stands for."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    tensor = part.meta.get("tensor_meta") if isinstance(part, Node) else part
    return _dims(part) if getattr(tensor, "dtype", None) == dtypes.bool else 1


def _name_of(function: Any) -> str:
    op = getattr(function, "op", None)
    name = str(getattr(function, "__name__", ""))
    return leaf_name(function) or (name if find(f"aten::{name}") or op is None else str(op.name)) or name


def _flat(value: Any) -> list[Tensor]:
    return tensors_in(value)


def _argument_names(function: Any, count: int) -> list[str]:
    try:
        target = function.forward if isinstance(function, Module) else function
        names = [
            n
            for n, p in inspect.signature(target).parameters.items()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    names = names[:count]
    return names + [f"argument_{i + 1}" for i in range(len(names), count)]


def _recorded(function: Any, inputs: tuple[Any, ...], strict: bool) -> Any:
    markers._tracing.append(function)
    try:
        return record(function, inputs, leaves=_LEAVES, lenient=True)
    except RecordError as e:
        raise RuntimeError(str(e).replace("cannot be recorded", "cannot be traced")) from None
    finally:
        markers._tracing.pop()


def _program(
    unit: Unit, name: str, path: str, function: Any, inputs: tuple[Any, ...], owner: ClassInfo | None, strict: bool
) -> FunctionInfo:
    """One traced call as a function or method."""
    made = _recorded(function, inputs, strict)
    info = FunctionInfo(name, path)
    printer = _Printer(unit=unit, owner=owner, root=made)
    names = _argument_names(function, len(inputs))
    if owner is not None:
        info.parameters.append(("self", Kind(owner.path), None))
    values: list[tuple[str, Value]] = []
    seen: dict[int, None] = {}

    def spread(value: Any, text: str) -> None:
        if isinstance(value, Tensor):
            if id(value) not in seen:
                seen[id(value)] = None
                values.append((text, Value(text, TENSOR)))
        elif isinstance(value, dict):
            for key, inner in value.items():
                spread(inner, f"{text}[{key!r}]")
        elif isinstance(value, list | tuple):
            for i, inner in enumerate(value):
                spread(inner, f"({text})[{i}]" if isinstance(value, tuple) else f"{text}[{i}]")

    for text, value in zip(names, inputs):
        printer.names.add(text)
        info.parameters.append((text, kind_of(value), None))
        spread(value, text)
    for node in made.graph.nodes:
        if node.op == "placeholder":
            node.name = "argument_" + node.name
    output = printer.run(made.graph, values)
    result = _output(printer, output, strict)
    printer.put(f"return {result.text}")
    info.returns, info.lines = result.kind, printer.lines
    return info


def _output(printer: _Printer, output: Any, strict: bool) -> Value:
    """What the traced function returned."""
    if strict and isinstance(output, dict | list):
        raise RuntimeError(
            f"Encountering a {'dict' if isinstance(output, dict) else 'list'} at the output of the tracer might cause "
            "the "
            "trace to be incorrect, this is only valid if the container structure does not change based on the "
            "module's "
            "inputs. Consider using a constant container instead (e.g. for `list`, use a `tuple` instead. for `dict`, "
            "use "
            "a `NamedTuple` instead). If you absolutely need this and know the side effects, pass strict=False to "
            "trace() "
            "to allow this behavior."
        )
    if isinstance(output, dict):
        parts = {k: _output(printer, v, strict) for k, v in output.items()}
        kind = Kind("Dict", (kind_of(next(iter(parts))), next(iter(parts.values())).kind))
        return Value("{" + ", ".join(f"{k!r}: {v.text}" for k, v in parts.items()) + "}", kind)
    if isinstance(output, list):
        parts_of = [_output(printer, v, strict) for v in output]
        kind = Kind("List", (parts_of[0].kind if parts_of else TENSOR,))
        return Value(f"[{', '.join(p.text for p in parts_of)}]", kind)
    if isinstance(output, tuple):
        return tuple_of([_output(printer, v, strict) for v in output])
    if output is None or isinstance(output, Node | Tensor):
        return printer.value(output)
    raise RuntimeError(
        f"Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions, not "
        f"{type(output).__name__}"
    )


def trace_function(function: Any, inputs: tuple[Any, ...], strict: bool) -> objects.ScriptFunction:
    """A Python function, traced."""
    unit = Unit()
    path = unit.unused(qualified(function))
    name = path.rpartition(".")[2]
    unit.functions[path] = _program(unit, name, path, function, inputs, None, strict)
    program = program_of(unit)
    return objects.ScriptFunction(program.functions[path], program)


def trace_module(module: Module, inputs: dict[str, tuple[Any, ...]], strict: bool) -> Any:
    """A module whose methods of these names are what they did on these inputs."""
    unit = Unit()
    root = _described(unit, module, {})
    for name, given in inputs.items():
        called = module if name == "forward" else getattr(module, name)
        root.methods[name] = _program(unit, name, f"{root.path}.{name}", called, given, root, strict)
    program = program_of(unit)
    return _instance(unit, program, module, {})


def _described(unit: Unit, module: Module, seen: dict[int, ClassInfo]) -> ClassInfo:
    """The class of a traced module: what it holds."""
    found = unit._of_module.get(id(module))
    if found is not None:
        return found
    info = ClassInfo(type(module).__name__, unit.unused(qualified(type(module))), "module", type(module), module)
    unit.classes[info.path] = unit._of_module[id(module)] = info
    info.children = {n: _described(unit, m, seen) for n, m in module._modules.items() if m is not None}
    info.lists = {"parameters": list(module._parameters), "buffers": list(module._buffers)}
    for name, value in (*module._parameters.items(), *module._buffers.items()):
        info.attributes[name] = NONE if value is None else TENSOR
    info.attributes["training"] = Kind("bool")
    info.attributes["_is_full_backward_hook"] = Kind("Optional", (Kind("bool"),))
    return info


def _instance(unit: Unit, program: Any, module: Module, made: dict[int, Any]) -> Any:
    for info in unit.classes.values():
        if info.kind == "module":
            info.failed = dict.fromkeys((), "")
    return instance(unit, program, module, made)


def check(
    traced: Any, function: Any, inputs: tuple[Any, ...], tolerance: float, anew: Callable[[], Any] | None = None
) -> None:
    """Compare a trace with the function on inputs; warn where a tensor differs.

    anew: gives the trace of the function on these inputs, where they are not those of `traced`: if that is another
    program, the difference is an error.  TracingCheckError for it, and for another number of tensors.
    """
    with no_grad():
        first, second, expected = traced(*_copied(inputs)), traced(*_copied(inputs)), function(*_copied(inputs))
    found, again, wanted = _flat(first), _flat(second), _flat(expected)
    if len(found) != len(wanted):
        raise markers.TracingCheckError(f"the trace gives {len(found)} tensors, the function {len(wanted)}")
    for i, (a, b, c) in enumerate(zip(found, again, wanted)):
        if a.shape == c.shape and _close(a, c, tolerance):
            continue
        if anew is not None:
            _same_program(traced, anew())
        steady = a.shape == b.shape and _close(a, b, tolerance)
        warnings.warn(
            f"Output nr {i + 1}. of the traced function does not match the corresponding output of the Python "
            "function. "
            f"Detailed error:\nTensor-likes are not close!{'' if steady else ' (the trace is not deterministic)'}",
            markers.TracerWarning,
            stacklevel=4,
        )


def _same_program(traced: Any, other: Any) -> None:
    """TracingCheckError with the lines that differ, unless two traces have one text."""
    one, two = traced.code.splitlines(), other.code.splitlines()
    if one != two:
        lines = "".join(f"\n\t\t{line}" for line in difflib.ndiff(one, two))
        raise markers.TracingCheckError(
            "Tracing failed sanity checks!\nERROR: Graphs differed across invocations!\n\tGraph diff:" + lines
        )


def check_function(traced: Any, function: Any, several: Sequence[Any], tolerance: float, strict: bool) -> None:
    """`check` on each of several tuples of arguments (a tensor is a tuple of one): `check_inputs` of `trace`."""
    for one in several:
        inputs = (one,) if isinstance(one, Tensor) else tuple(one)

        def anew(inputs: tuple[Any, ...] = inputs) -> Any:
            return _again(trace_function, function, inputs, strict)

        check(traced, function, inputs, tolerance, anew)


def check_module(traced: Any, module: Module, several: Sequence[Any], tolerance: float, strict: bool) -> None:
    """`check` on each of several dicts of arguments by method, as `check_inputs` of `trace_module` says."""
    for one in several:
        for name, given in one.items():
            inputs = (given,) if isinstance(given, Tensor) else tuple(given)

            def anew(name: str = name, inputs: tuple[Any, ...] = inputs) -> Any:
                return _again(trace_module, module, {name: inputs}, strict).script_method(name)

            check(traced.script_method(name), getattr(module, name), inputs, tolerance, anew)


def _again(trace: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first trace warned
        return trace(args[0], _copied(args[1]), *args[2:])


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    x, y = a.detach(), b.detach()
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        return bool((x == y).all())
    wide = "float64" if x.dtype.is_floating_point else "complex128"
    return bool(
        np.allclose(
            x.to(getattr(dtypes, wide)).numpy(),
            y.to(getattr(dtypes, wide)).numpy(),
            tolerance,
            tolerance,
            equal_nan=True,
        )
    )


def _copied(value: Any) -> Any:
    return mapped(value, lambda t: t.detach().clone(), Tensor)
