"""The regularized incomplete gamma functions: a series, a continued fraction, Temme's expansion."""

from __future__ import annotations

import functools
import math
from typing import Any

from engine.dispatch import derivative, op, samples
from engine.ops.special.erf import erfc_of, horner
from engine.ops.special.gamma import lgamma, lgamma_of
from engine.tensor import Tensor


def _lower_series(xp: Any, a: Any, x: Any, steps: int) -> Any:
    """P(a, x) by its series, for x < a + 1."""
    term = xp.ones_like(x)
    total = xp.ones_like(x)
    for k in range(1, steps):
        term = term * x / (a + k)
        total = total + term
    return total / a


def _upper_fraction(xp: Any, a: Any, x: Any, steps: int) -> Any:
    """Gamma(a, x) e^x x^-a by its continued fraction (Lentz), for x > a + 1."""
    b = x + 1 - a
    c = xp.full_like(x, 1e300)
    d = 1 / b
    h = d
    for k in range(1, steps):
        an = -k * (k - a)
        b = b + 2
        d = 1 / (an * d + b)
        c = b + an / c
        h = h * d * c
    return h


_LARGE_A = 200.0  # from which Temme's expansion is good to some 1e-15


@functools.cache
def _temme() -> list[list[float]]:
    """The Taylor coefficients in eta of the functions C_k of Temme's expansion (DLMF 8.12.9 to 8.12.12)."""
    from fractions import Fraction  # with decimal: 3 ms at start-up, for what few programs compute

    stirling = (
        1,
        Fraction(1, 12),
        Fraction(1, 288),
        Fraction(-139, 51840),
        Fraction(-571, 2488320),
        Fraction(163879, 209018880),
    )
    terms = 56
    alpha = [Fraction(0), Fraction(1), Fraction(1, 3)]
    for n in range(3, terms + 16):
        known = sum((j * alpha[j] * alpha[n - j + 1] for j in range(2, n)), Fraction(0))
        alpha.append(((alpha[n - 1] - known) / (n + 1)).limit_denominator(10**40))
    first = [(n + 2) * alpha[n + 2] - (n == 0) for n in range(terms + 12)]
    rows = [first]
    for k in range(1, len(stirling)):
        before, g = rows[-1], stirling[k] * (-1) ** k
        rows.append([g * first[n] + (n + 2) * before[n + 2] for n in range(len(before) - 2)])
    return [[float(c) for c in row[:terms]] for row in rows]


def _uniform(xp: Any, a: Any, slope: Any, upper: bool) -> Any:
    """P or Q(a, a (1 + slope)) for large `a`, by Temme's uniform expansion: no more steps for larger ones."""
    small = xp.abs(slope) < 0.1
    s = xp.where(small, slope, 0.0)
    series = horner(s, [(-1) ** k / (k + 2) for k in range(18)]) * s * s  # slope - log(1 + slope) without cancellation
    half = xp.where(small, series, slope - xp.log1p(slope))
    eta = xp.sign(slope) * xp.sqrt(2 * half)
    rest = xp.zeros_like(a)
    for row in reversed(_temme()):
        rest = rest / a + horner(eta, row)
    rest = rest * xp.exp(-a * half) / xp.sqrt(2 * math.pi * a)
    side = eta * xp.sqrt(a / 2)
    return 0.5 * erfc_of(xp, side) + rest if upper else 0.5 * erfc_of(xp, -side) - rest


def _incomplete(xp: Any, a: Any, x: Any, upper: bool) -> Any:
    kind = (a if hasattr(a, "dtype") else x).dtype
    a, x = xp.broadcast_arrays(xp.asarray(a).astype("float64"), xp.asarray(x).astype("float64"))
    plain = (a > 0) & (x > 0) & xp.isfinite(a) & xp.isfinite(x)
    slope = xp.where(plain, (x - a) / xp.where(plain, a, 1.0), 0.0)
    near = plain & (a > _LARGE_A) & (slope > -0.8) & (slope < 2.0)
    safe_a = xp.where(plain & ~near, a, 1.0)
    safe_x = xp.where(plain & ~near, x, 1.0)
    middle = xp.minimum(safe_a, _LARGE_A)  # beyond it only places where both converge at once are left
    steps = 100 + int(12 * math.sqrt(float(middle.max()))) if a.size else 1
    series_side = safe_x < safe_a + 1
    front = xp.exp(safe_a * xp.log(safe_x) - safe_x - lgamma_of(xp, safe_a))
    inner_x = xp.where(series_side, safe_x, safe_a)
    lower = front * _lower_series(xp, safe_a, xp.minimum(inner_x, safe_a + 1), steps)
    outer_x = xp.maximum(safe_x, safe_a + 1)
    above = front * _upper_fraction(xp, safe_a, outer_x, steps)
    found = xp.where(series_side, 1 - lower, above) if upper else xp.where(series_side, lower, 1 - above)
    found = xp.where(near, _uniform(xp, xp.where(near, a, 1e3), xp.where(near, slope, 0.0), upper), found)
    at_zero, at_infinity = (1.0, 0.0) if upper else (0.0, 1.0)
    found = xp.where((x == 0) | (a == math.inf), at_zero, found)
    found = xp.where((a == 0) | (x == math.inf), at_infinity, found)
    bad = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))
    bad |= ((a != a) & (x != math.inf)) | ((x != x) & (a != math.inf))
    return xp.where(bad, math.nan, found).astype(kind)


def _gamma_density(grad: Tensor, input: Any, other: Tensor) -> Tensor:
    logs = lgamma(input) if isinstance(input, Tensor) else math.lgamma(input)
    return grad * (-other - logs + (input - 1) * other.log()).exp()


@op(broadcast=True, inplace=True, method=False, names=("igamma",), numbers=(), refuse="iubc", label="igamma_cpu")
@derivative(other=_gamma_density)
@samples(lambda t: [(t.constant(t.positive(3, 4)), t.positive(3, 4)), (t.of(2.5), t.positive(3))])
def special_gammainc(xp, input, other):
    """The regularized lower incomplete gamma function P(input, other).

    input (*a), other (*b) -> (broadcast of a and b).
    """
    return _incomplete(xp, input, other, False)


@op(broadcast=True, inplace=True, method=False, names=("igammac",), numbers=(), refuse="iubc", label="igammac_cpu")
@derivative(other=lambda grad, input, other: _gamma_density(-grad, input, other))
@samples(lambda t: [(t.constant(t.positive(3, 4)), t.positive(3, 4)), (t.of(2.5), t.positive(3))])
def special_gammaincc(xp, input, other):
    """The regularized upper incomplete gamma function Q(input, other).

    input (*a), other (*b) -> (broadcast of a and b).
    """
    return _incomplete(xp, input, other, True)


Tensor.igamma = special_gammainc  # type: ignore[attr-defined]
Tensor.igammac = special_gammaincc  # type: ignore[attr-defined]
Tensor.igamma_ = special_gammainc.op.inplace_function  # type: ignore[attr-defined]
Tensor.igammac_ = special_gammaincc.op.inplace_function  # type: ignore[attr-defined]
