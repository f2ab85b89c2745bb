"""float32 sums over many rows are as exact as torch's, on whatever route: against float64.  `make test-numpy` and
`make test-processors` run them on the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import engine
from engine import nn
from engine.nn import functional as F
from engine.tensor import Tensor

ROWS = 60_000
BOUND = 1e-6  # of the largest result; row by row it is 1e-5 and more, for variances 1e-4
# where oneDNN adds the rows of a norm, one after the other as torch does there: docs/reference/deviations.md
OF_NORMS = 2e-5


def rows(*shape: int) -> Tensor:
    return engine.rand(*shape, generator=engine.Generator().manual_seed(29))


def check(function: Callable[[Tensor], Tensor], x: Tensor, bound: float = BOUND) -> None:
    """The function of float32 against the same of float64."""
    found, wanted = function(x), function(x.double())
    assert found.shape == wanted.shape
    assert ((found.double() - wanted).abs().max() / wanted.abs().max()).item() <= bound


REDUCTIONS = {
    "sum": lambda x, d: x.sum(d),
    "sum(dtype)": lambda x, d: x.sum(d, dtype=x.dtype),
    "mean": lambda x, d: x.mean(d, True),
    "var": lambda x, d: x.var(d),
    "std": lambda x, d: x.std(d, unbiased=False),
    "var_mean": lambda x, d: engine.stack(engine.var_mean(x, d)),
    "nansum": lambda x, d: x.nansum(d),
    "norm": lambda x, d: x.norm(2, d),
    "norm 1": lambda x, d: x.norm(1, d),
    "norm 3": lambda x, d: engine.linalg.vector_norm(x, 3, d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "softmax": lambda x, d: x.softmax(d),
    "log_softmax": lambda x, d: x.log_softmax(d),
    "sum_to_size": lambda x, d: x.sum_to_size([1 if i == d % x.dim() else n for i, n in enumerate(x.shape)]),
}
FORMS = {
    "rows": lambda: (rows(ROWS, 4), 0),
    "rows of a transpose": lambda: (rows(ROWS, 4).t(), 1),
    "some columns": lambda: (rows(ROWS, 6)[:, 1:-1], 0),
    "every other row": lambda: (rows(ROWS, 4)[::2], 0),
    "wide rows": lambda: (rows(3000, 70), 0),
    "in the middle": lambda: (rows(2, 20_000, 3), 1),
    "along the last": lambda: (rows(4, ROWS), 1),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, form: str) -> None:
    x, dim = FORMS[form]()
    check(lambda t: REDUCTIONS[name](t, dim), x)


@pytest.mark.parametrize("dims", [(0, 2), (0, 1), (0, 1, 2), (1, 2)])
def test_several_dims(dims: tuple[int, ...]) -> None:
    x = rows(9000, 5, 6)
    for t in (x, x.transpose(0, 1), x.permute(2, 0, 1)):
        check(lambda t: t.sum(dims), t)
        check(lambda t: t.var(dims), t)


@pytest.mark.parametrize("dtype", [engine.float16, engine.bfloat16])
def test_16_bit_types_are_added_in_float32(dtype: engine.dtype) -> None:
    x = rows(ROWS, 4).to(dtype)
    for t, dim in ((x, 0), (x.t(), 1), (x, (0, 1))):
        wanted = t.double().mean(dim)
        assert ((t.mean(dim).double() - wanted).abs() <= engine.finfo(dtype).eps * wanted).all()
        found = t.sum(dim, dtype=engine.float32)
        assert ((found.double() - t.double().sum(dim)).abs() <= BOUND * t.double().sum(dim)).all()


def test_ones_beside_a_large_number_are_counted() -> None:
    x = engine.ones(100_000, 3)
    x[0] = 1 << 24
    wanted = (1 << 24) + 99_999
    for found in (x.sum(0), x.t().sum(1), x.sum(0, dtype=engine.float32), x.sum_to_size(1, 3)[0]):
        assert ((found - wanted).abs() < 1e-4 * wanted).all()


def gradient(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    def of(x: Tensor) -> Tensor:
        parameter = engine.ones(shape, dtype=x.dtype, requires_grad=True)
        (found,) = engine.autograd.grad(function(parameter, x), parameter)  # type: ignore[call-arg]
        return found

    return of


@pytest.mark.parametrize("shape", [(4,), (1, 4), (1, 1), ()])
def test_gradients_of_what_was_broadcast(shape: tuple[int, ...]) -> None:
    for function in (lambda p, x: (p * x).sum(), lambda p, x: (p + x).mul(x).sum(), lambda p, x: (x / p).sum()):
        check(gradient(function, shape), rows(ROWS, 4))


def test_gradients_of_biases() -> None:
    weight = rows(4, 4)
    check(gradient(lambda p, x: (F.linear(x, weight.to(x.dtype), p) * x).sum(), (4,)), rows(ROWS, 4))
    image = rows(20, 4, 50, 50)
    check(gradient(lambda p, x: (F.conv2d(x, weight[..., None, None].to(x.dtype), p) * x).sum(), (4,)), image)


@pytest.mark.parametrize("shape", [(ROWS, 4), (20_000, 4, 3), (20, 4, 50, 60), (1, 4, 300, 300)])
def test_statistics_of_batch_norm(shape: tuple[int, ...]) -> None:
    x = rows(*shape) + 3

    def statistics(t: Tensor) -> Tensor:
        layer = (nn.BatchNorm1d if t.dim() < 4 else nn.BatchNorm2d)(4, momentum=1.0).to(t.dtype)
        layer(t)
        return engine.stack([layer.running_mean / 10, layer.running_var])

    bound = OF_NORMS if len(shape) == 2 else BOUND
    check(statistics, x, bound)
    weights = rows(*shape)
    check(
        gradient(lambda p, t: (F.batch_norm(t, None, None, None, p, True) * weights.to(t.dtype)).sum(), (4,)), x, bound
    )


@pytest.mark.parametrize("kind", ["layer", "group"])
def test_gradients_of_normalized_rows(kind: str) -> None:
    x = rows(20_000, 4, 3)

    def of(p: Tensor, t: Tensor) -> Tensor:
        if kind == "layer":
            return (F.layer_norm(t.transpose(1, 2), (4,), None, p) * x.transpose(1, 2).to(t.dtype)).sum()
        return (F.group_norm(t, 2, None, p) * x.to(t.dtype)).sum()

    check(gradient(of, (4,)), x, OF_NORMS if kind == "layer" else BOUND)


@pytest.mark.parametrize("shape", [(ROWS, 4), (4000, 4, 30), (2, 4, 400, 50)])
@pytest.mark.parametrize("slopes", [1, 4])
def test_gradients_of_slopes(slopes: int, shape: tuple[int, ...]) -> None:
    check(gradient(lambda p, x: (F.prelu(-x, p) * x).sum(), (slopes,)), rows(*shape))
