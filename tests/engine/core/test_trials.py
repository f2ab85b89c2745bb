"""The one trial: turns, margins, retries."""

from __future__ import annotations

import pytest

from engine.core import trials
from engine.core.trials import CALL, Standing, Terms, Trial, mode, slower


class Clock:
    """A clock that calls move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 0.0, list[str]()
        monkeypatch.setattr(trials, "clock", lambda: self.now)
        monkeypatch.setenv("ENGINE_ROUTES", "kept")

    def taking(self, name: str, *seconds: float) -> object:
        left = list(seconds)

        def call() -> None:
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    ("value", "wanted"), [("static", "static"), ("MEASURED", "measured"), ("", "kept"), ("x", "kept")]
)
def test_the_three_values(value: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_ROUTES", value)
    assert mode() == wanted


def test_the_least_of_each_decides_by_the_margin(clock: Clock) -> None:
    assert not slower(clock.taking("a", 9.0, 1.04), clock.taking("b", 1.0))  # type: ignore[arg-type]
    assert slower(clock.taking("a", 1.06), clock.taking("b", 9.0, 1.0))  # type: ignore[arg-type]
    assert slower(clock.taking("a", 1.04), clock.taking("b", 1.0), 1.0)  # type: ignore[arg-type]


def test_it_ends_after_the_fewest_calls_of_long_ones_and_the_most_of_short_ones(clock: Clock) -> None:
    slower(clock.taking("a", 1.0), clock.taking("b", 1.0))  # type: ignore[arg-type]
    assert clock.calls == ["a", "b"] * CALL.fewest
    clock.calls.clear()
    slower(clock.taking("a", 1e-7), clock.taking("b", 1e-7))  # type: ignore[arg-type]
    assert clock.calls == ["a", "b"] * CALL.most


def test_static_calls_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    assert not slower(clock.taking("a", 9.0), clock.taking("b", 1.0)) and not clock.calls  # type: ignore[arg-type]


def test_turns_of_several_calls_each() -> None:
    trial = Trial(("new", "old"), Terms(2, 4, 1.0, turn=2))
    order = []
    while not trial.over:
        order.append((trial.turn, trial.change))
        trial.times[trial.turn].append(0.1)
    assert order == [(name, first) for name in ("new", "old", "new", "old") for first in (True, False)]


def test_a_share_of_the_calls_is_left_out() -> None:
    trial = Trial(("new", "old"), Terms(4, 8, 1.0, margin=1.1, share=0.25))
    trial.times = {"new": [9.0, 1.0, 1.0, 9.0], "old": [1.0, 0.1, 1.0, 1.0]}
    assert trial.over and trial.seconds("old") == 1.0 and not trial.slower("new", "old")


def test_a_route_that_lost_rests_and_is_disabled_at_last() -> None:
    standing = Standing()
    assert str(standing) == "not tried yet"
    for n in range(1, Standing.TRIALS):
        standing.lost()
        assert (standing.rest, standing.disabled) == (Standing.REST, False)
        assert str(standing) == f"slower in {n} of {Standing.TRIALS} trials"
    standing.lost()
    assert (standing.rest, standing.disabled) == (0, True)
    assert str(standing) == f"slower in {Standing.TRIALS} trials"


def test_a_trial_is_noted_with_both_times(clock: Clock) -> None:
    standing = Standing()
    slower(clock.taking("a", 2e-3), clock.taking("b", 3e-6), of=[standing])  # type: ignore[arg-type]
    standing.lost()
    assert str(standing) == "slower in 1 of 3 trials (it 2 ms, the other 3 us)"
