"""Convolutions that the registry's samples do not reach: by definition, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine

F = engine.nn.functional


def transposed(x: np.ndarray, w: np.ndarray, stride: int, padding: int, dilation: int) -> np.ndarray:
    """The transposed convolution of x (N, C, L) with w (C, O, K) in float64."""
    length, reach = x.shape[2], (x.shape[2] - 1) * stride + dilation * (w.shape[2] - 1) + 1
    made = np.zeros((x.shape[0], w.shape[1], reach))
    for i in range(length):
        for k in range(w.shape[2]):
            made[:, :, i * stride + k * dilation] += x[:, :, i].astype(np.float64) @ w[:, :, k]
    return made[:, :, padding : reach - padding]


@pytest.mark.parametrize("kernel", [8, 16, 24, 40, 64])
@pytest.mark.parametrize("geometry", [(16, 0, 1), (16, 5, 1), (20, 3, 1), (16, 0, 2), (3, 2, 1)], ids=str)
def test_steps_as_long_as_frames(kernel: int, geometry: Any) -> None:
    """Transposed convolutions with long steps add what lies in a step at once: inverse spectrograms, decoders."""
    stride, padding, dilation = geometry
    draw = np.random.default_rng(kernel)
    x, w = draw.standard_normal((2, 6, 9), np.float32), draw.standard_normal((6, 3, kernel), np.float32)
    wanted = transposed(x, w, stride, padding, dilation)
    window = {"stride": stride, "padding": padding, "dilation": dilation}
    made = engine.conv_transpose1d(engine.tensor(x), engine.tensor(w), **window)
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-4, atol=1e-4)
    tall = engine.conv_transpose2d(
        engine.tensor(x[:, :, None]), engine.tensor(w[:, :, None]), None, (1, stride), (0, padding), 0, 1, (1, dilation)
    )
    np.testing.assert_allclose(tall.numpy()[:, :, 0], wanted, rtol=1e-4, atol=1e-4)


POINTWISE = [
    ((2, 6, 1, 1), (5, 6, 1, 1), 1, 1),
    ((1, 300, 1, 1), (40, 300, 1, 1), 1, 1),
    ((3, 8, 1), (4, 8, 1), 3, 1),
    ((1, 4, 1, 1, 1), (600, 4, 1, 1, 1), 2, 1),
    ((1, 16, 9, 8), (40, 16, 1, 1), 2, 1),
    ((2, 16, 20, 20), (4, 16, 1, 1), (3, 1), 1),
    ((2, 8, 12, 12), (12, 4, 1, 1), 2, 2),
    ((1, 8, 12, 12), (40, 8, 1, 1), 1, 1),
    ((1, 40, 12, 12), (8, 40, 1, 1), 1, 1),
]


@pytest.mark.parametrize("layout", ["torch", "user", "engine"])
@pytest.mark.parametrize("shape,weight,stride,groups", POINTWISE)
def test_single_elements_in_steps_and_of_one_place(
    shape: tuple[int, ...], weight: tuple[int, ...], stride: int | tuple[int, ...], groups: int, layout: str
) -> None:
    """Whichever route serves them: the values and the memory formats of a convolution in float64."""
    engine.manual_seed(0)
    n = len(shape) - 2
    function = getattr(F, f"conv{n}d")
    values = [engine.randn(s) for s in (shape, weight, weight[:1])]
    if layout == "user" and n == 2:
        values[0] = values[0].to(memory_format=engine.channels_last)
    found = []
    for dtype in (engine.float32, engine.float64):
        x, w, b = (v.to(dtype).requires_grad_() for v in values)
        given = x
        if layout == "engine":  # of a convolution, which may convert
            eye = engine.eye(shape[1], dtype=dtype).reshape(shape[1], shape[1], *(1,) * n)
            given = function(x, eye)
        y = function(given, w, b, stride, 0, 1, groups)
        first = engine.autograd.grad(y, (x, w, b), engine.linspace(-1, 1, y.numel(), dtype=dtype).reshape(y.shape))
        with engine.no_grad():
            again = function(x.detach(), w.detach(), b.detach(), stride, 0, 1, groups)
        found.append([y, *first, again])
    for got, want in zip(*found):
        assert got.shape == want.shape and engine.allclose(got.double(), want, rtol=1e-4, atol=1e-4)
    if layout == "user" and n == 2:
        assert all(y[0].is_contiguous(memory_format=engine.channels_last) for y in found)


def test_transposed_single_elements_in_steps_with_places_beyond() -> None:
    """The gradients of a convolution whose input is longer than what its steps read, by `output_padding`."""
    engine.manual_seed(0)
    values = [engine.randn(s) for s in ((2, 6, 4, 5), (6, 3, 1, 1))]
    found = []
    for dtype in (engine.float32, engine.float64):
        x, w = (v.to(dtype).requires_grad_() for v in values)
        y = F.conv_transpose2d(x, w, None, 2, 0, (2, 1), 1, (3, 3))
        slope = engine.linspace(-1, 1, y.numel(), dtype=dtype).reshape(y.shape)
        found.append([y, *engine.autograd.grad(y, (x, w), slope)])
    for got, want in zip(*found):
        assert got.shape == want.shape and engine.allclose(got.double(), want, rtol=1e-4, atol=1e-4)


def test_refusals_of_one_place() -> None:
    x = engine.ones(1, 4, 1, 1)
    for args, text in (
        ((engine.ones(3, 5, 1, 1),), "to have 5 channels, but got 4"),
        ((engine.ones(3, 4, 1, 1), engine.ones(2)), "expected bias to be 1-dimensional with 3 elements"),
        ((engine.ones(3, 4, 1, 1), None, 0), "non-positive stride is not supported"),
        ((engine.ones(3, 4, 1, 1), None, 1, -1), "negative padding is not supported"),
        ((engine.ones(3, 4, 1, 1), None, 1, 0, 0), "dilation should be greater than zero"),
        ((engine.ones(3, 4, 1, 1).double(),), "expected scalar type Float but found Double"),
    ):
        with pytest.raises(RuntimeError, match=text):
            F.conv2d(x, *args)
    assert F.conv2d(engine.ones(0, 4, 1, 1), engine.ones(3, 4, 1, 1)).shape == (0, 3, 1, 1)


def test_sizes_may_be_lists() -> None:
    engine.manual_seed(0)
    x, w = engine.randn(1, 3, 8, 8, requires_grad=True), engine.randn(4, 3, 3, 3, requires_grad=True)
    grads = []
    for sizes in (tuple, list):
        two = lambda n, sizes=sizes: sizes((n, n))
        out = engine.convolution(x, w, None, two(1), two(1), two(1), False, two(0), 1)
        grads.append(engine.autograd.grad(out, (x, w), engine.ones_like(out)))
    for one, other in zip(*grads):
        assert engine.equal(one, other)
