"""Chains of element by element ops in a plan, each as one generated kernel (the extra `jit`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.fx.node import Node, map_arg
from engine.kernels import processor
from engine.programs.graph import kind, op, reads
from engine.tensor import raw_array, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array, ArrayModule
    from engine.dispatch.record import Arrays, Kernel, Op
    from engine.programs.inference.plan import Environment, Step

__all__ = ["FLOATS", "composed", "elementwise", "joined"]

FLOATS = frozenset(map(np.dtype, ("float32", "float64")))


def joined(outputs: set[Node], steps: Sequence[tuple[Node | None, Step]], step_of: type[Step]) -> list[Step]:
    """The steps of a plan, with each run of ops that only feed each other as one step.

    outputs: what the plan gives.  steps: (call, or None for what is lowered otherwise; its step).
    step_of(name, run, reads, writes) makes a step.
    """
    if not processor.available():
        return [step for _, step in steps]
    readers: dict[Node, int] = {}
    for call, step in steps:
        for number in step.reads if call is None else reads(call):
            readers[number] = readers.get(number, 0) + 1
    made: list[Step] = []
    chain: list[tuple[Node, Step]] = []

    def close() -> None:
        made.extend([_one(chain, step_of)] if len(chain) > 1 else [step for _, step in chain])
        chain.clear()

    for call, step in steps:
        if call is None or not _fits(call):
            close()
            made.append(step)
            continue
        if chain:
            before, read = chain[-1][0], reads(call)
            alone = readers.get(before) == read.count(before) and before not in outputs
            if before not in read or not alone:
                close()
        chain.append((call, step))
    close()
    return made


def _fits(call: Node) -> bool:
    """Return whether a call works element by element on floats of one type."""
    if call.meta["inplace"] or "kind" not in call.meta or not elementwise(op(call), call.kwargs):
        return False
    kinds = {kind(n)[1] for n in (*reads(call), call)}
    return len(kinds) == 1 and kinds <= FLOATS and all(kind(n)[0] for n in reads(call))


def elementwise(record: Op, kwargs: Collection[str]) -> bool:
    """Return whether a call of an op works element by element and gives one new array."""
    if getattr(record, "blocks", "") != "elements" or record.view or "out" in kwargs:
        return False
    return not (record.outputs or record.many or record.varargs or set(kwargs) - set(record.params))


def composed(
    calls: Sequence[tuple[Kernel, object, object, Node]],
    sources: Sequence[Node],
    out: Node,
    replaced: Callable[..., Any],
) -> Kernel:
    """`code(xp, *arrays)` of a chain: the array code of its ops, one after the other.

    calls: (kernel, args, kwargs, what stands for its result).  replaced(arguments, value_of) puts in the arrays.
    """

    def code(xp: ArrayModule, *arrays: Array) -> Arrays:
        values: dict[Node, Arrays] = dict(zip(sources, arrays))
        for kernel, args, kwargs, made in calls:
            given, named = replaced((args, kwargs), values.__getitem__)
            values[made] = kernel(xp, *given, **named)
        return values[out]

    return code


def _one(chain: Sequence[tuple[Node, Step]], step_of: type[Step]) -> Step:
    """The step of a chain."""
    from engine.ops import generated

    inside = {call for call, _ in chain}
    sources = list(dict.fromkeys([n for call, _ in chain for n in reads(call) if n not in inside]))
    calls = [(op(call).kernel, call.args, call.kwargs, call) for call, _ in chain]
    out, single = chain[-1][0], [step.run for _, step in chain]
    name = "+".join([op(call).name for call, _ in chain])

    code = composed(calls, sources, out, map_arg)
    kernel = generated.fused(name, code)

    def run(environment: Environment) -> None:
        arrays = [raw_array(environment[n]) for n in sources]
        made = kernel(np, *arrays)  # type: ignore[misc]
        if made is not NotImplemented:
            environment[out] = wrap(made)
        else:  # also of the engine's own layouts, which the ops know
            for each in single:
                each(environment)

    return step_of(name, run, sources, [out])
