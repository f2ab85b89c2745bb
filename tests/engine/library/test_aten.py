"""`torch.ops.aten` takes the arguments of aten's schemas, also where torch's functions have others; its numbers."""

from __future__ import annotations

from typing import Any

import pytest

import engine
from engine import jit
from engine.dispatch.gate import listening
from engine.nn._functional_loss import by_number
from tests.engine.jit import forge

OPS = engine.ops.aten
X, Y = engine.tensor([[1.0, -2.0]]), engine.tensor([[3.0, 1.0]])
PLANES = engine.arange(16.0).reshape(1, 1, 4, 4)
MAXIMA, PLACES = engine.nn.functional.max_pool2d(PLANES, 2, return_indices=True)
PLACED = engine.where((engine.arange(16) % 8 > 4) & (engine.arange(16) % 2 > 0), PLANES.flatten(), 0.0).tolist()
HALVES = engine.full((1, 1, 2), 0.5)
EYE = engine.eye(2).to_sparse()

CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("mse_loss", (X, Y, 0), [[4.0, 9.0]]),
    ("mse_loss", (X, Y), 6.5),
    ("l1_loss", (X, Y, 2), 5.0),
    ("smooth_l1_loss", (X, Y, 0, 2.0), [[1.0, 2.0]]),
    ("huber_loss", (X, Y, 2, 2.0), 6.0),
    ("soft_margin_loss", (X * 0, Y, 2), 2 * 0.6931472),
    ("nll_loss", (X, engine.tensor([1]), None, 0, -100), [2.0]),
    ("nll_loss_nd", (X, engine.tensor([1]), None, 2, 1), 0.0),
    ("binary_cross_entropy", (Y * 0 + 0.5, Y * 0, None, 2), 2 * 0.6931472),
    ("multi_margin_loss", (X, engine.tensor([1]), 1, 1.0, None, 0), [2.0]),
    ("elu", (X, 1.0, 2.0, 1.0), [[2.0, -1.7293295]]),
    ("unfold", (Y, 1, 2, 1), [[[3.0, 1.0]]]),
    ("tensordot", (X, Y, [0], [0]), [[3.0, 1.0], [-6.0, -2.0]]),
    ("cdist", (X, Y, 2.0, 2), [[3.6055512]]),
    ("max_unpool2d", (MAXIMA, PLACES, [4, 4]), PLACED),
    ("max_unpool3d", (MAXIMA[None], PLACES[None], [1, 4, 4], [1, 2, 2], [0, 0, 0]), PLACED),
    ("fractional_max_pool2d", (PLANES, [2, 2], [2, 2], HALVES), [[[[5.0, 7.0], [13.0, 15.0]]]]),
    ("stft", (engine.ones(4), 4, 4, 4, None, False, True, True), [[4.0], [0.0], [0.0]]),
    ("embedding_bag", (engine.eye(2), engine.tensor([0, 1]), engine.tensor([0]), False, 1), [[0.5, 0.5]]),
    ("_sparse_mm", (EYE, Y.t()), [[3.0], [1.0]]),
    ("_sparse_sum", (EYE,), 2.0),
    ("_values", (EYE,), [1.0, 1.0]),
    ("index", (Y, [None, engine.tensor([1])]), [[1.0]]),
    ("_cast_Int", (X,), [[1, -2]]),
]


@pytest.mark.parametrize(("name", "args", "expected"), CASES, ids=[f"{n}{i}" for i, (n, _, _) in enumerate(CASES)])
def test_arguments_are_those_of_the_schema(name: str, args: tuple[Any, ...], expected: Any) -> None:
    found = getattr(OPS, name)(*args)
    found = found[0] if isinstance(found, tuple) else found
    found = found.real if found.is_complex() else found
    wanted = engine.tensor(expected)
    assert engine.allclose(found.reshape(wanted.shape).float(), wanted.float())


def test_losses_take_the_names_of_the_schema() -> None:
    assert OPS.mse_loss(self=X, target=Y, reduction=2) == 13.0
    assert engine.kl_div(X.exp(), Y, reduction=2) == engine.nn.functional.kl_div(X.exp(), Y, reduction="sum")
    with pytest.raises(RuntimeError, match="takes 3 positional arguments but 4 were given"):
        OPS.soft_margin_loss(X, Y, 1, 2)


def test_lists_are_lists() -> None:
    for found in (OPS.split(X, 1, 1), OPS.chunk(X, 2, 1), OPS.unbind(X), OPS.meshgrid([X[0], Y[0]]), OPS.where(X > 0)):
        assert type(found) is list
    assert [t.tolist() for t in OPS.broadcast_tensors([X[0], Y])] == [[[1.0, -2.0]], [[3.0, 1.0]]]


def test_sparse_tensors_in_programs() -> None:
    lines = (
        "y = torch.coalesce(torch.to_sparse(x))",
        "z = torch._sparse_mm(y, torch.to_dense(y))",
        "a = torch.add(torch.sum(torch.indices(y)), torch.sparse_dim(y))",
        "return (z, torch.values(y), a, torch.is_coalesced(y), torch.sparse_coo_tensor([2, 2]))",
    )
    product, values, number, coalesced, empty = jit.load(forge.archive(forge.body(*lines)))(2 * engine.eye(2))
    assert (product.tolist(), values.tolist(), number, coalesced) == ([[4, 0], [0, 4]], [2, 2], 4, True)
    assert empty.is_sparse and empty.shape == (2, 2) and not empty._nnz()


def test_losses_are_found_while_their_functions_are_listened_to() -> None:
    loss: Any = engine.nn.functional.huber_loss

    def hear(function: Any, args: Any, kwargs: Any, proceed: Any) -> Any:
        return proceed(*args, **kwargs)

    with listening([loss], hear):
        assert by_number(loss)(X, Y, 2, 2.0).item() == 6
