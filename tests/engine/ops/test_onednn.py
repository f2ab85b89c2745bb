"""Ops at sizes where oneDNN computes them, against the same in float64, which numpy computes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends import onednn
from engine.core.lru import LRU
from engine.dispatch import OPS, choosing
from engine.nn import functional as F
from engine.tensor import Tensor, wrap

pytestmark = pytest.mark.onednn
LEAVES = {  # name: (shapes of the leaves, function)
    "conv1d": ([(2, 6, 50), (8, 3, 5), (8,)], lambda x, w, b: F.conv1d(x, w, b, 2, 2, 1, 2)),
    "conv2d": ([(2, 6, 15, 14), (8, 6, 3, 3), (8,)], lambda x, w, b: F.conv2d(x, w, b, 1, 1)),
    "conv2d depthwise": ([(2, 8, 15, 14), (16, 1, 3, 3)], lambda x, w: F.conv2d(x, w, None, 2, 1, 1, 8)),
    "conv2d dilated": ([(1, 6, 20, 20), (4, 6, 3, 3)], lambda x, w: F.conv2d(x, w, None, 1, 2, 2)),
    "conv2d of one channel": ([(3, 1, 12, 12), (8, 1, 3, 3)], lambda x, w: F.conv2d(x, w)),
    "conv2d onto one pixel": ([(3, 4, 5, 5), (8, 4, 5, 5)], lambda x, w: F.conv2d(x, w)),
    "conv3d": ([(1, 3, 6, 7, 8), (4, 3, 3, 3, 3), (4,)], lambda x, w, b: F.conv3d(x, w, b, 1, 1)),
    "conv_transpose2d": ([(2, 6, 8, 8), (6, 4, 3, 3), (4,)], lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1)),
    "conv_transpose1d": ([(2, 4, 30), (4, 3, 4)], lambda x, w: F.conv_transpose1d(x, w, None, 2, 1)),
    "max_pool2d": ([(2, 8, 15, 14)], lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max_pool2d ceil": ([(2, 8, 15, 14)], lambda x: F.max_pool2d(x, 2, ceil_mode=True)),
    "avg_pool2d": ([(2, 8, 15, 14)], lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "avg_pool2d without padding": ([(2, 8, 15, 14)], lambda x: F.avg_pool2d(x, 3, 2, 1, True, count_include_pad=False)),
    "adaptive_avg_pool2d": ([(2, 8, 14, 14)], lambda x: F.adaptive_avg_pool2d(x, 7)),
    "batch_norm": ([(6, 8, 9, 9), (8,), (8,)], lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "conv3d depthwise": ([(2, 8, 6, 7, 8), (8, 1, 3, 3, 3), (8,)], lambda x, w, b: F.conv3d(x, w, b, 1, 1, 1, 8)),
    "conv3d depthwise of every second frame": (
        [(2, 8, 6, 7, 8), (8, 1, 3, 3, 3)],
        lambda x, w: F.conv3d(x, w, None, 2, 1, 1, 8),
    ),
    "conv3d depthwise where no slice meets all": (
        [(1, 8, 3, 7, 8), (8, 1, 4, 1, 2), (8,)],
        lambda x, w, b: F.conv3d(x, w, b, (3, 1, 1), (5, 0, 0), (2, 1, 1), 8),
    ),
    "batch_norm of rows": ([(300, 40), (40,)], lambda x, w: F.batch_norm(x, None, None, w, None, True)),
    "batch_norm in evaluation": (
        [(6, 8, 9, 9), (8,), (8,)],
        lambda x, w, b: F.batch_norm(x, x.detach().mean((0, 2, 3)), x.detach().var((0, 2, 3)), w, b),
    ),
    "layer_norm": ([(40, 3, 64), (64,), (64,)], lambda x, w, b: F.layer_norm(x, (64,), w, b)),
    "layer_norm over two dims": ([(40, 8, 8), (8, 8)], lambda x, w: F.layer_norm(x, (8, 8), w)),
    "group_norm": ([(3, 8, 20, 20), (8,), (8,)], lambda x, w, b: F.group_norm(x, 4, w, b)),
    "group_norm of one group a channel": ([(2, 8, 15, 14)], lambda x: F.group_norm(x, 8)),
    "group_norm of one group": ([(4, 6, 40), (6,)], lambda x, w: F.group_norm(x, 1, w)),
    "group_norm of rows": ([(40, 96), (96,), (96,)], lambda x, w, b: F.group_norm(x, 8, w, b)),
    "instance_norm": ([(3, 8, 20, 20), (8,), (8,)], lambda x, w, b: F.instance_norm(x, None, None, w, b)),
    "group_norm of large pictures": ([(5, 8, 80, 80), (8,), (8,)], lambda x, w, b: F.group_norm(x, 2, w, b)),
    "linear": ([(70, 80), (90, 80), (90,)], lambda x, w, b: F.linear(x, w, b)),
    "linear of batches": ([(4, 30, 80), (90, 80), (90,)], lambda x, w, b: F.linear(x, w, b)),
    "matmul": ([(70, 80), (80, 90)], lambda a, b: a @ b),
    "matmul transposed": ([(80, 70), (90, 80)], lambda a, b: a.t() @ b.t()),
    "bmm": ([(6, 50, 40), (6, 40, 30)], lambda a, b: a.bmm(b)),
    "attention scores": ([(2, 40, 4, 32), (2, 40, 4, 32)], lambda q, k: q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1)),
    "matmul broadcast": ([(5, 50, 40), (40, 30)], lambda a, b: a @ b),
    "addmm": ([(70, 1), (70, 80), (80, 90)], lambda c, a, b: engine.addmm(c, a, b, beta=0.5, alpha=2)),
    "softmax": ([(600, 130)], lambda x: F.softmax(x, 1)),
    "softmax of channels": ([(4, 20, 30, 40)], lambda x: F.softmax(x, 1)),
    "log_softmax": ([(600, 130)], lambda x: F.log_softmax(x, -1)),
    "gelu": ([(600, 130)], F.gelu),
    "gelu tanh": ([(600, 130)], lambda x: F.gelu(x, approximate="tanh")),
    "silu": ([(600, 130)], F.silu),
    "sigmoid": ([(600, 130)], lambda x: x.sigmoid()),
    "tanh": ([(600, 130)], lambda x: x.tanh()),
    "relu": ([(600, 130)], F.relu),
    "relu6": ([(600, 130)], lambda x: F.relu6(x * 6)),
    "sum of rows": ([(900, 130)], lambda x: x.sum(0)),
    "sum of channels": ([(4, 30, 30, 40)], lambda x: x.sum((0, 2, 3), keepdim=True)),
    "sum of channels after a convolution": (
        [(4, 3, 30, 40), (16, 3, 3, 3)],
        lambda x, w: F.conv2d(x, w).sum((0, 2, 3)),
    ),
    "sum to size": ([(900, 130), (130,)], lambda a, b: a * b + b),
    "sums and products": ([(600, 130), (600, 130)], lambda a, b: (a + b) * (a - b)),
}


@pytest.mark.parametrize("name", LEAVES)
def test_values_and_gradients(name: str) -> None:
    shapes, function = LEAVES[name]
    generator = np.random.default_rng(3)
    arrays = [generator.standard_normal(s) for s in shapes]
    found = [_run(function, [a.astype(dtype) for a in arrays]) for dtype in ("float32", "float64")]
    for a, b in zip(*found):
        assert a.shape == b.shape and a.stride() == b.stride()
        wide = b.numpy()
        np.testing.assert_allclose(a.numpy(), wide, 2e-3, 2e-5 * max(1.0, abs(wide).max()))


def _run(function: Any, arrays: list[np.ndarray]) -> list[Tensor]:
    leaves = [wrap(a).requires_grad_() for a in arrays]
    result = function(*leaves)
    weight = np.linspace(0.5, 1.5, result.numel()).reshape(result.shape)
    gradients = engine.autograd.grad(result, leaves, wrap(weight.astype(arrays[0].dtype)))
    return [result.detach(), *gradients]


def test_in_place_forms() -> None:
    array = np.random.default_rng(0).standard_normal((600, 130)).astype("float32")
    other = array[::-1].copy()
    for change, wanted in (
        (lambda x: x.relu_(), np.maximum(array, 0)),
        (lambda x: F.relu6(x, inplace=True), np.clip(array, 0, 6)),
        (lambda x: x.add_(wrap(other)), array + other),
        (lambda x: x.mul_(x), array * array),
        (lambda x: x.sigmoid_(), 1 / (1 + np.exp(-array))),
        (lambda x: x.t().add_(wrap(other).t()), (array + other)),
        (lambda x: x[:, ::2].relu_(), None),
    ):
        x = wrap(array.copy())
        address = x.data_ptr()
        change(x)
        if wanted is None:
            wanted = array.copy()
            wanted[:, ::2] = np.maximum(wanted[:, ::2], 0)
        assert x.data_ptr() == address and x._version == 1
        np.testing.assert_allclose(x.numpy(), wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_stays_as_in_numpy(value: float) -> None:
    array = np.random.default_rng(0).standard_normal((4, 8, 48, 48)).astype("float32")
    array[1, 2, 3, 4] = value
    array[3] = value
    for function in (
        F.relu,
        F.relu6,
        F.silu,
        lambda x: x.sigmoid(),
        lambda x: x.tanh(),
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.softmax(x, 1),
        lambda x: F.log_softmax(x.view(4, -1), 1),
        lambda x: x + x,
        lambda x: x.exp(),
    ):
        found, wanted = (function(wrap(array.astype(d))).numpy() for d in ("float32", "float64"))
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@pytest.mark.skipif(not choosing.onednn_kernels(), reason="oneDNN is not in use")
def test_no_kernel_is_a_slow_reference() -> None:
    from engine.backends.onednn.primitives import Primitive, _context

    for name in ("conv2d", "batch_norm", "max_pool2d", "layer_norm", "softmax", "bmm", "gelu"):
        shapes, function = LEAVES[name]
        _run(function, [np.ones(s, "float32") for s in shapes])
    layers = ("lstm", "lbr_gru")  # of these the one called so is made of products
    found = [getattr(p, "_run", p) for key, p in _context.primitives.items() if key[0] not in layers]
    served = [p.plan.implementation for p in found if isinstance(p, Primitive)]
    assert len(served) > 12
    assert not [name for name in served if name.startswith("ref")]


@pytest.mark.skipif(not choosing.onednn_kernels(), reason="oneDNN is not in use")
def test_small_arrays_never_reach_the_library() -> None:
    for record in OPS.values():
        if "onednn" in record.kernels:
            assert record.large > 8


@pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe())
def test_a_linear_layer_of_many_rows_that_comes_again_is_a_primitive(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.ops.products import onednn as blas

    plain, made = blas.arrays.matmul, []
    monkeypatch.setattr(blas.arrays, "matmul", lambda *given: made.append(1) or plain(*given))  # type: ignore[func-returns-value]
    monkeypatch.setattr(blas, "_seen", LRU(1 << 12))
    w, b = np.float32(np.random.default_rng(0).random((80, 64))), np.ones(80, "float32")
    counts = []
    for rows in (600, 600, 700, 600, 4, 4):  # the library's kernel alone, which generated code stands before
        x = np.random.default_rng(rows).random((rows, 64), "float32")
        found = blas.linear_of_rows(np, x, w, b)
        assert (found is NotImplemented) == (rows == 4)
        if rows > 4:
            np.testing.assert_allclose(found, x @ w.T + b, 1e-4, 1e-4)
        counts.append(len(made))
    assert counts == [0, 1, 1, 2, 2, 2] and set(blas._seen) == {(600, (80, 64)), (700, (80, 64))}
