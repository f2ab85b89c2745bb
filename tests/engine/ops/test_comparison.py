"""What the registry tests do not show of comparisons, tests and order.

Numbers and sentences of torch 2.13.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

import engine
from engine import tensor
from tests.engine.ops.answers import check_error, check_gradients, check_value

F32 = tensor([1.5, -0.5, 2.0])
I64 = tensor([3, -2, 5])
U8 = tensor([1, 2, 200], dtype=engine.uint8)
B = tensor([True, False, True])
C64 = tensor([1 + 2j, -1j, 3 - 1j])
M = tensor([[3.0, 1.0, 2.0], [1.0, 5.0, 5.0]])
K = tensor([[2, 1, 2, 3], [0, 0, 1, 1]])
N = tensor([1.0, nan, 3.0, 2.0])

VALUES: list[Any] = [
    (lambda: F32 == I64, "bool", [False, False, False]),
    (lambda: I64 < 2.5, "bool", [False, True, False]),
    (lambda: U8 < 300, "bool", [True, True, False]),
    (lambda: B == 1, "bool", [True, False, True]),
    (lambda: C64 == C64, "bool", [True, True, True]),
    (lambda: engine.ne(F32, 1.5), "bool", [False, True, True]),
    (lambda: engine.isnan(I64), "bool", [False, False, False]),
    (lambda: engine.isposinf(tensor([inf, -inf, nan])), "bool", [True, False, False]),
    (lambda: engine.isreal(C64), "bool", [False, False, False]),
    (lambda: engine.isclose(tensor([1.0, nan]), tensor([1.0 + 1e-6, nan])), "bool", [True, False]),
    (
        lambda: engine.isclose(tensor([1.0, nan]), tensor([1.0 + 1e-6, nan]), equal_nan=True),
        "bool",
        [True, True],
    ),
    (lambda: engine.isclose(tensor([inf, 1.0]), tensor([inf, inf])), "bool", [True, False]),
    (lambda: engine.any(U8), "uint8", 1),
    (lambda: engine.all(engine.ones(0)), "bool", True),
    (lambda: engine.any(M > 4, 1), "bool", [False, True]),
    (lambda: engine.all(M > 0, (0, 1), keepdim=True), "bool", [[True]]),
    (lambda: M.sort(1)[1], "int64", [[1, 2, 0], [0, 1, 2]]),
    (lambda: M.sort(1, descending=True)[1], "int64", [[0, 2, 1], [1, 2, 0]]),
    (lambda: M.sort(1, descending=True)[0], "float32", [[3.0, 2.0, 1.0], [5.0, 5.0, 1.0]]),
    (lambda: N.sort()[0], "float32", [1.0, 2.0, 3.0, nan]),
    (lambda: N.argsort(descending=True), "int64", [1, 2, 3, 0]),
    (lambda: M.argsort(0), "int64", [[1, 0, 0], [0, 1, 1]]),
    (lambda: M.topk(2)[0], "float32", [[3.0, 2.0], [5.0, 5.0]]),
    (lambda: M.topk(2, largest=False)[1], "int64", [[1, 2], [0, 1]]),
    (lambda: M.kthvalue(2)[0], "float32", [2.0, 5.0]),
    (lambda: M.median(), "float32", 2.0),
    (lambda: M.median(1)[1], "int64", [2, 1]),
    (lambda: N.median(), "float32", nan),
    (lambda: N.median(0)[1], "int64", 1),
    (lambda: N.nanmedian(), "float32", 2.0),
    (lambda: N.nanmedian(0)[1], "int64", 3),
    (lambda: engine.median(engine.ones(0)), "float32", nan),
    (lambda: K.mode()[0], "int64", [2, 0]),
    (lambda: K.mode()[1], "int64", [2, 1]),
    (lambda: engine.msort(M), "float32", [[1.0, 1.0, 2.0], [3.0, 5.0, 5.0]]),
    (lambda: K.unique(), "int64", [0, 1, 2, 3]),
    (lambda: K.unique(return_inverse=True)[1], "int64", [[2, 1, 2, 3], [0, 0, 1, 1]]),
    (lambda: K.unique(return_counts=True)[1], "int64", [2, 3, 2, 1]),
    (lambda: K.unique(dim=1), "int64", [[1, 2, 2, 3], [0, 0, 1, 1]]),
    (lambda: K[1].unique_consecutive(), "int64", [0, 1]),
    (lambda: K[1].unique_consecutive(return_counts=True)[1], "int64", [2, 2]),
    (
        lambda: engine.searchsorted(tensor([1.0, 3.0, 5.0]), tensor([0.0, 3.0, 9.0])),
        "int64",
        [0, 1, 3],
    ),
    (
        lambda: engine.searchsorted(tensor([1.0, 3.0, 5.0]), tensor([0.0, 3.0, 9.0]), right=True),
        "int64",
        [0, 2, 3],
    ),
    (
        lambda: engine.searchsorted(tensor([[1.0, 3.0], [0.0, 9.0]]), tensor([[2.0], [2.0]]), out_int32=True),
        "int32",
        [[1], [1]],
    ),
    (lambda: engine.bucketize(tensor([3, 6]), tensor([1, 3, 5])), "int64", [1, 3]),
    (lambda: engine.isin(I64, tensor([3, 5])), "bool", [True, False, True]),
    (lambda: engine.isin(I64, tensor([3, 5]), invert=True), "bool", [False, True, False]),
]
ERRORS: list[Any] = [
    (lambda: C64 < C64, NotImplementedError, "\"lt_cpu\" not implemented for 'ComplexFloat'"),
    (lambda: C64 > 1, NotImplementedError, "\"gt_cpu\" not implemented for 'ComplexFloat'"),
    (
        lambda: engine.eq(2, F32),
        TypeError,
        "eq() received an invalid combination of arguments - got (int, Tensor), but expected one of:",
    ),
    (lambda: engine.isclose(F32, I64), RuntimeError, "Float did not match Long"),
    (lambda: engine.allclose(F32, F32.double()), RuntimeError, "Float did not match Double"),
    (
        lambda: engine.equal(F32, 1),
        TypeError,
        "equal(): argument 'other' (position 2) must be Tensor, not int",
    ),
    (lambda: engine.isposinf(C64), RuntimeError, "isposinf does not support complex inputs."),
    (lambda: engine.sort(C64), RuntimeError, " Sort does not support complex dtypes on CPU"),
    (
        lambda: engine.sort(F32, 5),
        IndexError,
        "Dimension out of range (expected to be in range of [-1, 0], but got 5)",
    ),
    (lambda: engine.topk(F32, 5), RuntimeError, "selected index k out of range"),
    (
        lambda: engine.kthvalue(F32, 5),
        RuntimeError,
        "kthvalue(): selected number k out of range for dimension 0",
    ),
    (
        lambda: engine.mode(engine.ones(0)),
        IndexError,
        "mode(): Expected reduction dim 0 to have non-zero size.",
    ),
    (
        lambda: engine.searchsorted(F32, F32, right=True, side="left"),
        RuntimeError,
        "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True",
    ),
    (
        lambda: engine.isin(B, B),
        RuntimeError,
        "Unsupported input type encountered for isin(): Bool",
    ),
    (lambda: engine.median(B), NotImplementedError, "\"median_cpu\" not implemented for 'Bool'"),
]
GRADIENTS: list[Any] = [
    (lambda x: x.sort()[0] * tensor([1.0, 2.0, 3.0]), [[3.0, 1.0, 2.0]], [[3.0, 1.0, 2.0]]),
    (lambda x: x.topk(2)[0] * tensor([1.0, 2.0]), [[3.0, 1.0, 2.0]], [[1.0, 0.0, 2.0]]),
    (lambda x: x.median(), [[3.0, 1.0, 1.0]], [[0.0, 0.5, 0.5]]),
    (lambda x: x.median(0)[0], [[3.0, 1.0, 1.0]], [[0.0, 0.0, 1.0]]),
    (lambda x: x.kthvalue(1)[0], [[3.0, 1.0, 1.0]], [[0.0, 1.0, 0.0]]),
    (lambda x: x.mode()[0], [[3.0, 1.0, 1.0]], [[0.0, 0.0, 1.0]]),
]


@pytest.mark.parametrize(("call", "dtype", "expected"), VALUES)
def test_values_and_dtypes(call: Any, dtype: str, expected: Any) -> None:
    check_value(call, dtype, expected)


@pytest.mark.parametrize(("call", "error", "sentence"), ERRORS)
def test_errors(call: Any, error: type[Exception], sentence: str) -> None:
    check_error(call, error, sentence)


@pytest.mark.parametrize(("call", "values", "expected"), GRADIENTS)
def test_gradients_at_ties_zeros_and_bounds(call: Any, values: Any, expected: Any) -> None:
    check_gradients(call, values, expected)
