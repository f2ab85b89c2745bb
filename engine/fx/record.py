"""A program as its ops: a function runs once on example inputs, what it did becomes a GraphModule of registry ops.

Note [Recorded programs]
`symbolic_trace` records what a function calls and never runs it; `record` runs it and notes the ops below: modules,
Python and composites dissolve into `call_function` nodes on functions of the op table, parameters and buffers into
`get_attr` under their own names, and what depends on no input is computed once.  Each node says what it gave
(`meta["tensor_meta"]`, for ints `meta["value"]`).  The graph runs: in-place ops and views are kept as they are.

Sizes stay programs too.  While a function is recorded, `x.shape`, `x.size()` and `x.numel()` of what depends on an
input give ints that remember where they are from, also through + - * // %; where one is an argument of an op, the
graph has `x.size(d)` and the arithmetic.  What Python does with a size otherwise (a branch, a float, a list length) is
fixed as it was, as in torch.jit.trace; recording again with other sizes and comparing shows it (`engine.onnx` does).

`leaves` are functions that stay whole although they are written with ops, by name: `layer_norm`, `lstm`, `matmul`.
"""

from __future__ import annotations

import contextlib
import operator
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from engine.dispatch import COMPOSITES, OPS, PUBLIC, autocast, import_lazy
from engine.dispatch.listeners import copied, listener_code
from engine.fx.graph import Graph
from engine.fx.graph_module import GraphModule
from engine.fx.node import Node
from engine.fx.passes.shape_prop import TensorMetadata
from engine.grad_mode import no_grad
from engine.layouts import strided
from engine.nn.modules.module import Module
from engine.plan.tracing import Call, Ref, Trace, mapped, tensors_in
from engine.plan.tracing import record as run_recorded
from engine.tensor import Size, Tensor, raw_array, wrap

__all__ = ["CREATORS", "RecordError", "leaf_name", "record"]

# what makes a tensor of given sizes: a constant, unless a size is one of an input
CREATORS = frozenset(
    ["arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "new_empty", "new_full", "new_ones",
     "new_zeros", "ones", "ones_like", "scalar_tensor", "zeros", "zeros_like"]
)  # fmt: skip
# functions that are no ops, and all that is noted of writes or sizes by whom
_ALWAYS = CREATORS | {
    "broadcast_to", "chunk", "copy_", "expand_as", "fill_", "flatten", "narrow", "repeat_interleave", "reshape",
    "reshape_as", "tensor_split", "tile", "unflatten", "view", "view_as", "zero_",
    # those that compute with arrays: nothing of them would be noted
    "histogram", "histogramdd", "isin", "unique", "unique_consecutive",
}  # fmt: skip


# functions that stay whole, and the op in them that says how autocast casts their operands
_CAST_AS = {
    **{f"conv{kind}{d}d": "convolution" for kind in ("", "_transpose") for d in (1, 2, 3)}, "lstm": "lstm_layer",
    "cross_entropy": "softmax_nll_rows", "nll_loss": "nll_loss_rows",
    "binary_cross_entropy_with_logits": "bce_with_logits",
}  # fmt: skip
# those with steps between, some of which it casts: under autocast they do not stay whole
_CAST_INSIDE = frozenset(["einsum", "tensordot"])


class RecordError(RuntimeError):
    """The program cannot be recorded; the message says why."""


class _Dim(int):
    """A size that remembers where it is from: `("size", number, dim)`, or an operator's name and its operands."""

    trace: _Recorder
    whence: tuple

    def __new__(cls, value: int, whence: tuple, trace: _Recorder) -> _Dim:
        made = super().__new__(cls, value)
        made.trace, made.whence = trace, whence
        return made

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _arithmetic(name: str, reflected: bool) -> Any:
    plain = getattr(int, f"__{'r' * reflected}{name}__")

    def method(self: Any, other: Any) -> Any:
        value = plain(self, other)
        if type(value) is not int or not self.trace.open:
            return value
        operands = (other, self) if reflected else (self, other)
        return _Dim(value, (name, *operands), self.trace)

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    for _reflected in (False, True):
        setattr(_Dim, f"__{'r' * _reflected}{_name}__", _arithmetic(_name, _reflected))


def _negative(self: Any) -> Any:
    return _Dim(-int(self), ("mul", self, -1), self.trace) if self.trace.open else -int(self)


_Dim.__neg__ = _negative  # type: ignore[method-assign]


class _Recorder(Trace):
    """A trace that knows sizes, and functions that stay whole."""

    def __init__(self, inputs: list[Tensor], leaves: dict[FunctionType, str], strict: bool) -> None:
        super().__init__(inputs)
        self.leaves, self.strict, self.open = leaves, strict, True
        self.warned: set[str] = set()
        self.results: dict[int, Any] = {}  # what each call returned, with Refs

    def given(self, value: Any) -> Any:
        return mapped(value, int, _Dim)

    def read(self, name: str) -> None:
        if self.strict:
            super().read(name)
        elif name not in self.warned:
            from engine.jit import TracerWarning

            self.warned.add(name)
            warnings.warn(
                f"Tensor.{name} reads the values of a tensor in Python: what follows from them is fixed in the "
                "recorded program as it is for these inputs",
                TracerWarning,
                stacklevel=3,
            )

    def note(self, function: FunctionType, args: tuple, kwargs: dict, result: Any) -> None:
        made, before = tensors_in(result), len(self.calls)
        varies = self.sized(args, kwargs)
        if self.leaves.get(function) in CREATORS and not varies:
            given = [self.numbers.get(id(t)) for t in tensors_in((args, kwargs))]
            if not any(i is not None and self.derived[i] for i in given):
                self.created.update(map(id, made))
                self.held += made
                return
        super().note(function, args, {k: v for k, v in kwargs.items() if k != "out" or v is not None}, result)
        if len(self.calls) > before:
            call = self.calls[-1]
            self.results[id(call)] = mapped(result, self.ref, Tensor)
            if varies:
                for i in call.outputs:
                    self.derived[i] = True

    def dissolves(self, function: FunctionType) -> bool:
        return autocast.state.on and function.__name__ in _CAST_INSIDE

    def cast(self, function: FunctionType, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The operands with casts that are calls of their own, also those of parameters: they stay in the program."""
        op = getattr(function, "op", None)
        name = _CAST_AS.get(function.__name__, function.__name__) if op is None else op.name
        if name not in autocast.LISTED or function.__name__[-1] == "_":
            return args, kwargs
        target = autocast.target_of(name, tuple(tensors_in((args, kwargs))))
        if target is None:
            return args, kwargs

        def one(tensor: Tensor) -> Tensor:
            if not autocast.changes(tensor, target):
                return tensor
            made = tensor.to(target)  # type: ignore[attr-defined]
            number = self.numbers.get(id(made))
            if number is not None:
                self.derived[number] = True
            return made

        return mapped(args, one, Tensor), mapped(kwargs, one, Tensor)

    @staticmethod
    def sized(args: tuple, kwargs: dict) -> bool:
        """Whether a size is among the arguments."""
        found: list[Any] = []
        mapped((args, kwargs), found.append, _Dim)
        return bool(found)

    def size_of(self, tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape as ints that remember it, of what depends on an input."""
        if not self.open or self.inside or threading.get_ident() != self.owner:
            return shape
        number = self.numbers.get(id(tensor))
        if number is None:
            self.attempt(self.ref, tensor)  # an alias is known by its memory
            number = self.numbers.get(id(tensor))
        if number is None or not self.derived[number]:
            return shape
        return tuple(_Dim(n, ("size", number, d), self) for d, n in enumerate(shape))


def leaf_name(function: Any) -> str:
    """The name of a function that stays whole; '' for others."""
    return _leaf_names.get(function, "")


_leaf_names: dict[Any, str] = {}


def _resolved(names: Iterable[str]) -> dict[FunctionType, str]:
    """The functions of these names that are no ops: of the op table, of `nn.functional`, of `fft`, methods."""
    from engine import fft
    from engine.nn import functional

    import_lazy()
    found: dict[FunctionType, str] = {}
    for name in names:
        if name in OPS:  # functions around it (`relu(x, inplace=True)`) dissolve
            continue
        for function in (
            COMPOSITES.get(name), PUBLIC.get(name) if name in PUBLIC else None, vars(functional).get(name),
            vars(Tensor).get(name), vars(fft).get(name) if "fft" in name else None,
        ):  # fmt: skip
            if isinstance(function, FunctionType) and not hasattr(function, "op"):
                found[function] = name
    _leaf_names.update(found)
    return found


@contextlib.contextmanager
def _whole(trace: _Recorder) -> Iterator[None]:
    """The leaves' functions report to the trace."""
    kept: list[tuple[FunctionType, CodeType]] = []
    try:
        for function in trace.leaves:
            code = _compiled(function)
            trace.others[function] = copied(function, code)
            step = trace.wrapped(function)

            def heard(args: Any, kwargs: Any, step: Any = step) -> Any:
                return step(*args, **kwargs)

            kept.append((function, code))
            function.__code__ = listener_code(code, heard)
        yield
    finally:
        for function, code in kept:
            function.__code__ = code


def _compiled(function: FunctionType) -> CodeType:
    """The code of a function; compiled now if this would be its first call."""
    if function.__code__.co_name == "<lambda>" and "_compile_" in function.__globals__:
        function.__globals__["_compile_"]()
    return function.__code__


@contextlib.contextmanager
def _sizes(trace: _Recorder) -> Iterator[None]:
    """`shape`, `size()` and `numel()` of tensors tell where they are from."""
    kept = {name: Tensor.__dict__[name] for name in ("shape", "size", "numel", "nelement") if name in Tensor.__dict__}
    plain = kept["shape"].fget

    def shape(tensor: Tensor) -> Size:
        return Size(trace.size_of(tensor, tuple(plain(tensor))))

    def size(tensor: Tensor, dim: Any = None) -> Any:
        if dim is None:
            return shape(tensor)
        n = kept["size"](tensor, dim)  # with its errors
        sizes = shape(tensor)
        return sizes[operator.index(dim)] if sizes else n

    def numel(tensor: Tensor) -> int:
        count: int = 1
        for n in shape(tensor):
            count = n * count
        return count

    try:
        for name, value in {"shape": property(shape), "size": size, "numel": numel, "nelement": numel}.items():
            if name in kept:
                setattr(Tensor, name, value)
        yield
    finally:
        trace.open = False
        for name, value in kept.items():
            setattr(Tensor, name, value)


def record(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    leaves: Iterable[str] = (),
    names: Iterable[str] = (),
    strict: bool = False,
    lenient: bool = False,
) -> GraphModule:
    """Run `function(*args, **kwargs)` once without gradients and give what it did: Note [Recorded programs].

    The tensors among the arguments, also in lists and dicts, are the placeholders in order, called `names` where given;
    other arguments are fixed.  lenient: random numbers may be drawn and parameters written to, which the graph does
    too.  strict: reading the values of a tensor in Python is an error, else a TracerWarning.
    RecordError where the program cannot be told by its ops: random numbers, writes to parameters.
    """
    kwargs = kwargs or {}
    inputs = list({id(t): t for t in tensors_in((args, kwargs))}.values())
    trace = _Recorder(inputs, _resolved({*_ALWAYS, *leaves}), strict)
    trace.lenient = lenient
    with no_grad(), _whole(trace), _sizes(trace):
        run_recorded(lambda: function(*args, **kwargs), inputs, trace)
    if trace.failure is not None:
        raise RecordError(f"{_called(function)} cannot be recorded: {trace.failure}")
    return _Builder(trace, function, list(names)).build()


def _called(function: Any) -> str:
    return type(function).__name__ if isinstance(function, Module) else getattr(function, "__name__", repr(function))


class _Builder:
    """A Graph from a trace."""

    def __init__(self, trace: _Recorder, function: Any, names: list[str]) -> None:
        self.trace, self.function = trace, function
        self.graph = Graph()
        self.nodes: dict[int, Node] = {}
        self.sizes: dict[Any, Node] = {}
        self.root: dict[str, Any] = {}
        self.calls: list[Call] = []
        self.known: dict[int, str] = {}
        self.fresh: set[int] = set()
        if isinstance(function, Module):
            for name, tensor in (*function.named_parameters(), *function.named_buffers()):
                self.known.setdefault(id(tensor), name)
                if tensor.layout is strided:
                    self.known.setdefault(id(raw_array(tensor)), name)  # `.data`, `.detach()`
        for i, number in enumerate(trace.inputs):
            node = self.graph.placeholder(names[i] if i < len(names) else f"input_{i + 1}")
            self.note(number, node)

    def build(self) -> GraphModule:
        self.choose()
        for call in self.calls:
            self.add(call)
        self.graph.output(mapped(self.trace.result, lambda r: self.value(r.index), Ref))
        self.graph.eliminate_dead_code(
            lambda node: node.op in ("placeholder", "output") or node.meta.get("writes", False)
        )
        name = type(self.function).__name__ if isinstance(self.function, Module) else "Recorded"
        made = GraphModule(self.root, self.graph, name)
        return made.eval() if not getattr(self.function, "training", False) else made

    def choose(self) -> None:
        """The calls that stay: those that depend on an input or a size, and what writes to what is written or given."""
        trace = self.trace
        root: dict[int, int] = {}

        def find(i: int) -> int:
            while root.get(i, i) != i:
                i = root[i]
            return i

        for call in trace.calls:
            if call.inplace or getattr(call.op, "view", False) or not hasattr(call.function, "op"):
                for out in call.outputs:  # a leaf may give a view
                    for source in call.refs[:1]:
                        root[find(out)] = find(source)
        written = {find(call.refs[0]) for call in trace.calls if call.inplace}
        self.fresh = {i for i in trace.fresh if find(i) in written}
        for call in trace.calls:
            groups = {find(i) for i in call.outputs}
            if call.inplace or any(trace.derived[i] for i in call.outputs) or groups & written:
                self.calls.append(call)

    def note(self, number: int, node: Node) -> None:
        self.nodes[number] = node
        node.meta["tensor_meta"] = _meta(self.trace.values[number])

    def value(self, number: int) -> Node:
        """The node of a value; a constant becomes an attribute at its first use."""
        node = self.nodes.get(number)
        if node is None:
            tensor = self.trace.values[number]
            if number in self.fresh:
                tensor = wrap(self.trace.fresh[number])
            name = self.known.get(id(tensor)) or self.known.get(id(raw_array(tensor)))
            if name is None:
                name = f"constant_{sum(k.startswith('constant_') for k in self.root)}"
            self.root[name] = tensor
            with self.graph.inserting_before(self.first()):
                node = self.graph.get_attr(name)
            self.note(number, node)
            if number in self.fresh:
                node = self.graph.call_function(OPS["clone"].function, (node,))
                self.note(number, node)
        return node

    def first(self) -> Node:
        """Where attributes are read: after the placeholders."""
        for node in self.graph.nodes:
            if node.op not in ("placeholder", "get_attr"):
                return node
        return self.graph._root

    def dim(self, dim: Any) -> Any:
        """The node that computes a size; the int itself for a plain one."""
        if not isinstance(dim, _Dim):
            return dim
        kind, first, second = dim.whence
        if kind == "size":
            key: Any = (kind, first, second)
            operands: tuple[Any, ...] = (self.value(first), second)
        else:
            operands = (self.dim(first), self.dim(second))
            key = (kind, *operands)
        node = self.sizes.get(key)
        if node is None:
            if kind == "size":
                node = self.graph.call_method("size", operands)
            else:
                node = self.graph.call_function(getattr(operator, kind), operands)
            node.meta["value"] = int(dim)
            self.sizes[key] = node
        return node

    def add(self, call: Call) -> None:
        args, kwargs = (mapped(mapped(v, lambda r: self.value(r.index), Ref), self.dim, _Dim) for v in
                        (call.args, call.kwargs))  # fmt: skip
        function: Any = operator.setitem if call.op.name == "setitem" else call.function
        node = self.graph.call_function(function, args, kwargs)
        if call.inplace:
            node.meta["writes"] = True
        elif call.outputs and self.shares(call):
            node.meta["view"] = True
        if function is operator.setitem:  # gives nothing; who reads it reads what was written to
            node.meta["tensor_meta"] = _meta(self.trace.values[call.outputs[0]])
            target = self.value(call.refs[0])
            self.nodes[call.outputs[0]] = target
            return
        result = self.trace.results[id(call)]
        if isinstance(result, Ref):
            self.note(result.index, node)
            return
        node.meta["tensor_meta"] = mapped(result, lambda r: _meta(self.trace.values[r.index]), Ref)
        self.take_apart(result, node)

    def shares(self, call: Call) -> bool:
        """Whether what a call gave lies in the memory of its first argument."""
        if getattr(call.function, "op", None) is not None:
            return bool(call.op.view)
        made = self.trace.values
        sources = call.refs
        return bool(sources) and np.may_share_memory(raw_array(made[call.outputs[0]]), raw_array(made[sources[0]]))

    def take_apart(self, result: Any, node: Node) -> None:
        """Nodes for the tensors in what a call returned."""
        for position, part in enumerate(result):
            if part is not None:
                inner = self.graph.call_function(operator.getitem, (node, position))
                if isinstance(part, Ref):
                    self.note(part.index, inner)
                else:
                    self.take_apart(part, inner)


def _meta(tensor: Tensor) -> TensorMetadata:
    return TensorMetadata(
        Size(int(n) for n in tensor.shape), tensor.dtype, tensor.requires_grad, tuple(tensor.stride()), None, False, {}
    )
