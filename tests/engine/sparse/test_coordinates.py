"""Sparse tensors in coordinate form: building, coalescing, products and gradients."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import engine
from engine import sparse
from engine.autograd.gradcheck import gradcheck
from engine.tensor import wrap

INDICES = [[0, 1, 1, 0], [2, 0, 2, 2]]


def make(values=None, requires_grad=False):
    given = wrap(np.array([3.0, 4, 5, 6])) if values is None else values
    return engine.sparse_coo_tensor(INDICES, given, (2, 3), requires_grad=requires_grad)


DENSE = np.array([[0.0, 0, 9], [4, 0, 5]])


def test_what_it_is():
    s = make()
    assert s.is_sparse and s.layout is engine.sparse_coo and isinstance(s, engine.Tensor)
    assert s.shape == (2, 3) and s.dim() == 2 and s._nnz() == 4 and not s.is_coalesced()
    assert (s.sparse_dim(), s.dense_dim()) == (2, 0)
    with pytest.raises(RuntimeError, match="Cannot get indices on an uncoalesced tensor"):
        s.indices()
    c = s.coalesce()
    assert c.indices().tolist() == [[0, 1, 1], [2, 0, 2]] and c.values().tolist() == [9, 4, 5]
    np.testing.assert_array_equal(s.to_dense().numpy(), DENSE)
    with pytest.raises(NotImplementedError, match="sparse_coo"):
        s.exp()
    with pytest.raises(TypeError, match="Sparse layout tensor"):
        s.numpy()


def test_dense_tensors_refuse_sparse_questions():
    d = wrap(DENSE)
    assert not d.is_sparse and d.to_dense() is d and d.sparse_dim() == 0
    for name in ("coalesce", "indices", "values", "is_coalesced"):
        with pytest.raises(RuntimeError, match="layout but got Strided"):
            getattr(d, name)()


def test_conversion_keeps_the_graph():
    x = wrap(DENSE).requires_grad_()
    s = x.to_sparse()
    assert s._nnz() == 3 and s.is_coalesced()
    (s.to_dense() ** 2).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * DENSE)
    half = wrap(DENSE).to_sparse(1)
    assert half.sparse_dim() == 1 and half.values().shape == (2, 3)


def test_arithmetic():
    s, d = make(), wrap(DENSE)
    for found, expected in (
        (s + s, 2 * DENSE),
        (s * 2, 2 * DENSE),
        (2 * s, 2 * DENSE),
        (s / 2, DENSE / 2),
        (-s, -DENSE),
        (s - s, 0 * DENSE),
        (s * s, DENSE**2),
        (s * d, DENSE**2),
        (s.t(), DENSE.T),
    ):
        assert found.is_sparse
        np.testing.assert_array_equal(found.to_dense().numpy(), expected)
    np.testing.assert_array_equal((d + s).numpy(), 2 * DENSE)
    np.testing.assert_array_equal((d - s).numpy(), 0 * DENSE)
    with pytest.raises(RuntimeError, match=r"add\(sparse, dense\) is not supported"):
        s + d
    assert s.double().dtype is engine.float64 and s.float().dtype is engine.float32


@pytest.mark.parametrize("form", ["sparse.mm", "method", "operator", "reflected", "vector"])
def test_products_and_their_gradients(form):
    values = wrap(np.array([3.0, 4, 5, 6])).requires_grad_()
    dense = wrap(np.arange(6.0).reshape(3, 2)).requires_grad_()
    calls = {
        "sparse.mm": lambda v, d: sparse.mm(make(v), d),
        "method": lambda v, d: make(v).mm(d),
        "operator": lambda v, d: make(v) @ d,
        "reflected": lambda v, d: d @ make(v),
        "vector": lambda v, d: make(v) @ d[:, 0],
    }
    found = calls[form](values, dense)
    expected = {"reflected": dense._array @ DENSE, "vector": DENSE @ dense._array[:, 0]}
    np.testing.assert_allclose(found.detach().numpy(), expected.get(form, DENSE @ dense._array))
    assert gradcheck(calls[form], (values, dense))


def test_gradients_of_the_values():
    values = wrap(np.array([3.0, 4, 5, 6])).requires_grad_()
    for call in (
        lambda v: make(v).to_dense(),
        lambda v: make(v).coalesce().values(),
        lambda v: sparse.sum(make(v)),
        lambda v: sparse.sum(make(v), 0).to_dense(),
        lambda v: sparse.softmax(make(v), 1).to_dense(),
        lambda v: sparse.log_softmax(make(v), 0).to_dense(),
    ):
        assert gradcheck(call, (values,))


def test_data_takes_another_sparse_tensor():
    s, other = engine.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,)), engine.sparse_coo_tensor([[2]], [5.0], (4,))
    before, version = s.data, s._version
    s.data = other
    assert s._indices().tolist() == [[2]] and s.shape == (4,) and s._version == version and before._nnz() == 2
    leaf = engine.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,)).requires_grad_()
    leaf.data = other
    assert leaf.requires_grad and leaf.is_leaf and leaf._nnz() == 1 and not other.requires_grad
    for tensor, source in ((s, engine.ones(4)), (engine.ones(4), s)):
        with pytest.raises(RuntimeError, match="`variable` and `tensor` have incompatible tensor type"):
            tensor.data = source


def test_a_sparse_leaf_has_a_sparse_gradient():
    s = engine.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), requires_grad=True)
    assert s.is_leaf and s.requires_grad
    sparse.mm(s, wrap(np.ones((3, 2), "float32"))).sum().backward()
    assert s.grad.is_sparse
    assert s.grad.coalesce().values().tolist() == [2, 2]


def test_softmax_runs_over_the_elements_present():
    s = engine.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4, 5], (2, 3))
    np.testing.assert_allclose(sparse.softmax(s, 1).values().numpy(), [1, 1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-6)


def test_building_errors():
    with pytest.raises(RuntimeError, match="indices and values must have same nnz"):
        engine.sparse_coo_tensor(INDICES, [1.0, 2.0], (2, 3))
    with pytest.raises(RuntimeError, match=r"'len\(size\) == sparse_dim \+ dense_dim' is not satisfied"):
        engine.sparse_coo_tensor(INDICES, [1.0, 2, 3, 4], (2,))
    with pytest.raises(RuntimeError, match="for dim 1, size is 2 but found index 2"):
        engine.sparse_coo_tensor(INDICES, [1.0, 2, 3, 4], (2, 2), check_invariants=True)
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        engine.sparse_coo_tensor(INDICES, [1.0, 2, 3, 4], (2, 2)).to_dense()
    assert engine.sparse_coo_tensor(INDICES, [1.0, 2, 3, 4]).shape == (2, 3)
    assert engine.sparse_coo_tensor((2, 3))._nnz() == 0


def test_repr_pickle_and_diagonals():
    import copy
    import pickle

    s = engine.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3))
    text = repr(s)
    assert text.startswith(
        "tensor(indices=tensor([[0, 1],\n                       [2, 0]]),\n       values=tensor([1., 2.]),"
    )
    assert text.endswith("size=(2, 3), nnz=2, layout=torch.sparse_coo)")
    for other in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), s.clone()):
        np.testing.assert_array_equal(other.to_dense().numpy(), s.to_dense().numpy())
    d = sparse.spdiags(wrap(np.array([[1.0, 2, 3], [4, 5, 6]])), wrap(np.array([0, 1])), (3, 3))
    np.testing.assert_array_equal(d.to_dense().numpy(), [[1, 5, 0], [0, 2, 6], [0, 0, 3]])


def test_products_that_stay_sparse() -> None:
    """Numbers of PyTorch."""
    s = engine.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (3, 3))
    rows = engine.hspmm(s, engine.ones(3, 2))
    assert (rows.sparse_dim(), rows.dense_dim(), rows._nnz()) == (1, 1, 2)
    assert rows.to_dense().tolist() == [[3, 3], [9, 9], [0, 0]]
    product = engine.smm(s, engine.ones(3, 2))
    assert product.coalesce().indices().tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert product.coalesce().values().tolist() == [3, 3, 9, 9]
    more = engine.sparse_coo_tensor([[0], [1]], [1.0], (3, 2))
    total = engine.sspaddmm(more, s, engine.ones(3, 2), beta=2, alpha=3)
    assert total.to_dense().tolist() == [[9, 11], [27, 27], [0, 0]]


def test_functions_take_sparse_tensors():
    """What is written `torch.f(sparse, ...)` gives what the method or the dense tensor gives."""
    s, d, other = make(), wrap(DENSE), engine.arange(12.0, dtype=engine.float64).view(3, 4)
    for found, expected in (
        (engine.mm(s, other), d @ other),
        (engine.matmul(s, other), d @ other),
        (engine.mv(s, other[:, 0]), d @ other[:, 0]),
        (engine.mm(other.t(), s.t()), other.t() @ d.t()),
        (engine.addmm(engine.ones(2, 4, dtype=engine.float64), s, other, beta=2), 2 + d @ other),
        (engine.add(d, s, alpha=2), 3 * d),
        (engine.add(s, s, alpha=2), 3 * d),
        (engine.sub(d, s), 0 * d),
        (engine.mul(s, 2.0), 2 * d),
        (engine.mul(d, s), d * d),
        (engine.sum(s), d.sum()),
        (engine.tanh(s), d.tanh()),
        (engine.abs(-s), d.abs()),
        (engine.transpose(s, 0, 1), d.t()),
        (engine.cat([s, s], 1), engine.cat([d, d], 1)),
        (engine.zeros_like(s), engine.zeros_like(d)),
        (s.mT, d.mT),
        (s.permute(1, 0), d.t()),
        (s.unsqueeze(1), d.unsqueeze(1)),
        (s.data, d),
        (d.clone().add_(s, alpha=-1), 0 * d),
        (d.clone().sub_(s), 0 * d),
    ):
        np.testing.assert_allclose(found.to_dense().numpy(), expected.numpy())
    with pytest.raises(NotImplementedError, match="sparse_coo"):
        engine.exp(s)
    with pytest.raises(RuntimeError, match="a dense tensor was found"):
        engine.cat([s, d])


def test_products_of_a_batch():
    at = engine.tensor([[0, 1, 1], [0, 1, 0], [2, 0, 1]])
    s = engine.sparse_coo_tensor(at, engine.tensor([1.0, 2, 3], dtype=engine.float64), (2, 2, 3))
    d = engine.arange(12.0, dtype=engine.float64).view(2, 3, 2)
    assert engine.equal(engine.bmm(s, d), s.to_dense() @ d)
    with pytest.raises(RuntimeError, match=r"Expected dims \(0, 1\) of size \(2, 3\), got \(3, 2\)"):
        engine.bmm(s, d.transpose(0, 1))


def test_dims_in_another_order():
    at = engine.tensor([[0, 1, 1], [0, 1, 0], [2, 0, 1]])
    s = engine.sparse_coo_tensor(at, engine.arange(12.0).view(3, 2, 2), (2, 2, 3, 2, 2))
    d = s.to_dense()
    assert engine.equal(s.permute(2, 0, 1, 4, 3).to_dense(), d.permute(2, 0, 1, 4, 3))
    for k in range(6):
        assert engine.equal(s.unsqueeze(k).to_dense(), d.unsqueeze(k))
        assert s.unsqueeze(k).sparse_dim() == (4 if k <= 3 else 3)
    with pytest.raises(RuntimeError, match="sparse and dense dims among each other"):
        s.permute(3, 0, 1, 2, 4)
    with pytest.raises(RuntimeError, match="each once"):
        s.permute(0, 0, 1, 2, 3)


class Product(engine.autograd.Function):
    @staticmethod
    def forward(ctx, matrix, dense, how):
        ctx.save_for_backward(matrix, dense)
        ctx.how = how
        return engine.mm(matrix, dense)

    @staticmethod
    def backward(ctx, grad):
        matrix, dense = ctx.saved_tensors
        of_matrix = grad @ dense.t()
        if ctx.how == "sparse":
            of_matrix = of_matrix.sparse_mask(matrix)
        return None if ctx.how == "none" else of_matrix, engine.mm(matrix.mT, grad), None


@pytest.mark.parametrize("how", ["dense", "sparse", "none"])
def test_a_function_of_a_users_takes_sparse_tensors(how):
    """Gradients of a sparse argument, dense or sparse, come to its values; functions of it run in backward too."""
    values = engine.tensor([3.0, 4, 5, 6], dtype=engine.float64, requires_grad=True)
    dense = engine.arange(12.0, dtype=engine.float64).view(3, 4).requires_grad_()
    weight = engine.arange(8.0, dtype=engine.float64).view(2, 4)
    found = Product.apply(engine.sparse_coo_tensor(INDICES, values, (2, 3)), dense, how)
    (found * weight).sum().backward()
    got = values.grad, dense.grad
    values.grad = dense.grad = None
    wanted = engine.sparse_coo_tensor(INDICES, values, (2, 3)).to_dense() @ dense
    assert engine.equal(found, wanted)
    (wanted * weight).sum().backward()
    assert got[0] is None if how == "none" else engine.equal(got[0], values.grad)
    assert engine.equal(got[1], dense.grad)
    assert Product.apply(make(), dense.detach(), how).grad_fn is None


@pytest.mark.parametrize("size", [(3, 3), (2, 4), (2,)], ids=str)
def test_gradients_of_sparse_arguments_have_their_sizes(size):
    class Wrong(Product):
        @staticmethod
        def backward(ctx, grad):
            return engine.ones(size), None, None

    values = engine.ones(4, dtype=engine.float64, requires_grad=True)
    found = Wrong.apply(engine.sparse_coo_tensor(INDICES, values, (2, 3)), engine.ones(3, 1, dtype=engine.float64), "")
    with pytest.raises(RuntimeError, match=r"WrongBackward returned an invalid gradient at index 0 - got \["):
        found.sum().backward()


def test_gradients_of_sparse_arguments_have_their_type():
    class Narrow(Product):
        @staticmethod
        def backward(ctx, grad):
            return engine.ones(2, 3, dtype=engine.float32), None, None

    values = engine.ones(4, dtype=engine.float64, requires_grad=True)
    Narrow.apply(engine.sparse_coo_tensor(INDICES, values, (2, 3)), engine.ones(3, 1).double(), "").sum().backward()
    assert values.grad.dtype is engine.float64


def test_functions_that_have_nothing_for_sparse_tensors_are_not_listened_to():
    """A model that keeps one sparse buffer (Whisper) runs as fast as one without."""
    code = (
        "import engine; from engine.dispatch import overriding\ns = engine.eye(2).to_sparse(); y = engine.mm(s, "
        "engine.ones(2, 2)); y.add(s); engine.nn.functional.gelu(y)\nf = "
        "engine.nn.functional.gelu\nprint(overriding.listening[0], overriding.plain(f) is f, "
        "overriding.plain(engine.mm) is engine.mm)\nclass Mine(engine.Tensor): "
        "pass\nengine.ones(2).as_subclass(Mine)\nprint(overriding.listening[0], overriding.plain(f) is f, "
        "y.add(s).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["False True False", "True False tensor(6.)"], done.stderr


def test_autograd_grad_by_a_sparse_matrix() -> None:
    other = engine.arange(6.0).view(3, 2).requires_grad_()
    for convert in ("to_sparse", "to_sparse_csr"):
        x = getattr(engine.tensor([[0.0, 2, 0], [1, 0, 3]]), convert)().requires_grad_()
        found, dense = engine.autograd.grad(engine.sparse.mm(x, other).sum(), (x, other))
        assert found.layout is x.layout
        assert found.to_dense().tolist() == [[0, 5, 0], [1, 0, 9]] and dense.tolist() == [[1, 1], [2, 2], [3, 3]]
    twice = engine.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3)).requires_grad_()
    (found,) = engine.autograd.grad(engine.sparse.mm(twice, other).sum(), twice)
    assert found.to_dense().tolist() == [[0, 5, 0], [0, 0, 0]]


def test_sampled_addmm_into_another_layout() -> None:
    x = engine.eye(2).to_sparse_csr()
    with pytest.raises(RuntimeError, match=r"Expected result to have the layout torch.sparse_csr of the input"):
        engine.sparse.sampled_addmm(x, engine.ones(2, 2), engine.ones(2, 2), out=engine.empty(2, 2))


def test_spsolve() -> None:
    pytest.importorskip("scipy")
    a = engine.tensor([[2.0, 0, 1], [0, 3, 0], [0, 1, 4]], dtype=engine.float64)
    b = engine.tensor([1.0, 2, 3], dtype=engine.float64)
    x = engine.sparse.spsolve(a.to_sparse_csr(), b)
    engine.testing.assert_close(a @ x, b)
    for args, text in (
        ((a.to_sparse(), b), "expects a matrix of the layout torch.sparse_csr"),
        ((a.to_sparse_csr(), b[:2]), "expects a square matrix and a vector of its size and dtype"),
        ((a.to_sparse_csr(), b.float()), "expects a square matrix and a vector of its size and dtype"),
        ((a.to_sparse_csr(), b.clone().requires_grad_()), "has no derivative"),
    ):
        with pytest.raises(RuntimeError, match=text):
            engine.sparse.spsolve(*args)


def test_products_that_are_listened_to_do_not_call_themselves() -> None:
    """`torch.spmm` is among the functions that a handler sees once it was looked up; it runs the method's code."""
    code = """if 1:
        import engine.torch_alias
        engine.torch_alias.install()
        import torch
        torch.spmm, torch.hspmm, torch.saddmm

        class Seen(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return super().__torch_function__(func, types, args, kwargs)

        torch.ones(1).as_subclass(Seen)
        x, y = torch.tensor([[0.0, 2, 0], [1, 0, 3]]), torch.arange(6.0).view(3, 2)
        for sparse in (x.to_sparse(), x.to_sparse_csr()):
            for found in (torch.sparse.mm(sparse, y), torch.spmm(sparse, y), sparse @ y, torch.mm(sparse, y)):
                assert found.tolist() == (x @ y).tolist()
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_written_sparse_result_cannot_be_differentiated() -> None:
    x = engine.ones(2, 2, requires_grad=True)
    made = (x * 2).to_sparse()
    dense = made.to_dense()
    with engine.no_grad():
        made.detach().copy_(made.detach().clone())  # the same memory and version
    assert made._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        dense.sum().backward()
