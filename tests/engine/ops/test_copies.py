"""Copies of views, pieces that may be written to, segments, and other names of functional graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.autograd.gradcheck import gradcheck

INF = float("inf")


def test_a_copy_shares_nothing_and_is_contiguous() -> None:
    x = engine.arange(6.0).reshape(2, 3)
    turned = engine.t_copy(x)
    turned.zero_()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert engine.t_copy(x).is_contiguous() and engine.expand_copy(x[0], (4, 3)).is_contiguous()
    out = engine.empty(0)
    assert engine.permute_copy(x, (1, 0), out=out) is out and out.shape == (3, 2)


def test_unsafe_pieces_may_be_written_to() -> None:
    x = engine.arange(5.0, requires_grad=True)
    pieces = engine.unsafe_chunk(x * 2, 2)
    pieces[0].mul_(3)
    assert [len(p) for p in pieces] == [3, 2]
    (pieces[0].sum() + pieces[1].sum()).backward()
    assert x.grad.tolist() == [6, 6, 6, 2, 2]
    assert [len(p) for p in engine.unsafe_split(x, [1, 4])] == [1, 4]
    assert [len(p) for p in x.unsafe_split(2)] == [2, 2, 1]
    with pytest.raises(RuntimeError, match="Output 0 of Split is a view and is being modified inplace"):
        (x * 2).chunk(2)[0].mul_(3)


@pytest.mark.parametrize(
    ("size", "options", "expected"),
    [
        (3, {}, [[0, 1], [1, 0], [-1, -1]]),
        (1, {}, [[0, 1]]),
        (4, {"fill_value": 7}, [[0, 1], [1, 0], [7, 7], [7, 7]]),
        (0, {}, []),
    ],
)
def test_nonzero_static(size: int, options: dict, expected: list) -> None:
    x = engine.tensor([[0, 2], [3, 0]])
    assert engine.nonzero_static(x, size=size, **options).tolist() == expected
    assert x.nonzero_static(size=size, **options).dtype is engine.int64


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8", "complex64", "float16"])
@pytest.mark.parametrize("shape", [(7,), (4, 5), (2, 1, 6, 3), (3, 0, 2)])
def test_nonzero(shape: tuple[int, ...], dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 3, shape).astype(dtype)
    for array in (values, values.swapaxes(0, -1), values[::2]):
        x = engine.from_numpy(array)
        wanted = np.argwhere(array)
        found = x.nonzero()
        assert found.dtype is engine.int64 and found.shape == wanted.shape
        assert np.array_equal(found.numpy(), wanted)
        parts = x.nonzero(as_tuple=True)
        assert len(parts) == len(shape)
        assert all(np.array_equal(p.numpy(), w) for p, w in zip(parts, wanted.T))


def test_nonzero_of_nan_and_of_signed_zeros() -> None:
    x = engine.tensor([[0.0, -0.0, float("nan")], [float("inf"), 0.0, -1.0]])
    assert x.nonzero().tolist() == [[0, 2], [1, 0], [1, 2]]


def test_nonzero_static_refuses_a_negative_size() -> None:
    with pytest.raises(RuntimeError, match="'size' must be an non-negative integer"):
        engine.nonzero_static(engine.ones(2), size=-1)


def test_as_strided_scatter_writes_to_memory_as_it_lies() -> None:
    x = engine.arange(9.0).reshape(3, 3)
    zeros = engine.zeros(2, 2)
    found = engine.as_strided_scatter(x, zeros, (2, 2), (1, 2))
    assert found.tolist() == [[0, 0, 0], [0, 4, 5], [6, 7, 8]]
    assert engine.as_strided_scatter(x.t(), zeros, (2, 2), (1, 2)).tolist() == found.t().tolist()
    assert engine.as_strided_copy(x, (2, 2), (1, 2)).tolist() == [[0, 2], [1, 3]]
    x, src = x.double().requires_grad_(), engine.ones(2, dtype=engine.float64, requires_grad=True)
    assert gradcheck(lambda x, s: engine.as_strided_scatter(x, s, (2,), (3,), 1), (x, src))
    assert gradcheck(lambda x: engine.as_strided_copy(x, (2, 2), (1, 1)), (x,))


def test_as_strided_scatter_refuses_another_size() -> None:
    with pytest.raises(RuntimeError, match=r"src size = \[3\], slice size = \[2, 2\]"):
        engine.as_strided_scatter(engine.ones(3, 3), engine.ones(3), (2, 2), (1, 2))


@pytest.mark.parametrize(
    ("reduce", "expected", "gradient"),
    [
        ("sum", [1, 0, 9, 5], [1, 1, 1, 1, 1, 1]),
        ("mean", [0.5, None, 3, 5], [0.5, 0.5, 1 / 3, 1 / 3, 1 / 3, 1]),
        ("max", [1, -INF, 4, 5], [0, 1, 0, 0, 1, 1]),
        ("min", [0, INF, 2, 5], [1, 0, 1, 0, 0, 1]),
        ("prod", [0, 1, 24, 5], [1, 0, 12, 8, 6, 1]),
    ],
)
def test_segment_reduce(reduce: str, expected: list, gradient: list) -> None:
    """Numbers of PyTorch; an empty segment has the neutral element, or nan."""
    x = engine.arange(6.0, requires_grad=True)
    y = engine.segment_reduce(x, reduce, lengths=engine.tensor([2, 0, 3, 1]))
    assert [None if v != v else v for v in y.tolist()] == expected
    y[[0, 2, 3]].sum().backward()
    assert x.grad.tolist() == pytest.approx(gradient)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "Either lengths or offsets must be defined"),
        ({"lengths": [2, 2]}, "Expected all rows of lengths along axis to sum"),
        ({"lengths": [-1, 7]}, "lengths contains negative value!"),
    ],
)
def test_segments_that_do_not_fit(options: dict, words: str) -> None:
    options = {k: engine.tensor(v) for k, v in options.items()}
    with pytest.raises(RuntimeError, match=words):
        engine.segment_reduce(engine.ones(6), "sum", **options)


def test_empty_permuted() -> None:
    assert engine.empty_permuted((2, 3, 4), (0, 2, 1)).stride() == (12, 1, 3)
    with pytest.raises(RuntimeError, match="Duplicate dim not allowed"):
        engine.empty_permuted((2, 3), (1, 1))


def test_control_flow() -> None:
    x = engine.ones(2)
    assert engine.cond(engine.tensor(True), engine.neg, engine.abs, (x,)).tolist() == [-1, -1]
    assert engine.cond(False, engine.neg, engine.abs, (x,)).tolist() == [1, 1]
    found = engine.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (0, x))
    assert (found[0], found[1].tolist()) == (3, [8, 8])
    with pytest.raises(RuntimeError, match="bool or single-element tensor"):
        engine.cond(engine.ones(2), engine.neg, engine.abs, (x,))


def test_the_other_names_of_grids() -> None:
    x, grid = engine.arange(9.0).reshape(1, 1, 3, 3), engine.tensor([[[[0.0, 0.5]]]])
    expected = engine.nn.functional.grid_sample(x, grid, "nearest", "border", align_corners=True)
    assert engine.equal(engine.grid_sampler_2d(x, grid, 1, 1, True), expected)
    theta = engine.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    assert engine.affine_grid_generator(theta, (1, 1, 2, 2), False).shape == (1, 2, 2, 2)


@pytest.mark.filterwarnings("ignore:reduction")
def test_losses_with_their_reduction_as_a_number() -> None:
    functional = engine.nn.functional
    x, y = engine.tensor([0.2, -1.0, 0.5]), engine.tensor([1.0, 0.0, 0.5])
    for number, name in enumerate(("none", "mean", "sum")):
        expected = functional.kl_div(x, y, reduction=name, log_target=True)
        assert engine.equal(engine.kl_div(x, y, number, log_target=True), expected)
        expected = functional.binary_cross_entropy_with_logits(x, y, pos_weight=y, reduction=name)
        found = engine.binary_cross_entropy_with_logits(x, y, None, y, number)
        assert engine.equal(found, expected)
        expected = functional.poisson_nll_loss(x, y, full=True, eps=1e-4, reduction=name)
        assert engine.equal(engine.poisson_nll_loss(x, y, True, True, 1e-4, number), expected)
    assert engine.equal(engine.hinge_embedding_loss(x, y), functional.hinge_embedding_loss(x, y))


@pytest.mark.parametrize(
    "dtype", [engine.float32, engine.float64, engine.int64, engine.uint8, engine.bool, engine.bfloat16]
)
def test_large_copies_have_the_same_bits_and_their_own_memory(dtype: Any) -> None:
    """By generated code from the third on, where the extra `jit` is."""
    bits = np.random.default_rng(0).integers(0, 256, 1 << 22, dtype=np.uint8)
    x = engine.from_numpy(bits % 2).to(dtype) if dtype is engine.bool else engine.from_numpy(bits).view(dtype)
    for _ in range(4):
        y = x.clone()
        assert y.dtype == dtype and y.data_ptr() != x.data_ptr()
        assert x.view(engine.uint8).numpy().tobytes() == y.view(engine.uint8).numpy().tobytes()
