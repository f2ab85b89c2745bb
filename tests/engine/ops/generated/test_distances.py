"""Distances of rows by generated kernels: against the ops' own code."""

from __future__ import annotations

import numpy as np
import pytest

from engine.dispatch import OPS
from engine.kernels import processor
from tests.engine.ops.generated.test_layers import agree
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [1.0, float("inf")])
def test_generated_distances_and_gradients(p: float, dtype: str) -> None:
    """As the ops' own code, of operands that broadcast, are transposed, have nan and infinities, or gradients of 0."""
    r = np.random.default_rng(0)
    draw = lambda *shape: (np.round(r.standard_normal(shape) * 4) / 4).astype(dtype)
    odd = draw(3, 5)
    odd[0, :3] = np.nan, np.inf, -np.inf
    pairs = [(draw(1, 1), draw(4, 1)), (odd, draw(2, 5)), (draw(3, 1, 6, 2), draw(4, 7, 2)), (draw(5, 9).T, draw(8, 5))]
    for x, y in pairs:
        agree("general_cdist", x, y, p)
        with np.errstate(invalid="ignore"):
            far = OPS["general_cdist"].kernel(np, x, y, p)
        grad = np.swapaxes(draw(*far.shape[:-2], far.shape[-1], far.shape[-2]), -1, -2)
        for wanted in ((True, True), (True, False), (False, True)):
            agree("general_cdist_backward", grad, x, y, far, p, *wanted)


def test_what_is_left_of_distances() -> None:
    x = np.ones((3, 4), "float32")
    assert left("general_cdist", x, x, 3.0) and left("general_cdist", x[:0], x, 1.0)
    assert left("general_cdist", x.astype("float16"), x.astype("float16"), 1.0)
    assert left("general_cdist_backward", np.ones((3, 3), "float32"), x, x, np.ones((3, 3), "float32"), 0.0)
