"""The self-test: every route agrees on the stand-in, a kernel that is wrong is found, switched off and remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.backends.cuda import compile as compiling
from engine.cuda import selftest
from engine.dispatch import OPS
from tests.engine.shim import using

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", selftest.CHECKS)
def test_route(name: str, gpu: Any) -> None:
    (row,) = selftest.run([name])
    assert (row.verdict, row.why) == ("ok", "") and row.error <= selftest.CHECKS[name][0]


def test_a_wrong_kernel_is_switched_off_and_remembered(gpu: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "CHECKS", {n: selftest.CHECKS[n] for n in ("softmax", "pooling")})
    kernels = OPS["softmax"].kernels
    plain = OPS["softmax"].kernel

    def wrong(xp: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(xp, *args, **kwargs) * 1.01

    monkeypatch.setitem(OPS["log_softmax"].kernels, "cuda", OPS["log_softmax"].kernels["cuda"])  # put back at the end
    monkeypatch.setitem(kernels, "cuda", wrong)
    OPS["softmax"].chosen.pop("cuda", None)
    with using(compiling.Shim(kept=compiling.Cache(cache))):  # without a builder own kernels are not used
        rows = selftest.run()
    assert [row.verdict for row in rows] == ["off", "ok"]
    assert rows[0].why.startswith("own kernels of ") and "softmax" in rows[0].why and "cuda" not in kernels
    (kept,) = cache.rglob("verdict-*.json")
    assert json.loads(kept.read_text())["off"] == ["log_softmax", "softmax"]
    kernels["cuda"] = wrong  # the next process
    with pytest.warns(RuntimeWarning, match="CUDA kernels of softmax gave other numbers than the CPU"):
        assert selftest.apply_verdict() == ["softmax"]  # the other's is off already
    assert "cuda" not in kernels
    kept.write_text("nonsense")
    assert selftest.verdict() is None and selftest.apply_verdict() == []
    kernels["cuda"] = wrong  # what the fixture takes away


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
    import engine

    if engine.cuda.is_available():
        return
    assert selftest.main() == 2
    assert capsys.readouterr().err.startswith("error: device 'cuda' ")
