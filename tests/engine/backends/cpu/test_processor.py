"""The processor's newest instructions, named from numpy's features."""

from __future__ import annotations

import platform

import pytest

from engine.backends.cpu import processor


@pytest.mark.parametrize(
    "features, name",
    [
        ({"AVX2": True, "AVX": True}, "AVX2"),
        ({"AVX2": False, "AVX": True}, "AVX"),
        ({"ASIMD": True}, "NEON"),
        ({}, None),
    ],
)
def test_the_newest_is_named(features: dict, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numpy._core._multiarray_umath.__cpu_features__", features)
    assert processor.instructions() == name
    machine = platform.machine() or "unknown"
    assert processor.describe() == (f"{machine}, {name}" if name else machine)
