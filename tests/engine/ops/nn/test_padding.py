"""Padding against indices of numpy's `pad`, in every mode, layout and dim; the gradient is the transpose."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import engine
from engine.nn import functional as F

MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "constant": "constant"}
CASES = [
    ((2, 3, 9), (1, 2)),
    ((2, 3, 9), (8, 8)),
    ((2, 3, 9), (0, 3)),
    ((2, 3, 9), (0, 0)),
    ((1, 2, 5, 7), (1, 2, 3, 4)),
    ((1, 2, 5, 7), (6, 0, 0, 4)),
    ((1, 1, 3, 4, 5), (4, 1, 0, 3, 2, 2)),
    ((3, 5), (4, 4)),
    ((2, 3, 70, 65), (3, 5, 7, 1)),
]


def _pairs(shape: tuple, pad: tuple) -> list:
    pairs = list(zip(pad[::2], pad[1::2]))[::-1]
    return [(0, 0)] * (len(shape) - len(pairs)) + pairs


@pytest.mark.parametrize("layout", ["contiguous", "turned", "channels last", "reversed"])
@pytest.mark.parametrize(("shape", "pad"), CASES)
@pytest.mark.parametrize("mode", MODES)
def test_values_and_gradients(mode: str, shape: tuple, pad: tuple, layout: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    t = engine.tensor(x)
    if layout == "turned":
        t = t.transpose(0, -1).contiguous().transpose(0, -1)
    elif layout == "channels last" and t.dim() == 4:
        t = t.contiguous(memory_format=engine.channels_last)
    elif layout == "reversed":
        t = t.flip(-1).flip(-1)
    t.requires_grad_()
    found = F.pad(t, pad, mode=mode)
    want = np.pad(x, _pairs(shape, pad), mode=MODES[mode])
    assert np.array_equal(found.detach().numpy(), want)
    w = np.random.default_rng(1).integers(-9, 9, found.shape).astype("float32")
    (grad,) = engine.autograd.grad(found, t, engine.tensor(w))
    places = np.pad(np.arange(1, x.size + 1).reshape(shape), _pairs(shape, pad), mode=MODES[mode])
    sums = np.zeros(x.size + 1)
    np.add.at(sums, places.reshape(-1), w.reshape(-1))
    assert np.array_equal(grad.numpy(), sums[1:].reshape(shape))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
def test_negative_pads_cut(mode: str) -> None:
    for before, after in itertools.product((-2, 0, 3), (-1, 2)):
        x = engine.arange(8.0).reshape(1, 1, 8).requires_grad_()
        found = F.pad(x, (before, after), mode=mode)
        cut = np.arange(8.0)[max(-before, 0) : 8 + min(after, 0)]
        pads = (max(before, 0), max(after, 0))
        if mode == "reflect":  # mirrored first, then cut
            whole = np.pad(np.arange(8.0), pads, mode="reflect")
            want = whole[max(-before, 0) : len(whole) + min(after, 0)]
        else:
            want = np.pad(cut, pads, mode=MODES[mode])
        assert found[0, 0].tolist() == want.tolist()
        (grad,) = engine.autograd.grad(found.sum(), x)
        counts = np.bincount(want.astype(int), minlength=8)
        if mode == "constant":
            counts[0] -= sum(pads)
        assert grad[0, 0].tolist() == counts.tolist()


def test_constants_with_cuts_are_new_tensors() -> None:
    x = engine.arange(6.0).reshape(2, 3)
    for pad in ((0, 0), (-1, 0), ()):
        found = F.pad(x, pad)
        found += 1
        assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
