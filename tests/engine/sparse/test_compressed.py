"""Sparse matrices by rows: what they hold, products and gradients, against the dense ones; texts are PyTorch's."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

import engine

CROW, COL = [0, 2, 2, 3], [0, 2, 1]


def made(requires_grad: bool = False) -> Any:
    return engine.sparse_csr_tensor(CROW, COL, [1.0, 2.0, 3.0], (3, 4), requires_grad=requires_grad)


DENSE = [[1.0, 0.0, 2.0, 0.0], [0.0] * 4, [0.0, 3.0, 0.0, 0.0]]


def test_what_it_holds() -> None:
    a = made()
    assert a.layout is engine.sparse_csr and a.is_sparse_csr and not a.is_sparse and a._nnz() == 3 and a.shape == (3, 4)
    assert a.crow_indices().tolist() == CROW and a.col_indices().tolist() == COL and a.values().tolist() == [1, 2, 3]
    assert a.to_dense().tolist() == DENSE
    assert engine.sparse_csr_tensor(engine.tensor(CROW), engine.tensor(COL), engine.ones(3)).shape == (3, 3)
    assert repr(a) == (
        "tensor(crow_indices=tensor([0, 2, 2, 3]),\n       col_indices=tensor([0, 2, 1]),\n       "
        "values=tensor([1., 2., 3.]), size=(3, 4), nnz=3,\n       layout=torch.sparse_csr)"
    )


def test_to_and_from_other_layouts() -> None:
    dense = engine.tensor([[0.0, 1, 0], [2, 0, 3]])
    for a in (dense.to_sparse_csr(), dense.to_sparse().to_sparse_csr(), dense.to_sparse(layout=engine.sparse_csr)):
        assert a.layout is engine.sparse_csr
        assert (a.crow_indices().tolist(), a.col_indices().tolist(), a.values().tolist()) == (
            [0, 1, 3],
            [1, 0, 2],
            [1, 2, 3],
        )
    back = a.to_sparse()
    assert back.layout is engine.sparse_coo and back.indices().tolist() == [[0, 1, 1], [1, 0, 2]]


@pytest.mark.parametrize("how", ["operator", "method", "sparse.mm", "mv", "addmm"])
def test_products_and_their_gradients(how: str) -> None:
    dense = engine.tensor(DENSE)
    other = engine.arange(4.0) if how == "mv" else engine.arange(8.0).reshape(4, 2)
    ours, theirs = other.clone().requires_grad_(), other.clone().requires_grad_()
    a = made(requires_grad=True)
    more = engine.ones(3, 2)
    found = {
        "operator": lambda: a @ ours,
        "method": lambda: a.matmul(ours),
        "sparse.mm": lambda: engine.sparse.mm(a, ours),
        "mv": lambda: a.mv(ours),
        "addmm": lambda: engine.sparse.addmm(more, a, ours, beta=2),
    }[how]()
    dense.requires_grad_()
    expected = dense @ theirs + (2 * more if how == "addmm" else 0)
    assert found.tolist() == expected.tolist()
    found.square().sum().backward()
    expected.square().sum().backward()
    assert ours.grad.tolist() == theirs.grad.tolist()
    places = [dense.grad[0, 0], dense.grad[0, 2], dense.grad[2, 1]]
    assert a.grad.layout is engine.sparse_csr and a.grad.values().tolist() == [float(p) for p in places]


def test_gradients_reach_the_values_that_were_given_and_the_dense_matrix() -> None:
    values = engine.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (engine.sparse_csr_tensor(CROW, COL, values, (3, 4)) @ engine.ones(4, 1)).sum().backward()
    assert values.grad is not None and values.grad.tolist() == [1, 1, 1]
    dense = engine.tensor([[0.0, 1], [2, 3]], requires_grad=True)
    (dense.to_sparse_csr() @ engine.ones(2, 1)).sum().backward()
    assert dense.grad is not None and dense.grad.tolist() == [[0, 1], [1, 1]]


def test_arithmetic_keeps_the_layout_and_leaves_the_values_alone() -> None:
    values = engine.ones(3)
    a = engine.sparse_csr_tensor(CROW, COL, values, (3, 4)).requires_grad_()
    assert not values.requires_grad
    for b in (a * 2, -a, a.clone(), a.to(engine.float64), a.relu(), a.detach()):
        assert b.layout is engine.sparse_csr and b.col_indices().tolist() == COL
    assert a.sum().item() == 3.0
    for twin in (copy.deepcopy(made()), pickle.loads(pickle.dumps(made()))):
        assert twin.layout is engine.sparse_csr and twin.to_dense().tolist() == DENSE


@pytest.mark.parametrize(
    ("crow", "col", "message"),
    [
        ([0, 2], COL, "must be equal to nrows"),
        (CROW, [0, 9, 1], "0 <= col_indices < 4"),
        ([0, 2, 1, 3], COL, "never fall"),
        ([0, 2, 2, 2], COL, "end with the number of values"),
    ],
)
def test_what_does_not_fit_is_refused(crow: list[int], col: list[int], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        engine.sparse_csr_tensor(crow, col, [1.0, 2.0, 3.0], (3, 4))


def test_dense_tensors_and_coordinates_say_so() -> None:
    with pytest.raises(RuntimeError, match="crow_indices expected sparse row compressed tensor layout but got Strided"):
        engine.ones(2, 2).crow_indices()
    with pytest.raises(RuntimeError, match="indices expected sparse coordinate tensor layout but got SparseCsr"):
        made().indices()
    with pytest.raises(NotImplementedError, match="CSR"):
        engine.sparse_csc_tensor([0, 1], [0], [1.0])


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax"])
def test_a_product_saves_both_operands(reduce: str) -> None:
    rows, x = engine.eye(3).to_sparse_csr().requires_grad_(), engine.randn(3, 2, requires_grad=True)
    for target in (rows, x):
        found = engine.sparse.mm(rows, x, reduce).sum()
        with engine.no_grad():
            target.copy_(target.detach().clone())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.backward()


def test_sampled_product_saves_its_operands() -> None:
    rows = engine.eye(3).to_sparse_csr().requires_grad_()
    a, b = engine.randn(3, 2, requires_grad=True), engine.randn(2, 3, requires_grad=True)
    for target in (rows, a, b):
        found = engine.sparse.sampled_addmm(rows, a, b).values().sum()
        with engine.no_grad():
            target.copy_(target.detach().clone())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.backward()


def test_copy_writes_in_place() -> None:
    rows = engine.eye(3).to_sparse_csr()
    values = rows.values()
    rows.copy_((engine.eye(3) * 2).to_sparse_csr())
    assert values.tolist() == [2, 2, 2]
    rows.copy_(engine.tensor([[0.0, 1, 0], [0, 0, 0], [3, 0, 0]]).to_sparse_csr())
    assert rows.to_dense().tolist() == [[0, 1, 0], [0, 0, 0], [3, 0, 0]]


def test_writes_to_the_values_given_are_none_to_the_matrix() -> None:
    values = engine.ones(2)
    rows = engine.sparse_csr_tensor([0, 1, 2], [0, 1], values, (2, 2), requires_grad=True)
    found = engine.sparse.mm(rows, engine.ones(2, 1, requires_grad=True)).sum()
    values.mul_(2)
    found.backward()
    assert rows.to_dense().tolist() == [[2, 0], [0, 2]]


def test_addmm_of_three_matrices_by_rows() -> None:
    mat = engine.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, -4.0]])
    one, two = engine.tensor([[0.0, 3.0], [5.0, 0.0]]), engine.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    rows = [m.to_sparse_csr().requires_grad_() for m in (mat, one, two)]
    found = engine.addmm(*rows, beta=2, alpha=0.5)
    assert found.layout is engine.sparse_csr and found.requires_grad
    assert found.to_dense().tolist() == [[2.0, 3.0, 4.0], [2.5, 0.0, -8.0]]
    found.to_dense().sum().backward()
    assert [r.grad.values().tolist() for r in rows] == [[2.0, 2.0, 2.0], [1.0, 0.5], [2.5, 1.5]]
    plain = [r.detach() for r in rows]
    assert engine.sparse.addmm(*plain, beta=0).to_dense().tolist() == [[0.0, 6.0, 0.0], [5.0, 0.0, 0.0]]
    assert plain[0].clone().addmm_(*plain[1:]).to_dense().tolist() == [[1.0, 6.0, 2.0], [5.0, 0.0, -4.0]]
    out = engine.zeros(2, 3).to_sparse_csr()
    assert engine.addmm(*plain, beta=-1, out=out) is out and out.to_dense().tolist() == [
        [-1.0, 6.0, -2.0],
        [5.0, 0.0, 4.0],
    ]


def test_addmm_of_layouts_that_torch_refuses() -> None:
    eye = engine.eye(2)
    rows, coordinates, wide = eye.to_sparse_csr(), eye.to_sparse(), engine.ones(1, 2).to_sparse_csr()
    for matrices, text in (
        ((rows, rows, eye), "addmm: computation on CPU is not implemented for SparseCsr + SparseCsr @ Strided"),
        ((coordinates, eye, rows), "addmm: computation on CPU is not implemented for Sparse + Strided @ SparseCsr"),
        ((coordinates, coordinates, eye), "addmm_sparse_dense: expected strided result tensor, got tensor with layout"),
        ((wide, rows, rows), "expand is unsupported for SparseCsr tensors"),
    ):
        with pytest.raises(RuntimeError, match=re.escape(text)):
            engine.addmm(*matrices)
