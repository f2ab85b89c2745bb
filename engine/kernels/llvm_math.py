"""exp, log and their kin as branch-free arithmetic in LLVM's language, so that a loop of them becomes vector code.

Coefficients are our own: interpolation at Chebyshev's nodes with mpmath, of (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2,
of (log(1 + f) - f + f^2 / 2) / f^3 and of (log((1 + s) / (1 - s)) - 2 s) / s^3 for 1 + f = (1 + s) / (1 - s) between
sqrt(1/2) and sqrt(2), by least squares there of (sin(r) / r - 1) / r^2 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2 for
|r| <= pi / 4.  Ranges are reduced as in Cody and Waite, Software Manual for the Elementary Functions (1980).

Errors against mathematics, tested on millions of points of all magnitudes, in ulp (`BOUNDS`).  nan stays nan, what is
too large becomes inf, subnormal results are right to half a place more.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

BOUNDS = {  # ulp of the result: (float32, float64)
    "exp": (1.5, 1.5),
    "exp2": (1.5, 2.0),
    "expm1": (2.5, 2.5),
    "log": (1.5, 1.5),
    "log2": (2.5, 2.5),
    "log10": (2.5, 3.5),
    "log1p": (2.5, 2.5),
    "tanh": (4.0, 4.0),
}


@dataclass(frozen=True)
class Precision:
    """A binary format: LLVM's names, widths, and what the functions need in it."""

    name: str
    bits: int
    mantissa: int
    bias: int
    lowest: float  # of exp: below, the result is 0
    highest: float  # above, it is inf
    ln2: tuple[float, float]  # high part with zeros at its end, rest
    exp: tuple[float, ...]
    log: tuple[float, ...]

    @property
    def magic(self) -> float:
        """Added to a number of moderate size, it leaves its nearest integer in the last bits."""
        return 1.5 * 2.0**self.mantissa


FLOAT = Precision(
    "float",
    32,
    23,
    127,
    -104.0,
    89.0,
    (0.693359375, -2.12194440054690583e-4),
    (0.5, 0.16666573381900846, 0.041666550110305124, 0.0083637738744055735, 0.0013926926614021906),
    (
        0.33333331110649856,
        -0.24999996931631013,
        0.20000720743861546,
        -0.1666780977128316,
        0.14248876978003902,
        -0.12425359822014157,
        0.1168702488253714,
        -0.11483081330249758,
        0.06971346319412433,
    ),
)
DOUBLE = Precision(
    "double",
    64,
    52,
    1023,
    -746.0,
    710.0,
    (6.93147180369123816490e-1, 1.90821492927058770002e-10),
    (
        0.5,
        0.16666666666666671438,
        0.041666666666666670074,
        0.0083333333333255446996,
        0.0013888888888883326674,
        0.00019841269876864354929,
        0.000024801587327007186731,
        2.7557252833516909748e-6,
        2.7557271810219799569e-7,
        2.5106274733573294687e-8,
        2.0915442297780115216e-9,
    ),
    (
        0.66666666666666666448,
        0.40000000000000941266,
        0.28571428570764450116,
        0.22222222400547757362,
        0.18181794700897794256,
        0.15386290534659226766,
        0.13267418596469616201,
        0.13100713383550755043,
    ),
)
PRECISIONS = {"float32": FLOAT, "float64": DOUBLE}


def literal(number: float, single: bool) -> str:
    """A floating constant as LLVM reads it without rounding: the bits of a double, for float one that it holds."""
    if single:
        try:
            number = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            number = math.copysign(math.inf, number)
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


class Writer:
    """Arithmetic of one precision: each method writes one instruction and gives its name.  lanes: of vectors; 0 for
    single numbers."""

    def __init__(self, emit: Callable[[str], str], precision: Precision, lanes: int = 0) -> None:
        self.emit, self.p, self.lanes = emit, precision, lanes
        types = precision.name, f"i{precision.bits}", "i1"
        self.t, self.i, self.truth = (f"<{lanes} x {type}>" if lanes else type for type in types)

    def number(self, value: float) -> str:
        """A constant."""
        return self._spread(self.p.name, literal(value, self.p.name == "float"))

    def whole(self, value: str | int) -> str:
        """An integer constant of the format's width; others as they are."""
        return value if isinstance(value, str) else self._spread(f"i{self.p.bits}", str(value))

    def _spread(self, type: str, text: str) -> str:
        return f"<{', '.join([f'{type} {text}'] * self.lanes)}>" if self.lanes else text

    def _of(self, value: str | float) -> str:
        return value if isinstance(value, str) else self.number(value)

    def _two(self, op: str, a: str | float, b: str | float) -> str:
        return self.emit(f"{op} {self.t} {self._of(a)}, {self._of(b)}")

    def add(self, a: str | float, b: str | float) -> str:
        """a + b."""
        return self._two("fadd", a, b)

    def sub(self, a: str | float, b: str | float) -> str:
        """a - b."""
        return self._two("fsub", a, b)

    def mul(self, a: str | float, b: str | float) -> str:
        """a * b."""
        return self._two("fmul", a, b)

    def div(self, a: str | float, b: str | float) -> str:
        """a / b."""
        return self._two("fdiv", a, b)

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        """a * b + c, rounded once where the processor does so in one step."""
        return self.call("fmuladd", a, b, c)

    def call(self, name: str, *args: str | float) -> str:
        """An intrinsic function of LLVM's."""
        suffix = f"v{self.lanes}f{self.p.bits}" if self.lanes else f"f{self.p.bits}"
        return self.emit(f"call {self.t} @llvm.{name}.{suffix}({', '.join(f'{self.t} {self._of(a)}' for a in args)})")

    def compare(self, how: str, a: str | float, b: str | float) -> str:
        """A truth value."""
        return self._two(f"fcmp {how}", a, b)

    def select(self, condition: str, a: str | float, b: str | float) -> str:
        """a if the condition holds, else b."""
        return self.emit(f"select {self.truth} {condition}, {self.t} {self._of(a)}, {self.t} {self._of(b)}")

    def bits(self, a: str) -> str:
        """The bits of a number."""
        return self.emit(f"bitcast {self.t} {a} to {self.i}")

    def of_bits(self, a: str) -> str:
        """The number that has these bits."""
        return self.emit(f"bitcast {self.i} {a} to {self.t}")

    def integer(self, op: str, a: str | int, b: str | int) -> str:
        """Integer arithmetic of the format's width."""
        return self.emit(f"{op} {self.i} {self.whole(a)}, {self.whole(b)}")

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        """Lowest coefficient first."""
        found: str | float = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            found = self.fma(found, x, c)
        return str(found)

    def within(self, x: str, low: float, high: float) -> str:
        """x limited to low..high; nan stays."""
        x = self.select(self.compare("olt", x, low), low, x)
        return self.select(self.compare("ogt", x, high), high, x)

    def power_of_two(self, n: str) -> str:
        """2 ** n of an integer, normal."""
        return self.of_bits(self.integer("shl", self.integer("add", n, self.p.bias), self.p.mantissa))


def _reduced(w: Writer, x: str) -> tuple[str, str]:
    """(integer n, r) with x = n ln(2) + r and |r| <= ln(2) / 2."""
    shifted = w.fma(x, 1 / math.log(2), w.p.magic)
    n = w.sub(shifted, w.p.magic)
    r = w.fma(n, -w.p.ln2[0], x)
    r = w.fma(n, -w.p.ln2[1], r)
    whole = w.integer("sub", w.bits(shifted), w.bits(w.number(w.p.magic)))
    return whole, r


def _of_remainder(w: Writer, r: str) -> str:
    """e ** r - 1."""
    return w.fma(w.mul(r, r), w.polynomial(r, w.p.exp), r)


def _scaled(w: Writer, x: str, n: str) -> str:
    """x * 2 ** n in two steps, of which the first is exact."""
    half = w.integer("ashr", n, 1)
    return w.mul(w.mul(x, w.power_of_two(half)), w.power_of_two(w.integer("sub", n, half)))


def exp(w: Writer, x: str) -> str:
    """e ** x."""
    n, r = _reduced(w, w.within(x, w.p.lowest, w.p.highest))
    return _scaled(w, w.add(_of_remainder(w, r), 1.0), n)


def exp2(w: Writer, x: str) -> str:
    """2 ** x: the fraction is exact."""
    x = w.within(x, w.p.lowest * 1.4427, w.p.highest * 1.4427)
    shifted = w.add(x, w.p.magic)
    n = w.integer("sub", w.bits(shifted), w.bits(w.number(w.p.magic)))
    r = w.mul(w.sub(x, w.sub(shifted, w.p.magic)), math.log(2))
    return _scaled(w, w.add(_of_remainder(w, r), 1.0), n)


def expm1(w: Writer, x: str) -> str:
    """e ** x - 1."""
    n, r = _reduced(w, w.within(x, -40.0, w.p.highest))
    q = _of_remainder(w, r)
    half = w.integer("ashr", n, 1)
    first, second = w.power_of_two(half), w.power_of_two(w.integer("sub", n, half))
    # where 2 ** n itself is too large, the 1 counts for nothing
    scale = w.mul(first, second)
    near = w.fma(q, scale, w.sub(scale, 1.0))
    far = w.mul(w.mul(w.add(q, 1.0), first), second)
    found = w.select(w.integer("icmp sgt", n, w.p.bias - 1), far, near)
    return w.select(w.compare("oeq", x, 0.0), x, found)  # -0 stays


def _log_parts(w: Writer, x: str) -> tuple[str, str]:
    """(f, k) with x = (1 + f) 2 ** k, of a positive finite x."""
    p = w.p
    least = 2.0 ** (1 - p.bias)
    small = w.compare("olt", x, least)
    x = w.select(small, w.mul(x, 2.0**p.mantissa), x)
    bits = w.bits(x)
    root = struct.unpack("<Q" if p.bits == 64 else "<I", struct.pack("<d" if p.bits == 64 else "<f", math.sqrt(0.5)))[0]
    k = w.integer("ashr", w.integer("sub", bits, root), p.mantissa)
    f = w.sub(w.of_bits(w.integer("sub", bits, w.integer("shl", k, p.mantissa))), 1.0)
    k = w.integer("sub", k, w.emit(f"select {w.truth} {small}, {w.i} {w.whole(p.mantissa)}, {w.i} {w.whole(0)}"))
    return f, w.emit(f"sitofp {w.i} {k} to {w.t}")


def _mantissa_log(w: Writer, f: str) -> tuple[str, str, str]:
    """(f^2 / 2, tail, square) with log(1 + f) = f - f^2 / 2 + tail."""
    square = w.mul(f, f)
    half = w.mul(square, 0.5)
    if w.p.bits == 32:
        return half, w.mul(w.mul(w.polynomial(f, w.p.log), square), f), square
    s = w.div(f, w.add(f, 2.0))
    z = w.mul(s, s)
    tail = w.mul(s, w.fma(w.polynomial(z, w.p.log), z, half))
    return half, tail, square


def _edges(w: Writer, x: str, found: str) -> str:
    """Emit the results of a logarithm for 0, inf, nan and negative numbers."""
    found = w.select(w.compare("oeq", x, math.inf), x, found)
    found = w.select(w.compare("oeq", x, 0.0), -math.inf, found)
    return w.select(w.compare("oge", x, 0.0), found, math.nan)


def log(w: Writer, x: str) -> str:
    """The natural logarithm."""
    return _edges(w, x, _plain_log(w, x))


def _plain_log(w: Writer, x: str) -> str:
    f, k = _log_parts(w, x)
    half, tail, _ = _mantissa_log(w, f)
    tail = w.fma(k, w.p.ln2[1], tail)
    return w.fma(k, w.p.ln2[0], w.sub(f, w.sub(half, tail)))


def _log_in(base: float) -> Callable[[Writer, str], str]:
    def function(w: Writer, x: str) -> str:
        f, k = _log_parts(w, x)
        half, tail, _ = _mantissa_log(w, f)
        natural = w.sub(f, w.sub(half, tail))
        step = math.log(2) / math.log(base)
        found = w.fma(natural, 1 / math.log(base), w.mul(k, step))
        return _edges(w, x, found)

    return function


def log1p(w: Writer, x: str) -> str:
    """log(1 + x): the logarithm of the rounded sum, and what the rounding lost."""
    u = w.add(x, 1.0)
    lost = w.select(w.compare("olt", x, 1.0), w.sub(x, w.sub(u, 1.0)), w.sub(1.0, w.sub(u, x)))
    inside = w.emit(f"and {w.truth} {w.compare('ogt', u, 0.0)}, {w.compare('olt', u, math.inf)}")
    found = w.add(_edges(w, u, _plain_log(w, u)), w.select(inside, w.div(lost, u), 0.0))
    return w.select(w.compare("oeq", x, 0.0), x, found)


def tanh(w: Writer, x: str) -> str:
    """(1 - e ** -2|x|) / (1 + e ** -2|x|) with the sign of x."""
    t = expm1(w, w.mul(w.call("fabs", x), -2.0))
    found = w.div(t, w.add(t, 2.0))
    return w.call("copysign", found, x)


_QUARTER = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)  # pi / 2 in three numbers of float32
_SINE = (-0.16666664663925201, 0.008332748401683274, -0.0001958789953231457)
_COSINE = (0.041666664660645295, -0.001388830310619427, 2.4547940864556126e-05)
NEAR = 2.0**17  # of angles, up to which sines are those of mathematics to 2 ulp


def _near(quarters: int) -> Callable[[Writer, str], str]:
    """The sine of an angle and so many quarter turns; nan beyond NEAR.  Of float32, with fused multiplications."""

    def function(w: Writer, x: str) -> str:
        shifted = w.fma(x, 2 / math.pi, w.p.magic)
        n, r = w.sub(shifted, w.p.magic), x
        for part in _QUARTER:  # the first difference is exact: its terms are multiples of 2 ** -23, and it is below 1
            r = w.fma(n, -part, r)
        z = w.mul(r, r)
        sine = w.fma(w.mul(r, z), w.polynomial(z, _SINE), r)
        cosine = w.fma(w.mul(z, z), w.polynomial(z, _COSINE), w.fma(z, -0.5, 1.0))
        turns = w.integer("add", w.bits(shifted), quarters) if quarters else w.bits(shifted)
        odd = w.integer("icmp ne", w.integer("and", turns, 1), 0)
        sign = w.integer("shl", w.integer("and", turns, 2), w.p.bits - 2)
        found = w.of_bits(w.integer("xor", w.bits(w.select(odd, cosine, sine)), sign))
        if not quarters:
            found = w.select(w.compare("oeq", x, 0.0), x, found)  # -0 stays
        return w.select(w.compare("ole", w.call("fabs", x), NEAR), found, math.nan)

    return function


FUNCTIONS: dict[str, Callable[[Writer, str], str]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": _log_in(2),
    "log10": _log_in(10),
    "log1p": log1p,
    "tanh": tanh,
    "near_sin": _near(0),
    "near_cos": _near(1),
}
