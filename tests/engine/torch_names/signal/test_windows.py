"""torch.signal.windows: torch 2.13's numbers (windows.json: "name M sym" -> values), dtypes and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import engine
from engine.torch_names.signal import windows

WANTED = json.loads((Path(__file__).parent / "windows.json").read_text())
MORE = {
    "exponential": {"tau": 1.7},
    "gaussian": {"std": 1.3},
    "general_cosine": {"a": [0.4, 0.3, 0.2]},
    "general_hamming": {"alpha": 0.6},
    "kaiser": {"beta": 5.0},
}


@pytest.mark.parametrize("name", windows.__all__)
def test_values(name):
    cases = [case for case in WANTED if case.split()[0] == name]
    assert len(cases) == 8
    for case in cases:
        _, size, sym = case.split()
        made = getattr(windows, name)(int(size), sym=sym == "True", dtype=engine.float64, **MORE.get(name, {}))
        assert made.tolist() == pytest.approx(WANTED[case], abs=1e-13), case


def test_dtypes_and_gradients():
    assert windows.hann(4).dtype is engine.float32
    assert windows.hann(4, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match=r"expects float32 or float64 dtypes, got: torch\.int64"):
        windows.hann(4, dtype=engine.int64)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: windows.bartlett(-1), "requires non-negative window length, got M=-1"),
        (lambda: windows.exponential(3, tau=0), "Tau must be positive, got: 0 instead."),
        (lambda: windows.exponential(3, center=1.0), "Center must be None for symmetric windows"),
        (lambda: windows.gaussian(3, std=-1.0), "Standard deviation must be positive, got: -1.0 instead."),
        (lambda: windows.kaiser(3, beta=-1.0), "beta must be non-negative, got: -1.0 instead."),
        (lambda: windows.general_cosine(3, a=[]), "Coefficients cannot be empty"),
    ],
)
def test_refusals(call, said):
    with pytest.raises(ValueError, match=said):
        call()
