"""The self-test: every route agrees on the stand-in, a kernel that is wrong is found, switched off and remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
import engine.ops.cuda  # registers its routes
import engine.ops.cudnn  # registers its routes
from engine.backends.cuda import compile as compiling
from engine.backends.cuda import routes
from engine.cuda import selftest
from tests.engine import shim, standin
from tests.engine.standin import kernels

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", selftest.CHECKS)
def test_route(name: str, gpu: Any) -> None:
    (row,) = selftest.run([name])
    assert (row.verdict, row.why) == ("ok", "") and row.error <= selftest.CHECKS[name][0]


@pytest.mark.skipif(bool(shim.MISSING) or standin.REAL, reason="plants a fault in what g++ builds")
def test_a_wrong_kernel_is_switched_off_and_remembered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "CHECKS", {n: selftest.CHECKS[n] for n in ("softmax", "pooling")})
    plant = shim.Plant("= expf(", "= expf(1.01f * ")
    monkeypatch.setattr(kernels, "other", [compiling.Shim(files=compiling.Cache(cache), change=plant)])
    with standin.running(checks=True, kernels=True):
        rows = selftest.run()
        assert [row.verdict for row in rows] == ["off", "ok"] and plant.fits
        assert rows[0].why.startswith("own kernels of softmax are not used; differs by ")
        assert routes.active()["softmax"] == "off"
    (kept,) = cache.rglob("*.cuda.json")
    assert json.loads(kept.read_bytes()[32:])["routes"]["softmax"]["verdict"] == "differs"
    with standin.running(checks=True, kernels=True):  # the next process
        x = engine.ones(3, 4, device="cuda")
        with pytest.warns(RuntimeWarning, match="CUDA routes softmax gave other numbers than the CPU"):
            assert x.softmax(1)[0].tolist() == [0.25] * 4


def test_a_check_finds_what_the_small_check_of_its_route_does_not(
    gpu: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(xp: Any) -> Any:
        yield xp.ones(1), np.ones(1)

    monkeypatch.setattr(routes, "ROUTES", {})
    one = routes.route("own", check=check, fallback="none")
    results = lambda where: [engine.full((2,), 1.0 + (where == "cuda" and one.on()), device=where)]
    monkeypatch.setattr(selftest, "CHECKS", {"things": (1e-6, results, ("own",))})
    (row,) = selftest.run()
    assert row.verdict == "off" and row.why == "own kernels of own are not used; differs by 1"
    assert not one.on() and routes.stored()["routes"]["own"]["verdict"] == "differs"
    results = lambda where: [engine.full((2,), 1.0 + (where == "cuda"), device=where)]  # the fallback is wrong as well
    monkeypatch.setattr(selftest, "CHECKS", {"things": (1e-6, results, ("own",))})
    (row,) = selftest.run()
    assert row.verdict == "differs" and one.on()


def test_a_route_that_fails_is_a_row(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(where: str) -> list[Any]:
        if where == "cuda":
            raise RuntimeError("no such\nkernel")
        return []

    monkeypatch.setitem(selftest.CHECKS, "broken", (0.0, broken, ()))
    (row,) = selftest.run(["broken"])
    assert row.verdict == "failed" and row.why == "RuntimeError: no such kernel"
    assert "broken  failed" in selftest.table([row])


def test_without_a_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if engine.cuda.is_available():
        return
    assert selftest.main() == 2
    assert capsys.readouterr().err.startswith("error: device 'cuda' ")
