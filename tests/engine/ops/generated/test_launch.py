"""Generated kernels of ops: what they compute, and when they are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np
import pytest

import engine
from engine.dispatch import with_fact
from engine.kernels import cpu, processor
from engine.ops.generated import launch
from tests.engine import shim
from tests.engine.ops.generated import kernel_of
from tests.engine.samples import cases

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("fresh"),
]


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


def test_light_ops_wait_for_work_not_for_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = kernel_of("neg"), np.ones(20_000, "f4")
    work = x.size * 3 // launch.MUCH  # loaded, turned, stored
    monkeypatch.setattr(launch, "PAYS", work * 50)
    assert all(kernel(np, x) is NotImplemented for _ in range(49))
    assert (kernel(np, x) == -1).all()


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


def test_a_number_that_float32_has_not_is_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PAYS", 1)
    x = np.linspace(-3, 3, 20_001, dtype="f4")
    divided, less = kernel_of("true_div"), kernel_of("lt")
    with np.errstate(all="ignore"):
        assert all((divided(np, x, 1e39) == 0).all() for _ in range(4))
        assert all(less(np, x, 1e300).all() for _ in range(4))
        assert all((less(np, x * np.float64(1e100), 1e99) == (x < 0.1)).all() for _ in range(4))  # which float64 has
