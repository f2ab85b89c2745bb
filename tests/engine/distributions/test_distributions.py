"""Distributions against torch's stored numbers (`oracle.json`, made by `cases.py`), gradients, draws, errors."""

from __future__ import annotations

import copy
import json
import math
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import distributions as D
from engine.autograd.gradcheck import gradcheck
from engine.distributions import constraints
from tests.engine.distributions import cases

ORACLE = json.loads((Path(__file__).parent / "oracle.json").read_text())
# torch's own numbers are good to 1e-7: its Bessel functions are polynomials, its multinomial entropy counts in float32
ROUGH = {"von_mises", "multinomial"}
# torch's mode of Kumaraswamy is nan, and its LogitRelaxedBernoulli does not say that it has rsample
OURS = {("kumaraswamy", "mode"), ("logit_relaxed_bernoulli", "rsample")}
# torch's takes float32 only
OURS |= {("generalized_pareto", key) for key in ("log_prob", "cdf", "icdf")}
# torch's is infinite where the ends of [0, 1] and of a uniform distribution coincide, and sums over a batch of Wisharts
OURS_KL = (
    {
        f"{a} {b}"
        for x in ("", "_logits")
        for u in ("uniform", "uniform_inside")
        for a, b in ((f"continuous_bernoulli{x}", u), (u, f"continuous_bernoulli{x}"))
    }
    | {f"{a} {b}" for a in ORACLE["facts"] for b in ("wishart",)}
    | {f"wishart {b}" for b in ORACLE["facts"]}
)


@cache
def table():
    return cases.distributions(engine)


@cache
def transforms():
    return cases.transforms(engine)


@cache
def untouched():
    """The same distributions for `facts` alone: a lazily computed parameter, once read, is in the representation."""
    return cases.distributions(engine)


@cache
def facts(name):
    return cases.facts(*untouched()[name])


def floats(x):
    return [floats(y) for y in x] if isinstance(x, list) else float(x)


def close(found, expected, tolerance=1e-9):
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
    else:
        np.testing.assert_allclose(floats(found), floats(expected), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ORACLE["facts"])
def test_numbers_are_torchs(name):
    for key, expected in ORACLE["facts"][name].items():
        found = facts(name)[key]
        if (name, key) in OURS:
            continue
        if key in ("repr", "support", "shape", "rsample"):
            assert found == expected, key
        else:
            close(found, expected, 1e-7 if name in ROUGH else 1e-9)


def test_the_mode_of_kumaraswamy():
    d = D.Kumaraswamy(engine.tensor(4.0).double(), engine.tensor(3.0).double())
    grid = engine.linspace(0.01, 0.99, 9801, dtype=engine.float64)
    assert abs(float(grid[d.log_prob(grid).argmax()] - d.mode)) < 2e-4


@pytest.mark.parametrize("pair", [pair for pair in ORACLE["kl"] if pair not in OURS_KL])
def test_kl_is_torchs(pair):
    p, q = (table()[name][0] for name in pair.split())
    close(cases.numbers(D.kl_divergence(p, q)), ORACLE["kl"][pair])


def test_kl_where_torchs_is_wrong():
    """Ends of supports that coincide; a batch of Wishart distributions is as its members."""
    p, q = (D.ContinuousBernoulli(logits=engine.tensor(x).double()) for x in (0.3, -2.0))
    unit = D.Uniform(engine.tensor(0.0).double(), engine.tensor(1.0).double())
    x = engine.linspace(0, 1, 20001, dtype=engine.float64)
    mean = (p.log_prob(x).exp() * (p.log_prob(x) - q.log_prob(x))).mean()
    close(D.kl_divergence(p, unit), -p.entropy())
    close(D.kl_divergence(p, q), mean, 1e-3)
    close(D.kl_divergence(unit, q), -q.log_prob(x).mean(), 1e-3)
    assert float(D.kl_divergence(p, D.Uniform(engine.tensor(0.1), engine.tensor(1.0)))) == math.inf
    several, one = table()["wishart"][0], table()["wishart_precision"][0]
    for i in (0, 1):
        alone = D.Wishart(several.df[i], several.covariance_matrix[i])
        close(D.kl_divergence(several, one)[i], D.kl_divergence(alone, one))
        close(D.kl_divergence(one, several)[i], D.kl_divergence(one, alone))


def test_generalized_pareto_in_float32():
    """Numbers of PyTorch."""
    loc, scale = engine.tensor([-1.0, 0, 2.5]), engine.tensor([0.5, 1, 3])
    d = D.GeneralizedPareto(loc, scale, engine.tensor([0.1, 0, -0.3]))
    v = engine.tensor([-0.5, 0.7, 4.0])
    close(d.log_prob(v).tolist(), [-0.3552647829, -0.7, -1.477823138], 1e-6)
    close(d.log_survival_function(v).tolist(), [-0.9531018138, -0.7, -0.54172975], 1e-6)
    close(d.cdf(v).tolist(), [0.6144567132, 0.5034146905, 0.4182589054], 1e-6)
    expected = [-0.9470412731, 0.6931471825, 7.488127708]
    close(d.icdf(engine.tensor([0.1, 0.5, 0.9])).tolist(), expected, 1e-6)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: D.LKJCholesky(1), ValueError, "greater than or equal to 2. Found dim=1"),
        (lambda: D.Wishart(3.0), AssertionError, "Exactly one of covariance_matrix"),
        (lambda: D.Wishart(3.0, engine.ones(2)), ValueError, "at least two-dimensional"),
        (lambda: D.Wishart(1.0, engine.eye(2)), ValueError, "df=1.0 expected to be greater than ndim - 1 = 1"),
        (lambda: D.ContinuousBernoulli(), ValueError, "Either `probs` or `logits`"),
    ],
)
def test_parameters_that_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_low_df_warns():
    with pytest.warns(UserWarning, match="Low df values detected"):
        D.Wishart(1.5, engine.eye(2))


def test_kl_errors_and_registration():
    with pytest.raises(
        NotImplementedError,
        match=r"No KL\(p \|\| q\) is implemented for p type Cauchy and q type Normal",
    ):
        D.kl_divergence(D.Cauchy(0.0, 1.0), D.Normal(0.0, 1.0))
    with pytest.raises(NotImplementedError, match="cross KL-divergence between different exponential families"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0))
    with pytest.raises(TypeError, match="Expected type_q to be a Distribution subclass"):
        D.register_kl(D.Normal, 3)

    class Mine(D.Normal):
        pass

    class Base:  # of a library's own
        pass

    try:
        D.register_kl(Mine, Base)(None)

        @D.register_kl(Mine, D.Normal)
        def _(p, q):
            return "mine"

        assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)) == "mine"
    finally:
        del D.kl._KL_REGISTRY[Mine, D.Normal], D.kl._KL_REGISTRY[Mine, Base]
        D.kl._KL_MEMOIZE.clear()


# --- transforms and constraints


@pytest.mark.parametrize("name", ORACLE["transforms"])
def test_transforms_are_torchs(name):
    transform, x = transforms()[name]
    expected = ORACLE["transforms"][name]
    y = transform(x)
    close(cases.numbers(y), expected["y"])
    close(cases.attempt(lambda: transform.inv(y)), expected["back"])
    close(cases.attempt(lambda: transform.log_abs_det_jacobian(x, y)), expected["slope"])
    assert repr(transform) == expected["repr"]
    assert (str(transform.domain), str(transform.codomain)) == (
        expected["domain"],
        expected["codomain"],
    )
    assert tuple(transform.forward_shape(x.shape)) == tuple(y.shape)
    assert tuple(transform.inverse_shape(y.shape)) == tuple(x.shape)
    assert transform.inv.inv is transform
    assert transform == transform and transform != D.AbsTransform()


@pytest.mark.parametrize(
    "name",
    ["exp", "sigmoid", "tanh", "softplus", "power", "affine", "compose", "stick", "corr_cholesky"],
)
def test_slopes_are_the_determinants(name):
    transform, x = transforms()[name]
    x = x[0].clone()

    def free(
        x,
    ):  # as many outputs as inputs: a simplex without its last number, the lower triangle of a matrix
        y = transform(x)
        if name == "corr_cholesky":
            return D.utils.tril_matrix_to_vec(y, -1)
        return y[..., : x.shape[-1]]

    x.requires_grad_()
    y = free(x)
    rows = [engine.autograd.grad(y[i], x, retain_graph=True)[0] for i in range(len(y))]
    slope = transform.log_abs_det_jacobian(x, transform(x)).sum()
    np.testing.assert_allclose(float(engine.stack(rows).det().abs().log()), float(slope), rtol=1e-9)


def test_the_cache_returns_the_very_tensors():
    transform = D.ExpTransform(cache_size=1)
    x = engine.randn(3)
    y = transform(x)
    assert transform(x) is y and transform.inv(y) is x
    assert D.ExpTransform().with_cache()._cache_size == 1
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        D.ExpTransform(cache_size=2)


@pytest.mark.parametrize(
    "name",
    [
        "real",
        "real_vector",
        "positive",
        "nonnegative",
        "unit_interval",
        "simplex",
        "lower_cholesky",
        "positive_definite",
        "positive_semidefinite",
        "corr_cholesky",
    ],
)
def test_registered_transforms_reach_their_constraint(name):
    constraint = getattr(constraints, name)
    shape = (4, 3) if constraint.event_dim < 2 or name == "corr_cholesky" else (4, 3, 3)
    engine.manual_seed(0)
    x = engine.randn(shape, dtype=engine.float64)
    assert bool(constraint.check(D.transform_to(constraint)(x)).all())
    if name not in ("lower_cholesky", "positive_definite", "positive_semidefinite"):
        bijection = D.biject_to(constraint)
        y = bijection(x)
        assert bool(constraint.check(y).all())
        np.testing.assert_allclose(bijection.inv(y).numpy(), x.numpy(), atol=1e-9)


def test_bounded_constraints_and_their_transforms():
    for constraint in (
        constraints.greater_than(2.0),
        constraints.less_than(-1.0),
        constraints.interval(1.0, 3.0),
        constraints.half_open_interval(1.0, 3.0),
        constraints.independent(constraints.positive, 1),
    ):
        assert bool(constraint.check(D.biject_to(constraint)(engine.randn(4, 3))).all())
    both = constraints.cat([constraints.positive, constraints.unit_interval], -1, [1, 2])
    assert bool(both.check(D.biject_to(both)(engine.randn(4, 3))).all())
    both = constraints.stack([constraints.positive, constraints.real], -1)
    assert bool(both.check(D.transform_to(both)(engine.randn(4, 2))).all())
    with pytest.raises(NotImplementedError, match="Cannot transform _Boolean constraints"):
        D.biject_to(constraints.boolean)
    with pytest.raises(
        TypeError,
        match="Expected constraint to be either a Constraint subclass or instance, but got 3",
    ):
        D.biject_to.register(3, 3)


@pytest.mark.parametrize(
    "constraint, inside, outside",
    [
        (constraints.boolean, [0.0, 1.0], [0.5]),
        (constraints.nonnegative_integer, [0.0, 3.0], [-1.0, 0.5]),
        (constraints.positive_integer, [1.0], [0.0]),
        (constraints.integer_interval(0, 2), [0.0, 2.0], [3.0, 0.5]),
        (constraints.real, [1.0, math.inf], [math.nan]),
        (constraints.positive, [0.1], [0.0, math.nan]),
        (constraints.half_open_interval(0, 1), [0.0, 0.5], [1.0]),
        (constraints.one_hot, [[0.0, 1.0]], [[1.0, 1.0], [0.5, 0.5]]),
        (constraints.simplex, [[0.25, 0.75]], [[0.5, 0.6], [-0.5, 1.5]]),
        (constraints.multinomial(2), [[1.0, 1.0]], [[2.0, 1.0]]),
        (constraints.lower_triangular, [[[1.0, 0.0], [2.0, -1.0]]], [[[1.0, 1.0], [0.0, 1.0]]]),
        (constraints.lower_cholesky, [[[1.0, 0.0], [2.0, 1.0]]], [[[1.0, 0.0], [0.0, -1.0]]]),
        (constraints.positive_definite, [[[2.0, 1.0], [1.0, 2.0]]], [[[1.0, 2.0], [2.0, 1.0]]]),
        (constraints.positive_semidefinite, [[[1.0, 1.0], [1.0, 1.5]]], [[[1.0, 2.0], [2.0, 1.0]]]),
        (constraints.symmetric, [[[1.0, 2.0], [2.0, 1.0]]], [[[1.0, 2.0], [0.0, 1.0]]]),
    ],
    ids=repr,
)
def test_constraints(constraint, inside, outside):
    assert constraint.check(engine.tensor(inside)).all()
    assert not constraint.check(engine.tensor(outside)).any()


# --- gradients


def parameters(d):
    return {
        name: getattr(d, name).detach().clone()
        for name in d.arg_constraints
        if name in d.__dict__ or isinstance(getattr(type(d), name, None), property)
    }


GRADIENTS = [
    "bernoulli",
    "beta",
    "binomial",
    "cauchy",
    "chi2",
    "dirichlet",
    "exponential",
    "fishersnedecor",
    "gamma",
    "geometric",
    "gumbel",
    "half_cauchy",
    "half_normal",
    "inverse_gamma",
    "kumaraswamy",
    "laplace",
    "log_normal",
    "logistic_normal",
    "lowrank",
    "negative_binomial",
    "normal",
    "pareto",
    "poisson",
    "student",
    "uniform",
    "von_mises",
    "weibull",
    "mvn_cov",
    "mvn_precision",
]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_log_prob_and_entropy(name):
    d, x = table()[name]
    given = parameters(d)
    if name.startswith("mvn"):
        given = {
            k: v
            for k, v in given.items()
            if k in ("loc",) or (k in d.__dict__ and k.startswith("cov" if name == "mvn_cov" else "precision"))
        }
    fixed = {"total_count": given.pop("total_count")} if "total_count" in given else {}
    if "logits" in given and "probs" in given:
        del given["logits"]
    names, values = list(given), [v.contiguous().requires_grad_() for v in given.values()]

    def made(*values):
        if name.startswith("mvn"):  # a change of one entry alone would leave the symmetric matrices
            values = (values[0], (values[1] + values[1].mT) / 2)
        return type(d)(**fixed, **dict(zip(names, values, strict=True)), validate_args=False)

    assert gradcheck(lambda *v: made(*v).log_prob(x), values)
    if facts(name)["entropy"] != "NotImplementedError" and name not in ("inverse_gamma",):
        assert gradcheck(lambda *v: made(*v).entropy(), values)


# --- draws


@pytest.mark.parametrize("name", [n for n in ORACLE["facts"] if "other" not in n])
def test_draws_have_the_moments_and_shapes(name):
    d, _ = table()[name]
    engine.manual_seed(7)
    x = d.sample((20000,))
    assert tuple(x.shape) == (20000, *d.batch_shape, *d.event_shape)
    assert not x.requires_grad
    assert tuple(d.sample().shape) == (*d.batch_shape, *d.event_shape)
    assert bool(d.support.check(x).all())
    mean, variance = (cases.attempt(lambda a=a: getattr(d, a).double()) for a in ("mean", "variance"))
    if isinstance(mean, str) or isinstance(variance, str) or name == "von_mises":
        return
    mean, variance = np.array(floats(mean)), np.array(floats(variance))
    known = np.isfinite(variance) & np.isfinite(mean)
    error = np.abs(x.double().mean(0).numpy() - mean) / np.sqrt(np.where(known, variance, 1) / 20000)
    assert (error[known] < 5).all()
    heavy = {"student", "pareto", "fishersnedecor", "inverse_gamma", "log_normal", "weibull"}
    if name not in heavy:
        np.testing.assert_allclose(x.double().var(0).numpy()[known], variance[known], rtol=0.15, atol=1e-3)


def test_von_mises_draws_have_its_density():
    d = D.VonMises(engine.tensor(0.5), engine.tensor(3.0))
    engine.manual_seed(0)
    x = d.sample((20000,)) - 0.5
    np.testing.assert_allclose(float(x.cos().mean()), 1 - float(d.variance), atol=0.01)
    np.testing.assert_allclose(float(x.sin().mean()), 0, atol=0.01)


@pytest.mark.parametrize("name", [n for n, f in ORACLE["facts"].items() if f["cdf"] != "NotImplementedError"])
def test_draws_fill_the_distribution_function_evenly(name):
    d, _ = table()[name]
    engine.manual_seed(3)
    u = np.sort(d.cdf(d.sample((4000,))).numpy(), 0)
    even = (np.arange(4000) + 0.5) / 4000
    assert np.abs(u - even.reshape(-1, *[1] * (u.ndim - 1))).max() < 2.2 / math.sqrt(4000)


def test_draws_repeat_by_seed_and_expand():
    for name, (d, x) in table().items():
        engine.manual_seed(1)
        first = d.sample((3,))
        engine.manual_seed(1)
        assert engine.equal(first, d.sample((3,))), name
        wide = d.expand((2, *d.batch_shape))
        assert type(wide) is type(d)
        assert tuple(wide.batch_shape) == (2, *d.batch_shape) and wide.event_shape == d.event_shape
        assert tuple(wide.sample((3,)).shape) == (3, *wide.batch_shape, *wide.event_shape)
        np.testing.assert_allclose(
            wide.log_prob(x).numpy(),
            np.broadcast_to(d.log_prob(x).numpy(), wide.log_prob(x).shape),
            rtol=1e-12,
            err_msg=name,
        )
        again = pickle.loads(pickle.dumps(copy.deepcopy(d)))
        np.testing.assert_allclose(again.log_prob(x).numpy(), d.log_prob(x).numpy())


# --- pathwise gradients


@pytest.mark.parametrize(
    "name",
    [
        "normal",
        "laplace",
        "cauchy",
        "exponential",
        "uniform",
        "gumbel",
        "pareto",
        "weibull",
        "half_normal",
        "half_cauchy",
        "log_normal",
        "kumaraswamy",
    ],
)
def test_pathwise_gradients_move_along_the_quantile(name):
    d, _ = table()[name]
    given = parameters(d)
    for chosen in given:
        values = {k: v.clone().requires_grad_(k == chosen) for k, v in given.items()}
        engine.manual_seed(5)
        x = type(d)(**values).rsample()
        x.sum().backward()
        u = d.cdf(x.detach())
        with engine.no_grad():
            moved = [type(d)(**{**given, chosen: given[chosen] + h}).icdf(u) for h in (1e-6, -1e-6)]
        slope = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose(values[chosen].grad.numpy(), slope.numpy(), rtol=1e-5, atol=1e-6)


def test_gamma_slopes_against_the_quantile_function():
    special = pytest.importorskip("scipy.special")
    a = np.array([0.02, 0.3, 0.9, 1.0, 2.5, 9.0, 60.0, 900.0]).reshape(-1, 1)
    q = np.array([1e-3, 0.2, 0.5, 0.8, 0.999])
    x, h = special.gammaincinv(a, q), 1e-5 * a
    slope = (special.gammaincinv(a + h, q) - special.gammaincinv(a - h, q)) / (2 * h)
    found = engine._standard_gamma_grad(engine.tensor(a + 0 * q), engine.tensor(x)).numpy()
    np.testing.assert_allclose(found, slope, rtol=2e-6)


def test_beta_slopes_against_the_quantile_function():
    special = pytest.importorskip("scipy.special")
    a, b = (x.reshape(-1, 1) for x in np.array([(0.1, 0.2), (0.5, 3), (3, 0.5), (1, 1), (8, 5), (200, 40), (2, 300)]).T)
    q = np.array([1e-2, 0.2, 0.5, 0.8, 0.98])
    x, h = special.betaincinv(a, b, q), 1e-5 * a
    slope = (special.betaincinv(a + h, b, q) - special.betaincinv(a - h, b, q)) / (2 * h)
    found = engine._dirichlet_grad(*map(engine.tensor, (x, a + 0 * x, a + b + 0 * x))).numpy() * (1 - x)
    np.testing.assert_allclose(found, slope, rtol=1e-5)


@pytest.mark.parametrize("name, power", [("gamma", 1), ("gamma", 2), ("beta", 1), ("dirichlet", 1), ("student", 2)])
def test_pathwise_gradients_have_the_gradient_of_the_mean(name, power):
    d, _ = table()[name]
    given = {k: v.requires_grad_() for k, v in parameters(d).items()}
    engine.manual_seed(11)
    d = type(d)(**{k: v + (3 if k == "df" else 0) for k, v in given.items()})
    x = d.rsample((20000,))
    found = engine.autograd.grad(((x - 0.3) ** power).mean(0).mul(d.mean.detach() + 1).sum(), list(given.values()))
    exact = d.mean - 0.3 if power == 1 else d.variance + (d.mean - 0.3) ** 2
    expected = engine.autograd.grad(exact.mul(d.mean.detach() + 1).sum(), list(given.values()), allow_unused=True)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0.1, atol=0.05 * max(1, float(b.abs().max())))


def test_tiny_concentrations_stay_finite():
    engine.manual_seed(0)
    x = D.Dirichlet(engine.full((1000, 3), 1e-3)).sample()
    assert bool(engine.isfinite(x).all()) and bool(((x.sum(-1) - 1).abs() < 1e-5).all())
    a = engine.full((1000,), 1e-3, requires_grad=True)
    y = D.Gamma(a, 1.0).rsample()
    y.sum().backward()
    assert bool((y > 0).all()) and bool(engine.isfinite(a.grad).all())


def test_straight_through_passes_the_gradient():
    logits = engine.randn(2, 3, requires_grad=True)
    d = D.OneHotCategoricalStraightThrough(logits=logits)
    x = d.rsample()
    (x * engine.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert bool((logits.grad != 0).any())
    assert bool(constraints.one_hot.check(x.detach().round()).all())


# --- arguments


ERRORS = [
    (
        lambda: D.Normal(engine.tensor([math.nan, 0]), 1),
        ValueError,
        "Expected parameter loc (Tensor of shape (2,)) of distribution "
        "Normal(loc: torch.Size([2]), scale: torch.Size([2])) "
        "to satisfy the constraint Real(), but found invalid values:\ntensor([nan, 0.])",
    ),
    (
        lambda: D.Normal(0.0, -1.0),
        ValueError,
        "Expected parameter scale (Tensor of shape ()) of distribution Normal(loc: 0.0, scale: -1.0) to satisfy the "
        "constraint GreaterThan(lower_bound=0.0), but found invalid values:\n-1.0",
    ),
    (
        lambda: D.Normal(0.0, 1.0).log_prob(1.0),
        ValueError,
        "The value argument to log_prob must be a Tensor",
    ),
    (
        lambda: D.Normal(engine.zeros(3), 1.0).log_prob(engine.zeros(2)),
        ValueError,
        "Value is not broadcastable with batch_shape+event_shape: torch.Size([2]) vs torch.Size([3]).",
    ),
    (
        lambda: D.Dirichlet(engine.ones(3)).log_prob(engine.ones(2) / 2),
        ValueError,
        "The right-most size of value must match event_shape: torch.Size([2]) vs torch.Size([3]).",
    ),
    (
        lambda: D.Bernoulli(0.5).log_prob(engine.tensor([2.0, 1.0])),
        ValueError,
        "Expected value argument (Tensor of shape (2,)) to be within the support (Boolean()) of the distribution "
        "Bernoulli(probs: 0.5), but found invalid values:\ntensor([2., 1.])",
    ),
    (
        lambda: D.Bernoulli(0.5, 0.5),
        ValueError,
        "Either `probs` or `logits` must be specified, but not both.",
    ),
    (
        lambda: D.Categorical(),
        ValueError,
        "Either `probs` or `logits` must be specified, but not both.",
    ),
    (
        lambda: D.Categorical(engine.tensor(0.3)),
        ValueError,
        "`probs` parameter must be at least one-dimensional.",
    ),
    (
        lambda: D.Geometric(engine.tensor(0.0)),
        ValueError,
        "Expected parameter probs (Tensor of shape ()) of distribution Geometric(probs: 0.0) to be positive but found "
        "invalid values:\ntensor([0.])",
    ),
    (
        lambda: D.Dirichlet(engine.tensor(1.0)),
        ValueError,
        "`concentration` parameter must be at least one-dimensional.",
    ),
    (
        lambda: D.Multinomial(engine.tensor([1, 2]), engine.ones(3)),
        NotImplementedError,
        "inhomogeneous total_count is not supported",
    ),
    (
        lambda: D.MultivariateNormal(engine.tensor(0.0), engine.eye(2)),
        ValueError,
        "loc must be at least one-dimensional.",
    ),
    (
        lambda: D.MultivariateNormal(engine.zeros(2)),
        ValueError,
        "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.",
    ),
    (
        lambda: D.MultivariateNormal(engine.zeros(2), scale_tril=engine.ones(2)),
        ValueError,
        "scale_tril matrix must be at least two-dimensional, with optional leading batch dimensions",
    ),
    (
        lambda: D.LowRankMultivariateNormal(engine.zeros(2), engine.ones(3, 1), engine.ones(2)),
        ValueError,
        "cov_factor must be a batch of matrices with shape 2 x m",
    ),
    (
        lambda: D.LowRankMultivariateNormal(engine.zeros(2), engine.ones(2, 1), engine.ones(3)),
        ValueError,
        "cov_diag must be a batch of vectors with shape torch.Size([2])",
    ),
    (
        lambda: D.Uniform(1.0, 0.0),
        ValueError,
        "Expected parameter low (Tensor of shape ()) of distribution "
        "Uniform(low: 1.0, high: 0.0) to satisfy the constraint "
        "LessThan(upper_bound=0.0), but found invalid values:\n1.0",
    ),
    (
        lambda: D.Independent(D.Normal(0.0, 1.0), 1),
        ValueError,
        "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual 1 vs 0",
    ),
    (lambda: D.Poisson(1.0).rsample(), NotImplementedError, ""),
    (lambda: D.Poisson(1.0).cdf(engine.tensor(1.0)), NotImplementedError, ""),
    (
        lambda: D.Binomial(engine.tensor([1.0, 2.0]), engine.tensor([0.3, 0.3])).enumerate_support(),
        NotImplementedError,
        "Inhomogeneous total count not supported by `enumerate_support`.",
    ),
    (
        lambda: D.Normal("a", 1.0),
        ValueError,
        "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__.",
    ),
    (
        lambda: D.ReshapeTransform((2,), (3,)),
        ValueError,
        "in_shape, out_shape have different numbers of elements",
    ),
]


@pytest.mark.parametrize("call, kind, sentence", ERRORS, ids=[f"{e[1].__name__}-{i}" for i, e in enumerate(ERRORS)])
def test_errors_are_torchs(call, kind, sentence):
    with pytest.raises(kind) as found:
        call()
    assert str(found.value) == sentence


def test_validation_can_be_switched_off():
    D.Normal(0.0, -1.0, validate_args=False)
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        D.Normal(0.0, -1.0)


def test_numbers_perplexity_and_lazy_parameters():
    assert tuple(D.Normal(0, 1).sample().shape) == () and D.Normal(0, 1).loc.dtype is engine.float32
    d = D.Categorical(engine.ones(4))
    assert "logits" not in d.__dict__ and d.logits is d.logits
    np.testing.assert_allclose(float(d.perplexity()), 4, rtol=1e-6)
    assert D.Bernoulli.logits is not None
    assert D.normal.Normal is D.Normal and D.kl.kl_divergence is D.kl_divergence
    for name in D.__all__:
        assert getattr(D, name).__doc__ or name == "identity_transform"


@pytest.mark.parametrize(
    "made",
    [
        lambda x: D.Normal(x, x + 1),
        lambda x: D.Exponential(x),
        lambda x: D.Gamma(x, x + 1),
        lambda x: D.Bernoulli(x / 4),
    ],
    ids=["normal", "exponential", "gamma", "bernoulli"],
)
def test_entropy_by_the_natural_parameters(made):
    found = made(engine.tensor([0.5, 1.5, 3.0], dtype=engine.float64))
    assert isinstance(found, D.ExponentialFamily)
    close(D.ExponentialFamily.entropy(found).tolist(), found.entropy().tolist())
