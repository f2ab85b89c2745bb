"""Recording a training step: its ops forward and backward, and what is called as a whole.

A step runs op by op, as it always does, while its calls are noted: the ops of forward, those of the gradient formulas
(an observer of the backward pass makes all of them Tensor formulas, which are written with ops), what reaches the
`.grad` of a leaf (`accumulate_grad`), and the functions that are `noted` as a whole (`engine/core/hooks.py`): an
optimizer's or a scheduler's step, zero_grad, clip_grad_norm_, GradScaler.  The latter read their objects at each call,
so no hyper-parameter is fixed.

Unlike a trace for inference, nothing is held: a tensor is known as long as it lives, so that recording takes the
memory of the step itself.  What a program would get wrong shows in two recordings of two steps: `compare` takes the
second only if it made the same calls with the same arguments, and the same constants.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.autograd import engine as passes
from engine.autograd.graph import AccumulateGrad, accumulate
from engine.core.hooks import watchers
from engine.dispatch import COMPOSITES, PUBLIC, with_fact
from engine.nn.modules import _hooks
from engine.nn.modules.module import Module
from engine.ops import copying, norm
from engine.ops import registered as registered_ops
from engine.ops.random import dropout
from engine.programs.recorder import Recorder
from engine.programs.values import Call, Ref, Unsupported, mapped, record_of, refs_in, tensors_in
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.autograd.graph import Node
    from engine.dispatch.gate import Call as Function

__all__ = ["Step", "accumulate_grad", "compare", "grad_of", "hooked", "set_grad"]

_EFFECTS = frozenset(["update_running"])


def accumulate_grad(leaf: Tensor, gradient: Tensor, own: bool) -> Tensor | None:
    """Add a gradient to `leaf.grad`, as the backward pass does.  own: nobody else reads that tensor."""
    accumulate(leaf, gradient, own)
    return leaf._grad  # type: ignore[no-any-return]


def grad_of(leaf: Tensor) -> Tensor | None:
    """`leaf.grad`."""
    return leaf._grad  # type: ignore[no-any-return]


def set_grad(leaf: Tensor, value: Tensor | None) -> None:
    """`leaf.grad = value`."""
    leaf.grad = value


def _whole() -> set[str]:
    """Return the names of functions that work on arrays and are no ops: fills, draws, what makes tensors."""
    return {name for name, why in with_fact("recorded").items() if why in ("creation", "draw", "fill")}


def whole_functions() -> list[FunctionType]:
    """Return the functions that are recorded as one call although they are no ops."""
    found: list[object] = [
        copying.copy_,
        copying.fill_,
        copying.zero_,
        copying.zeros_like_array,
        norm.update_running,
        dropout.noise_like,
        registered_ops._cast,
        registered_ops._contiguous_copy,
    ]
    for name in _whole():
        found += [COMPOSITES.get(name), PUBLIC.get(name), vars(Tensor).get(name)]
    unique = {id(f): f for f in found if isinstance(f, FunctionType) and not hasattr(f, "op")}
    return list(unique.values())


class Step:
    """What a training step does beside calls of ops, for its recorder; the top of this file says what that is.

    boundary: how many calls are forward, if the backward pass is another program; that one gets `cotangents` inputs
    more, the last, for `roots`, and gives `grads` for `leaves`.
    """

    def __init__(self, inputs: list[Tensor]) -> None:
        self.recorder = Recorder(inputs, whole=dict.fromkeys(whole_functions()), step=self)
        self.drawing = _whole()
        self.modules: dict[int, Module] = {}  # those called
        self.watched: dict[int, tuple[Tensor, int]] = {}  # tensors of those, and their versions
        self.backward = False  # whether the step itself ran a backward pass
        self.begun: int | None = None
        self.graded: set[int] = set()  # ids of leaves that a backward pass of the step has reached
        self.boundary: int | None = None
        self.roots: list[Ref] = []  # what it returned that gradients flow through
        self.leaves: list[Ref] = []  # where they flow to, if backward is another program
        self.grads: list[Ref | None] = []
        self.cotangents = 0

    def release(self) -> None:
        """Forget the tensors of the run; numbers, calls and constants stay."""
        self.recorder.release()
        self.watched.clear()

    # --- calls

    def effect(self, function: FunctionType) -> bool:
        """Return whether a function draws, or writes to what it is given and gives nothing."""
        name = function.__name__
        if name in _EFFECTS or name == "noise_like":
            return True
        draws = not record_of(function).deterministic or name in self.drawing
        return draws and not name.startswith(("zeros", "ones", "full", "empty"))

    def host(self, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """A `noted` function is called: one call of the program."""
        recorder = self.recorder
        if not recorder.active():
            return function(*args, **kwargs)
        args = tuple(list(a) if isinstance(a, types.GeneratorType) else a for a in args)
        if any(callable(a) and not hasattr(a, "__self__") and isinstance(a, types.FunctionType) for a in args):
            recorder.failure = Unsupported(f"{function.__qualname__} with a closure")
        recorder.attempt(self.unwritten)
        recorder.inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            recorder.inside = False
        recorder.attempt(self._note_host, function, args, kwargs, result)
        return result

    def _note_host(
        self, function: Function, args: tuple[object, ...], kwargs: dict[str, object], result: object
    ) -> None:
        recorder = self.recorder
        recorder.drew()
        recorder.expected.clear()
        self.watched = {key: (t, t._vc[0]) for key, (t, _) in self.watched.items()}
        call = Call(function, mapped(args, recorder.ref, Tensor), mapped(kwargs, recorder.ref, Tensor), [], False)
        recorder.add(call, result, tensors_in(result), effect=True)

    def _note_effect(self, function: Function, args: tuple[object, ...], result: Tensor | None) -> None:
        """Note a call that reads or writes `.grad`."""
        made = () if result is None else (result,)
        self.recorder.add(Call(function, args, {}, [], False), result, made, effect=True)

    # --- what else is watched

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch `.grad`, backward passes and the modules that are called."""
        plain_grad, plain_apply = Tensor.__dict__["grad"], AccumulateGrad.apply
        self.begun = _sequence()
        handle = _hooks.register_module_forward_pre_hook(self._called)
        try:
            watchers.append(self.host)
            passes.observers.append(self._node)
            AccumulateGrad.apply = self._accumulation(plain_apply)  # type: ignore[method-assign]
            Tensor.grad = self._grad_property(plain_grad)  # type: ignore[method-assign,assignment]
            yield
        finally:
            Tensor.grad = plain_grad  # type: ignore[method-assign]
            AccumulateGrad.apply = plain_apply  # type: ignore[method-assign]
            if self._node in passes.observers:
                passes.observers.remove(self._node)
            if self.host in watchers:
                watchers.remove(self.host)
            handle.remove()

    def _called(self, module: Module, args: object) -> None:
        if id(module) not in self.modules:
            self.modules[id(module)] = module
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    self.watched.setdefault(id(tensor), (tensor, tensor._vc[0]))

    def unwritten(self) -> None:
        """Unsupported if something has been written to in a way that was not noted."""
        for tensor, version in self.watched.values():
            now = tensor._vc[0]
            known = self.recorder.expected.get(id(tensor._vc))
            if now != version and (known is None or known[1] != now):
                raise Unsupported(f"a tensor {list(tensor.shape)} is written to in a way that no op shows")

    def _node(self, node: Node, run: Callable[[], object]) -> object:
        """A node of a backward pass runs."""
        if self.recorder.active():
            self.backward = True
            if type(node) is not AccumulateGrad:
                if self.begun is not None and node.sequence_nr < self.begun:
                    self.recorder.failure = Unsupported("it goes backward through what was computed before it")
                if hooked(node):
                    self.recorder.failure = Unsupported("there are hooks on tensors or nodes of its graph")
        return run()

    def _accumulation(self, plain: Function) -> Function:
        def apply(node: AccumulateGrad, grads: list[Any], needs: Sequence[bool]) -> object:
            if not self.recorder.active() or grads[0] is None:
                return plain(node, grads, needs)
            leaf = node.variable
            if leaf._hooks or leaf._post_accumulate_hooks or node._extra is not None:
                self.recorder.failure = Unsupported("there are hooks on a parameter")
                return plain(node, grads, needs)
            if grads[0].is_sparse:
                self.recorder.failure = Unsupported("it has sparse gradients")
                return plain(node, grads, needs)
            self.recorder.attempt(self.recorder.see, grads[0])
            given: list[object] = []
            self.recorder.attempt(lambda: given.extend((self.recorder.leaf(leaf), self.recorder.ref(grads[0]))))
            self.recorder.inside = True
            try:
                result = plain(node, grads, needs)
            finally:
                self.recorder.inside = False
            if self.recorder.failure is None:
                self.graded.add(id(leaf))
                had = leaf._grad
                self.recorder.attempt(self._note_effect, accumulate_grad, (*given, False), had)
            return result

        return apply

    def _grad_property(self, plain: Any) -> property:
        def read(tensor: Tensor) -> Any:
            found = plain.fget(tensor)
            if self.recorder.active() and id(tensor) not in self.graded:
                self.recorder.failure = Unsupported("it reads .grad before it has gone backward")
            if found is not None and self.recorder.active() and id(found) not in self.recorder.numbers:
                self.recorder.attempt(lambda: self._note_effect(grad_of, (self.recorder.leaf(tensor),), found))
            return found

        def write(tensor: Tensor, value: object) -> None:
            plain.fset(tensor, value)
            if self.recorder.active():
                self.recorder.attempt(self._note_grad, tensor, value)

        def drop(tensor: Tensor) -> None:
            write(tensor, None)

        return property(read, write, drop)

    def _note_grad(self, tensor: Tensor, value: Tensor | None) -> None:
        given = self.recorder.leaf(tensor), None if value is None else self.recorder.ref(value)
        self._note_effect(set_grad, given, None)


def hooked(node: Node) -> bool:
    """Return whether somebody waits for the gradients at a node."""
    extra = node._extra
    if extra is None:
        return False
    return bool(extra.prehooks or extra.pre_hooks or extra.post_hooks or extra.retains)


def _sequence() -> int:
    from engine.autograd.graph import next_seq

    return next_seq()


# --- two recordings of one step


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Ref):
        return isinstance(second, Ref) and first.index == second.index
    if type(first) is not type(second):
        return False
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(v, second[k]) for k, v in first.items())
    if isinstance(first, slice):
        return all(_same(getattr(first, n), getattr(second, n)) for n in ("start", "stop", "step"))
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, float) and first != first:
        return bool(second != second)
    return first is second or bool(first == second)


def _differs(first: Call, second: Call) -> str:
    for a, b in zip((*first.args, *first.kwargs.values()), (*second.args, *second.kwargs.values())):
        if not _same(a, b):
            if refs_in(a) or refs_in(b):
                return "other tensors"
            return f"{a!r:.40}, then {b!r:.40}"
    return "other arguments"


def compare(before: Step, now: Step) -> None:
    """Unsupported unless two recordings of a step are of one program."""
    first, second = before.recorder, now.recorder
    for i, (a, b) in enumerate(zip(first.calls, second.calls)):
        name = getattr(a.function, "__name__", "a function")
        if a.function is not b.function and getattr(a.function, "__qualname__", 0) != getattr(
            b.function, "__qualname__", 1
        ):
            other = getattr(b.function, "__name__", "another function")
            raise Unsupported(f"its steps differ: call {i} was {name}, then {other}")
        if not (_same(a.args, b.args) and _same(a.kwargs, b.kwargs) and a.outputs == b.outputs):
            raise Unsupported(f"its steps differ: {name} had {_differs(a, b)}")
    if len(first.calls) != len(second.calls) or before.boundary != now.boundary:
        raise Unsupported(f"its steps differ: {len(first.calls)} calls, then {len(second.calls)}")
    if first.constants.keys() != second.constants.keys() or not _same(first.result, second.result):
        raise Unsupported("its steps differ in the tensors that they find or return")
    for number, tensor in second.constants.items():
        if first.constants[number] is tensor:
            second.fresh.pop(number, None)
        elif number in first.fresh and number in second.fresh:
            if not np.array_equal(
                first.fresh[number], second.fresh[number], equal_nan=tensor._array.dtype.kind in "fc"
            ):
                raise Unsupported(
                    f"a tensor {list(tensor.shape)} comes up in a way that no op shows, with other values each step"
                )
        else:
            raise Unsupported(f"a tensor {list(tensor.shape)} is another one each step")
