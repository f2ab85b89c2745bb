"""Generated kernels of ops: what they compute, when they are compiled, what happens to one that is wrong or slow."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np
import pytest

import engine
from engine.backends.cpu import allocator
from engine.backends.file_cache import Cache
from engine.core.layouts import ChannelsLast, lies_channels_last
from engine.core.lru import LRU
from engine.core.trials import Standing
from engine.dispatch import OPS, choosing, with_fact
from engine.kernels import compiler, cpu, processor
from engine.ops import generated
from engine.ops.generated import launch
from tests.engine import shim
from tests.engine.samples import cases

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(autouse=True)
def fresh(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of another test, nothing switched off; code is shared by the tests of this run."""
    monkeypatch.setattr(compiler, "cache", Cache(tmp_path_factory.getbasetemp().parent / "llvm"))
    monkeypatch.setattr(launch, "_entries", {})
    monkeypatch.setattr(launch, "_rows", LRU(4096))
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    yield


def kernel_of(name: str, present: Any = None) -> Any:
    """The generated kernel of an op in front of its own code."""
    return generated.kernel_of(OPS[name], present or OPS[name].kernel)


def test_every_sample_agrees_with_the_code_of_its_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled kernel itself: nothing is replaced by the op's own result."""
    monkeypatch.setattr(launch.trials, "trusted", True)
    served, wrong = set(), []
    kernels = {name: kernel_of(name) for name in with_fact("generated")}
    for case in cases():
        if case.op is None or not case.op.generated:
            continue
        given, named = case.arguments()
        for dtype in ("float32", "float64", "bfloat16"):
            args = [shim.narrowed(a, dtype) for a in given]
            keywords = {k: shim.narrowed(v, dtype) for k, v in named.items()}
            with np.errstate(all="ignore"):
                results = []
                for function in (case.op.kernel, kernels[case.name]):
                    try:
                        results.append(function(np, *args, **keywords))
                    except Exception as error:
                        results.append(error)
            want, got = results
            if got is NotImplemented or (isinstance(want, Exception) and type(want) is type(got)):
                continue
            served.add(case.name)
            if isinstance(want, Exception) or isinstance(got, Exception):
                wrong.append(f"{case} {dtype}: {got!r} instead of {want!r}")
            elif found := shim.differences(want, got, dtype):
                wrong.append(f"{case} {dtype}: {found}")
    assert not wrong
    assert len(served) > 20


SHAPES = {
    "softmax": [((300, 50), 1), ((300, 50), 0), ((4, 30, 5, 7), 1)],
    "log_softmax": [((300, 50), 1), ((50, 300), 0)],
    "gelu": [((2000,),), ((40, 60),)],
    "silu": [((2000,),)],
    "native_layer_norm": [((40, 6, 32), (32,)), ((40, 6, 32), (6, 32))],
}


@pytest.mark.parametrize("type", ["float32", "float64"])
@pytest.mark.parametrize("name", SHAPES)
def test_later_calls_launch_and_nothing_else(name: str, type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proven at the first call, replayed from the second on: other elements, contiguous or not."""
    monkeypatch.setattr(launch, "PAYS", 1)
    rng = np.random.default_rng(0)
    kernel = kernel_of(name)
    for shape, *more in SHAPES[name]:
        for layout in (lambda a: a, np.asfortranarray):
            for turn in range(4):
                x = layout(rng.standard_normal(shape).astype(type))
                with monkeypatch.context() as patch:
                    if turn and x.flags.c_contiguous:  # all that is needed is known
                        patch.setattr(launch, "rows", None)
                        patch.setattr(launch, "elements", None)
                    got = kernel(np, x, *more)
                want = OPS[name].kernel(np, x, *more)
                assert launch.difference(want, got) is None


def test_what_is_rarely_asked_for_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(cpu, "build", lambda *a, **k: built.append(a) or (_ for _ in ()).throw(RuntimeError("no")))
    kernel = kernel_of("gelu")
    x = np.ones(600, "f4")
    for _ in range(launch.CALLS - 1):
        assert kernel(np, x) is NotImplemented
    assert not built
    with pytest.warns(RuntimeWarning, match="generated code is not used here: RuntimeError: no"):
        assert kernel(np, x) is NotImplemented  # worth it now, but this machine's LLVM fails
    assert kernel(np, x) is NotImplemented and len(built) == 1


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
    assert launch.difference(kernel(np, x), ready) is None
    assert (kernel(np, x) is NotImplemented) is not static


def test_a_kernel_that_was_slower_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have been busy; only one that is slower each time is off."""
    monkeypatch.setattr(launch, "PAYS", 1)
    x = np.linspace(-3, 3, 5000, dtype="f4")
    for verdicts, served in (([True, False], True), ([True] * Standing.TRIALS, False)):
        kernel, left = kernel_of("gelu"), list(verdicts)
        monkeypatch.setattr(launch, "_entries", {})
        monkeypatch.setattr(launch, "slower", lambda *_, left=left, of=(): left.pop(0))
        for _ in verdicts:
            assert launch.difference(kernel(np, x), OPS["gelu"].kernel(np, x)) is None
            resting = [kernel(np, x) is NotImplemented for _ in range(Standing.REST)]
            assert all(resting) or not left
        assert not left and (kernel(np, x) is not NotImplemented) is served


def test_numbers_that_change_are_not_worth_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other numbers a proven kernel runs once, without a comparison; with the same ones again it is replayed."""
    monkeypatch.setattr(launch, "PAYS", 1)
    kernel, x = kernel_of("mul"), np.linspace(-3, 3, 20_000, dtype="f4")
    made: list[Any] = []
    replay = launch.replay
    monkeypatch.setattr(launch, "replay", lambda *args: made.append(args[2]) or replay(*args))
    for factor in (1.5, 2.5, 3.5, 2.5, 2.5, 1.5):
        np.testing.assert_array_equal(kernel(np, x, factor), x * np.float32(factor))
    assert [args[1] for args in made] == [1.5, 2.5]
    for zero in (0.0, -0.0, 0.0, -0.0, 0.0, -0.0):
        np.testing.assert_array_equal(np.signbit(kernel(np, x, zero)), np.signbit(x * np.float32(zero)))


def test_light_ops_wait_for_work_not_for_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = kernel_of("neg"), np.ones(20_000, "f4")
    work = x.size * 3 // launch.MUCH  # loaded, turned, stored
    monkeypatch.setattr(launch, "PAYS", work * 50)
    assert all(kernel(np, x) is NotImplemented for _ in range(49))
    assert (kernel(np, x) == -1).all()


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
    assert launch.difference(code(np, a, b), kernel(np, a, b)) is None
    taken = allocator.memory_stats()["allocated_bytes.all.peak"] - before
    assert a.nbytes <= taken < 1.9 * a.nbytes
    assert launch.difference(code(np, a, b), kernel(np, a, b)) is None


@pytest.mark.parametrize("shape", [(3_000_001,), (3, 1_000, 1_001)])
def test_a_comparison_takes_little_memory(shape: tuple[int, ...]) -> None:
    """Copies of a million elements in float64 had raised the peak of a whole model, copies of images that lie with
    their channels last that of another one.
    """
    want = np.linspace(-2, 2, math.prod(shape), dtype="f4").reshape(shape).T
    got = want.copy("K")
    tracemalloc.start()
    try:
        assert launch.difference(want, got, launch.size_of(want)) is None
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    got.flat[3 * 700_001] = 7  # the step is 3
    assert f"7 instead of {want.flat[3 * 700_001]:.9g} at sample 700001, 1 of" in str(launch.difference(want, got))


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
    few = launch._parts((whole, row, column), {"d": 2.0}, found)
    assert len(few) == 3
    for args, kwargs, part in few:
        assert 0 < part.size <= launch.PART
        np.testing.assert_array_equal(code(*args, **kwargs), part)
    assert few[0][2].flat[0] == found.flat[0] and few[2][2].flat[-1] == found.flat[-1]


def test_differences_are_seen() -> None:
    a = np.linspace(-1, 1, 1000, dtype="f4")
    assert launch.difference(a, a.copy()) is None
    assert "1 of 1000 differ" in str(launch.difference(a, np.where(np.arange(1000) == 7, 0, a).astype("f4")))
    assert "instead of float32" in str(launch.difference(a, a.astype("f8")))
    assert launch.difference((a, None), (a, a)) == "a result is missing"
    nan = np.where(a > 0.5, np.nan, a).astype("f4")
    assert launch.difference(nan, nan) is None and launch.difference(a, nan) is not None
    # what is left of terms that cancel is no difference
    assert launch.difference(np.zeros(3, "f4"), np.full(3, 1e-7, "f4"), 1.0) is None
    assert launch.difference(np.zeros(3, "f4"), np.full(3, 1e-4, "f4"), 1.0) is not None


def test_a_bad_target_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PAYS", 1)
    x, target = engine.randn(200, 10), engine.zeros(200, dtype=engine.int64)
    for _ in range(3):
        engine.nn.functional.cross_entropy(x, target)
    target[5] = 10
    with pytest.raises(IndexError, match="Target 10 is out of bounds"):
        engine.nn.functional.cross_entropy(x, target)


def test_a_reduction_is_done_on_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cross-entropy of a training loop: sums of which the first call must leave nothing wrong to the second."""
    monkeypatch.setattr(launch.trials, "trusted", True)
    rows, target = np.random.default_rng(0).standard_normal((40, 7)).astype("f4"), np.arange(40) % 7
    run = kernel_of("softmax_nll_rows")
    want = (np.log(np.exp(rows).sum(1)) - rows[np.arange(40), target]).mean()
    for _ in range(3):
        assert run(np, rows, target)[0] == pytest.approx(want, rel=1e-5)


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = "import sys, engine; x = engine.ones(4); (x + x).sum(); print('llvmlite' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        text=True,
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[4],
        env={name: value for name, value in os.environ.items() if name != "ENGINE_JIT"},
    )
    assert found.stdout == "False\n"


@pytest.mark.parametrize("again", [lambda x: x, lambda x: x[:]], ids=["one array", "a view of it"])
def test_what_is_kept_of_a_call_with_one_array_twice_is_not_used_for_two_arrays(again: Any) -> None:
    x, y = (np.random.default_rng(n).standard_normal((200, 300)).astype("float32") for n in range(2))
    kernel, own = kernel_of("silu_backward"), OPS["silu_backward"].kernel
    for _ in range(2 * launch.CALLS):
        kernel(np, x, again(x))
    for first, second in ((x, y), (y, x), (y, y), (y, y[:])):
        np.testing.assert_allclose(kernel(np, first, second), own(np, first, second), atol=1e-5)


def test_a_number_that_float32_has_not_is_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PAYS", 1)
    x = np.linspace(-3, 3, 20_001, dtype="f4")
    divided, less = kernel_of("true_div"), kernel_of("lt")
    with np.errstate(all="ignore"):
        assert all((divided(np, x, 1e39) == 0).all() for _ in range(4))
        assert all(less(np, x, 1e300).all() for _ in range(4))
        assert all((less(np, x * np.float64(1e100), 1e99) == (x < 0.1)).all() for _ in range(4))  # which float64 has


def test_a_call_that_launches_nothing_is_not_replayed() -> None:
    """Its result is filled by other means, which a replay would leave out."""

    def filled(xp: Any, x: Any) -> Any:
        made = xp.empty(x.shape, x.dtype)
        made[...] = x + 1
        return made

    x = np.arange(5, dtype="float32")
    assert launch.replay(filled, np, (x,), {}) is None


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

    kernel = launch.guarded("double", variant, lambda xp, x: x + x, False)
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

    kernel = launch.guarded("double", variant, lambda xp, x: x + x, True)
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

    kernel = launch.guarded("double", variant, lambda xp, x: x + x, False)
    x = np.ones(3, "float32")
    for _ in range(3):
        assert kernel(np, x).tolist() == [2, 2, 2]
