"""The orthogonal polynomials of `torch.special`, by their recurrences.

As in torch they have no gradients, take the integer part of `n`, and are 0 for a negative one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.dispatch import op, samples

_Step = Callable[[Any, int, Any, Any], Any]


def _samples(t):
    return [
        (t.constant(t(3, 4)), 4),
        (t.constant(t(2, 1)), t.of([0, 1, 5])),
        (0.3, t.of([2.7, -1.0])),
        (t.constant(t(0)), 3),
    ]


def _degrees(xp: Any, x: Any, n: Any, first: Callable[[Any], Any], step: _Step) -> Any:
    """p_n(x) for p_0 = 1, p_1 = first(x), p_(k + 1) = step(x, k, p_k, p_(k - 1)).  x (*a), n (*b) -> (broadcast)."""
    kind = next(a.dtype for a in (x, n) if hasattr(a, "ndim"))
    x, n = xp.asarray(x, kind), xp.trunc(xp.asarray(n, kind))
    last = int(n.max()) if n.size else -1
    before, now = xp.ones_like(x), first(x)
    found = xp.where(n == 0, before, 0 * x)  # nan stays nan
    for k in range(1, last + 1):
        found = xp.where(n == k, now, found)
        if k < last:
            before, now = now, step(x, k, now, before)
    return found


def _doubled(x, k, now, before):
    return 2 * x * now - before


def _shifted(x, k, now, before):
    return (4 * x - 2) * now - before


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="chebyshev_polynomial_t_cpu",
)
@samples(_samples)
def special_chebyshev_polynomial_t(xp, input, n):
    """The Chebyshev polynomial of the first kind, of degree `n`.  input (*a), n (*b) -> (broadcast of a and b)."""
    return _degrees(xp, input, n, lambda x: x, _doubled)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="chebyshev_polynomial_u_cpu",
)
@samples(_samples)
def special_chebyshev_polynomial_u(xp, input, n):
    """The Chebyshev polynomial of the second kind, of degree `n`.  input (*a), n (*b) -> (broadcast of a and b)."""
    return _degrees(xp, input, n, lambda x: 2 * x, _doubled)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="chebyshev_polynomial_v_cpu",
)
@samples(_samples)
def special_chebyshev_polynomial_v(xp, input, n):
    """The Chebyshev polynomial of the third kind, of degree `n`.  input (*a), n (*b) -> (broadcast of a and b)."""
    return _degrees(xp, input, n, lambda x: 2 * x - 1, _doubled)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="chebyshev_polynomial_w_cpu",
)
@samples(_samples)
def special_chebyshev_polynomial_w(xp, input, n):
    """The Chebyshev polynomial of the fourth kind, of degree `n`.  input (*a), n (*b) -> (broadcast of a and b)."""
    return _degrees(xp, input, n, lambda x: 2 * x + 1, _doubled)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="shifted_chebyshev_polynomial_t_cpu",
)
@samples(_samples)
def special_shifted_chebyshev_polynomial_t(xp, input, n):
    """The Chebyshev polynomial of the first kind at 2 input - 1, degree `n`.  input (*a), n (*b) -> (broadcast)."""
    return _degrees(xp, input, n, lambda x: 2 * x - 1, _shifted)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="shifted_chebyshev_polynomial_u_cpu",
)
@samples(_samples)
def special_shifted_chebyshev_polynomial_u(xp, input, n):
    """The Chebyshev polynomial of the second kind at 2 input - 1, degree `n`.  input (*a), n (*b) -> (broadcast)."""
    return _degrees(xp, input, n, lambda x: 4 * x - 2, _shifted)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="shifted_chebyshev_polynomial_v_cpu",
)
@samples(_samples)
def special_shifted_chebyshev_polynomial_v(xp, input, n):
    """The Chebyshev polynomial of the third kind at 2 input - 1, degree `n`.  input (*a), n (*b) -> (broadcast)."""
    return _degrees(xp, input, n, lambda x: 4 * x - 3, _shifted)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="shifted_chebyshev_polynomial_w_cpu",
)
@samples(_samples)
def special_shifted_chebyshev_polynomial_w(xp, input, n):
    """The Chebyshev polynomial of the fourth kind at 2 input - 1, degree `n`.  input (*a), n (*b) -> (broadcast)."""
    return _degrees(xp, input, n, lambda x: 4 * x - 1, _shifted)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="hermite_polynomial_h_cpu",
)
@samples(_samples)
def special_hermite_polynomial_h(xp, input, n):
    """The Hermite polynomial of the physicists, of degree `n`.  input (*a), n (*b) -> (broadcast of a and b)."""
    return _degrees(xp, input, n, lambda x: 2 * x, lambda x, k, now, before: 2 * (x * now - k * before))


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="hermite_polynomial_he_cpu",
)
@samples(_samples)
def special_hermite_polynomial_he(xp, input, n):
    """The Hermite polynomial of the probabilists, of degree `n`.  input (*a), n (*b) -> (broadcast of a and b)."""
    return _degrees(xp, input, n, lambda x: x, lambda x, k, now, before: x * now - k * before)


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="laguerre_polynomial_l_cpu",
)
@samples(_samples)
def special_laguerre_polynomial_l(xp, input, n):
    """The Laguerre polynomial, of degree `n`.  input (*a), n (*b) -> (broadcast of a and b)."""
    return _degrees(
        xp,
        input,
        n,
        lambda x: 1 - x,
        lambda x, k, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1),
    )


@op(
    broadcast=True,
    promote="float",
    method=False,
    tensors=("n",),
    refuse="c",
    label="legendre_polynomial_p_cpu",
)
@samples(_samples)
def special_legendre_polynomial_p(xp, input, n):
    """The Legendre polynomial, of degree `n`.  input (*a), n (*b) -> (broadcast of a and b)."""
    return _degrees(
        xp,
        input,
        n,
        lambda x: x,
        lambda x, k, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1),
    )
