"""`kl_divergence` and its table of pairs of classes, `register_kl`.

Most entries are a cross entropy, the mean of -log q over p, less the entropy of p; what q needs of p is a moment or
two.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from engine import autograd
from engine.distributions.bernoulli import Bernoulli
from engine.distributions.beta import Beta
from engine.distributions.binomial import Binomial
from engine.distributions.categorical import Categorical
from engine.distributions.cauchy import Cauchy
from engine.distributions.continuous_bernoulli import ContinuousBernoulli
from engine.distributions.dirichlet import Dirichlet
from engine.distributions.distribution import Distribution
from engine.distributions.exp_family import ExponentialFamily
from engine.distributions.exponential import Exponential
from engine.distributions.gamma import Gamma
from engine.distributions.geometric import Geometric
from engine.distributions.gumbel import Gumbel
from engine.distributions.half_normal import HalfNormal
from engine.distributions.independent import Independent
from engine.distributions.laplace import Laplace
from engine.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _lowrank_log_det,
    _lowrank_mahalanobis,
)
from engine.distributions.multivariate_normal import (
    MultivariateNormal,
    _batch_mahalanobis,
    _half_log_det,
)
from engine.distributions.normal import Normal
from engine.distributions.one_hot_categorical import OneHotCategorical
from engine.distributions.pareto import Pareto
from engine.distributions.poisson import Poisson
from engine.distributions.transformed_distribution import TransformedDistribution
from engine.distributions.uniform import Uniform
from engine.distributions.utils import _sum_rightmost, euler_constant
from engine.distributions.wishart import Wishart
from engine.nn.functional import logsigmoid
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}
_KL_MEMOIZE: dict[tuple[type, type], Any] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """Register a function of (p, q) -> (*batch_shape) for a pair of classes; a decorator.

    Classes that are no Distribution are taken too, as torch takes them: libraries have bases of their own.  TypeError
    for what is no class.
    """
    for name, cls in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(cls, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {cls}")

    def register(function: Any) -> Any:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return register


def _dispatch_kl(type_p: type, type_q: type) -> Any:
    """The entry of the nearest classes; by p's class first where p's and q's nearest differ, with a warning."""
    fitting = [pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])]
    if not fitting:
        return NotImplemented

    def depth(pair: tuple[type, type]) -> tuple[int, int]:
        return type_p.__mro__.index(pair[0]), type_q.__mro__.index(pair[1])

    left = min(fitting, key=depth)
    right = min(fitting, key=lambda pair: depth(pair)[::-1])
    if left != right and _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({left[0].__name__}, "
            f"{right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence, the mean of log p - log q over p.

    -> (*batch).  NotImplementedError for unknown pairs.
    """
    key = type(p), type(q)
    if key not in _KL_MEMOIZE:
        _KL_MEMOIZE[key] = _dispatch_kl(*key)
    function = _KL_MEMOIZE[key]
    if function is NotImplemented:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}"
        )
    return function(p, q)


def _infinite(like: Tensor) -> Tensor:
    return torch.full_like(like, math.inf)


def _x_log_x(x: Tensor) -> Tensor:
    return torch.xlogy(x, x)


# --- moments of p: the mean of log x, and of exp(-x / s)

_MEAN_LOG: dict[type, Callable[[Any], Tensor]] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -euler_constant - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + p.alpha.reciprocal(),
    Uniform: lambda p: _mean_log_between(p.low, p.high),
}
_MEAN_EXP: dict[type, Callable[[Any, Tensor], Tensor]] = {
    Exponential: lambda p, s: p.rate / (p.rate + s.reciprocal()),
    Gamma: lambda p, s: (-p.concentration * (s * p.rate).reciprocal().log1p()).exp(),
    Normal: lambda p, s: (-p.loc / s + 0.5 * (p.scale / s).pow(2)).exp(),
    Uniform: lambda p, s: s * ((-p.low / s).exp() - (-p.high / s).exp()) / (p.high - p.low),
}
# where p has no such mean the divergence is infinite: (of x, of x^2)
_NO_MEAN: dict[type, Callable[[Any, int], Tensor]] = {Pareto: lambda p, n: p.alpha <= n}
# parts of p's support that lie below 0
_BELOW_ZERO: dict[type, Callable[[Any], Tensor]] = {Uniform: lambda p: p.low < 0}


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    return (_x_log_x(high) - _x_log_x(low)) / (high - low) - 1


def _limited(found: Tensor, p: Any, moment: int) -> Tensor:
    if type(p) in _NO_MEAN:
        found = torch.where(_NO_MEAN[type(p)](p, moment), math.inf, found)
    return found


def _positive_only(found: Tensor, p: Any) -> Tensor:
    below = _BELOW_ZERO.get(type(p))
    return found if below is None else torch.where(below(p), math.inf, found)


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    found = q.rate * p.mean - q.rate.log() - p.entropy()
    return _limited(_positive_only(found, p), p, 1)


def _to_gamma(p: Any, q: Gamma, kind: type) -> Tensor:
    a, r = q.concentration, q.rate
    found = a.lgamma() - a * r.log() - (a - 1) * _MEAN_LOG[kind](p) + r * p.mean - p.entropy()
    return _limited(_positive_only(found, p), p, 1)


def _to_normal(p: Any, q: Normal) -> Tensor:
    spread = p.variance + (p.mean - q.loc).pow(2)
    found = 0.5 * (spread / q.scale.pow(2) + math.log(2 * math.pi)) + q.scale.log() - p.entropy()
    return _limited(found, p, 2)


def _to_gumbel(p: Any, q: Gumbel, kind: type) -> Tensor:
    mean_exp = (q.loc / q.scale).exp() * _MEAN_EXP[kind](p, q.scale)
    return q.scale.log() + (p.mean - q.loc) / q.scale + mean_exp - p.entropy()


for _kind in (Beta, ContinuousBernoulli, Pareto, Uniform, Gamma):
    register_kl(_kind, Exponential)(_to_exponential)
for _kind in (Beta, Exponential, Pareto, Uniform):
    register_kl(_kind, Gamma)(functools.partial(_to_gamma, kind=_kind))
for _kind in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform):
    register_kl(_kind, Normal)(_to_normal)
for _kind in (Exponential, Gamma, Normal, Uniform):
    register_kl(_kind, Gumbel)(functools.partial(_to_gumbel, kind=_kind))


# --- pairs whose supports never fit


def _never(p: Any, q: Any) -> Tensor:
    return _infinite(p.mean)


for _kind, _others in (
    (Beta, (Pareto,)),
    (ContinuousBernoulli, (Pareto,)),
    (Exponential, (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gamma, (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gumbel, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Laplace, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Pareto, (Beta, ContinuousBernoulli, Uniform)),
    (Poisson, (Bernoulli, Binomial)),
):
    for _other in _others:
        register_kl(_kind, _other)(_never)


# --- discrete distributions


@register_kl(Bernoulli, Bernoulli)
def _bernoulli_bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    one = p.probs * (logsigmoid(p.logits) - logsigmoid(q.logits))
    one = torch.where(p.probs == 0, 0.0, torch.where(q.probs == 0, math.inf, one))
    zero = (1 - p.probs) * (logsigmoid(-p.logits) - logsigmoid(-q.logits))
    zero = torch.where(p.probs == 1, 0.0, torch.where(q.probs == 1, math.inf, zero))
    return one + zero


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Binomial, Binomial)
def _binomial_binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return torch.where(p.total_count > q.total_count, math.inf, found)


@register_kl(Categorical, Categorical)
def _categorical_categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = torch.where(q.probs == 0, math.inf, terms)
    return torch.where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _onehot_onehot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical_categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric_geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - torch.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson_poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


# --- a family with itself


@register_kl(Beta, Beta)
def _beta_beta(p: Beta, q: Beta) -> Tensor:
    total_p, total_q = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    found = q.concentration1.lgamma() + q.concentration0.lgamma() + total_p.lgamma()
    found = found - (p.concentration1.lgamma() + p.concentration0.lgamma() + total_q.lgamma())
    found = found + (p.concentration1 - q.concentration1) * p.concentration1.digamma()
    found = found + (p.concentration0 - q.concentration0) * p.concentration0.digamma()
    return found + (total_q - total_p) * total_p.digamma()


@register_kl(Cauchy, Cauchy)
def _cauchy_cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    distance = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return distance.log() - (4 * p.scale * q.scale).log()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet_dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential_exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma_gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    norms = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return norms + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel_gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return away - ratio.log() + ratio * euler_constant + ((1 + ratio).lgamma() - away).exp() - (1 + euler_constant)


@register_kl(HalfNormal, HalfNormal)
def _halfnormal_halfnormal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace_laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return away / q.scale + ratio * (-away / p.scale).exp() - ratio.log() - 1


@register_kl(Normal, Normal)
def _normal_normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    z = (p.loc - q.loc) / p.scale
    distance = math.sqrt(2 / math.pi) * (-0.5 * z.pow(2)).exp() + z * torch.erf(math.sqrt(0.5) * z)
    return (2 * q.scale).log() + p.scale / q.scale * distance - p.entropy()


@register_kl(Pareto, Pareto)
def _pareto_pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return torch.where(p.scale < q.scale, math.inf, found)


@register_kl(Uniform, Uniform)
def _uniform_uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return torch.where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Beta, ContinuousBernoulli)
@register_kl(ContinuousBernoulli, ContinuousBernoulli)
@register_kl(Uniform, ContinuousBernoulli)
def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    logs = p.mean * q.logits + torch.log1p(-q.probs) + q._cont_bern_log_norm()
    found = -p.entropy() - logs
    if isinstance(p, Uniform):
        found = torch.where((p.high > 1) | (p.low < 0), math.inf, found)
    return found


@register_kl(ContinuousBernoulli, Uniform)
@register_kl(Beta, Uniform)
def _beta_uniform(p: Any, q: Uniform) -> Tensor:
    found = -p.entropy() + (q.high - q.low).log()
    return torch.where((q.low > 0) | (q.high < 1), math.inf, found)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    ones = (a - 1) * _mean_log_between(p.low, p.high)
    zeros = (b - 1) * _mean_log_between(1 - p.high, 1 - p.low)
    found = a.lgamma() + b.lgamma() - (a + b).lgamma() - ones - zeros - p.entropy()
    return torch.where((p.high > 1) | (p.low < 0), math.inf, found)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    logs = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log_between(p.low, p.high)
    return torch.where(p.low < q.scale, math.inf, -p.entropy() - logs)


# --- vectors


def _check_events(p: Any, q: Any, kind: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {kind} with\n            different event shapes cannot be computed"
        )


def _trace_of_square(matrix: Tensor) -> Tensor:
    return matrix.pow(2).sum((-2, -1))


def _solve(tril: Tensor, matrix: Tensor) -> Tensor:
    from engine import linalg  # for its weight

    batch = torch.broadcast_shapes(tril.shape[:-2], matrix.shape[:-2])
    return linalg.solve_triangular(
        tril.expand(batch + tuple(tril.shape[-2:])), matrix.expand(batch + tuple(matrix.shape[-2:])), upper=False
    )


def _mvn_terms(p: Any, q: Any) -> tuple[Any, Any, Any]:
    """log det of q less that of p, trace(Sq^-1 Sp), the distance of the means under q."""
    if isinstance(p, LowRankMultivariateNormal):
        W, D = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag
        logs = -_lowrank_log_det(W, D, p._capacitance_tril)
        factors = (W, D.sqrt().diag_embed())
    else:
        logs = -2 * _half_log_det(p._unbroadcasted_scale_tril)
        factors = (p._unbroadcasted_scale_tril,)
    away = q.loc - p.loc
    if isinstance(q, LowRankMultivariateNormal):
        W, D = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
        logs = logs + _lowrank_log_det(W, D, q._capacitance_tril)
        inner = W.mT / D.unsqueeze(-2)
        trace: Any = 0
        for factor in factors:
            whitened = _trace_of_square(factor * D.rsqrt().unsqueeze(-1))
            trace = trace + whitened - _trace_of_square(_solve(q._capacitance_tril, torch.matmul(inner, factor)))
        return logs, trace, _lowrank_mahalanobis(W, D, away, q._capacitance_tril)
    tril = q._unbroadcasted_scale_tril
    logs = logs + 2 * _half_log_det(tril)
    trace = sum(_trace_of_square(_solve(tril, factor)) for factor in factors)
    return logs, trace, _batch_mahalanobis(tril, away)


def _mvn_mvn(p: Any, q: Any) -> Tensor:
    same = type(p) is type(q)
    low = isinstance(q, LowRankMultivariateNormal)
    _check_events(
        p,
        q,
        ("Low Rank Multivariate Normals" if low else "Multivariate Normals")
        if same
        else "(Low Rank) Multivariate Normals",
    )
    logs, trace, distance = _mvn_terms(p, q)
    return 0.5 * (logs + trace + distance - p.event_shape[0])


for _kind in (MultivariateNormal, LowRankMultivariateNormal):
    for _other in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_kind, _other)(_mvn_mvn)


@register_kl(Wishart, Wishart)
def _wishart_wishart(p: Wishart, q: Wishart) -> Tensor:
    _check_events(p, q, "Wisharts")
    n, (low, high) = p.event_shape[-1], (p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril)
    logs = q.df * (_half_log_det(high) - _half_log_det(low))
    trace = _trace_of_square(_solve(high, low)) - n
    norms = torch.mvlgamma(q.df / 2, n) - torch.mvlgamma(p.df / 2, n)
    slope = torch.digamma(p._df_steps() / 2).sum(-1)
    return logs + p.df / 2 * trace + norms + (p.df - q.df) / 2 * slope


# --- wrappers


@register_kl(Independent, Independent)
def _independent_independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed_transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(ExponentialFamily, ExponentialFamily)
def _expfamily_expfamily(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot                             be "
            "computed using Bregman divergences"
        )
    params = [n.detach().requires_grad_() for n in p._natural_params]
    theirs = q._natural_params
    with torch.enable_grad():
        normalizer = p._log_normalizer(*params)
        gradients = autograd.grad(normalizer.sum(), params, create_graph=True)
    result = q._log_normalizer(*theirs) - normalizer
    for mine, other, gradient in zip(params, theirs, gradients, strict=True):
        result = result - _sum_rightmost((other - mine) * gradient, len(q.event_shape))
    return result


_kl_expfamily_expfamily = _expfamily_expfamily  # torch's name, which code imports
