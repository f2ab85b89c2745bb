"""Conversions between float32 and the 16-bit types, generated and not: every value, every half way, nan, inf."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.core import dtypes
from engine.dispatch import choosing
from engine.kernels import processor
from engine.ops import _half_conversion
from engine.ops.generated import launch

_BFLOAT16 = dtypes.to_numpy(dtypes.bfloat16)
WAYS = ["own", pytest.param("generated", marks=pytest.mark.skipif(not processor.available(), reason="no extra jit"))]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "generated":
        monkeypatch.setattr(launch, "PAYS", 1)
        monkeypatch.setattr(launch, "_entries", {})
        monkeypatch.setattr(launch.trials, "trusted", False)
        monkeypatch.setattr(choosing, "_left", [0])
        monkeypatch.setenv("ENGINE_ROUTES", "static")
    else:
        monkeypatch.setattr(_half_conversion, "_GENERATED", 1 << 62)
    return str(request.param)


def _same(found: engine.Tensor, want: np.ndarray) -> None:
    got = found.numpy()
    assert got.dtype == want.dtype
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(want))


def test_every_half_is_widened(way: str) -> None:
    halves = np.tile(np.arange(1 << 16, dtype=np.uint16).view("float16"), 3)
    for part in (halves, halves[:-1], halves[::-1], halves.reshape(3, -1).T, halves[:7]):
        for _ in range(2):
            _same(engine.tensor(part).float(), part.astype("float32"))
    finite = np.where(np.isfinite(halves), halves, 0)
    _same(engine.tensor(finite).float(), finite.astype("float32"))


def test_floats_are_rounded_to_even(way: str) -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view("float16").astype("float64")
    between = ((halves[:-1] + halves[1:]) / 2).astype("float32")
    far = np.array([65519.99, 65520, 1e30, np.inf, np.nan, 1e-8, 1e-40, 0], "float32")
    some = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16).astype("uint32").view("float32")
    parts = [between, np.nextafter(between, np.float32(1)), np.nextafter(between, np.float32(0)), far, some]
    x = np.concatenate([*parts, *[-p for p in parts]])
    with np.errstate(all="ignore"):
        for values in (x, x[np.isfinite(x) & (abs(x) < 65519)], x[::-1], x[:9]):
            for _ in range(2):
                _same(engine.tensor(values).half(), values.astype("float16"))


def test_every_bfloat16_is_widened(way: str) -> None:
    halves = np.tile(np.arange(1 << 16, dtype=np.uint16).view(_BFLOAT16), 3)
    for part in (halves, halves[:-1], halves[::-1], halves.reshape(3, -1).T, halves[: 1 << 13]):
        for _ in range(2):
            _same(engine.from_numpy(part.view("int16").copy()).view(engine.bfloat16).float(), part.astype("float32"))


def test_floats_are_rounded_to_even_bfloat16(way: str) -> None:
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    bits = np.concatenate([upper | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    x = bits.view("float32")
    for values in (x, x[np.isfinite(x)], x[::-1], x[: 1 << 13]):
        for _ in range(2):
            with np.errstate(all="ignore"):
                want = values.astype(_BFLOAT16).astype("float32")
            _same(engine.tensor(values).bfloat16().float(), want)


@pytest.mark.skipif(not processor.available(), reason="no extra jit")
def test_the_processor_converts(monkeypatch: pytest.MonkeyPatch) -> None:
    target = processor.target()
    if target is None or not target.halves:
        pytest.skip("this processor does not convert float16")
    monkeypatch.setattr(launch, "PAYS", 1)
    monkeypatch.setattr(launch, "_entries", {})
    monkeypatch.setattr(choosing, "_left", [0])
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    asked = []
    convert = _half_conversion._by_processor("half", lambda x: asked.append(x.size) or x.astype("float16"), "float16")
    x = np.ones(1 << 16, "float32")
    for _ in range(3):
        assert convert(x).sum(dtype="float64") == x.size
    assert len(asked) <= 2  # to prove the first result; not any more


def test_gradients_of_conversions(way: str) -> None:
    x = engine.ones(1 << 16, requires_grad=True)
    (x.half() * 3).float().sum().backward()
    assert x.grad.dtype is engine.float32 and (x.grad == 3).all()


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_become_integers_as_numpys(way: str, source: str) -> None:
    few = [0.0, -0.0, 1.5, -2.5, 3e9, -3e9, 1e18, 9e18, 1e30, -1e30, np.inf, -np.inf, np.nan]
    x = np.resize(np.array(few, source), 1 << 16)
    for values in (x, x[:-1], x[::-1], x.reshape(2, -1).T, x[: 1 << 13]):
        for _ in range(2):
            with np.errstate(all="ignore"):
                want = values.astype("int64")
            _same(engine.tensor(values).long(), want)


@pytest.mark.parametrize("source", ["int64", "uint8", "bool"])
@pytest.mark.parametrize("target", ["float32", "float64"])
def test_integers_become_floats_as_numpys(way: str, source: str, target: str) -> None:
    few = np.array([0, 1, -1, 255, (1 << 24) + 1, (1 << 53) + 1, -(1 << 63), (1 << 63) - 1], "int64")
    x = np.resize(few.astype(source), 1 << 16)
    for values in (x, x[:-1], x[::-1], x.reshape(2, -1).T, x[: 1 << 13]):
        for _ in range(2):
            _same(engine.tensor(values).to(getattr(engine, target)), values.astype(target))
