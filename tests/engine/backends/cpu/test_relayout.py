"""Copies of arrays in another order are bit by bit what numpy copies, whichever way they take."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.backends.cpu import relayout
from engine.core.lru import LRU

BASES = {
    "matrix": ((96, 64), (1, 0)),
    "wide rows": ((40, 512), (1, 0)),
    "heads": ((2, 16, 3, 8), (0, 2, 1, 3)),
    "image": ((2, 5, 6, 7), (0, 3, 1, 2)),
    "back": ((2, 3, 8, 9), (0, 2, 3, 1)),
    "windows": ((2, 4, 3, 4, 3, 5), (0, 1, 3, 2, 4, 5)),
    "all the other way round": ((3, 4, 5, 2, 3), (4, 3, 2, 1, 0)),
    "in order": ((30, 40), (0, 1)),
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large."""
    monkeypatch.setattr(relayout, "FEW", 1)
    monkeypatch.setattr(relayout, "_CUT", 4)
    monkeypatch.setattr(relayout, "_ALIKE", 8)
    monkeypatch.setattr(relayout, "_SHARE", 64)
    monkeypatch.setattr(relayout, "_seen", {})


def bits(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Every pattern of bits: numbers, infinities, quiet and signalling nans, denormal ones."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(5).integers(0, 256, count, np.uint8).view(dtype).reshape(shape)


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    assert np.array_equal(found.view(np.uint8), wanted.copy("C").view(np.uint8))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "i8", "i1", "c8", "c16"])
@pytest.mark.parametrize("name", BASES)
def test_contiguous(name: str, dtype: str, tiny: None) -> None:
    shape, order = BASES[name]
    source = bits(shape, dtype).transpose(order)
    for _ in range(3):  # the second time by a program, where there is one
        found = relayout.contiguous(source)
        assert found.flags.c_contiguous
        assert not np.shares_memory(found, source)
        same(found, source)


@pytest.mark.parametrize(
    "cut", [np.s_[::2, 1:], np.s_[::-1], np.s_[:, ::-2], np.s_[3:4], np.s_[:, :1], np.s_[:0]], ids=str
)
def test_parts_of_a_matrix(cut: object, tiny: None) -> None:
    for source in (bits((48, 64), "f4")[cut], bits((48, 64), "f4").T[cut], bits((48, 64), "i8").T[cut]):
        same(relayout.contiguous(source), source)
        same(relayout.contiguous(source), source)


def test_what_is_expanded(tiny: None) -> None:
    source = np.broadcast_to(bits((1, 32), "f4"), (16, 32))
    same(relayout.contiguous(source), source)
    same(relayout.contiguous(source.T), source.T)


def test_a_target_of_another_order(tiny: None) -> None:
    source = bits((2, 5, 6, 7), "f4")
    target = np.empty((2, 6, 7, 5), np.float32).transpose(0, 3, 1, 2)
    relayout.copy(target, source)
    same(np.ascontiguousarray(target), source)
    part = np.zeros((2, 5, 6, 9), np.float32)[..., 1:8]
    relayout.copy(part, source.view(np.float32))
    same(np.ascontiguousarray(part), source)
    relayout.copy(part, np.ones((2, 5, 6, 7)))  # of another dtype
    assert (part == 1).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "c16"])
@pytest.mark.parametrize("run", [1, 2, 3, 8, 33, 700])
def test_runs_of_neighbours(run: int, dtype: str, tiny: None) -> None:
    heads = bits((3, 9, 4, run), dtype)
    windows = np.lib.stride_tricks.sliding_window_view(bits((4, 3 * run + 50), dtype), run, -1)[:, ::2]
    for source in (heads.transpose(2, 0, 1, 3), heads[:, ::-2], heads[1:, :, 1:3], windows, windows[::-1, 3:]):
        same(relayout.contiguous(source), source)
    target = np.zeros((9, 3, 4, run + 1), dtype)[..., :run]
    relayout.copy(target, heads.transpose(1, 0, 2, 3))
    same(np.ascontiguousarray(target), heads.transpose(1, 0, 2, 3))


@pytest.mark.parametrize("size", [(300, 200), (700, 512), (16, 130, 8, 64)], ids=str)
def test_as_users_copy(size: tuple[int, ...]) -> None:
    """As large as it is done that way: the same values as numpy's, and gradients that lie as they should."""
    x = engine.from_numpy(np.random.default_rng(1).standard_normal(size, np.float32)).requires_grad_()
    for _ in range(2):
        y = x.transpose(-1, -2)
        for found in (y.contiguous(), y.clone(memory_format=engine.contiguous_format), y.reshape(-1)):
            same(found.detach().numpy().reshape(y.shape), y.detach().numpy())
    (x.transpose(0, 1).contiguous() * 2).sum().backward()
    assert engine.equal(x.grad, engine.full_like(x, 2))


def test_what_is_remembered_has_an_end(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayout, "_seen", LRU(3))
    for n in range(2, 12):
        source = bits((n, 5), "f4").T
        same(relayout.contiguous(source), source)
        assert len(relayout._seen) <= 6
