"""What modules and their functions refuse, in torch's words, and what they take that is empty."""

from __future__ import annotations

import pytest

import engine
from engine import nn
from engine.nn import functional as F

CPU = engine.device("cpu")


@pytest.mark.parametrize(
    "arguments",
    [
        (CPU, True),
        (None, True),
        (CPU, engine.int64, 1),
        ([],),
        ({},),
        (CPU, engine.tensor(3)),
        (CPU, CPU),
        (3.5,),
        (True,),
    ],
)
def test_arguments_of_to_that_it_does_not_know(arguments: tuple) -> None:
    with pytest.raises(TypeError, match=r"to\(\) received an invalid combination of arguments - got \("):
        nn.Linear(1, 1).to(*arguments)


def test_arguments_of_to() -> None:
    module = nn.Linear(1, 1)
    for arguments in (
        (),
        ("cpu",),
        (CPU, engine.float64, True),
        (engine.float32, False),
        (engine.ones(1), True),
        (None,),
    ):
        assert module.to(*arguments) is module
    with pytest.raises(TypeError, match="foo=int"):
        module.to(CPU, foo=1)
    with pytest.raises(RuntimeError, match="does not accept copy argument"):
        module.to(CPU, copy=True)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("kind", ["Max", "Avg"])
def test_adaptive_pooling_of_too_few_dims(kind: str, n: int) -> None:
    with pytest.raises(ValueError, match=f"Input dimension should be at least {n + 1}"):
        getattr(nn, f"Adaptive{kind}Pool{n}d")((2,) * n)(engine.ones((2,) * n))


def test_grid_sample_without_channels() -> None:
    for shape, points in (((2, 0, 3, 4), (2, 1, 2, 2)), ((2, 0, 2, 3, 4), (2, 1, 2, 2, 3))):
        x, grid = engine.zeros(shape, requires_grad=True), engine.zeros(points, requires_grad=True)
        y = F.grid_sample(x, grid, align_corners=False)
        y.sum().backward()
        assert y.shape == (2, 0, *points[1:-1]) and x.grad.shape == x.shape and grid.grad.shape == grid.shape


@pytest.mark.parametrize("sparse", [True, False])
def test_embeddings_of_no_columns(sparse: bool) -> None:
    for rows, index in ((0, engine.empty(0, dtype=engine.int64)), (10, engine.tensor([[0, 2], [4, 3]]))):
        embedding = nn.Embedding(rows, 0, sparse=sparse)
        embedding(index).sum().backward()
        assert embedding.weight.grad.shape == (rows, 0) and embedding.weight.grad.is_sparse is sparse
