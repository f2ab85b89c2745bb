"""Recording a training step: its ops forward and backward, and what is called as a whole.

Note [Recorded steps]
A step runs op by op, as it always does, while its calls are noted: the ops of forward, those of the gradient formulas
(an observer of the backward pass makes all of them Tensor formulas, which are written with ops), what reaches the
`.grad` of a leaf (`accumulate_grad`), and the functions that are `noted` as a whole (engine/hooks.py): an optimizer's
or a scheduler's step, zero_grad, clip_grad_norm_, GradScaler.  The latter read their objects at each call, so no
hyper-parameter is fixed.

Unlike a trace for inference, nothing is held: a tensor is known as long as it lives, so that recording takes the
memory of the step itself.  What a program would get wrong shows in two recordings of two steps: `compare` takes the
second only if it made the same calls with the same arguments, and the same constants.
"""

from __future__ import annotations

import contextlib
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from engine.autograd import engine as passes
from engine.autograd.graph import AccumulateGrad, accumulate
from engine.dispatch import COMPOSITES, OPS, PUBLIC, autocast
from engine.dispatch.listeners import copied, listener_code
from engine.hooks import watchers
from engine.nn.modules import _hooks
from engine.nn.modules.module import Module
from engine.ops import copying
from engine.ops import registered as registered_ops
from engine.ops.nn import dropout, norm
from engine.plan.tracing import Call, Ref, Trace, Unsupported, _record_of, _setitem, mapped, refs_in, tensors_in
from engine.random import default_generator
from engine.tensor import Tensor, raw_array

__all__ = ["StepTrace", "accumulate_grad", "compare", "grad_of", "hooked", "set_grad"]

# Functions that work on arrays and are no ops.  Fills and draws are noted by these names.
_WHOLE = (
    "bernoulli_", "cauchy_", "copy_", "exponential_", "fill_", "geometric_", "log_normal_", "normal", "normal_", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "random_", "randperm", "uniform_", "zero_",
    "multinomial", "bernoulli", "empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like",
)  # fmt: skip
_EFFECTS = frozenset(["update_running"])


def accumulate_grad(leaf: Tensor, gradient: Tensor, own: bool) -> Tensor | None:
    """Add a gradient to `leaf.grad`, as the backward pass does.  own: nobody else reads that tensor."""
    accumulate(leaf, gradient, own)
    return leaf._grad


def grad_of(leaf: Tensor) -> Tensor | None:
    """`leaf.grad`."""
    return leaf._grad


def set_grad(leaf: Tensor, value: Tensor | None) -> None:
    """`leaf.grad = value`."""
    leaf.grad = value


def whole_functions() -> list[FunctionType]:
    """What is noted although it is no op."""
    found: list[Any] = [
        copying.copy_,
        copying.fill_,
        copying.zero_,
        copying.zeros_like_array,
        norm.update_running,
        dropout.noise_like,
        registered_ops._cast,
        registered_ops._contiguous_copy,
    ]
    for name in _WHOLE:
        found += [COMPOSITES.get(name), PUBLIC.get(name), vars(Tensor).get(name)]
    unique = {id(f): f for f in found if isinstance(f, FunctionType) and not hasattr(f, "op")}
    return list(unique.values())


def _drawn() -> bytes:
    return bytes(default_generator.get_state()._array)


class StepTrace(Trace):
    """A trace of a step: `calls` with Refs; tensors it did not make are `constants` by number."""

    def __init__(self, inputs: list[Tensor]) -> None:
        self.calls: list[Call] = []
        self.results: list[Any] = []  # what each call returned, with Refs
        self.numbers: dict[int, int] = {}  # of living tensors by id
        self.arrays: dict[int, int] = {}  # the same by the id of their array
        self.living: dict[int, Any] = {}  # id of a tensor -> weak reference
        self.places: dict[int, Any] = {}  # id of an array -> weak reference
        self.count = 0
        self.constants: dict[int, Tensor] = {}  # type: ignore[assignment]
        self.exact: dict[int, int] = {}  # id of an input or constant -> its number
        self.created: dict[int, Any] = {}  # type: ignore[assignment]
        self.fresh: dict[int, Any] = {}  # number of a constant made during the step -> its elements
        self.expected: dict[int, Any] = {}
        self.derived: Any = _Always()
        self.boundary: int | None = None  # how many calls are forward, if the backward pass is another program
        self.owner = threading.get_ident()
        self.inside = False
        self.result: Any = None
        self.others: dict[Any, Any] = {_setitem: _setitem}
        self.originals: dict[Any, Any] = {}
        self.failure: Unsupported | None = None
        self.reads: list[str] = []
        self.modules: dict[int, Module] = {}  # those called
        self.watched: dict[int, Any] = {}  # tensors of those, and their versions
        self.state = _drawn()
        self.backward = False  # whether the step itself ran a backward pass
        self.begun: int | None = None
        self.graded: set[int] = set()  # ids of leaves that a backward pass of the step has reached
        self.roots: list[Ref] = []  # what it returned that gradients flow through
        self.leaves: list[Ref] = []  # where they flow to, if backward is another program
        self.grads: list[Ref | None] = []
        self.cotangents = 0
        self.kinds: list[tuple] = []  # shape and dtype of each number
        self.inputs = [self.add_input(t) for t in inputs]

    # --- which tensor is which

    def _add(self, tensor: Tensor, derived: bool = True) -> int:
        number = self.count
        self.count += 1
        array = raw_array(tensor)
        self.kinds.append((array.shape, array.dtype))
        self._know(tensor, number)
        return number

    def add_input(self, tensor: Tensor) -> int:
        """The number of a tensor that each call of the program gets anew."""
        number = self._add(tensor)
        self.exact[id(tensor)] = number
        return number

    def ref(self, tensor: Tensor) -> Ref:
        number = self.numbers.get(id(tensor))
        if number is None:
            number = self._alias(tensor)
        if number is None:
            number = self.constant(tensor)
        return Ref(number)

    def constant(self, tensor: Tensor) -> int:
        """A new number for a tensor that the step found there, or made without an op."""
        if type(raw_array(tensor)).__module__.partition(".")[0] not in ("numpy", "engine"):
            raise Unsupported("it computes on another device than the CPU")
        number = self._add(tensor)
        self.constants[number] = tensor
        self.exact[id(tensor)] = number
        if id(tensor) in self.created:
            self.fresh[number] = np.array(tensor._array)
        return number

    def leaf(self, tensor: Tensor) -> Ref:
        """The number of this very tensor, not of another on the same memory."""
        number = self.exact.get(id(tensor))
        return Ref(self.constant(tensor) if number is None else number)

    def made(self, tensor: Tensor) -> None:
        key = id(tensor)
        self.created[key] = weakref.ref(tensor, lambda _: self.created.pop(key, None))

    # --- calls

    def see(self, value: Any) -> None:
        if _drawn() != self.state:
            raise Unsupported("random numbers are drawn in a way that no op shows")
        for tensor in tensors_in(value):
            self.ref(tensor)
            counter = tensor._vc
            known = self.expected.get(id(counter))
            if known is None:
                self.expected[id(counter)] = (counter, counter[0])
            elif known[1] != counter[0]:
                raise Unsupported("a tensor is written to in a way that no op shows")

    def note(self, function: FunctionType, args: tuple, kwargs: dict, result: Any) -> None:
        self.state = _drawn()
        if result is NotImplemented:
            return  # the operator of the other operand follows
        op = _record_of(function)
        name = function.__name__
        if autocast.state.on:
            raise Unsupported("autocast is on")
        if kwargs.get("out") is not None:
            raise Unsupported(f"{name} with out=")
        setitem = function is _setitem
        inplace = setitem or (name.endswith("_") and bool(args) and result is args[0])
        made = tensors_in(result)
        if result is None and name in _EFFECTS:
            self._note_effect(function, args, kwargs)
            return
        if not made:
            raise Unsupported(f"{name} returned {type(result).__name__}")
        given = mapped((args, kwargs), self.ref, Tensor)
        known = [id(t) in self.numbers for t in made]
        if not inplace and any(known):
            if not all(known):
                raise Unsupported(f"{name} returned a tensor that it was given")
            return
        if inplace and not setitem:
            self._note_kept(args[0], given[0][0])
        call = Call(function, *given, [], inplace)
        if not getattr(op, "deterministic", True) or name in _WHOLE or name == "noise_like":
            call.effect = not name.startswith(("zeros", "ones", "full", "empty"))
        call.outputs = [self._add(t) for t in made]
        self.calls.append(call)
        self.results.append(None if setitem else mapped(result, self.ref, Tensor))
        for t in (*made, *tensors_in((args, kwargs))):
            self.expected[id(t._vc)] = (t._vc, t._vc[0])

    def _note_effect(self, function: FunctionType, args: tuple, kwargs: dict) -> None:
        """A function that is no op and writes to tensors it was given."""
        call = Call(function, *mapped((args, kwargs), self.ref, Tensor), [], False)
        call.effect = True
        self.calls.append(call)
        self.results.append(None)
        for t in tensors_in((args, kwargs)):
            self.expected[id(t._vc)] = (t._vc, t._vc[0])

    def _note_kept(self, written: Tensor, before: Ref) -> None:
        """What an in-place op saved of the values it wrote over is a copy of them."""
        node = None if written._edge is None else written._edge[0]
        for thing in (node.saved or ()) if node is not None else ():
            if isinstance(thing, Tensor) and id(thing) not in self.numbers and id(raw_array(thing)) not in self.arrays:
                call = Call(OPS["clone"].function, (before,), {}, [], False)
                call.outputs = [self._add(thing)]
                self.calls.append(call)
                self.results.append(Ref(call.outputs[0]))

    def host(self, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """A `noted` function is called: one call of the program."""
        if self.inside or self.failure or threading.get_ident() != self.owner:
            return function(*args, **kwargs)
        args = tuple(list(a) if isinstance(a, types.GeneratorType) else a for a in args)
        if any(callable(a) and not hasattr(a, "__self__") and isinstance(a, types.FunctionType) for a in args):
            self.failure = Unsupported(f"{function.__qualname__} with a closure")
        self.attempt(self._unwritten)
        self.inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            self.inside = False
        self.attempt(self._note_host, function, args, kwargs, result)
        return result

    def _note_host(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        self.state = _drawn()
        self.expected.clear()
        self.watched = {key: (t, t._vc[0]) for key, (t, _) in self.watched.items()}
        call = Call(function, *mapped((args, kwargs), self.ref, Tensor), [], False)
        call.effect = True
        call.outputs = [self._add(t) for t in tensors_in(result)]
        self.calls.append(call)
        self.results.append(mapped(result, self.ref, Tensor))

    def effect(self, function: Any, args: tuple, result: Tensor | None) -> None:
        """Note a call that reads or writes `.grad`."""
        call = Call(function, args, {}, [], False)
        call.effect = True
        given: Any = None
        if result is not None:
            call.outputs = [self._add(result)]
            given = Ref(call.outputs[0])
            self.expected[id(result._vc)] = (result._vc, result._vc[0])
        self.calls.append(call)
        self.results.append(given)

    def finish(self, seed: Tensor) -> None:
        if self.failure is None and self.reads:
            self.failure = Unsupported(f"the values of a tensor are read in Python (Tensor.{self.reads[0]})")
        if self.failure is None and _drawn() != self.state:
            self.failure = Unsupported("random numbers are drawn in a way that no op shows")

        self.attempt(self._unwritten)
        if self.failure is None and any(
            t._vc[0] != self.expected.get(id(t._vc), (0, t._vc[0]))[1] for t in self.constants.values()
        ):
            self.failure = Unsupported("a tensor is written to in a way that no op shows")

    def release(self) -> None:
        """Forget the tensors of the run; numbers, calls and constants stay."""
        for table in (self.numbers, self.arrays, self.living, self.places, self.created, self.expected, self.watched):
            table.clear()  # type: ignore[attr-defined]
        self.others, self.originals = {}, {}

    # --- what else is watched

    def active(self) -> bool:
        """Whether a call now belongs to the step."""
        return not self.inside and self.failure is None and threading.get_ident() == self.owner

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch functions that are no ops, `.grad`, backward passes and the modules that are called."""
        from engine.fx.record import _compiled

        kept: list[tuple[FunctionType, Any]] = []
        plain_grad, plain_apply = Tensor.__dict__["grad"], AccumulateGrad.apply
        self.begun = _sequence()
        handle = _hooks.register_module_forward_pre_hook(self._called)
        try:
            codes = [(function, _compiled(function)) for function in whole_functions()]  # by what they wrap: all first
            for function, code in codes:
                self.others[function] = copied(function, code)
                step = self.wrapped(function)

                def heard(args: Any, kwargs: Any, step: Any = step) -> Any:
                    return step(*args, **kwargs)

                kept.append((function, code))
                function.__code__ = listener_code(code, heard)
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
            for function, code in kept:
                function.__code__ = code

    def _called(self, module: Module, args: Any) -> None:
        if id(module) not in self.modules:
            self.modules[id(module)] = module
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    self.watched.setdefault(id(tensor), (tensor, tensor._vc[0]))

    def _unwritten(self) -> None:
        """Unsupported if something has been written to in a way that was not noted."""
        for tensor, version in self.watched.values():
            now = tensor._vc[0]
            known = self.expected.get(id(tensor._vc))
            if now != version and (known is None or known[1] != now):
                raise Unsupported(f"a tensor {list(tensor.shape)} is written to in a way that no op shows")

    def _node(self, node: Any, run: Callable[[], Any]) -> Any:
        """A node of a backward pass runs."""
        if self.active():
            self.backward = True
            if type(node) is not AccumulateGrad:
                if self.begun is not None and node.sequence_nr < self.begun:
                    self.failure = Unsupported("it goes backward through what was computed before it")
                if hooked(node):
                    self.failure = Unsupported("there are hooks on tensors or nodes of its graph")
        return run()

    def _accumulation(self, plain: Any) -> Any:
        def apply(node: Any, grads: list[Any], needs: Any) -> Any:
            if not self.active() or grads[0] is None:
                return plain(node, grads, needs)
            leaf = node.variable
            if leaf._hooks or leaf._post_accumulate_hooks or node._extra is not None:
                self.failure = Unsupported("there are hooks on a parameter")
                return plain(node, grads, needs)
            if grads[0].is_sparse:
                self.failure = Unsupported("it has sparse gradients")
                return plain(node, grads, needs)
            self.attempt(self.see, grads[0])
            given: list[Any] = []
            self.attempt(lambda: given.extend((self.leaf(leaf), self.ref(grads[0]))))
            self.inside = True
            try:
                result = plain(node, grads, needs)
            finally:
                self.inside = False
            if self.failure is None:
                self.graded.add(id(leaf))
                had = leaf._grad
                self.attempt(self.effect, accumulate_grad, (*given, False), had)
            return result

        return apply

    def _grad_property(self, plain: Any) -> property:
        def read(tensor: Tensor) -> Any:
            found = plain.fget(tensor)
            if self.active() and id(tensor) not in self.graded:
                self.failure = Unsupported("it reads .grad before it has gone backward")
            if found is not None and self.active() and id(found) not in self.numbers:
                self.attempt(lambda: self.effect(grad_of, (self.leaf(tensor),), found))
            return found

        def write(tensor: Tensor, value: Any) -> None:
            plain.fset(tensor, value)
            if self.active():
                self.attempt(self._note_grad, tensor, value)

        def drop(tensor: Tensor) -> None:
            write(tensor, None)

        return property(read, write, drop)

    def _note_grad(self, tensor: Tensor, value: Tensor | None) -> None:
        self.effect(set_grad, (self.leaf(tensor), None if value is None else self.ref(value)), None)


def hooked(node: Any) -> bool:
    """Whether somebody waits for the gradients at a node."""
    extra = node._extra
    if extra is None:
        return False
    if any(not hasattr(hook, "guards") for hook in (extra.prehooks or {}).values()):
        return True
    return bool(extra.pre_hooks or extra.post_hooks or extra.retains)


class _Always:
    """Every value depends on an input, or on what the next step may have changed."""

    def __getitem__(self, number: int) -> bool:
        return True


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


def compare(first: StepTrace, second: StepTrace) -> None:
    """Unsupported unless two recordings of a step are of one program."""
    for i, (a, b) in enumerate(zip(first.calls, second.calls)):
        name = getattr(a.function, "__name__", "a function")
        if a.function is not b.function and getattr(a.function, "__qualname__", 0) != getattr(
            b.function, "__qualname__", 1
        ):
            other = getattr(b.function, "__name__", "another function")
            raise Unsupported(f"its steps differ: call {i} was {name}, then {other}")
        if not (_same(a.args, b.args) and _same(a.kwargs, b.kwargs) and a.outputs == b.outputs):
            raise Unsupported(f"its steps differ: {name} had {_differs(a, b)}")
    if len(first.calls) != len(second.calls) or first.boundary != second.boundary:
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
