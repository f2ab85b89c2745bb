"""Layers that run one after the other as one program of generated code (the extra `jit`), where that is faster.

engine/ops/generated/stages.py has the layers.  A run of them is tried when the plan is made: each layer against the
step there is for its values, the whole for its time.  engine/kernels/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cpu.relayout import in_torch_order
from engine.fx.node import Node
from engine.kernels import processor
from engine.programs.graph import array as array_of
from engine.programs.graph import bound, op
from engine.programs.graph import shape as shape_of
from engine.programs.inference.layers import LAYERS, MEANS, Fused, pooling
from engine.programs.inference.plan import Environment
from engine.tensor import raw_array, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array
    from engine.ops.generated import stages
    from engine.programs.inference.lowering import _Lowering
    from engine.programs.inference.plan import Step

    Gives = Callable[[Environment], Array]

__all__ = ["Programs"]

_FEWEST = 2  # layers worth a program
_LEAST = 1 << 20  # multiplications of all of them
_LARGEST = 1 << 28  # multiplications of a layer, above which threads lose nothing by coming anew
_HEAVY = 1 << 22  # elements of a weight, from which on to read them takes longer than all that a program saves
_HELD = 1 << 24  # of the weights of a run, which are packed in two layouts during the trial
_PLANAR = 4  # channels up to which an image in torch's order is read as it is
_GAIN = 0.95  # the time of layers that are joined, of that of the same layers one by one


class _Layer:
    """A layer: its stages, and the arrays that each call has elsewhere, (what gives it, its place), in their order."""

    def __init__(self, entry: Fused, step: Step) -> None:
        self.entry, self.step = entry, step
        self.code: Any = None  # a `stages.Layer`, or None
        self.gives: list[tuple[Gives, stages.Place | None]] = []
        self.deferred: list[Node] = []  # values that such arrays are made of


class Programs:
    """The steps of a plan, `made` (each with its call, if it is an op's), in which runs of layers become programs."""

    def __init__(self, lowering: _Lowering, step_of: type[Step]) -> None:
        self.lowering, self.step_of = lowering, step_of
        self.made: list[tuple[Node | None, Step]] = []
        self._run: list[_Layer] = []
        self._on = processor.available() and not lowering.narrowing

    def put(self, call: Node | None, step: Step, entry: Fused | None = None, place: np.ndarray | None = None) -> None:
        """The next step; entry: the layer that it is, whose result goes to `place` or is made anew in each call."""
        layer = self._layer(entry, place, step) if entry is not None and self._on else None
        if layer is None or {other.entry.out for other in self._run} & {*layer.deferred} or self._heavy(layer):
            self.finish()
        if layer is not None:
            self._run.append(layer)
        self.made.append((call, step))

    def held(self, entries: Sequence[Any]) -> dict[Node, int]:
        """The images that layers read which may be joined, and of each the entry until which its memory stays.

        What is joined writes its result while bands of the image are still read.
        """
        found: dict[Node, int] = {}
        if not self._on:
            return found
        for i, each in enumerate(entries[:-1]):
            if self._kind(each) != "depthwise" or self._kind(entries[i + 1]) != "product":
                continue
            before = entries[i - 1] if i and self._kind(entries[i - 1]) == "product" else None
            first = before if before is not None and before.out == each.reads[0] else each
            found[first.reads[0]] = i + 1
        return found

    def _kind(self, entry: object) -> str:
        """Return the kind of a convolution for joining layers: "depthwise", "product" or ""."""
        if not isinstance(entry, Fused) or op(entry.call).name != "convolution":
            return ""
        given = bound(entry.call)
        groups, weight = given["groups"], shape_of(given["weight"])
        if len(weight) != 4 or given["transposed"] or _work(entry) > _LARGEST:
            return ""
        if groups > 1:
            return "depthwise" if groups == weight[0] == shape_of(entry.reads[0])[1] else ""
        return "product" if weight[2:] == (1, 1) else ""

    def finish(self) -> None:
        """The run is over."""
        run, self._run = self._run, []
        work = sum(_work(layer.entry) for layer in run)
        if len(run) < _FEWEST or work < (1 if processor.always() else _LEAST):
            return
        trial = _Trial(self.lowering, run)
        if not trial.right():
            return
        step = self._program(run, trial.joined())
        if processor.always() or trial.faster(step.run):
            self.made[-len(run) :] = [(None, step)]
            for layer in run:
                self.lowering.chosen.pop(layer.entry.out, None)  # the weight as oneDNN has it

    def _heavy(self, layer: _Layer) -> bool:
        """Return whether the run would hold too much with another layer."""
        return sum(_weight(each.entry) for each in (*self._run, layer)) > _HELD

    def _layer(self, entry: Fused, place: np.ndarray | None, step: Step) -> _Layer | None:
        from engine.ops.convolution import generated_winograd as winograd
        from engine.ops.generated import stages

        lowering, given = self.lowering, bound(entry.call)
        layer = _Layer(entry, step)
        number, image = entry.reads[0], entry.image
        size, result = shape_of(number), shape_of(entry.out)
        pool = op(entry.call) not in LAYERS
        if _work(entry) > _LARGEST or _weight(entry) > _HEAVY:
            return None

        def operand(number: Node, planar: bool = False) -> stages.Place:
            source = lowering.source(number, image)
            if isinstance(source, np.ndarray):
                return stages.Place(source)
            layer.deferred.append(number)
            if planar:
                source = lambda environment: np.ascontiguousarray(in_torch_order(raw_array(environment[number])))
            made = stages.Place(None)
            layer.gives.append((source, made))
            return made

        fixed = isinstance(lowering.source(number, image), np.ndarray)
        points = isinstance(lowering.chosen.get(entry.out), winograd.Prepared)  # which reads channels-last
        planar = op(entry.call).name == "convolution" and not fixed and size[1] <= _PLANAR and not points
        x = operand(number, planar)
        post = lowering.posts(entry, place) if not pool else ()
        others = [operand(n) for n in lowering.taken_by(entry, place)[1:]]
        out = stages.Place(place)
        if place is None or entry.out in lowering.shown:
            layer.gives.append((lowering.finish(entry, place), out if place is None else None))
        added = others[0] if others else out if entry.others else None
        if op(entry.call) in MEANS:
            layer.code = stages.of_mean(x, size, out)
        elif pool:
            how = pooling(entry.call)
            layer.code = stages.of_pooling(x, size, out, result, how) if how else None
        elif image:
            if given["transposed"]:
                return None
            if points:
                layer.code = stages.points(x, lowering.chosen[entry.out], out, added)
                return layer
            weight, bias = (array_of(given[n]) for n in ("weight", "bias"))
            stride, padding, dilation = (tuple(given[n]) for n in ("stride", "padding", "dilation"))
            layer.code = stages.of_convolution(
                x, size, planar, weight, bias, out, result, stride, padding, dilation, given["groups"], added, post
            )
        else:
            weight, bias = (array_of(given[n]) for n in ("weight", "bias"))
            layer.code = stages.of_linear(math.prod(size[:-1]), x, weight, bias, out, added, post)
        return layer if layer.code is not None else None

    def _program(self, run: list[_Layer], codes: list[stages.Layer]) -> Step:
        """The step of all of them, which `codes` do."""
        reads = [n for layer in run for n in layer.step.reads]
        writes = [n for layer in run for n in layer.step.writes]
        name = "program of " + ", ".join(layer.step.name for layer in run)
        return self.step_of(name, _running(run, codes), reads, writes)


def _running(run: list[_Layer], codes: list[stages.Layer]) -> Callable[[Environment], None]:
    """Return a function that runs the layers in an environment, as these `stages.Layer`."""
    from engine.backends.onednn.primitives import ready

    program = _compiled(codes)
    gives = [one for layer in run for one in layer.gives]

    def running(environment: Environment) -> None:
        ready()  # steps after this one do not ask
        held = []
        for give, place in gives:
            array = give(environment)
            if place is not None:
                place.move(array)
                held.append(array)
        program()

    return running


def _compiled(codes: list[stages.Layer]) -> Callable[[], None]:
    from engine.backends.cpu import threads
    from engine.kernels.program import Program

    stages = [stage for code in codes for stage in code.stages]
    return Program(stages, threads.get_num_threads(), [code.retained for code in codes])


def _work(entry: Fused) -> int:
    """Multiplications of a layer; 0 for what has no weight."""
    if op(entry.call) not in LAYERS:
        return 0
    weight = shape_of(bound(entry.call)["weight"])
    return math.prod(shape_of(entry.out)) * math.prod(weight[1:])


def _weight(entry: Fused) -> int:
    """Elements of a layer's weight."""
    return math.prod(shape_of(bound(entry.call)["weight"])) if op(entry.call) in LAYERS else 0


class _Trial:
    """A run of layers as a program against the steps there are, with numbers drawn for what they read."""

    def __init__(self, lowering: _Lowering, run: list[_Layer]) -> None:
        self.lowering, self.run = lowering, run
        self.random = np.random.default_rng(0)
        self.environment: Environment = {}
        for number in {n for layer in run for n in layer.deferred}:
            self.environment[number] = wrap(self.random.standard_normal(shape_of(number), np.float32))

    def right(self) -> bool:
        """Return whether each layer has the values of its step; a warning says where one has not."""
        from engine.ops.generated import launch

        for layer in self.run:
            what = self._difference(layer)
            if what is not None:
                return launch.proven(f"{op(layer.entry.call).name} in plans", [], what)
        return True

    def faster(self, program: Callable[[Environment], object]) -> bool:
        """Return whether a program takes no longer than the steps."""
        from engine.ops.generated import launch

        environment, steps = self.environment, [layer.step.run for layer in self.run]

        def plain() -> None:
            for run in steps:
                run(environment)

        return not launch.slower(lambda: program(environment), plain, 1.0)

    def joined(self) -> list[stages.Layer]:
        """The code of all layers, in which some are joined: depthwise convolutions and products beside them."""
        from engine.ops.generated import launch, stages

        codes: list[Any] = [layer.code for layer in self.run]
        for i in range(len(self.run)):
            for before in (1, 0):
                of = slice(i, i + 2 + before)
                parts = self.run[of]
                if len(parts) < 2 + before or not all(map(self._only, parts, parts[1:])) or None in codes[of]:
                    continue
                given = [layer.code for layer in parts]
                made = stages.joined(given[0] if before else None, given[before], given[before + 1])
                if made is None:
                    continue
                separate, together = _compiled(given), _compiled([made])
                if not self._same(parts, separate, together):
                    return [layer.code for layer in self.run]
                if processor.always() or not launch.slower(together, separate, _GAIN):
                    codes[of] = [made, *[None] * (1 + before)]
                    break
        return [code for code in codes if code is not None]

    def _same(self, parts: list[_Layer], separate: Callable[[], None], together: Callable[[], None]) -> bool:
        """Return whether layers that are joined have the values of the same layers one by one; else warn."""
        from engine.ops.generated import comparison, launch

        buffers, out = self.lowering.buffers, parts[-1].entry.out
        reads = {n: buffers[n] for n in (parts[0].entry.reads[0], *parts[-1].entry.others)}
        drawn = {n: self.random.standard_normal(array.shape, np.float32) for n, array in reads.items()}
        found = []
        for run in (separate, together):
            for number, array in reads.items():
                array[...] = drawn[number]
            run()
            found.append(np.array(buffers[out]))
        return launch.proven("layers that are joined in plans", [], comparison.difference(found[0], found[1]))

    def _only(self, layer: _Layer, after: _Layer) -> bool:
        """Return whether the next layer alone reads the result of one, in memory of the plan."""
        out, lowering = layer.entry.out, self.lowering
        hidden = out in lowering.buffers and out not in lowering.shown
        return hidden and after.entry.reads[0] == out and lowering.readers[out] == 1

    def _difference(self, layer: _Layer) -> str | None:
        from engine.ops.generated import comparison

        entry, lowering, environment = layer.entry, self.lowering, self.environment
        buffers = [lowering.buffers[n] for n in entry.reads if n in lowering.buffers]
        numbers = [self.random.standard_normal(b.shape, np.float32) for b in buffers]

        def result(run: Callable[[Environment], object]) -> Array:
            for buffer, drawn in zip(buffers, numbers):
                buffer[...] = drawn
            run(environment)
            place = lowering.buffers.get(entry.out)
            return np.array(raw_array(environment[entry.out]) if place is None else place)

        want = result(layer.step.run)
        largest = 1.0
        weight = array_of(bound(entry.call).get("weight"))
        for array in (*numbers[:1], *([] if weight is None else [weight])):
            largest *= comparison.size_of(array)
        return comparison.difference(want, result(_running([layer], [layer.code])), largest)
