"""Runs of element by element ops in a recorded step, forward or backward, each as one generated kernel (extra `jit`).

As in inference plans (chains.py), whose rules for what fits and whose code for a chain are used.  An op
whose result only one other reads moves down to that one, past calls that write to none of its operands.  A node with
a chain runs its ops one by one wherever the kernel is not worth compiling, was slower than them or differed, and for
operands that it cannot read: so without the extra nothing changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.core.layouts import INNER, ChannelsLast
from engine.fx.graph import Graph
from engine.fx.node import Node, map_arg
from engine.kernels import processor
from engine.ops.random.dropout import noise_like
from engine.programs.passes.chains import FLOATS, composed, elementwise
from engine.programs.training.step import accumulate_grad
from engine.tensor import raw_array, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array, ArrayModule
    from engine.dispatch.record import Arrays, Launch, Public
    from engine.tensor import Tensor

__all__ = ["fuse", "writes"]

_FAR = 12  # calls that an op may move past: what it reads lives that much longer
_LARGE = 1 << 12  # elements from which a gradient alone is worth a kernel


def fuse(graph: Graph, alone: bool = False) -> None:
    """Replace runs of element by element ops by one call each; alone: single ops, too."""
    if not processor.available():
        return
    _templates(graph)
    place = {node: n for n, node in enumerate(graph.nodes)}
    written = [n for node, n in place.items() if writes(node)]
    group: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if not _fits(node):
            continue
        group[node] = own = [node]
        for source in node.all_input_nodes:
            before = group.get(source)
            if before is None or set(source.users) != {node} or not _alike(source, node):
                continue
            first, here = place[before[0]], place[node]
            if here - first > _FAR or any(first < n < here for n in written):
                continue
            del group[source]
            own[:] = sorted([*before, *own], key=place.__getitem__)
    kernels: dict[object, object] = {}  # of chains of one form, which layers of a network have: proven and timed once
    for last, chain in group.items():
        if len(chain) > 1 or alone or _worth(last):
            _replace(graph, chain, kernels)


def _templates(graph: Graph) -> None:
    """Of the tensor it is like, a draw reads shape and type only: so it need not wait for an op that keeps both."""
    for node in graph.nodes:
        if node.target is not noise_like:
            continue
        source = node.args[0]
        while isinstance(source, Node) and _fits(source) and isinstance(source.args[0], Node):
            if source.args[0].meta.get("kind") != source.meta["kind"]:
                break
            source = source.args[0]
        node.args = (source, *node.args[1:])


def writes(node: Node) -> bool:
    """Return whether a call may write to what an op before it reads."""
    if node.target is noise_like or node.target is accumulate_grad:  # the latter to `.grad`, which nothing here reads
        return False
    return bool(node.meta.get("inplace") or node.meta.get("effect"))


def _fits(node: Node) -> bool:
    record = getattr(node.target, "op", None)
    if node.op != "call_function" or record is None or node.meta.get("inplace") or node.meta.get("effect"):
        return False
    kinds = [n.meta.get("kind") for n in (*node.all_input_nodes, node)]
    if not elementwise(record, node.kwargs) or any(k is None for k in kinds):
        return False
    types = {k[1] for k in kinds}  # type: ignore[index]
    return len(types) == 1 and types <= FLOATS and all(k[0] for k in kinds)  # type: ignore[index]


def _alike(source: Node, node: Node) -> bool:
    """Return whether two ops go over the same elements, in the same program."""
    return source.meta["kind"] == node.meta["kind"] and source.meta.get("later") == node.meta.get("later")


def _worth(node: Node) -> bool:
    """Return whether an op alone takes several passes, or a check of its operands, that a kernel does without."""
    return node.name.split("_backward")[0] != node.name and int(np.prod(node.meta["kind"][0])) >= _LARGE


def _replace(graph: Graph, chain: list[Node], kernels: dict[object, Any]) -> None:
    last = chain[-1]
    inside = set(chain)
    sources = list(dict.fromkeys(n for node in chain for n in node.all_input_nodes if n not in inside))
    with graph.inserting_before(last):
        made = graph.call_function(_joint(chain, sources, kernels), tuple(sources))
    made.meta = dict(last.meta)
    last.replace_all_uses_with(made)
    for node in chain[::-1]:
        graph.erase_node(node)


def _over(node: Node, inside: set[Node]) -> Public:
    """The function of an op that runs alone: in place where its first operand is one that the chain made."""
    function: Any = node.target
    source = node.args[0] if node.args else None
    if source not in inside or node.kwargs or node.args.count(source) > 1:
        return function  # type: ignore[no-any-return]
    if function.op.inplace_function is None or function.__name__ != function.op.called:
        return function  # type: ignore[no-any-return]
    return function.op.inplace_function  # type: ignore[no-any-return]


def _form(chain: list[Node], sources: list[Node]) -> Hashable:
    """Return a key that is equal for two chains that do the same to their operands."""
    names = {node: f"%{n}" for n, node in enumerate((*sources, *chain))}
    return tuple([(node.target, repr(map_arg((node.args, node.kwargs), names.__getitem__))) for node in chain])


def _joint(chain: list[Node], sources: list[Node], kernels: dict[object, Any]) -> Public:
    """The function of a chain: tensors -> tensor."""
    from engine.ops import generated

    steps = [(node.target, node.args, node.kwargs, node) for node in chain]
    inside = set(chain)

    alone = [(_over(node, inside), *step[1:]) for node, step in zip(chain, steps)]

    def single(*tensors: Tensor) -> Tensor:
        values = dict(zip(sources, tensors))
        for function, args, kwargs, node in alone:
            given = map_arg((args, kwargs), values.__getitem__)
            values[node] = function(*given[0], **given[1])
            del given
            for source in inside.intersection(node.all_input_nodes):
                del values[source]
        return values[chain[-1]]

    def present(xp: ArrayModule, *arrays: Array) -> Array:
        found: Array = raw_array(single(*map(wrap, arrays)))
        return found

    calls = [(function.op.kernel, args, kwargs, node) for function, args, kwargs, node in steps]  # type: ignore
    name = "+".join([node.target.op.name for node in chain])  # type: ignore[union-attr]
    code = composed(calls, sources, chain[-1], map_arg)
    form = _form(chain, sources)
    kernel: Any = None

    def prepare() -> None:
        nonlocal kernel
        into = joint.into  # type: ignore[attr-defined]
        kernel = kernels.get((form, into))
        if kernel is None:
            kernel = kernels[form, into] = generated.fused(name, code, present, into)

    # strides of arrays, and the route of the kernel for these
    decided: tuple[list[tuple[int, ...]] | None, Launch | None] = (None, None)

    def on_arrays(*arrays: Array) -> Arrays:
        """The same for numpy's arrays, of the shapes and types that were recorded."""
        nonlocal decided
        strides, route = decided
        if route is not None and strides == [a.strides for a in arrays]:
            return route(arrays)
        if kernel is None:
            prepare()
        made: Arrays = kernel(np, *arrays)
        if made is NotImplemented:
            return present(np, *arrays)
        decided = [a.strides for a in arrays], kernel.launch_for(arrays)
        return made

    def joint(*tensors: Tensor) -> Tensor:
        if kernel is None:
            prepare()
        arrays = [raw_array(t) for t in tensors]
        last = ChannelsLast in map(type, arrays)
        if last:  # of the engine's choice: one order of memory for all
            shape = arrays[0].shape
            if any(a.__class__ is not ChannelsLast or a.shape != shape for a in arrays):
                return single(*tensors)
            arrays = [a.transpose(INNER[a.ndim]).view(np.ndarray) for a in arrays]
        made = kernel(np, *arrays)
        if made is NotImplemented:
            return single(*tensors)
        if last:
            ndim = made.ndim
            made = made.transpose(0, ndim - 1, *range(1, ndim - 1)).view(ChannelsLast)
        return wrap(made)

    joint.on_arrays = on_arrays  # type: ignore[attr-defined]
    joint.chain = name, code  # type: ignore[attr-defined]
    joint.into = None  # type: ignore[attr-defined]  # the operand that the result may be written to
    joint.__name__ = joint.__qualname__ = name
    return joint
