"""Calls of which later ones only launch."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np
import pytest

from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops import generated
from engine.ops.generated import comparison, launch, replay
from tests.engine.ops.generated import kernel_of

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("fresh"),
]


SHAPES = {
    "softmax": [((300, 50), 1), ((300, 50), 0), ((4, 30, 5, 7), 1)],
    "log_softmax": [((300, 50), 1), ((50, 300), 0)],
    "gelu": [((2000,),), ((40, 60),)],
    "silu": [((2000,),)],
    "native_layer_norm": [((40, 6, 32), (32,)), ((40, 6, 32), (6, 32))],
}


@pytest.mark.parametrize("type", ["float32", "float64"])
@pytest.mark.parametrize("name", SHAPES)
def test_later_calls_launch_and_nothing_else(name: str, type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proven at the first call, replayed from the second on: other elements, contiguous or not."""
    monkeypatch.setattr(launch, "PAYS", 1)
    rng = np.random.default_rng(0)
    kernel = kernel_of(name)
    for shape, *more in SHAPES[name]:
        for layout in (lambda a: a, np.asfortranarray):
            for turn in range(4):
                x = layout(rng.standard_normal(shape).astype(type))
                with monkeypatch.context() as patch:
                    if turn and x.flags.c_contiguous:  # all that is needed is known
                        patch.setattr(launch, "rows", None)
                        patch.setattr(launch, "elements", None)
                    got = kernel(np, x, *more)
                want = OPS[name].kernel(np, x, *more)
                assert comparison.difference(want, got) is None


@pytest.mark.parametrize("again", [lambda x: x, lambda x: x[:]], ids=["one array", "a view of it"])
def test_what_is_kept_of_a_call_with_one_array_twice_is_not_used_for_two_arrays(again: Any) -> None:
    x, y = (np.random.default_rng(n).standard_normal((200, 300)).astype("float32") for n in range(2))
    kernel, own = kernel_of("silu_backward"), OPS["silu_backward"].kernel
    for _ in range(2 * launch.CALLS):
        kernel(np, x, again(x))
    for first, second in ((x, y), (y, x), (y, y), (y, y[:])):
        np.testing.assert_allclose(kernel(np, first, second), own(np, first, second), atol=1e-5)


def test_a_call_that_launches_nothing_is_not_replayed() -> None:
    """Its result is filled by other means, which a replay would leave out."""

    def filled(xp: Any, x: Any) -> Any:
        made = xp.empty(x.shape, x.dtype)
        made[...] = x + 1
        return made

    x = np.arange(5, dtype="float32")
    assert replay.replay(filled, np, (x,), {}) is None


def test_tables_are_given_to_later_calls_as_they_are() -> None:
    """Two dims of interpolation: places and weights are neither operands nor new arrays."""
    spec = tuple(("linear", n, m, False, None) for n, m in ((9, 5), (6, 13)))
    variant = generated.variant_of(OPS["upsample_bilinear2d"], small=True)
    first, second = (np.random.default_rng(n).standard_normal((2, 3, 9, 6)).astype("float32") for n in range(2))
    replayed = replay.replay(variant, np, (first, spec), {})
    for x in (first, second, first):
        np.testing.assert_array_equal(replayed([x]), variant(np, x, spec))
