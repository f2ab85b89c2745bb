"""The calls of a trace as a graph, and what is done to it before its calls become steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.plan.tracing import Ref, Trace, refs_in
from engine.tensor import raw_array, wrap

__all__ = ["Graph", "compute_constants", "drop_unused", "flatten_means", "fold_norms", "over_pixels"]

_F32 = np.dtype("float32")


class Graph:
    """The calls of a trace, changed pass by pass."""

    def __init__(self, trace: Trace) -> None:
        self.calls = list(trace.calls)
        self.inputs = list(trace.inputs)
        self.result = trace.result
        self.values = {i: t for i, t in enumerate(trace.values)}  # None for what the trace did not hold
        self.kinds = dict(enumerate(trace.kinds))
        self.derived = list(trace.derived)
        self.constants: dict[int, Any] = {i: trace.values[i] for i in trace.constants}
        self.fresh = dict(trace.fresh)
        self.outputs = {r.index for r in refs_in(trace.result)}
        self.size = len(trace.values)
        self.groups = self._aliases()

    def _aliases(self) -> dict[int, int]:
        """For each value one number for all that share its memory."""
        root: dict[int, int] = {}

        def find(i: int) -> int:
            while root.get(i, i) != i:
                i = root[i]
            return i

        for call in self.calls:
            if call.inplace or call.op.view:
                for out in call.outputs:
                    root[find(out)] = find(call.refs[0])
        return {i: find(i) for i in range(self.size)}

    def constant(self, array: Any) -> Ref:
        """A new constant."""
        number = self.value(array.shape, array.dtype, False)
        self.constants[number] = self.values[number] = wrap(array)
        return Ref(number)

    def value(self, shape: tuple[int, ...], dtype: Any = _F32, derived: bool = True) -> int:
        """A new value, which no call of the trace gave."""
        number = self.size
        self.size += 1
        self.values[number] = None
        self.kinds[number] = shape, dtype
        self.groups[number] = number
        self.derived.append(derived)
        return number

    def consumers(self) -> dict[int, list[int]]:
        """The positions of the calls that read each value, once a reading."""
        found: dict[int, list[int]] = {}
        for i, call in enumerate(self.calls):
            for number in call.refs:
                found.setdefault(number, []).append(i)
        return found

    def written(self, number: int, calls: Any) -> bool:
        """Whether anything writes to the memory of a value from the first to the last of these calls."""
        positions = [i for i, call in enumerate(self.calls) if call in calls]
        between = self.calls[min(positions) : max(positions)]
        return any(c.inplace and self.groups[c.refs[0]] == self.groups[number] for c in between)

    def shape(self, number: int) -> tuple[int, ...]:
        return tuple(self.kinds[number][0])

    def single(self, number: int) -> bool:
        """Whether a value is float32."""
        return bool(self.kinds[number][1] == _F32)

    def array(self, value: Any) -> Any:
        """The array of a constant, or None for what is none."""
        if isinstance(value, Ref) and value.index in self.constants:
            return raw_array(self.constants[value.index]).view(np.ndarray)
        return None


def compute_constants(graph: Graph) -> None:
    """What does not depend on the inputs is what the trace saw, unless somebody writes to it or it is a result."""
    groups = graph.groups
    written = {groups[call.refs[0]] for call in graph.calls if call.inplace}
    given = {groups[i] for i in graph.outputs}
    # what forward made without an op and writes to, or gives away, is made anew at each call
    graph.fresh = {i: a for i, a in graph.fresh.items() if groups[i] in written | given}
    for i in graph.fresh:
        del graph.constants[i]
    left = []
    for call in graph.calls:
        mine = {groups[i] for i in call.outputs}
        if call.inplace or any(graph.derived[i] for i in call.outputs) or mine & (written | given):
            left.append(call)
        else:
            graph.constants.update({i: graph.values[i] for i in call.outputs})
    graph.calls = left


def drop_unused(graph: Graph) -> None:
    wanted = set(graph.outputs)
    left = []
    for call in reversed(graph.calls):
        if call.inplace or any(i in wanted for i in call.outputs):
            wanted.update(call.refs)
            left.append(call)
    graph.calls = left[::-1]


def fold_norms(graph: Graph) -> None:
    """Batch norm after a convolution or a linear layer: another weight and bias of that layer."""
    makers = {call.outputs[0]: call for call in graph.calls if len(call.outputs) == 1}
    consumers = graph.consumers()
    for call in list(graph.calls):
        if call.op.name != "batch_norm_eval":
            continue
        norm = call.bound()
        source = norm["input"].index
        maker = makers.get(source)
        if maker is None or len(consumers[source]) != 1 or source in graph.outputs:
            continue
        if maker.op.name not in ("convolution", "linear"):
            continue
        layer = maker.bound()
        axis = 1 if layer.get("transposed") else 0
        if axis and layer["groups"] != 1:
            continue
        if maker.op.name == "linear" and len(graph.shape(source)) != 2:
            continue  # channels are not the last dim
        weight, bias = graph.array(layer["weight"]), graph.array(layer["bias"])
        numbers = [graph.array(norm[n]) for n in ("running_mean", "running_var", "weight", "bias")]
        if weight is None or (bias is None and layer["bias"] is not None) or weight.ndim < 2:
            continue
        if any(a is None and norm[n] is not None for a, n in zip(numbers[2:], ("weight", "bias"))):
            continue
        mean, var, scale, shift = numbers
        if mean is None or var is None:
            continue
        factor = 1 / np.sqrt(var.astype(np.float64) + norm["eps"])
        if scale is not None:
            factor = factor * scale
        level = -mean * factor if bias is None else (bias - mean.astype(np.float64)) * factor
        if shift is not None:
            level = level + shift
        by = [1] * weight.ndim
        by[axis] = -1
        scaled = (weight * factor.reshape(by)).astype(weight.dtype)
        layer["weight"] = graph.constant(np.ascontiguousarray(scaled))
        layer["bias"] = graph.constant(level.astype(weight.dtype))
        maker.args = tuple(layer[p] for p in maker.op.positional)
        maker.kwargs = {p: layer[p] for p in maker.op.keyword}
        maker.outputs = call.outputs
        graph.calls.remove(call)
        makers[call.outputs[0]] = maker
        consumers = graph.consumers()


def over_pixels(graph: Graph, call: Any) -> bool:
    """Whether a call is the mean over all of *size, of float32 (N, C, *size)."""
    given = call.bound()
    source = given["input"]
    if call.op.name != "mean" or not isinstance(source, Ref) or given["dim"] is None or given["dtype"] is not None:
        return False
    ndim, dims = len(graph.shape(source.index)), given["dim"]
    dims = dims if isinstance(dims, tuple | list) else (dims,)
    return ndim > 2 and graph.single(source.index) and sorted(d % ndim for d in dims) == list(range(2, ndim))


def flatten_means(graph: Graph) -> None:
    """The mean over *size, then a view of the (N, C, 1, ...) as (N, C): the mean that is (N, C) at once."""
    consumers = graph.consumers()
    for call in list(graph.calls):
        if call.op.name != "mean" or not over_pixels(graph, call) or not call.bound()["keepdim"]:
            continue
        made, given = call.outputs[0], call.bound()
        uses = consumers.get(made, [])
        if len(uses) != 1 or made in graph.outputs:
            continue
        after = graph.calls[uses[0]]
        if after.op.name not in ("view_size", "squeeze") or graph.shape(after.outputs[0]) != graph.shape(made)[:2]:
            continue
        given["keepdim"] = False
        call.args = tuple(given[p] for p in call.op.positional)
        call.kwargs = {p: given[p] for p in call.op.keyword}
        call.outputs = after.outputs
        graph.calls.remove(after)
        consumers = graph.consumers()
