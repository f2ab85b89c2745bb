"""Windows of a signal added up by a kernel: against the op's own code; what it leaves."""

from __future__ import annotations

import pytest

from engine.kernels import processor
from tests.engine.ops.generated.test_layers import agree, arrays
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("n", "size", "step"), [(40, 16, 8), (43, 16, 8), (50, 10, 4), (21, 21, 5), (60, 5, 7), (61, 4, 9), (9, 9, 4)]
)
def test_windows_are_added(n: int, size: int, step: int, dtype: str) -> None:
    count = (n - size) // step + 1
    (grad,) = arrays((2, 3, count, size), dtype=dtype)
    agree("unfold_backward", grad, (2, 3, n), 2, size, step)
    agree("unfold_backward", grad[0, 0], (n,), -1, size, step)


def test_what_it_leaves() -> None:
    (grad,) = arrays((2, 5, 3, 16))
    assert left("unfold_backward", grad, (2, 48, 3), 1, 16, 8)  # not the last dim
    (grad,) = arrays((2, 5, 16))
    assert left("unfold_backward", grad, (2, 20), 1, 16, 1)  # short steps
    assert left("unfold_backward", grad[:, :, ::2], (2, 24), 1, 8, 4)
    assert left("unfold_backward", grad.astype("float16"), (2, 48), 1, 16, 8)
