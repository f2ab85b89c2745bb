"""`jit.trace`: what a function or module did on example inputs, as a program.

Note [Traces as programs]
The calls are recorded by `engine.fx.record`, as for plans and ONNX: a graph of functions of the op table, parameters
by their names, sizes that follow the inputs' shapes.  Each node becomes a line of an archive's text; the operators are
found by the names of the op table and the forms that `schemas` has.  What Python did with values (a branch, a loop, a
number) is fixed as it was; the recorder warns, and `check_trace` runs the trace beside the function.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from engine import dtypes
from engine.device import device as Device
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.grad_mode import no_grad
from engine.nn.modules.module import Module
from engine.tensor import Tensor

from . import library, objects
from .expressions import Expressions
from .frontend import CompileError
from .kinds import NONE, TENSOR, Kind
from .schemas import Mismatch, Value, find, match
from .unit import ClassInfo, FunctionInfo, Unit, qualified

__all__ = ["trace_function", "trace_module"]

_LEAVES = frozenset(
    """layer_norm lstm gru rnn_tanh rnn_relu group_norm instance_norm batch_norm dropout feature_dropout alpha_dropout
    interpolate pad scaled_dot_product_attention matmul linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d einsum split chunk stack cat __getitem__ softmax log_softmax embedding gelu silu leaky_relu
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d cross_entropy mse_loss normalize where std var norm tensordot topk grid_sample stft
    istft fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn hfftn
    ihfftn""".split()
)
# what the op table calls otherwise than aten
_ATEN = {
    "setitem": "copy_", "truediv": "div", "floordiv": "floordiv", "getitem": "__getitem__", "mod": "remainder",
    "real_part": "real", "imaginary_part": "imag",
}  # fmt: skip


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
        return Kind("Dict", (kind_of(first[0]), kind_of(first[1])))
    if isinstance(value, list):
        return Kind("List", (kind_of(value[0]) if value else TENSOR,))
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


class _Printer(Expressions):
    """The lines of a recorded graph."""

    def __init__(self, unit: Unit, root: Any, owner: ClassInfo | None) -> None:
        self.unit, self.root, self.owner = unit, root, owner
        self.lines: list[str] = []
        self.depth, self.temporary = 1, 0
        self.names: set[str] = set()
        self.of: dict[Node, Any] = {}

    def error(self, message: str, node: Any = None) -> Exception:  # type: ignore[override]
        return TraceError(message)

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self) -> str:
        while True:
            name = f"_{self.temporary}"
            self.temporary += 1
            if name not in self.names:
                return name

    # -- values

    def value(self, given: Any) -> Value:
        """An argument of a node."""
        if isinstance(given, Node):
            return self.of[given]
        if isinstance(given, list | tuple) and not isinstance(given, str):
            parts = [self.value(g) for g in given]
            if not parts:
                return Value("annotate(List[int], [])", Kind("List", (Kind("int"),)))
            optional = any(p.kind == NONE for p in parts)
            first = next((p.kind for p in parts if p.kind != NONE), NONE)
            if all(p.kind in (first, NONE) for p in parts) and first != NONE:
                of = Kind("Optional", (first,)) if optional else first
                return Value(f"[{', '.join(p.text for p in parts)}]", Kind("List", (of,)), parts=tuple(parts))
            return self.tuple_of(parts)
        if isinstance(given, dtypes.dtype | Device) or given is None or isinstance(given, bool | float | str | complex):
            return self.constant(given)  # type: ignore[return-value]
        if isinstance(given, int):
            return Value(str(int(given)), Kind("int"), int(given))
        if isinstance(given, Tensor):
            return Value(self.unit.constant(given.detach()), TENSOR)
        if type(given).__name__ in ("memory_format", "layout"):
            return self.constant(given)  # type: ignore[return-value]
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
        if library.replaced(function) is not None:
            args = [self.value(a) for a in node.args]
            named = {k: self.value(v) for k, v in node.kwargs.items()}
            return self.call_forms(library.forms(function, args, named) or [(function, args, named)], node)
        step = getattr(self, f"_node_{name}", None)
        if step is not None:
            made = step(node)
            if made is not None:
                return made
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
            named = {k: v for k, v in named.items() if not (v.kind == NONE and all(
                p.name != k for f in forms for p in f.parameters))}  # fmt: skip
            while args and args[-1].kind == NONE and not self.fits(forms, args, named):
                args = args[:-1]
            try:
                _, text, kind = match(forms, args, named)
            except Mismatch as e:
                raise TraceError(f"the traced operator {name} has no form for its arguments: {e}") from None
            return Value(f"torch.{candidate}({text})", kind)
        raise TraceError(f"the operator {name} cannot be told in a TorchScript program")

    @staticmethod
    def fits(forms: Any, args: list[Value], named: dict[str, Value]) -> bool:
        try:
            match(forms, args, named)
        except Mismatch:
            return False
        return True

    # -- operators that the op table has otherwise

    def _node_setitem(self, node: Node) -> Value:
        target, index, value = (node.args[0], node.args[1], node.args[2])
        whole, base, indices = self.indexed(self.value(target), index)
        given = self.value(value)
        if base is not None:
            if given.kind != TENSOR:
                like = f"dtype=ops.prim.dtype({base.text}), device=ops.prim.device({base.text})"
                given = Value(f"torch.tensor({given.text}, {like})", TENSOR)
            return Value(f"torch.index_put_({base.text}, {indices}, {given.text})", TENSOR)
        if given.kind == TENSOR:
            return Value(f"torch.copy_({whole.text}, {given.text})", TENSOR)
        return Value(f"torch.fill_({whole.text}, {given.text})", TENSOR)

    def _node_getitem(self, node: Node) -> Value:
        return self.indexed(self.value(node.args[0]), node.args[1])[0]

    _node_index = _node___getitem__ = _node_getitem

    def indexed(self, value: Value, index: Any) -> tuple[Value, Value | None, str]:
        parts = list(index) if isinstance(index, tuple) else [index]
        made: list[Any] = []
        for part in parts:
            if isinstance(part, slice):
                bounds = [self.value(p) for p in (part.start, part.stop, 1 if part.step is None else part.step)]
                made.append(bounds)
            elif part is None or part is Ellipsis:
                made.append(part)
            else:
                made.append(self.value(part))
        if Ellipsis in made:
            at = made.index(Ellipsis)
            return self.sliced(value, made[:at], made[at + 1 :], None)
        return self.sliced(value, made, [], None)

    def _node_size(self, node: Node) -> Value:
        args = ", ".join(self.value(a).text for a in node.args)
        return Value(f"torch.size({args})", Kind("int") if len(node.args) > 1 else Kind("List", (Kind("int"),)))

    def _node_to_copy(self, node: Node) -> Value:
        given = dict(zip(("input", "dtype", "device"), node.args)) | dict(node.kwargs)
        value, dtype = self.value(given["input"]), self.value(given.get("dtype"))
        if dtype.kind == NONE:
            return Value(f"torch.clone({value.text})", TENSOR)
        return Value(f"torch.to({value.text}, {dtype.text})", TENSOR)

    def scripted(self, node: Node) -> Value:
        """A call of a compiled function, which stays one."""
        raise TraceError("a compiled function in a trace")


def _name_of(function: Any) -> str:
    from engine.fx.record import leaf_name

    op = getattr(function, "op", None)
    name = str(getattr(function, "__name__", ""))
    return leaf_name(function) or (name if find(f"aten::{name}") or op is None else str(op.name)) or name


def _flat(value: Any) -> list[Tensor]:
    from engine.plan.tracing import tensors_in

    return tensors_in(value)


def _argument_names(function: Any, count: int) -> list[str]:
    import inspect

    try:
        target = function.forward if isinstance(function, Module) else function
        names = [n for n, p in inspect.signature(target).parameters.items() if p.kind in (
            p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]  # fmt: skip
    except (TypeError, ValueError):
        names = []
    names = names[:count]
    return names + [f"argument_{i + 1}" for i in range(len(names), count)]


def _recorded(function: Any, inputs: tuple, strict: bool) -> Any:
    from engine import jit
    from engine.fx.record import RecordError, record

    jit._tracing.append(function)
    try:
        return record(function, inputs, leaves=_LEAVES, lenient=True)
    except RecordError as e:
        raise RuntimeError(str(e).replace("cannot be recorded", "cannot be traced")) from None
    finally:
        jit._tracing.pop()


def _program(unit: Unit, name: str, path: str, function: Any, inputs: tuple, owner: ClassInfo | None,
             strict: bool) -> FunctionInfo:  # fmt: skip
    """One traced call as a function or method."""
    made = _recorded(function, inputs, strict)
    info = FunctionInfo(name, path)
    printer = _Printer(unit, made, owner)
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
        return printer.tuple_of([_output(printer, v, strict) for v in output])
    if isinstance(output, Node):
        return printer.of[output]
    if output is None or isinstance(output, Tensor):
        return printer.value(output)
    raise RuntimeError(
        f"Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions, not "
        f"{type(output).__name__}"
    )


def trace_function(function: Any, inputs: tuple, strict: bool) -> objects.ScriptFunction:
    """A Python function, traced."""
    from .scripting import program_of

    unit = Unit()
    path = unit.unused(qualified(function))
    name = path.rpartition(".")[2]
    unit.functions[path] = _program(unit, name, path, function, inputs, None, strict)
    program = program_of(unit)
    return objects.ScriptFunction(program.functions[path], program)


def trace_module(module: Module, inputs: dict[str, tuple], strict: bool) -> Any:
    """A module whose methods of these names are what they did on these inputs."""
    from .scripting import program_of

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
    from .scripting import instance

    for info in unit.classes.values():
        if info.kind == "module":
            info.failed = dict.fromkeys((), "")
    return instance(unit, program, module, made)


def check(traced: Any, function: Any, inputs: tuple, tolerance: float, anew: Callable[[], Any] | None = None) -> None:
    """Compare a trace with the function on inputs; warn where a tensor differs.

    anew: gives the trace of the function on these inputs, where they are not those of `traced`: if that is another
    program, the difference is an error.  TracingCheckError for it, and for another number of tensors.
    """
    from engine import jit

    with no_grad():
        first, second, expected = traced(*_copied(inputs)), traced(*_copied(inputs)), function(*_copied(inputs))
    found, again, wanted = _flat(first), _flat(second), _flat(expected)
    if len(found) != len(wanted):
        raise jit.TracingCheckError(f"the trace gives {len(found)} tensors, the function {len(wanted)}")
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
            jit.TracerWarning,
            stacklevel=4,
        )


def _same_program(traced: Any, other: Any) -> None:
    """TracingCheckError with the lines that differ, unless two traces have one text."""
    import difflib

    from engine import jit

    one, two = traced.code.splitlines(), other.code.splitlines()
    if one != two:
        lines = "".join(f"\n\t\t{line}" for line in difflib.ndiff(one, two))
        raise jit.TracingCheckError(
            "Tracing failed sanity checks!\nERROR: Graphs differed across invocations!\n\tGraph diff:" + lines
        )


def check_function(traced: Any, function: Any, several: Sequence[Any], tolerance: float, strict: bool) -> None:
    """`check` on each of several tuples of arguments (a tensor is a tuple of one): `check_inputs` of `trace`."""
    for one in several:
        inputs = (one,) if isinstance(one, Tensor) else tuple(one)

        def anew(inputs: tuple = inputs) -> Any:
            return _again(trace_function, function, inputs, strict)

        check(traced, function, inputs, tolerance, anew)


def check_module(traced: Any, module: Module, several: Sequence[Any], tolerance: float, strict: bool) -> None:
    """`check` on each of several dicts of arguments by method, as `check_inputs` of `trace_module` says."""
    for one in several:
        for name, given in one.items():
            inputs = (given,) if isinstance(given, Tensor) else tuple(given)

            def anew(name: str = name, inputs: tuple = inputs) -> Any:
                return _again(trace_module, module, {name: inputs}, strict).script_method(name)

            check(traced.script_method(name), getattr(module, name), inputs, tolerance, anew)


def _again(trace: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first trace warned
        return trace(args[0], _copied(args[1]), *args[2:])


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    import numpy as np

    x, y = a.detach(), b.detach()
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        return bool((x == y).all())
    wide = "float64" if x.dtype.is_floating_point else "complex128"
    return bool(np.allclose(x.to(getattr(dtypes, wide)).numpy(), y.to(getattr(dtypes, wide)).numpy(), tolerance,
                            tolerance, equal_nan=True))  # fmt: skip


def _copied(value: Any) -> Any:
    from engine.plan.tracing import mapped

    return mapped(value, lambda t: t.detach().clone(), Tensor)
