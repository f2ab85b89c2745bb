"""The backward pass: one explicit heap of ready nodes, highest sequence number first.  No recursion.

A node is ready when every node that feeds it has run; it then runs once, with the summed gradients of its
outputs.  Small graphs need no count of those: Note [Passes without a plan].  Graphs of 100,000 nodes neither recurse
here nor when they are dropped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heappushpop
from typing import Any

from numpy import asarray, ndarray

from engine.autograd import anomaly_mode as anomaly
from engine.autograd.graph import (
    AccumulateGrad,
    Edge,
    Extra,
    Node,
    accumulate_arrays,
    plus,
    registered,
    run_hooks,
)
from engine.backends import of_array, owns
from engine.backends.references import LOCAL_AND_ONE
from engine.core.grad_mode import mode
from engine.core.slots import Several

observers: Several[Any] = Several()  # profilers: called with (node, run) instead of run()


class _Running(threading.local):
    capturing = False  # the pass that runs now returns gradients and accumulates none


running = _Running()


class _Ending(threading.local):
    """The callbacks that hooks of a thread's passes asked for, called when the outermost pass ends."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.passes = 0  # that run now, one inside the other


def _is_checkpoint_valid() -> bool:
    """True: a pass may start another one, which is how recomputation goes."""
    return True


class ImperativeEngine:
    """The type of `Variable._execution_engine`, whose `queue_callback` registers a call for the end of a pass."""

    is_checkpoint_valid = staticmethod(_is_checkpoint_valid)

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """Have `callback()` called at the end of the pass that runs.  RuntimeError where none runs."""
        if not ending.passes:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        ending.calls.append(lambda finished: callback() if finished else None)


ending = _Ending()
registered.at_end = lambda call: ending.calls.append(call)


def run_backward(
    roots: Sequence[tuple[Edge, Any]],
    keep_graph: bool,
    create_graph: bool,
    captures: Sequence[Edge] | None = None,
    cut: bool = False,
) -> list[Any]:
    """`_run_backward`, and what its hooks asked for at its end."""
    finished = False
    ending.passes += 1
    try:
        if captures is None and len(roots) == 1 and roots[0][1].__class__ is ndarray and _is_plain(create_graph):
            _run_plain(roots, keep_graph)  # a loss of one element
            found: list[Any] = []
        else:
            found = _run_backward(roots, keep_graph, create_graph, captures, cut)
        finished = True
    finally:
        ending.passes -= 1
        if ending.calls:
            calls, ending.calls = ending.calls, []
            for call in calls:
                call(finished)
    return found


def _run_backward(
    roots: Sequence[tuple[Edge, Any]],
    keep_graph: bool,
    create_graph: bool,
    captures: Sequence[Edge] | None = None,
    cut: bool = False,
) -> list[Any]:
    """Push gradients from `roots` ((edge, gradient) pairs, a gradient a Tensor or an array) through the graph.

    With `captures` (edges) nothing is accumulated in leaves: the gradients that reach those edges are returned, None
    where none did, and only nodes on a path to them run.  `cut`: the pass ends there, and no hook of those nodes runs
    (a part of a graph that is recomputed inside another pass).
    """
    where = None
    for _, gradient in roots:
        array = getattr(gradient, "_array", gradient)
        if array.__class__ is not ndarray and array is not None:
            backend = of_array(array)
            where = backend.inside(backend.device_of(array))
            break
    if where is not None:  # nodes make gradients on the device of the root
        with where:
            return _run(roots, keep_graph, create_graph, captures, cut)
    return _run(roots, keep_graph, create_graph, captures, cut)


def _is_plain(create_graph: bool) -> bool:
    """Return whether nothing is recorded in the pass, and no profiler or anomaly mode watches it."""
    return not (create_graph or observers or anomaly.state.enabled)


def _run(roots: Any, keep_graph: bool, create_graph: bool, captures: Any, cut: bool) -> list[Any]:
    """`run_backward` on the current device."""
    if captures is None and _is_plain(create_graph):
        _run_plain(roots, keep_graph)
        return []
    ready: list[tuple[int, Node]] = []
    buffers: dict[Node, list[Any]] = {}
    for (node, nr), gradient in roots:
        _add_to(buffers, node, nr, _as_tensor(gradient))
    wanted: dict[Node, list[tuple[int, int]]] = {}
    captured: list[Any] = []
    if captures is not None:
        captured = [None] * len(captures)
        for i, (node, nr) in enumerate(captures):
            wanted.setdefault(node, []).append((nr, i))
    waiting, useful = _plan(list(buffers), wanted if captures is not None else None, cut)
    for node in buffers:
        if node not in waiting:
            heappush(ready, (-node.sequence_nr, node))
    enabled = mode.enabled
    mode.enabled = create_graph
    capturing = running.capturing
    if not cut:
        running.capturing = captures is not None
    try:
        while ready:
            node = heappop(ready)[1]
            grads = buffers.pop(node, None) or [None] * node.n_outputs
            if cut and node in wanted:
                for nr, i in wanted[node]:
                    captured[i] = grads[nr]
                continue
            extra = node._extra
            if extra is not None:
                _before(extra, grads)
            if wanted and node in wanted:
                for nr, i in wanted[node]:
                    captured[i] = _captured(node, grads[nr])
            edges = node.next_edges
            if useful is None:
                needs: Sequence[bool] = [e is not None for e in edges]
            elif node in useful:
                needs = [e is not None and (e[0] in useful or e[0] in wanted) for e in edges]
            else:
                continue
            result = _run_node(node, grads, needs, keep_graph)
            for edge, need, gradient in zip(edges, needs, result):
                if not need:
                    continue
                target, nr = edge  # type: ignore[misc]
                if gradient is not None:
                    # first arrival inline: the usual case
                    if target not in buffers:
                        if target.n_outputs == 1:
                            buffers[target] = [gradient]
                        else:
                            _add_to(buffers, target, nr, gradient)
                    else:
                        _add_to(buffers, target, nr, gradient)
                left = waiting[target] - 1
                if left:
                    waiting[target] = left
                else:
                    heappush(ready, (-target.sequence_nr, target))
            # no name may keep a gradient alive while AccumulateGrad looks whether it can have it
            result = gradient = edge = target = None
            grads = []
    finally:
        mode.enabled = enabled
        running.capturing = capturing
    return captured


def _run_plain(roots: Sequence[tuple[Edge, Any]], keep_graph: bool) -> None:
    """The pass where every node runs and nothing is recorded: Note [Gradients over arrays]."""
    ready: list[tuple[int, Node]] = []
    buffers: dict[Node, list[Any]] = {}
    for (node, nr), gradient in roots:
        if node not in buffers:
            ready.append((-node.sequence_nr, node))
        if gradient.__class__ is not ndarray:
            gradient = _as_tensor(gradient)
        _add_to(buffers, node, nr, gradient)
    gradient = None
    enabled, mode.enabled = mode.enabled, False
    capturing = running.capturing
    if capturing:
        running.capturing = False
    try:
        if not _run_unplanned(ready, buffers, keep_graph):
            _run_planned(ready, buffers, keep_graph)
    finally:
        mode.enabled = enabled
        if capturing:
            running.capturing = True


def _run_unplanned(ready: list[tuple[int, Node]], buffers: dict[Node, list[Any]], keep_graph: bool) -> bool:
    """Run what needs no plan; whether that was everything.  What is left stands in `ready` and `buffers`.

    Note [Passes without a plan]
    The nodes that read a value are younger than the node that made it.  Taking the youngest first therefore never runs
    a node before all its gradients are there, and nothing has to be counted.  Counting tells when the gradient of a
    leaf is whole, so that it can be accumulated at once.  As long as all nodes compute over arrays, which are small,
    leaves may wait for the end of the pass; at the first node of another kind, or leaf with hooks, the rest is planned.
    """
    if len(ready) > 1:
        heapify(ready)
    node = heappop(ready)[1]
    following: Any  # the last to arrive: it waits outside the heap, which a chain never needs
    result: Any
    grads: Any
    plan = False
    while not plan:
        grads = buffers[node]
        edges = node.next_edges
        if node.arrays is None or node._extra is not None or (result := node.arrays(grads, edges)) is None:
            break
        del buffers[node]
        if not keep_graph and node.saved:
            node.saved = None
        following = None
        for edge, gradient in zip(edges, result):
            if edge is None:
                continue
            target, nr = edge
            if target in buffers:
                if gradient is not None:
                    _add_to(buffers, target, nr, gradient)
                continue
            if target.n_outputs == 1:
                buffers[target] = [gradient]
            else:
                _add_to(buffers, target, nr, gradient)
            if target.__class__ is AccumulateGrad:
                leaf = target.variable
                if leaf._hooks or leaf._post_accumulate_hooks or target._extra is not None:
                    plan = True
            else:
                if following is not None:
                    heappush(ready, (-following.sequence_nr, following))
                following = target
        if following is None:
            if not ready:  # all that is left are leaves
                # no name may keep a gradient alive while AccumulateGrad looks whether it can have it
                result = gradient = grads = None
                _run_leaves(list(buffers), buffers, keep_graph)
                return True
            node = heappop(ready)[1]
        elif ready:
            node = heappushpop(ready, (-following.sequence_nr, following))[1]
        else:
            node = following
    heappush(ready, (-node.sequence_nr, node))
    return False


def _run_leaves(leaves: list[Any], buffers: dict[Node, list[Any]], keep_graph: bool) -> None:
    """Accumulate the gradients of `leaves`, which they have whole."""
    for leaf in leaves:
        grads = buffers.pop(leaf)
        if not accumulate_arrays(leaf, grads):
            _run_node(leaf, _tensors(leaf, grads), (), keep_graph)


def _run_planned(ready: list[tuple[int, Node]], buffers: dict[Node, list[Any]], keep_graph: bool) -> None:
    """Run the rest of the pass; leaves go first, as their sequence numbers say, once they have their whole gradient."""
    waiting = _count([node for _, node in ready])
    ready = [item for item in ready if item[1] not in waiting]
    heapify(ready)
    _run_leaves(
        [n for n in buffers if n.__class__ is AccumulateGrad and n not in waiting],
        buffers,
        keep_graph,
    )
    result: Any
    leaves: list[Node] = []  # that have their whole gradient
    following: Any = None
    while ready or following is not None:
        if following is None:
            node = heappop(ready)[1]
        elif ready:
            node = heappushpop(ready, (-following.sequence_nr, following))[1]
            following = None
        else:
            node, following = following, None
        grads = buffers.pop(node, None)
        edges = node.next_edges
        if (
            node.arrays is None
            or node._extra is not None
            or grads is None
            or (result := node.arrays(grads, edges)) is None
        ):
            if (
                node.adds is not None
                and node._extra is None
                and grads is not None
                and edges[0] is not None
                and edges[0][0] in buffers
                and _added(node, grads[0], buffers[edges[0][0]], edges[0][1])
            ):
                result = (None,)
                if not keep_graph:
                    node.release()
            else:
                result = _run_node(node, _tensors(node, grads), [e is not None for e in edges], keep_graph)
        elif not keep_graph and node.saved:
            node.saved = None
        for edge, gradient in zip(edges, result):
            if edge is None:
                continue
            target, nr = edge
            if gradient is not None:
                if target in buffers or target.n_outputs != 1:
                    _add_to(buffers, target, nr, gradient)
                else:
                    buffers[target] = [gradient]
            left = waiting[target] - 1
            if left:
                waiting[target] = left
            elif target.__class__ is AccumulateGrad:
                if target in buffers:
                    leaves.append(target)
            else:
                if following is not None:
                    heappush(ready, (-following.sequence_nr, following))
                following = target
        # no name may keep a gradient alive while AccumulateGrad looks whether it can have it
        result = gradient = edge = grads = None
        if leaves:
            target = None  # type: ignore[assignment]
            _run_leaves(leaves, buffers, keep_graph)
            leaves = []


def _as_tensor(gradient: Any) -> Any:
    return gradient if isinstance(gradient, registered.Tensor) else registered.wrap(gradient)


def _tensors(node: Node, grads: list[Any] | None) -> list[Any]:
    """The gradients of a node's outputs as Tensors, after the hooks that change them."""
    if grads is None:
        grads = [None] * node.n_outputs
    for i, gradient in enumerate(grads):
        if gradient.__class__ is ndarray:
            grads[i] = registered.wrap(gradient)
    if node._extra is not None:
        _before(node._extra, grads)
    return grads


def _run_node(node: Node, grads: list[Any], needs: Sequence[bool], keep_graph: bool) -> Any:
    """The gradients for a node's inputs, after its hooks; all None where nothing arrived."""
    if not node.always_runs and not any(g is not None for g in grads):
        return (None,) * len(needs)
    if not keep_graph and node.last is not None:
        node.last()
    if observers or anomaly.state.enabled:
        result = _watched(node, grads, needs)
    else:
        result = node.apply(grads, needs)
    extra = node._extra
    if extra is not None:
        if extra.also_saved is not None and mode.enabled and extra.also_saved.again is not None:
            result = extra.also_saved.renewed(result, grads)
        if extra.post_hooks:
            result = _after(extra, result, grads)
    if not keep_graph:
        node.release()
    return result


def _watched(node: Node, grads: list[Any], needs: Sequence[bool]) -> Any:
    """Run a node under a profiler or in anomaly mode."""
    try:
        if observers:
            result = observers[-1](node, lambda: node.apply(grads, needs))
        else:
            result = node.apply(grads, needs)
    except Exception:
        if anomaly.state.enabled:
            anomaly.explain(node)
        raise
    if anomaly.state.enabled:
        anomaly.check(node, result)
    return result


def _count(roots: list[Node]) -> dict[Node, int]:
    """Count for each node of the graph below `roots` the nodes that feed it."""
    waiting: dict[Node, int] = {}
    stack = list(roots)
    seen = set(stack)
    while stack:
        for edge in stack.pop().next_edges:
            if edge is not None:
                node = edge[0]
                count = waiting.get(node)
                if count is not None:
                    waiting[node] = count + 1
                else:
                    waiting[node] = 1
                    if node not in seen:
                        stack.append(node)
    return waiting


def _plan(
    roots: list[Node], wanted: dict[Node, list[tuple[int, int]]] | None, cut: bool = False
) -> tuple[dict[Node, int], set[Node] | None]:
    """Return the number of nodes that feed each node, and the nodes with a path to a wanted one (None = all)."""
    if wanted is None:
        return _count(roots), None
    waiting: dict[Node, int] = {}
    stack = list(roots)
    seen = set(stack)
    order: list[Node] = []
    # A node is useful if a wanted node is below it.  Two passes: collect, then mark upwards along reversed edges.
    parents: dict[Node, list[Node]] = {}
    while stack:
        node = stack.pop()
        if cut and node in wanted:
            continue
        order.append(node)
        for edge in node.next_edges:
            if edge is not None:
                child = edge[0]
                parents.setdefault(child, []).append(node)
                if child not in seen:
                    seen.add(child)
                    stack.append(child)
    useful: set[Node] = set()
    stack = [n for n in wanted if n in seen]
    while stack:
        for parent in parents.get(stack.pop(), ()):
            if parent not in useful:
                useful.add(parent)
                stack.append(parent)
    for node in order:
        if node in useful:
            for edge in node.next_edges:
                if edge is not None and (edge[0] in useful or edge[0] in wanted):
                    waiting[edge[0]] = waiting.get(edge[0], 0) + 1
    return waiting, useful


_SMALL = 1 << 12  # elements up to which numpy adds two arrays


def _add_to(buffers: dict[Node, list[Any]], node: Node, nr: int, gradient: Any) -> None:
    slots = buffers.get(node)
    if slots is None:
        slots = buffers[node] = [None] * node.n_outputs
    have = slots[nr]
    if have is None:
        slots[nr] = gradient
    elif have.__class__ is ndarray and gradient.__class__ is ndarray and have.size <= _SMALL:
        slots[nr] = asarray(have + gradient)
    else:
        have, gradient = (registered.wrap(g) if g.__class__ is ndarray else g for g in (have, gradient))
        if node.__class__ is AccumulateGrad and (have._channels_last is None) != (gradient._channels_last is None):
            for one in (have, gradient):
                one._array  # noqa: B018  # in torch's order, which the leaf has: the sum would be converted else
        slots[nr] = plus(have, gradient)


def _added(node: Node, gradient: Any, slots: list[Any], nr: int) -> bool:
    """Add the gradient of a part to the gradient of the whole that is there, if nothing but `slots` holds that."""
    array = slots[nr]
    if array.__class__ is registered.Tensor:
        have = array
        del array
        if sys.getrefcount(have) != LOCAL_AND_ONE or have._channels_last is not None or have._view is not None:
            return False
        array = have._array
    if array.__class__ is not ndarray or sys.getrefcount(array) != LOCAL_AND_ONE or not owns(array):
        return False
    return bool(node.adds(node.args, gradient, array))


def _before(extra: Extra, grads: list[Any]) -> None:
    """Tensor hooks, then retain_grad, then node pre-hooks; `grads` is changed in place."""
    if extra.pre_hooks:
        for nr, hooks in list(extra.pre_hooks.items()):
            if hooks:  # an output that got no gradient, too, as in torch: its hooks are called with None
                grads[nr] = run_hooks(hooks, grads[nr])
    if extra.retains:
        for nr, ref in extra.retains.items():
            tensor = ref()
            gradient = grads[nr]
            if tensor is not None and gradient is not None:
                if tensor._grad is None:
                    tensor._grad = gradient if mode.enabled else registered.clone(gradient)
                else:
                    tensor._grad = registered.add(tensor._grad, gradient)
    if extra.prehooks:
        for hook in list(extra.prehooks.values()):
            changed = hook(tuple(grads))
            if changed is not None:
                grads[:] = changed
    if extra.also_saved is not None:
        extra.also_saved.check(registered.wrap)


def _after(extra: Extra, result: Sequence[Any], grads: list[Any]) -> Sequence[Any]:
    """Node post-hooks: (grad_inputs, grad_outputs) -> replacement or None."""
    for hook in list((extra.post_hooks or {}).values()):
        changed = hook(tuple(result), tuple(grads))
        if changed is not None:
            result = changed if isinstance(changed, tuple | list) else (changed,)
    return result


def _captured(node: Node, gradient: Any) -> Any:
    """The gradient to return for an input: leaf hooks act on it as they would before accumulation."""
    if gradient is not None and isinstance(node, AccumulateGrad) and node.variable._hooks:
        gradient = run_hooks(node.variable._hooks, gradient)
    return gradient
