"""Plans for training: a step, or a module's forward and backward, recorded once a shape and replayed.

Note [Training plans]
`Recorded(function)` is the function.  Its first two calls with inputs of certain shapes and dtypes run op by op and
are recorded (step.py); if they did the same, calls from the third on run their program (program.py, replay.py), else
the third is recorded, too: a first step may have made what later ones find.  A function that calls `backward` itself (a
training step) is one program.  Where it returns what gradients flow through, as a module does, the program is cut in
two, and the second part is the backward of one node.

Checked at every call (../guards.py): shapes, dtypes and other arguments; training flags, hooks, classes, plain
attributes, and the identity of parameters, buffers and modules of all modules that are called; which parameters require
grad; what the code of the function, of functions that it calls and of `forward` reads by name (../name_guards.py); grad
mode, default dtype, autocast.  A call that fits no recording is recorded, up to eight of them.
Parameters, buffers and an optimizer's options are read anew in each call.

A program must be worth it (`STEP` in core/trials.py): its first calls take turns with calls op by op, all of them
steps of the training, and are timed, `forward` alone where it is cut in two.  One that is clearly slower is dropped:
calls with such arguments go on op by op, and `plans` says why.  Where none is left, one call in 16 is looked at.
ENGINE_ROUTES=static does not look at times.  Which of both serves shows in rounding only: they draw the same random
numbers.

Assumed, as in torch.jit.trace: other Python values that the function reads stay as they are, or show in two steps.
What cannot be recorded runs as it always did, with one warning that says why.
"""

from __future__ import annotations

import copy
import functools
import random
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from engine.autograd import anomaly_mode as anomaly
from engine.autograd import engine as passes
from engine.backends.cpu.allocator import empty_cache
from engine.core import trials
from engine.core.grad_mode import mode
from engine.fx.graph import Graph
from engine.nn.modules.module import Module
from engine.programs.guards import Guard, signature
from engine.programs.listening import recording, run_recorded
from engine.programs.name_guards import Names
from engine.programs.training.replay import PairProgram, StepProgram, finish
from engine.programs.training.step import Step, compare
from engine.programs.values import Unsupported, tensors_in
from engine.tensor import Tensor

__all__ = ["Recorded"]

_LIMIT = 8  # recordings of a function
_REST = 16  # calls of a function whose programs were all slower, of which one is looked at
_TRIES = 2  # how often two steps in a row may be compared

# the signature of a call, and of its tensors whether they require grad and are leaves; None without arguments
Key = tuple[object, tuple[tuple[object, bool], ...]] | None


class _Entry:
    """One recording: its guard, then a trace, then a program or the reason why there is none."""

    def __init__(self) -> None:
        self.key: object = None  # of its calls
        self.guard: Guard  # of `_record`
        self.step: Step | None = None
        self.program: StepProgram | PairProgram | None = None
        self.turns: trials.Trial | None = None  # of the program, while it is not known whether it is faster
        self.reason = ""
        self.tries = 0
        self.objects: list[object] = []  # whose identity is a part of the key


class Recorded:
    """A function whose calls are recorded and replayed: Note [Training plans].

    module: the one whose state is checked, all of it; without one the modules that the function calls.
    """

    def __init__(self, function: Callable[..., object], module: Module | None = None) -> None:
        self.function, self.module = function, module
        self.entries: list[_Entry] = []
        self.warned: set[str] = set()
        self.count = 0
        self.slow: set[object] = set()  # signatures of calls whose program was slower, None for none
        self.undecided = 0  # programs of which that is not known yet
        self.rest = 0  # calls that are not looked at
        functools.update_wrapper(self, function, updated=()) if module is None else None

    @property
    def plans(self) -> list[object]:
        """The programs, None for a shape met once, or the reason why there is none."""
        return [e.program if e.program is not None else e.reason or None for e in self.entries]

    @property
    def graph(self) -> Graph:
        """What the latest program computes, as `engine.fx` has it; of a module or function without one its `graph`."""
        for entry in reversed(self.entries):
            if entry.program is not None:
                return entry.program.graph
        return self.function.graph  # type: ignore[attr-defined,no-any-return]

    def __get__(self, owner: object, kind: type | None = None) -> Recorded:
        if owner is None:
            return self
        bound = Recorded(MethodType(self.function, owner))
        own = getattr(owner, "__dict__", None)
        if own is not None:
            own[self.function.__name__] = bound  # found first from now on
        return bound

    def __deepcopy__(self, memo: dict[int, object]) -> Recorded:
        return Recorded(copy.deepcopy(self.function, memo), copy.deepcopy(self.module, memo))

    def __reduce__(self) -> tuple[type[Recorded], tuple[Callable[..., object], Module | None]]:
        return Recorded, (self.function, self.module)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if not mode.enabled or passes.observers or anomaly.state.enabled or recording():
            return self.function(*args, **kwargs)
        if self.rest > 0:  # two threads may have taken the last
            self.rest -= 1
            return self.function(*args, **kwargs)
        began = trials.clock() if self.undecided else 0.0
        objects: list[object] = []
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
            if entry.key == (key, self._aliases(entry.guard, given)) and entry.guard.holds():
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
        self,
        entry: _Entry,
        turns: trials.Trial,
        program: StepProgram | PairProgram,
        key: Key,
        given: list[Tensor],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        began: float,
    ) -> Any:
        """A call of a program that may be slower than op by op: by the one whose turn it is, timed."""
        side = turns.turn
        if side == "op by op":
            began = trials.clock()  # without what the program needs to be chosen
            result = self.function(*args, **kwargs)
        else:
            result = program(given, args, kwargs)
        turns.times[side].append(trials.clock() - began)
        if turns.over and entry.turns is turns:
            entry.turns = None
            self.undecided -= 1
            if turns.slower("program", "op by op"):
                mine, plain = (turns.seconds(side) * 1e3 for side in turns.times)
                entry.reason = f"its program was slower: {mine:.3g} ms a call, op by op {plain:.3g}"
                entry.program = None
                self.slow.add(None if key is None else key[0])
        if turns.change:
            empty_cache()  # what the other side needs is of other sizes
        return result

    @staticmethod
    def _aliases(guard: Guard, given: list[Tensor]) -> tuple[int | None, ...]:
        """Return for each argument its index among the tensors that the function finds by itself, else None."""
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
        self,
        entry: _Entry | None,
        key: Key,
        given: list[Tensor],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        objects: list[object],
    ) -> Any:
        """Run op by op, and note what happens."""
        before = entry
        step = Step(given)
        recorder = step.recorder
        guard = None
        if self.module is not None:
            guard = self._guard(list(self.module.modules()), [])
        result = None

        def run() -> object:
            nonlocal result
            with step.watching():
                result = self.function(*args, **kwargs)
                if recorder.failure is None:
                    recorder.attempt(finish, step, given, result)
            return result

        drawn = random.getstate(), _numpy_state()
        run_recorded(run, given, recorder)
        if before is None:
            self.count += 1
            entry = _Entry()
            if guard is None:
                guard = self._guard(list(step.modules.values()), list(recorder.constants.values()))
            entry.key, entry.guard, entry.objects = (key, self._aliases(guard, given)), guard, objects
            self.entries.append(entry)
        assert entry is not None
        try:
            if entry.guard.gradients is not None and entry.guard.gradients.hooked:
                raise Unsupported("there are hooks on its modules or parameters")
            if recorder.failure is not None:
                raise recorder.failure
            if drawn != (random.getstate(), _numpy_state()):
                raise Unsupported("random numbers are drawn by Python or numpy")
            if not recorder.calls:
                raise Unsupported("it calls no op")
            if before is None:
                entry.step = step
            else:
                assert entry.step is not None
                first, entry.step = entry.step, None
                entry.tries += 1
                try:
                    compare(first, step)
                except Unsupported:
                    if entry.tries == _TRIES:
                        raise
                    entry.step = step  # the first step may have made what later ones find
                    step.release()
                    return result
                entry.program = (StepProgram if step.boundary is None else PairProgram)(step, self)
                if trials.mode() != "static":
                    entry.turns = trials.Trial(("program", "op by op"), trials.STEP)
                    self.undecided += 1
                empty_cache()  # what steps op by op took is more than the program will, and of other sizes
        except Unsupported as why:
            entry.step, entry.reason = None, str(why)
            self._warn(str(why))
        step.release()
        return result

    def _guard(self, modules: list[Module], tensors: list[Tensor]) -> Guard:
        names = Names(None if self.module is not None else self.function, modules)
        return Guard(modules, tensors=tensors, gradients=True, names=names)


def _numpy_state() -> tuple[object, ...]:
    """Return the state of numpy's global generator."""
    _, key, place, has_gauss, cached = np.random.get_state(legacy=True)
    return np.asarray(key).tobytes(), place, has_gauss, cached
