"""Chains of element by element ops in a plan, each as one generated kernel (the extra `jit`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.kernels import processor
from engine.plan.tracing import Call, Ref, mapped
from engine.tensor import raw_array, wrap

__all__ = ["FLOATS", "composed", "elementwise", "joined"]

FLOATS = frozenset(map(np.dtype, ("float32", "float64")))


def joined(graph: Any, steps: Sequence[tuple[Call | None, Any]], step_of: Any) -> list[Any]:
    """The steps of a plan, with each run of ops that only feed each other as one step.

    steps: (call, or None for what is lowered otherwise; its step).  step_of(name, run, reads, writes) makes a step.
    """
    if not processor.available():
        return [step for _, step in steps]
    readers: dict[int, int] = {}
    for call, step in steps:
        for number in step.reads if call is None else call.refs:
            readers[number] = readers.get(number, 0) + 1
    made: list[Any] = []
    chain: list[tuple[Call, Any]] = []

    def close() -> None:
        made.extend([_one(graph, chain, step_of)] if len(chain) > 1 else [step for _, step in chain])
        chain.clear()

    for call, step in steps:
        if call is None or not _fits(graph, call):
            close()
            made.append(step)
            continue
        if chain:
            before = chain[-1][0].outputs[0]
            alone = readers.get(before) == call.refs.count(before) and before not in graph.outputs
            if before not in call.refs or not alone:
                close()
        chain.append((call, step))
    close()
    return made


def _fits(graph: Any, call: Call) -> bool:
    """Whether a call works element by element on floats of one type."""
    if call.inplace or len(call.outputs) != 1 or not elementwise(call.op, call.kwargs):
        return False
    kinds = {graph.kinds[n][1] for n in (*call.refs, *call.outputs)}
    return len(kinds) == 1 and kinds <= FLOATS and all(graph.shape(n) for n in call.refs)


def elementwise(record: Any, kwargs: Any) -> bool:
    """Whether a call of an op works element by element and gives one new array."""
    if getattr(record, "blocks", "") != "elements" or record.view or "out" in kwargs:
        return False
    return not (record.outputs or record.many or record.varargs or set(kwargs) - set(record.params))


def composed(
    calls: Sequence[tuple[Any, Any, Any, Any]], sources: Sequence[Any], out: Any, replaced: Callable[..., Any]
) -> Callable[..., Any]:
    """`code(xp, *arrays)` of a chain: the array code of its ops, one after the other.

    calls: (kernel, args, kwargs, what stands for its result).  replaced(arguments, value_of) puts in the arrays.
    """

    def code(xp: Any, *arrays: Any) -> Any:
        values = dict(zip(sources, arrays))
        for kernel, args, kwargs, made in calls:
            given, named = replaced((args, kwargs), values.__getitem__)
            values[made] = kernel(xp, *given, **named)
        return values[out]

    return code


def _one(graph: Any, chain: Sequence[tuple[Call, Any]], step_of: Any) -> Any:
    """The step of a chain."""
    from engine.ops import generated

    inside = {call.outputs[0] for call, _ in chain}
    sources = list(dict.fromkeys([n for call, _ in chain for n in call.refs if n not in inside]))
    calls = [(call.op.kernel, call.args, call.kwargs, call.outputs[0]) for call, _ in chain]
    out, single = chain[-1][0].outputs[0], [step.run for _, step in chain]
    name = "+".join([call.op.name for call, _ in chain])

    replaced = lambda given, value_of: mapped(given, lambda r: value_of(r.index), Ref)
    code = composed(calls, sources, out, replaced)
    kernel = generated.fused(name, code)

    def run(environment: list[Any]) -> None:
        arrays = [raw_array(environment[n]) for n in sources]
        made = kernel(np, *arrays)  # type: ignore[misc]
        if made is not NotImplemented:
            environment[out] = wrap(made)
        else:  # also of the engine's own layouts, which the ops know
            for each in single:
                each(environment)

    return step_of(name, run, sources, [out])
