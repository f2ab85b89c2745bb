"""Small calls of ops: when a launch of theirs is kept, what becomes of one that is wrong, who still sees the call."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import engine
from engine.autograd import profiler
from engine.core.trials import Standing
from engine.dispatch import OPS, choosing, with_fact
from engine.kernels import direct, processor
from engine.ops import generated
from engine.ops.generated import comparison, launch, lines, small
from tests.engine import shim
from tests.engine.samples import cases

pytestmark = [
    pytest.mark.skipif(
        not processor.available() or not direct.readable(), reason=f"generated code is {processor.describe()}"
    ),
    pytest.mark.usefixtures("fresh"),
]
CALLS = direct.EVERY * small.OFFERS


def function_of(name: str) -> Any:
    """The function of direct calls, in front of the op's own code."""
    return small.function_of(OPS[name], OPS[name].kernel)


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def kept(function: Any, *args: Any, calls: int = CALLS) -> bool:
    """Whether the call has a launch after so many."""
    for _ in range(calls):
        function(*args)
    return function(*args) is not NotImplemented


def test_a_call_that_comes_often_is_kept_and_gives_what_its_op_gives() -> None:
    x, y = arrays((7, 9), (7, 9))
    for name, args in {
        "relu": (x,),
        "hardshrink": (x, 0.5),
        "silu_backward": (x, y),
        "add": (x, y),
        "maximum": (x, y[0]),
        "softmax": (x, 1, None),
        "native_layer_norm": (x, (9,), y[0], y[1], 1e-5),
    }.items():
        function = function_of(name)
        if name != "add":
            args = tuple(args)
        record = OPS[name]
        count = len(record.positional)
        want = record.kernel(np, *args[:count], **dict(zip(record.keyword, args[count:])))
        assert not kept(function, *args, calls=CALLS // 2)
        assert kept(function, *args)
        assert comparison.difference(want, function(*args)) is None


def test_one_array_twice_says_nothing_of_two() -> None:
    x, y = arrays((50,), (50,))
    function = function_of("mul")
    assert kept(function, x, x)
    assert np.array_equal(function(x, y), x * y) and np.array_equal(function(y, y), y * y)


def test_tables_are_part_of_what_is_kept() -> None:
    x, y = arrays((2, 3, 9), (2, 3, 9))
    spec = (("linear", 9, 14, False, None),)
    function, own = function_of("upsample_linear1d"), OPS["upsample_linear1d"].kernel
    assert kept(function, x, spec)
    gc.collect()
    lines._tables.young.clear()
    for given in (x, y, y - x):
        np.testing.assert_allclose(function(given, spec), own(np, given, spec), atol=1e-6)


def test_other_numbers_are_another_call() -> None:
    (x,) = arrays((50,))
    function = function_of("hardshrink")
    assert kept(function, x, 0.5)
    assert function(x, 0.25) is NotImplemented
    assert kept(function, x, 0.25)
    assert np.array_equal(function(x, 0.25), np.where(np.abs(x) > 0.25, x, 0))
    assert np.array_equal(function(x, 0.5), np.where(np.abs(x) > 0.5, x, 0))
    with np.errstate(all="ignore"):
        assert kept(function, x, 1e39)  # which float32 has not
    assert not function(x, 1e39).any()


def test_a_launch_that_differs_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    (x,) = arrays((50,))
    wrong = generated.variant_of(OPS["abs"])
    monkeypatch.setattr(generated, "variant_of", lambda record, small: wrong)
    function = function_of("neg")
    with pytest.warns(RuntimeWarning, match="the generated kernel of neg is switched off"):
        found = [function(x) for _ in range(CALLS)]
    assert np.array_equal(found[-1], -x)
    assert not kept(function, x)


def test_a_launch_that_is_slower_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    (x,) = arrays((50,))
    verdicts: list[bool] = []
    monkeypatch.setattr(launch, "slower", lambda *args: verdicts.append(True) or True)
    assert not kept(function_of("neg"), x, calls=6 * CALLS)
    assert len(verdicts) == Standing.TRIALS


def test_a_launch_that_was_slower_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have been busy."""
    (x,) = arrays((50,))
    verdicts = [False, True]
    monkeypatch.setattr(launch, "slower", lambda *args: verdicts.pop())
    function = function_of("neg")
    assert not kept(function, x)
    assert kept(function, x, calls=2 * CALLS) and not verdicts


def test_large_calls_are_left_to_routes_that_let_the_lock_go() -> None:
    (x,) = arrays((small.OPERATIONS + 1,))
    assert not kept(function_of("neg"), x)
    (x,) = arrays((small.OPERATIONS // 8,))
    assert not kept(function_of("tanh"), x)


def test_views_are_as_large_as_arrays_of_their_elements() -> None:
    """Rows of 768 of each of two images, without the first and without the last."""
    (x,) = arrays((2, 128, 768))
    function = function_of("sub")
    assert kept(function, x[:, 1:], x[:, :-1])
    assert np.array_equal(function(x[:, 1:], x[:, :-1]), x[:, 1:] - x[:, :-1])


def test_calls_of_many_elements_are_tried_sooner() -> None:
    """Each counts as one more for every so many elements: the compiler is paid by few of them."""
    many, few = arrays((7 * small.SOON,), (70,))
    assert small._more((many, many)) == 7 and small._more((few, few)) == 0
    assert small._more((few[:, None], np.zeros((1, small.SOON), "f4"))) == 70  # by the result
    assert kept(function_of("neg"), many, calls=direct.EVERY * 2 + 1)
    assert not kept(function_of("neg"), few, calls=direct.EVERY * 2 + 1)


def test_maxima_of_lines_of_some_length_are_few() -> None:
    (x,) = arrays((2, 192, 1, 100))
    assert kept(function_of("max_pool2d_values"), x, (1, 3), (1, 1), (0, 1), (1, 1), False)


def test_products_of_few_elements_with_a_large_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their own code takes one thread, too; the result is new memory each time."""
    monkeypatch.setattr(small.launch, "slower", lambda *args: False)
    x, y = arrays((64, 72), (64, 72))
    function = function_of("mul")
    for other in (x, y):  # of one array, two operands that begin at one place
        args = x[:, :, None], other[:, None]
        assert kept(function, *args)
        first, second = function(*args), function(*args)
        assert first.nbytes >= 1 << 20 and not np.shares_memory(first, second)
        assert np.array_equal(first, args[0] * args[1])
    args = y[:, :, None], x[:, None]  # another order of the two
    assert np.array_equal(function(*args), args[0] * args[1])
    backwards = x[::-1, :, None], x[:1, None]  # which does not begin where the other does
    assert function(*backwards) is NotImplemented or np.array_equal(function(*backwards), backwards[0] * backwards[1])
    expanded = np.broadcast_to(x[:, :1, None], (64, 72, 72)), x[:, None]
    kept(function, *expanded)
    found = function(*expanded)
    assert found is NotImplemented or np.array_equal(found, expanded[0] * expanded[1])


def test_subclasses_and_what_cannot_be_a_key_are_left_to_other_routes() -> None:
    (x,) = arrays((5, 5))
    function = function_of("relu")
    assert not kept(function, x.view(type("Own", (np.ndarray,), {})))
    assert not kept(function_of("native_layer_norm"), x, ([],), None, None, 1e-5)


def test_ops_ask_it_with_gradients_profilers_and_errors_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_left", [0])
    x = engine.randn(6, 5, requires_grad=True)
    for _ in range(choosing._COUNTED + CALLS + 1):
        result = engine.nn.functional.hardshrink(x, 0.3)
    space = OPS["hardshrink"].namespaces[0]
    assert type(space["direct"]).__name__ == "builtin_function_or_method"
    assert space["direct"](x.detach().numpy(), 0.3) is not NotImplemented
    result.sum().backward()
    assert x.grad is not None and np.array_equal(x.grad.numpy(), np.abs(x.detach().numpy()) > 0.3)
    with profiler.profile() as found:
        engine.nn.functional.hardshrink(x, 0.3)
    assert any("hardshrink" in event.name for event in found.function_events)
    assert space["direct"] is OPS["hardshrink"].quick
    with pytest.raises(TypeError):
        engine.nn.functional.hardshrink(x, "a")


def test_every_sample_agrees_with_the_code_of_its_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct calls from the first on, and each sample twice: the launch that was just kept, and that which is."""
    monkeypatch.setattr(launch.trials, "trusted", True)
    served, wrong = set(), []
    functions = {name: function_of(name) for name in with_fact("generated")}
    for case in cases():
        if case.op is None or not case.op.generated:
            continue
        given, named = case.arguments()
        record = case.op
        for dtype in ("float32", "float64"):
            args = [shim.narrowed(a, dtype) for a in given]
            keywords = {k: shim.narrowed(v, dtype) for k, v in named.items()}
            with np.errstate(all="ignore"):
                try:
                    want = record.kernel(np, *args, **keywords)
                except Exception as error:
                    want = error
                bound = dict(zip(record.positional, args)) | keywords
                flat = [bound.get(p, record.defaults.get(p)) for p in record.params]
                for got in (functions[case.name](*flat), functions[case.name](*flat)):
                    if got is NotImplemented:
                        continue
                    served.add(case.name)
                    if isinstance(want, Exception):
                        wrong.append(f"{case} {dtype}: no error")
                    elif found := shim.differences(want, got, dtype):
                        wrong.append(f"{case} {dtype}: {found}")
    assert not wrong
    assert len(served) > 60 and served >= {
        "glu",
        "cumsum",
        "col2im",
        "prelu_kernel",
        "batch_norm_train",
        "batch_norm_eval",
        "softmax_nll_rows",
        "softmax_nll_backward",
    }
