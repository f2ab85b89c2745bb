"""Plans for training: a step, or a module's forward and backward, recorded once a shape and replayed.

Note [Training plans]
`Recorded(function)` is the function.  Its first two calls with inputs of certain shapes and dtypes run op by op and
are recorded (recording.py); if they did the same, calls from the third on run their program (program.py), else the
third is recorded, too: a first step may have made what later ones find.  A function
that calls `backward` itself (a training step) is one program.  Where it returns what gradients flow through, as a
module does, the program is cut in two, and the second part is the backward of one node.

Checked at every call (`_Guard`): shapes, dtypes and other arguments; training flags, hooks, classes, plain attributes
(engine/plan/attributes.py), and the identity of parameters, buffers and modules of all modules that are called; which
parameters require grad; what the code of the function, of functions that it calls and of `forward` reads by name
(`_Names`); grad mode, default dtype, autocast.  A call that fits no recording is recorded, up to eight of them.
Parameters, buffers and an optimizer's options are read anew in each call.

A program must be worth it (settling.py): its first calls take turns with calls op by op, all of them steps of the
training, and are timed, `forward` alone where it is cut in two.  One that is clearly slower is dropped: calls with
such arguments go on op by op, and `plans` says why.  Where none is left, one call in 16 is looked at.
ENGINE_ROUTES=static does not look at times.  Which of both serves shows in rounding only: they draw the same random
numbers.

Assumed, as in torch.jit.trace: other Python values that the function reads stay as they are, or show in two steps.
What cannot be recorded runs as it always did, with one warning that says why.
"""

from __future__ import annotations

import copy
import functools
import random
import re
import warnings
from collections.abc import Callable
from itertools import chain
from operator import attrgetter, is_, itemgetter, methodcaller
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from engine import dtypes
from engine.autograd import anomaly_mode as anomaly
from engine.autograd import engine as passes
from engine.autograd.graph import Node, edge_of, requires_grad_of
from engine.autograd.versions import check_input, second_time
from engine.backends.cpu.allocator import empty_cache
from engine.backends.onednn import library
from engine.dispatch import autocast
from engine.fx.training import settling
from engine.fx.training.program import Built, build, compiled, cut
from engine.fx.training.recording import StepTrace, compare, hooked
from engine.fx.training.small import is_small, on_arrays
from engine.grad_mode import enable_grad, mode
from engine.nn.modules import _hooks
from engine.nn.modules.module import Module
from engine.plan import signature
from engine.plan.attributes import PLAIN, Attributes
from engine.plan.tracing import Ref, Unsupported, mapped, record, recording, tensors_in
from engine.random import default_generator
from engine.tensor import Tensor, wrap

__all__ = ["Recorded"]

_LIMIT = 8  # recordings of a function
_REST = 16  # calls of a function whose programs were all slower, of which one is looked at
_TRIES = 2  # how often two steps in a row may be compared
_values = methodcaller("values")
_TABLES = ("_modules", "_parameters", "_buffers")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL = (_hooks.forward, _hooks.forward_pre, _hooks.backward, _hooks.backward_pre)
_first, _counter = itemgetter(0), attrgetter("_vc")
_needs = attrgetter("_requires_grad")
_own_hooks, _post_hooks = attrgetter("_hooks"), attrgetter("_post_accumulate_hooks")


def _environment() -> tuple:
    return (
        mode.enabled, mode.inference, dtypes.get_default_dtype(), library.state.generation, autocast.state.on,
    )  # fmt: skip


class _Names:
    """What the code of a function and of the functions that it calls reads by name.

    Globals, closures and fields of its object: values of plain types, the identity of all else.  Of objects among
    these, and of dicts, the entries of plain types that the code names (`args.beta`, `config["beta"]`).
    """

    def __init__(self, function: Any, modules: list[Module] = []) -> None:  # noqa: B006  never written to
        self.spaces: dict[tuple[int, str], tuple[Any, str]] = {}
        self.cells: dict[int, Any] = {}
        self.inner: dict[tuple[int, str], tuple[Any, str]] = {}
        self.seen: set[Any] = set()
        if function is not None:
            self._code_of(function, True)
        for module in modules:
            self._code_of(MethodType(getattr(type(module), "forward", _nothing), module), False)
        self.tables = [
            (space, itemgetter(*names, names[0])) for space, names in map(_by_space, _groups(self.inner.values()))
        ]

    def _code_of(self, function: Any, exact: bool, depth: int = 0) -> None:
        """exact: the identity of what it finds counts, too."""
        owner = None
        if isinstance(function, MethodType):
            owner, function = function.__self__, function.__func__
        function = getattr(function, "__wrapped__", function)
        code = getattr(function, "__code__", None)
        if code is None or (code, id(owner)) in self.seen:
            return
        self.seen.add((code, id(owner)))
        names, keys = _named(code)
        space = function.__globals__
        roots = []
        for name in names & space.keys():
            roots.append(space[name])
            if exact or type(space[name]) in PLAIN:
                self.spaces[id(space), name] = space, name
        for cell in function.__closure__ or ():
            if exact:
                self.cells[id(cell)] = cell
            try:
                roots.append(cell.cell_contents)
            except ValueError:  # not set yet
                continue
        own = getattr(owner, "__dict__", None)
        if isinstance(own, dict):
            roots += [own[name] for name in names & own.keys()]
            if not isinstance(owner, Module):  # whose attributes the guard has anyway
                for name in names & own.keys():
                    self.spaces[id(own), name] = own, name
        for root in roots:
            self._entries_of(root, names, keys, 2)
            if isinstance(root, FunctionType) and depth < 3 and not _OWN.match(root.__module__ or ""):
                self._code_of(root, False, depth + 1)
        if owner is not None and depth < 3:
            for name in names:
                method = getattr(type(owner), name, None)
                if isinstance(method, FunctionType) and not _OWN.match(method.__module__ or ""):
                    self._code_of(MethodType(method, owner), False, depth + 1)

    def _entries_of(self, root: Any, names: set[str], keys: set[str], depth: int) -> None:
        """Entries of plain types of an object or a dict."""
        if isinstance(root, dict):
            space, wanted = root, keys
        elif isinstance(root, type | Module | Tensor | ModuleType | FunctionType):
            return
        else:
            space, wanted = getattr(root, "__dict__", None), names
        if type(space) is not dict:
            return
        for name in wanted & space.keys():
            if type(space[name]) in PLAIN:
                self.inner[id(space), name] = space, name
            elif depth:
                self._entries_of(space[name], names, keys, depth - 1)

    def read(self) -> list[Any]:
        found = [space.get(name) for space, name in self.spaces.values()]
        for cell in self.cells.values():
            try:
                found.append(cell.cell_contents)
            except ValueError:  # not set yet
                found.append(None)
        try:
            for space, get in self.tables:
                found += get(space)
        except KeyError:  # an entry is gone
            found.append(_nothing)
        return found


_OWN = re.compile(r"(engine|torch|numpy)(\.|$)")


def _nothing() -> None:
    pass


def _groups(pairs: Any) -> list[list[tuple[Any, str]]]:
    found: dict[int, list[tuple[Any, str]]] = {}
    for space, name in pairs:
        found.setdefault(id(space), []).append((space, name))
    return list(found.values())


def _by_space(pairs: list[tuple[Any, str]]) -> tuple[Any, list[str]]:
    return pairs[0][0], [name for _, name in pairs]


def _named(code: Any) -> tuple[set[str], set[str]]:
    """Names and strings in a code object and those within it."""
    names, keys = set(code.co_names), {c for c in code.co_consts if isinstance(c, str)}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more = _named(inner)
            names |= more[0]
            keys |= more[1]
    return names, keys


def _equal(now: list[Any], then: list[Any]) -> bool:
    if len(now) != len(then):
        return False
    if all(map(is_, now, then)):
        return True
    return all(a is b or (type(a) is type(b) and type(a) in PLAIN and a == b) for a, b in zip(now, then))


class _Guard:
    """What must be as it was for a recording to serve."""

    def __init__(self, key: Any, names: _Names, modules: list[Module], tensors: list[Tensor]) -> None:
        self.key, self.names = key, names
        self.found = names.read()
        self.modules = [m.__dict__ for m in modules]
        self.hooks = [own[name] for own in self.modules for name in _HOOKS if own.get(name) is not None]
        self.tables = [own[name] for own in self.modules for name in _TABLES]
        self.entries = list(chain.from_iterable(map(_values, self.tables)))
        self.attributes = Attributes(modules)
        known = {id(t): t for t in (*tensors, *(e for e in self.entries if isinstance(e, Tensor)))}
        self.tensors = list(known.values())
        self.index = {id(t): i for i, t in enumerate(self.tensors)}
        self.graded = [t for t in self.tensors if t._array.dtype.kind in "fcV"]

    def settle(self) -> None:
        """Take things as they are now."""
        self.found = self.names.read()
        self.attributes.take()
        self.then, self.hooked = self._now(), self._hooked()

    def _now(self) -> list[Any]:
        return [_environment(), [*map(bool, map(_needs, self.graded))]]

    def _hooked(self) -> bool:
        """Whether hooks wait anywhere that a program would not call."""
        if any(self.hooks) or any(_GLOBAL):
            return True
        return any(map(_own_hooks, self.graded)) or any(map(_post_hooks, self.graded))

    def holds(self, key: Any) -> bool:
        """Whether all is as it was."""
        entries = self.entries
        return (
            key == self.key
            and sum(map(len, self.tables)) == len(entries)
            and all(map(is_, chain.from_iterable(map(_values, self.tables)), entries))
            and self._now() == self.then
            and self._hooked() is self.hooked
            and self.attributes.hold()
            and _equal(self.names.read(), self.found)
        )


class _Entry:
    """One recording: its guard, then a trace, then a program or the reason why there is none."""

    def __init__(self) -> None:
        self.guard: Any = None
        self.trace: StepTrace | None = None
        self.program: Any = None
        self.turns: settling.Turns | None = None  # of the program, while it is not known whether it is faster
        self.reason = ""
        self.tries = 0
        self.objects: list[Any] = []  # whose identity is a part of the key


class Recorded:
    """A function whose calls are recorded and replayed: Note [Training plans].

    module: the one whose state is checked, all of it; without one the modules that the function calls.
    """

    def __init__(self, function: Callable[..., Any], module: Module | None = None) -> None:
        self.function, self.module = function, module
        self.entries: list[_Entry] = []
        self.warned: set[str] = set()
        self.count = 0
        self.slow: set[Any] = set()  # signatures of calls whose program was slower, None for none
        self.settling = 0  # programs of which that is not known yet
        self.rest = 0  # calls that are not looked at
        functools.update_wrapper(self, function, updated=()) if module is None else None

    @property
    def plans(self) -> list[Any]:
        """The programs, None for a shape met once, or the reason why there is none."""
        return [e.program if e.program is not None else e.reason or None for e in self.entries]

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        bound = Recorded(MethodType(self.function, owner))
        own = getattr(owner, "__dict__", None)
        if own is not None:
            own[self.function.__name__] = bound  # found first from now on
        return bound

    def __deepcopy__(self, memo: dict) -> Recorded:
        return Recorded(copy.deepcopy(self.function, memo), copy.deepcopy(self.module, memo))

    def __reduce__(self) -> Any:
        return Recorded, (self.function, self.module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not mode.enabled or passes.observers or anomaly.state.enabled or recording():
            return self.function(*args, **kwargs)
        if self.rest > 0:  # two threads may have taken the last
            self.rest -= 1
            return self.function(*args, **kwargs)
        began = settling.clock() if self.settling else 0.0
        objects: list[Any] = []
        given: list[Tensor] = []
        key: Any = None  # where there are no arguments
        if args or kwargs:
            key = signature((args, kwargs), objects)
            if key is None:
                self._warn("an argument is a tensor of another device or layout, or holds what has no key")
                return self.function(*args, **kwargs)
            if key in self.slow:
                self.rest = _REST - 1 if all([e.reason for e in self.entries]) else 0
                return self.function(*args, **kwargs)
            given = list({id(t): t for t in tensors_in((args, kwargs))}.values())
            key = key, tuple([(t._requires_grad, t._edge is None) for t in given])
        elif None in self.slow:
            return self.function()
        for entry in self.entries:
            if entry.guard.holds((key, self._aliases(entry.guard, given))):
                turns, program = entry.turns, entry.program  # which another thread may take away
                if program is not None and turns is not None:
                    return self._take_turns(entry, turns, program, key, given, args, kwargs, began)
                if program is not None:
                    return program(given, args, kwargs)
                if entry.reason:
                    return self.function(*args, **kwargs)
                return self._record(entry, key, given, args, kwargs, objects)
        if self.count >= _LIMIT:
            self._warn(f"it was recorded {_LIMIT} times, and what it depends on still changes from call to call")
            return self.function(*args, **kwargs)
        return self._record(None, key, given, args, kwargs, objects)

    def _take_turns(
        self, entry: _Entry, turns: settling.Turns, program: Any, key: Any, given: list[Tensor], args: tuple,
        kwargs: dict, began: float,
    ) -> Any:  # fmt: skip
        """A call of a program that may be slower than op by op: by the one whose turn it is, timed."""
        if turns.plainly:
            began = settling.clock()  # without what the program needs to be chosen
            result = self.function(*args, **kwargs)
            turns.plain.append(settling.clock() - began)
        else:
            result = program(given, args, kwargs)
            turns.program.append(settling.clock() - began)
        if turns.over and entry.turns is turns:
            entry.turns, entry.reason = None, turns.late
            self.settling -= 1
            if entry.reason:
                entry.program = None
                self.slow.add(None if key is None else key[0])
        if turns.change:
            empty_cache()  # what the other side needs is of other sizes
        return result

    @staticmethod
    def _aliases(guard: _Guard, given: list[Tensor]) -> tuple:
        """Which of the tensors that the function finds are among its arguments."""
        if not given:
            return ()
        return tuple([guard.index.get(id(t)) for t in given])

    def _warn(self, why: str) -> None:
        if why not in self.warned:
            self.warned.add(why)
            called = self.function if self.module is None else type(self.module)
            name = getattr(called, "__name__", type(called).__name__)
            warnings.warn(f"{name} runs op by op in training: {why}", stacklevel=4)

    def _record(
        self, entry: _Entry | None, key: Any, given: list[Tensor], args: tuple, kwargs: dict, objects: list[Any]
    ) -> Any:
        """Run op by op, and note what happens."""
        before = entry
        trace = StepTrace(given)
        guard = None
        if self.module is not None:
            guard = self._guard(key, given, list(self.module.modules()), [])
        result = None

        def run() -> Any:
            nonlocal result
            with trace.watching():
                result = self.function(*args, **kwargs)
                if trace.failure is None:
                    trace.attempt(_finish, trace, given, result)
            return result

        drawn = random.getstate(), _numpy_state()
        record(run, given, trace)
        if before is None:
            self.count += 1
            entry = _Entry()
            if guard is None:
                guard = self._guard(key, given, list(trace.modules.values()), list(trace.constants.values()))
            entry.guard, entry.objects = guard, objects
            self.entries.append(entry)
        assert entry is not None
        try:
            if entry.guard.hooked:
                raise Unsupported("there are hooks on its modules or parameters")
            if trace.failure is not None:
                raise trace.failure
            if drawn != (random.getstate(), _numpy_state()):
                raise Unsupported("random numbers are drawn by Python or numpy")
            if not trace.calls:
                raise Unsupported("it calls no op")
            if before is None:
                entry.trace = trace
            else:
                assert entry.trace is not None
                first, entry.trace = entry.trace, None
                entry.tries += 1
                try:
                    compare(first, trace)
                except Unsupported:
                    if entry.tries == _TRIES:
                        raise
                    entry.trace = trace  # the first step may have made what later ones find
                    trace.release()
                    return result
                entry.program = (_Step if trace.boundary is None else _Pair)(trace, self)
                if settling.measured():
                    entry.turns, self.settling = settling.Turns(), self.settling + 1
                empty_cache()  # what steps op by op took is more than the program will, and of other sizes
        except Unsupported as why:
            entry.trace, entry.reason = None, str(why)
            self._warn(str(why))
        trace.release()
        return result

    def _guard(self, key: Any, given: list[Tensor], modules: list[Module], tensors: list[Tensor]) -> _Guard:
        guard = _Guard(None, _Names(None if self.module is not None else self.function, modules), modules, tensors)
        guard.key = key, self._aliases(guard, given)
        guard.settle()
        return guard


def _numpy_state() -> Any:
    """Where numpy's generator of its own stands."""
    _, key, place, has_gauss, cached = np.random.get_state(legacy=True)
    return key.tobytes(), place, has_gauss, cached


def _unreleased(roots: list[Node]) -> bool:
    """Whether the graph below still has what its backward needs.  Unsupported where hooks wait in it."""
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


def _finish(trace: StepTrace, given: list[Tensor], result: Any) -> None:
    """After forward: record the backward of what it returned, if that is still to come."""
    made = list({id(t): t for t in tensors_in(result)}.values())
    roots = [t for t in made if requires_grad_of(t)]
    trace.roots = [trace.ref(t) for t in roots]
    trace.leaves, trace.grads, trace.cotangents = [], [], 0
    if not roots:
        return
    if any(id(t) in trace.exact for t in roots):
        raise Unsupported("it returns a tensor that it was given")
    if not _unreleased([edge_of(t)[0] for t in roots]) and trace.backward:
        return
    if trace.backward:
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
    for tensor in trace.fresh:
        if requires_grad_of(trace.constants[tensor]):
            raise Unsupported("it makes a leaf that requires grad")
    trace.boundary = len(trace.calls)
    ones = [wrap(np.ones(tuple(t.shape), t._array.dtype)) for t in roots]
    trace.inputs += [trace.add_input(t) for t in ones]
    trace.cotangents = len(ones)
    pairs = [(edge_of(t), g) for t, g in zip(roots, ones)]
    found = passes.run_backward(pairs, True, False, [edge_of(t) for t in leaves])
    trace.leaves = [trace.leaf(t) for t in leaves]
    trace.grads = [None if g is None else trace.ref(g) for g in found]


class _Released(Node):
    """The history of what a step returned: its graph is gone, as op by op."""

    def name(self) -> str:
        return "CompiledFunctionBackward"

    def apply(self, grads: Any, needs: Any) -> Any:
        second_time()


class _Step:
    """The program of a whole step."""

    def __init__(self, trace: StepTrace, owner: Recorded) -> None:
        numbers = [r.index for r in {r.index: r for r in _refs(trace.result)}.values()]
        self.place = {n: i for i, n in enumerate(numbers)}
        built = build(trace, tuple(map(Ref, numbers)))
        self.graph, self.constants = built.graph, built.constants
        self.run = compiled(built.graph, "step")
        if is_small(built.graph):
            self.run = on_arrays(built.graph, self.run)
        self.result = trace.result
        self.released = [self.place[r.index] for r in trace.roots]

    def __call__(self, given: list[Tensor], args: tuple, kwargs: dict) -> Any:
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


def _refs(value: Any) -> list[Ref]:
    found: list[Ref] = []
    mapped(value, found.append, Ref)
    return found


class _Pair:
    """The programs of forward and backward, joined by one node."""

    def __init__(self, trace: StepTrace, owner: Recorded) -> None:
        self.owner = owner
        numbers = list({r.index: None for r in _refs(trace.result)})
        self.place = {n: i for i, n in enumerate(numbers)}
        self.result = trace.result
        self.roots = [self.place[r.index] for r in trace.roots]
        built: Built = build(trace, (tuple(map(Ref, numbers)), tuple(trace.grads)), trace.cotangents)
        self.graph, self.constants = built.graph, built.constants
        forward, backward, self.read = cut(built)
        self.forward, self.backward = compiled(forward, "forward"), compiled(backward, "backward")
        inputs = len(trace.inputs) - trace.cotangents
        number_of = {n: i for i, n in enumerate([*trace.inputs[:inputs], *trace.constants])}
        self.leaves = [number_of[r.index] for r in trace.leaves]  # positions among inputs and constants
        self.draws = any(call.effect for call in trace.calls)
        names = {"n_outputs": len(self.roots), "__slots__": ()}
        self.node = type("CompiledFunctionBackward", (_Backward,), names)

    def __call__(self, given: list[Tensor], args: tuple, kwargs: dict) -> Any:
        values = [*given, *self.constants]
        before = default_generator.get_state() if self.draws else None
        mode.enabled = False
        try:
            found, saved = self.forward(values.copy())
        finally:
            mode.enabled = True
        leaves = [values[i] for i in self.leaves]
        node = self.node([edge_of(t) for t in leaves])
        kept = [values[i] for i in self.read]
        kept += saved
        node.saved = kept, [*map(_first, map(_counter, kept))]
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

    def again(self, recipe: tuple, grads: list[Any], needs: Any) -> list[Any]:
        """The gradients op by op: forward once more, with the numbers it drew."""
        args, kwargs, leaves, before = recipe
        owner = self.owner
        buffers = [] if owner.module is None else list(owner.module.buffers())
        kept = [(b, b._array.copy(), b._vc[0]) for b in buffers]
        now = default_generator.get_state()
        try:
            if before is not None:
                default_generator.set_state(before)
            with enable_grad():
                result = owner.function(*args, **kwargs)
        finally:
            default_generator.set_state(now)
            for buffer, array, version in kept:
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

    def apply(self, grads: list[Any], needs: Any) -> list[Any]:
        if self.saved is None:
            second_time()
        kept, versions = self.saved
        plan, recipe = self.args
        for tensor, version in zip(kept, versions):
            if tensor._vc[0] != version:
                check_input(tensor, version)
        if mode.enabled:
            plan.owner._warn("its gradients are differentiated (create_graph=True)")
            return plan.again(recipe, grads, needs)
        if any(g is None for g in grads):
            return plan.again(recipe, grads, needs)
        values = [*kept, *grads]
        if getattr(self, "sole", False):
            self.saved = kept = tensor = None  # type: ignore[assignment]
            self.args = None
            grads.clear()
        found = plan.backward(values)
        return [g if need else None for g, need in zip(found, needs)]
