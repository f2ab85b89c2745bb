"""Measured routes: what is taken, what is kept, and what a damaged, foreign or unwritable file does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import backends
from engine.backends import onednn, routes, verdicts
from engine.backends.file_cache import Cache
from engine.dispatch import OPS, binder, choosing, providers
from engine.ops import calibration

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing measured before and after; what is measured here is taken."""
    monkeypatch.setenv("ENGINE_ROUTES", "kept")
    monkeypatch.setitem(routes._state, "read", False)
    monkeypatch.setattr(routes._verdicts, "warned", False)
    routes.forget()
    yield
    routes.forget()


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let routes take the seconds that are said; one after the other where there are several.  The ops asked."""

    def these(*seconds: dict[str, float]) -> list[str]:
        asked: list[str] = []
        left = list(seconds)

        def measured(name: str, cases: Any) -> dict[str, float]:
            asked.append(name)
            return left.pop(0) if len(left) > 1 else left[0]

        monkeypatch.setattr(calibration, "_measured", measured)
        return asked

    return these


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The routes by which erf-like work is done: a stand-in of each kernel of `hardsigmoid` says its name."""
    choosing.onednn_kernels()
    said: list[str] = []
    record = OPS["hardsigmoid"]
    plain = record.kernel

    def stand_in(name: str) -> Callable[..., Any]:
        def kernel(xp: Any, *args: Any, into: Any = None, **kwargs: Any) -> Any:
            said.append(name)
            return plain(np, *args, **kwargs)

        return kernel

    monkeypatch.setattr(record, "kernel", stand_in("numpy"))
    monkeypatch.setattr(providers, "blocks", lambda record: stand_in("blocks"))
    monkeypatch.setattr(choosing, "onednn_kernels", lambda: True)
    monkeypatch.setattr(OPS["hardsigmoid"], "generated", "")  # whose code would be in front of all three
    monkeypatch.setitem(record.kernels, "onednn", stand_in("onednn"))
    binder.routes_changed({"hardsigmoid"})
    yield said
    monkeypatch.undo()
    binder.routes_changed({"hardsigmoid"})


def way(said: list[str], elements: int) -> str:
    said.clear()
    x = engine.linspace(-4, 4, elements)
    found = engine.nn.functional.hardsigmoid(x).numpy()
    assert np.allclose(found, np.clip(x.numpy() / 6 + 0.5, 0, 1), atol=1e-6)
    (one,) = said
    return one


def test_every_op_with_several_kernels_is_measured_or_says_why_not() -> None:
    if not choosing.onednn_kernels():
        pytest.skip("no oneDNN: nothing to choose from")
    several = {name for name, record in OPS.items() if "onednn" in record.kernels}
    assert several == set(calibration.CASES) | set(calibration.LEFT)
    assert not set(calibration.CASES) & set(calibration.LEFT)


@pytest.mark.onednn
@pytest.mark.parametrize("name", calibration.names())
def test_routes_agree(name: str) -> None:
    """At the smallest and at a middle size all kernels of an op give the numbers of the plain one."""
    sizes, operands = calibration.CASES[name]
    choosing.onednn_kernels()
    with np.errstate(all="ignore"):
        for k in (sizes[0], sizes[len(sizes) // 2]):
            for args in operands(2 * 4**k):
                plain = OPS[name].kernel(np, *args)
                for route, call in calibration._calls(name, args).items():
                    assert calibration._agree(call(), plain), (route, k)


def test_what_the_op_says_holds_until_something_is_measured(served: list[str]) -> None:
    least = OPS["hardsigmoid"].large
    assert [way(served, n) for n in (100, least - 1, least, 100_000)] == ["numpy", "numpy", "onednn", "onednn"]


def test_rows_decide_by_class_of_size(served: list[str]) -> None:
    row = {5: "numpy", 6: "blocks", 7: "numpy", 8: "onednn"}  # from 1024, 4096, 16384 and 65536 elements
    routes.keep({"hardsigmoid": row})
    assert [way(served, n) for n in (10, 1024, 4095, 4096, 16383, 16384, 65535, 65536, 10**6)] == [
        "numpy",
        "numpy",
        "numpy",
        "blocks",
        "blocks",
        "numpy",
        "numpy",
        "onednn",
        "onednn",
    ]
    routes.forget()
    assert way(served, OPS["hardsigmoid"].large) == "onednn"
    routes.keep({"hardsigmoid": dict.fromkeys(row, "numpy")})
    assert way(served, 10**6) == "numpy"


def test_the_faster_route_is_taken_and_kept(timed: Callable[..., list[str]], served: list[str]) -> None:
    timed({"numpy": 1.0, "blocks": 3.0, "onednn": 2.0})
    rows = backends.calibrate(["hardsigmoid"])
    assert {(r.static, r.chosen) for r in rows} == {("numpy", "numpy"), ("onednn", "numpy")}
    assert way(served, 100_000) == "numpy"
    assert routes.stored() == {"hardsigmoid": dict.fromkeys(calibration.ELEMENTS, "numpy")}
    routes.forget()
    routes.read()  # as another process does
    assert routes.chosen == routes.stored()


def test_a_little_faster_or_faster_once_is_not_enough(timed: Callable[..., list[str]]) -> None:
    timed({"numpy": 0.95, "onednn": 1.0})
    assert all(r.chosen == r.static for r in backends.calibrate(["hardsigmoid"]))
    timed(*[{"numpy": n, "onednn": 1.0} for n in (0.5, 0.95) * len(calibration.ELEMENTS)])
    assert all(r.chosen == r.static for r in backends.calibrate(["hardsigmoid"]) if r.static == "onednn")


def test_other_numbers_are_never_taken(timed: Callable[..., list[str]], served: list[str], monkeypatch: Any) -> None:
    timed({"numpy": 9.0, "onednn": 1.0})
    wrong = lambda xp, input: np.clip(input / 6 + 0.5, 0, 1) + np.float32(1e-3)
    monkeypatch.setitem(OPS["hardsigmoid"].kernels, "onednn", wrong)
    rows = backends.calibrate(["hardsigmoid"])
    assert {r.differs for r in rows} == {("onednn",)}
    assert {r.chosen for r in rows if r.static == "numpy"} == {"numpy"}


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match=r"no kernels to choose from: cumsum; there are add, "):
        backends.calibrate(["cumsum"])


def test_static_takes_nothing(
    timed: Callable[..., list[str]], served: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    timed({"numpy": 1.0, "onednn": 2.0})
    backends.calibrate(["hardsigmoid"])
    assert routes.chosen == {} and set(routes.stored()) == {"hardsigmoid"}
    routes.read()
    assert way(served, 100_000) == "onednn"


def test_measured_measures_at_first_use(
    timed: Callable[..., list[str]], served: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_ROUTES", "measured")
    asked = timed({"numpy": 1.0, "onednn": 2.0})
    binder.routes_changed({"hardsigmoid"})  # its text is to be written: as at the first call of a process
    assert set(asked) == {"hardsigmoid"}
    assert way(served, 100_000) == "numpy"
    asked.clear()
    binder.routes_changed({"hardsigmoid"})
    assert asked == []


def test_the_file_of_another_processor(timed: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    timed({"numpy": 1.0, "onednn": 2.0})
    backends.calibrate(["hardsigmoid"])
    theirs = routes.path()
    monkeypatch.setattr(routes, "_model", lambda: "Another Processor")
    assert routes.path() != theirs and routes.stored() == {}
    shutil.copy(theirs, routes.path())  # even under this one's name
    assert routes.stored() == {}


@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "ENGINE_ONEDNN", "OPENBLAS_CORETYPE"])
def test_what_limits_instructions_is_another_machine(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = routes.path()
    monkeypatch.setenv(variable, os.environ.get(variable, "") + "X")
    assert routes.path() != before


def test_other_threads_have_other_routes(timed: Callable[..., list[str]]) -> None:
    before = engine.get_num_threads()
    timed({"numpy": 1.0, "onednn": 2.0})
    backends.calibrate(["hardsigmoid"])
    try:
        engine.set_num_threads(before + 1)
        assert routes.chosen == {}
        engine.set_num_threads(before)
        assert set(routes.chosen) == {"hardsigmoid"}
    finally:
        engine.set_num_threads(before)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "of other content"])
def test_a_damaged_file(damage: str, timed: Callable[..., list[str]], served: list[str]) -> None:
    timed({"numpy": 1.0, "onednn": 2.0})
    backends.calibrate(["hardsigmoid"])
    file = routes.path()
    whole = file.read_bytes()
    if damage == "of other content":
        Cache(verdicts.folder()).put(tuple(routes.identity().values()), ".cpu.json", b'{"for": 3}')
    else:
        file.write_bytes({"cut": whole[:-9], "changed": whole.replace(b"numpy", b"onedn", 1), "empty": b""}[damage])
    routes.forget()
    routes.read()
    assert routes.chosen == {} and way(served, 100_000) == "onednn"
    backends.calibrate(["hardsigmoid"])
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written(
    timed: Callable[..., list[str]], served: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    timed({"numpy": 1.0, "onednn": 2.0})
    with pytest.warns(RuntimeWarning, match="hold in this process only: .*cannot be written"):
        backends.calibrate(["hardsigmoid"])
    assert way(served, 100_000) == "numpy"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backends.calibrate(["hardsigmoid"])  # said once


@pytest.mark.long
def test_two_processes_at_once(tmp_path: Path) -> None:
    """Each sees a whole file at any time, and both leave one."""
    code = """
import sys
from engine import backends
from engine.backends import routes
from engine.ops import calibration
calibration.ROUNDS = 1
for n in range(10):
    backends.calibrate(["hardsigmoid", "leaky_relu"][:1 + n % 2])
    assert "hardsigmoid" in routes.stored(), n
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=ROOT) for _ in range(2)]
    assert [one.wait(120) for one in both] == [0, 0]
    left = sorted((tmp_path / "engine" / "verdicts").iterdir())
    assert [f.suffix for f in left] == [".json"]  # nothing half-written
    document = json.loads(left[0].read_bytes()[32:])
    assert set(document["routes"]) == {"hardsigmoid", "leaky_relu"}
    assert document["library"] == onednn.describe().partition(",")[0]
