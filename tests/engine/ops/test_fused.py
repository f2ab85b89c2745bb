"""Fused ops: oneDNN's kernels against their numpy twins, and the forms of attention against small ops."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

import engine
import engine.ops.lazy  # every op
from engine import nn
from engine.backends import onednn
from engine.dispatch import OPS
from engine.nn import functional as F
from engine.ops.random.dropout import plus_dropped

pytestmark = pytest.mark.onednn
needs_library = pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe())


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def alike(name: str, *args: Any, refused: bool = False) -> tuple:
    """Both kernels of an op on the same arrays; the twin's results."""
    importlib.import_module("engine.ops.onednn")
    record = OPS[name]
    kept = [a.copy() for a in args if isinstance(a, np.ndarray)]
    twin = record.kernel(np, *args)
    found = record.kernels["onednn"](np, *args)
    for before, after in zip(kept, (a for a in args if isinstance(a, np.ndarray))):
        np.testing.assert_array_equal(before, after)
    if refused:
        assert found is NotImplemented
        return tuple(twin)
    assert found is not NotImplemented, "the library left the case to numpy"
    for a, b in zip(found, twin, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, 1e-4, 1e-4 * max(1.0, float(abs(b).max(initial=0))))
    return tuple(twin)


SIZES = (6, 6, 6), (6, 4, 1)


@needs_library
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("projected", [False, True])
def test_lstm_twins(sizes: tuple, reverse: bool, projected: bool) -> None:
    rows, n, h, p = sum(sizes), sizes[0], 8, 3 if projected else 8
    w_out = rand(p, h) if projected else None
    given = rand(rows, 4 * h), rand(n, p), rand(n, h), rand(4 * h, p)
    output, _, _, act, cells = alike("lstm_layer", *given, w_out, sizes, reverse)
    grads = rand(rows, p), rand(n, p), rand(n, h)
    alike("lstm_layer_backward", *grads, *given, output, act, cells, w_out, sizes, reverse)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True}, {"bias": False}])
def test_recurrent_layers_give_the_same_without_gradients(kind: Any, count: int, options: dict) -> None:
    module = kind(24, 80, 2, **options)
    x = engine.from_numpy(rand(7, count, 24))
    layers = 4 if "bidirectional" in options else 2
    batch = 7 if "batch_first" in options else count
    state = engine.from_numpy(rand(layers, batch, 80))
    given = (state, state * 2) if kind is nn.LSTM else state
    for _ in range(3):
        wanted = module(x, given)
        with engine.no_grad():
            found, again = module(x, given), module(x, given)  # the second time with weights that were kept
            engine.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
            engine.testing.assert_close(again, wanted, rtol=1e-5, atol=1e-6)
            module.weight_hh_l1.mul_(0.9)  # what was kept of it is void


@needs_library
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 6])
def test_inference_twins(count: int, reverse: bool) -> None:
    x, h, c = rand(5 * count, 12), rand(count, 8), rand(count, 8)
    alike("lstm_inference", x, h, c, rand(32, 12), rand(32, 8), rand(32), 5, reverse)
    alike("lstm_inference", x, h, c, rand(32, 12), rand(32, 8), None, 5, reverse)
    alike("gru_inference", x, h, rand(24, 12), rand(24, 8), rand(24), rand(24), 5, reverse)
    alike("gru_inference", x, h, rand(24, 12), rand(24, 8), None, None, 5, reverse)


@needs_library
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("biased", [False, True])
def test_gru_twins(sizes: tuple, reverse: bool, biased: bool) -> None:
    rows, n, h = sum(sizes), sizes[0], 8
    bias = rand(3 * h) if biased else None
    given = rand(rows, 3 * h), rand(n, h), rand(3 * h, h)
    output, _, act, inner = alike("gru_layer", *given, bias, sizes, reverse)
    grads = rand(rows, h), rand(n, h)
    alike("gru_layer_backward", *grads, *given, output, act, inner, bias, sizes, reverse)


@needs_library
@pytest.mark.parametrize("how", ["tanh", "relu"])
@pytest.mark.parametrize("sizes", SIZES)
def test_plain_recurrence_twins(sizes: tuple, how: str) -> None:
    rows, n, h = sum(sizes), sizes[0], 8
    given = rand(rows, h), rand(n, h), rand(h, h)
    output, _ = alike("rnn_layer", *given, how, sizes, False)
    alike("rnn_layer_backward", rand(rows, h), rand(n, h), *given, output, how, sizes, False)


def heads(*shape: int, split: bool) -> np.ndarray:
    """(N, H, L, E), contiguous or as it comes out of one projection (L, N, 3 H E)."""
    n, h, length, e = shape
    if not split:
        return rand(*shape)
    return rand(length, n, 3 * h * e)[..., : h * e].reshape(length, n, h, e).transpose(1, 2, 0, 3)


@needs_library
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_attention_twins(split: bool, masked: bool, noisy: bool) -> None:
    q = heads(2, 3, 5, 8, split=split)
    k, v = heads(2, 3, 7, 8, split=split) * 2, heads(2, 3, 7, 8, split=split) + 1
    mask = rand(2, 1, 5, 7) if masked else None
    if masked:
        mask[0, 0, :, 3] = -np.inf
    noise = (rand(2, 3, 5, 7) > 0).astype("float32") * 2 if noisy else None
    _, weights = alike("attention", q, k, v, mask, noise, 0.3)
    alike("attention_backward", rand(2, 3, 5, 8), q, k, v, weights, mask, noise, 0.3)


@needs_library
def test_rows_with_nothing_to_see_are_numpys() -> None:
    mask = np.zeros((5, 7), "float32")
    mask[2] = -np.inf
    q, k = rand(2, 3, 5, 8), rand(2, 3, 7, 8)
    output, weights = alike("attention", q, k, k, mask, None, 0.3, refused=True)
    assert not weights[..., 2, :].any() and not output[..., 2, :].any()


@pytest.mark.parametrize("kind", ["float", "bool", "causal", "learnt"])
def test_attention_is_softmax_of_products(kind: str) -> None:
    q, k, v = (engine.from_numpy(rand(2, 3, n, 8)).requires_grad_() for n in (40, 48, 48))
    mask = engine.from_numpy(rand(40, 48))
    leaves = [q, k, v]
    if kind == "learnt":
        leaves.append(mask.requires_grad_())
    given = mask > 0 if kind == "bool" else None if kind == "causal" else mask
    added = given
    if kind == "bool":
        added = engine.zeros(40, 48).masked_fill(~given, -math.inf)
    elif kind == "causal":
        added = engine.full((40, 48), -math.inf).triu(1)
    found = F.scaled_dot_product_attention(q, k, v, given, is_causal=kind == "causal")
    wanted = (q @ k.transpose(-2, -1) / math.sqrt(8) + added).softmax(-1) @ v
    weight = engine.from_numpy(rand(2, 3, 40, 8))
    engine.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    of_found = engine.autograd.grad(found, leaves, weight)
    of_wanted = engine.autograd.grad(wanted, leaves, weight)
    engine.testing.assert_close(of_found, of_wanted, rtol=1e-4, atol=1e-4)


def test_attention_drops_weights_in_training_only() -> None:
    q = engine.from_numpy(rand(1, 2, 16, 8))
    plain = F.scaled_dot_product_attention(q, q, q)
    engine.manual_seed(3)
    first = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    engine.manual_seed(3)
    again = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert engine.equal(first, again) and not engine.equal(first, plain)
    module = nn.MultiheadAttention(16, 2, dropout=0.5).eval()
    x = engine.from_numpy(rand(4, 3, 16))
    one, two = (module(x, x, x, need_weights=False)[0] for _ in range(2))
    assert engine.equal(one, two)


@pytest.mark.parametrize("batch_first", [False, True])
def test_both_ways_through_multi_head_attention_agree(batch_first: bool) -> None:
    module = nn.MultiheadAttention(16, 4, batch_first=batch_first)
    x = engine.from_numpy(rand(6, 5, 16)).requires_grad_()
    hidden = engine.zeros(*((6, 5) if batch_first else (5, 6)), dtype=engine.bool)
    hidden[1, 2:] = True
    results, grads = [], []
    for need in (False, True):
        out = module(x, x, x, key_padding_mask=hidden, need_weights=need)[0]
        results.append(out)
        grads.append(engine.autograd.grad(out.pow(2).sum(), [x, module.in_proj_weight]))
    engine.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    engine.testing.assert_close(grads[0], grads[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 5), (64, 130), (3, 70_000)])
def test_dropout_and_the_residual_are_one_op(shape: tuple) -> None:
    x, y = (engine.from_numpy(rand(*shape) + i).requires_grad_() for i in range(2))
    engine.manual_seed(2)
    found = plus_dropped(x, y, 0.3)
    engine.manual_seed(2)
    wanted = x + F.dropout(y, 0.3)
    engine.testing.assert_close(found, wanted)
    assert [type(f).__name__ for f, _ in found.grad_fn.next_functions] == ["AccumulateGrad"] * 2
    g = engine.linspace(-1, 1, x.numel()).reshape(shape)
    engine.testing.assert_close(engine.autograd.grad(found, [x, y], g), engine.autograd.grad(wanted, [x, y], g))


@pytest.mark.parametrize("layer", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_layer_of_ones_own_gives_what_the_fused_layer_gives(layer: type, norm_first: bool) -> None:
    class Own(layer):  # type: ignore[misc, valid-type]
        def _ff_block(self, x: Any) -> Any:
            return super()._ff_block(x)

    engine.manual_seed(0)
    ours = layer(16, 2, 32, dropout=0.2, norm_first=norm_first)
    own = Own(16, 2, 32, dropout=0.2, norm_first=norm_first)
    hooked = layer(16, 2, 32, dropout=0.2, norm_first=norm_first)
    own.load_state_dict(ours.state_dict())
    hooked.load_state_dict(ours.state_dict())
    seen: list[Any] = []
    hooked.dropout1.register_forward_hook(lambda *a: seen.append(a))
    x = engine.from_numpy(rand(5, 3, 16))
    given = (x, x) if layer is nn.TransformerDecoderLayer else (x,)
    results = []
    for module in (ours, own, hooked):
        engine.manual_seed(1)
        results.append(module(*given))
    engine.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)
    engine.testing.assert_close(results[0], results[2], rtol=1e-5, atol=1e-6)
    assert len(seen) == 1
