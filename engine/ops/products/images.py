"""Products of a weight and the places of images: convolutions of single elements."""

from __future__ import annotations

from typing import Any

from engine.dispatch import op, samples
from engine.ops.products import product


@op(
    public=False, method=False, out=False, tensors=("weight", "images", "bias"), generated="many",
    large=1 << 18, large_by=("weight", "images"),
)  # fmt: skip
@samples(
    lambda t: [
        (t.constant(t(3, 4)), t.constant(t(2, 4, 5)), t.constant(t(3))),
        (t.constant(t(5, 2)), t.constant(t(1, 2, 7))),
    ]
)
def products_of_places(xp: Any, weight: Any, images: Any, bias: Any = None) -> Any:
    """weight @ each image + bias.  weight (O, C), images (N, C, places), bias (O) or None -> (N, O, places)."""
    made = product(xp, weight, images)
    if bias is not None:
        made += bias[:, None]
    return made
