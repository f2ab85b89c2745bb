"""What the registry tests do not show of activation functions: bounds, stability, dtypes, refusals.

Numbers and sentences of torch 2.13.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

import engine
from engine import tensor
from engine.nn import functional as F
from engine.ops.softmax import softmin
from tests.engine.ops.answers import check_error, check_gradients, check_value

X = tensor([-4.0, -3.0, -1.0, 0.0, 0.5, 3.0, 30.0])
I64 = tensor([3, -2, 5])
B = tensor([True, False, True])
C64 = tensor([1 + 2j, -1j, 3 - 1j])
H = tensor([-4.0, -1.0, 0.5, 3.0], dtype=engine.bfloat16)
BIG = tensor([1000.0, 1001.0])
M = tensor([[3.0, 1.0, 2.0], [1.0, 5.0, 5.0]])

VALUES: list[Any] = [
    (lambda: engine.relu(tensor([nan, -1.0, 2.0])), "float32", [nan, 0.0, 2.0]),
    (lambda: engine.relu(I64), "int64", [3, 0, 5]),
    (
        lambda: F.leaky_relu(X, 0.1),
        "float32",
        [-0.40000001, -0.30000001, -0.1, 0.0, 0.5, 3.0, 30.0],
    ),
    (lambda: F.elu(X, 1.5), "float32", [-1.4725266, -1.4253194, -0.94818079, 0.0, 0.5, 3.0, 30.0]),
    (
        lambda: engine.selu(X),
        "float32",
        [-1.7258986, -1.6705687, -1.1113307, 0.0, 0.52535051, 3.1521029, 31.52103],
    ),
    (
        lambda: engine.celu(X, 2.0),
        "float32",
        [-1.7293295, -1.5537397, -0.78693867, 0.0, 0.5, 3.0, 30.0],
    ),
    (
        lambda: F.gelu(X),
        "float32",
        [-0.00012648106, -0.004050225, -0.15865526, 0.0, 0.34573123, 2.9959497, 30.0],
    ),
    (
        lambda: F.gelu(X, approximate="tanh"),
        "float32",
        [-7.0214272e-05, -0.0036374331, -0.15880799, 0.0, 0.345714, 2.9963627, 30.0],
    ),
    (lambda: F.gelu(H), "bfloat16", [-0.00012683868, -0.15820312, 0.34570312, 3.0]),
    (
        lambda: F.silu(X),
        "float32",
        [-0.07194484, -0.14227761, -0.26894143, 0.0, 0.31122968, 2.8577225, 30.0],
    ),
    (lambda: F.silu(H), "bfloat16", [-0.071777344, -0.26953125, 0.31054688, 2.859375]),
    (
        lambda: F.mish(X),
        "float32",
        [-0.072591752, -0.14564747, -0.30340144, 0.0, 0.37524524, 2.9865351, 30.0],
    ),
    (
        lambda: F.softplus(X),
        "float32",
        [0.018149929, 0.048587352, 0.31326169, 0.69314718, 0.97407699, 3.0485873, 30.0],
    ),
    (
        lambda: F.softplus(X, 2, 5),
        "float32",
        [0.00016770318, 0.0012378426, 0.063464001, 0.34657359, 0.65663081, 3.0, 30.0],
    ),
    (
        lambda: F.softsign(X),
        "float32",
        [-0.80000001, -0.75, -0.5, 0.0, 0.33333334, 0.75, 0.96774191],
    ),
    (lambda: F.hardtanh(X), "float32", [-1.0, -1.0, -1.0, 0.0, 0.5, 1.0, 1.0]),
    (lambda: F.relu6(X), "float32", [0.0, 0.0, 0.0, 0.0, 0.5, 3.0, 6.0]),
    (lambda: F.hardsigmoid(X), "float32", [0.0, 0.0, 0.33333334, 0.5, 0.58333331, 1.0, 1.0]),
    (lambda: F.hardswish(X), "float32", [-0.0, -0.0, -0.33333334, 0.0, 0.29166666, 3.0, 30.0]),
    (lambda: engine.hardshrink(X), "float32", [-4.0, -3.0, -1.0, 0.0, 0.0, 3.0, 30.0]),
    (lambda: F.softshrink(X), "float32", [-3.5, -2.5, -0.5, 0.0, 0.0, 2.5, 29.5]),
    (
        lambda: F.tanhshrink(X),
        "float32",
        [-3.0006707, -2.0049453, -0.23840582, 0.0, 0.037882835, 2.0049453, 29.0],
    ),
    (lambda: F.logsigmoid(tensor([-800.0, 0.0, 800.0])), "float32", [-800.0, -0.69314718, 0.0]),
    (lambda: engine.threshold(X, 0.5, 9.0), "float32", [9.0, 9.0, 9.0, 9.0, 9.0, 3.0, 30.0]),
    (
        lambda: engine.prelu(M, tensor([0.1, 0.2, 0.3])),
        "float32",
        [[3.0, 1.0, 2.0], [1.0, 5.0, 5.0]],
    ),
    (
        lambda: engine.prelu(-M, tensor([0.1, 0.2, 0.3])),
        "float32",
        [[-0.30000001, -0.2, -0.60000002], [-0.1, -1.0, -1.5]],
    ),
    (lambda: engine.rrelu(X), "float32", [-0.91666669, -0.6875, -0.22916667, 0.0, 0.5, 3.0, 30.0]),
    (lambda: F.glu(tensor([1.0, 2.0, 0.0, 1.0])), "float32", [0.5, 1.4621172]),
    (lambda: engine.softmax(BIG, 0), "float32", [0.26894143, 0.7310586]),
    (
        lambda: engine.softmax(M, 0),
        "float32",
        [[0.88079703, 0.01798621, 0.047425874], [0.11920292, 0.98201376, 0.95257413]],
    ),
    (lambda: engine.softmax(H, 0), "bfloat16", [0.00082778931, 0.016601562, 0.074707031, 0.90625]),
    (
        lambda: engine.softmax(I64, 0, dtype=engine.float64),
        "float64",
        [0.1191072571015, 0.0008025383855565, 0.8800902045129],
    ),
    (lambda: engine.softmax(tensor([-inf, 0.0]), 0), "float32", [0.0, 1.0]),
    (lambda: engine.softmax(tensor(3.0), 0), "float32", 1.0),
    (lambda: engine.log_softmax(BIG, 0), "float32", [-1.3132616, -0.31326166]),
    (lambda: engine.log_softmax(tensor([-1e4, 0.0]), 0), "float32", [-10000.0, 0.0]),
    (lambda: softmin(BIG, 0), "float32", [0.7310586, 0.26894143]),
    (lambda: engine.tanh(H), "bfloat16", [-1.0, -0.76171875, 0.46289062, 0.99609375]),
]
ERRORS: list[Any] = [
    (lambda: engine.relu(B), RuntimeError, "Boolean inputs not supported for relu"),
    (lambda: engine.relu(C64), NotImplementedError, "clamp is not supported for complex types"),
    (
        lambda: F.leaky_relu(I64),
        NotImplementedError,
        "\"leaky_relu_cpu\" not implemented for 'Long'",
    ),
    (lambda: F.elu(I64), NotImplementedError, "\"elu_cpu\" not implemented for 'Long'"),
    (lambda: engine.celu(X, 0.0), RuntimeError, "ZeroDivisionError: alpha cannot be 0 for CELU"),
    (lambda: F.gelu(I64), NotImplementedError, "\"GeluKernelImpl\" not implemented for 'Long'"),
    (
        lambda: F.gelu(X, approximate="x"),
        RuntimeError,
        "approximate argument must be either none or tanh.",
    ),
    (lambda: F.silu(I64), NotImplementedError, "\"silu_cpu\" not implemented for 'Long'"),
    (lambda: F.mish(I64), NotImplementedError, "\"mish_cpu\" not implemented for 'Long'"),
    (lambda: F.softplus(I64), NotImplementedError, "\"softplus_cpu\" not implemented for 'Long'"),
    (lambda: F.hardswish(I64), NotImplementedError, "\"hardswish_cpu\" not implemented for 'Long'"),
    (lambda: F.hardtanh(X, 2, 1), ValueError, "min_val cannot be greater than max_val"),
    (lambda: F.glu(X), RuntimeError, "Halving dimension must be even, but dimension 0 is size 7"),
    (
        lambda: F.glu(tensor(1.0)),
        RuntimeError,
        "glu does not support scalars because halving size must be even",
    ),
    (
        lambda: engine.prelu(M, tensor([0.1, 0.2])),
        RuntimeError,
        "Mismatch of parameter numbers and input channel size. Found parameter numbers = 2 and channel size = 3.",
    ),
    (
        lambda: engine.hardshrink(I64),
        NotImplementedError,
        "\"hardshrink_cpu\" not implemented for 'Long'",
    ),
    (
        lambda: F.softshrink(X, -1.0),
        RuntimeError,
        "lambda must be in range [0, 3.40282e+38] for input dtype Float, but found -1",
    ),
    (
        lambda: engine.softmax(I64, 0),
        NotImplementedError,
        "\"softmax_lastdim_kernel_impl\" not implemented for 'Long'",
    ),
    (
        lambda: engine.softmax(M, 3),
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 3)",
    ),
    (
        lambda: engine.rrelu(X, 0.5, 0.1),
        RuntimeError,
        "Lower bound should be less than or equal to the upper bound",
    ),
]
GRADIENTS: list[Any] = [
    (lambda x: engine.relu(x), [[-1.0, 0.0, 2.0]], [[0.0, 0.0, 1.0]]),
    (lambda x: F.leaky_relu(x), [[-1.0, 0.0, 2.0]], [[0.01, 0.01, 1.0]]),
    (lambda x: F.elu(x), [[-1.0, 0.0, 2.0]], [[0.3678794411714, 1.0, 1.0]]),
    (lambda x: F.hardtanh(x), [[-1.0, 0.0, 1.0]], [[0.0, 1.0, 0.0]]),
    (lambda x: F.relu6(x), [[0.0, 3.0, 6.0]], [[0.0, 1.0, 0.0]]),
    (lambda x: F.hardsigmoid(x), [[-3.0, 0.0, 3.0]], [[0.0, 0.1666666716337, 0.0]]),
    (lambda x: F.hardswish(x), [[-3.0, 0.0, 3.0]], [[0.0, 0.5, 1.0]]),
    (lambda x: engine.hardshrink(x), [[-0.5, 0.5, 0.6]], [[0.0, 0.0, 1.0]]),
    (lambda x: F.softshrink(x), [[-0.5, 0.5, 0.6]], [[0.0, 0.0, 1.0]]),
    (lambda x: engine.threshold(x, 0.5, 9.0), [[0.5, 0.6]], [[0.0, 1.0]]),
    (lambda x, y: engine.prelu(x, y), [[-1.0, 0.0, 2.0], [0.25]], [[0.25, 0.25, 1.0], [-1.0]]),
    (lambda x: F.logsigmoid(x), [[-800.0, 0.0, 800.0]], [[1.0, 0.5, 0.0]]),
    (lambda x: F.softplus(x), [[-800.0, 0.0, 800.0]], [[0.0, 0.5, 1.0]]),
    (lambda x: F.gelu(x), [[-3.0, 0.0, 3.0]], [[-0.01194564720418, 0.5, 1.011945647204]]),
    (
        lambda x: engine.softmax(x, 0) * tensor([1.0, 2.0]),
        [[1000.0, 1001.0]],
        [[-0.1966119332415, 0.1966119332415]],
    ),
    (
        lambda x: engine.log_softmax(x, 0) * tensor([1.0, 2.0]),
        [[1000.0, 1001.0]],
        [[0.19317573589, -0.19317573589]],
    ),
]


@pytest.mark.parametrize(("call", "dtype", "expected"), VALUES)
def test_values_and_dtypes(call: Any, dtype: str, expected: Any) -> None:
    check_value(call, dtype, expected, absolute=1e-6)


@pytest.mark.parametrize(("call", "error", "sentence"), ERRORS)
def test_errors(call: Any, error: type[Exception], sentence: str) -> None:
    check_error(call, error, sentence)


@pytest.mark.parametrize(("call", "values", "expected"), GRADIENTS)
def test_gradients_at_ties_zeros_and_bounds(call: Any, values: Any, expected: Any) -> None:
    check_gradients(call, values, expected, relative=1e-7)


@pytest.mark.parametrize("count", [5, 5000, 70_000])
def test_limits_without_numpys_own_clip(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a later numpy has moved the ufunc the public functions serve, with the same results."""
    x = engine.linspace(-9, 9, count)
    x[2], x[3] = nan, -inf
    functions = (engine.relu, F.relu6, F.hardsigmoid, F.hardswish, lambda t: F.hardtanh(t, -2, 3), F.elu)
    fast = [f(x) for f in functions]
    monkeypatch.setattr("engine.ops.activation._clip", None)
    for f, found in zip(functions, fast):
        engine.testing.assert_close(f(x), found, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("weight", [0.25, 1.0, 1.5, 0.0, -0.5, nan, inf])
def test_prelu_of_large_inputs(weight: float) -> None:
    x = engine.linspace(-9, 9, 3000).reshape(1, 3, 1000)
    x[0, 0, :3] = tensor([nan, inf, -inf])
    weights = tensor([0.5, weight, 0.1])
    found = engine.prelu(x, weights)
    wanted = engine.where(x > 0, x, x * weights.reshape(3, 1))
    engine.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "shape, one",
    [
        ((2, 3, 1000), False),
        ((20, 300), False),
        ((20000,), True),
        ((10007,), True),
        ((4, 1, 70, 70), True),
        ((300,), True),
    ],
)
def test_prelu_and_its_gradients_by_all_routes(shape: tuple[int, ...], one: bool) -> None:
    generator = engine.Generator().manual_seed(3)
    x = engine.randn(*shape, generator=generator).requires_grad_()
    weight = (engine.rand(1 if one else shape[1], generator=generator) * 2 - 0.7).requires_grad_()
    grad = engine.randn(*shape, generator=generator)
    each = weight.detach().double().reshape(-1, *(1,) * (len(shape) - 2))
    result = engine.prelu(x, weight)
    result.backward(grad)
    a, g = x.detach().double(), grad.double()
    engine.testing.assert_close(result.double(), engine.where(a > 0, a, a * each), rtol=1e-6, atol=1e-6)
    engine.testing.assert_close(x.grad.double(), engine.where(a > 0, g, g * each), rtol=1e-6, atol=1e-6)
    slopes = engine.where(a > 0, a * 0, a * g)
    slopes = slopes.sum() if one else slopes.sum([d for d in range(len(shape)) if d != 1])
    engine.testing.assert_close(weight.grad.double(), slopes.reshape(-1), rtol=1e-5, atol=1e-3)
