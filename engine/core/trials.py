"""The trial: two or more routes are timed in turns, and the one that takes longer by a margin is the slower.

Every choice by time in the engine is such a trial: of kernels by their sizes, of generated code, of the programs of
plans, of training steps.  docs/explanation/architecture.md ("Which code runs a call") says when each is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

__all__ = ["CALL", "STEP", "Standing", "Terms", "Trial", "mode", "slower"]

clock = time.perf_counter


def mode() -> str:
    """Return how routes are chosen: "static" (no time decides), "kept" (default: by stored times, and by those of
    trials) or "measured" (ops are also calibrated at their first use)."""
    found = os.environ.get("ENGINE_ROUTES", "").lower()
    return found if found in ("static", "measured") else "kept"


class Terms(NamedTuple):
    """The terms of a trial."""

    fewest: int  # calls of each route, whatever they take
    most: int
    seconds: float  # of all calls, after which the fewest are enough
    margin: float = 1.0  # times as long as the other route: slower
    turn: int = 1  # calls of a route in a row
    share: float = 0.0  # of a route's calls that took less than what is compared: 0 compares the least


CALL = Terms(2, 40, 0.02, 1.05)  # of calls that can be repeated
# Of the user's own calls, as a training step: light ones compile kernels after 32 calls, heavy ones in the first few.
# The first call of a turn finds no memory of the other side's sizes cached, so that both together take no more memory
# than one of them, and takes longer for it.
STEP = Terms(6, 64, 2.0, 1.1, turn=2, share=0.25)


class Standing:
    """The standing of a route after its trials: proven, disabled, or neither yet.

    A route that was slower rests for some calls, as the machine may have been busy; after TRIALS such it is disabled.
    """

    TRIALS, REST = 3, 30
    __slots__ = ("disabled", "proven", "rest", "slower_trials", "trial")

    def __init__(self) -> None:
        self.proven = self.disabled = False
        self.slower_trials = self.rest = 0  # trials in which it was slower; calls until the next
        self.trial: Trial | None = None  # the last one

    def lost(self) -> None:
        """Note that it was slower in a trial."""
        self.slower_trials += 1
        self.proven, self.rest = False, self.REST
        if self.slower_trials >= self.TRIALS:
            self.disabled, self.rest = True, 0

    def __str__(self) -> str:
        times = f" ({self.trial})" if self.trial and self.trial.calls else ""
        if self.disabled:
            return f"slower in {self.slower_trials} trials{times}" if self.slower_trials else "disabled"
        if self.slower_trials and not self.proven:
            return f"slower in {self.slower_trials} of {self.TRIALS} trials{times}"
        return f"faster in its trial{times}" if self.proven and times else "proven" if self.proven else "not tried yet"


class Trial:
    """The times of routes that take turns, the first begins."""

    def __init__(self, routes: Iterable[str], terms: Terms = CALL) -> None:
        self.terms = terms
        self.times: dict[str, list[float]] = {route: [] for route in routes}
        self._names = tuple(self.times)

    def __str__(self) -> str:
        return ", ".join(f"{name} {_rounded(self.seconds(name))}" for name in self._names if self.times[name])

    @property
    def calls(self) -> int:
        """The number of calls of all routes."""
        return sum(map(len, self.times.values()))

    @property
    def turn(self) -> str:
        """The route of the next call."""
        return self._names[self.calls // self.terms.turn % len(self._names)]

    @property
    def change(self) -> bool:
        """Return whether a turn has ended: the next call is another route's."""
        return self.calls % self.terms.turn == 0

    @property
    def over(self) -> bool:
        """Return whether there are calls enough of every route."""
        calls, terms = len(self.times[self._names[-1]]), self.terms
        if calls < terms.fewest:
            return False
        return calls >= terms.most or calls * sum(map(self.seconds, self._names)) >= terms.seconds

    def seconds(self, route: str) -> float:
        """Return what a call of a route takes: the least of its times, or by the terms one somewhat above."""
        times = self.times[route]
        return min(times) if not self.terms.share else sorted(times)[int(len(times) * self.terms.share)]

    def slower(self, route: str, other: str) -> bool:
        """Return whether a route took longer than another, by the margin."""
        return self.seconds(route) > self.terms.margin * self.seconds(other)

    def run(self, calls: Mapping[str, Callable[[], object]]) -> Trial:
        """Call the routes in turns until the trial is over; for calls that change nothing when they are repeated."""
        pairs = [(self.times[name], call) for name, call in calls.items()]
        while not self.over:
            for times, call in pairs:
                began = clock()
                call()
                times.append(clock() - began)
        return self


def slower(
    mine: Callable[[], object], there: Callable[[], object], margin: float = CALL.margin, of: Iterable[Standing] = ()
) -> bool:
    """Return whether a route takes longer than the one there was, `margin` times its time; never with
    ENGINE_ROUTES=static.

    of: what the trial is noted on.
    """
    if mode() == "static":
        return False
    trial = Trial(("it", "the other"), CALL._replace(margin=margin)).run({"it": mine, "the other": there})
    for standing in of:
        standing.trial = trial
    return trial.slower("it", "the other")


def _rounded(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
