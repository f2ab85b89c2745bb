"""Quantized tensors: integers, values, printing, files; the numbers are PyTorch 2.13's."""

from __future__ import annotations

import base64
import copy
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.encoded import quantized

X = [[-1.5, 0.0, 0.33, 2.2], [1.0, -0.7, 0.05, 9.0]]


def test_a_tensor_quantized_as_a_whole() -> None:
    q = engine.quantize_per_tensor(engine.tensor(X), 0.1, 10, engine.quint8)
    assert q.int_repr().tolist() == [[0, 10, 13, 32], [20, 3, 10, 100]] and q.int_repr().dtype is engine.uint8
    assert q.is_quantized and q.dtype is engine.quint8 and q.shape == (2, 4) and q.element_size() == 1
    assert (q.q_scale(), q.q_zero_point(), q.qscheme()) == (0.1, 10, engine.per_tensor_affine)
    np.testing.assert_allclose(q.dequantize().numpy(), [[-1, 0, 0.3, 2.2], [1, -0.7, 0, 9]], rtol=1e-6, atol=1e-7)
    assert repr(q) == (
        "tensor([[-1.0000,  0.0000,  0.3000,  2.2000],\n        [ 1.0000, -0.7000,  0.0000,  9.0000]], size=(2, 4), "
        "dtype=torch.quint8,\n       quantization_scheme=torch.per_tensor_affine, scale=0.1, zero_point=10)"
    )
    assert engine.quantize_per_tensor(engine.tensor(X), 0.1, 0, engine.qint8).int_repr().tolist() == [
        [-15, 0, 3, 22],
        [10, -7, 0, 90],
    ]


def test_a_tensor_quantized_by_channel() -> None:
    scales, zeros = engine.tensor([0.1, 0.05]), engine.tensor([0, 1])
    q = engine.quantize_per_channel(engine.tensor(X), scales, zeros, 0, engine.qint8)
    assert q.int_repr().tolist() == [[-15, 0, 3, 22], [21, -13, 2, 127]]
    assert q.q_per_channel_axis() == 0 and q.q_per_channel_zero_points().tolist() == [0, 1]
    assert q.q_per_channel_scales().dtype is engine.float64
    np.testing.assert_allclose(q.dequantize()[1].tolist(), [1.0, -0.7, 0.05, 6.3], rtol=1e-6)
    with pytest.raises(RuntimeError, match="PerTensorAffine"):
        q.q_scale()


def test_views_copies_and_what_is_refused() -> None:
    q = engine.quantize_per_tensor(engine.tensor(X), 0.1, 0, engine.qint8)
    assert q[0].int_repr().tolist() == [-15, 0, 3, 22] and q.reshape(4, 2).shape == (4, 2)
    assert q.permute(1, 0).int_repr()[0].tolist() == [-15, 10]
    for twin in (copy.deepcopy(q), q.clone(), pickle.loads(pickle.dumps(q))):
        assert twin.equal(q) and twin is not q
    with pytest.raises(NotImplementedError, match="dequantize"):
        q + 1
    with pytest.raises(RuntimeError, match="floating point"):
        q.requires_grad_()
    with pytest.raises(RuntimeError, match="Quantize only works on Float Tensor"):
        engine.quantize_per_tensor(engine.ones(2, dtype=engine.float64), 0.1, 0, engine.qint8)
    with pytest.raises(RuntimeError, match="below lower bound"):
        engine.quantize_per_tensor(engine.ones(2), 0.1, -1, engine.quint8)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.0, 0.0, (0.1, 0)), (-1.0, 1.0, (2 / 127, 64)), (0.0, 12.7, (0.1, 0)), (-12.7, 0.0, (0.1, 127))],
)
def test_the_scale_of_a_range(low: float, high: float, expected: tuple[float, int]) -> None:
    scale, zero = quantized.choose_qparams(low, high, 0, 255, True)
    assert scale == pytest.approx(expected[0], rel=1e-6) and zero == expected[1]
    assert abs((0 - low) / scale - zero) <= 0.5 or low == high  # zero itself has an integer


def test_files_of_torch_and_ours() -> None:
    stored = json.loads((Path(__file__).parents[1] / "nn" / "quantized" / "numbers.json").read_text())["tensors"]
    found = engine.load(io.BytesIO(base64.b64decode(stored)))
    values = engine.from_numpy(np.sin(np.arange(8)).astype(np.float32).reshape(2, 4)) * 3
    assert found["t"].equal(engine.quantize_per_tensor(values, 0.1, 10, engine.quint8))
    assert found["c"].q_per_channel_axis() == 0 and found["c"].dtype is engine.qint8
    file = io.BytesIO()
    engine.save(found, file)
    file.seek(0)
    again = engine.load(file)
    assert again["t"].equal(found["t"]) and again["c"].equal(found["c"])


def test_rounding_as_quantization_would_and_its_gradients() -> None:
    x = engine.tensor(X, requires_grad=True)
    whole = engine.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
    np.testing.assert_allclose(whole.tolist(), [[-0.8, 0, 0.3, 0.7], [0.7, -0.7, 0, 0.7]], rtol=1e-6)
    assert whole.grad_fn is not None and whole.grad_fn.name() == "FakeQuantizePerTensorAffineCachemaskBackward0"
    assert engine.autograd.grad(whole.sum(), x)[0].tolist() == [[0, 1, 1, 0], [0, 1, 1, 0]]
    scales, zeros = engine.tensor([0.1, 0.5]), engine.tensor([0, 1], dtype=engine.int32)
    each = engine.fake_quantize_per_channel_affine(x, scales, zeros, 0, -8, 7)
    np.testing.assert_allclose(each.tolist(), [[-0.8, 0, 0.3, 0.7], [1, -0.5, 0, 3]], rtol=1e-6)
    assert engine.autograd.grad(each.sum(), x)[0].tolist() == [[0, 1, 1, 0], [1, 1, 1, 0]]
    with pytest.raises(RuntimeError, match="zero_point"):
        engine.fake_quantize_per_tensor_affine(x, 0.1, 9, -8, 7)
    with pytest.raises(RuntimeError, match="not consistent with input"):
        engine.fake_quantize_per_channel_affine(x, engine.ones(3), engine.zeros(3, dtype=engine.int32), 0, -8, 7)
