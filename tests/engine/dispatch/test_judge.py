"""One judge: who reads the variable, who takes times, who remembers; and what `explain` tells of a call."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.backends import onednn, routes
from engine.backends.cuda import routes as on_card
from engine.core import trials
from engine.dispatch import OPS, binder, choosing, judge, providers
from engine.kernels import processor
from engine.nn import functional as F
from engine.ops.generated import launch
from tests.engine import shim, standin

ROOT = Path(engine.__file__).parent
needs_onednn = pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe())
needs_jit = pytest.mark.skipif(not processor.available(), reason=processor.describe())


def files_with(test: Callable[[ast.AST], bool], *words: str) -> list[str]:
    """The files of the engine in which some node passes a test; each has one of the `words` in its text."""
    texts = {path: path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}
    return [
        path.relative_to(ROOT).as_posix()
        for path, text in texts.items()
        if any(word in text for word in words) and any(map(test, ast.walk(ast.parse(text))))
    ]


# --- one of each


def test_one_reader_of_the_variable() -> None:
    named = lambda node: isinstance(node, ast.Constant) and node.value == "ENGINE_ROUTES"
    assert files_with(named, "ENGINE_ROUTES") == ["core/trials.py"]


def test_one_trial_takes_the_times_that_decide() -> None:
    """Others measure for people: profilers, benchmarks, how long a check on a card took."""

    def clock(node: ast.AST) -> bool:
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return name.startswith("perf_counter") or name in ("timeit", "process_time")

    reports = {"autograd/profiler.py", "backends/cuda/routes.py", "cuda/selftest.py"}
    assert {f for f in files_with(clock, "perf_counter", "timeit", "process_time") if not f.startswith("utils/")} == {
        "core/trials.py"
    } | reports


def test_one_cache_of_decisions() -> None:
    """No cache by hand that forgets all, or its oldest key, once it has so many; those that hold memory are exact."""

    def by_hand(node: ast.AST) -> bool:
        if not isinstance(node, ast.If | ast.While) or not isinstance(node.test, ast.Compare):
            return False
        left = node.test.left
        if not isinstance(left, ast.Call) or ast.unparse(left.func) != "len":
            return False
        cache = ast.unparse(left.args[0])
        body = "\n".join(map(ast.unparse, node.body))
        return any(f"{cache}{end}" in body for end in (".clear()", ".popitem(")) or f"del {cache}[next(" in body

    exact = ["backends/cuda/blaslt.py", "backends/cuda/cudnn.py"]
    exact += ["programs/capture.py", "programs/inference/__init__.py"]
    assert [
        f for f in files_with(by_hand, ".clear()", ".popitem(", "[next(") if not f.startswith("fx/passes/")
    ] == exact


def test_one_verdict_file() -> None:
    """Nobody else makes a folder in the user's cache, but for compiled code."""
    named = lambda node: isinstance(node, ast.Constant) and node.value == "XDG_CACHE_HOME"
    users = [
        f
        for f in files_with(named, "XDG_CACHE_HOME")
        if f.startswith(("backends", "ops", "dispatch", "kernels", "cuda", "programs", "fx"))
    ]
    assert users == ["backends/file_cache.py", "backends/verdicts.py"]


# --- explain


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stand-ins of the kernels of `hardsigmoid` that note which of them ran; oneDNN's leaves doubles."""
    said: list[str] = []
    record = OPS["hardsigmoid"]
    plain = record.kernel

    def stand_in(name: str) -> Callable[..., Any]:
        def kernel(xp: Any, *args: Any, into: Any = None, **kwargs: Any) -> Any:
            if name == "onednn" and args[0].dtype != np.float32:
                return NotImplemented
            said.append(name)
            return plain(np, *args, **kwargs)

        return kernel

    monkeypatch.setenv("ENGINE_ROUTES", "kept")
    monkeypatch.setitem(routes._state, "read", True)
    monkeypatch.setattr(routes, "chosen", {})
    monkeypatch.setattr(choosing, "measured", routes.chosen)
    monkeypatch.setattr(record, "kernel", stand_in("numpy"))
    blocks = providers.blocks
    monkeypatch.setattr(providers, "blocks", lambda one: stand_in("blocks") if one is record else blocks(one))
    monkeypatch.setattr(choosing, "onednn_kernels", lambda: True)
    monkeypatch.setattr(record, "generated", "")
    monkeypatch.setattr(record, "quick", None)
    monkeypatch.setitem(record.kernels, "onednn", stand_in("onednn"))
    binder.routes_changed({"hardsigmoid"})
    yield said
    monkeypatch.undo()
    binder.routes_changed({"hardsigmoid"})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("calibrated", ["", "numpy", "blocks", "onednn"])
@pytest.mark.parametrize("elements", [3, 100_000])
def test_the_route_that_is_named_is_the_one_that_ran(
    elements: int, calibrated: str, dtype: str, own: list[str]
) -> None:
    if calibrated:
        routes.chosen["hardsigmoid"] = dict.fromkeys(range(4, 13), calibrated)
        binder.routes_changed({"hardsigmoid"})
    x = engine.linspace(-4, 4, elements, dtype=getattr(engine, dtype))
    F.hardsigmoid(x)
    ran = own[0]
    (call,) = judge.explain(F.hardsigmoid, x).calls
    assert call.op == "hardsigmoid" and call.route == ran
    assert call.operands == f"{dtype}[{elements}]"
    assert sum(choice.taken for choice in call.choices) == 1
    own.clear()
    F.hardsigmoid(x)
    assert own == [ran]  # nothing is left round the kernels


def test_why_of_sizes_types_and_libraries(own: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = engine.ones(3), engine.ones(100_000)
    why = lambda x: [(c.route, c.taken, c.why) for c in judge.explain(F.hardsigmoid, x).calls[0].choices]
    assert why(few) == [("numpy", True, f"3 elements; other kernels from {OPS['hardsigmoid'].large}")]
    assert why(many) == [("onednn", True, "serves such operands")]
    refused = ("onednn", False, "does not serve such operands (float64)")
    assert why(many.double()) == [refused, ("blocks", True, "the op's own code on all threads")]
    monkeypatch.setattr(choosing, "onednn_kernels", lambda: False)
    monkeypatch.setattr(onednn, "describe", lambda: "off: not found")
    assert why(many)[0] == ("onednn", False, "off: not found")


def test_it_is_a_table_that_one_can_read(own: list[str]) -> None:
    x = engine.ones(100_000, dtype=engine.float64)
    lines = repr(judge.explain(F.hardsigmoid, x)).splitlines()
    assert lines == [
        "op           operands            route   why",
        "hardsigmoid  float64[100000]     onednn  does not serve such operands (float64)",
        "                              *  blocks  the op's own code on all threads",
    ]
    assert repr(judge.explain(lambda: None)) == "no op was called"


class Inner(trials.Standing):
    """As Winograd's in front of oneDNN's convolution."""

    name = "inner"


def test_routes_of_geometries_within_a_kernel_are_named(own: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    inner, kernel = Inner(), OPS["hardsigmoid"].kernels["onednn"]
    with_inner = lambda xp, x: kernel(xp, x * 1 if inner.proven else x)
    monkeypatch.setitem(OPS["hardsigmoid"].kernels, "onednn", with_inner)
    x = engine.ones(100_000)
    why = lambda: judge.explain(F.hardsigmoid, x).calls[0].choices[0].why
    assert why() == "serves such operands; test_judge: not tried yet"
    inner.proven = True
    assert why() == "serves such operands; test_judge: proven"
    assert not isinstance(trials.Standing.__dict__["proven"], judge._Noted)


def test_values_gradients_and_errors_are_those_of_the_call() -> None:
    x = engine.ones(4, requires_grad=True)
    found = engine.explain(lambda: (x * 3).sum().backward())
    assert x.grad is not None and x.grad.tolist() == [3.0] * 4
    assert [call.op for call in found.calls[:2]] == ["mul", "sum"]
    with pytest.raises(RuntimeError, match="shape"):
        engine.explain(lambda: engine.ones(2, 3) @ engine.ones(2, 3))
    y = engine.ones(3)
    assert engine.explain(y.add_, 1).calls[0].op == "add" and y.tolist() == [2.0] * 3
    assert not binder.wrappers


def test_threads_explain_one_after_the_other() -> None:
    """What one has put round a kernel, another would leave there for good."""
    x, before = engine.ones(3), trials.Standing.__dict__["proven"]
    found: list[str] = []
    inside, outside = threading.Event(), threading.Event()

    def first() -> None:
        inside.set()
        outside.wait(0.2)  # set only if the other one is explaining meanwhile
        found.append("first")

    def second() -> None:
        outside.set()
        found.append("second")

    one = threading.Thread(target=engine.explain, args=(first,))
    one.start()
    inside.wait()
    engine.explain(second)
    one.join()
    assert found == ["first", "second"]
    assert trials.Standing.__dict__["proven"] is before and engine.explain(engine.relu, x).calls[0].op == "relu"


def test_a_first_call_is_compiled_and_told_of() -> None:
    code = """
import engine
from engine.dispatch import OPS
assert not OPS["sinc"].namespaces
found = engine.explain(engine.sinc, engine.linspace(0.1, 0.9, 5))
assert "sinc" in [call.op for call in found.calls]
assert all(not hasattr(space["kernel"], "inner") for record in OPS.values() for space in record.namespaces)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@needs_jit
def test_a_kernel_that_was_slower_is_named_with_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_ROUTES", "kept")
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(processor, "always", lambda: False)
    monkeypatch.setattr(choosing, "_left", [0])
    monkeypatch.setattr(launch, "_entries", {})
    monkeypatch.setattr(launch, "PAYS", 1)
    monkeypatch.setattr(trials.Trial, "slower", lambda self, route, other: True)
    binder.routes_changed({"exp"})
    x = engine.linspace(-1, 1, 300_000)
    x.exp()
    (call,) = engine.explain(x.exp).calls
    whys = {choice.route: choice.why for choice in call.choices}
    assert whys["generated"].startswith("resting: slower in 1 of 3 trials (it ") and "the other" in whys["generated"]
    assert call.route != "generated"
    monkeypatch.undo()
    binder.routes_changed({"exp"})


@needs_onednn
def test_a_plan_has_a_row_of_its_own() -> None:
    model = engine.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval())
    x = engine.ones(2, 8)
    with engine.no_grad():
        first, second = (engine.explain(model, x).calls[0] for _ in range(2))
    assert (first.op, first.route, second.route) == ("OptimizedModule", "op by op", "plan")


def test_the_table_of_the_command() -> None:
    made = judge.table()
    assert made["mode"] == trials.mode() and made["verdicts"].endswith("verdicts")
    assert [row["route"] for row in made["routes"]][:3] == ["onednn", "generated", "calibrated"]


@pytest.mark.cuda
@pytest.mark.skipif(bool(shim.MISSING) or standin.REAL, reason="kernels for the stand-in card")
def test_routes_on_a_card() -> None:
    with standin.running(kernels=True):
        importlib.import_module("engine.ops.cuda")
        x = engine.ones(3, 4, device="cuda")
        softmax, cumsum = engine.explain(lambda: (x.softmax(1), x.cumsum(0))).calls
        assert (softmax.op, softmax.route, cumsum.route) == ("softmax", "softmax", "cupy")
        assert softmax.choices[0].why.startswith("equal to the CPU on this card")
        before = on_card.switch("softmax", False)
        try:
            off = engine.explain(x.softmax, 1).calls[0]
        finally:
            on_card.switch("softmax", before)
        assert [(c.route, c.taken) for c in off.choices] == [("softmax", False), ("cupy", True)]
        assert off.choices[0].why == "differs or failed on this card"


def test_static_looks_at_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither ops, nor plans, nor training steps."""

    def clock() -> float:
        raise AssertionError("a time was taken")

    monkeypatch.setenv("ENGINE_ROUTES", "static")
    monkeypatch.setattr(trials, "clock", clock)
    monkeypatch.setattr(choosing, "_left", [0])
    monkeypatch.setattr(launch, "PAYS", 1)
    x, image = engine.randn(300, 300), engine.randn(2, 16, 20, 20)
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3)).eval()
    plan, optimizer = engine.compile(model), engine.optim.SGD(model.parameters(), 1e-3)
    for _ in range(12):
        F.gelu(x).softmax(1)
        with engine.no_grad():
            plan(image)
        optimizer.zero_grad()
        plan(image).sum().backward()
        optimizer.step()
    small = engine.ones(64)
    for _ in range(600):
        small * small


def test_the_size_of_a_call_is_that_of_its_result() -> None:
    """A column and a row of few elements are many once they are broadcast: another kernel than numpy's is asked."""
    column, row, mask = engine.randn(1, 400, 1), engine.randn(300, 1, 1), engine.randn(400, 2) > 0
    many = engine.randn(300, 400, 2)
    calls = [lambda: column + row, lambda: engine.maximum(column, row), lambda: column < row]
    calls += [lambda: engine.where(mask, many, many), lambda: engine.addcmul(column, column, row)]
    calls += [lambda: engine.lerp(column, row, 0.3), lambda: engine.atan2(column, row), lambda: column[0] + many]
    for call in calls:
        assert "elements; other kernels" not in str(engine.explain(call)), engine.explain(call)
    assert "120 elements; other kernels from" in str(engine.explain(lambda: column[:, :40] + row[:3]))
    assert choosing.result_size((np.ones((3, 1)), 2.0, np.ones((1, 4)))) == 12
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        engine.randn(300) + engine.randn(400)
