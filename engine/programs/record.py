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

import functools
import operator
import warnings
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from engine.core.grad_mode import no_grad
from engine.core.layouts import strided
from engine.dispatch import COMPOSITES, OPS, PUBLIC, import_lazy, with_fact
from engine.fx.graph_module import GraphModule
from engine.fx.node import Node, map_aggregate
from engine.fx.tensor_metadata import TensorMetadata
from engine.jit.scripting.markers import TracerWarning
from engine.nn.modules.module import Module
from engine.programs.casts import Casts
from engine.programs.graph import graph_of, insert_call
from engine.programs.listening import run_recorded
from engine.programs.passes.constants import compute_constants, drop_unused_constants
from engine.programs.recorder import Recorder
from engine.programs.sizes import Dim, Sizes
from engine.programs.values import Call, Ref, mapped, setitem, tensors_in
from engine.tensor import Size, Tensor, raw_array

if TYPE_CHECKING:
    from engine.dispatch.record import Public

__all__ = ["RecordError", "leaf_name", "record"]


class RecordError(RuntimeError):
    """The program cannot be recorded; the message says why."""


def creators() -> set[str]:
    """Return the names of what makes a tensor of given sizes: a constant, unless a size is one of an input."""
    return {name for name, why in with_fact("recorded").items() if why in ("creation", "constant")}


def _noted() -> set[str]:
    """Return the names of functions that are no ops and are always noted themselves."""
    return {name for name, why in with_fact("recorded").items() if why not in ("draw", "inference")}


def leaf_name(function: object) -> str:
    """The name of a function that stays whole; '' for others."""
    return _leaf_names.get(function, "")  # type: ignore[call-overload, no-any-return]  # any key


_leaf_names: dict[FunctionType, str] = {}


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
            COMPOSITES.get(name),
            PUBLIC.get(name) if name in PUBLIC else None,
            vars(functional).get(name),
            vars(Tensor).get(name),
            vars(fft).get(name) if "fft" in name else None,
        ):
            if isinstance(function, FunctionType) and not hasattr(function, "op"):
                found[function] = name
    _leaf_names.update(found)
    return found


def record(
    function: Callable[..., object],
    args: tuple[object, ...] = (),
    kwargs: dict[str, object] | None = None,
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
    RecordError where the program is more than its ops: random numbers, writes to parameters.
    """
    kwargs = kwargs or {}
    inputs = list({id(t): t for t in tensors_in((args, kwargs))}.values())
    whole, sizes, constant = _resolved({*_noted(), *leaves}), Sizes(), creators()
    recorder = Recorder(
        inputs,
        whole=whole,
        makers=frozenset(function for function, name in whole.items() if name in constant),
        sizes=sizes,
        casts=Casts(),
        lenient=lenient,
        warn=None if strict else _warner(),
    )
    with no_grad(), sizes.remembered(recorder):
        run_recorded(lambda: function(*args, **kwargs), inputs, recorder)
    if recorder.failure is not None:
        raise RecordError(f"{_called(function)} cannot be recorded: {recorder.failure}")
    return _Builder(recorder, function, list(names)).build()


def _warner() -> Callable[[str], None]:
    """What warns once for each method that reads values in Python."""
    warned: set[str] = set()

    def warn(name: str) -> None:
        if name not in warned:
            warned.add(name)
            warnings.warn(
                f"Tensor.{name} reads the values of a tensor in Python: what follows from them is fixed in the "
                "recorded program as it is for these inputs",
                TracerWarning,
                stacklevel=5,
            )

    return warn


def _called(function: object) -> str:
    return type(function).__name__ if isinstance(function, Module) else getattr(function, "__name__", repr(function))


class _Builder:
    """A GraphModule from a recorder."""

    def __init__(self, recorder: Recorder, function: Public, names: list[str]) -> None:
        self.recorder, self.function = recorder, function
        self.nodes: dict[int, Node] = {}
        self.graph = graph_of(recorder, recorder.result, nodes=self.nodes, names=names)
        self.sizes: dict[tuple[object, ...], Node] = {}

    def build(self) -> GraphModule:
        calls = [n for n in self.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
        metas = {node: self.meta(call, node) for node, call in zip(calls, self.recorder.calls)}
        for node, call in zip(calls, self.recorder.calls):
            if Sizes.among((call.args, call.kwargs)):
                node.args, node.kwargs = map_aggregate((node.args, node.kwargs), functools.partial(self.size, node))
        compute_constants(self.graph, results=False)
        root = self.attributes()
        for node in self.graph.nodes:
            if node in metas:
                node.meta = metas[node]
            elif "value" in node.meta:
                node.meta = {"tensor_meta": _meta(node.meta["value"])}
            else:
                node.meta = {"value": node.meta["size"]} if "size" in node.meta else {}
            if node.target is setitem:
                node.target = operator.setitem
        name = type(self.function).__name__ if isinstance(self.function, Module) else "Recorded"
        made = GraphModule(root, self.graph, name)
        return made.eval() if not getattr(self.function, "training", False) else made

    def meta(self, call: Call, node: Node) -> dict[str, Any]:
        """What the node of a call says in the end."""
        result = Ref(call.outputs[0]) if call.function is setitem else call.result
        found = {"tensor_meta": mapped(result, lambda r: _meta(self.recorder.values[r.index]), Ref)}  # type: ignore[arg-type]  # held
        if call.inplace:
            found["writes"] = True
        elif node.meta["view"]:
            found["view"] = True
        return found

    def size(self, before: Node, size: object) -> object:
        """The node that computes a size, before one that reads it; what is none of these itself."""
        if not isinstance(size, Dim):
            return size
        kind, first, second = size.whence
        operands: tuple[object, ...]
        if kind == "size":
            operands = self.nodes[first], second
        else:
            operands = self.size(before, first), self.size(before, second)
        node = self.sizes.get((kind, *operands))
        if node is None:
            with self.graph.inserting_before(before):
                if kind == "size":
                    node = self.graph.call_method("size", operands)
                else:
                    node = self.graph.call_function(getattr(operator, kind), operands)
            node.meta.update(size=int(size), derived=True)
            self.sizes[kind, *operands] = node
        return node

    def attributes(self) -> dict[str, Tensor]:
        """Make attributes of the constants, in the order in which they are read; their tensors by name.

        What the run made and the program writes to is copied first.
        """
        known = self.known()
        root: dict[str, Tensor] = {}
        calls = self.first("placeholder")
        for node in dict.fromkeys(s for each in self.graph.nodes for s in each.all_input_nodes if "constant" in s.meta):
            tensor = node.meta["constant" if "fresh" in node.meta else "value"]
            name = known.get(id(tensor)) or known.get(id(raw_array(tensor)))
            if name is None:
                name = f"constant_{sum(k.startswith('constant_') for k in root)}"
            root[name] = tensor
            node.op, node.target = "get_attr", name
            node._rename(self.graph._target_to_str(name))
            calls.prepend(node)
        for node in [n for n in self.graph.nodes if n.op == "get_attr" and "fresh" in n.meta]:
            copied = insert_call(self.graph, OPS["clone"].function, (node,), node.meta["kind"])
            copied.meta["value"] = node.meta["value"]
            for user in [user for user in node.users if user is not copied]:
                user.replace_input_with(node, copied)
        drop_unused_constants(self.graph)
        return root

    def known(self) -> dict[int, str]:
        """The names of parameters and buffers, by the ids of these and of their arrays (`.data`, `.detach()`)."""
        found: dict[int, str] = {}
        if isinstance(self.function, Module):
            for name, tensor in (*self.function.named_parameters(), *self.function.named_buffers()):
                found.setdefault(id(tensor), name)
                if tensor.layout is strided:
                    found.setdefault(id(raw_array(tensor)), name)
        return found

    def first(self, before: str) -> Node:
        """Return the first node that is no such."""
        return next(node for node in self.graph.nodes if node.op != before)


def _meta(tensor: Tensor) -> TensorMetadata:
    return TensorMetadata(
        Size(int(n) for n in tensor.shape), tensor.dtype, tensor.requires_grad, tuple(tensor.stride()), None, False, {}
    )
