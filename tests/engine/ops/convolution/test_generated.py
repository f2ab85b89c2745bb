"""Convolutions by generated products of tiles, against the plain route."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu import threads
from engine.backends.cpu.fast import fast
from engine.core.geometry import ConvGeometry
from engine.core.layouts import ChannelsLast
from engine.core.lru import LRU
from engine.dispatch import choosing
from engine.kernels import cpu, processor, tiles
from engine.ops.convolution import generated as convolution
from engine.ops.convolution import numpy as by_numpy
from engine.ops.generated import launch

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

GEOMETRIES = [  # N, C, O, groups, size, kernel, stride, padding, dilation
    (2, 3, 8, 1, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    (5, 3, 7, 1, (19, 17), (7, 7), (2, 2), (3, 3), (1, 1)),
    (1, 3, 16, 1, (64, 64), (7, 7), (2, 2), (3, 3), (1, 1)),
    (1, 40, 20, 1, (9, 11), (3, 3), (2, 2), (1, 1), (1, 1)),  # K in two blocks
    (1, 64, 64, 1, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    (3, 16, 8, 1, (8, 8), (1, 1), (2, 2), (0, 0), (1, 1)),
    (2, 6, 12, 3, (9, 11), (3, 2), (1, 2), (1, 0), (2, 1)),
    (2, 8, 8, 8, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1)),
    (9, 8, 24, 8, (14, 14), (5, 3), (2, 1), (4, 2), (1, 2)),
    (1, 70, 140, 70, (30, 31), (3, 3), (2, 2), (1, 1), (1, 1)),
    (2, 4, 5, 1, (20,), (5,), (3,), (2,), (1,)),
    (2, 4, 36, 2, (7, 6, 8), (3, 1, 2), (1, 2, 2), (1, 0, 1), (1, 1, 2)),
    (2, 5, 9, 1, (3, 3), (3, 3), (1, 1), (0, 0), (1, 1)),  # one result
    (2, 5, 9, 1, (3, 3), (2, 2), (3, 3), (5, 4), (1, 1)),  # windows that are padding alone
    (2, 5, 9, 1, (4, 4), (2, 2), (4, 5), (0, 3), (3, 3)),  # steps wider than the kernel
    (1, 2, 3, 1, (600, 40), (3, 3), (1, 1), (1, 1), (1, 1)),
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No kernel of another test, nothing switched off."""
    monkeypatch.setattr(convolution, "_known", LRU(1024))
    monkeypatch.setattr(convolution, "_entries", {})
    monkeypatch.setattr(choosing, "_left", [0])  # it is worth loading
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setattr(processor, "always", lambda: False)  # nor is anything taken without a proof
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    yield


def given(geometry: Any, dtype: str) -> tuple[Any, ...]:
    count, channels, outputs, groups, size, kernel, *windows = geometry
    rng = np.random.default_rng(3)
    x = rng.standard_normal((count, channels, *size)).astype(dtype)
    w = rng.standard_normal((outputs, channels // groups, *kernel)).astype(dtype)
    return x, w, rng.standard_normal(outputs).astype(dtype), ConvGeometry(*windows, groups)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_it_agrees_with_the_plain_route(geometry: Any, dtype: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_count", count)
    x, w, bias, windows = given(geometry, dtype)
    x = x.transpose(*range(x.ndim)[::-1]).copy().transpose(*range(x.ndim)[::-1])  # in any order
    for weight in (w, w.view(ChannelsLast)):
        for added in (None, bias):
            want = by_numpy.plain(np, x, w, added, windows)
            made = convolution._Convolution(x, weight, want.shape[2:], windows)
            for _ in range(2):  # the second time with what was kept
                got = made(x, weight, added)
                assert got.dtype == want.dtype and got.shape == want.shape
                near = 2e-6 if dtype == "float32" else 1e-14
                np.testing.assert_allclose(got, want, atol=near * float(abs(want).max()), rtol=0)


def large() -> tuple[Any, ...]:
    return given((4, 32, 48, 1, (40, 40), (3, 3), (1, 1), (1, 1), (1, 1)), "float32")


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which routes a call takes."""
    seen: list[str] = []
    plain, tiles = by_numpy.plain, convolution._Convolution.__call__
    monkeypatch.setattr(by_numpy, "plain", lambda *a, **k: seen.append("plain") or plain(*a, **k))
    monkeypatch.setattr(convolution._Convolution, "__call__", lambda *a, **k: seen.append("tiles") or tiles(*a, **k))
    return seen


def test_the_first_call_proves_it_and_later_ones_only_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    args, seen = large(), calls_of(monkeypatch)
    first = by_numpy.forward(fast, *args)
    assert sorted(seen) == ["plain", "tiles"]
    seen.clear()
    np.testing.assert_array_equal(by_numpy.forward(fast, *args), first)
    assert seen == ["tiles"]


def test_one_that_is_wrong_is_switched_off_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    args, seen = large(), calls_of(monkeypatch)
    tiles = cpu.tiles

    def wrong(*kind: Any) -> Any:
        right = tiles(*kind)
        return lambda a, b, offset, *rest: right(a, b + 4, offset, *rest)  # an element too far

    monkeypatch.setattr(cpu, "tiles", wrong)
    want = by_numpy.plain(np, *args)
    with pytest.warns(RuntimeWarning, match="generated kernel of convolution is switched off"):
        np.testing.assert_allclose(by_numpy.forward(fast, *args), want, rtol=1e-4, atol=1e-4)
    seen.clear()
    np.testing.assert_allclose(by_numpy.forward(fast, *args), want, rtol=1e-4, atol=1e-4)
    assert seen == ["plain"]


def test_one_that_is_slower_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    args, seen = large(), calls_of(monkeypatch)
    monkeypatch.setattr(launch, "slower", lambda mine, there, margin=1.0, of=(): True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_numpy.forward(fast, *args)
        seen.clear()
        by_numpy.forward(fast, *args)
    assert seen == ["plain"]


def test_little_work_is_not_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch)
    x, w, bias, windows = given(GEOMETRIES[0], "float32")
    for _ in range(40):
        by_numpy.forward(fast, x, w, bias, windows)
    assert set(seen) == {"plain"}


def test_without_an_input_what_lies_beyond_does_not_matter() -> None:
    """Places that nobody reads may hold anything: an infinity stays where its windows are."""
    x, w, _, windows = given((1, 3, 8, 1, (12, 13), (3, 3), (1, 1), (1, 1), (1, 1)), "float32")
    x[0, 1, 0, 0] = np.inf
    made = convolution._Convolution(x, w, (12, 13), windows)
    got = made(x, w, None)
    assert not np.isfinite(got[0, :, :2, :2]).any()
    assert np.isfinite(got[0, :, 2:]).all() and np.isfinite(got[0, :, :, 2:]).all()


@pytest.mark.parametrize("places", range(1, 13))
@pytest.mark.parametrize("vectors", [2, 3, 4, 8])
def test_every_number_of_vectors(places: int, vectors: int) -> None:
    """The tile kernel itself, one group, K longer than two blocks."""
    rng = np.random.default_rng(places)
    found = processor.target()
    assert found is not None
    lanes, rows, depth = {"AVX-512": 8, "AVX2": 4}.get(found.level, 2), 2, 2 * tiles.BLOCK + 5
    a, b = rng.standard_normal((3, depth, rows)), rng.standard_normal(depth + places * lanes)
    offsets = rng.permutation(depth).astype(np.int64)
    out = np.full((3 * rows, places * lanes), np.nan)
    cpu.tiles("float64", lanes, rows, vectors)(
        a.ctypes.data, b.ctypes.data, offsets.ctypes.data, out.ctypes.data, depth, places, 3, 0, 3
    )
    windows = np.stack([b[o : o + places * lanes] for o in offsets])
    np.testing.assert_allclose(out, a.swapaxes(1, 2).reshape(-1, depth) @ windows, rtol=1e-11, atol=1e-11)


CHILD = """
import os, sys
import numpy as np
import engine
from engine.dispatch import choosing
from engine.ops.convolution import generated as convolution
choosing._left[0] = 0  # worth loading
engine.manual_seed(0)
m = engine.nn.Conv1d(32, 32, 3, padding=1)  # pictures have code of their own
x = engine.randn(4, 32, 4000)
with engine.no_grad():
    before = [m(x) for _ in range(20)][-1].numpy().copy()
    assert any(c.proven for c in convolution._known.values()), convolution._known
    m.weight.mul_(2.0)  # what was packed of it is stale
    m.bias.mul_(2.0)
    np.testing.assert_allclose(m(x).numpy(), 2 * before, rtol=1e-5, atol=1e-5)
child = os.fork()
with engine.no_grad():
    same = np.allclose(m(x).numpy(), 2 * before, rtol=1e-5, atol=1e-5)
if not child:
    os._exit(0 if same else 1)
assert same and os.waitpid(child, 0)[1] == 0
x.requires_grad_()
m(x).square().sum().backward()
np.save(sys.argv[1], np.concatenate([a.numpy().ravel() for a in (m(x).detach(), x.grad, m.weight.grad)]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_layers_without_onednn_in_processes_at_once_and_after_a_fork(tmp_path: Path) -> None:
    """Three processes share an empty cache; a fourth has no generated code: the same results and gradients."""
    environment = {**os.environ, "ENGINE_ONEDNN": "0", "ENGINE_ROUTES": "static", "ENGINE_KERNEL_CACHE": str(tmp_path)}
    environment.pop("ENGINE_JIT", None)
    running = []
    for n in range(3):
        command = [sys.executable, "-c", CHILD, str(tmp_path / f"{n}.npy")]
        running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for process in running:
        said = process.communicate(timeout=120)[1]
        assert process.returncode == 0, said
    plain = CHILD.replace("assert any", "assert not any")
    command = [sys.executable, "-c", plain, str(tmp_path / "plain.npy")]
    subprocess.run(command, env={**environment, "ENGINE_JIT": "0"}, check=True, timeout=120)
    want = np.load(tmp_path / "plain.npy")
    for n in range(3):
        got = np.load(tmp_path / f"{n}.npy")
        np.testing.assert_allclose(got, want, atol=2e-5 * float(abs(want).max()), rtol=0)
