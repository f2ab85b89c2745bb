"""LAPACK ops against numpy and scipy: factors multiply back, blocks beyond one panel, singular input, old names."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.linalg

import engine
import engine.linalg as L
from engine.autograd.gradcheck import gradcheck, gradgradcheck
from engine.tensor import wrap

rng = np.random.default_rng(0)


def leaf(*shape, dtype="float64"):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return wrap(values.astype(dtype)).requires_grad_()


def hermitian(x):
    return x + x.transpose(-2, -1).conj()


def positive(x):
    return x @ x.transpose(-2, -1).conj() + wrap(np.eye(x.shape[-1]))


SHAPES = [(3, 3), (2, 3, 3), (70, 70), (2, 40, 70), (70, 40), (0, 3), (3, 0), (2, 0, 0)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_lu_multiplies_back_with_lapacks_pivots(shape, dtype):
    x = leaf(*shape, dtype=dtype).detach()
    tolerance = 1e-4 if dtype == "float32" else 1e-10
    P, Lo, U = L.lu(x)
    np.testing.assert_allclose((P @ Lo @ U).numpy(), x.numpy(), atol=tolerance)
    if len(shape) == 2 and min(shape):
        packed, pivots = scipy.linalg.lu_factor(x.numpy())
        found = L.lu_factor(x)
        np.testing.assert_array_equal(found.pivots.numpy(), pivots + 1)
        np.testing.assert_allclose(found.LU.numpy(), packed, atol=tolerance)
        assert found.pivots.dtype is engine.int32


@pytest.mark.parametrize("n", [1, 31, 33, 100])
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve_is_scipys(n, upper, unit):
    a = rng.standard_normal((n, n)) * 0.1 + np.eye(n)
    b = rng.standard_normal((n, 4))
    expected = scipy.linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unit)
    found = L.solve_triangular(wrap(a), wrap(b), upper=upper, unitriangular=unit)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-8, atol=1e-8)
    right = L.solve_triangular(wrap(a), wrap(b.T), upper=upper, unitriangular=unit, left=False)
    expected = scipy.linalg.solve_triangular(a.T, b, lower=upper, unit_diagonal=unit).T
    np.testing.assert_allclose(right.numpy(), expected, rtol=1e-8, atol=1e-8)


def test_singular_input_is_torchs_error_not_numpys():
    one = wrap(np.ones((2, 2)))
    with pytest.raises(L.LinAlgError, match="The diagonal element 2 is zero") as caught:
        engine.inverse(one)
    assert isinstance(caught.value, RuntimeError)
    assert not isinstance(caught.value, np.linalg.LinAlgError)
    batch = wrap(np.stack([np.eye(2), np.ones((2, 2))]))
    with pytest.raises(L.LinAlgError, match=r"\(Batch element 1\)"):
        L.solve(batch, batch)
    with pytest.raises(L.LinAlgError, match=r"\(Batch element 1\).*leading minor of order 2"):
        L.cholesky(batch)
    found, info = L.inv_ex(batch)
    assert info.tolist() == [0, 2]
    np.testing.assert_array_equal(found.numpy()[0], np.eye(2))
    assert L.cholesky_ex(batch).info.tolist() == [0, 2]
    assert L.solve_ex(batch, batch).info.tolist() == [0, 2]
    assert L.lu_factor_ex(batch).info.tolist() == [0, 2]


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_gradient_of_det_holds_for_singular_matrices(rank):
    x = wrap(rng.standard_normal((3, rank)) @ rng.standard_normal((rank, 3))).requires_grad_()
    L.det(x).backward()
    cofactors = np.array(
        [
            [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x._array, i, 0), j, 1)) for j in range(3)]
            for i in range(3)
        ]
    )
    np.testing.assert_allclose(x.grad.numpy(), cofactors, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    "name, function",
    [
        ("cholesky", lambda x: L.cholesky(positive(x))),
        ("cholesky upper", lambda x: L.cholesky(positive(x), upper=True)),
        ("cholesky_ex", lambda x: L.cholesky_ex(positive(x)).L),
        ("eigh", lambda x: L.eigh(hermitian(x)).eigenvalues),
        ("eigh vectors", lambda x: L.eigh(hermitian(x)).eigenvectors.abs()),
        ("eigvalsh", lambda x: L.eigvalsh(hermitian(x))),
        ("eigvals", lambda x: (L.eigvals(x) ** 2).sum()),
        ("eig", lambda x: L.eig(x).eigenvectors.abs().sum()),
        ("svd U", lambda x: L.svd(x).U.abs()),
        ("svd Vh", lambda x: L.svd(x[:2], full_matrices=False).Vh.abs()),
        ("svd S", lambda x: L.svd(x[:, :2]).S),
        ("pinv", lambda x: L.pinv(x[:2])),
        ("qr", lambda x: L.qr(x[:, :2])),
        ("qr wide", lambda x: L.qr(x[:2, :2] @ x[:2])),
        ("slogdet", lambda x: L.slogdet(x).logabsdet),
        ("logdet", lambda x: engine.logdet(positive(x)).real),
        ("lu", lambda x: L.lu(x)[1:]),
        ("lu tall", lambda x: L.lu(x[:, :2])[1:]),
        ("lu wide", lambda x: L.lu(x[:2])[1:]),
        ("lu_solve", lambda x: engine.lu_solve(x[:, :1], *engine.lu(x))),
        ("lstsq", lambda x: L.lstsq(x[:, :2], x[:, 2:]).solution),
        ("matrix_exp", L.matrix_exp),
        ("matrix_power", lambda x: L.matrix_power(x, -3)),
        ("cond", lambda x: L.cond(x)),
        ("nuclear norm", lambda x: L.matrix_norm(x, "nuc")),
        ("tensorinv", lambda x: L.tensorinv(x.reshape(3, 1, 3), 2)),
        ("solve vector", lambda x: L.solve(x, x[0])),
    ],
)
def test_gradients(name, function, dtype):
    if dtype == "complex128" and name == "qr wide":
        pytest.skip("Q of a complex wide matrix depends on a phase")
    x = wrap(leaf(3, 3, dtype=dtype).detach()._array + 2 * np.eye(3)).requires_grad_()
    assert gradcheck(function, (x,), fast_mode=True, atol=1e-5)
    assert gradgradcheck(function, (x,), fast_mode=True, atol=1e-4)


def test_svd_refuses_a_loss_that_depends_on_the_phase():
    x = leaf(3, 3, dtype="complex128")
    with pytest.raises(RuntimeError, match="specified up to multiplication by"):
        L.svd(x).U.real.sum().backward()


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3), (2, 4, 2)], ids=str)
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_lstsq(shape, driver):
    a, b = leaf(*shape).detach(), leaf(*shape[:-1], 2).detach()
    found = L.lstsq(a, b, driver=driver)
    np.testing.assert_allclose(found.solution.numpy(), np.linalg.pinv(a._array) @ b._array, atol=1e-9)
    if driver != "gels":
        assert (found.rank.numpy() == min(shape[-2:])).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_matrix_exp_is_scipys(scale):
    a = rng.standard_normal((5, 4, 4)) * np.array([scale, 1, 0.1, 0, 3])[:, None, None]
    expected = np.stack([scipy.linalg.expm(x) for x in a])
    np.testing.assert_allclose(engine.matrix_exp(wrap(a)).numpy(), expected, rtol=1e-9, atol=1e-9)


def test_nan_goes_through_eigh_and_is_refused_by_svd_and_eig():
    bad = wrap(np.stack([np.eye(2), np.full((2, 2), np.nan)]))
    values, vectors = L.eigh(bad)
    assert not np.isnan(values.numpy()[0]).any()
    assert np.isnan(values.numpy()[1]).all() and np.isnan(vectors.numpy()[1]).all()
    with pytest.raises(L.LinAlgError, match=r"\(Batch element 1\).*non-finite"):
        L.svd(bad)
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        L.eig(bad)


def test_householder_products_are_lapacks():
    a = rng.standard_normal((5, 3))
    packed, tau = engine.geqrf(wrap(a))
    q = engine.orgqr(packed, tau)
    np.testing.assert_allclose(q.numpy() @ np.triu(packed.numpy()[:3]), a, atol=1e-12)
    full = np.linalg.qr(a, "complete")[0]
    other = wrap(rng.standard_normal((5, 2)))
    np.testing.assert_allclose(engine.ormqr(packed, tau, other).numpy(), full @ other.numpy(), atol=1e-12)
    np.testing.assert_allclose(
        engine.ormqr(packed, tau, other, transpose=True).numpy(), full.T @ other.numpy(), atol=1e-12
    )
    np.testing.assert_allclose(
        engine.ormqr(packed, tau, other.t(), left=False).numpy(), other.numpy().T @ full, atol=1e-12
    )


class TestOldNames:
    """Names of torch 0.4 to 1.8 that torch 2.13 no longer has, or no longer runs."""

    def test_gesv(self):
        a, b = leaf(3, 3), leaf(3, 2)
        x, lu = engine.gesv(b, a)
        np.testing.assert_allclose((a @ x).detach().numpy(), b.detach().numpy(), atol=1e-10)
        assert lu.shape == (3, 3)
        x.sum().backward()
        assert a.grad is not None and b.grad is not None

    def test_symeig(self):
        a = hermitian(leaf(3, 3)).detach()
        values, vectors = engine.symeig(a, eigenvectors=True)
        np.testing.assert_allclose((a @ vectors).numpy(), (vectors * values).numpy(), atol=1e-10)
        assert a.symeig()[1].numel() == 0

    def test_eig_packs_complex_pairs_as_two_columns(self):
        turn = wrap(np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 2]]))
        values, vectors = engine.eig(turn, eigenvectors=True)
        assert values.shape == (3, 2)
        np.testing.assert_allclose(sorted(values.numpy()[:, 1]), [-1, 0, 1], atol=1e-12)
        i = int(np.argmax(values.numpy()[:, 1] > 0))
        v = vectors.numpy()[:, i] + 1j * vectors.numpy()[:, i + 1]
        np.testing.assert_allclose(turn.numpy() @ v, complex(*values.numpy()[i]) * v, atol=1e-12)

    def test_gels(self):
        a, b = leaf(4, 2).detach(), leaf(4, 1).detach()
        x, _ = engine.gels(b, a)
        assert x.shape == (4, 1)
        expected, residual = np.linalg.lstsq(a.numpy(), b.numpy(), rcond=None)[:2]
        np.testing.assert_allclose(x.numpy()[:2], expected, atol=1e-10)
        np.testing.assert_allclose((x.numpy()[2:] ** 2).sum(), residual[0], atol=1e-10)

    def test_cholesky_family(self):
        a = positive(leaf(3, 3)).detach()
        u = engine.potrf(a)
        np.testing.assert_allclose((u.t() @ u).numpy(), a.numpy(), atol=1e-10)
        np.testing.assert_allclose(engine.potri(u).numpy(), np.linalg.inv(a.numpy()), atol=1e-10)
        b = leaf(3, 2).detach()
        np.testing.assert_allclose(engine.potrs(b, u).numpy(), np.linalg.solve(a.numpy(), b.numpy()), atol=1e-10)
        u, pivot = engine.pstrf(a)
        order = pivot.numpy() - 1
        np.testing.assert_allclose((u.t() @ u).numpy(), a.numpy()[order][:, order], atol=1e-10)

    def test_batched_lu(self):
        a, b = leaf(2, 3, 3).detach(), leaf(2, 3).detach()
        factors, pivots = engine.btrifact(a)
        np.testing.assert_allclose(
            engine.btrisolve(b, factors, pivots).numpy(),
            np.linalg.solve(a.numpy(), b.numpy()[..., None])[..., 0],
        )
        assert engine.btrifact_with_info(a)[2].tolist() == [0, 0]
        P, Lo, U = engine.btriunpack(factors, pivots)
        np.testing.assert_allclose((P @ Lo @ U).numpy(), a.numpy(), atol=1e-12)

    def test_trtrs_and_matrix_rank(self):
        a, b = wrap(np.triu(rng.standard_normal((3, 3))) + 3 * np.eye(3)), leaf(3, 2).detach()
        x, copy = engine.trtrs(b, a)
        np.testing.assert_allclose((a @ x).numpy(), b.numpy(), atol=1e-10)
        assert copy is not a and engine.equal(copy, a)
        x, _ = b.triangular_solve(a, transpose=True)
        np.testing.assert_allclose((a.t() @ x).numpy(), b.numpy(), atol=1e-10)
        assert engine.matrix_rank(wrap(np.ones((3, 3)))).item() == 1

    def test_chain_matmul_warns(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            engine.chain_matmul(leaf(2, 3), leaf(3, 2))
        assert "deprecated" in str(caught[0].message)

    @pytest.mark.parametrize(
        "name",
        ["gesv", "solve", "gels", "lstsq", "symeig", "eig", "trtrs", "potrf", "potri", "potrs", "lu", "btrifact"],
    )
    def test_out(self, name):
        a, b = leaf(3, 3).detach(), leaf(3, 2).detach()
        spd = positive(a)
        arguments = {"symeig": (spd, True), "eig": (a, True), "potrf": (spd,), "potri": (spd,), "lu": (a,)}
        arguments["btrifact"] = (a,)
        call, args = getattr(engine, name), arguments.get(name, (b, spd))
        plain = call(*args)
        parts = plain if isinstance(plain, tuple) else (plain,)
        targets = tuple(engine.empty(0, dtype=p.dtype) for p in parts)
        call(*args, out=targets if isinstance(plain, tuple) else targets[0])
        assert all(engine.equal(p, t) for p, t in zip(parts, targets))
        out = targets if isinstance(plain, tuple) else targets[0]
        if name in ("lu", "btrifact"):  # written in Python in torch: copied, in the graph
            assert call(args[0].clone().requires_grad_(), *args[1:], out=out)[0].requires_grad
            return
        with pytest.raises(RuntimeError, match="arguments don't support automatic differentiation"):
            call(args[0].clone().requires_grad_(), *args[1:], out=out)
