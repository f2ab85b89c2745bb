"""Routes prove themselves at first use; the verdict is kept for card, driver, library and kernels."""

from __future__ import annotations

import importlib
import json
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
import engine.ops.cuda  # registers its routes
import engine.ops.cudnn  # registers its routes
from engine.backends.cuda import compile as compiling
from engine.backends.cuda import routes
from engine.backends.cuda.errors import OutOfMemoryError
from tests.engine import shim, standin
from tests.engine.standin import kernels, machine

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(standin.REAL, reason="keeps verdicts of a stand-in card")]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, whose routes prove themselves; routes of a test are forgotten after it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(routes, "ROUTES", {})
    monkeypatch.setattr(routes._verdicts, "warned", False)
    with standin.running(checks=True) as backend:
        yield backend


def counting(found: Any, wanted: Any, calls: list[int]) -> Any:
    def check(xp: Any) -> Any:
        calls.append(1)
        yield xp.asarray(found), wanted

    return check


def again() -> Any:
    """As a further process would begin."""
    return standin.running(checks=True)


def test_a_route_checks_itself_once_and_the_verdict_is_kept(checked: Any, tmp_path: Path) -> None:
    calls: list[int] = []
    good = routes.route("good", check=counting(np.ones(3), np.ones(3), calls), fallback="the plain form")
    assert routes.active() == {"good": "not checked"}
    assert [good.on(), good.on()] == [True, True] and len(calls) == 1
    assert routes.active() == {"good": "on"}
    (path,) = tmp_path.rglob("*.cuda.json")
    document = json.loads(path.read_bytes()[32:])
    assert document["for"] == routes.identity() and document["routes"]["good"]["verdict"] == "ok"
    with again():
        assert good.on() and len(calls) == 1


def test_one_that_differs_is_off_with_one_warning_in_this_process_and_the_next(checked: Any) -> None:
    calls: list[int] = []
    bad = routes.route("bad", check=counting(np.ones(3), np.full(3, 1.1), calls), fallback="the plain form")
    with pytest.warns(RuntimeWarning, match="routes bad differs .0.091. on this GPU .* the plain form computes"):
        assert not bad.on()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not bad.on()
    with again(), pytest.warns(RuntimeWarning, match="routes bad gave other numbers than the CPU"):
        assert not bad.on()
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (np.ones(3), np.ones(4)),
        (np.ones(3), np.ones(3, np.float32)),
        (np.array([np.nan, 1]), np.ones(2)),
        (np.ones(2), np.array([np.inf, 1])),
        (np.array([1e30]), np.array([1.1e30])),
    ],
)
def test_what_counts_as_different(found: Any, wanted: Any, checked: Any) -> None:
    one = routes.route("one", check=counting(found, wanted, []), fallback="none")
    with pytest.warns(RuntimeWarning, match="one differs"):
        assert not one.on()


def test_values_that_are_not_finite_agree_with_themselves() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 2.0])
    assert routes.difference(x, x.copy()) == 0
    assert routes.difference(x.astype(np.float16), x.astype(np.float16)) == 0


def test_one_that_fails_is_off_and_the_warning_has_its_words(checked: Any) -> None:
    def check(xp: Any) -> Any:
        raise RuntimeError("no such\nengine")
        yield

    one = routes.route("broken", check=check, fallback="im2col and products")
    with pytest.warns(RuntimeWarning, match=r"broken failed \(RuntimeError: no such engine\) .* im2col and products"):
        assert not one.on()


def test_memory_that_ends_says_nothing_of_a_route(checked: Any) -> None:
    full = [True]

    def check(xp: Any) -> Any:
        if full:
            raise OutOfMemoryError("CUDA out of memory.")
        yield xp.ones(2), np.ones(2)

    one = routes.route("later", check=check, fallback="none")
    assert not one.on()
    full.clear()
    assert one.on()


def test_one_that_refuses_work_later_is_off_in_this_process_only(checked: Any) -> None:
    one = routes.route("sometimes", check=counting(np.ones(1), np.ones(1), []), fallback="none")
    assert one.on()
    with pytest.warns(RuntimeWarning, match="sometimes failed .status 13."):
        one.fail("status\n13")
    assert not one.on()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.fail("status 13")
    with again():
        assert one.on()


def test_other_kernels_have_no_verdict(checked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    one = routes.route("one", check=counting(np.ones(3), np.ones(3), calls), fallback="none")
    assert one.on()
    monkeypatch.setattr(routes, "digest", lambda: "of other sources")
    with again():
        assert one.on() and len(calls) == 2


def test_each_device_has_a_verdict_of_its_own(checked: Any) -> None:
    seen: list[int] = []

    def check(xp: Any) -> Any:
        seen.append(xp.cuda.Device().id)
        yield xp.ones(1), np.ones(1)

    one = routes.route("one", check=check, fallback="none")
    assert one.on()
    with engine.cuda.device(1):
        assert one.on()  # the same model, but a card with a UUID of its own
    assert seen == [0, 1]
    with again():
        assert one.on()
        with engine.cuda.device(1):
            assert one.on()
    assert seen == [0, 1]  # each has its file


def test_a_file_that_is_nonsense_is_no_verdict(checked: Any, tmp_path: Path) -> None:
    calls: list[int] = []
    one = routes.route("one", check=counting(np.ones(3), np.ones(3), calls), fallback="none")
    assert one.on()
    (path,) = tmp_path.rglob("*.cuda.json")
    documents: list[Any] = [{"routes": []}, {"routes": {"one": 3}}]
    for document in documents:
        with again():
            routes._verdicts.update(lambda _, document=document: document)
        with again():
            assert one.on()
    for text in ("nonsense", "[]"):
        path.write_text(text)
        with again():
            assert one.on()
    assert len(calls) == 5


def test_a_folder_that_cannot_be_written_warns_once(checked: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    made = [routes.route(name, check=counting(np.ones(1), np.ones(1), []), fallback="none") for name in ("one", "two")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert all(one.on() for one in made)
    assert len(caught) == 1 and "verdicts on CUDA routes are not stored" in str(caught[0].message)


def test_the_first_use_may_be_in_a_graph(checked: Any) -> None:
    """The check waits for the GPU and takes memory: on a stream and from a pool that are not the graph's."""

    def check(xp: Any) -> Any:
        yield xp.arange(4) * 2, np.arange(4) * 2

    one = routes.route("one", check=check, fallback="none")
    graph, x = engine.cuda.CUDAGraph(), engine.ones(3, device="cuda")
    _ = x + 1
    with engine.cuda.graph(graph):
        assert one.on()
        y = x + 1
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [6, 6, 6]


def test_a_check_may_use_another_route(checked: Any) -> None:
    inner = routes.route("inner", check=counting(np.ones(1), np.ones(1), []), fallback="none")

    def check(xp: Any) -> Any:
        yield xp.ones(1), np.ones(1) * inner.on() * outer.on()

    outer = routes.route("outer", check=check, fallback="none")
    assert outer.on() and set(routes.stored()["routes"]) == {"inner", "outer"}


def test_two_threads_check_once(checked: Any) -> None:
    calls: list[int] = []
    one = routes.route("one", check=counting(np.ones(1), np.ones(1), calls), fallback="none")
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(one.on())) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 4 and len(calls) == 1


# --- the engine's own kernels

needs_shim = pytest.mark.skipif(bool(shim.MISSING), reason=shim.MISSING)
OWN = ("pointwise", "reduction", "softmax", "norm", "loss", "indexing", "random", "optimizer")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in with own kernels, whose routes prove themselves."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with standin.running(checks=True, kernels=True) as backend:
        importlib.import_module("engine.ops.cuda")
        yield backend


@needs_shim
@pytest.mark.parametrize("name", [*OWN, "cublasLt"])
def test_every_family_passes_its_check(name: str, own: Any) -> None:
    row = routes.measure(routes.ROUTES[name])
    assert (row["verdict"], row["why"]) == ("ok", "")


@needs_shim
def test_a_device_that_starts_uses_own_kernels_without_being_told(own: Any) -> None:
    assert routes.active()["softmax"] == "not checked"
    x = engine.rand(40, 70, device="cuda")
    before = machine.Machine.launches
    y = x.softmax(1)
    assert routes.active()["softmax"] == "on"
    y = x.softmax(1)
    between = machine.Machine.launches
    _ = x.softmax(1)
    assert machine.Machine.launches == between + 1 and between > before  # one launch, not five of CuPy's
    np.testing.assert_allclose(y.cpu().numpy(), x.cpu().softmax(1).numpy(), 1e-5)


@needs_shim
@pytest.mark.parametrize("name", OWN)
def test_a_kernel_that_cannot_be_compiled_leaves_the_work_to_the_fallback(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    class Refusing:
        def module(self, *args: Any) -> Any:
            raise compiling.CompileError("error: no such architecture")

    monkeypatch.setattr(kernels, "other", [Refusing()])
    with standin.running(checks=True, kernels=True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        importlib.import_module("engine.ops.cuda")
        assert not routes.ROUTES[name].on()
        assert [f"routes {name} failed" in str(w.message) for w in caught] == [True]
        caught.clear()
        x = engine.ones(3, 4, device="cuda", requires_grad=True)
        engine.manual_seed(3)
        loss = engine.nn.functional.cross_entropy((x * 2).softmax(1), engine.tensor([0, 1, 3], device="cuda"))
        loss.backward()
        assert loss.isfinite() and engine.rand(3, device="cuda").shape == (3,)
        assert all("failed" in str(w.message) for w in caught) and len(caught) <= len(OWN)


# --- what the stand-in finds wrong with launches of own kernels


@needs_shim
def test_a_missing_wait_before_an_own_kernel_is_found(own: Any) -> None:
    x = engine.zeros(64, device="cuda").exp()  # on, and compiled
    x = x.log()
    side = engine.cuda.Stream()
    with engine.cuda.stream(side), pytest.raises(machine.StreamOrderError, match="without waiting for it"):
        x.exp()
    side.wait_stream(engine.cuda.current_stream())
    with engine.cuda.stream(side):
        y = x.exp()
    engine.cuda.current_stream().wait_stream(side)
    assert y.tolist() == [1.0] * 64


@needs_shim
def test_a_kernel_is_refused_memory_of_another_device(own: Any) -> None:
    module = gpu_module("void k(const float *x0, float *out0) { out0[0] = x0[0]; }")
    here, there = (engine.ones(4, device=f"cuda:{n}")._array for n in (0, 1))
    with pytest.raises(RuntimeError, match="memory of device 1 in a kernel of device 0"):
        module((1,), (1,), [there, here])
    module((1,), (1,), [here, here])


def gpu_module(text: str) -> Any:
    """The kernel `k` of a text, as a device gets it."""
    return compiling.module('#include "prelude.cuh"\nextern "C" __global__ ' + text, (), "k").function("k")
