"""The orthogonal polynomials against numpy's, and against the angles that define Chebyshev's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre

import engine
from engine import special

X = np.array([-1.7, -1.0, -0.4, 0.0, 0.3, 0.9, 1.0, 2.2])
INSIDE = np.array([-0.8, -0.1, 0.35, 0.99])
VALUES: dict[str, Any] = {
    "chebyshev_polynomial_t": chebyshev.chebval,
    "hermite_polynomial_h": hermite.hermval,
    "hermite_polynomial_he": hermite_e.hermeval,
    "laguerre_polynomial_l": laguerre.lagval,
    "legendre_polynomial_p": legendre.legval,
}
ANGLES: dict[str, Any] = {  # of the angle whose cosine is x
    "t": lambda a, n: np.cos(n * a),
    "u": lambda a, n: np.sin((n + 1) * a) / np.sin(a),
    "v": lambda a, n: np.cos((n + 0.5) * a) / np.cos(a / 2),
    "w": lambda a, n: np.sin((n + 0.5) * a) / np.sin(a / 2),
}


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, n: int) -> None:
    expected = VALUES[name](X, [0] * n + [1])
    np.testing.assert_allclose(getattr(special, name)(engine.tensor(X), n).numpy(), expected, 1e-12)


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("kind", ANGLES)
def test_angles(kind: str, n: int) -> None:
    expected = ANGLES[kind](np.arccos(INSIDE), n)
    found = getattr(special, f"chebyshev_polynomial_{kind}")(engine.tensor(INSIDE), n)
    np.testing.assert_allclose(found.numpy(), expected, 1e-10)
    x = engine.tensor((INSIDE + 1) / 2)
    found = getattr(special, f"shifted_chebyshev_polynomial_{kind}")(x, n)
    np.testing.assert_allclose(found.numpy(), expected, 1e-10)


def test_degrees_broadcast_are_cut_and_are_none_below_zero() -> None:
    n = engine.tensor([-1.0, 0.0, 1.9, 2.0])
    found = special.legendre_polynomial_p(engine.tensor([[0.5], [2.0]]), n)
    assert found.tolist() == [[0, 1, 0.5, -0.125], [0, 1, 2, 5.5]]
    assert special.hermite_polynomial_h(2, engine.tensor([0, 1])).tolist() == [1, 4]
    assert not special.laguerre_polynomial_l(engine.ones(2, requires_grad=True), 2).requires_grad


def test_dtypes_that_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="\"hermite_polynomial_h_cpu\" not implemented for 'ComplexFloat'"):
        special.hermite_polynomial_h(engine.ones(2, dtype=engine.complex64), 2)


def test_bessel_functions_under_their_other_names() -> None:
    x = engine.tensor([0.0, 0.5, -2.0], dtype=engine.float64)
    assert engine.equal(special.modified_bessel_i0(x), special.i0(x))
    assert engine.equal(special.modified_bessel_i1(x), special.i1(x))
    far = engine.tensor([0.0, 1e-3, 2.0, float("inf")], dtype=engine.float64)
    expected = [1.0, 1 - 1e-6 / 6, np.sin(2) / 2, 0.0]
    np.testing.assert_allclose(special.spherical_bessel_j0(far).numpy(), expected, 1e-12)
