"""The gamma function's logarithm and derivatives, the incomplete gamma and zeta functions, Bessel I: numpy formulas.

Coefficients fitted with mpmath; float64 is good to some 1e-14 relative away from zeros.
"""

from __future__ import annotations

import math
from typing import Any

from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.dispatch import composite, derivative, op, overload, samples
from engine.dispatch.arguments import checked
from engine.dispatch.out import store
from engine.ops.pointwise.arithmetic import keep_where
from engine.ops.special.erf import horner, in_double, real_only
from engine.tensor import Tensor

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
LOG_PI = math.log(math.pi)

# lgamma(x) = (x - 1) (x - 2) P(x - 2) / Q(x - 2) on [1, 3]; lgamma(x) = P(x - 6) / Q(x - 6) on [3, 10]
_LOW_P = (
    0.4227843350984671394,
    0.8230920859465823631,
    0.6496656942269645367,
    0.2661712259769251456,
    0.06009028141068172241,
    0.007291844810609847803,
    0.0004245162169450794355,
    8.746367376901621587e-6,
    1.403198377001786352e-8,
)
_LOW_Q = (
    1.0,
    2.184114478616793547,
    1.976906652546323577,
    0.9576372406921114875,
    0.2673679681985439981,
    0.04309025291147653873,
    0.003784832052640624079,
    0.0001566021665446841064,
    2.098041655577604281e-6,
)
_MID_P = (
    4.787491742782045993,
    4.897290240404081197,
    2.096256148641763865,
    0.4883789490340285716,
    0.06738769407185412739,
    0.005606243445688349835,
    0.0002733602064571747762,
    7.190516594763159484e-6,
    8.494413751135143121e-8,
    2.811280164369003469e-10,
)
_MID_Q = (
    1.0,
    0.6665646111627270018,
    0.1813803672510349213,
    0.02589162113513117438,
    0.002071909436045849859,
    0.00009188065964928518234,
    2.080362293436397074e-6,
    1.968382174228924845e-8,
    4.502824814172684885e-11,
)
# lgamma(x) = (x - 1) (x - 2) P(x - 2) / Q(x - 2) on [1, 3] to 3e-8, for float32
_SHORT_P = (
    0.4227843256,
    0.2718607173,
    0.04062936541,
    0.0005182527567,
)
_SHORT_Q = (
    1,
    0.880302266,
    0.2270039038,
    0.01574262707,
)
# sin(pi x) / x in x^2, for |x| <= 1/2
_SIN_PI = tuple((-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(11))
# Stirling's series in 1 / x^2
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
# Bernoulli numbers over factorials, and Bernoulli numbers over 2k
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _positive_lgamma(xp: Any, x: Any) -> Any:
    """lgamma of x > 0."""
    low = xp.minimum(x, 3.0)
    shift = low < 1
    y = xp.where(shift, low + 1, low)
    # (y - 2) of y = x + 1 is x - 1: exact also where x + 1 is not
    u = xp.where(shift, low - 1, low - 2)
    near = xp.where(shift, low, low - 1) * u * (horner(u, _LOW_P) / horner(u, _LOW_Q))
    near = xp.where(shift, near - xp.log(xp.where(shift, low, 1)), near)
    v = xp.minimum(xp.maximum(x, 3.0), 10.0) - 6
    middle = horner(v, _MID_P) / horner(v, _MID_Q)
    z = xp.maximum(x, 10.0)
    far = (z - 0.5) * xp.log(z) - z + HALF_LOG_2PI + horner(1 / (z * z), _STIRLING) / z
    far = xp.where(x == math.inf, math.inf, far)
    return xp.where(x < 3, near, xp.where(x < 10, middle, far)) + 0 * y


def _positive_short(xp: Any, x: Any) -> Any:
    """lgamma of x > 0 to 3e-8, in float64."""
    shift = x < 1
    low = xp.minimum(x, 3.0)
    u = xp.where(shift, low - 1, low - 2)
    z = xp.maximum(x, 3.0)
    log = xp.log(xp.where(shift, x, z))
    near = xp.where(shift, low, low - 1) * u * (horner(u, _SHORT_P) / horner(u, _SHORT_Q)) + xp.where(shift, -log, 0)
    part = 1 / z
    far = (z - 0.5) * log - z + HALF_LOG_2PI + horner(part * part, _STIRLING[:5]) * part
    return xp.where(x < 3, near, xp.where(x == math.inf, math.inf, far))


def _sin_pi(xp: Any, x: Any) -> Any:
    """sin(pi x), exact in the reduction."""
    r = x - 2 * xp.floor(x / 2)  # in [0, 2)
    return _sin_of_half(xp.where(r > 1.5, r - 2, xp.where(r > 0.5, 1 - r, r)))


def _sin_of_half(r: Any) -> Any:
    """sin(pi r) for |r| <= 1/2."""
    return r * horner(r * r, _SIN_PI)


def lgamma_of(xp: Any, x: Any) -> Any:
    """log |gamma(x)| of a float array; inf at 0, -1, -2, ..."""
    if x.dtype == "float64":
        return _lgamma(xp, x, _positive_lgamma)
    return _lgamma(xp, x.astype("float64"), _positive_short).astype(x.dtype)


def _lgamma(xp: Any, x: Any, positive: Any) -> Any:
    size = xp.where(x > 0, x, xp.where(x < 0, 1 - x, 1.0))
    found = positive(xp, size)
    mirrored = LOG_PI - xp.log(xp.absolute(_sin_pi(xp, x))) - found
    pole = (x <= 0) & (x == xp.floor(x))
    return xp.where(x != x, x, xp.where(pole, math.inf, xp.where(x > 0, found, mirrored)))


def digamma_of(xp: Any, x: Any) -> Any:
    """The derivative of lgamma; nan at -1, -2, ..., -inf (inf) at +0 (-0), as torch."""
    if x.dtype == "float64":
        return _digamma(xp, x, 10, 7)
    return _digamma(xp, x.astype("float64"), 4, 5).astype(x.dtype)


def _digamma(xp: Any, x: Any, steps: int, terms: int) -> Any:
    """By so many terms of the asymptotic series from z = steps on; below, sum 1 / (z + k) as one fraction."""
    z = xp.where(x > 0, x, 1 - x)
    above, below = xp.zeros_like(z), xp.ones_like(z)
    for _ in range(steps):
        small = z < steps
        above = xp.where(small, above * z + below, above)
        below = xp.where(small, below * z, below)
        z = xp.where(small, z + 1, z)
    part = 1 / z
    square = part * part
    found = xp.log(z) - above / below - 0.5 * part - square * horner(square, _DIGAMMA[:terms])
    r = x - xp.floor(x + 0.5)
    mirrored = found - math.pi * _sin_of_half(0.5 - xp.absolute(r)) / _sin_of_half(r)
    result = xp.where(x > 0, found, xp.where(r == 0, math.nan, mirrored))
    return xp.where(x == 0, xp.copysign(math.inf, -x), result)


_EULER_MACLAURIN = (
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1.8924375803183791606e9,
    7.47242496e10,
    -2.950130727918164224e12,
    1.1646782814350067249e14,
    -4.5979787224074726105e15,
    1.8152105401943546773e17,
    -7.1661652561756670113e18,
)


def zeta_of(xp: Any, s: Any, q: Any) -> Any:
    """The Hurwitz zeta function, by Euler and Maclaurin (after Cephes)."""
    s, q = s.astype("float64"), q.astype("float64")
    lowest = float(q.min()) if q.size else 0.0
    steps = 9 + (min(int(-lowest) + 10, 100000) if math.isfinite(lowest) and lowest < 0 else 0)
    total = q**-s
    a = q + 0.0
    for _ in range(steps):
        a = a + 1
        total = total + a**-s
    b = a**-s
    total = total + b * a / (s - 1) - 0.5 * b
    factor = 1.0
    k = 0.0
    for c in _EULER_MACLAURIN:
        factor = factor * (s + k)
        b = b / a
        total = total + factor * b / c
        factor = factor * (s + k + 1)
        b = b / a
        k += 2
    total = xp.where(q == math.inf, 0.0, total)
    total = xp.where((q <= 0) & (q == xp.floor(q)), math.inf, total)
    total = xp.where((q <= 0) & (q != xp.floor(q)) & (s != xp.floor(s)), math.nan, total)
    return xp.where(s == 1, math.inf, xp.where(s < 1, math.nan, total))


@op(promote="float", inplace=True, names=("special_gammaln",), blocks="elements", generated="many")
@derivative(input=lambda grad, input: grad * digamma(input))
@samples(
    lambda t: [
        (t.positive(3, 4),),
        (t.uniform(3, 30, 5),),
        (t.positive(),),
        (t.uniform(-2.9, -2.1, 3),),
        (t(0, 2),),
    ]
)
def lgamma(xp, input):
    """log |gamma(input)|.  input (*) -> (*)."""
    real_only("lgamma_vml_cpu", input)
    return lgamma_of(xp, input)


@op(promote="float", inplace=True, names=("special_digamma", "special_psi"), blocks="elements", generated="many")
@derivative(input=lambda grad, input: grad * polygamma(1, input))
@samples(
    lambda t: [
        (t.positive(3, 4),),
        (t.uniform(3, 30, 5),),
        (t.positive(),),
        (t.uniform(-2.9, -2.1, 3),),
        (t(0, 2),),
    ]
)
def digamma(xp, input):
    """The derivative of lgamma.  input (*) -> (*)."""
    real_only("digamma", input)
    return digamma_of(xp, input)


# Bernoulli numbers
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _trigamma_of(xp: Any, x: Any) -> Any:
    if x.dtype == "float64":
        return _trigamma(xp, x, 10, 7)
    return _trigamma(xp, x.astype("float64"), 5, 5).astype(x.dtype)


def _trigamma(xp: Any, x: Any, steps: int, terms: int) -> Any:
    """By so many terms of the asymptotic series from z = steps on, and the sum of 1 / (z + k)^2 below."""
    z = xp.where(x < 0.5, 1 - x, x)
    total = xp.zeros_like(z)
    for _ in range(steps):
        small = z < steps
        part = 1 / xp.where(small, z, math.inf)
        total = total + part * part
        z = xp.where(small, z + 1, z)
    part = 1 / z
    square = part * part
    found = total + part + 0.5 * square + part * square * horner(square, _TRIGAMMA[:terms])
    part = math.pi / _sin_pi(xp, x)
    return xp.where(x < 0.5, part * part - found, found)


@op(
    node={"_inplace": "PolygammaBackward1"},
    promote="float",
    inplace=True,
    form="polygamma",
    blocks="elements",
    generated="many",
)
@derivative(input=lambda grad, input, n: grad * polygamma(n + 1, input))
@samples(
    lambda t: [
        (t.positive(3, 4), 1),
        (t.positive(3), 2),
        (t.uniform(-2.9, -2.1, 3), 3),
        (t.positive(), 1),
    ]
)
def polygamma_of(xp, input, n: int):
    """The n-th derivative of digamma, n >= 1.  input (*) -> (*)."""
    real_only("polygamma", input)
    if n == 1:
        return _trigamma_of(xp, input)
    wide = input.astype("float64")
    found = zeta_of(xp, xp.asarray(float(n + 1)), wide) * (math.factorial(n) * (1 if n % 2 else -1))
    return found.astype(input.dtype)


def _order(n: Any, input: Any) -> tuple[int, Any]:
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return n, input


def _polygamma_method(self: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """`engine.polygamma(n, self)`."""
    return polygamma(n, self, out=out)


Tensor.polygamma = checked(_polygamma_method, name="polygamma")  # type: ignore[attr-defined]


@overload(method=False, names=("special_polygamma",), elementwise=True)
@samples(lambda t: [(0, t.positive(3)), (1, t.positive(3)), (2, t.positive(3))])
def polygamma(n: int, input: Tensor, *, out=None):
    """The n-th derivative of digamma.  input (*) -> (*).  RuntimeError for negative n."""
    n, input = _order(n, input)
    if n == 0:
        return name_node(digamma(input, out=out), "PolygammaBackward0")
    return polygamma_of(input, n, out=out)


@composite(method=True, public=False)
def polygamma_(input: Tensor, n: int):
    """In place: see `polygamma`."""
    n, input = _order(n, input)
    return digamma.op.inplace_function(input) if n == 0 else polygamma_of.op.inplace_function(input, n)


def _check_mvlgamma(p: int) -> None:
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")


@composite(names=("special_multigammaln",), elementwise=True)
@samples(lambda t: [(t.uniform(2, 5, 3), 3), (t.uniform(1, 5), 1)])
def mvlgamma(input: Tensor, p: int, *, out=None):
    """The logarithm of the multivariate gamma function of order p.  input (*) above (p - 1) / 2 -> (*)."""
    if out is not None:
        return store(out, "mvlgamma", mvlgamma, input, p)
    _check_mvlgamma(p)
    if input.dtype is dtypes.bool:
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    if not input.is_floating_point():
        input = input / 1
    total = p * (p - 1) / 4 * LOG_PI
    for j in range(p):  # of a fresh difference, also where that is `input`: only this pass saves `input`
        total = lgamma(input - j / 2) + total
    return guard(name_node(total, "MvlgammaBackward0"), input)


@composite(public=False)
def mvlgamma_(input: Tensor, p: int):
    """In place: see `mvlgamma`."""
    if not input.is_floating_point():
        raise RuntimeError(
            f"mvlgamma: result type {dtypes.scalar_name(input.dtype)} can't be cast to the desired output type Float"
        )
    _check_mvlgamma(p)
    return name_node(input.copy_(mvlgamma(input.clone(), p)), "MvlgammaBackward0")


@op(broadcast=True, promote="float", method=False, refuse="c", label="zeta_cpu")
@derivative(other=lambda grad, input, other: grad * -input * special_zeta(input + 1, other))
@samples(lambda t: [(t.constant(t.uniform(1.5, 5, 3, 4)), t.positive(3, 4)), (2.5, t.positive(3))])
def special_zeta(xp, input, other):
    """The Hurwitz zeta function, the sum of (other + k) ** -input.

    input (*a), other (*b) -> (broadcast of a and b).
    """
    kind = (input if hasattr(input, "dtype") else other).dtype
    return zeta_of(xp, xp.asarray(input), xp.asarray(other)).astype(kind)


# --- modified Bessel functions of the first kind: Chebyshev series of e^-x I(x), in x / 4 - 1 and 16 / x - 1
_I0_NEAR = (
    0.3383976372047380425,
    -0.3046826723431983987,
    0.1716209015222087753,
    -0.09490109704804764442,
    0.04930528423967070849,
    -0.02373741480589946882,
    0.01054646039459499832,
    -0.004324309995050575944,
    0.001639475616941335798,
    -0.0005763755745385823659,
    0.0001885028850958416557,
    -0.00005754195010082103704,
    0.00001644844807072889709,
    -4.416738358458750564e-6,
    1.117387539120103718e-6,
    -2.670793853940611734e-7,
    6.046995022541918949e-8,
    -1.300025009986248042e-8,
    2.65982372468238665e-9,
    -5.189795601635262907e-10,
    9.675809035373236912e-11,
    -1.726826291441555707e-11,
    2.955052663129639835e-12,
    -4.856446783111929461e-13,
    7.676185498604935617e-14,
    -1.168533287799345168e-14,
    1.715391285555133031e-15,
    -2.431279846547954694e-16,
    3.330794518822238098e-17,
    -4.415341646479339379e-18,
    5.669178006921496157e-19,
)
_I0_FAR = (
    0.4022452055070544158,
    0.00336911647825569409,
    0.00006889758346916823984,
    2.891370520834756483e-6,
    2.048918589469063742e-7,
    2.266668990498178065e-8,
    3.396232025708386345e-9,
    4.940602388224969589e-10,
    1.188914710784643834e-11,
    -3.149916527963241365e-11,
    -1.321581184044771312e-11,
    -1.794178531506806119e-12,
    7.180124451383666245e-13,
    3.852778382742142693e-13,
    1.540086217521409866e-14,
    -4.150569347287222087e-14,
    -9.554846698828308032e-15,
    3.811680669352623191e-15,
    1.772560133056525237e-15,
    -3.425485619677204127e-16,
    -2.827623980516601732e-16,
    3.461222867697674936e-17,
    4.465621420296510459e-17,
    -4.830504485941271398e-18,
    -7.233180487877964316e-18,
    9.921475412203869478e-19,
)
_I1_NEAR = (
    0.1262935932218168274,
    -0.1764165183578340552,
    0.1026436586898470954,
    -0.05294598120809499143,
    0.02472644903062651683,
    -0.01056408489462619816,
    0.004156422944312888157,
    -0.001513572450631253149,
    0.0005122859561685757729,
    -0.0001617608158258967456,
    0.00004781565107550054226,
    -0.00001327316365603943583,
    3.470251308137678477e-6,
    -8.568720264695454741e-7,
    2.003294753552135262e-7,
    -4.445059128796328081e-8,
    9.381537386495771784e-9,
    -1.887249751722829288e-9,
    3.625590281552117037e-10,
    -6.663489723502027742e-11,
    1.173618629889090163e-11,
    -1.983974397764943715e-12,
    3.22379336594557471e-13,
    -5.042185504727911687e-14,
    7.600684294735406934e-15,
    -1.105596947735386308e-15,
    1.553631957736200469e-16,
    -2.111421214358166078e-17,
    2.77791411276104637e-18,
    -3.541581772542136205e-19,
    4.379302756655070995e-20,
)
_I1_FAR = (
    0.3892881175091400602,
    -0.009761097491361468408,
    -0.0001105889387626237163,
    -3.882564808877690393e-6,
    -2.512236237870208925e-7,
    -2.631468846889519507e-8,
    -3.835380385964237022e-9,
    -5.589743462196583807e-10,
    -1.897495812350541234e-11,
    3.252603583015488239e-11,
    1.412580743661378133e-11,
    2.035628544147089507e-12,
    -7.198551776245908512e-13,
    -4.083551111092197318e-13,
    -2.101541842772664313e-14,
    4.272440016711951354e-14,
    1.042027698412880276e-14,
    -3.814403072437007809e-15,
    -1.880354775510782443e-15,
    3.308202310920928304e-16,
    2.962628997645949896e-16,
    -3.209525921993420277e-17,
    -4.650305368489356491e-17,
    4.414348323071546047e-18,
    7.517296310842327974e-18,
    -9.314178867325075037e-19,
)


def chebyshev(x: Any, coefficients: Any) -> Any:
    """The Chebyshev series with these coefficients, by Clenshaw's recurrence."""
    twice = 2 * x
    b1 = b2 = 0 * x
    for c in coefficients[:0:-1]:
        b1, b2 = twice * b1 - b2 + c, b1
    return x * b1 - b2 + coefficients[0]


@in_double
def _i0e_of(xp: Any, x: Any) -> Any:
    x = xp.absolute(x)
    near = chebyshev(xp.minimum(x, 8.0) / 4 - 1, _I0_NEAR)
    large = xp.maximum(x, 8.0)
    return xp.where(x < 8, near, chebyshev(16 / large - 1, _I0_FAR) / xp.sqrt(large))


@in_double
def _i1e_of(xp: Any, x: Any) -> Any:
    size = xp.absolute(x)
    near = chebyshev(xp.minimum(size, 8.0) / 4 - 1, _I1_NEAR) * size
    large = xp.maximum(size, 8.0)
    found = xp.where(size < 8, near, chebyshev(16 / large - 1, _I1_FAR) / xp.sqrt(large))
    return xp.copysign(found, x)


def _over(x: Tensor, value: Tensor, at_zero: float) -> Tensor:
    """value / x, `at_zero` where x is 0."""
    safe = x.where(x != 0, 1.0)
    return keep_where(value / safe, x != 0) + (x == 0) * at_zero


def _bessel_samples(t: Any) -> list[Any]:
    return [(t(3, 4),), (t.uniform(-20, 20, 5),), (t(),), (t(0, 2),)]


@op(promote="float", inplace=True, names=("special_i0",), blocks="elements", generated="many")
@derivative(input=lambda grad, input: grad * special_i1(input))
@samples(_bessel_samples)
def i0(xp, input):
    """The modified Bessel function of the first kind of order 0.  input (*) -> (*)."""
    real_only("i0_vml_cpu", input)
    wide = input.astype("float64")
    return (_i0e_of(xp, wide) * xp.exp(xp.absolute(wide))).astype(input.dtype)


@op(promote="float", method=False, refuse="c", label="i0e_cpu", blocks="elements", generated="many")
@derivative(input=lambda grad, input, result: grad * (special_i1e(input) - input.sgn() * result))
@samples(_bessel_samples)
def special_i0e(xp, input):
    """i0(input) * exp(-|input|).  input (*) -> (*)."""
    return _i0e_of(xp, input)


@op(promote="float", method=False, refuse="c", label="i1_cpu", blocks="elements", generated="many")
@derivative(input=lambda grad, input, result: grad * (i0(input) - _over(input, result, 0.5)))
@samples(_bessel_samples)
def special_i1(xp, input):
    """The modified Bessel function of the first kind of order 1.  input (*) -> (*)."""
    wide = input.astype("float64")
    return (_i1e_of(xp, wide) * xp.exp(xp.absolute(wide))).astype(input.dtype)


@op(promote="float", method=False, refuse="c", label="i1e_cpu", blocks="elements", generated="many")
@derivative(
    input=lambda grad, input, result: grad * (special_i0e(input) - input.sgn() * result - _over(input, result, 0.5))
)
@samples(_bessel_samples)
def special_i1e(xp, input):
    """i1(input) * exp(-|input|).  input (*) -> (*)."""
    return _i1e_of(xp, input)


@composite(method=False)
@samples(lambda t: [(t.constant(t(3)),)])
def special_modified_bessel_i0(input: Tensor, *, out=None):
    """`i0`, without a gradient.  input (*) -> (*)."""
    return i0(input.detach(), out=out)


@composite(method=False)
@samples(lambda t: [(t.constant(t(3)),)])
def special_modified_bessel_i1(input: Tensor, *, out=None):
    """`special.i1`, without a gradient.  input (*) -> (*)."""
    return special_i1(input.detach(), out=out)


@op(promote="float", method=False, refuse="c", label="spherical_bessel_j0_cpu")
@samples(lambda t: [(t.constant(t(3, 4)),), (t.of([0.0, 1e-3, -0.4, 30.0]),)])
def special_spherical_bessel_j0(xp, input):
    """sin(input) / input, 1 at 0 and 0 at infinity.  input (*) -> (*)."""
    far = xp.isinf(input)
    x = xp.where((input == 0) | far, 1, input)
    found = xp.where(input == 0, 1, xp.sin(x) / x)
    return xp.where(far, 0, found).astype(input.dtype)
