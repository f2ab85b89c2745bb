"""From a trace to a plan: folding, fusing, packing, and where the memory between steps lies.

A value of the trace is a number.  A plan keeps its values in a list, the environment: Tensors, as the ops take and give
them.  A *lowered* step (convolution, linear layer or pooling in oneDNN, with what follows it) works on memory; its
result lies in a block of the plan, shared with values that live at other times, unless it escapes: a result of the
module, or a value that a view or an in-place op may keep hold of, lives in memory of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.dispatch.binder import onednn_kernels
from engine.layouts import (
    ChannelsLast,
    asks_channels_last,
    empty_channels_last,
    in_torch_order,
    lies_channels_last,
    to_channels_last,
)
from engine.plan import chains
from engine.plan.tracing import Call, Ref, Trace, Unsupported, mapped, refs_in
from engine.tensor import Tensor, raw_array, rewrap, wrap

__all__ = ["InferencePlan", "lower"]

_F32 = np.dtype("float32")
Environment = list[Any]


class InferencePlan:
    """Steps over an environment.  `plan(tensors)` for the inputs in order gives what the module gives."""

    def __init__(self, graph: _Graph, steps: list[_Step]) -> None:
        self.inputs, self.result = graph.inputs, graph.result
        self.template: Environment = [None] * graph.size
        for number, tensor in graph.constants.items():
            self.template[number] = tensor
        last: dict[int, int] = {}
        for i, step in enumerate(steps):
            for number in (*step.reads, *step.writes):
                last[number] = i
        kept = {*graph.outputs, *graph.constants}
        drops: list[list[int]] = [[] for _ in steps]
        for number, i in last.items():
            if number not in kept:
                drops[i].append(number)
        self.steps = [(step.run, drop) for step, drop in zip(steps, drops)]
        self.names = [step.name for step in steps]

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """The results, in memory of their own."""
        environment = self.template.copy()
        for number, tensor in zip(self.inputs, tensors, strict=True):
            environment[number] = tensor
        for run, drop in self.steps:
            run(environment)
            for number in drop:
                environment[number] = None
        return mapped(self.result, lambda r: environment[r.index], Ref)

    def __repr__(self) -> str:
        return "\n".join(self.names)


class _Step:
    """`run(environment)`; the numbers it reads and writes."""

    def __init__(self, name: str, run: Any, reads: Sequence[int], writes: Sequence[int]) -> None:
        self.name, self.run, self.reads, self.writes = name, run, reads, writes


class _Graph:
    """The calls of a trace, changed pass by pass."""

    def __init__(self, trace: Trace) -> None:
        self.calls = list(trace.calls)
        self.inputs = list(trace.inputs)
        self.result = trace.result
        self.values = {i: t for i, t in enumerate(trace.values)}
        self.derived = list(trace.derived)
        self.constants = {i: trace.values[i] for i in trace.constants}
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
        number = self.size
        self.size += 1
        self.constants[number] = self.values[number] = wrap(array)
        self.groups[number] = number
        self.derived.append(False)
        return Ref(number)

    def consumers(self) -> dict[int, list[int]]:
        """The positions of the calls that read each value, once a reading."""
        found: dict[int, list[int]] = {}
        for i, call in enumerate(self.calls):
            for number in call.refs:
                found.setdefault(number, []).append(i)
        return found

    def shape(self, number: int) -> tuple[int, ...]:
        return tuple(raw_array(self.values[number]).shape)

    def single(self, number: int) -> bool:
        """Whether a value is float32."""
        return raw_array(self.values[number]).dtype == _F32

    def array(self, value: Any) -> Any:
        """The array of a constant, or None for what is none."""
        if isinstance(value, Ref) and value.index in self.constants:
            return raw_array(self.constants[value.index]).view(np.ndarray)
        return None


def lower(trace: Trace) -> InferencePlan:
    """The plan of a trace.  Unsupported where there is none."""
    graph = _Graph(trace)
    _compute_constants(graph)
    _drop_unused(graph)
    _fold_norms(graph)
    _drop_unused(graph)
    if not graph.calls:
        raise Unsupported("it calls no op on its input")
    made = [_copying(graph.fresh)] if graph.fresh else []
    if onednn_kernels():
        return InferencePlan(graph, made + _Lowering(graph).steps())
    return InferencePlan(graph, made + chains.joined(graph, [(c, _generic(c)) for c in graph.calls], _Step))


def _copying(fresh: dict[int, Any]) -> _Step:
    def run(environment: Environment) -> None:
        for number, array in fresh.items():
            environment[number] = wrap(array.copy())

    return _Step("copy", run, [], list(fresh))


# --- passes


def _compute_constants(graph: _Graph) -> None:
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


def _drop_unused(graph: _Graph) -> None:
    wanted = set(graph.outputs)
    left = []
    for call in reversed(graph.calls):
        if call.inplace or any(i in wanted for i in call.outputs):
            wanted.update(call.refs)
            left.append(call)
    graph.calls = left[::-1]


def _fold_norms(graph: _Graph) -> None:
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


# --- ops as they are


def _generic(call: Call) -> _Step:
    """The op itself, on Tensors."""
    function, outputs = call.function, call.outputs
    flat = not call.kwargs and not any(refs_in(a) for a in call.args if not isinstance(a, Ref))
    template = list(call.args)
    places = [(i, a.index) for i, a in enumerate(call.args) if isinstance(a, Ref)]
    one = outputs[0] if len(outputs) == 1 else None
    written = call.refs[0] if call.inplace else None

    def run(environment: Environment) -> None:
        if flat:
            args = template.copy()
            for i, number in places:
                args[i] = environment[number]
            result = function(*args)
        else:
            given, named = mapped((call.args, call.kwargs), lambda r: environment[r.index], Ref)
            result = function(*given, **named)
        if written is not None:
            environment[outputs[0]] = environment[written]
        elif one is not None and isinstance(result, Tensor):
            environment[one] = result
        else:
            for number, tensor in zip(outputs, _tensors(result), strict=True):
                environment[number] = tensor

    return _Step(function.__name__, run, call.refs, outputs)


def _tensors(result: Any) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(result, found.append, Tensor)
    return found


# --- oneDNN


def _activation(call: Call) -> tuple | None:
    """An element-wise op as ("eltwise", algorithm, alpha, beta); None if it is none of oneDNN's."""
    from engine.backends.onednn import _abi

    name = call.op.name
    if name not in _ACTIVATIONS:
        return None
    given = call.bound()
    algorithm, alpha, beta = _ACTIVATIONS[name](given)
    if algorithm is None or any(isinstance(v, Ref) for k, v in given.items() if k != "input"):
        return None
    return "eltwise", getattr(_abi, algorithm), float(alpha), float(beta)


_ACTIVATIONS: dict[str, Callable[[dict], tuple]] = {
    "relu": lambda a: ("RELU", 0, 0),
    "leaky_relu": lambda a: ("RELU", a["negative_slope"], 0),
    "hardtanh": lambda a: ("CLIP", a["min_val"], a["max_val"]),
    "sigmoid": lambda a: ("LOGISTIC", 0, 0),
    "tanh": lambda a: ("TANH", 0, 0),
    "silu": lambda a: ("SWISH", 1, 0),
    "hardswish": lambda a: ("HARDSWISH", 1 / 6, 0.5),
    "gelu": lambda a: ("GELU_TANH" if a["approximate"] == "tanh" else "GELU_ERF", 0, 0),
    "elu": lambda a: ("ELU" if a["scale"] == a["input_scale"] == 1 else None, a["alpha"], 0),
}
_LAYERS = frozenset(["convolution", "linear"])
_POOLS = frozenset(["max_pool2d_values", "max_pool3d_values", "avg_pool2d_values", "avg_pool3d_values"])


def _pooling(call: Call) -> tuple | None:
    """The arguments of `arrays.pooling` after its arrays; None where oneDNN counts otherwise."""
    from engine.backends.onednn import _abi
    from engine.ops.onednn.conv import average

    given = call.bound()
    kernel, stride, padding = (tuple(given[n]) for n in ("kernel_size", "stride", "padding"))
    if call.op.name[:3] == "max":
        return _abi.POOLING_MAX, kernel, stride, padding, tuple(given["dilation"])
    how = (given[n] for n in ("ceil_mode", "count_include_pad", "divisor_override"))
    algorithm = average(kernel, padding, *how)
    return None if algorithm is None else (algorithm, kernel, stride, padding, (1,) * len(kernel))


class _Fused:
    """A layer and what follows it: `post` a chain of ("eltwise", ...) and ("add", number of the other operand)."""

    def __init__(self, call: Call, position: int) -> None:
        self.call, self.position, self.post = call, position, list[tuple]()
        self.out = call.outputs[0]
        self.image = call.op.name != "linear"  # (N, C, *size), channels-last; else rows

    @property
    def others(self) -> list[int]:
        return [p[1] for p in self.post if p[0] == "add"]

    @property
    def reads(self) -> list[int]:
        return [self.call.bound()["input"].index, *self.others]


class _Lowering:
    """Chooses what becomes a step in oneDNN, and the memory of each result."""

    def __init__(self, graph: _Graph) -> None:
        self.graph = graph
        self.consumers = graph.consumers()
        self.taken: set[int] = set()  # positions of calls that are part of an earlier layer
        self.blocks: list[np.ndarray] = []  # bytes
        self.free: list[int] = []
        self.block_of: dict[int, int] = {}  # value -> its block
        self.buffers: dict[int, np.ndarray] = {}  # value -> its array there
        self.image: dict[int, bool] = {}  # lowered value -> whether it lies channels-last
        self.shown: set[int] = set()  # values that the environment must hold
        self.escaping: set[int] = set()

    def steps(self) -> list[_Step]:
        order: list[tuple[int, Any]] = []
        for i, call in enumerate(self.graph.calls):
            if i in self.taken:
                continue
            fused = self._layer(i, call) if call.op.name in _LAYERS else None
            if fused is None and call.op.name in _POOLS and self._pools(call):
                order.append((i, _Fused(call, i)))
            else:
                order.append((i, call) if fused is None else (fused.position, fused))
        order.sort(key=lambda entry: entry[0])
        entries = [entry for _, entry in order]
        self.image = {e.out: e.image for e in entries if isinstance(e, _Fused)}
        for entry in entries:  # what is read otherwise than it lies goes through the environment
            for number in entry.refs if isinstance(entry, Call) else entry.reads:
                if isinstance(entry, Call) or self.image.get(number, entry.image) != entry.image:
                    self.shown.add(number)
        self.escaping = self._escapes(entries)
        last: dict[int, int] = {}
        for i, entry in enumerate(entries):
            for number in entry.refs if isinstance(entry, Call) else entry.reads:
                last[number] = i
        made: list[tuple[Call | None, _Step]] = []
        for i, entry in enumerate(entries):
            if isinstance(entry, Call):
                made.append((entry, _generic(entry)))
            else:
                made.append((None, self._lowered(entry, {n for n in entry.reads if last[n] == i})))
            for number, at in last.items():
                if at == i and number in self.block_of:
                    self._give_back(number)
        return chains.joined(self.graph, made, _Step)

    # --- what belongs to a layer

    def _pools(self, call: Call) -> bool:
        """Whether oneDNN pools so."""
        from engine.backends.onednn import arrays

        source, out = call.bound()["input"].index, call.outputs[0]
        shape, how = self.graph.shape(source), _pooling(call)
        if how is None or not self.graph.single(source) or not math.prod(shape):
            return False
        if len(shape) not in (4, 5):
            return False
        return bool(arrays.pooling(self._example(source, True), self._example(out, True), *how))

    def _layer(self, position: int, call: Call) -> _Fused | None:
        """A layer with constant float32 weights, and the calls after it that can be a part of it."""
        graph, given = self.graph, call.bound()
        source, weight = given["input"], graph.array(given["weight"])
        if (
            not isinstance(source, Ref) or weight is None or weight.dtype != _F32 or weight.ndim < 2
            or given.get("transposed") or not graph.single(source.index)
            or (given["bias"] is not None and graph.array(given["bias"]) is None)
            or not math.prod(graph.shape(source.index)) or not math.prod(graph.shape(call.outputs[0]))
            or (call.op.name == "convolution" and not len(graph.shape(source.index)) == weight.ndim in (4, 5))
            or (call.op.name == "linear" and weight.ndim != 2)
        ):  # fmt: skip
            return None
        fused = _Fused(call, position)
        while len(fused.post) < 4:
            uses = self.consumers.get(fused.out, [])
            if len(uses) != 1 or fused.out in graph.outputs or uses[0] in self.taken:
                break
            after = graph.calls[uses[0]]
            before = fused.out, fused.position
            post = self._follows(after, fused)
            if post is None or self._written_between(fused, uses[0]):
                break
            fused.post.append(post)
            fused.out, fused.position = after.outputs[0], uses[0]
            if self._prepared(fused, *self._examples(fused), self._posts(fused, None)) is None:
                fused.post.pop()
                fused.out, fused.position = before
                break
            self.taken.add(uses[0])
        if not fused.post and (self._prepared(fused, *self._examples(fused), ()) is None):  # else tried already
            return None
        return fused

    def _follows(self, call: Call, fused: _Fused) -> tuple | None:
        if call.op.name != "add":
            return _activation(call)
        given = call.bound()
        left, right, graph = given["input"], given["other"], self.graph
        if given["alpha"] != 1 or not isinstance(left, Ref) or not isinstance(right, Ref):
            return None
        if fused.others or graph.shape(left.index) != graph.shape(right.index):
            return None
        if call.inplace and left.index != fused.out:
            return None  # the other operand is what is written to
        other = right.index if left.index == fused.out else left.index
        return ("add", other) if graph.single(other) else None

    def _written_between(self, fused: _Fused, until: int) -> bool:
        """Whether something that the layer reads is written to before it would run."""
        groups = self.graph.groups
        read = {groups[n] for n in fused.reads}
        return any(
            call.inplace and groups[call.refs[0]] in read
            for i, call in enumerate(self.graph.calls[fused.position + 1 : until], fused.position + 1)
            if i not in self.taken
        )

    # --- memory

    def _escapes(self, entries: list[Any]) -> set[int]:
        found = set(self.graph.outputs)
        for entry in entries:
            if isinstance(entry, Call) and (entry.inplace or entry.op.view):
                found.update(entry.refs)
        return found

    def _block(self, number: int, nbytes: int) -> np.ndarray:
        """A free block of the plan for a value: the smallest that is large enough, else a new one."""
        fitting = [b for b in self.free if self.blocks[b].nbytes >= nbytes]
        if fitting:
            chosen = min(fitting, key=lambda b: self.blocks[b].nbytes)
            self.free.remove(chosen)
        else:
            from engine.backends.onednn.primitives import aligned

            chosen = len(self.blocks)
            self.blocks.append(aligned(nbytes))
        self.block_of[number] = chosen
        return self.blocks[chosen]

    def _give_back(self, number: int) -> None:
        self.free.append(self.block_of.pop(number))

    def _buffer(self, number: int, image: bool) -> np.ndarray:
        """The array of a value that lives in the plan: channels-last, or rows."""
        shape = self.graph.shape(number)
        flat = self._block(number, 4 * math.prod(shape))[: 4 * math.prod(shape)].view(np.float32)
        return _shaped(flat, shape, image)

    # --- steps

    def _lowered(self, entry: _Fused, dying: set[int]) -> _Step:
        """The step of an entry."""
        number = entry.out
        place: np.ndarray | None = None
        if number not in self.escaping:
            for other in entry.others:  # the sum goes where its other operand lies
                if (
                    other in dying and other in self.block_of and other != entry.reads[0]
                    and self.image[other] == entry.image
                ):  # fmt: skip
                    place = self.buffers[other]
                    self.block_of[number] = self.block_of.pop(other)
            if place is None:
                place = self._buffer(number, entry.image)
            self.buffers[number] = place
        if entry.call.op.name in _POOLS:
            return self._pool(entry, place)
        return self._layer_step(entry, place)

    def _example(self, number: int, image: bool) -> np.ndarray:
        """An array that lies as a value does when a step reads or writes it."""
        shape = self.graph.shape(number)
        if image:
            return empty_channels_last(shape, _F32).view(np.ndarray)
        return np.empty((math.prod(shape[:-1]), shape[-1]), _F32)

    def _examples(self, fused: _Fused) -> tuple[np.ndarray, np.ndarray]:
        return self._example(fused.reads[0], fused.image), self._example(fused.out, fused.image)

    def _posts(self, entry: _Fused, place: np.ndarray | None) -> list[tuple]:
        """The chain for oneDNN; an operand that lies in `place` is added where it is."""
        from engine.backends.onednn import _abi

        chain: list[tuple] = []
        for p in entry.post:
            if p[0] != "add":
                chain.append(p)
            elif place is not None and self.buffers.get(p[1]) is place:
                chain.append(("sum", 1.0))
            else:
                chain.append(("binary", _abi.BINARY_ADD))
        return chain

    def _prepared(self, entry: _Fused, x: Any, out: Any, chain: Sequence[tuple]) -> Any:
        from engine.backends.onednn import prepared

        given = entry.call.bound()
        weight, bias = (self.graph.array(given[n]) for n in ("weight", "bias"))
        weight = np.ascontiguousarray(weight) if not entry.image else weight
        if bias is not None:
            bias = np.ascontiguousarray(bias)
            if bias.shape != weight.shape[:1] or bias.dtype != _F32:
                return None
        if not entry.image:
            return prepared.product(x, weight, bias, out, chain)
        geometry = [tuple(given[n]) for n in ("stride", "padding", "dilation")]
        return prepared.convolution(x, weight, bias, out, *geometry, given["groups"], chain)

    def _layer_step(self, entry: _Fused, place: np.ndarray | None) -> _Step:
        from engine.backends.onednn.primitives import address

        x, out = self._examples(entry)
        chain = self._posts(entry, place)
        run = self._prepared(entry, x, out, chain)
        if run is None:
            raise Unsupported(f"oneDNN has no kernel for {entry.call.op.name} with {chain}")
        image, number = entry.image, entry.out
        adds = [p for p in entry.post if p[0] == "add"]
        others = [p[1] for p in adds if place is None or self.buffers.get(p[1]) is not place]
        sources = [self._source(n, image) for n in (entry.reads[0], *others)]
        weight = self.graph.constants[entry.call.bound()["weight"].index]
        finish = self._finish(number, place, image, asks_channels_last(raw_array(weight)))
        name = "+".join([entry.call.op.name, *(p[0] for p in chain)])
        if place is not None and all(isinstance(s, np.ndarray) for s in sources):
            # its source was written by a step of this plan, the first of which has asked whether oneDNN is ready
            again = run.always(address(sources[0]), address(place), *map(address, sources[1:]))
            if number not in self.shown:
                return _Step(name, again, entry.reads, [number])

            def fixed(environment: Environment) -> None:
                again()
                finish(environment)

            return _Step(name, fixed, entry.reads, [number])

        def step(environment: Environment) -> None:
            arrays = [s if isinstance(s, np.ndarray) else s(environment) for s in sources]
            made = finish(environment)
            run(address(arrays[0]), address(made), *map(address, arrays[1:]))

        return _Step(name, step, entry.reads, [number])

    def _pool(self, entry: _Fused, place: np.ndarray | None) -> _Step:
        from engine.backends.onednn import arrays

        how = _pooling(entry.call)
        assert how is not None
        source = self._source(entry.reads[0], True)
        finish = self._finish(entry.out, place, True, False)

        def step(environment: Environment) -> None:
            x = source if isinstance(source, np.ndarray) else source(environment)
            arrays.pooling(x, finish(environment), *how)

        return _Step(entry.call.op.name, step, entry.reads, [entry.out])

    def _source(self, number: int, image: bool) -> Any:
        """The array a value always lies in, or a function that takes it from the environment."""
        if number in self.buffers and self.image[number] == image:
            return self.buffers[number]
        if image:
            return lambda environment: _channels_last(raw_array(environment[number]))
        return lambda environment: np.ascontiguousarray(in_torch_order(raw_array(environment[number])))

    def _finish(self, number: int, place: np.ndarray | None, image: bool, asked: bool) -> Any:
        """What gives the array for a result, and the environment its Tensor."""
        if place is not None:
            shown = number in self.shown
            converted = place.view(ChannelsLast) if image else place

            def kept(environment: Environment) -> np.ndarray:
                if shown:
                    environment[number] = rewrap(converted)
                return place

            return kept
        shape = self.graph.shape(number)

        def fresh(environment: Environment) -> np.ndarray:
            made = empty_channels_last(shape, _F32) if image else empty(shape, _F32)
            environment[number] = rewrap(made.view(np.ndarray) if asked else made)
            return made.view(np.ndarray)

        return fresh


def _shaped(flat: np.ndarray, shape: tuple[int, ...], image: bool) -> np.ndarray:
    """Elements as an array of logical `shape` whose channels are innermost, or contiguous."""
    if not image:
        return flat.reshape(shape)
    converted = flat.reshape(shape[0], *shape[2:], shape[1])
    return converted.transpose(0, len(shape) - 1, *range(1, len(shape) - 1))


def _channels_last(array: Any) -> np.ndarray:
    found = array if lies_channels_last(array) else to_channels_last(array)
    return found.view(np.ndarray)
