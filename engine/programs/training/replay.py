"""The programs of a recorded step, and what calls them: one for a whole step, two where backward is the user's."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from engine.autograd import engine as passes
from engine.autograd.graph import Node, edge_of, requires_grad_of
from engine.autograd.versions import check_input, second_time
from engine.core.grad_mode import enable_grad, mode
from engine.programs.training.program import Built, build, compiled, cut
from engine.programs.training.small import is_small, on_arrays
from engine.programs.training.step import Step, hooked
from engine.programs.values import Ref, Unsupported, mapped, tensors_in
from engine.random import default_generator
from engine.tensor import Tensor, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.programs.training import Recorded

__all__ = ["PairProgram", "StepProgram", "finish"]

_first, _counter = itemgetter(0), attrgetter("_vc")


def _unreleased(roots: list[Node]) -> bool:
    """Return whether the graph below still has what its backward needs.  Unsupported where hooks wait in it."""
    stack, seen, held = list(roots), set(roots), False
    while stack:
        node = stack.pop()
        held = held or bool(node.saved)
        if hooked(node):
            raise Unsupported("there are hooks on tensors or nodes of its graph")
        for edge in node.next_edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return held


def finish(step: Step, given: list[Tensor], result: object) -> None:
    """After forward: record the backward of what it returned, if that is still to come."""
    trace = step.recorder
    made = list({id(t): t for t in tensors_in(result)}.values())
    roots = [t for t in made if requires_grad_of(t)]
    step.roots = [trace.ref(t) for t in roots]
    step.leaves, step.grads, step.cotangents = [], [], 0
    if not roots:
        return
    if any(id(t) in trace.exact for t in roots):
        raise Unsupported("it returns a tensor that it was given")
    if not _unreleased([edge_of(t)[0] for t in roots]) and step.backward:
        return
    if step.backward:
        raise Unsupported("it returns a tensor whose graph it keeps (retain_graph)")
    leaves = [t for t in given if requires_grad_of(t)]
    for tensor in trace.constants.values():
        if requires_grad_of(tensor):
            if not tensor.is_leaf:
                raise Unsupported("gradients flow to a tensor that was computed before it")
            leaves.append(tensor)
    leaves = list({id(t): t for t in leaves}.values())
    if any(t._hooks or t._post_accumulate_hooks for t in leaves):
        raise Unsupported("there are hooks on a parameter")
    written = {call.refs[0] for call in trace.calls if call.inplace}
    if any(trace.exact.get(id(t)) in written for t in leaves):
        raise Unsupported("it writes to a tensor that requires grad")
    for number in trace.fresh:
        if requires_grad_of(trace.constants[number]):
            raise Unsupported("it makes a leaf that requires grad")
    step.boundary = len(trace.calls)
    ones = [wrap(np.ones(tuple(t.shape), t._array.dtype)) for t in roots]
    trace.inputs += [trace.add_input(t) for t in ones]
    step.cotangents = len(ones)
    pairs = [(edge_of(t), g) for t, g in zip(roots, ones)]
    found = passes.run_backward(pairs, True, False, [edge_of(t) for t in leaves])
    step.leaves = [trace.leaf(t) for t in leaves]
    step.grads = [None if g is None else trace.ref(g) for g in found]


class _Released(Node):
    """The history of what a step returned: its graph is gone, as op by op."""

    def name(self) -> str:
        return "CompiledFunctionBackward"

    def apply(self, grads: list[Tensor | None], needs: Sequence[bool]) -> NoReturn:
        second_time()


class StepProgram:
    """The program of a whole step."""

    def __init__(self, step: Step, owner: Recorded) -> None:
        numbers = [r.index for r in {r.index: r for r in _refs(step.recorder.result)}.values()]
        self.place = {n: i for i, n in enumerate(numbers)}
        built = build(step, tuple(map(Ref, numbers)))
        self.graph, self.constants = built.graph, built.constants
        self.run = compiled(built.graph, "step")
        if is_small(built.graph):
            self.run = on_arrays(built.graph, self.run)
        self.result = step.recorder.result
        self.released = [self.place[r.index] for r in step.roots]

    def __call__(self, given: list[Tensor], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        mode.enabled = False
        try:
            found = self.run([*given, *self.constants])
        finally:
            mode.enabled = True
        for i in self.released:
            found[i]._requires_grad, found[i]._edge = True, (_Released(), 0)
        if self.result.__class__ is Ref:
            return found[0]
        return mapped(self.result, lambda r: found[self.place[r.index]], Ref) if found else self.result

    def __repr__(self) -> str:
        return str(self.graph)


def _refs(value: object) -> list[Ref]:
    found: list[Ref] = []
    mapped(value, found.append, Ref)
    return found


class PairProgram:
    """The programs of forward and backward, joined by one node."""

    def __init__(self, step: Step, owner: Recorded) -> None:
        self.owner = owner
        numbers = list({r.index: None for r in _refs(step.recorder.result)})
        self.place = {n: i for i, n in enumerate(numbers)}
        self.result = step.recorder.result
        self.roots = [self.place[r.index] for r in step.roots]
        built: Built = build(step, (tuple(map(Ref, numbers)), tuple(step.grads)), step.cotangents)
        self.graph, self.constants = built.graph, built.constants
        forward, backward, self.read = cut(built)
        self.forward, self.backward = compiled(forward, "forward"), compiled(backward, "backward")
        inputs = len(step.recorder.inputs) - step.cotangents
        number_of = {n: i for i, n in enumerate([*step.recorder.inputs[:inputs], *step.recorder.constants])}
        self.leaves = [number_of[r.index] for r in step.leaves]  # positions among inputs and constants
        self.draws = any(call.effect for call in step.recorder.calls)
        names = {"n_outputs": len(self.roots), "__slots__": ()}
        self.node = type("CompiledFunctionBackward", (_Backward,), names)

    def __call__(self, given: list[Tensor], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        values = [*given, *self.constants]
        before = default_generator.get_state() if self.draws else None
        mode.enabled = False
        try:
            found, saved = self.forward(values.copy())
        finally:
            mode.enabled = True
        leaves = [values[i] for i in self.leaves]
        node = self.node([edge_of(t) for t in leaves])
        retained = [values[i] for i in self.read]
        retained += saved
        node.saved = retained, [*map(_first, map(_counter, retained))]
        node.args = self, (args, kwargs, leaves, before)
        for nr, i in enumerate(self.roots):
            tensor = found[i]
            tensor._requires_grad = True
            if tensor._view is None:
                tensor._edge = (node, nr)
            else:
                tensor._view, tensor._base, tensor._edge = None, None, (node, nr)
        if self.result.__class__ is Ref:
            return found[0]
        return mapped(self.result, lambda r: found[self.place[r.index]], Ref)

    def again(self, recipe: tuple[Any, ...], grads: list[Any], needs: Sequence[bool]) -> list[Any]:
        """The gradients op by op: forward once more, with the numbers it drew."""
        args, kwargs, leaves, before = recipe
        owner = self.owner
        buffers = [] if owner.module is None else list(owner.module.buffers())
        retained = [(b, b._array.copy(), b._vc[0]) for b in buffers]
        now = default_generator.get_state()
        try:
            if before is not None:
                default_generator.set_state(before)
            with enable_grad():
                result = owner.function(*args, **kwargs)
        finally:
            default_generator.set_state(now)
            for buffer, array, version in retained:
                buffer._array[...] = array
                buffer._vc[0] = version
        made = list({id(t): t for t in tensors_in(result)}.values())
        roots = [t for t in made if requires_grad_of(t)]
        pairs = [(edge_of(t), g) for t, g in zip(roots, grads) if g is not None]
        return passes.run_backward(pairs, True, mode.enabled, [edge_of(t) for t in leaves])

    def __repr__(self) -> str:
        return str(self.graph)


class _Backward(Node):
    """Backward of a module's program."""

    __slots__ = ("sole",)

    def name(self) -> str:
        return "CompiledFunctionBackward"

    def last(self) -> None:
        """The pass that begins is the only one: what was saved may go as it is read."""
        self.sole = True

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> list[Any]:
        if self.saved is None:
            second_time()
        retained, versions = self.saved
        plan, recipe = self.args
        for tensor, version in zip(retained, versions):
            if tensor._vc[0] != version:
                check_input(tensor, version)
        if mode.enabled:
            plan.owner._warn("its gradients are differentiated (create_graph=True)")
            return plan.again(recipe, grads, needs)  # type: ignore[no-any-return]
        if any(g is None for g in grads):
            return plan.again(recipe, grads, needs)  # type: ignore[no-any-return]
        values = [*retained, *grads]
        if getattr(self, "sole", False):
            self.saved = retained = tensor = None
            self.args = None
            grads.clear()
        found = plan.backward(values)
        return [g if need else None for g, need in zip(found, needs)]
