"""What the registry tests do not show of reductions: dtypes, forms, nan, emptiness.

Numbers and sentences of torch 2.13.
"""
# ruff: noqa: E501

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

import engine
from engine import tensor
from tests.engine.ops.answers import check_error, check_gradients, check_value

F32 = tensor([1.5, -0.5, 2.0])
I64 = tensor([3, -2, 5])
B = tensor([True, False, True])
C64 = tensor([1 + 2j, -1j, 3 - 1j])
M = tensor([[3.0, 1.0, 2.0], [1.0, 5.0, 5.0]])
N = tensor([1.0, nan, 3.0, 2.0])
HALF = engine.full((5000,), 0.1, dtype=engine.float16)
BIG = tensor([1000.0, 1001.0])

VALUES: list[Any] = [
    (lambda: I64.sum(), "int64", 6),
    (lambda: B.sum(), "int64", 2),
    (lambda: I64.prod(), "int64", -30),
    (lambda: B.cumsum(0), "int64", [1, 1, 2]),
    (lambda: I64.sum(dtype=engine.float64), "float64", 6.0),
    (lambda: M.sum((0, 1)), "float32", 17.0),
    (lambda: M.sum(axis=0, keepdims=True), "float32", [[4.0, 6.0, 7.0]]),
    (lambda: M.sum(()), "float32", 17.0),
    (lambda: HALF.sum(), "float16", 500.0),
    (lambda: HALF.mean(), "float16", 0.099975586),
    (lambda: HALF.cumsum(0)[-1], "float16", 500.0),
    (lambda: I64.mean(dtype=engine.float32), "float32", 2.0),
    (lambda: engine.ones(0).sum(), "float32", 0.0),
    (lambda: engine.ones(0).prod(), "float32", 1.0),
    (lambda: engine.ones(0).mean(), "float32", nan),
    (lambda: M.std(), "float32", 1.8348478),
    (lambda: M.var(1), "float32", [1.0, 5.3333335]),
    (lambda: M.var(1, False), "float32", [0.66666669, 3.5555556]),
    (lambda: M.var(False), "float32", 2.8055556),
    (lambda: M.var(0, unbiased=False, keepdim=True), "float32", [[1.0, 4.0, 2.25]]),
    (lambda: engine.var(M, dim=1, correction=0), "float32", [0.66666669, 3.5555556]),
    (lambda: engine.std_mean(M, 1)[0], "float32", [1.0, 2.309401]),
    (lambda: engine.var_mean(M)[1], "float32", 2.8333333),
    (lambda: engine.var(tensor([1.0])), "float32", nan),
    (lambda: C64.var(), "float32", 5.333333),
    (lambda: M.max(), "float32", 5.0),
    (lambda: M.max(1)[1], "int64", [0, 1]),
    (lambda: M.min(0)[0], "float32", [1.0, 1.0, 2.0]),
    (lambda: engine.max(M, M * 0 + 2), "float32", [[3.0, 2.0, 2.0], [2.0, 5.0, 5.0]]),
    (lambda: N.max(), "float32", nan),
    (lambda: N.max(0)[1], "int64", 1),
    (lambda: N.argmin(), "int64", 1),
    (lambda: M.argmax(), "int64", 4),
    (lambda: M.argmax(1, keepdim=True), "int64", [[0], [1]]),
    (lambda: M.amax((0, 1)), "float32", 5.0),
    (lambda: engine.aminmax(M, dim=1)[0], "float32", [1.0, 1.0]),
    (lambda: BIG.logsumexp(0), "float32", 1001.3132),
    (lambda: (-BIG).logsumexp(0), "float32", -999.68677),
    (lambda: tensor([-inf, -inf]).logsumexp(0), "float32", -inf),
    (lambda: I64.logsumexp(0), "float32", 5.1277308),
    (lambda: M.norm(), "float32", 8.0622578),
    (lambda: M.norm(1), "float32", 17.0),
    (lambda: M.norm(p=inf, dim=1), "float32", [3.0, 5.0]),
    (lambda: M.norm(0, 1), "float32", [3.0, 3.0]),
    (lambda: M.norm("nuc"), "float32", 10.222368),
    (lambda: M.norm("fro", (0, 1)), "float32", 8.0622578),
    (lambda: engine.dist(M, M * 2, 1), "float32", 17.0),
    (lambda: N.nansum(), "float32", 6.0),
    (lambda: N.nanmean(), "float32", 2.0),
    (lambda: M.count_nonzero(0), "int64", [2, 2, 2]),
    (lambda: M.cumprod(1), "float32", [[3.0, 3.0, 6.0], [1.0, 5.0, 25.0]]),
    (lambda: N.cummax(0)[0], "float32", [1.0, nan, nan, nan]),
    (lambda: N.cummax(0)[1], "int64", [0, 1, 1, 1]),
    (lambda: tensor([1, 3, 3, 2]).cummax(0)[1], "int64", [0, 1, 2, 2]),
    (lambda: tensor([3, 1, 1, 2]).cummin(0)[1], "int64", [0, 1, 2, 2]),
    (lambda: BIG.logcumsumexp(0), "float32", [1000.0, 1001.3132]),
    (lambda: engine.bincount(tensor([1, 1, 3])), "int64", [0, 2, 0, 1]),
    (
        lambda: engine.bincount(tensor([1, 1, 3]), tensor([0.5, 1.0, 2.0]), minlength=6),
        "float32",
        [0.0, 1.5, 0.0, 2.0, 0.0, 0.0],
    ),
    (lambda: engine.histc(tensor([1.0, 2.0, 1.0, 9.0]), 4, 0, 4), "float32", [0.0, 2.0, 1.0, 0.0]),
    (lambda: engine.histc(tensor([1.0, 2.0, 1.0, 3.0]), 4), "float32", [2.0, 0.0, 1.0, 1.0]),
    (lambda: engine.quantile(M, 0.3), "float32", 1.5),
    (lambda: engine.quantile(M, tensor([0.25, 0.5]), dim=1), "float32", [[1.5, 3.0], [2.0, 5.0]]),
    (lambda: engine.quantile(M, 0.3, dim=1, interpolation="nearest"), "float32", [2.0, 5.0]),
    (lambda: engine.quantile(N, 0.5), "float32", nan),
    (lambda: engine.nanquantile(N, 0.5), "float32", 2.0),
    (lambda: engine.diff(B), "bool", [True, True]),
    (lambda: engine.diff(I64, n=2), "int64", [12]),
    (lambda: engine.trapz(M), "float32", [3.5, 8.0]),
    (lambda: engine.trapezoid(M, dx=0.5, dim=0), "float32", [1.0, 1.5, 1.75]),
    (lambda: engine.cov(M), "float32", [[1.0, -2.0], [-2.0, 5.3333335]]),
    (lambda: engine.corrcoef(M), "float32", [[1.0, -0.86602545], [-0.86602545, 1.0]]),
    (
        lambda: engine.renorm(M, 2, 0, 4),
        "float32",
        [[3.0, 1.0, 2.0], [0.56011206, 2.8005602, 2.8005602]],
    ),
    (lambda: M.sum_to_size(1, 3), "float32", [[4.0, 6.0, 7.0]]),
    (lambda: engine.all(M, 0), "bool", [True, True, True]),
]
ERRORS: list[Any] = [
    (
        lambda: I64.mean(),
        RuntimeError,
        "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: Long",
    ),
    (lambda: I64.var(), RuntimeError, "std and var only support floating point and complex dtypes"),
    (
        lambda: M.sum(2),
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    (lambda: M.sum((0, 0)), RuntimeError, "dim 0 appears multiple times in the list of dims"),
    (
        lambda: engine.ones(0).max(),
        RuntimeError,
        "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
    ),
    (
        lambda: engine.ones(0, 3).max(0),
        IndexError,
        "max(): Expected reduction dim 0 to have non-zero size.",
    ),
    (
        lambda: engine.ones(0).argmax(),
        IndexError,
        "argmax(): Expected reduction dim to be specified for input.numel() == 0.",
    ),
    (
        lambda: engine.ones(0, 3).argmax(0),
        IndexError,
        "argmax(): Expected reduction dim 0 to have non-zero size.",
    ),
    (lambda: B.argmax(), RuntimeError, "argmax(): does not support bool input"),
    (
        lambda: engine.ones(0).amax(),
        RuntimeError,
        "amax(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
    ),
    (
        lambda: engine.aminmax(engine.ones(0)),
        RuntimeError,
        "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.",
    ),
    (lambda: C64.max(), NotImplementedError, "\"max_all\" not implemented for 'ComplexFloat'"),
    (
        lambda: I64.norm(),
        RuntimeError,
        "linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long",
    ),
    (lambda: M.norm("x"), RuntimeError, "linalg.matrix_norm: Order x not supported."),
    (
        lambda: engine.dist(I64, I64),
        RuntimeError,
        "norm(): input dtype should be either floating point or complex. Got Long instead.",
    ),
    (
        lambda: M.cumsum(2),
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    (
        lambda: engine.bincount(F32),
        NotImplementedError,
        "\"bincount_cpu\" not implemented for 'Float'",
    ),
    (
        lambda: engine.bincount(tensor([-1])),
        RuntimeError,
        "bincount only supports 1-d non-negative integral inputs.",
    ),
    (
        lambda: engine.histc(F32, 0),
        RuntimeError,
        "torch.histogram(): bins must be > 0, but got 0 for dimension 0",
    ),
    (
        lambda: engine.quantile(I64, 0.5),
        RuntimeError,
        "quantile() input tensor must be either float or double dtype",
    ),
    (
        lambda: engine.quantile(F32, 1.5),
        RuntimeError,
        "quantile() q must be in the range [0, 1] but got 1.5",
    ),
    (
        lambda: engine.renorm(F32, 2, 0, 1),
        RuntimeError,
        "renorm: input needs at least 2 dimensions, got 1 dimensions",
    ),
    (
        lambda: M.sum_to_size(2, 2),
        RuntimeError,
        "size {[2, 2]} is not expandable to size {[2, 3]}.",
    ),
    (
        lambda: engine.logcumsumexp(I64, 0),
        NotImplementedError,
        "\"logcumsumexp_out_cpu\" not implemented for 'Long'",
    ),
    (
        lambda: engine.trapz(B),
        RuntimeError,
        "trapezoid: received a bool input for `y`, but bool is not supported",
    ),
]
GRADIENTS: list[Any] = [
    (lambda x: x.max(), [[1.0, 3.0, 3.0]], [[0.0, 0.5, 0.5]]),
    (lambda x: x.max(0)[0], [[1.0, 3.0, 3.0]], [[0.0, 1.0, 0.0]]),
    (lambda x: x.min(), [[1.0, 1.0, 3.0]], [[0.5, 0.5, 0.0]]),
    (lambda x: x.amax(0), [[1.0, 3.0, 3.0]], [[0.0, 0.5, 0.5]]),
    (lambda x: x.norm(), [[0.0, 0.0]], [[0.0, 0.0]]),
    (lambda x: x.norm(1), [[0.0, -2.0]], [[0.0, -1.0]]),
    (lambda x: x.norm(inf), [[2.0, -2.0]], [[0.5, -0.5]]),
    (lambda x: x.norm(0.5), [[0.0, 4.0]], [[0.0, 1.0]]),
    (lambda x: x.prod(), [[0.0, 2.0, 3.0]], [[6.0, 0.0, 0.0]]),
    (lambda x: x.prod(), [[0.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]),
    (lambda x: x.prod(1), [[[0.0, 2.0], [3.0, 4.0]]], [[[2.0, 0.0], [4.0, 3.0]]]),
    (lambda x: x.cumprod(0), [[2.0, 0.0, 3.0, 4.0]], [[1.0, 32.0, 0.0, 0.0]]),
    (lambda x: x.cumprod(0), [[0.0, 0.0, 3.0]], [[1.0, 0.0, 0.0]]),
    (lambda x: x.logsumexp(0), [[1000.0, 1001.0]], [[0.26894142137, 0.73105857863]]),
    (lambda x: x.std(), [[2.0, 2.0]], [[0.0, 0.0]]),
    (lambda x: x.var(), [[1.0, 2.0, 4.0]], [[-1.333333333333, -0.3333333333333, 1.666666666667]]),
    (lambda x: x.cummax(0)[0], [[1.0, 3.0, 3.0, 2.0]], [[1.0, 1.0, 2.0, 0.0]]),
    (lambda x: x.nansum(), [[nan, 2.0]], [[0.0, 1.0]]),
    (lambda x: x.quantile(0.4), [[1.0, 5.0, 2.0]], [[0.2, 0.0, 0.8]]),
    (lambda x, y: engine.dist(x, y), [[1.0, 2.0], [1.0, 2.0]], [[0.0, 0.0], [-0.0, -0.0]]),
    (lambda x: x.logcumsumexp(0), [[-1000.0, 1000.0, 1.0]], [[1.0, 2.0, 0.0]]),
]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize(("call", "dtype", "expected"), VALUES)
def test_values_and_dtypes(call: Any, dtype: str, expected: Any) -> None:
    check_value(call, dtype, expected)


@pytest.mark.parametrize(("call", "error", "sentence"), ERRORS)
def test_errors(call: Any, error: type[Exception], sentence: str) -> None:
    check_error(call, error, sentence)


@pytest.mark.parametrize(("call", "values", "expected"), GRADIENTS)
def test_gradients_at_ties_zeros_and_bounds(call: Any, values: Any, expected: Any) -> None:
    check_gradients(call, values, expected)
