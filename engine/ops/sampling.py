"""Draws from gamma, Dirichlet and binomial distributions, and the derivative of a draw by the parameters.

Note [Implicit reparameterisation]
A draw x of a distribution with density p(x; a) moves with its parameter as if its quantile stayed:
dx/da = -dF/da / p(x) (Figurnov, Mohamed, Mnih 2018, https://arxiv.org/abs/1805.08498).  dF/da is the integral of
p(t) d log p(t)/da up to x, and minus that integral above x, so dx/da is the integral of p(t)/p(x) times the score
over the side on which p falls away from x.  With t = x exp(-s) (above: x exp(s)) it is a smooth integral over s > 0
that no parameter makes cancel, and the double-exponential rule s = c exp(u - exp(-u)) in equal steps of u gives it
to some 1e-12 everywhere.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from engine import backends
from engine.dispatch import derivative, op, samples
from engine.ops.copying import zeros_like_array
from engine.ops.random import generator_of
from engine.ops.special.gamma import digamma_of
from engine.tensor import Tensor

_DRAW = "a draw: it has no samples to compare"
_TINY = 2.3e-308
_STEP, _FIRST = 0.1, -3.7  # of u; below _FIRST s is nothing
_CUT = 45.0  # exp(-_CUT) is nothing


def _host(array: Any) -> Any:
    return np.asarray(backends.of_array(array).to_host(array)).astype(np.float64)


def _numpy_generator(generator: Any, array: Any) -> Any:
    """numpy's generator with a key from the engine's: reproducible by seed, and rejection takes what it needs."""
    return np.random.Generator(np.random.Philox(key=generator_of(generator, array).words(np, 2)))


def _log_gamma_draws(source: Any, shape: Any) -> Any:
    """Logarithms of standard gamma draws: those of small shapes have values below the smallest number."""
    small = shape < 1
    drawn = np.log(np.maximum(source.standard_gamma(np.where(small, shape + 1, shape)), _TINY))
    if not small.any():
        return drawn
    boost = -source.standard_exponential(shape.shape) / np.where(small, shape, 1)
    return np.where(small, drawn + boost, drawn)


def _integral(xp: Any, integrand: Any, scale: Any, end: Any) -> Any:
    """The integral over s > 0 of a function that changes over `scale` first and is nothing beyond `end`."""
    ratio = xp.maximum(end / scale, 1.0)
    last = math.log(builtins.max(float(ratio.max()), 1.0)) + 0.5 if ratio.size else 0.0
    total = 0.0 * scale
    for k in range(int((builtins.min(last, 80.0) - _FIRST) / _STEP) + 1):
        u = _FIRST + k * _STEP
        fall = math.exp(-u)
        total = total + integrand(scale * math.exp(u - fall)) * (math.exp(u - fall) * (1 + fall))
    return total * scale * _STEP


def gamma_draw_slope(xp: Any, a: Any, x: Any) -> Any:
    """dx/da of a standard gamma draw x of shape a, float64; see Note [Implicit reparameterisation]."""
    x = xp.maximum(x, _TINY)
    centre = xp.log(x) - digamma_of(xp, a)
    below = x < a
    side = xp.where(below, -1.0, 1.0)
    slope = xp.absolute(x - a)
    end = 2 * _CUT / (slope + xp.sqrt(slope * slope + 2 * _CUT * x))
    # the exponent falls by less than its parabola on the left (by half of it up to s = 1), and by more on the right
    left = xp.where(2 * end < 1, 2 * end, (_CUT + x) / a)
    end = xp.where(below, left, xp.minimum(end, xp.log1p((_CUT + a * end) / x)))
    scale = 1 / (slope + xp.sqrt(x) + a)
    scale = xp.where(below, xp.minimum(xp.maximum(scale, end / 40), 1.0), end / 40)

    def integrand(s: Any) -> Any:
        return xp.exp(side * (a * s) - x * xp.expm1(side * s)) * (side * centre + s)

    return x * _integral(xp, integrand, scale, end)


def beta_draw_slope(xp: Any, a: Any, b: Any, x: Any) -> Any:
    """dx/da / (1 - x) of a Beta(a, b) draw x, float64; see Note [Implicit reparameterisation]."""
    x = xp.minimum(xp.maximum(x, 1e-300), 1 - 2.0**-53)
    total = digamma_of(xp, a + b)
    below = x * (a + b) < a
    # on the right side 1 - x stands for x: the score is then log(1 - t) - centre
    y, p, q = xp.where(below, x, 1 - x), xp.where(below, a, b), xp.where(below, b, a)
    centre = digamma_of(xp, a) - total
    log_y = xp.log(y)
    rest = xp.log1p(-y)
    slope = xp.absolute(p - (q - 1) * y / (1 - y))
    bend = xp.absolute(q - 1) * y / ((1 - y) * (1 - y))
    scale = xp.minimum(1 / (slope + xp.sqrt(bend) + p), xp.where(q < 1, (1 - y) / y, 1.0)) * 2
    end = (_CUT + xp.absolute(q - 1) * xp.absolute(rest)) / p
    # where q > 1 the exponent falls as fast as its parabola over the first of it
    quick = 2 * _CUT / (slope + xp.sqrt(slope * slope + 2 * _CUT * bend))
    end = xp.where((q > 1) & (4 * quick < 1), 4 * quick, end)

    def integrand(s: Any) -> Any:
        inner = y * xp.exp(-s)
        left = xp.log1p(-inner)
        score = xp.where(below, centre - (log_y - s), left - centre)
        return xp.exp((q - 1) * (left - rest) - p * s) * score

    integral = y * _integral(xp, integrand, scale, end)
    return integral / (1 - x)


@op(deterministic=False, out=False, gradgrad=False, tensors=("input",), why=_DRAW)
@derivative(input=lambda grad, input, result: grad * _standard_gamma_grad(input, result))
def _standard_gamma(xp, input, generator=None):
    """Gamma numbers of rate 1 with the shapes given.  input (*) -> (*)."""
    shape = _host(input)
    drawn = np.exp(_log_gamma_draws(_numpy_generator(generator, input), shape))
    least = np.finfo(np.float32 if input.dtype.itemsize < 8 else np.float64).tiny
    return xp.asarray(np.maximum(drawn, least)).astype(input.dtype)


def _no_derivative(name: str) -> Any:
    """The formula of what torch has no derivative of: an error where a second derivative asks for it."""

    def refuse(grad: Tensor) -> Tensor:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

    return refuse


@op(gradgrad=False, out=False, tensors=("input", "output"), why="torch defines no second derivative of a draw")
@derivative(input=_no_derivative("_standard_gamma_grad"), output=_no_derivative("_standard_gamma_grad"))
@samples(lambda t: [(t.constant(t.positive(3, 4)), t.constant(t.positive(3, 4)))])
def _standard_gamma_grad(xp, input, output):
    """The derivative of a standard gamma draw by its shape.  input (*) the shapes, output (*) the draws -> (*)."""
    return gamma_draw_slope(xp, input.astype("float64"), output.astype("float64")).astype(input.dtype)


@op(gradgrad=False, out=False, method=False, tensors=("x", "alpha", "total"), why="torch defines no derivative of it")
@derivative(**dict.fromkeys(("x", "alpha", "total"), _no_derivative("_dirichlet_grad")))
@samples(lambda t: [tuple(map(t.constant, (t.uniform(0.1, 0.9, 3, 4), t.positive(3, 4), t.uniform(9, 10, 3, 4))))])
def _dirichlet_grad(xp, x, alpha, total):
    """dx/dalpha / (1 - x) of a Beta(alpha, total - alpha) draw x.  x (*), alpha (*), total (*) -> (*)."""
    a = alpha.astype("float64")
    return beta_draw_slope(xp, a, total.astype("float64") - a, x.astype("float64")).astype(x.dtype)


def _dirichlet_backward(grad: Tensor, input: Tensor, result: Tensor) -> Tensor:
    slope = _dirichlet_grad(result, input, input.sum(-1, True).expand(input.shape))
    return slope * (grad - (result * grad).sum(-1, True))


@op(deterministic=False, out=False, gradgrad=False, tensors=("input",), why=_DRAW)
@derivative(input=_dirichlet_backward)
def _sample_dirichlet(xp, input, generator=None):
    """Dirichlet numbers with the concentrations given.  input (*, n) -> (*, n), each row with sum 1."""
    logs = _log_gamma_draws(_numpy_generator(generator, input), _host(input))
    drawn = np.exp(logs - logs.max(-1, keepdims=True)) if logs.size else logs
    drawn = drawn / drawn.sum(-1, keepdims=True)
    kind = np.float64 if input.dtype.itemsize == 8 else np.float32
    least, most = np.finfo(kind).tiny, np.nextafter(kind(1), kind(0))  # inside the simplex, as torch's: 0 and 1 are not
    return xp.asarray(np.clip(drawn, least, most)).astype(input.dtype)


@op(deterministic=False, out=False, method=False, tensors=("count", "prob"), why=_DRAW)
@derivative(
    count=lambda grad, count_shape: zeros_like_array(grad).sum_to_size(count_shape),
    prob=lambda grad, prob_shape: zeros_like_array(grad).sum_to_size(prob_shape),
)
def binomial(xp, count, prob, generator=None):
    """The number of successes in `count` trials of probability `prob`.  count (*), prob (*) -> (*)."""
    trials, chance = _host(count), _host(prob)
    if not ((chance >= 0) & (chance <= 1)).all() or not (trials >= 0).all():
        raise RuntimeError("binomial expects count >= 0 and 0 <= prob <= 1")
    drawn = _numpy_generator(generator, prob).binomial(trials.astype(np.int64), chance)
    return xp.asarray(np.asarray(drawn)).astype(count.dtype)
