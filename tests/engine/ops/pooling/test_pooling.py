"""Indices of maxima against a loop over windows: ties, nan, many taps; adaptive windows that divide and not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import engine
from engine.nn import functional as F


def _values(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)  # with many ties


def _firsts(x: np.ndarray, windows: list[list[list[int]]]) -> np.ndarray:
    """The flat index of the first maximum of each window, or of its last nan, as in PyTorch; windows: places along each
    dim, for each output along it.
    """
    size = x.shape[2:]
    rows = x.reshape(-1, int(np.prod(size)))
    found = []
    for places in itertools.product(*windows):
        flat = [int(np.ravel_multi_index(at, size)) for at in itertools.product(*places)]
        values = rows[:, flat]
        last = len(flat) - 1 - np.argmax(np.isnan(values)[:, ::-1], axis=1)
        found.append(np.array(flat)[np.where(np.isnan(values).any(axis=1), last, np.argmax(values, axis=1))])
    return np.stack(found, -1).reshape(*x.shape[:2], *(len(w) for w in windows))


def _same(x: np.ndarray, values: engine.Tensor, index: engine.Tensor, want: np.ndarray) -> None:
    assert np.array_equal(index.numpy(), want)
    flat = x.reshape(*x.shape[:2], -1)
    taken = np.take_along_axis(flat, want.reshape(*x.shape[:2], -1), 2).reshape(want.shape)
    assert np.array_equal(values.detach().numpy(), taken, equal_nan=True)


def _grad(x: engine.Tensor, values: engine.Tensor, want: np.ndarray) -> None:
    """Each output's gradient is where its maximum is."""
    (grad,) = engine.autograd.grad(values, x, engine.ones_like(values) * 2)
    sums = np.zeros((want.shape[0] * want.shape[1], x[0, 0].numel()), "float32")
    for row, places in zip(sums, want.reshape(len(sums), -1)):
        np.add.at(row, places, 2)
    assert np.array_equal(grad.numpy(), sums.reshape(x.shape))


GEOMETRIES = [
    ((9, 10), (2, 2), (2, 2), (0, 0)),
    ((9, 10), (3, 2), (2, 1), (1, 1)),
    ((40, 41), (17, 19), (5, 4), (8, 9)),  # more taps than a byte counts
]


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), GEOMETRIES)
def test_indices_are_of_first_maxima(size: tuple, kernel: tuple, stride: tuple, padding: tuple, nan: bool) -> None:
    x = _values((2, 3, *size), 1)
    if nan:
        x[0, 1, 3, 5] = x[0, 1, 4, 4] = x[0, 1, 8, 9] = np.nan
    windows = [
        [[p for p in range(o * s - q, o * s - q + k) if 0 <= p < n] for o in range((n + 2 * q - k) // s + 1)]
        for n, k, s, q in zip(size, kernel, stride, padding)
    ]
    t = engine.tensor(x, requires_grad=True)
    values, index = F.max_pool2d(t, kernel, stride, padding, return_indices=True)
    want = _firsts(x, windows)
    _same(x, values, index, want)
    _grad(t, values, want)


@pytest.mark.parametrize("size", [1, 2, 5, (4, 3), (8, 3), (1, 12), (8, 12), (3, None)])
def test_adaptive_maxima(size: int | tuple) -> None:
    x = _values((3, 4, 8, 12), 2)
    pair = size if isinstance(size, tuple) else (size, size)
    pair = tuple(n if s is None else s for s, n in zip(pair, (8, 12)))
    windows = [[list(range(i * n // m, -(-(i + 1) * n // m))) for i in range(m)] for n, m in zip((8, 12), pair)]
    want = _firsts(x, windows)
    t = engine.tensor(x, requires_grad=True)
    values, index = F.adaptive_max_pool2d(t, size, return_indices=True)
    _same(x, values, index, want)
    _grad(t, values, want)
    alone = F.adaptive_max_pool2d(t, size)
    assert np.array_equal(alone.detach().numpy(), values.detach().numpy())
    assert alone.grad_fn.name() == "AdaptiveMaxPool2DBackward0"
    _grad(t, alone, want)
    one = F.adaptive_max_pool2d(t[0], size)
    assert np.array_equal(one.detach().numpy(), values[0].detach().numpy())


@pytest.mark.parametrize("size", [1, 4, 5])
def test_adaptive_maxima_of_sequences(size: int) -> None:
    x = _values((2, 3, 12), 3)
    windows = [[list(range(i * 12 // size, -(-(i + 1) * 12 // size))) for i in range(size)]]
    t = engine.tensor(x, requires_grad=True)
    values, index = F.adaptive_max_pool1d(t, size, return_indices=True)
    want = _firsts(x, windows)
    _same(x, values, index, want)
    _grad(t, F.adaptive_max_pool1d(t, size), want)


def test_adaptive_maxima_of_nan() -> None:
    x = _values((1, 2, 6, 6), 4)
    x[0, 1, 4, 2] = x[0, 1, 3, 5] = x[0, 1, 0, 1] = np.nan
    for size in (1, 2, 3, 4):
        values, index = F.adaptive_max_pool2d(engine.tensor(x), size, return_indices=True)
        windows = [[list(range(o * 6 // size, -(-(o + 1) * 6 // size))) for o in range(size)]] * 2
        _same(x, values, index, _firsts(x, windows))


def test_adaptive_maxima_have_second_gradients() -> None:
    x = engine.randn(2, 2, 4, 6, dtype=engine.float64, requires_grad=True)
    for size in (1, 2, (4, 3), 3):
        assert engine.autograd.gradgradcheck(lambda t, size=size: F.adaptive_max_pool2d(t, size), x)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", ["max_pool", "adaptive_max_pool", "fractional_max_pool"])
def test_input_and_maxima_may_be_written_to_between_two_backward_passes(name, n):
    """Torch's second derivative reads the indices alone."""
    if (name, n) == ("fractional_max_pool", 1):
        pytest.skip("there is none")
    x = engine.arange(float(4**n)).reshape(1, 1, *[4] * n).requires_grad_()
    moved = x * 1
    if name == "fractional_max_pool":
        draws = engine.full((1, 1, n), 0.5)
        y = getattr(F, f"{name}{n}d")(moved, 2, output_size=2, _random_samples=draws)
    else:
        y = getattr(F, f"{name}{n}d")(moved, 2)
    weight = engine.ones(y.shape).requires_grad_()
    (first,) = engine.autograd.grad(y, x, weight, create_graph=True)
    places = first.detach().bool()
    with engine.no_grad():
        moved.zero_()
        y.zero_()
    (second,) = engine.autograd.grad(first.square().sum(), weight)
    assert engine.equal(second, 2 * engine.ones(y.shape)) and places.sum() == y.numel()
