"""Layers of few elements as one kernel: against the op's own code, and what they leave to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops import generated
from engine.ops.generated import comparison, launch

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


def arrays(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def agree(name: str, *args: Any, **kwargs: Any) -> None:
    """The kernel serves the call and gives what the op's own code gives."""
    got = generated.variant_of(OPS[name], small=True)(np, *args, **kwargs)
    assert got is not NotImplemented
    with np.errstate(all="ignore"):
        want = OPS[name].kernel(np, *args, **kwargs)
    difference = comparison.difference(want, got, 1.0)
    assert difference is None, difference


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 2, 1, 1), (3, 5, 7, 4), (9, 6), (2, 3, 100), (1, 40, 3, 3)])
def test_batch_norm(shape: tuple[int, ...], dtype: str) -> None:
    x, g = arrays(shape, shape, dtype=dtype)
    c = (shape[1],)
    w, b, mean = arrays(c, c, c, dtype=dtype)
    var = np.abs(w) + 1
    for weight, bias in ((w, b), (None, None), (w, None)):
        agree("batch_norm_train", x, weight, bias, 1e-5)
        agree("batch_norm_eval", x, mean, var, weight, bias, 0.1)
        agree("batch_norm_backward", g, x, mean, 1 / np.sqrt(var), weight, 1e-5)
        agree("batch_norm_eval_backward", g, x, mean, var, weight, 0.1)


@pytest.mark.parametrize("shape", [(6,), (3, 5), (2, 5, 3, 4)])
def test_gradient_of_prelu(shape: tuple[int, ...]) -> None:
    x, g = arrays(shape, shape)
    x.reshape(-1)[0] = 0
    x.reshape(-1)[1] = np.nan
    agree("prelu_backward", g, x, np.full((1,) * len(shape), 0.3, "float32"))
    agree("prelu_backward", g, x, np.full((1,), -0.3, "float32"))
    if len(shape) > 1:
        (w,) = arrays((1, shape[1], *(1,) * (len(shape) - 2)))
        agree("prelu_backward", g, x, w)
    variant = generated.variant_of(OPS["prelu_backward"], small=True)
    assert variant(np, g, x, x) is NotImplemented  # a weight an element: rrelu's


@pytest.mark.parametrize(("shape", "dim"), [((2, 2), -1), ((4, 6), 0), ((3, 4, 5), 1), ((2, 64), 1), ((2,), 0)])
def test_gated_linear_unit(shape: tuple[int, ...], dim: int) -> None:
    (x,) = arrays(shape)
    agree("glu", x, dim)
    half = list(shape)
    half[dim] //= 2
    agree("glu_backward", *arrays(tuple(half)), x, dim)
    assert generated.variant_of(OPS["glu"], small=True)(np, x[..., :1].copy(), -1) is NotImplemented


@pytest.mark.parametrize(("shape", "dim"), [((7,), 0), ((3, 40), 1), ((3, 40), 0), ((2, 9, 5), 1), ((1000, 3), -2)])
def test_running_sums(shape: tuple[int, ...], dim: int) -> None:
    for dtype in ("float32", "float64"):
        (x,) = arrays(shape, dtype=dtype)
        agree("cumsum", x, dim)
        agree("cumsum", np.abs(x), dim)
    assert generated.variant_of(OPS["cumsum"], small=True)(np, x, dim, dtype="float32") is NotImplemented


def test_running_sums_are_rounded_once_and_do_not_fall() -> None:
    x = np.abs(arrays((1, 5000))[0])
    got = generated.variant_of(OPS["cumsum"], small=True)(np, x, 1)
    assert np.array_equal(got, np.cumsum(x, 1, dtype="float64").astype("float32"))
    assert (np.diff(got) >= 0).all()


@pytest.mark.parametrize(
    ("size", "kernel", "dilation", "padding", "stride"),
    [
        ((4, 6), (2, 2), (1, 1), (0, 0), (2, 2)),
        ((5, 5), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((5, 4), (2, 3), (2, 1), (1, 2), (1, 2)),
        ((7, 9), (2, 2), (1, 3), (0, 1), (3, 2)),
        ((3, 3), (1, 1), (1, 1), (3, 3), (4, 4)),
        ((6, 5), (5, 5), (1, 1), (4, 4), (2, 3)),
    ],
)
def test_columns_are_added_up_in_images(size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    blocks = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(size, kernel, dilation, padding, stride)]
    (x,) = arrays((2, 3 * kernel[0] * kernel[1], blocks[0] * blocks[1]))
    agree("col2im", x, size, kernel, dilation, padding, stride)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(1, 4), (7, 3), (128, 10), (5, 100)])
def test_cross_entropy(shape: tuple[int, int], reduction: str) -> None:
    (x,) = arrays(shape)
    (w,) = np.abs(arrays((shape[1],)))
    rng = np.random.default_rng(0)
    for target in (rng.integers(0, shape[1], shape[0]), rng.integers(0, shape[1], shape[0]).astype("uint8")):
        for weight in (None, w):
            for ignored in (-100, 1):
                agree("softmax_nll_rows", x, target, weight, ignored, reduction)
                _, total, p = OPS["softmax_nll_rows"].kernel(np, x, target, weight, ignored, reduction)
                grad = np.full(() if reduction != "none" else shape[:1], 1.5, "float32")
                agree("softmax_nll_backward", p, grad, target, total, weight, ignored, reduction)


def test_a_target_that_is_no_class_is_left_to_the_code_that_says_so() -> None:
    (x,) = arrays((4, 3))
    variant = generated.variant_of(OPS["softmax_nll_rows"], small=True)
    with pytest.raises(launch.Unfit):
        variant(np, x, np.array([0, 1, 3, 2]))


@pytest.mark.parametrize(
    ("lead", "rows", "places", "width", "depth"),
    [
        ((), 2, 3, 4, 2),
        ((1, 2), 1, 1, 1, 1),
        ((2,), 5, 7, 3, 20),
        ((2, 3), 25, 25, 20, 20),
        ((1,), 40, 2, 33, 1),
    ],
)
def test_attention(lead: tuple[int, ...], rows: int, places: int, width: int, depth: int) -> None:
    for dtype in ("float32", "float64"):
        q, k, v, g = arrays(
            (*lead, rows, width), (*lead, places, width), (*lead, places, depth), (*lead, rows, depth), dtype=dtype
        )
        agree("attention", q, k, v, None, None, 0.3)
        weights = OPS["attention"].kernel(np, q, k, v, None, None, 0.3)[1]
        agree("attention_backward", g, q, k, v, weights, None, None, 0.3, False)
    variant = generated.variant_of(OPS["attention"], small=True)
    assert variant(np, q, k, v, np.zeros((rows, places)), None, 0.3) is NotImplemented
    assert variant(np, q, k[..., :-1], v, None, None, 0.3) is NotImplemented


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape,groups", [((2, 6, 7, 9), 2), ((3, 8), 4), ((1, 4, 5), 4), ((5, 6, 2, 3, 4), 1), ((2, 64, 8, 8), 32)]
)
def test_gradients_of_group_norm(shape: tuple[int, ...], groups: int, dtype: str) -> None:
    x, g, weight = arrays(shape, shape, (shape[1],), dtype=dtype)
    mean, rstd = OPS["normalize_groups"].kernel(np, x + 3, groups, None, None, 0.1)[1:]
    for w in (weight, None):
        agree("native_group_norm_backward", g, x + 3, mean, rstd, w, groups, 0.1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 8, 5), (40, 60, 12)])
def test_norms_of_rows_that_are_no_lines(shape: tuple[int, ...], dtype: str) -> None:
    x, weight = (a.astype(dtype) for a in arrays(shape, shape[1:2]))
    for across in (x.transpose(0, 2, 1), x[..., ::2].transpose(2, 0, 1)):
        for w in (weight, None):
            agree("native_layer_norm", across, shape[1:2], w, w, 0.1)
            agree("layer_norm_inference", across, shape[1:2], w, w, 0.1)
            agree("rms_norm_train", across, shape[1:2], w, 0.1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape,last", [((3, 5, 48), 1), ((2, 3, 7), 2), ((300, 700), 1), ((4, 5), 2), ((130, 1), 1)])
def test_gradients_of_normalized_rows(shape: tuple[int, ...], last: int, dtype: str) -> None:
    size = shape[-last:]
    x, g, weight = arrays(shape, shape, size, dtype=dtype)
    _, mean, rstd = OPS["native_layer_norm"].kernel(np, x + 3, size, None, None, 0.1)
    for w in (weight, None):
        agree("native_layer_norm_backward", g, x + 3, mean, rstd, w, size, 0.1)
        agree("native_layer_norm_backward", g, x + 3, mean, rstd, w, size, 0.1, False)
        agree("rms_norm_backward", g, x, rstd, w, size, 0.1)
        if len(shape) > last:
            across = np.asfortranarray(g), np.asfortranarray(x + 3)
            agree("native_layer_norm_backward", across[0], x + 3, mean, rstd, w, size, 0.1)
            agree("native_layer_norm_backward", *across, mean, rstd, w, size, 0.1)
            agree("rms_norm_backward", g, across[1], rstd, w, size, 0.1)
    half = x.astype("float16"), g.astype("float16")
    if len(shape) > last:
        agree(
            "native_layer_norm_backward", *half[::-1], mean.astype("float32"), rstd.astype("float32"), None, size, 0.1
        )
