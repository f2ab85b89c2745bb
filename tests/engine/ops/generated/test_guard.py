"""Generated kernels beside the route there was: what happens to one that is wrong or slow."""

from __future__ import annotations

import math
import warnings
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np
import pytest

import engine
from engine.backends.cpu import allocator
from engine.core.layouts import ChannelsLast, lies_channels_last
from engine.core.trials import Standing
from engine.dispatch import OPS, choosing
from engine.kernels import processor
from engine.ops import generated
from engine.ops.generated import comparison, guard, launch, replay
from tests.engine.ops.generated import kernel_of

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("fresh"),
]


def test_a_kernel_that_differs_is_switched_off_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PAYS", 1)
    planted = lambda xp, input, **options: OPS["gelu"].kernel(np, input) * 1.01
    kernel = kernel_of("gelu", planted)
    x = np.linspace(-3, 3, 1000, dtype="f4")
    with pytest.warns(RuntimeWarning, match="the generated kernel of gelu is switched off: .* differ"):
        got = kernel(np, x)
    np.testing.assert_array_equal(got, planted(np, x))  # the route there was has the say
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel(np, x) is NotImplemented
        assert kernel(np, x + 1) is NotImplemented


@pytest.mark.parametrize("static", [False, True])
def test_a_slower_kernel_is_left_unless_times_do_not_count(static: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not static:
        monkeypatch.delenv("ENGINE_ROUTES")
    monkeypatch.setattr(launch, "PAYS", 1)
    x = np.linspace(-3, 3, 200_000, dtype="f4")
    ready = OPS["gelu"].kernel(np, x)
    kernel = kernel_of("gelu", lambda xp, input, **options: ready)  # a route that takes no time
    assert comparison.difference(kernel(np, x), ready) is None
    assert (kernel(np, x) is NotImplemented) is not static


def test_a_kernel_that_was_slower_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have been busy; only one that is slower each time is off."""
    monkeypatch.setattr(launch, "PAYS", 1)
    x = np.linspace(-3, 3, 5000, dtype="f4")
    for verdicts, served in (([True, False], True), ([True] * Standing.TRIALS, False)):
        kernel, left = kernel_of("gelu"), list(verdicts)
        monkeypatch.setattr(launch, "_entries", {})
        monkeypatch.setattr(guard, "slower", lambda *_, left=left, of=(): left.pop(0))
        for _ in verdicts:
            assert comparison.difference(kernel(np, x), OPS["gelu"].kernel(np, x)) is None
            resting = [kernel(np, x) is NotImplemented for _ in range(Standing.REST)]
            assert all(resting) or not left
        assert not left and (kernel(np, x) is not NotImplemented) is served


def test_numbers_that_change_are_not_worth_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other numbers a proven kernel runs once, without a comparison; with the same ones again it is replayed."""
    monkeypatch.setattr(launch, "PAYS", 1)
    kernel, x = kernel_of("mul"), np.linspace(-3, 3, 20_000, dtype="f4")
    made: list[Any] = []
    monkeypatch.setattr(guard, "replay", lambda *args: made.append(args[2]) or replay.replay(*args))
    for factor in (1.5, 2.5, 3.5, 2.5, 2.5, 1.5):
        np.testing.assert_array_equal(kernel(np, x, factor), x * np.float32(factor))
    assert [args[1] for args in made] == [1.5, 2.5]
    for zero in (0.0, -0.0, 0.0, -0.0, 0.0, -0.0):
        np.testing.assert_array_equal(np.signbit(kernel(np, x, zero)), np.signbit(x * np.float32(zero)))


def test_an_op_in_place_writes_where_its_operand_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PAYS", 1)
    kernel = generated.kernel_of(OPS["relu"], OPS["relu"].kernel, 0)
    for turn in range(3):
        x = np.linspace(-3, 3, 20_000, dtype="f4")
        want = np.maximum(x, 0)
        got = kernel(np, x)
        np.testing.assert_array_equal(got, want)
        assert (got is x) == (turn > 0)
    x = engine.linspace(-3, 3, 20_000)
    for _ in range(3):
        before = x.clone()
        assert x.sub_(0.5).relu_() is x
        assert engine.equal(x, (before - 0.5).clamp(min=0))


def test_an_op_in_place_whose_operands_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PAYS", 1)
    record, x = OPS["add"], np.arange(50_001, dtype="f4")
    kernel = choosing.large_kernel(record)
    for other in (x[50_000:0:-1].copy(), x[:-1]):
        for _ in range(3):
            target = x[1:]
            want = target + other
            found = kernel(np, target, other, into=target)
            target[...] = found
            np.testing.assert_array_equal(target, want)


LARGE = (3, 500, 2000)  # compared in three parts


@pytest.mark.parametrize("static", [False, True])
def test_the_proof_of_a_large_result_takes_no_second_one(static: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the comparison nor the times nor the second run hold another whole result."""
    if not static:
        monkeypatch.delenv("ENGINE_ROUTES")
    code = lambda xp, a, b: xp.maximum(a * b + a, 0)
    kernel = generated.fused("chain", code)
    a, b = allocator.empty(LARGE), np.linspace(-1, 1, 2000, dtype="f4")
    a[:] = np.linspace(-2, 2, a.size, dtype="f4").reshape(LARGE)
    allocator.reset_peak_memory_stats()
    before = allocator.memory_stats()["allocated_bytes.all.current"]
    assert comparison.difference(code(np, a, b), kernel(np, a, b)) is None
    taken = allocator.memory_stats()["allocated_bytes.all.peak"] - before
    assert a.nbytes <= taken < 1.9 * a.nbytes
    assert comparison.difference(code(np, a, b), kernel(np, a, b)) is None


@pytest.mark.parametrize("at", [0, 1_500_123, -1])
def test_a_difference_anywhere_in_the_parts_of_a_large_result_is_found(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(xp: Any, x: Any) -> Any:
        found = np.maximum(x, 0)
        return np.where(x == marked, 7, found).astype("f4")

    x = np.linspace(1, 2, 3_000_000, dtype="f8").astype("f4").reshape(LARGE)
    marked = x.reshape(-1)[at]
    kernel = generated.fused("chain", lambda xp, x: xp.maximum(x, 0), planted)
    with pytest.warns(RuntimeWarning, match="the generated kernel of chain is switched off"):
        np.testing.assert_array_equal(kernel(np, x), planted(np, x))
    assert kernel(np, x) is NotImplemented


@pytest.mark.parametrize(
    "shape", [(3_000_000,), (5, 7, 100_000), (1, 2, 3, 500_000), (2_000_000, 2), (3, 1, 1_000_000)]
)
def test_parts_are_where_they_lie_in_every_operand(shape: tuple[int, ...]) -> None:
    """What is computed of the parts of operands is the part of what is computed of them."""
    rng = np.random.default_rng(0)
    whole = rng.standard_normal(shape).astype("f4")
    row, column = whole[(0,) * (len(shape) - 1)].copy(), whole[..., :1].copy()
    code = lambda a, b, c, d: a * b + c - d
    found = code(whole, row, column, 2.0)
    few = guard._parts((whole, row, column), {"d": 2.0}, found)
    assert len(few) == 3
    for args, kwargs, part in few:
        assert 0 < part.size <= guard.PART
        np.testing.assert_array_equal(code(*args, **kwargs), part)
    assert few[0][2].flat[0] == found.flat[0] and few[2][2].flat[-1] == found.flat[-1]


def image(*shape: int) -> Any:
    """Memory (N, H, W, C) of an image by the engine's choice."""
    made = np.random.default_rng(len(shape)).standard_normal((shape[0], *shape[2:], shape[1])).astype("float32")
    return made.transpose(0, len(shape) - 1, *range(1, len(shape) - 1)).view(ChannelsLast)


@pytest.mark.parametrize("shape", [(2, 16, 5, 7), (2, 8, 3, 4, 5)])
def test_images_are_served_in_the_order_of_their_memory(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch.trials, "trusted", True)
    x, y, each = image(*shape), image(*shape) + 1, np.arange(shape[1], dtype="float32")
    factor = np.broadcast_to(
        each.reshape(1, -1, *(1,) * (len(shape) - 2)), (shape[0], shape[1], *(1,) * (len(shape) - 2))
    )
    one = np.float32(3).reshape(())
    place = np.arange(math.prod(shape[2:]), dtype="float32").reshape(1, 1, *shape[2:]) + 1
    for name, args, named in (
        ("sigmoid", (x,), {}),
        ("mul", (x, y), {}),
        ("mul", (x, np.ascontiguousarray(y)), {}),  # copied to the order of the other
        ("mul", (np.ascontiguousarray(x) * 2, y), {}),
        ("mul", (factor.copy(), x), {}),
        ("mul", (x, one), {}),
        ("true_div", (x, place), {}),
        ("mul", (place[:, :, :1], x), {}),
        ("mul", (x, 2.5), {}),
        ("add", (x, y), {"alpha": 3}),
        ("gelu", (x,), {"approximate": "none"}),
    ):
        kernel = kernel_of(name)
        for _ in range(2):
            made = kernel(np, *args, **named)
            assert type(made) is ChannelsLast and lies_channels_last(made)
            plain = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
            np.testing.assert_allclose(made, OPS[name].kernel(np, *plain, **named), rtol=1e-5, atol=1e-5)
        assert not kernel.why_not(args, named)


def test_images_beside_what_lies_otherwise_are_left() -> None:
    x, kernel = image(2, 16, 5, 7), kernel_of("mul")
    for other in (np.ones((2, 16, 5, 14), "float32")[..., ::2], np.ones(7, "float32"), image(1, 16, 5, 7)):
        assert kernel(np, x, other) is NotImplemented
        assert kernel.why_not((x, other), {}) == "converted to another layout"


def test_a_call_whose_kernel_rests_is_left() -> None:
    """Calls of other shapes share its kernel, and lose a trial meanwhile."""
    resting: list[bool] = []

    def variant(xp: Any, x: Any) -> Any:
        if resting:
            raise launch.Unfit("resting")
        return x * 2

    kernel = guard.guarded("double", variant, lambda xp, x: x + x, False)
    x = np.ones(3, "float32")
    for _ in range(3):
        assert kernel(np, x).tolist() == [2, 2, 2]
    resting.append(True)
    assert kernel(np, x) is NotImplemented


def test_a_launch_whose_kernel_rests_is_left() -> None:
    """A trial of the replay fails where calls of other threads have made its kernel rest since."""
    turns: list[int] = []

    def variant(xp: Any, x: Any) -> Any:
        turns.append(len(turns))
        if len(turns) == 2:  # the call that is watched
            raise launch.Unfit("resting")
        return x * 2

    kernel = guard.guarded("double", variant, lambda xp, x: x + x, True)
    x = np.ones(3, "float32")
    for _ in range(3):
        assert kernel(np, x).tolist() == [2, 2, 2]
    assert len(turns) > 3


def test_a_kernel_that_is_disabled_within_its_trial_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of calls that are made whole again, and cannot be once their kernel is switched off."""
    monkeypatch.setenv("ENGINE_ROUTES", "kept")
    entry = launch.Entry()
    turns: list[int] = []

    def variant(xp: Any, x: Any) -> Any:
        turns.append(len(turns))
        if not entry.proven:
            launch.trials.fresh.append(entry)
        if len(turns) == 2:
            raise launch.Unfit("resting", entry)
        return x * 2

    kernel = guard.guarded("double", variant, lambda xp, x: x + x, False)
    x = np.ones(3, "float32")
    for _ in range(3):
        assert kernel(np, x).tolist() == [2, 2, 2]
