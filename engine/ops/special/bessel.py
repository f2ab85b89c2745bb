"""Bessel functions of the first and second kind, modified ones of the second, and Airy's: scipy's."""

from __future__ import annotations

from math import inf, nan
from typing import Any

from engine import backends
from engine.dispatch import op, samples
from engine.ops.pointwise.arithmetic import not_implemented


def _by_scipy(xp: Any, name: str, function: str, x: Any, at_infinity: float) -> Any:
    """scipy.special.`function` of an array, computed on the CPU; at infinity the value that torch gives.

    NotImplementedError for 16-bit floats, as in torch, and ImportError without scipy.
    """
    if x.dtype.itemsize == 2:
        raise not_implemented(f"{name}_cpu", x)
    try:
        from scipy import special
    except ImportError:
        raise ImportError(
            f"special.{name} is computed by scipy, which is not installed\nhint: pip install scipy"
        ) from None
    backend = backends.of_array(x)
    if backend.kind == "meta":
        return xp.empty_like(x)
    here = backend.to_host(x)
    found = getattr(special, function)(here.astype("float64"))
    found = found[0] if function == "airy" else found
    found = xp.asarray(found).astype(x.dtype)
    found = xp.where(x == inf, at_infinity, found)
    return xp.where(x == -inf, nan, found).astype(x.dtype)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="airy_ai_cpu")
@samples(lambda t: [(t.constant(t.uniform(-3, 5, 3, 4)),), (t.constant(t.positive()),)])
def special_airy_ai(xp, input):
    """The Airy function Ai.  input (*) -> (*)."""
    return _by_scipy(xp, "airy_ai", "airy", input, nan)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="bessel_j0_cpu")
@samples(lambda t: [(t.constant(t.uniform(-9, 9, 3, 4)),), (t.constant(t.positive()),)])
def special_bessel_j0(xp, input):
    """The Bessel function of the first kind, of order 0.  input (*) -> (*)."""
    return _by_scipy(xp, "bessel_j0", "j0", input, nan)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="bessel_j1_cpu")
@samples(lambda t: [(t.constant(t.uniform(-9, 9, 3, 4)),), (t.constant(t.positive()),)])
def special_bessel_j1(xp, input):
    """The Bessel function of the first kind, of order 1.  input (*) -> (*)."""
    return _by_scipy(xp, "bessel_j1", "j1", input, nan)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="bessel_y0_cpu")
@samples(lambda t: [(t.constant(t.uniform(0.3, 9, 3, 4)),), (t.constant(t.positive()),)])
def special_bessel_y0(xp, input):
    """The Bessel function of the second kind, of order 0: -inf at 0, nan below.  input (*) -> (*)."""
    return _by_scipy(xp, "bessel_y0", "y0", input, nan)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="bessel_y1_cpu")
@samples(lambda t: [(t.constant(t.uniform(0.3, 9, 3, 4)),), (t.constant(t.positive()),)])
def special_bessel_y1(xp, input):
    """The Bessel function of the second kind, of order 1: -inf at 0, nan below.  input (*) -> (*)."""
    return _by_scipy(xp, "bessel_y1", "y1", input, nan)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="modified_bessel_k0_cpu")
@samples(lambda t: [(t.constant(t.uniform(0.3, 9, 3, 4)),), (t.constant(t.positive()),)])
def special_modified_bessel_k0(xp, input):
    """The modified Bessel function of the second kind and order 0: inf at 0, nan below.  input (*) -> (*)."""
    return _by_scipy(xp, "modified_bessel_k0", "k0", input, 0.0)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="modified_bessel_k1_cpu")
@samples(lambda t: [(t.constant(t.uniform(0.3, 9, 3, 4)),), (t.constant(t.positive()),)])
def special_modified_bessel_k1(xp, input):
    """The modified Bessel function of the second kind and order 1: inf at 0, nan below.  input (*) -> (*)."""
    return _by_scipy(xp, "modified_bessel_k1", "k1", input, 0.0)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="scaled_modified_bessel_k0_cpu")
@samples(lambda t: [(t.constant(t.uniform(0.3, 9, 3, 4)),), (t.constant(t.positive()),)])
def special_scaled_modified_bessel_k0(xp, input):
    """exp(input) * `special_modified_bessel_k0`.  input (*) -> (*)."""
    return _by_scipy(xp, "scaled_modified_bessel_k0", "k0e", input, 0.0)


@op(promote="float", method=False, half=False, out=True, refuse="c", label="scaled_modified_bessel_k1_cpu")
@samples(lambda t: [(t.constant(t.uniform(0.3, 9, 3, 4)),), (t.constant(t.positive()),)])
def special_scaled_modified_bessel_k1(xp, input):
    """exp(input) * `special_modified_bessel_k1`.  input (*) -> (*)."""
    return _by_scipy(xp, "scaled_modified_bessel_k1", "k1e", input, 0.0)
