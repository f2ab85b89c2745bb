"""From a trace to a plan: folding, fusing, packing, and where the memory between steps is.

A value is a node.  A plan keeps its values in a dict, the environment: Tensors, as the ops take and give them.  A
*lowered* step (convolution, linear layer or pooling in oneDNN, with what follows it) works on memory; its result is in
a block of the plan, shared with values that live at other times, unless it escapes: a result of the module, or a value
that a view or an in-place op may keep hold of, lives in memory of its own.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.cpu.packing import aligned
from engine.backends.cpu.relayout import empty_channels_last, in_torch_order, to_channels_last
from engine.core.geometry import ConvGeometry
from engine.core.layouts import ChannelsLast, asks_channels_last, lies_channels_last
from engine.dispatch.binder import onednn_kernels
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.programs.graph import array, bound, calls_of, graph_of, memory, op, reads
from engine.programs.graph import shape as shape_of
from engine.programs.inference import attention, fusing, layer_programs, parts
from engine.programs.inference import steps as steps_of
from engine.programs.inference.layers import LAYERS, MEANS, POOLS, Fused
from engine.programs.inference.plan import Environment, InferencePlan, Step, copying, generic
from engine.programs.passes import apply, chains, recognise_layers
from engine.programs.passes.constants import compute_constants, drop_unused, drop_unused_constants
from engine.programs.passes.flatten_means import flatten_means
from engine.programs.passes.fold_norms import fold_norms
from engine.programs.recorder import Recorder
from engine.programs.values import Ref, Unsupported, mapped, refs_in
from engine.tensor import raw_array, rewrap

if TYPE_CHECKING:
    from engine.core.arrays import Array

    Post = tuple[Any, ...]  # what oneDNN does with the result of a layer: a name and its numbers or arrays
    Entry = Node | Fused | attention.Attention
    Gives = Callable[[Environment], np.ndarray]

__all__ = ["lower"]

_F32 = np.dtype("float32")
_NARROW: dict[str, np.dtype] = {
    "bfloat16": np.dtype("uint16"),
    "int8": np.dtype("int8"),
}  # the arrays: of bfloat16 its bits
_SCORES = "scores"  # stands for those of attention where values are nodes


def lower(recorder: Recorder, narrow: str = "") -> InferencePlan:
    """The plan of what was recorded.  Unsupported where there is none.

    narrow: "bfloat16" or "int8", the type of weights of convolutions and linear layers, of what they read, and of what
    is between them.  In int8 the largest magnitudes that the recorder saw are 127; what is added stays float32.
    """
    numbers = list({r.index: None for r in refs_in(recorder.result)})
    graph = graph_of(recorder, tuple(map(Ref, numbers)))
    apply(graph, PASSES)
    if onednn_kernels() and not narrow:
        apply(graph, [recognise_layers.as_linears, attention.join_layers])
    apply(graph, [drop_unused, drop_unused_constants])
    if not calls_of(graph):
        raise Unsupported("it calls no op on its input")
    place = {number: i for i, number in enumerate(numbers)}
    plan = InferencePlan(graph, mapped(recorder.result, lambda r: Ref(place[r.index]), Ref), _steps(graph, narrow))
    for node in graph.nodes:  # the weights are in the steps, as these have packed them
        node.meta = {key: value for key, value in node.meta.items() if key not in ("constant", "fresh", "value")}
    return plan


# what is done to every graph before its calls become steps
PASSES = [
    compute_constants,
    fold_norms,
    flatten_means,
    recognise_layers.as_layer_norms,
    recognise_layers.as_gelus,
]


def _steps(graph: Graph, narrow: str) -> list[Step]:
    if onednn_kernels():
        return copying(graph) + _Lowering(graph, narrow).steps()
    _convert_weights(graph)
    outputs = set(reads(graph.output_node()))
    return copying(graph) + chains.joined(outputs, [(call, generic(call)) for call in calls_of(graph)], Step)


def _convert_weights(graph: Graph) -> None:
    """Constant weights of convolutions as converted tensors: what kernels pack of them is cached with those."""
    for call in calls_of(graph):
        weight = bound(call)["weight"] if op(call).name == "convolution" else None
        found = array(weight)
        if isinstance(weight, Node) and found is not None and found.dtype == _F32 and found.flags.c_contiguous:
            weight.meta["constant"] = rewrap(found.view(ChannelsLast))


class _Lowering:
    """Chooses what becomes a step in oneDNN, and the memory of each result."""

    def __init__(self, graph: Graph, narrow: str = "") -> None:
        self.graph, self.outputs = graph, set(reads(graph.output_node()))
        self.narrowing = narrow
        self.narrowed: set[Node] = set()  # results of the layers that read and multiply narrow elements
        self.bits: set[Node] = set()  # values that lie in narrow elements
        self.scales: dict[Node, float] = {}  # of values in int8
        self.narrow_buffer = np.empty(0, np.uint8)  # for what a layer reads, in narrow elements
        self.consumers: dict[Node, list[int]] = {}  # of each value, by position
        self.taken: set[int] = set()  # positions of calls that are part of an earlier layer
        self.blocks: list[np.ndarray] = []  # bytes
        self.free: list[int] = []
        self.block_of: dict[object, int] = {}  # value -> its block
        self.buffers: dict[Node, np.ndarray] = {}  # value -> its array there
        self.image: dict[Node, bool] = {}  # lowered value -> whether it is laid out channels-last
        self.chosen: dict[Node, Any] = {}  # value -> what computes it
        self.readers: Counter[Node] = Counter()  # of each value
        self.shown: set[Node] = set()  # values that the environment must hold
        self.escaping: set[Node] = set()
        self.calls: list[Node] = []
        self.groups: dict[Node, Node] = {}  # of each value, one for all that share its memory

    def steps(self) -> list[Step]:
        order: list[tuple[int, Entry]] = []
        found_attention = {} if self.narrowing else attention.find(self.graph)
        self.calls, self.groups = calls_of(self.graph), memory(self.graph)
        for i, call in enumerate(self.calls):
            for value in reads(call):
                self.consumers.setdefault(value, []).append(i)
        for one in found_attention.values():
            self.taken.update(one.positions)
        for i, call in enumerate(self.calls):
            if i in found_attention:
                order.append((i, found_attention[i]))
            if i in self.taken:
                continue
            fused = fusing.layer(self, i, call) if op(call) in LAYERS else None
            pooled = (op(call) in POOLS and fusing.pools(self, call)) or (
                op(call) in MEANS and fusing.means(self, call)
            )
            if fused is None and pooled:
                order.append((i, Fused(call, i)))
            else:
                order.append((i, call) if fused is None else (fused.position, fused))
        rows = {e.out for _, e in order if isinstance(e, Fused) and not e.makes_image}
        for one in found_attention.values():
            if rows.issuperset(one.layers):
                self.shown.update(one.deferred)
            else:  # a layer that is an op as it is
                order.remove((one.position, one))
                order += [(i, self.calls[i]) for i in one.positions]
        order.sort(key=lambda entry: entry[0])
        entries = [entry for _, entry in order]
        self.image = {e.out: e.makes_image for e in entries if not isinstance(e, Node)}
        for entry in entries:  # what is read in another layout than it has goes through the environment
            for number in reads(entry) if isinstance(entry, Node) else entry.reads:
                if isinstance(entry, Node) or self.image.get(number, entry.image) != entry.image:
                    self.shown.add(number)
        self.escaping = self._escapes(entries)
        if self.narrowing:
            self._narrow([e for e in entries if isinstance(e, Fused)])
        last: dict[Node, int] = {}
        for i, entry in enumerate(entries):
            for number in reads(entry) if isinstance(entry, Node) else entry.reads:
                last[number] = i
                self.readers[number] += 1
        steps = layer_programs.Programs(self, Step)
        held = steps.held(entries)
        ends = defaultdict[int, list[Node]](list)  # the values whose memory is free again after an entry
        for number, at in last.items():
            ends[max(at, held.get(number, at))].append(number)
        shared = self.shown | self.escaping
        found = {} if self.narrowing else {p.start: p for p in parts.pieces(entries, shape_of, shared)}
        until = 0
        for i, entry in enumerate(entries):
            if i in found:
                until = found[i].stop
                steps.put(None, self._piece(found[i], entries[i:until], last))
            if i < until:
                pass
            elif isinstance(entry, Node):
                steps.put(entry, generic(entry))
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
        return chains.joined(self.outputs, steps.made, Step)

    def _narrow(self, entries: list[Fused]) -> None:
        """Decide which layers compute with narrow elements, and which values are stored narrow: those that only such
        layers read."""
        layers = [e for e in entries if op(e.call) in LAYERS]
        for entry in layers:
            x, out = map(self._bits, self.examples(entry))
            likes = [self.example(n, entry.image) for n in entry.others]
            posts = [p if p[0] != "add" else self._added(likes[0]) for p in entry.post]
            if all(
                self.prepared(entry, x, to, posts) is not None for to in (out, self.example(entry.out, entry.image))
            ):
                self.narrowed.add(entry.out)
        wide = self.shown | self.escaping
        for entry in entries:
            if op(entry.call) not in LAYERS or entry.out not in self.narrowed:
                wide.update(entry.reads)
            if self.narrowing == "int8":
                wide.update(entry.others)
        self.bits = self.narrowed - wide
        largest = max((math.prod(shape_of(e.reads[0])) for e in layers if e.out in self.narrowed), default=0)
        if largest:
            self.narrow_buffer = aligned(2 * largest)

    # --- memory

    def _escapes(self, entries: Sequence[Entry]) -> set[Node]:
        found = set(self.outputs)
        for entry in entries:
            if isinstance(entry, Node) and (entry.meta["inplace"] or entry.meta["view"]):
                found.update(reads(entry))
        return found

    def _block(self, number: object, nbytes: int) -> np.ndarray:
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

    def give_back(self, number: object) -> None:
        """Its block is free from here on."""
        self.free.append(self.block_of.pop(number))

    def _buffer(self, number: Node, image: bool, rows: int | None) -> np.ndarray:
        """The array of a value that lives in the plan, or of `rows` images of it: channels-last, or rows."""
        shape, dtype = shape_of(number), _NARROW[self.narrowing] if number in self.bits else _F32
        shape = shape if rows is None else (rows, *shape[1:])
        nbytes = dtype.itemsize * math.prod(shape)
        return _shaped(self._block(number, nbytes)[:nbytes].view(dtype), shape, image)

    # --- steps

    def allot(self, entry: Fused | attention.Attention, dying: set[Node], rows: int | None = None) -> np.ndarray | None:
        """The memory for a result, or `rows` of it; None if each call makes it anew."""
        number = entry.out
        place: np.ndarray | None = None
        if number not in self.escaping:
            for other in entry.others:  # the sum goes where its other operand is
                if (
                    other in dying
                    and other in self.block_of
                    and other != entry.reads[0]
                    and self.image[other] == entry.makes_image
                    and (other in self.bits) == (number in self.bits)
                ):
                    place = self.buffers[other]
                    self.block_of[number] = self.block_of.pop(other)
            if place is None:
                place = self._buffer(number, entry.makes_image, rows)
            self.buffers[number] = place
        return place

    def _attention(self, entry: attention.Attention) -> Step:
        place = self.allot(entry, set())
        made = {n: self.buffers[n] for n in entry.layers}
        assert place is not None
        buffer = self._block(_SCORES, 4 * math.prod(attention.scores(entry))).view(_F32)
        compute = attention.compute(entry, made, place, buffer)
        self.give_back(_SCORES)
        if compute is None:
            raise Unsupported("oneDNN has no kernels for attention as its operands lie")
        finish, deferred = self.finish(entry, place), entry.deferred[0] if entry.deferred else None

        def step(environment: Environment) -> None:
            compute(None if deferred is None else in_torch_order(raw_array(environment[deferred])))
            finish(environment)

        return Step("attention", step, entry.reads, [entry.out])

    def _piece(self, piece: parts.Piece, entries: Sequence[Any], last: dict[Node, int]) -> Step:
        name, run = parts.step(self, piece, entries, last)
        return Step(name, run, [n for e in entries for n in e.reads], [e.out for e in entries])

    def _lowered(self, entry: Fused, dying: set[Node]) -> Step:
        """The step of an entry."""
        place = self.allot(entry, dying)
        if op(entry.call) in POOLS:
            return steps_of.pool(self, entry, place)
        if op(entry.call) in MEANS:
            return steps_of.mean(self, entry, place)
        return self._layer_step(entry, place)

    def example(self, number: Node, image: bool, rows: int | None = None) -> np.ndarray:
        """Return an array laid out as a value, or `rows` images of it, when a step reads or writes it."""
        shape = shape_of(number)
        if image:
            return empty_channels_last((rows or shape[0], *shape[1:]), _F32).view(np.ndarray)
        return np.empty((math.prod(shape[:-1]), shape[-1]), _F32)

    def examples(self, fused: Fused, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        return self.example(fused.reads[0], fused.image, rows), self.example(fused.out, fused.image, rows)

    def posts(self, entry: Fused, place: np.ndarray | None, rows: int | None = None) -> list[Post]:
        """The chain for oneDNN; an operand that is in `place` is added where it is."""
        chain: list[Post] = []
        for p in entry.post:
            if p[0] != "add":
                chain.append(p)
            elif place is not None and self.buffers.get(p[1]) is place:
                chain.append(("sum", 1.0))
            else:
                like = self._bits if p[1] in self.bits else np.asarray
                chain.append(self._added(like(self.example(p[1], entry.image, rows))))
        return chain

    @staticmethod
    def _added(like: np.ndarray) -> Post:
        from engine.backends.onednn import _abi

        return "binary", _abi.BINARY_ADD, like

    def prepared(self, entry: Fused, x: Array, out: Array, chain: Sequence[Post]) -> Any:
        from engine.backends.onednn import prepared

        given = bound(entry.call)
        weight, bias = (array(given[n]) for n in ("weight", "bias"))
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
        stride, padding, dilation = (tuple(given[n]) for n in ("stride", "padding", "dilation"))
        groups = given["groups"]
        if given["transposed"]:
            return prepared.transposed(x, weight, bias, out, stride, padding, dilation, groups, chain)
        return prepared.convolution(x, weight, bias, out, stride, padding, dilation, groups, chain, scales)

    def _layer_step(self, entry: Fused, place: np.ndarray | None) -> Step:
        from engine.backends.onednn.primitives import address

        number = entry.out
        narrow = self._narrower(entry, self.example(entry.reads[0], entry.image)) if number in self.narrowed else None
        run, name = self.prepare(entry, place)
        sources = [self.source(n, entry.image) for n in self.taken_by(entry, place)]
        finish = self.finish(entry, place)
        if narrow is not None:
            return steps_of.narrowed(name, entry, run, narrow, sources, finish)
        if place is not None and all(isinstance(s, np.ndarray) for s in sources):
            # its source was written by a step of this plan, the first of which has asked whether oneDNN is ready
            again = run.always(address(sources[0]), address(place), *map(address, sources[1:]))
            if number not in self.shown:
                return Step(name, again, entry.reads, [number])

            def fixed(environment: Environment) -> None:
                again()
                finish(environment)

            return Step(name, fixed, entry.reads, [number])

        def step(environment: Environment) -> None:
            arrays = [s if isinstance(s, np.ndarray) else s(environment) for s in sources]
            made = finish(environment)
            run(address(arrays[0]), address(made), *map(address, arrays[1:]))

        return Step(name, step, entry.reads, [number])

    def prepare(self, entry: Fused, place: np.ndarray | None, rows: int | None = None) -> tuple[Any, str]:
        """(the layer in oneDNN, for `rows` of its operands; what it does)."""
        x, out = self.examples(entry, rows)
        out = self._bits(out) if entry.out in self.bits else out
        x = x if entry.out not in self.narrowed else self._bits(x)
        chain = self.posts(entry, place, rows)
        run = self.prepared(entry, x, out, chain)
        if run is None:
            raise Unsupported(f"oneDNN has no kernel for {op(entry.call).name} with {chain}")
        run = self.chosen[entry.out] = self._faster(entry, run, x, out, chain)
        name = "+".join([op(entry.call).name, *(p[0] for p in chain)])
        return run, name + (f" in {self.narrowing}" if entry.out in self.narrowed else "")

    def _faster(self, entry: Fused, run: Any, x: Array, out: Array, chain: Sequence[Post]) -> Any:
        """`run`, or what is generated for such a convolution and was faster in a trial."""
        from engine.kernels import processor

        given, weight = bound(entry.call), array(bound(entry.call)["weight"])
        if not entry.image or given["transposed"] or {x.dtype, out.dtype} != {_F32} or not processor.available():
            return run
        from engine.ops.convolution import generated_winograd as winograd

        geometry = ConvGeometry.of(given["stride"], given["padding"], given["dilation"], given["groups"])
        if not winograd.serves(x.shape, weight.shape, geometry):
            return run
        from engine.backends.onednn.primitives import address

        bias = array(given["bias"])
        bias = None if bias is None else np.ascontiguousarray(bias)
        return winograd.prepared(run, x, weight, bias, out, geometry.padding, chain, address)

    def taken_by(self, entry: Fused, place: np.ndarray | None) -> list[Node]:
        """Return the values that an entry reads, without one that shares memory with its result."""
        others = [n for n in entry.others if place is None or self.buffers.get(n) is not place]
        return [entry.reads[0], *others]

    def finish(self, entry: Fused | attention.Attention, place: np.ndarray | None) -> Gives:
        """Return a function that gives the array for an entry's result, and the environment its Tensor."""
        as_channels_last = False
        if op(entry.call) in LAYERS:
            weight = bound(entry.call)["weight"].meta["constant"]
            as_channels_last = asks_channels_last(raw_array(weight))
        return self._finish(entry.out, place, entry.makes_image, as_channels_last)

    def _narrower(self, entry: Fused, x: np.ndarray) -> tuple[Any, np.ndarray] | None:
        """(the copy of what a layer reads, where that goes) if it is in float32, else None."""
        from engine.backends.onednn import prepared

        if entry.reads[0] in self.bits:
            return None
        shape = shape_of(entry.reads[0]) if entry.image else x.shape
        buffer = self.narrow_buffer.view(_NARROW[self.narrowing])[: x.size]
        buffer = _shaped(buffer, tuple(shape), entry.image)
        return prepared.narrowing(x, buffer, self._scale(entry.reads[0])), buffer

    def _scale(self, number: Node) -> float:
        """Return the scale of a value in int8: the number that 1 stands for; 1 for other types."""
        if self.narrowing != "int8":
            return 1.0
        if number not in self.scales:
            seen = np.abs(raw_array(number.meta["value"]).view(np.ndarray))
            self.scales[number] = float(seen[np.isfinite(seen)].max(initial=0.0)) / 127 or 1.0
        return self.scales[number]

    def _bits(self, array: np.ndarray) -> np.ndarray:
        """Return an array of narrow elements laid out as this one."""
        return np.empty_like(array, _NARROW[self.narrowing])

    def source(self, number: Node, image: bool) -> Any:
        """The array a value always is in, or a function that takes it from the environment."""
        if number in self.buffers and self.image[number] == image:
            return self.buffers[number]
        if image:
            return lambda environment: _channels_last(raw_array(environment[number]))
        return lambda environment: np.ascontiguousarray(in_torch_order(raw_array(environment[number])))

    def _finish(self, number: Node, place: np.ndarray | None, image: bool, as_channels_last: bool) -> Gives:
        """Return a function that gives the array for a result, and the environment its Tensor."""
        if place is not None:
            shown = number in self.shown
            converted = place.view(ChannelsLast) if image else place

            def existing(environment: Environment) -> np.ndarray:
                if shown:
                    environment[number] = rewrap(converted)
                return place

            return existing
        shape = shape_of(number)

        def fresh(environment: Environment) -> np.ndarray:
            made = empty_channels_last(shape, _F32) if image else empty(shape, _F32)
            environment[number] = rewrap(made.view(np.ndarray) if as_channels_last else made)
            return made.view(np.ndarray)

        return fresh


def _shaped(flat: np.ndarray, shape: tuple[int, ...], image: bool) -> np.ndarray:
    """Elements as an array of logical `shape` whose channels are innermost, or contiguous."""
    if not image:
        return flat.reshape(shape)
    converted = flat.reshape(shape[0], *shape[2:], shape[1])
    return converted.transpose(0, len(shape) - 1, *range(1, len(shape) - 1))


def _channels_last(array: Array) -> np.ndarray:
    found = array if lies_channels_last(array) else to_channels_last(array)
    return found.view(np.ndarray)
