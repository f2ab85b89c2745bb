"""torch.linalg's functions against numpy.linalg."""

from __future__ import annotations

import math

import numpy as np
import pytest

import engine
import engine.linalg as L
from engine.autograd.gradcheck import gradcheck
from engine.tensor import wrap

rng = np.random.default_rng(0)


def test_every_name_is_there_and_has_a_docstring():
    for name in L.__all__:
        assert getattr(L, name).__doc__, name


ORDERS = [2, 1, 0, 3, 0.5, 1.5, -1, math.inf, -math.inf]


@pytest.mark.parametrize("ord", ORDERS)
@pytest.mark.parametrize("dim", [None, 1, (0, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_vector_norm(ord, dim, keepdim):
    x = rng.standard_normal((2, 3, 4))
    found = L.vector_norm(wrap(x), ord, dim, keepdim).numpy()
    axes = (0, 1, 2) if dim is None else (dim,) if isinstance(dim, int) else dim
    moved = np.moveaxis(x, axes, range(len(axes))).reshape(-1, *[s for i, s in enumerate(x.shape) if i not in axes])
    expected = np.apply_along_axis(lambda v: np.linalg.norm(v, ord), 0, moved)
    np.testing.assert_allclose(found.squeeze(), expected.squeeze())
    assert found.ndim == (3 if keepdim else 3 - len(axes))


@pytest.mark.parametrize("ord", [2, 1, 3, 1.5, 0.5, math.inf, -math.inf])
def test_vector_norm_has_gradient_0_at_0(ord):
    x = wrap(np.zeros(3)).requires_grad_()
    L.vector_norm(x, ord).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros(3))


@pytest.mark.parametrize("ord", ["fro", "nuc", 2, -2, 1, -1, math.inf, -math.inf])
def test_matrix_norm_and_cond(ord):
    x = rng.standard_normal((3, 3))
    np.testing.assert_allclose(L.matrix_norm(wrap(x), ord).item(), np.linalg.norm(x, ord))
    np.testing.assert_allclose(L.norm(wrap(x), ord).item(), np.linalg.norm(x, ord))
    np.testing.assert_allclose(L.cond(wrap(x), ord).item(), np.linalg.cond(x, ord))
    batch = rng.standard_normal((2, 3, 4))
    moved = L.matrix_norm(wrap(batch), ord, dim=(2, 0), keepdim=True)
    assert moved.shape == (1, 3, 1)
    np.testing.assert_allclose(moved.numpy()[0, :, 0], [np.linalg.norm(batch[:, i].T, ord) for i in range(3)])
    leaf = wrap(x).requires_grad_()
    assert gradcheck(lambda a: L.matrix_norm(a, ord), (leaf,), fast_mode=True)


def test_products():
    a, b = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    np.testing.assert_allclose(L.vecdot(wrap(a), wrap(b)).numpy(), (a * b).sum(-1))
    np.testing.assert_allclose(L.cross(wrap(a), wrap(b)).numpy(), np.cross(a, b))
    np.testing.assert_allclose(L.vander(wrap(a[0]), 4).numpy(), np.vander(a[0], 4, increasing=True))
    np.testing.assert_allclose(L.matmul(wrap(a), wrap(b.T)).numpy(), a @ b.T)
    assert L.diagonal(wrap(a))._base is not None


def test_tensor_equations():
    a = rng.standard_normal((2, 3, 6))
    x = L.tensorsolve(wrap(a), wrap(a[..., 0]))
    np.testing.assert_allclose(x.numpy(), np.linalg.tensorsolve(a, a[..., 0]), atol=1e-10)
    np.testing.assert_allclose(L.tensorinv(wrap(a)).numpy(), np.linalg.tensorinv(a), atol=1e-10)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)], ids=str)
def test_pinv_and_rank(shape):
    a = rng.standard_normal(shape)
    np.testing.assert_allclose(L.pinv(wrap(a)).numpy(), np.linalg.pinv(a), atol=1e-10)
    low = a[..., :1] @ a[..., :1, :]
    np.testing.assert_array_equal(L.matrix_rank(wrap(low)).numpy(), np.linalg.matrix_rank(low))
    np.testing.assert_allclose(L.pinv(wrap(low)).numpy(), np.linalg.pinv(low, rcond=1e-12), atol=1e-8)
    assert L.matrix_rank(wrap(a), atol=100.0).sum().item() == 0


def test_out():
    a = rng.standard_normal((2, 2)) + 3 * np.eye(2)
    out = wrap(np.empty((2, 2)))
    for function in (L.inv, L.matrix_exp if False else L.cholesky):
        source = wrap(a @ a.T)
        assert function(source, out=out) is out
    values, vectors = wrap(np.empty(0)), wrap(np.empty(0))
    L.eigh(wrap(a @ a.T), out=(values, vectors))
    assert values.shape == (2,) and vectors.shape == (2, 2)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        L.inv(wrap(a).requires_grad_(), out=out)


def test_results_are_named():
    a = wrap(np.eye(2))
    assert L.slogdet(a).logabsdet.item() == 0
    assert L.svd(a).S.tolist() == [1, 1]
    assert L.lu_factor_ex(a).info.item() == 0
    assert engine.qr(a).R.shape == (2, 2)
    assert type(engine.slogdet(a)).__name__ == "slogdet"
    assert type(L.slogdet(a)).__name__ == "linalg_slogdet"


def test_names_of_torchs_parser_and_of_its_documents() -> None:
    """torch 2.13 itself takes `input=`, and `b=` of lstsq, where its documents say A and B."""
    A = engine.tensor([[2.0, 1.0], [1.0, 3.0]])
    for name in ("cholesky", "cond", "eigvalsh", "matrix_exp", "matrix_norm", "matrix_rank", "norm", "pinv"):
        function = getattr(engine.linalg, name)
        assert engine.equal(function(input=A), function(A)) and engine.equal(function(A=A), function(A))
    assert engine.linalg.vector_norm(input=A) == engine.linalg.vector_norm(x=A)
    assert engine.equal(engine.linalg.lstsq(input=A, b=A).solution, engine.linalg.lstsq(A=A, B=A).solution)
    assert engine.equal(engine.linalg.tensorsolve(input=A, other=A[0]), engine.linalg.tensorsolve(A, B=A[0]))
    assert engine.equal(engine.linalg.matrix_power(input=A, n=2), A @ A)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'A'"):
        engine.linalg.cond(p=2)
    with pytest.raises(TypeError, match=r"linalg_lstsq\(\): argument 'b' \(position 2\) must be Tensor, not int"):
        engine.linalg.lstsq(A, 3)
