"""Transforms by scipy against numpy's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from engine.backends.cpu import transforms

CALLS = [
    ("rfftn", np.float32, {"axes": (1,), "norm": "backward"}),
    ("rfftn", np.float64, {"axes": (2, 1), "norm": "ortho"}),
    ("fftn", np.float32, {"axes": (0, 1), "norm": "forward"}),
    ("fftn", np.complex64, {"axes": (0, 2), "norm": "backward"}),
    ("ifftn", np.complex128, {"axes": (1,), "norm": "ortho"}),
    ("irfftn", np.complex64, {"axes": (0, 1), "s": (6, 16), "norm": "backward"}),
]


def values(dtype: type) -> np.ndarray:
    rng = np.random.default_rng(0)
    real = rng.standard_normal((6, 9, 16))
    return (real + 1j * rng.standard_normal(real.shape) if np.dtype(dtype).kind == "c" else real).astype(dtype)


@pytest.mark.parametrize("name,dtype,options", CALLS)
@pytest.mark.parametrize("shared", [1, 1 << 30])
def test_scipy_gives_what_numpy_gives(name, dtype, options, shared, monkeypatch) -> None:
    pytest.importorskip("scipy.fft")
    monkeypatch.setattr(transforms, "_left", [0])
    monkeypatch.setattr(transforms, "_SHARED", shared)
    input = values(dtype)
    before = input.copy()
    found, want = transforms.transform(np, name, input, **options), getattr(np.fft, name)(input, **options)
    assert found.dtype == want.dtype and found.shape == want.shape and found.flags.writeable
    near = 1e-12 if found.dtype in (np.float64, np.complex128) else 1e-5
    assert np.abs(found - want).max() <= near * np.abs(want).max()
    assert np.array_equal(input, before)


def test_numpy_serves_without_scipy(monkeypatch) -> None:
    monkeypatch.setattr(transforms, "_left", [0])
    monkeypatch.setattr(transforms, "_library", lambda: None)
    input = values(np.float32)
    assert np.array_equal(transforms.transform(np, "rfftn", input, axes=(2,)), np.fft.rfftn(input, axes=(2,)))


def test_scipy_is_loaded_once_there_is_work(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "scipy.fft", raising=False)
    monkeypatch.setattr(transforms, "_left", [1000])
    calls: list[int] = []
    monkeypatch.setattr(transforms, "_library", lambda: calls.append(1))  # None, as where it is not installed
    input = values(np.float32)  # of 864 elements
    for expected in (0, 0, 1):
        transforms.transform(np, "fftn", input, axes=(0,))
        assert len(calls) == expected
