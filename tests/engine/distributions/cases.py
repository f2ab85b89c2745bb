"""Distributions, values, pairs and transforms under test, for any module with torch's names.

`oracle.json` holds torch's numbers for them: `record(torch)` of this file, run by torch's own Python.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

NUMBERS = ("entropy", "mean", "mode", "variance", "stddev")


def distributions(E: Any) -> dict[str, tuple[Any, Any]]:
    """Each distribution with values to evaluate."""
    D, T = E.distributions, E.distributions.transforms

    def t(*values: Any) -> Any:
        return E.tensor(list(values), dtype=E.float64)

    a, b = t(0.7, 1.5, 4.0), t(2.0, 0.6, 3.0)
    loc, scale = t(-1.0, 0.0, 2.5), t(0.5, 1.0, 3.0)
    p, p2 = t(0.2, 0.5, 0.9), t(0.3, 0.6, 0.5)
    real, positive, unit = t(-1.5, 0.3, 2.0), t(0.4, 1.2, 5.0), t(0.1, 0.45, 0.8)
    counts = t(0.0, 1.0, 3.0)
    rows = E.stack([t(0.2, 0.3, 0.5), t(0.6, 0.3, 0.1)])
    logits = E.stack([t(0.2, -1.3, 0.5), t(2.6, 0.3, -0.1)])
    tril = E.stack([t(1.0, 0.0, 0.0), t(0.4, 0.8, 0.0), t(-0.3, 0.2, 1.5)])
    square = tril.mT @ tril
    correlation = E.stack([t(1.0, 0.0, 0.0), t(0.6, 0.8, 0.0), t(-0.48, 0.64, 0.6)])
    factor = E.stack([t(1.0, 0.2), t(0.4, 0.8), t(-0.3, 0.2)])
    return {
        "bernoulli": (D.Bernoulli(p), t(0.0, 1.0, 1.0)),
        "bernoulli_logits": (D.Bernoulli(logits=real), t(0.0, 1.0, 1.0)),
        "beta": (D.Beta(a, b), unit),
        "binomial": (D.Binomial(5, p), counts),
        "binomial_logits": (D.Binomial(E.tensor(5), logits=real), counts),
        "categorical": (D.Categorical(rows), E.tensor([2, 0])),
        "categorical_logits": (D.Categorical(logits=logits), E.tensor([[2, 0], [1, 1]])),
        "cauchy": (D.Cauchy(loc, scale), real),
        "chi2": (D.Chi2(a), positive),
        "continuous_bernoulli": (D.ContinuousBernoulli(p), unit),
        "continuous_bernoulli_logits": (D.ContinuousBernoulli(logits=real), unit),
        "dirichlet": (D.Dirichlet(E.stack([a, b])), rows),
        "exponential": (D.Exponential(a), positive),
        "fishersnedecor": (D.FisherSnedecor(a, b + 4), positive),
        "gamma": (D.Gamma(a, b), positive),
        "generalized_pareto": (D.GeneralizedPareto(loc, scale, t(0.1, 0.0, -0.3)), loc + scale * p),
        "geometric": (D.Geometric(p), counts),
        "gumbel": (D.Gumbel(loc, scale), real),
        "half_cauchy": (D.HalfCauchy(scale), positive),
        "half_normal": (D.HalfNormal(scale), positive),
        "independent": (D.Independent(D.Normal(loc, scale), 1), real),
        "inverse_gamma": (D.InverseGamma(a, b), positive),
        "kumaraswamy": (D.Kumaraswamy(a, b), unit),
        "laplace": (D.Laplace(loc, scale), real),
        "lkj": (D.LKJCholesky(3, t(0.5, 1.0, 2.5)), correlation),
        "log_normal": (D.LogNormal(loc, scale), positive),
        "logistic_normal": (D.LogisticNormal(loc[:2], scale[:2]), rows),
        "logit_relaxed_bernoulli": (D.relaxed_bernoulli.LogitRelaxedBernoulli(t(0.7), p), real),
        "lowrank": (D.LowRankMultivariateNormal(loc, factor, scale), E.stack([real, positive])),
        "mixture": (D.MixtureSameFamily(D.Categorical(rows[0]), D.Normal(loc, scale)), t(0.4, -2.0)),
        "multinomial": (D.Multinomial(4, rows), E.stack([t(1.0, 1.0, 2.0), t(4.0, 0.0, 0.0)])),
        "mvn_cov": (D.MultivariateNormal(loc, tril @ tril.mT), real),
        "mvn_precision": (D.MultivariateNormal(loc, precision_matrix=tril @ tril.mT), real),
        "mvn_tril": (D.MultivariateNormal(E.stack([loc, real]), scale_tril=tril), E.stack([real, loc])),
        "negative_binomial": (D.NegativeBinomial(a, p), counts),
        "normal": (D.Normal(loc, scale), real),
        "one_hot": (D.OneHotCategorical(rows), E.stack([t(0.0, 1.0, 0.0), t(0.0, 0.0, 1.0)])),
        "pareto": (D.Pareto(scale, b + 1), t(3.0, 4.0, 5.0)),
        "poisson": (D.Poisson(a), counts),
        "relaxed_bernoulli": (D.RelaxedBernoulli(t(0.7), logits=real), unit),
        "relaxed_one_hot": (D.RelaxedOneHotCategorical(t(0.7), logits=logits), rows),
        "student": (D.StudentT(a + 0.6, loc, scale), real),
        "transformed": (
            D.TransformedDistribution(D.Normal(loc, scale), [T.AffineTransform(1.0, -2.0), T.SigmoidTransform()]),
            unit,
        ),
        "uniform": (D.Uniform(loc, loc + scale), loc + scale * p),
        "von_mises": (D.VonMises(loc, scale), real),
        "weibull": (D.Weibull(a, b), positive),
        "wishart": (D.Wishart(t(3.5, 6.0), tril @ tril.mT), E.stack([square, 2 * square])),
        "wishart_tril": (D.Wishart(t(4.0), scale_tril=tril), square),
        "wishart_precision": (D.Wishart(E.tensor(7.0, dtype=E.float64), precision_matrix=square), square),
        "bernoulli_other": (D.Bernoulli(p2), t(0.0, 1.0, 1.0)),
        "beta_other": (D.Beta(b, a + 1), unit),
        "binomial_other": (D.Binomial(5, p2), counts),
        "categorical_other": (D.Categorical(rows.flip(-1)), E.tensor([2, 0])),
        "dirichlet_other": (D.Dirichlet(E.stack([b, a])), rows),
        "gamma_other": (D.Gamma(b, a), positive),
        "gumbel_other": (D.Gumbel(real, b), real),
        "independent_other": (D.Independent(D.Normal(real, b), 1), real),
        "log_normal_other": (D.LogNormal(real, b), positive),
        "lowrank_other": (D.LowRankMultivariateNormal(real, factor.flip(0), b), real),
        "one_hot_other": (D.OneHotCategorical(rows.flip(-1)), E.stack([t(0.0, 1.0, 0.0), t(0.0, 0.0, 1.0)])),
        "pareto_other": (D.Pareto(scale / 2, a), t(3.0, 4.0, 5.0)),
        "uniform_inside": (D.Uniform(t(0.1, 0.2, 0.5), t(0.9, 0.6, 1.0)), t(0.5, 0.5, 0.6)),
        "uniform_outside": (D.Uniform(loc - 3, loc + 9), real),
    }


def transforms(E: Any) -> dict[str, tuple[Any, Any]]:
    """Each transform with an input."""
    T = E.distributions.transforms
    x = E.tensor([[0.3, -0.6, 1.2], [-2.0, 0.9, 0.1]], dtype=E.float64)
    square = E.stack([x[0], x[1], x[0] + x[1]])
    return {
        "affine": (T.AffineTransform(1.0, -2.0), x),
        "affine_event": (T.AffineTransform(x[0], x[1], event_dim=1), x),
        "compose": (T.ComposeTransform([T.AffineTransform(1.0, -2.0), T.ExpTransform(), T.PowerTransform(0.5)]), x),
        "compose_event": (T.ComposeTransform([T.TanhTransform(), T.StickBreakingTransform()]), x),
        "corr_cholesky": (T.CorrCholeskyTransform(), x),
        "cat": (T.CatTransform([T.ExpTransform(), T.TanhTransform()], dim=-1, lengths=[1, 2]), x),
        "exp": (T.ExpTransform(), x),
        "independent": (T.IndependentTransform(T.SigmoidTransform(), 1), x),
        "inverse": (T.ExpTransform().inv, x.abs()),
        "lower_cholesky": (T.LowerCholeskyTransform(), square),
        "positive_definite": (T.PositiveDefiniteTransform(), square),
        "power": (T.PowerTransform(E.tensor(-1.5, dtype=E.float64)), x.abs()),
        "reshape": (T.ReshapeTransform((3,), (3, 1)), x),
        "sigmoid": (T.SigmoidTransform(), x),
        "softmax": (T.SoftmaxTransform(), x),
        "softplus": (T.SoftplusTransform(), x),
        "stack": (T.StackTransform([T.ExpTransform(), T.AffineTransform(2.0, 3.0)]), x),
        "stick": (T.StickBreakingTransform(), x),
        "tanh": (T.TanhTransform(), x),
        "cdf": (T.CumulativeDistributionTransform(E.distributions.Normal(0.5, 2.0)), x),
    }


def numbers(x: Any) -> Any:
    """A tensor as lists of 12 digits; infinities and nan as text."""
    if isinstance(x, list):
        return [numbers(y) for y in x]
    if hasattr(x, "tolist"):
        return numbers(x.tolist())
    if isinstance(x, float):
        return float(f"{x:.12g}") if x - x == 0 else str(x)
    return x


def attempt(make: Any) -> Any:
    """The numbers of make(), or the name of the error."""
    try:
        return numbers(make())
    except Exception as e:
        return type(e).__name__


def facts(d: Any, x: Any) -> dict[str, Any]:
    """What a distribution says of itself and of values."""
    found = {
        "repr": repr(d),
        "support": str(d.support),
        "shape": [list(d.batch_shape), list(d.event_shape)],
        "rsample": bool(d.has_rsample),
        "log_prob": attempt(lambda: d.log_prob(x)),
    }
    for name in NUMBERS:
        found[name] = attempt(lambda n=name: getattr(d, n)() if n == "entropy" else getattr(d, n))
    found["cdf"] = attempt(lambda: d.cdf(x))
    found["icdf"] = attempt(lambda: d.icdf(d.cdf(x)))
    found["enumerated"] = attempt(lambda: d.enumerate_support(expand=False))
    return found


def record(E: Any) -> dict[str, Any]:
    """All numbers of a module."""
    all_of, kl = distributions(E), {}
    found_of = {name: facts(*pair) for name, pair in all_of.items()}
    for name, (p, _) in all_of.items():
        for other, (q, _) in all_of.items():
            found = attempt(lambda p=p, q=q: E.distributions.kl_divergence(p, q))
            if not isinstance(found, str):
                kl[f"{name} {other}"] = found
    moved = {}
    for name, (transform, x) in transforms(E).items():
        y = transform(x)
        moved[name] = {
            "y": numbers(y),
            "back": attempt(lambda t=transform, y=y: t.inv(y)),
            "slope": attempt(lambda t=transform, x=x, y=y: t.log_abs_det_jacobian(x, y)),
            "repr": repr(transform),
            "domain": str(transform.domain),
            "codomain": str(transform.codomain),
        }
    return {"facts": found_of, "kl": kl, "transforms": moved}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    module = __import__(sys.argv[1])
    with open(sys.argv[2], "w") as file:
        json.dump(record(module), file, separators=(",", ":"))
