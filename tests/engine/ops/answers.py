"""Rows of tables of answers that torch gave: a call with its value, its error or its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine

RELATIVE = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2}


def check_value(call: Any, dtype: str, expected: Any, absolute: float = 1e-7) -> None:
    """The result of `call()` has this dtype and these numbers."""
    result = call()
    assert str(result.dtype) == f"torch.{dtype}"
    np.testing.assert_allclose(np.array(result.tolist()), np.array(expected), RELATIVE.get(dtype, 1e-6), absolute)


def check_error(call: Any, error: type[Exception], sentence: str) -> None:
    """`call()` raises an error that begins with this sentence."""
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(sentence)


def check_gradients(call: Any, values: Any, expected: Any, relative: float = 1e-10) -> None:
    """The gradients of the sum of `call(*values)`, one per value, in float64."""
    leaves = [engine.tensor(v, dtype=engine.float64, requires_grad=True) for v in values]
    for found, want in zip(engine.autograd.grad(call(*leaves).sum(), leaves), expected, strict=True):
        np.testing.assert_allclose(np.array(found.tolist()), np.array(want), relative, 1e-12)
