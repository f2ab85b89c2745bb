"""Empty and 0-dim operands, ends of ranges, kinds of errors: stored answers of torch 2.13."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.ops.stored import answer, stored


@pytest.mark.parametrize("expression, expected", stored("edges") + stored("losses"))
def test_as_torch(expression: str, expected: Any) -> None:
    assert answer(expression) == expected
