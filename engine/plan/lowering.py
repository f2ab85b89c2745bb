"""From a trace to a plan: folding, fusing, packing, and where the memory between steps lies.

A value of the trace is a number.  A plan keeps its values in a list, the environment: Tensors, as the ops take and give
them.  A *lowered* step (convolution, linear layer or pooling in oneDNN, with what follows it) works on memory; its
result lies in a block of the plan, shared with values that live at other times, unless it escapes: a result of the
module, or a value that a view or an in-place op may keep hold of, lives in memory of its own.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.cpu.keeping import aligned
from engine.dispatch.binder import onednn_kernels
from engine.layouts import (
    INNER,
    ChannelsLast,
    asks_channels_last,
    empty_channels_last,
    in_torch_order,
    lies_channels_last,
    to_channels_last,
)
from engine.plan import attention, chains, parts, programs, written
from engine.plan.graph import (
    Graph,
    compute_constants,
    drop_unused,
    flatten_means,
    fold_norms,
    over_pixels,
)
from engine.plan.layers import LAYERS, MEANS, POOLS, Fused, activation, pooling
from engine.plan.tracing import Call, Ref, Trace, Unsupported, mapped, refs_in
from engine.tensor import Tensor, raw_array, rewrap, wrap

__all__ = ["InferencePlan", "lower"]

_F32 = np.dtype("float32")
_NARROW = {"bfloat16": np.dtype("uint16"), "int8": np.dtype("int8")}  # the arrays: of bfloat16 its bits
_SCORES = -1  # stands for the scores of attention where values have numbers
Environment = list[Any]


class InferencePlan:
    """Steps over an environment.  `plan(tensors)` for the inputs in order gives what the module gives.

    error: the largest absolute difference from the module's own results on the first input, and that as a part of the
    largest value there; None where nothing was compared (`verify=False`).
    found: the tensors that the module found, whose elements may be part of it.
    """

    error: tuple[float, float] | None = None
    found: Sequence[Tensor] = ()

    def __init__(self, graph: Graph, steps: list[_Step]) -> None:
        self.inputs, self.result = graph.inputs, graph.result
        self.template: Environment = [None] * graph.size
        read = {number for step in steps for number in step.reads} | graph.outputs
        for number in read.intersection(graph.constants):  # weights are in steps, as these have packed them
            self.template[number] = graph.constants[number]
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


def lower(trace: Trace, narrow: str = "") -> InferencePlan:
    """The plan of a trace.  Unsupported where there is none.

    narrow: "bfloat16" or "int8", the type of weights of convolutions and linear layers, of what they read, and of what
    lies between them.  In int8 the largest magnitudes that the trace saw are 127; what is added stays float32.
    """
    graph = Graph(trace)
    compute_constants(graph)
    drop_unused(graph)
    fold_norms(graph)
    flatten_means(graph)
    written.as_layer_norms(graph)
    written.as_gelus(graph)
    if onednn_kernels() and not narrow:
        written.as_linears(graph)
        attention.gather(graph)
    drop_unused(graph)
    if not graph.calls:
        raise Unsupported("it calls no op on its input")
    made = [_copying(graph.fresh)] if graph.fresh else []
    if onednn_kernels():
        return InferencePlan(graph, made + _Lowering(graph, narrow).steps())
    _convert_weights(graph)
    return InferencePlan(graph, made + chains.joined(graph, [(c, _generic(c)) for c in graph.calls], _Step))


def _convert_weights(graph: Graph) -> None:
    """Constant weights of convolutions as converted tensors: what kernels make of them is kept with those."""
    for call in graph.calls:
        weight = call.bound()["weight"] if call.op.name == "convolution" else None
        array = graph.array(weight)
        if isinstance(weight, Ref) and array is not None and array.dtype == _F32 and array.flags.c_contiguous:
            graph.constants[weight.index] = rewrap(array.view(ChannelsLast))


def _copying(fresh: dict[int, Any]) -> _Step:
    def run(environment: Environment) -> None:
        for number, array in fresh.items():
            environment[number] = wrap(array.copy())

    return _Step("copy", run, [], list(fresh))


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


class _Lowering:
    """Chooses what becomes a step in oneDNN, and the memory of each result."""

    def __init__(self, graph: Graph, narrow: str = "") -> None:
        self.graph = graph
        self.narrowing = narrow
        self.narrowed: set[int] = set()  # results of the layers that read and multiply narrow elements
        self.bits: set[int] = set()  # values that lie in narrow elements
        self.scales: dict[int, float] = {}  # of values in int8
        self.room = np.empty(0, np.uint8)  # for what a layer reads, in narrow elements
        self.consumers: dict[int, list[int]] = {}  # of each value, by position
        self.taken: set[int] = set()  # positions of calls that are part of an earlier layer
        self.blocks: list[np.ndarray] = []  # bytes
        self.free: list[int] = []
        self.block_of: dict[int, int] = {}  # value -> its block
        self.buffers: dict[int, np.ndarray] = {}  # value -> its array there
        self.image: dict[int, bool] = {}  # lowered value -> whether it lies channels-last
        self.chosen: dict[int, Any] = {}  # value -> what computes it
        self.readers: Counter[int] = Counter()  # of each value
        self.shown: set[int] = set()  # values that the environment must hold
        self.escaping: set[int] = set()

    def steps(self) -> list[_Step]:
        order: list[tuple[int, Any]] = []
        found_attention = {} if self.narrowing else attention.find(self.graph, lambda call: _generic(call).run)
        self.consumers = self.graph.consumers()
        for one in found_attention.values():
            self.taken.update(one.positions)
        for i, call in enumerate(self.graph.calls):
            if i in found_attention:
                order.append((i, found_attention[i]))
            if i in self.taken:
                continue
            fused = self._layer(i, call) if call.op.name in LAYERS else None
            pooled = (call.op.name in POOLS and self._pools(call)) or (call.op.name in MEANS and self._means(call))
            if fused is None and pooled:
                order.append((i, Fused(call, i)))
            else:
                order.append((i, call) if fused is None else (fused.position, fused))
        rows = {e.out for _, e in order if isinstance(e, Fused) and not e.makes_image}
        for one in found_attention.values():
            if rows.issuperset(one.layers):
                self.shown.update(one.late)
            else:  # a layer that is an op as it is
                order.remove((one.position, one))
                order += [(i, c) for i in one.positions for c in attention.standing_for(self.graph.calls[i])]
        order.sort(key=lambda entry: entry[0])
        entries = [entry for _, entry in order]
        self.image = {e.out: e.makes_image for e in entries if not isinstance(e, Call)}
        for entry in entries:  # what is read otherwise than it lies goes through the environment
            for number in entry.refs if isinstance(entry, Call) else entry.reads:
                if isinstance(entry, Call) or self.image.get(number, entry.image) != entry.image:
                    self.shown.add(number)
        self.escaping = self._escapes(entries)
        if self.narrowing:
            self._narrow([e for e in entries if isinstance(e, Fused)])
        last: dict[int, int] = {}
        for i, entry in enumerate(entries):
            for number in entry.refs if isinstance(entry, Call) else entry.reads:
                last[number] = i
                self.readers[number] += 1
        steps = programs.Programs(self, _Step)
        held = steps.held(entries)
        ends = defaultdict[int, list[int]](list)  # the values whose memory is free again after an entry
        for number, at in last.items():
            ends[max(at, held.get(number, at))].append(number)
        shared = self.shown | self.escaping
        found = {} if self.narrowing else {p.start: p for p in parts.pieces(entries, self.graph.shape, shared)}
        until = 0
        for i, entry in enumerate(entries):
            if i in found:
                until = found[i].stop
                steps.put(None, self._piece(found[i], entries[i:until], last))
            if i < until:
                pass
            elif isinstance(entry, Call):
                steps.put(entry, _generic(entry))
            elif isinstance(entry, attention.Attention):
                steps.put(None, self._attention(entry))
            else:
                dying = {n for n in entry.reads if last[n] == i and held.get(n) != i}
                step = self._lowered(entry, dying)
                steps.put(None, step, entry, self.buffers.get(entry.out))
            for number in ends.get(i, ()):
                if number in self.block_of:
                    self.give_back(number)
        steps.finish()
        return chains.joined(self.graph, steps.made, _Step)

    def _narrow(self, entries: list[Fused]) -> None:
        """Which layers compute with narrow elements, and which values lie so: those that only such layers read."""
        layers = [e for e in entries if e.call.op.name in LAYERS]
        for entry in layers:
            x, out = map(self._bits, self._examples(entry))
            likes = [self._example(n, entry.image) for n in entry.others]
            posts = [p if p[0] != "add" else self._added(likes[0]) for p in entry.post]
            if all(
                self._prepared(entry, x, to, posts) is not None for to in (out, self._example(entry.out, entry.image))
            ):
                self.narrowed.add(entry.out)
        wide = self.shown | self.escaping
        for entry in entries:
            if entry.call.op.name not in LAYERS or entry.out not in self.narrowed:
                wide.update(entry.reads)
            if self.narrowing == "int8":
                wide.update(entry.others)
        self.bits = self.narrowed - wide
        largest = max((math.prod(self.graph.shape(e.reads[0])) for e in layers if e.out in self.narrowed), default=0)
        if largest:
            self.room = aligned(2 * largest)

    # --- what belongs to a layer

    def _pools(self, call: Call) -> bool:
        """Whether oneDNN pools so."""
        from engine.backends.onednn import arrays

        source, out = call.bound()["input"].index, call.outputs[0]
        shape, how = self.graph.shape(source), pooling(call)
        if how is None or not self.graph.single(source) or not math.prod(shape):
            return False
        if len(shape) not in (4, 5):
            return False
        return bool(arrays.pooling(self._example(source, True), self._example(out, True), *how))

    def _means(self, call: Call) -> bool:
        """Whether it is the mean over pixels, (N, C, *size) -> (N, C)."""
        if not over_pixels(self.graph, call) or call.bound()["keepdim"]:
            return False
        return bool(math.prod(self.graph.shape(call.bound()["input"].index)))

    def _layer(self, position: int, call: Call) -> Fused | None:
        """A layer with constant float32 weights, and the calls after it that can be a part of it."""
        graph, given = self.graph, call.bound()
        source, weight = given["input"], graph.array(given["weight"])
        if (
            not isinstance(source, Ref) or weight is None or weight.dtype != _F32 or weight.ndim < 2
            or not graph.single(source.index)
            or (given["bias"] is not None and graph.array(given["bias"]) is None)
            or not math.prod(graph.shape(source.index)) or not math.prod(graph.shape(call.outputs[0]))
            or (call.op.name == "convolution" and not len(graph.shape(source.index)) == weight.ndim in (3, 4, 5))
            or (call.op.name == "linear" and weight.ndim != 2)
        ):  # fmt: skip
            return None
        fused = Fused(call, position)
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
            if self._prepared(fused, *self._examples(fused), self.posts(fused, None)) is None:
                fused.post.pop()
                fused.out, fused.position = before
                break
            self.taken.add(uses[0])
        if not fused.post and (self._prepared(fused, *self._examples(fused), ()) is None):  # else tried already
            return None
        return fused

    def _follows(self, call: Call, fused: Fused) -> tuple | None:
        if call.op.name != "add":
            return activation(call)
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

    def _written_between(self, fused: Fused, until: int) -> bool:
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
            chosen = len(self.blocks)
            self.blocks.append(aligned(nbytes))
        self.block_of[number] = chosen
        return self.blocks[chosen]

    def give_back(self, number: int) -> None:
        """Its block is free from here on."""
        self.free.append(self.block_of.pop(number))

    def _buffer(self, number: int, image: bool, rows: int | None) -> np.ndarray:
        """The array of a value that lives in the plan, or of `rows` images of it: channels-last, or rows."""
        shape, dtype = self.graph.shape(number), _NARROW[self.narrowing] if number in self.bits else _F32
        shape = shape if rows is None else (rows, *shape[1:])
        nbytes = dtype.itemsize * math.prod(shape)
        return _shaped(self._block(number, nbytes)[:nbytes].view(dtype), shape, image)

    # --- steps

    def allot(self, entry: Fused, dying: set[int], rows: int | None = None) -> np.ndarray | None:
        """The memory for a result, or `rows` of it; None if each call makes it anew."""
        number = entry.out
        place: np.ndarray | None = None
        if number not in self.escaping:
            for other in entry.others:  # the sum goes where its other operand lies
                if (
                    other in dying and other in self.block_of and other != entry.reads[0]
                    and self.image[other] == entry.makes_image and (other in self.bits) == (number in self.bits)
                ):  # fmt: skip
                    place = self.buffers[other]
                    self.block_of[number] = self.block_of.pop(other)
            if place is None:
                place = self._buffer(number, entry.makes_image, rows)
            self.buffers[number] = place
        return place

    def _attention(self, entry: attention.Attention) -> _Step:
        place = self.allot(entry, set())
        made = {n: self.buffers[n] for n in entry.layers}
        room = self._block(_SCORES, 4 * math.prod(attention.scores(entry))).view(_F32)
        compute = attention.compute(entry, made, place, room, lambda call: _generic(call).run)
        self.give_back(_SCORES)
        if compute is None:
            raise Unsupported("oneDNN has no kernels for attention as its operands lie")
        finish, late = self.finish(entry, place), entry.late[0] if entry.late else None

        def step(environment: Environment) -> None:
            compute(None if late is None else in_torch_order(raw_array(environment[late])))
            finish(environment)

        return _Step("attention", step, entry.reads, [entry.out])

    def _piece(self, piece: parts.Piece, entries: list[Any], last: dict[int, int]) -> _Step:
        name, run = parts.step(self, piece, entries, last)
        return _Step(name, run, [n for e in entries for n in e.reads], [e.out for e in entries])

    def _lowered(self, entry: Fused, dying: set[int]) -> _Step:
        """The step of an entry."""
        place = self.allot(entry, dying)
        if entry.call.op.name in POOLS:
            return self._pool(entry, place)
        if entry.call.op.name in MEANS:
            return self._mean(entry, place)
        return self._layer_step(entry, place)

    def _example(self, number: int, image: bool, rows: int | None = None) -> np.ndarray:
        """An array that lies as a value, or `rows` images of it, does when a step reads or writes it."""
        shape = self.graph.shape(number)
        if image:
            return empty_channels_last((rows or shape[0], *shape[1:]), _F32).view(np.ndarray)
        return np.empty((math.prod(shape[:-1]), shape[-1]), _F32)

    def _examples(self, fused: Fused, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        return self._example(fused.reads[0], fused.image, rows), self._example(fused.out, fused.image, rows)

    def posts(self, entry: Fused, place: np.ndarray | None, rows: int | None = None) -> list[tuple]:
        """The chain for oneDNN; an operand that lies in `place` is added where it is."""
        chain: list[tuple] = []
        for p in entry.post:
            if p[0] != "add":
                chain.append(p)
            elif place is not None and self.buffers.get(p[1]) is place:
                chain.append(("sum", 1.0))
            else:
                like = self._bits if p[1] in self.bits else np.asarray
                chain.append(self._added(like(self._example(p[1], entry.image, rows))))
        return chain

    @staticmethod
    def _added(like: np.ndarray) -> tuple:
        from engine.backends.onednn import _abi

        return "binary", _abi.BINARY_ADD, like

    def _prepared(self, entry: Fused, x: Any, out: Any, chain: Sequence[tuple]) -> Any:
        from engine.backends.onednn import prepared

        given = entry.call.bound()
        weight, bias = (self.graph.array(given[n]) for n in ("weight", "bias"))
        weight = np.ascontiguousarray(weight) if not entry.image else weight
        if bias is not None:
            bias = np.ascontiguousarray(bias)
            outputs = weight.shape[1] * given["groups"] if given.get("transposed") else weight.shape[0]
            if bias.shape != (outputs,) or bias.dtype != _F32:
                return None
        narrow = self.narrowing == "int8" and x.dtype != _F32
        scales = (self._scale(entry.reads[0]), self._scale(entry.out) if out.dtype != _F32 else None)
        scales = scales if narrow else (1.0, None)
        if not entry.image:
            return prepared.product(x, weight, bias, out, chain, scales)
        geometry = [tuple(given[n]) for n in ("stride", "padding", "dilation")]
        if given["transposed"]:
            return prepared.transposed(x, weight, bias, out, *geometry, given["groups"], chain)
        return prepared.convolution(x, weight, bias, out, *geometry, given["groups"], chain, scales)

    def _layer_step(self, entry: Fused, place: np.ndarray | None) -> _Step:
        from engine.backends.onednn.primitives import address

        number = entry.out
        narrow = self._narrower(entry, self._example(entry.reads[0], entry.image)) if number in self.narrowed else None
        run, name = self.prepare(entry, place)
        sources = [self.source(n, entry.image) for n in self.taken_by(entry, place)]
        finish = self.finish(entry, place)
        if narrow is not None:
            return self._narrow_step(name, entry, run, narrow, sources, finish)
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

    def prepare(self, entry: Fused, place: np.ndarray | None, rows: int | None = None) -> tuple[Any, str]:
        """(the layer in oneDNN, for `rows` of its operands; what it does)."""
        x, out = self._examples(entry, rows)
        out = self._bits(out) if entry.out in self.bits else out
        x = x if entry.out not in self.narrowed else self._bits(x)
        chain = self.posts(entry, place, rows)
        run = self._prepared(entry, x, out, chain)
        if run is None:
            raise Unsupported(f"oneDNN has no kernel for {entry.call.op.name} with {chain}")
        run = self.chosen[entry.out] = self._faster(entry, run, x, out, chain)
        name = "+".join([entry.call.op.name, *(p[0] for p in chain)])
        return run, name + (f" in {self.narrowing}" if entry.out in self.narrowed else "")

    def _faster(self, entry: Fused, run: Any, x: Any, out: Any, chain: Sequence[tuple]) -> Any:
        """`run`, or what is generated for such a convolution and was faster in a trial."""
        from engine.kernels import processor

        given, weight = entry.call.bound(), self.graph.array(entry.call.bound()["weight"])
        if not entry.image or given["transposed"] or {x.dtype, out.dtype} != {_F32} or not processor.available():
            return run
        from engine.ops.generated import winograd

        geometry = [tuple(given[n]) for n in ("stride", "padding", "dilation")]
        if not winograd.serves(x.shape, weight.shape, *geometry, given["groups"]):
            return run
        from engine.backends.onednn.primitives import address

        bias = self.graph.array(given["bias"])
        bias = None if bias is None else np.ascontiguousarray(bias)
        return winograd.prepared(run, x, weight, bias, out, geometry[1], chain, address)

    def taken_by(self, entry: Fused, place: np.ndarray | None) -> list[int]:
        """What an entry reads, but what lies where its result goes."""
        others = [n for n in entry.others if place is None or self.buffers.get(n) is not place]
        return [entry.reads[0], *others]

    def finish(self, entry: Fused, place: np.ndarray | None) -> Any:
        """What gives the array for an entry's result, and the environment its Tensor."""
        asked = False
        if entry.call.op.name in LAYERS:
            weight = self.graph.constants[entry.call.bound()["weight"].index]
            asked = asks_channels_last(raw_array(weight))
        return self._finish(entry.out, place, entry.makes_image, asked)

    def _narrower(self, entry: Fused, x: np.ndarray) -> Any:
        """(the copy of what a layer reads, where that goes) if it lies in float32, else None."""
        from engine.backends.onednn import prepared

        if entry.reads[0] in self.bits:
            return None
        shape = self.graph.shape(entry.reads[0]) if entry.image else x.shape
        room = self.room.view(_NARROW[self.narrowing])[: x.size]
        room = _shaped(room, tuple(shape), entry.image)
        return prepared.narrowing(x, room, self._scale(entry.reads[0])), room

    def _scale(self, number: int) -> float:
        """What 1 of a value in int8 stands for; 1 for other types."""
        if self.narrowing != "int8":
            return 1.0
        if number not in self.scales:
            seen = np.abs(raw_array(self.graph.values[number]).view(np.ndarray))
            self.scales[number] = float(seen[np.isfinite(seen)].max(initial=0.0)) / 127 or 1.0
        return self.scales[number]

    def _bits(self, array: np.ndarray) -> np.ndarray:
        """An array of narrow elements that lies as this one."""
        return np.empty_like(array, _NARROW[self.narrowing])

    def _narrow_step(self, name: str, entry: Fused, run: Any, narrow: Any, sources: list[Any], finish: Any) -> _Step:
        """A layer whose operand is copied in narrow elements first."""
        from engine.backends.onednn.primitives import address

        copied, room = narrow

        def step(environment: Environment) -> None:
            arrays = [s if isinstance(s, np.ndarray) else s(environment) for s in sources]
            made = finish(environment)
            at = address(room)
            copied(address(arrays[0]), at)
            run(at, address(made), *map(address, arrays[1:]))

        return _Step(name, step, entry.reads, [entry.out])

    def _pool(self, entry: Fused, place: np.ndarray | None) -> _Step:
        from engine.backends.onednn import arrays

        how = pooling(entry.call)
        assert how is not None
        source, finish = self.source(entry.reads[0], True), self.finish(entry, place)

        def step(environment: Environment) -> None:
            x = source if isinstance(source, np.ndarray) else source(environment)
            arrays.pooling(x, finish(environment), *how)

        return _Step(entry.call.op.name, step, entry.reads, [entry.out])

    def _mean(self, entry: Fused, place: np.ndarray | None) -> _Step:
        shape = self.graph.shape(entry.reads[0])
        source, finish = self.source(entry.reads[0], True), self.finish(entry, place)
        count = np.float32(math.prod(shape[2:]))

        def step(environment: Environment) -> None:
            x = source if isinstance(source, np.ndarray) else source(environment)
            found = x.transpose(INNER[x.ndim])
            for _ in shape[2:]:  # a dim at a time: channels are added side by side
                found = np.add.reduce(found, -2)
            np.true_divide(found, count, out=finish(environment))

        return _Step(entry.call.op.name, step, entry.reads, [entry.out])

    def source(self, number: int, image: bool) -> Any:
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
