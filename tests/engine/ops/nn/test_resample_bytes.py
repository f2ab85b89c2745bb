"""8-bit images resampled in whole numbers: the bytes are those of torch 2.13."""

from __future__ import annotations

import pytest

import engine

CASES = [
    ("bilinear", True, (3, 4), [[69, 54, 107, 159], [186, 104, 67, 113], [161, 201, 123, 67]]),
    ("bilinear", False, (4, 3), [[31, 89, 163], [151, 53, 127], [194, 95, 91], [158, 216, 55]]),
    ("bicubic", True, (2, 4), [[117, 53, 90, 149], [180, 182, 91, 78]]),
    (
        "bicubic",
        False,
        (3, 8),
        [
            [77, 30, 27, 73, 98, 125, 157, 180],
            [190, 240, 155, 4, 44, 75, 107, 130],
            [140, 161, 206, 230, 189, 80, 38, 80],
        ],
    ),
]


@pytest.mark.parametrize(("mode", "antialias", "size", "wanted"), CASES)
def test_bytes_are_torchs(mode: str, antialias: bool, size: tuple[int, int], wanted: list[list[int]]) -> None:
    x = (engine.arange(30) * 37 % 251).to(engine.uint8).reshape(1, 1, 5, 6)
    found = engine.nn.functional.interpolate(x, size, mode=mode, antialias=antialias)
    assert found.dtype is engine.uint8 and found[0, 0].tolist() == wanted


def test_the_size_it_has_gives_a_copy() -> None:
    x = engine.arange(24, dtype=engine.uint8).reshape(1, 2, 3, 4)
    found = engine.nn.functional.interpolate(x, (3, 4), mode="bilinear")
    assert engine.equal(found, x) and found.data_ptr() != x.data_ptr()
