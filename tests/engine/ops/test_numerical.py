"""Numerical derivatives, low-rank factors, places and diagonals: numbers and sentences of torch 2.13."""

from __future__ import annotations

import pytest

import engine
from engine import tensor

F64 = engine.float64
X = tensor([1.0, 4.0, 9.0, 16.0, 30.0], dtype=F64)
Y = engine.arange(12, dtype=F64).reshape(3, 4) ** 2
POINTS = [tensor([0.0, 1.0, 3.0], dtype=F64), tensor([0.0, 2.0, 3.0, 7.0], dtype=F64)]
ROWS = [[16.0, 24.0, 32.0, 40.0], [32.0, 40.0, 48.0, 56.0], [48.0, 56.0, 64.0, 72.0]]
COLUMNS = [[1.0, 2.0, 4.0, 5.0], [9.0, 10.0, 12.0, 13.0], [17.0, 18.0, 20.0, 21.0]]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda: engine.gradient(X), [[3.0, 4.0, 6.0, 10.5, 14.0]]),
        (lambda: engine.gradient(X, spacing=2.0, edge_order=2), [[1.0, 2.0, 3.0, 5.25, 8.75]]),
        (lambda: engine.gradient(Y), [ROWS, COLUMNS]),
        (lambda: engine.gradient(Y, dim=1), [COLUMNS]),
        (lambda: engine.gradient(Y, spacing=[2.0], dim=[0]), [(tensor(ROWS) / 2).tolist()]),
        (
            lambda: engine.gradient(Y, spacing=[2.0, 3.0]),
            [(tensor(ROWS) / 2).tolist(), (tensor(COLUMNS, dtype=F64) / 3).tolist()],
        ),
        (
            lambda: engine.gradient(Y, spacing=POINTS),
            [
                [[16, 24, 32, 40], [56 / 3, 76 / 3, 32, 116 / 3], [24, 28, 32, 36]],
                [[0.5, 13 / 6, 2.65, 1.25], [4.5, 53 / 6, 9.45, 3.25], [8.5, 15.5, 16.25, 5.25]],
            ],
        ),
        (
            lambda: engine.gradient(Y, spacing=POINTS, edge_order=2),
            [
                [[40 / 3, 68 / 3, 32, 124 / 3], [56 / 3, 76 / 3, 32, 116 / 3], [88 / 3, 92 / 3, 32, 100 / 3]],
                [[-7 / 6, 13 / 6, 2.65, -0.15], [1 / 6, 53 / 6, 9.45, -2.95], [1.5, 15.5, 16.25, -5.75]],
            ],
        ),
    ],
)
def test_gradient(call, wanted):
    made = call()
    assert isinstance(made, tuple) and len(made) == len(wanted)
    for one, expected in zip(made, wanted):
        engine.testing.assert_close(one, tensor(expected, dtype=F64))


def test_gradient_is_differentiable():
    x = Y.clone().requires_grad_()
    assert engine.autograd.gradcheck(lambda t: engine.gradient(t, spacing=POINTS, edge_order=2), (x,))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: engine.gradient(engine.ones(1)), "expected each dimension size to be at least edge_order"),
        (lambda: engine.gradient(engine.ones(2), edge_order=2), "expected each dimension size to be at least"),
        (lambda: engine.gradient(X, edge_order=3), "only supports edge_order=1 and edge_order=2"),
        (lambda: engine.gradient(Y, spacing=[1.0, 2.0, 3.0]), "dim argument was not given, but got a list of length 3"),
        (
            lambda: engine.gradient(Y, spacing=[1.0], dim=[0, 1]),
            "spacing argument of length 1 and a dim argument of length 2",
        ),
        (lambda: engine.gradient(Y, spacing=[engine.arange(9.0)], dim=[0]), r"coordinates of dim 0 to be of shape"),
        (lambda: engine.zeros(3).fill_diagonal_(1), "dimensions must larger than 1"),
        (lambda: engine.zeros(2, 2, 3).fill_diagonal_(1), "all dimensions of input must be of equal length"),
    ],
)
def test_refusals(call, said):
    with pytest.raises(RuntimeError, match=said):
        call()


def test_fill_diagonal():
    x = engine.zeros(7, 3)
    assert x.fill_diagonal_(5, wrap=True) is x
    assert x.nonzero().tolist() == [[0, 0], [1, 1], [2, 2], [4, 0], [5, 1], [6, 2]]
    assert engine.zeros(7, 3).fill_diagonal_(5).nonzero().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert engine.zeros(2, 4).fill_diagonal_(1.0).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert engine.zeros(2, 2, 2).fill_diagonal_(1.0).nonzero().tolist() == [[0, 0, 0], [1, 1, 1]]
    assert engine.zeros(4, 2).t().fill_diagonal_(1.0).nonzero().tolist() == [[0, 0], [1, 1]]
    leaf = engine.ones(2, 2, requires_grad=True)
    (leaf * 2).fill_diagonal_(0).sum().backward()
    assert leaf.grad.tolist() == [[0, 2], [2, 0]]


def test_unravel_index():
    rows, columns = engine.unravel_index(tensor([[7, 3], [0, 11]]), (3, 4))
    assert rows.tolist() == [[1, 0], [0, 2]] and columns.tolist() == [[3, 3], [0, 3]]
    assert rows.dtype is engine.int64
    assert [t.tolist() for t in engine.unravel_index(tensor(5), 7)] == [5]
    with pytest.raises(TypeError, match="expected 'indices' to be integer dtype"):
        engine.unravel_index(tensor([1.0]), (3,))
    with pytest.raises(TypeError, match="to only contain ints, but got <class 'str'>"):
        engine.unravel_index(tensor([1]), "a")
    with pytest.raises(ValueError, match="'shape' cannot have negative values"):
        engine.unravel_index(tensor([1]), (-3,))


def test_scalar_tensor():
    assert engine.scalar_tensor(3).dtype is engine.float32 and engine.scalar_tensor(3).shape == ()
    assert engine.scalar_tensor(3, dtype=engine.int64).item() == 3


@pytest.mark.parametrize("shape", [(8, 5), (5, 8), (2, 6, 4)])
def test_low_rank(shape):
    engine.manual_seed(0)
    factors = engine.randn(*shape[:-1], 2, dtype=F64), engine.randn(*shape[:-2], 2, shape[-1], dtype=F64)
    a = factors[0] @ factors[1]
    u, s, v = engine.svd_lowrank(a, q=3)
    assert (u.shape, s.shape, v.shape) == ((*shape[:-1], 3), (*shape[:-2], 3), (*shape[:-2], shape[-1], 3))
    engine.testing.assert_close(u @ engine.diag_embed(s) @ v.mH, a)
    engine.testing.assert_close(s[..., :2], engine.linalg.svdvals(a)[..., :2])
    u, s, v = engine.pca_lowrank(a + 3, q=2)
    engine.testing.assert_close(u @ engine.diag_embed(s) @ v.mH, a - a.mean(-2, keepdim=True))
    with pytest.raises(ValueError, match="must be non-negative integer and not greater than min"):
        engine.pca_lowrank(a, q=9)
