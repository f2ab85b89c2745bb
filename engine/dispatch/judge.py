"""The judge's face: which routes there are for a call, which of them computes it, and why.

The mechanism is below, where the floors that need it may import it: the trial and the standing of a route
(`core/trials.py`), the cache of decisions (`core/lru.py`), the verdict file (`backends/verdicts.py`).  The order of
routes on the CPU is in `choosing.py`, beside what each says of a call it does not serve; those of a card are in
`backends/cuda/routes.py`.  docs/explanation/architecture.md ("Which code runs a call") has the rules.

`explain` looks at one call: it puts a wrapper round the kernels that compiled ops call, and takes it away afterwards.
So nothing is noted, and nothing costs, while nobody asks.
"""

from __future__ import annotations

import contextlib
import operator
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.backends import routes, verdicts
from engine.core import grad_mode, trials
from engine.dispatch import binder, choosing
from engine.dispatch.choosing import Choice
from engine.dispatch.record import Op
from engine.dispatch.runtime import kernel_for
from engine.dispatch.table import OPS

if TYPE_CHECKING:
    from engine.core.arrays import ArrayModule
    from engine.dispatch.record import Arrays, Kernel, Launch, Namespace

__all__ = ["Choice", "Explanation", "OpCall", "explain", "table"]


@dataclass(frozen=True)
class OpCall:
    """A call of an op: its operands in words, and its routes in the order in which they were asked."""

    op: str
    operands: str
    choices: tuple[Choice, ...]

    @property
    def route(self) -> str:
        """The name of the route that computed the call."""
        return next((choice.route for choice in self.choices if choice.taken), "")


class Explanation:
    """The ops of one call in order, with their routes; `print` it.

    Attributes:
        calls: An `OpCall` for each op that was called.
    """

    def __init__(self, calls: Iterable[OpCall]) -> None:
        self.calls = tuple(calls)

    def __repr__(self) -> str:
        rows = [("op", "operands", "", "route", "why")]
        for call in self.calls:
            for n, choice in enumerate(call.choices):
                first = (call.op, call.operands) if n == 0 else ("", "")
                rows.append((*first, "*" if choice.taken else "", choice.route, choice.why))
        widths = [max(len(row[n]) for row in rows) for n in range(4)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]).rstrip() for row in rows]
        return "\n".join(lines) if self.calls else "no op was called"


_explaining = threading.RLock()  # what is put round kernels is taken away in the opposite order


def explain(function: Callable[..., object], *args: object, **kwargs: object) -> Explanation:
    """Call a function or a module, and tell which code computed each op of the call, and why not another.

    Caches and trials are as in any other call: what a first call compiles or decides, it does here.  A module or a step
    from `engine.compile` has a row of its own; the steps of a plan are no calls of ops.

    Args:
        function: What to call: a function of tensors, a module.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Returns:
        The ops that were called, each with its routes, the one that was taken marked by a star.

    Raises:
        Exception: whatever the call raises.

    Example:
        >>> engine.explain(engine.relu, engine.ones(3))
        op    operands        route  why
        relu  float32[3]   *  numpy  3 elements; other kernels from 32768
    """
    calls: list[OpCall] = []
    before = _plans(function)
    with _explaining, _watched(calls):
        function(*args, **kwargs)
    after = _plans(function)
    return Explanation(calls if after is None else [_planned(function, before or [], after), *calls])


def _plans(function: object) -> list[object] | None:
    """The plans of what `engine.compile` gave; None for other functions."""
    own = vars(type(function))
    name = "training_plans" if grad_mode.mode.enabled and "training_plans" in own else "plans"
    return list(getattr(function, name)) if name in own else None


def _planned(function: object, before: list[object], after: list[object]) -> OpCall:
    """The call as that of a plan: each is a program, a sentence that says why there is none, or None until the next."""
    last = after[-1] if after else None
    same = len(before) == len(after) and all(map(operator.is_, before, after))
    taken = last is not None and not isinstance(last, str) and same
    why = last if isinstance(last, str) else f"{len(after)} of them" if taken else "made in this call, or in the next"
    first = Choice("plan", taken, why)
    return OpCall(type(function).__name__, "", (first,) if taken else (first, Choice("op by op", True, "")))


# --- what listens to kernels


class _Watch:
    """What is put round the kernels of one op's function; `inner` is what it has without."""

    def __init__(self, record: Op, calls: list[OpCall], thread: int) -> None:
        self.record, self.calls, self.thread = record, calls, thread
        self.refused: tuple[Choice, ...] = ()  # the direct launch, in the call that goes on with another kernel

    def direct(self, inner: Launch) -> Launch:
        """Round the function that launches generated code for few elements."""

        def direct(*args: object) -> Arrays:
            found = inner(*args)
            if threading.get_ident() == self.thread:
                if found is NotImplemented:
                    self.refused = (choosing.without_launch(inner),)
                else:
                    self._note(args, [Choice("direct", True, "a launch of generated code that was right and faster")])
            return found

        direct.inner = inner  # type: ignore[attr-defined]
        return direct

    def kernel(self, inner: Kernel, explained: Callable[..., Iterable[Choice]] | None) -> Kernel:
        """Round a kernel; `explained(args, kwargs)` yields its choices."""

        def kernel(xp: ArrayModule, *args: object, **kwargs: object) -> Arrays:
            place = len(self.calls)
            with _asked() as within:
                result = inner(xp, *args, **kwargs)  # first, as it may decide between routes
            if threading.get_ident() == self.thread:
                named = {name: value for name, value in kwargs.items() if name != "into"}
                choices = [Choice("unknown", True, "a profiler has replaced the kernel")]
                if explained is not None:
                    with np.errstate(all="ignore"):
                        choices = [_with(choice, within) for choice in explained(args, named)]
                self._note(args, choices, place)
            return result

        kernel.inner = inner  # type: ignore[attr-defined]
        return kernel

    def _note(self, args: tuple[object, ...], choices: list[Choice], place: int | None = None) -> None:
        del self.calls[len(self.calls) if place is None else place :]  # what its own code called belongs to it
        self.calls.append(OpCall(self.record.name, _operands(args), (*self.refused, *choices)))
        self.refused = ()


@contextlib.contextmanager
def _watched(calls: list[OpCall]) -> Iterator[None]:
    """Note the calls of ops of this thread."""
    thread = threading.get_ident()

    def wrapper(record: Op, base: Kernel) -> Kernel:  # for ops that are compiled meanwhile
        small = base is record.kernel
        explained = (lambda args, named: choosing.of_few(record, args)) if small else getattr(base, "explained", None)
        return _Watch(record, calls, thread).kernel(base, explained)

    def watch(record: Op, space: Namespace) -> None:
        one = _Watch(record, calls, thread)
        few = lambda args, named: choosing.of_few(record, args)
        kernel, large = space["kernel"], space["large"]
        space["kernel"] = one.kernel(kernel, few if kernel is record.kernel else None)
        space["large"] = one.kernel(large, getattr(large, "explained", None))
        space["kernel_for"] = elsewhere
        if space["direct"] is not None:
            space["direct"] = one.direct(space["direct"])

    def elsewhere(record: Op, xp: ArrayModule) -> Kernel:  # the kernel for arrays of another device
        found = kernel_for(record, xp)
        return _Watch(record, calls, thread).kernel(found, lambda args, named: _on_device(record, found, xp))

    elsewhere.inner = kernel_for  # type: ignore[attr-defined]
    wrapper.elsewhere = elsewhere  # type: ignore[attr-defined]
    for record in OPS.values():
        for space in record.namespaces:
            watch(record, space)
    binder.wrappers.append(wrapper)
    try:
        yield
    finally:
        binder.wrappers.remove(wrapper)
        for record in OPS.values():
            for space in record.namespaces:
                for name in ("kernel", "large", "kernel_for", "direct"):
                    space[name] = getattr(space[name], "inner", space[name])
                if space["direct"] is None and not binder.wrappers and not space["_inplace"]:
                    space["direct"] = choosing.direct_calls(record)


_PROVEN = trials.Standing.__dict__["proven"]


class _Noted:
    """In the place of `Standing.proven` while kernels run: the standings that are read are noted in order."""

    def __init__(self) -> None:
        self.found: dict[int, trials.Standing] = {}

    def __get__(self, one: trials.Standing | None, kind: type | None = None) -> object:
        if one is None:
            return self
        self.found.setdefault(id(one), one)
        return _PROVEN.__get__(one, kind)

    def __set__(self, one: trials.Standing, value: bool) -> None:
        _PROVEN.__set__(one, value)


@contextlib.contextmanager
def _asked() -> Iterator[dict[int, trials.Standing]]:
    """Yield the routes of single geometries that a kernel asks in itself, as Winograd's in front of a convolution."""
    before, noted, name = trials.Standing.__dict__["proven"], _Noted(), "proven"
    setattr(trials.Standing, name, noted)
    try:
        yield noted.found
    finally:
        setattr(trials.Standing, name, before)


def _with(choice: Choice, within: dict[int, trials.Standing]) -> Choice:
    """A choice, if it was taken with what the routes that were asked within it say."""
    words = [
        f"{type(one).__module__.rpartition('.')[2]}: {one}"
        for one in within.values()
        if getattr(one, "name", None) and choice.taken
    ]
    return choice._replace(why="; ".join([choice.why, *words]))


def _on_device(record: Op, kernel: Kernel, xp: ArrayModule) -> Iterator[Choice]:
    """Yield the routes of a call on another device: a family of kernels with a verdict, and the op's own code."""
    library = str(getattr(xp, "__name__", xp))
    route = getattr(kernel, "route", None)
    if route is None and "cudnn" in record.kernels:
        route = getattr(sys.modules[record.kernels["cudnn"].__module__], "ROUTE", None)
    if route is None:
        yield Choice(library, True, "the op's own code")
    elif route.ready() and route.on():
        yield Choice(route.name, True, f"equal to the CPU on this card; what it does not serve {library} computes")
    else:
        yield Choice(route.name, False, "differs or failed on this card" if route.ready() else "it lacks a library")
        yield Choice(library, True, route.fallback)


def _operands(args: Iterable[object]) -> str:
    """The operands in words: dtypes and shapes of arrays."""
    words = []
    for a in args:
        for each in a if isinstance(a, list) else (a,):
            if hasattr(each, "dtype") and hasattr(each, "shape"):
                words.append(f"{each.dtype}{list(each.shape)}".replace(" ", ""))
    return " ".join(words[:3]) + " ..." * (len(words) > 3)


# --- the table of `hub env`


def table() -> dict[str, object]:
    """Return what the judge goes by on this machine, without starting CUDA: the mode, the folder of verdicts, the ops
    whose routes were measured to be others than the source says, and the standing of routes on a card."""
    from engine.backends import onednn
    from engine.backends.cuda import routes as on_card
    from engine.kernels import processor

    calibrated = routes.stored()
    rows = on_card.last().get("routes", {})
    return {
        "mode": trials.mode(),
        "verdicts": str(verdicts.folder()),
        "routes": [
            {"route": "onednn", "serves": onednn.is_available(), "why": onednn.describe()},
            {"route": "generated", "serves": processor.available(), "why": processor.describe()},
            {
                "route": "calibrated",
                "serves": bool(calibrated) and trials.mode() != "static",
                "why": f"{len(calibrated)} op{'s' * (len(calibrated) != 1)} measured on this machine"
                if calibrated
                else "`hub env --calibrate` measures here",
            },
            *[
                {"route": name, "serves": row.get("verdict") == "ok", "why": str(row.get("verdict"))}
                for name, row in sorted(rows.items())
            ],
        ],
    }
