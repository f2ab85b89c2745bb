"""The error function and its kin, in numpy formulas: rational approximations fitted to 1e-17 (relative) with mpmath.

float64 is good to some 1e-15 relative; float32 has short formulas of its own for erf, erfc, erfinv and ndtri, good to
4e-7 relative, and runs the rest through float64.  What generated code computes has no branches: arrays whose `size` is
that of a recording take both sides of each.
"""

from __future__ import annotations

import math
from typing import Any

from engine.autograd.versions import guard, own
from engine.core.grad_mode import mode
from engine.dispatch import PUBLIC, composite, derivative, op, samples
from engine.dispatch.out import store
from engine.ops.pointwise.arithmetic import keep_where, not_implemented
from engine.tensor import Tensor

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
ROOT_HALF = math.sqrt(0.5)
ROOT_TWO_PI = math.sqrt(2 * math.pi)


def horner(x: Any, coefficients: Any) -> Any:
    """The polynomial with these coefficients, lowest first."""
    y = x * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        y += c
        y *= x
    y += coefficients[0]
    return y


def in_double(function: Any) -> Any:
    """Wrap a kernel of one array (and numbers) so that it computes in float64 and returns the input's type."""

    def kernel(xp, input, *args):  # type: ignore[no-untyped-def]
        if input.dtype == "float64":
            return function(xp, input, *args)
        return function(xp, input.astype("float64"), *args).astype(input.dtype)

    return kernel


# erf(x) = x P(x^2) / Q(x^2) for |x| < 1
_ERF_P = (
    1.128379167095512574,
    0.1583577851705454694,
    0.04930824810455481916,
    0.002735639295989434245,
    0.0002934213771628182369,
    5.520347503735278082e-6,
    1.121340747259348616e-7,
)
_ERF_Q = (
    1.0,
    0.4736742664065342015,
    0.1015897192526728024,
    0.01272973412219375085,
    0.0009926398014116629331,
    0.00004624098055338124151,
    1.021724026945303355e-6,
)
# erfc(x) = exp(-x^2) / x * C(1/x) / D(1/x) for x >= 1
_ERFC_C = (
    0.5641895835477562832,
    8.086125715178464659,
    61.60060348781479765,
    307.9412247092178709,
    1091.973911472663083,
    2816.671738343343651,
    5259.731683179535202,
    6855.086221711573652,
    5686.266708198980312,
    2315.666587016480079,
    0.0000466751864140887802,
)
_ERFC_D = (
    1.0,
    14.3322846627741826,
    109.6842268700831802,
    552.9777519195243543,
    1989.565477933390787,
    5258.160330901564625,
    10237.02627385991553,
    14391.54323195333311,
    13904.08997205148195,
    8299.214329523705043,
    2315.667117610772767,
)
# erf(x) = x A(x^2) / B(x^2) for |x| < 3.92, to 2e-8, for float32
_ERF_A = (
    1.128379148424157797,
    0.1901255580854212313,
    0.05270799038795242918,
    0.003752870492958852481,
    0.0002844734126099224524,
    2.050436839621531287e-6,
)
_ERF_B = (
    1.0,
    0.5018271824566609054,
    0.1139898228672538885,
    0.01494342595296657245,
    0.001159238993261281882,
    0.00003807439775031555281,
)

# erfc(x) = exp(-x^2) / (1 + 2 x) * polynomial in (x - 2) / (x + 2) for 0 <= x < 10.1, to 1e-8, for float32
_ERFCX = (
    1.276978392,
    -0.0927638965,
    -0.1660313622,
    0.1640531603,
    -0.05420513806,
    -0.008044606188,
    0.008638432,
    0.001273391327,
    -0.001253382138,
    -0.0003646279996,
    2.648847547e-05,
)
# erfinv(y) = y * polynomial in w - 2.5 for w = -log(1 - y^2) < 5, to 6e-9, for float32
_INVERSE = (
    1.501409359,
    0.2466402862,
    -0.004177386781,
    -0.001252741878,
    0.0002183444394,
    -4.963347855e-06,
    -3.462704758e-06,
    4.66170664e-07,
    2.323264425e-08,
    -8.791056475e-09,
)
# erfinv(y) = sqrt(w) * polynomial in 1 / sqrt(w) - 0.25 for 5 <= w < 105, to 5e-8, for float32
_INVERSE_TAIL = (
    0.959945924,
    -0.1981981806,
    0.08018762421,
    0.5546902097,
    -0.8648981681,
    0.7386087752,
    -3.942186557,
    5.262854937,
    3.743250846,
)


def _erf_small(x: Any) -> Any:
    z = x * x
    return x * (horner(z, _ERF_P) / horner(z, _ERF_Q))


def _scaled_tail(x: Any) -> Any:
    """erfc(x) exp(x^2) for x >= 1."""
    t = 1 / x
    return t * (horner(t, _ERFC_C) / horner(t, _ERFC_D))


def _exp_minus_square(xp: Any, x: Any) -> Any:
    """exp(-x^2), with x^2 exact to twice the precision: large x lose nothing."""
    high = x.astype("float32").astype("float64")
    return xp.exp(-high * high) * xp.exp((high - x) * (high + x))


def erf_of(xp: Any, x: Any) -> Any:
    """erf of a float array."""
    if x.dtype == "float32":
        x = xp.minimum(xp.maximum(x, -3.92), 3.92)
        z = x * x
        found = x * horner(z, _ERF_A)
        found /= horner(z, _ERF_B)
        return xp.minimum(xp.maximum(found, -1), 1)
    if x.dtype.itemsize == 2:
        return erf_of(xp, x.astype("float32")).astype(x.dtype)
    size = xp.absolute(x)
    big = xp.maximum(size, 1)
    far = 1 - xp.exp(-big * big) * _scaled_tail(big)
    return xp.where(size < 1, _erf_small(xp.minimum(xp.maximum(x, -1), 1)), xp.copysign(far, x))


def in_single(short: Any, exact: Any) -> Any:
    """Two kernels of one array as one: `short` for float32 and, through float32, the 16-bit types; else `exact`."""

    def kernel(xp, input):  # type: ignore[no-untyped-def]
        if input.dtype == "float32":
            return short(xp, input)
        if input.dtype.itemsize == 2:
            return short(xp, input.astype("float32")).astype(input.dtype)
        return exact(xp, input)

    return kernel


def _erfc_single(xp: Any, x: Any) -> Any:
    size = xp.minimum(xp.absolute(x), 10.09)
    high = (size + 49152.0) - 49152.0  # 12 bits, whose square is exact
    rest = (high - size) * (high + size)
    near = 1 + rest * (1 + rest * (0.5 + rest * (1 / 6 + rest * (1 / 24))))
    found = xp.exp(-high * high) * near
    found *= horner((size - 2) / (size + 2), _ERFCX)
    found /= 1 + 2 * size
    found = xp.where(size >= 10.06, 0, found)  # the smallest number is that of 10.055
    found = xp.where(x < 0, 2 - found, found)
    return xp.where(x != x, x, found)


def _erfc_double(xp: Any, x: Any) -> Any:
    big = xp.minimum(xp.maximum(xp.absolute(x), 1), 40)
    tail = _exp_minus_square(xp, big) * _scaled_tail(big)
    near = 1 - _erf_small(xp.minimum(xp.maximum(x, -1), 1))
    found = xp.where(xp.absolute(x) < 1, near, xp.where(x > 0, tail, 2 - tail))
    return xp.where(x != x, x, found)


erfc_of = in_single(_erfc_single, _erfc_double)  # accurate while it is above the smallest number


def real_only(name: str, input: Any) -> None:
    """torch's error for complex input of a real function."""
    if input.dtype.kind == "c":
        raise not_implemented(name, input)


@op(promote="float", inplace=True, names=("special_erf",), blocks="elements", generated="many", keeps_zero=True)
@derivative(input=lambda grad, input: grad * (TWO_OVER_ROOT_PI * (-(input * input)).exp()))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.uniform(-4, 4, 9),), (t.integers(-2, 3, 3),)])
def erf(xp, input):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to input.  input (*) -> (*)."""
    real_only("erf_vml_cpu", input)
    return erf_of(xp, input)


@op(promote="float", inplace=True, names=("special_erfc",), blocks="elements", generated="many")
@derivative(input=lambda grad, input: grad * (-TWO_OVER_ROOT_PI * (-(input * input)).exp()))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),), (t.uniform(-4, 6, 9),)])
def erfc(xp, input):
    """1 - erf(input), accurate for large input.  input (*) -> (*)."""
    real_only("erfc_vml_cpu", input)
    return erfc_of(xp, input)


# Wichura, "Algorithm AS 241" (1988), PPND16: numerators and denominators of the quantile of the normal distribution,
# for |p - 1/2| up to 0.425, and in sqrt(-log min(p, 1 - p)) up to 5 and beyond
_QUANTILE = (
    (
        (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
         1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
        (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
         5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
    ),
    (
        (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
         3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
        (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
         6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
    ),
    (
        (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
         2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
        (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
         1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
    ),
)  # fmt: skip


def _ratio(x: Any, which: int) -> Any:
    above, below = _QUANTILE[which]
    top, bottom = x * above[0] + above[1], x * below[0] + below[1]
    for a, b in zip(above[2:], below[2:]):
        top, bottom = top * x + a, bottom * x + b
    return top / bottom


_RECORDED = 1 << 39  # elements that no array has: the code is recorded, for every element alike


def _quantile(xp: Any, half: Any, least: Any) -> Any:
    """The quantile of the normal distribution at 1/2 + half, of which `least` is the distance to 0 or 1; float64.

    Infinite where `least` is 0, nan where it is less.
    """
    found = half * _ratio(0.180625 - half * half, 0)
    outer = xp.absolute(half) > 0.425
    if half.size < _RECORDED:
        if not bool(outer.any()):
            return found
        if half.ndim:
            found[outer] = xp.copysign(_far_quantile(xp, least[outer]), half[outer])
            return found
    return xp.where(outer, xp.copysign(_far_quantile(xp, least), half), found)


def _far_quantile(xp: Any, least: Any) -> Any:
    depth = xp.sqrt(-xp.log(xp.where(least > 0, least, 1.0)))
    found = xp.where(depth <= 5, _ratio(xp.minimum(depth, 5) - 1.6, 1), _ratio(xp.maximum(depth, 5) - 5, 2))
    return xp.where(least > 0, found, xp.where(least == 0, float("inf"), float("nan")))


def _erfinv_double(xp: Any, y: Any) -> Any:
    return _quantile(xp, y * 0.5, (1 - xp.absolute(y)) * 0.5) * ROOT_HALF


def _inverse_single(xp: Any, y: Any, product: Any) -> Any:
    """erfinv(y) of float32, with product = 1 - y^2."""
    w = -xp.log(xp.where(product > 0, product, 1))
    root = xp.sqrt(xp.maximum(w, 5))
    far = xp.copysign(root * horner(1 / root - 0.25, _INVERSE_TAIL), y)
    return xp.where(w < 5, y * horner(xp.minimum(w, 5) - 2.5, _INVERSE), far)


def _at_ends(xp: Any, y: Any, product: Any, found: Any) -> Any:
    """`found` where the product is positive; +-inf where it is 0, nan where it is less or nan."""
    inf, nan = y.dtype.type(float("inf")), y.dtype.type(float("nan"))
    return xp.where(product > 0, found, xp.where(product == 0, xp.copysign(inf, y), nan))


def _erfinv_single(xp: Any, y: Any) -> Any:
    product = (1 - y) * (1 + y)
    return _at_ends(xp, y, product, _inverse_single(xp, y, product))


erfinv_of = in_single(_erfinv_single, _erfinv_double)  # the x with erf(x) = y; +-inf at +-1, nan outside


def _erfinv_slope(grad, input, result):
    """Torch saves the input: a result that was written to is found again, and so it is for a second derivative."""
    if result is None or mode.enabled:
        result = erfinv(input)
    return grad * ((result * result).exp() * (1 / TWO_OVER_ROOT_PI))


@op(
    promote="float",
    inplace=True,
    names=("special_erfinv",),
    blocks="elements",
    generated="many",
    autocast={"cuda": "float32"},
    keeps_zero=True,
)
@derivative(input=lambda grad, input, kept_result: _erfinv_slope(grad, input, kept_result))
@samples(lambda t: [(t.uniform(-0.9, 0.9, 3, 4),), (t.uniform(-0.9, 0.9),), (t(0, 2),)])
def erfinv(xp, input):
    """The inverse of erf; +-inf at +-1, nan outside [-1, 1].  input (*) -> (*)."""
    real_only("erfinv_vml_cpu", input)
    return erfinv_of(xp, input)


@op(promote="float", method=False, refuse="c", label="erfcx_cpu", blocks="elements", generated="many")
@derivative(input=lambda grad, input, result: grad * (2 * input * result - TWO_OVER_ROOT_PI))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def special_erfcx(xp, input):
    """exp(input ** 2) * erfc(input) without overflow for positive input.  input (*) -> (*)."""
    return _erfcx_of(xp, input)


@in_double
def _erfcx_of(xp: Any, x: Any) -> Any:
    low = xp.minimum(x, 1)
    return xp.where(x < 1, xp.exp(low * low) * erfc_of(xp, low), _scaled_tail(xp.maximum(x, 1)))


# --- the normal distribution


@composite(method=False, out_as="graph")
@samples(lambda t: [(t(3, 4),), (t(),)])
def special_ndtr(input: Tensor, *, out: Tensor | None = None):
    """The standard normal distribution function.  input (*) -> (*)."""
    if out is not None:
        return store(out, "special_ndtr", special_ndtr, input)
    return erfc(input * -ROOT_HALF) * 0.5


@op(promote="float", method=False, refuse="c", label="ndtri_cpu", blocks="elements", generated="many")
@derivative(input=lambda grad, result: own(grad) * (ROOT_TWO_PI * (result * result * 0.5).exp()))
@samples(lambda t: [(t.uniform(0.05, 0.95, 3, 4),), (t.uniform(0.1, 0.9),), (t(0, 2),)])
def special_ndtri(xp, input):
    """The inverse of the standard normal distribution function.  input (*) in [0, 1] -> (*)."""
    return _ndtri_of(xp, input)


def _ndtri_double(xp: Any, p: Any) -> Any:
    return _quantile(xp, p - 0.5, xp.minimum(p, 1 - p))


def _ndtri_single(xp: Any, p: Any) -> Any:
    y, product = 2 * p - 1, p * (1 - p)
    return _at_ends(xp, y, product, _inverse_single(xp, y, 4 * product) * (1 / ROOT_HALF))


_ndtri_of = in_single(_ndtri_single, _ndtri_double)


@op(promote="float", method=False, refuse="c", label="log_ndtr_cpu", blocks="elements", generated="many")
@derivative(
    input=lambda grad, input, result: guard(
        own(grad) * ((TWO_OVER_ROOT_PI * ROOT_HALF) / special_erfcx(input * -ROOT_HALF)), input, result
    )
)
@samples(lambda t: [(t(3, 4),), (t.uniform(-9, -8, 3),), (t(),), (t(0, 2),)])
def special_log_ndtr(xp, input):
    """The logarithm of the standard normal distribution function, accurate for very negative input.

    input (*) -> (*).
    """
    return _log_ndtr_of(xp, input)


@in_double
def _log_ndtr_of(xp: Any, x: Any) -> Any:
    low = xp.minimum(x, -1.0)
    left = xp.log(_erfcx_of(xp, low * -ROOT_HALF) * 0.5) - low * low * 0.5
    return xp.where(x < -1, left, xp.log1p(-0.5 * erfc_of(xp, xp.maximum(x, -1.0) * ROOT_HALF)))


@op(promote="float", method=False, half=True, refuse="c", label="entr_cpu", blocks="elements", generated="many")
@derivative(input=lambda grad, input: grad * (-input.log() - 1))
@samples(lambda t: [(t.positive(3, 4),), (t.positive(),), (t(0, 2),)])
def special_entr(xp, input):
    """-input * log(input); 0 at 0, -inf below.  input (*) -> (*)."""
    of = input.dtype.type
    found = -input * xp.log(input)
    return xp.where(input > 0, found, xp.where(input == 0, of(0), xp.where(input < 0, of(float("-inf")), input)))


# --- logit and friends


def _logit_backward(grad: Tensor, input: Tensor, eps: Any) -> Tensor:
    found = grad / (input * (1 - input))
    if eps is None:
        return PUBLIC["where"]((input < 0) | (input > 1), float("nan"), found)
    return keep_where(found, (input >= eps) & (input <= 1 - eps))


@op(
    promote="float",
    inplace=True,
    names=("special_logit",),
    half=True,
    refuse="c",
    label="logit_cpu",
    blocks="elements",
    generated="many",
)
@derivative(input=_logit_backward)
@samples(
    lambda t: [
        (t.uniform(0.1, 0.9, 3, 4),),
        (t.uniform(0.1, 0.9),),
        (t.uniform(0, 1, 5), 0.3),
        (t(0, 2),),
    ]
)
def logit(xp, input, eps: float | None = None):
    """log(input / (1 - input)), with input limited to [eps, 1 - eps].  input (*) -> (*)."""
    if eps is not None:
        input = xp.minimum(xp.maximum(input, eps), 1 - eps)
    return xp.log(input / (1 - input))


def _xlog1py_input(grad: Tensor, input: Any, other: Any) -> Tensor:
    logs = other.log1p() if isinstance(other, Tensor) else math.log1p(other)
    product = grad * logs
    mask = ~((input == 0) & (other <= -1))
    found = keep_where(product, mask.expand(product.shape))
    return found if isinstance(other, Tensor) else guard(found, grad)


@op(broadcast=True, promote="float", method=False, half=True, refuse="c", label="xlog1py_cpu")
@derivative(input=_xlog1py_input, other=lambda grad, input, other: grad * input / (other + 1))
@samples(lambda t: [(t(3, 4), t.positive(3, 4)), (t(2, 1), t.positive(3)), (t(3), 2.5), (t(0), t(0))])
def special_xlog1py(xp, input, other):
    """input * log1p(other), 0 where input is 0.  input (*a), other (*b) -> (broadcast of a and b)."""
    product = xp.multiply(input, xp.log1p(other if hasattr(other, "dtype") else input.dtype.type(other)))
    return xp.where((input == 0) & (other == other), product.dtype.type(0), product)
