"""The sparse calls that torch's documents of 0.4 and 1.1 name; numbers, coalesced or not, and texts are PyTorch's."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import engine
from engine.autograd.gradcheck import gradcheck, gradgradcheck

I = engine.tensor([[0, 2, 0], [1, 0, 1]])
V = engine.tensor([1.0, 2.0, 3.0])
D = engine.arange(9.0).view(3, 3)


def made(**options: Any) -> Any:
    return engine.sparse_coo_tensor(I.clone(), V.clone(), (3, 3), **options)


def hybrid() -> Any:
    return engine.sparse_coo_tensor(I.clone(), engine.arange(6.0).view(3, 2), (3, 3, 2))


def rows() -> Any:
    return made().to_sparse_csr()


DENSE = made().to_dense()


@pytest.mark.parametrize(
    ("call", "coalesced", "indices", "values"),
    [
        (lambda: made() + made(), False, I.tolist(), [2, 4, 6]),
        (lambda: made().coalesce() + engine.eye(3).to_sparse(), True, [[0, 0, 1, 2, 2], [0, 1, 1, 0, 2]],
         [1, 4, 1, 2, 1]),
        (lambda: made() * made(), False, I.tolist(), [4, 4, 12]),
        (lambda: made() * made().coalesce(), False, I.tolist(), [4, 4, 12]),
        (lambda: D * made(), False, I.tolist(), [1, 12, 3]),
        (lambda: made() * engine.arange(3.0), False, I.tolist(), [1, 0, 3]),
        (lambda: made() * engine.tensor(2.0), False, I.tolist(), [2, 4, 6]),
        (lambda: made() // 2, True, [[0, 2], [1, 0]], [2, 1]),
        (lambda: made() ** 2, True, [[0, 2], [1, 0]], [16, 4]),
        (lambda: made() @ made(), True, [[2], [1]], [8]),
        (lambda: made().neg(), False, I.tolist(), [-1, -2, -3]),
        (lambda: made().coalesce().abs_(), True, [[0, 2], [1, 0]], [4, 2]),
        (lambda: made().isnan(), True, [[0, 2], [1, 0]], [False, False]),
        (lambda: made().narrow_copy(0, 1, 2), False, [[1], [0]], [2]),
        (lambda: hybrid().narrow_copy(2, 1, 1), False, I.tolist(), [[1], [3], [5]]),
        (lambda: made().index_select(0, engine.tensor([2, 0, 0])), False, [[0, 1, 1, 2, 2], [0, 1, 1, 1, 1]],
         [2, 1, 3, 1, 3]),
        (lambda: made()[0], False, [[1, 1]], [1, 3]),
        (lambda: made().coalesce()[:, 0], True, [[2]], [2]),
        (lambda: made().t_(), False, [[1, 0, 1], [0, 2, 0]], [1, 2, 3]),
        (lambda: engine.stack([made(), made()]), False, [[0, 0, 0, 1, 1, 1], [0, 2, 0] * 2, [1, 0, 1] * 2],
         [1, 2, 3, 1, 2, 3]),
        (lambda: engine.cat([hybrid(), hybrid()], 2), False, [[0, 2, 0] * 2, [1, 0, 1] * 2],
         [[0, 1, 0, 0], [2, 3, 0, 0], [4, 5, 0, 0], [0, 0, 0, 1], [0, 0, 2, 3], [0, 0, 4, 5]]),
        (lambda: made().sum(0, keepdim=True), False, [[0, 0], [0, 1]], [2, 4]),
        (lambda: hybrid().sum(2, keepdim=True), False, [[0, 2], [1, 0], [0, 0]], [10, 5]),
        (lambda: made().int().sum(0), True, [[0, 1]], [2, 4]),
        (lambda: engine.saddmm(made(), made(), D), False, [[0, 2, 0, 0, 0, 0, 2, 2, 2], [1, 0, 1, 0, 1, 2, 0, 1, 2]],
         [1, 2, 3, 12, 16, 20, 0, 2, 4]),
        (lambda: engine.sspaddmm(2, made(), 3, made(), D), False,
         [[0, 2, 0, 0, 0, 0, 2, 2, 2], [1, 0, 1, 0, 1, 2, 0, 1, 2]], [2, 4, 6, 36, 48, 60, 0, 6, 12]),
        (lambda: made().coalesce().mul(engine.ones(2, 3, 3)), True, [[0, 0, 1, 1], [0, 2, 0, 2], [1, 0, 1, 0]],
         [4, 2, 4, 2]),
    ],
)  # fmt: skip
def test_coordinates_and_values(call: Any, coalesced: bool, indices: Any, values: Any) -> None:
    found = call()
    assert found.layout is engine.sparse_coo
    assert (found.is_coalesced(), found._indices().tolist(), found._values().tolist()) == (coalesced, indices, values)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: made().norm(1), 6.0),
        (lambda: made().norm(float("inf")), 4.0),
        (lambda: made().any(), True),
        (lambda: made().sum((0, 1), keepdim=True), [[6.0]]),
        (lambda: hybrid().sum((0, 1)), [6.0, 9.0]),
        (lambda: made()[0, 1], 4.0),
        (lambda: engine.add(D, 2, made()), (D + 2 * DENSE).tolist()),
        (lambda: D.clone().mul_(made()), (D * DENSE).tolist()),
        (lambda: D.clone().addmm_(made(), D), (D + DENSE @ D).tolist()),
        (lambda: engine.addmm(2, D, 3, made(), D), (2 * D + 3 * (DENSE @ D)).tolist()),
        (lambda: engine.sparse.addmm(engine.tensor(1.0), made(), D), (1 + DENSE @ D).tolist()),
        (lambda: D[0] @ made(), (D[0] @ DENSE).tolist()),
        (lambda: engine.nn.functional.linear(D, made()), (D @ DENSE.t()).tolist()),
        (lambda: engine.mm(made(), D, out=engine.empty(0)), (DENSE @ D).tolist()),
        (lambda: engine.zeros_like(made(), layout=engine.strided), [[0.0] * 3] * 3),
        (lambda: made().new_tensor([1.0]), [1.0]),
    ],
)
def test_dense_results(call: Any, expected: Any) -> None:
    assert call().tolist() == expected


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: made() + 1, RuntimeError, r"add\(sparse, dense\) is not supported"),
        (lambda: 1 - made(), RuntimeError, "add: expected 'self' and 'other' to have same size, but self has size"),
        (lambda: engine.zeros(3, 4) + made(), RuntimeError, "does not currently support broadcasting"),
        (lambda: made() / made(), RuntimeError, "Sparse division requires a scalar or zero-dim dense tensor divisor"),
        (lambda: made() ** 0, RuntimeError, "cannot raise to zeroth power"),
        (lambda: made().abs_(), RuntimeError, "abs_ requires coalesced input"),
        (lambda: made().norm(2, 0), RuntimeError, "norm_sparse currently only supports full reductions"),
        (lambda: made().norm(2, (0, 1), True), RuntimeError, "does not support keepdim=True"),
        (lambda: made().sum([0, 0]), RuntimeError, "dim 0 appears multiple times"),
        (lambda: made().sum(5), IndexError, "Dimension out of range"),
        (lambda: hybrid().transpose(0, 2), RuntimeError, "transposed dimensions must be sparse"),
        (lambda: made().narrow_copy(0, 2, 2), RuntimeError, "exceeds dimension size"),
        (lambda: made().narrow_copy(-1, 0, 1), RuntimeError, "dim -1"),
        (lambda: made()[5], IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
        (lambda: made().reshape(9), RuntimeError, "reshape is not implemented for sparse tensors"),
        (lambda: made().expand(2, 3, 3), RuntimeError, "expand is unsupported for Sparse tensors"),
        (
            lambda: engine.cat([hybrid(), engine.ones(3, 3, 2).to_sparse()]),
            RuntimeError,
            "same sparse_dim and dense_dim: 2, 1, but tensor at position 1 has 3, 0",
        ),
        (lambda: engine.cat([made(), D]), RuntimeError, "a dense tensor was found at position 1"),
        (lambda: made() + hybrid(), RuntimeError, "expected sizes of 'self' and 'other' to match"),
        (lambda: made().coalesce() + D.to_sparse(1), RuntimeError, "to have same density"),
        (lambda: made() * hybrid(), RuntimeError, "expects sparse inputs with equal dimensionality"),
        (lambda: made().copy_(D), RuntimeError, r"copy_\(\) between dense and sparse"),
        (lambda: made().int().add_(made()), RuntimeError, "Can't convert result type Float to output Int"),
        (lambda: made().int().div_(2), RuntimeError, "result type Float can't be cast"),
        (lambda: made().requires_grad_().mul_(2), RuntimeError, "a leaf Variable that requires grad"),
        (lambda: engine.ones(2, layout=engine.sparse_coo), NotImplementedError, "layout=torch.sparse_coo"),
        (lambda: engine.full((2,), 1.0, layout=engine.sparse_coo), RuntimeError, r"full\(...\) is not implemented"),
        (lambda: made().new(made()), TypeError, "invalid combination of arguments"),
        (lambda: made().new(device="cuda"), RuntimeError, "device type: cpu but device type: cuda"),
        (lambda: engine.sparse_coo_tensor(I, engine.ones(3, 2), (3, 3, 3)), RuntimeError, "values has incorrect size"),
        (lambda: engine.sparse_coo_tensor(-I, V), RuntimeError, "found negative index -2 for dim 0"),
        (lambda: engine.ones(2, 2).sparse_mask(made()), RuntimeError, "operands have incompatible sizes"),
        (lambda: engine.sparse.spdiags(engine.ones(2, 3), engine.tensor([0, 0]), (3, 3)), RuntimeError, "duplicate"),
        (lambda: made().data_ptr(), RuntimeError, "doesn't have storage"),
        (lambda: D.to_sparse(0), RuntimeError, "sparse_dim argument must be in >0"),
        (lambda: engine.sparse.mm(rows(), D, "prod"), RuntimeError, "reduce type of prod has not been enabled"),
        (lambda: engine.sparse.sampled_addmm(rows(), D[:2], D), RuntimeError, "must match mat1"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_sizes_change_in_place() -> None:
    grown = hybrid().sparse_resize_((4, 3, 3), 2, 1)
    assert grown.shape == (4, 3, 3) and grown._values().reshape(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
    for size, dims, text in (
        ((2, 2), (2, 0), r"shrinking the size of sparse dimensions \(from \[3, 3\] to \[2, 2\]\)"),
        ((2, 2, 2), (2, 1), r"number of dense dimensions \(from 0 to 1\)"),
        ((2, 2, 2), (3, 0), r"number of sparse dimensions \(from 2 to 3\)"),
    ):
        with pytest.raises(RuntimeError, match=text):
            made().sparse_resize_(size, *dims)
    cleared = made().sparse_resize_and_clear_((4, 4, 2), 2, 1)
    assert (cleared.shape, cleared._nnz(), cleared.sparse_dim(), cleared.dense_dim()) == ((4, 4, 2), 0, 2, 1)
    taken = engine.sparse_coo_tensor(size=(2,)).resize_as_(hybrid().unsqueeze(0))
    assert (taken.shape, taken.sparse_dim()) == ((1, 3, 3, 2), 3)
    assert engine.equal(engine.sparse_coo_tensor((2, 2)).copy_(made()).to_dense(), DENSE)
    whole = engine.sparse_coo_tensor((3, 3), dtype=engine.int32).copy_(made())
    assert whole.dtype is engine.int32 and whole._values().tolist() == [1, 2, 3]


def test_out_of_a_factory_once_another_class_listens() -> None:
    """A jagged tensor makes the engine listen to `zeros`, too, which knows sparse tensors itself."""
    rows = engine.nested.nested_tensor([engine.ones(2), engine.ones(3)], layout=engine.jagged)
    assert (rows + 1).sum().item() == 10
    found = engine.zeros(4, 5, out=made())
    assert found.is_sparse and tuple(found.shape) == (4, 5)
    with pytest.raises(NotImplementedError, match="add: a dense result is not written into a sparse tensor"):
        engine.add(D, D, out=made())


def test_factories_and_legacy_constructors() -> None:
    for found, size in (
        (engine.zeros(2, 3, layout=engine.sparse_coo), (2, 3)),
        (engine.empty(2, dtype=engine.int32, layout=engine.sparse_coo), (2,)),
        (engine.zeros(4, 5, out=made()), (4, 5)),
        (engine.zeros_like(D, layout=engine.sparse_coo), (3, 3)),
        (engine.empty_like(made()), (3, 3)),
        (made().new_zeros(2, 2), (2, 2)),
        (made().new(), (0,)),
        (made().new(2, 3), (2, 3)),
        (made().new(engine.Size([2, 3])), (2, 3)),
        (engine.sparse.FloatTensor(), (0,)),
        (engine.sparse.FloatTensor(2, 3), (2, 3)),
    ):
        assert found.is_sparse and found.is_coalesced() and (tuple(found.shape), found._nnz()) == (size, 0)
    assert engine.zeros(2, 3, layout=engine.sparse_csr).crow_indices().tolist() == [0, 0, 0]
    for found, size in (
        (made().new(I, V), (3, 2)),
        (made().new(I, V, engine.Size([4, 4])), (4, 4)),
        (engine.sparse.FloatTensor(I, V, [3, 3]), (3, 3)),
    ):
        assert tuple(found.shape) == size and found._values().tolist() == V.tolist()
    scalar = engine.tensor(2.0).to_sparse()
    assert (scalar.sparse_dim(), scalar._nnz(), scalar.to_dense().tolist()) == (0, 1, 2.0)
    twice = engine.sparse_coo_tensor(engine.zeros(0, 2), engine.ones(2, 3), (3,))
    assert twice.coalesce()._values().tolist() == [[2.0] * 3] and twice.to_dense().tolist() == [2.0] * 3


def test_invariants_are_checked_where_a_program_asks() -> None:
    checks = engine.sparse.check_sparse_tensor_invariants
    assert not checks.is_enabled() and engine.sparse_coo_tensor(I, V, (2, 2))._nnz() == 3
    with checks(), pytest.raises(RuntimeError, match="for dim 0, size is 2 but found index 2"):
        engine.sparse_coo_tensor(I, V, (2, 2))
    assert not checks.is_enabled()


def test_products_by_rows() -> None:
    a = engine.sparse_csr_tensor([0, 2, 3, 3], [0, 2, 1], [1.0, 2.0, 3.0], (3, 3))
    other = engine.tensor([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])
    for how, expected in (
        ("sum", [[7, 16], [6, 15], [0, 0]]),
        ("mean", [[3.5, 8], [6, 15], [0, 0]]),
        ("amax", [[6, 12], [6, 15], [0, 0]]),
        ("amin", [[1, 4], [6, 15], [0, 0]]),
    ):
        assert engine.sparse.mm(a, other, how).tolist() == expected
    found = engine.sparse.sampled_addmm(a, engine.ones(3, 2), engine.ones(2, 3), beta=2.0, alpha=3.0)
    assert found.layout is engine.sparse_csr and found.values().tolist() == [8, 10, 12]
    for call in (lambda: a + a, lambda: a * 2, lambda: a * D, lambda: a @ a, lambda: -a, lambda: a.clone().zero_()):
        assert call().layout is engine.sparse_csr
    assert (a + D).tolist() == (a.to_dense() + D).tolist() and a[0].to_dense().tolist() == [1, 0, 2]


@pytest.mark.parametrize("how", ["sum", "mean", "amax", "amin"])
def test_gradients_of_products_by_rows(how: str) -> None:
    values = engine.tensor([1.0, -2.0, 3.0], dtype=engine.float64, requires_grad=True)
    dense = engine.arange(8.0, dtype=engine.float64).view(4, 2).requires_grad_()

    def product(v: Any, d: Any) -> Any:
        return engine.sparse.mm(engine.sparse_csr_tensor([0, 2, 2, 3], [0, 2, 1], v, (3, 4)), d, how)

    assert gradcheck(product, (values, dense))


def test_gradients_of_sparse_results() -> None:
    values = engine.tensor([1.0, 2.0, 3.0], dtype=engine.float64, requires_grad=True)
    dense = engine.arange(9.0, dtype=engine.float64).view(3, 3).requires_grad_()
    other = engine.eye(3, dtype=engine.float64).to_sparse()
    for call in (
        lambda v, d: engine.sparse_coo_tensor(I, v, (3, 3)) @ engine.sparse_coo_tensor(I, v, (3, 3)),
        lambda v, d: engine.sparse_coo_tensor(I, v, (3, 3)) * d,
        lambda v, d: engine.sparse_coo_tensor(I, v, (3, 3)).index_select(0, engine.tensor([2, 0, 0])),
        lambda v, d: engine.sparse_coo_tensor(I, v, (3, 3)).narrow_copy(1, 0, 2),
        lambda v, d: engine.sparse_coo_tensor(I, v, (3, 3)).sum(1, keepdim=True),
        lambda v, d: engine.sparse_coo_tensor(I, v, (3, 3)) + other,
        lambda v, d: engine.sparse.sampled_addmm(engine.sparse_coo_tensor(I, v, (3, 3)), d, d, beta=0.5),
    ):
        assert gradcheck(lambda v, d, call=call: call(v, d).to_dense() + 0 * d.sum(), (values, dense))


def test_second_derivatives_of_sampled_addmm() -> None:
    """By rows and by coordinates; torch has none for the former."""
    places = engine.tensor([[0, 0, 1, 2], [0, 2, 1, 0]])
    values, a, b = (
        engine.arange(1.0, 1 + n, dtype=engine.float64).mul(0.3).sin().reshape(size).requires_grad_()
        for n, size in ((4, (4,)), (6, (3, 2)), (6, (2, 3)))
    )
    for by_rows in (False, True):

        def call(v, a, b, by_rows=by_rows):
            matrix = engine.sparse_coo_tensor(places, v, (3, 3))
            matrix = matrix.to_sparse_csr() if by_rows else matrix
            return engine.sparse.sampled_addmm(matrix, a, b, beta=0.5, alpha=2.0).to_dense()

        assert gradcheck(call, (values, a, b)) and gradgradcheck(call, (values, a, b))


def test_gradients_name_each_coordinate_once() -> None:
    """A leaf whose coordinates repeat has the gradient of the matrix, not once for each repetition."""
    a = made(requires_grad=True)
    engine.sparse.mm(a, D).sum().backward()
    assert a.grad._indices().tolist() == [[0, 2], [1, 0]] and a.grad._values().tolist() == [12, 3]
    target, source = made(), hybrid().sum(2).detach().requires_grad_()
    (target.copy_(source) * 2).backward(source.detach().clone())
    assert engine.equal(source.grad.to_dense(), 2 * source.detach().to_dense())
    leaf = V.clone().requires_grad_()
    assert not engine.sparse_coo_tensor(I, leaf, (3, 3)).is_leaf
    assert not made(requires_grad=True)._values().requires_grad


def test_texts() -> None:
    assert repr(engine.sparse_coo_tensor(size=(3,))) == (
        "tensor(indices=tensor([], size=(1, 0)),\n       values=tensor([], size=(0,)),\n"
        "       size=(3,), nnz=0, layout=torch.sparse_coo)"
    )
    long = engine.sparse_coo_tensor(engine.arange(1200).view(1, -1), engine.arange(1200.0))
    assert repr(long) == (
        "tensor(indices=tensor([[   0,    1,    2,  ..., 1197, 1198, 1199]]),\n"
        "       values=tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ...,\n"
        "                      1.1970e+03, 1.1980e+03, 1.1990e+03]),\n"
        "       size=(1200,), nnz=1200, layout=torch.sparse_coo)"
    )


def test_types_and_pickles() -> None:
    assert made().type() == "torch.sparse.FloatTensor" and made().type("torch.sparse.DoubleTensor").dtype.itemsize == 8
    assert made().char().dtype is engine.int8 and made().type_as(D.double()).dtype is engine.float64
    for value in (made(), rows()):
        other = pickle.loads(pickle.dumps(value))
        assert other.layout is value.layout and engine.equal(other.to_dense(), value.to_dense())
    complex_values = made().cfloat() * 1j
    assert complex_values.conj()._values().tolist() == [-1j, -2j, -3j] and complex_values.imag._values().tolist() == [
        1,
        2,
        3,
    ]
    assert engine.view_as_real(complex_values).shape == (3, 3, 2)
