"""The choice between a generated way and the one there was."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu import threads
from engine.core.trials import Standing
from engine.kernels import processor
from engine.ops.generated import launch, route

ONE = np.ones(4, "float32")


@pytest.fixture(autouse=True)
def doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken without a proof."""
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(processor, "always", lambda: False)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): False)
    monkeypatch.setattr(route, "MANY", 0)


def made(work: int = launch.PAYS) -> tuple[route.GeneratedRoute, list[str]]:
    built: list[str] = []
    return route.GeneratedRoute("a test", launch.Entry(), work, lambda: built.append("built") or "code"), built


def calls(one: route.GeneratedRoute, mine: Any = ONE, plain: Any = ONE, layer: Any = None) -> list[str]:
    seen: list[str] = []
    one.chosen(lambda: seen.append("mine") or mine, lambda: seen.append("plain") or plain, (ONE,), layer)
    return seen


def test_it_is_tried_once_and_serves_then() -> None:
    one, built = made()
    assert [calls(one) for _ in range(3)] == [["plain", "mine"], ["mine"], ["mine"]]
    assert built == ["built"]


def test_it_is_not_compiled_before_there_was_enough_work() -> None:
    one, built = made(launch.PAYS // 3)
    assert [calls(one) for _ in range(2)] == [["plain"], ["plain"]] and not built
    assert [calls(one) for _ in range(3)] == [["plain"], ["plain", "mine"], ["mine"]]


def test_a_program_that_runs_a_model_once_does_not_wait_for_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "MANY", 9)
    one, built = made()
    assert [calls(one) for _ in range(8)] == [["plain"]] * 8 and not built
    assert [calls(one) for _ in range(2)] == [["plain", "mine"], ["mine"]]


def test_layers_that_are_alike_are_not_calls_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "MANY", 9)
    one, built = made()
    layers = [np.ones(3) for _ in range(5)]
    assert [calls(one, layer=w) for w in layers * 2] == [["plain"]] * 10 and not built
    assert [calls(one, layer=w) for w in layers[:2]] == [["plain", "mine"], ["mine"]]


def test_layers_that_are_made_anew_are_calls_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "MANY", 9)
    one, _ = made()
    assert [calls(one, layer=np.ones(3)) for _ in range(6)] == [["plain"]] * 6  # three, then one each
    assert calls(one, layer=np.ones(3)) == ["plain", "mine"]


def test_results_that_are_not_finite_decide_nothing() -> None:
    one, _ = made()
    assert [calls(one, mine=ONE, plain=ONE * np.nan) for _ in range(2)] == [["plain"], ["plain"]]
    assert [calls(one) for _ in range(2)] == [["plain", "mine"], ["mine"]]


def test_what_differs_is_off_for_all_geometries_with_that_code() -> None:
    one, _ = made()
    other = route.GeneratedRoute("a test", one.entry, launch.PAYS, lambda: "code")
    with pytest.warns(RuntimeWarning, match="the generated kernel of a test is switched off: 2 instead of 1"):
        assert calls(one, mine=ONE * 2) == ["plain", "mine"]
    assert [calls(one), calls(other)] == [["plain"], ["plain"]]


def test_what_is_slower_is_off_for_its_geometry(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = made()
    other = route.GeneratedRoute("a test", one.entry, launch.PAYS, lambda: "code")
    with monkeypatch.context() as late:
        late.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): True)
        assert calls(one) == ["plain", "mine"]
    assert [calls(one), calls(other)] == [["plain"], ["plain", "mine"]]


def test_what_was_slower_is_tried_again_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = made()
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): True)
    tried = [n for n in range(200) if calls(one) == ["plain", "mine"]]
    assert len(tried) == Standing.TRIALS and one.disabled
    assert all(b - a >= Standing.REST for a, b in itertools.pairwise(tried))
    again, _ = made()
    assert calls(again) == ["plain", "mine"]
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.05, of=(): False)  # the machine is quiet now
    seen = [calls(again) for _ in range(Standing.REST + 2)]
    assert ["plain", "mine"] in seen and seen[-1] == ["mine"]


def test_without_a_result_to_compare_with_nothing_is_decided() -> None:
    one, _ = made()
    assert [calls(one, plain=NotImplemented) for _ in range(2)] == [["plain"], ["plain"]]
    assert calls(one) == ["plain", "mine"]


def test_a_compiler_that_fails_is_told_of_and_left() -> None:
    def broken() -> Any:
        raise OSError("no room")

    one = route.GeneratedRoute("a test", launch.Entry(), launch.PAYS, broken)
    with pytest.warns(RuntimeWarning, match="generated code is not used here: OSError: no room"):
        assert calls(one) == ["plain"]
    assert calls(one) == ["plain"]


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_pieces_cover_all_of_the_work(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route.team, "run", lambda *_: False)  # no OpenMP: Python's threads
    monkeypatch.setattr(route.compiler, "address", lambda code: 0)
    monkeypatch.setattr(threads, "_count", 3)
    seen: list[int] = []
    route.shared(lambda args, begin, end: seen.extend(range(begin, end)), b"", 3, 12, pieces)
    assert sorted(seen) == list(range(3, 12))


@pytest.mark.parametrize("count", [64, 24, 20, 7])
def test_vectors_are_the_widest_that_the_channels_fill(count: int) -> None:
    found, most = route.lanes(count), route.lanes()
    assert count % found == 0 and found <= most
    assert all(count % wider for wider in (4, 8, 16) if found < wider <= most)
