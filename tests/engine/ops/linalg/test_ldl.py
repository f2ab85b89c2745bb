"""`linalg.ldl_factor`, `ldl_factor_ex` and `ldl_solve`, by scipy's LAPACK."""

from __future__ import annotations

import pytest

import engine

pytest.importorskip("scipy")
L = engine.linalg
A = engine.tensor([[1.0, 2, 3, 4], [2, 0, 1, 5], [3, 1, 0, 2], [4, 5, 2, 0]], dtype=engine.float64)


def test_the_numbers_of_torch() -> None:
    found = L.ldl_factor(engine.tensor([[4.0, 1, 2], [1, 3, 0], [2, 0, -1]], dtype=engine.float64))
    assert found.pivots.tolist() == [1, 2, 3] and found.pivots.dtype is engine.int32
    want = [[4.0, 0, 0], [0.25, 2.75, 0], [0.5, -2 / 11, -23 / 11]]
    assert engine.allclose(found.LD, engine.tensor(want, dtype=engine.float64))
    assert L.ldl_factor(A).pivots.tolist() == [-4, -4, 3, 4]


@pytest.mark.parametrize("hermitian", [False, True])
def test_solves(hermitian: bool) -> None:
    a = engine.complex(A, (engine.ones_like(A).tril(-1) - engine.ones_like(A).triu(1)) * hermitian)
    a = engine.stack([a, a + engine.eye(4)])
    b = engine.arange(24.0).reshape(2, 4, 3).to(a.dtype)
    factors = L.ldl_factor(a, hermitian=hermitian)
    assert engine.allclose(a @ L.ldl_solve(factors.LD, factors.pivots, b, hermitian=hermitian), b)


def test_empty_and_refused() -> None:
    assert tuple(L.ldl_factor(engine.zeros(0, 2, 2)).pivots.shape) == (0, 2)
    assert tuple(L.ldl_factor(engine.zeros(0, 0)).LD.shape) == (0, 0)
    assert L.ldl_factor_ex(engine.zeros(2, 2)).info.item() == 1
    with pytest.raises(RuntimeError, match="cannot be inverted"):
        L.ldl_factor(engine.zeros(2, 2))
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        L.ldl_factor(engine.zeros(2))
    with pytest.raises(RuntimeError, match="each A matrix is 4 by 4 but each b matrix is 2 by 1"):
        L.ldl_solve(*L.ldl_factor(A), engine.zeros(2, 1, dtype=engine.float64))


def test_without_scipy_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.linalg", None)
    with pytest.raises(ImportError, match="hint: pip install scipy"):
        L.ldl_factor(A)
