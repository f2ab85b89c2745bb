"""Dynamic quantization against PyTorch 2.13's numbers (x86 kernels), stored in `numbers.json`."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.torch_names.ao import quantization

NUMBERS = json.loads((Path(__file__).parent / "numbers.json").read_text())


def wave(*size: int, k: float = 1.0) -> engine.Tensor:
    values = np.sin(np.arange(int(np.prod(size))) * k).astype(np.float32)
    return engine.from_numpy(values.reshape(size))


def filled(module: nn.Module) -> nn.Module:
    for i, p in enumerate(module.parameters()):
        p.data = wave(*p.shape, k=0.7 + i * 0.13) * 0.5
    return module.eval()


class Holder(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> Any:
        return self.inner(*args)


def flat(result: Any) -> list[list[float]]:
    return [result.flatten().tolist()] if isinstance(result, engine.Tensor) else [q for r in result for q in flat(r)]


CASES: dict[str, tuple[Any, Any]] = {
    "linear": (lambda: nn.Linear(40, 6), lambda: (wave(5, 40, k=1.3) * 2,)),
    "linear_3d": (lambda: nn.Linear(8, 3, bias=False), lambda: (wave(2, 3, 8, k=0.9),)),
    "zeros": (lambda: nn.Linear(8, 3), lambda: (engine.zeros(2, 8),)),
    "lstm": (lambda: nn.LSTM(4, 3, 2, bidirectional=True), lambda: (wave(5, 2, 4),)),
    "gru": (lambda: nn.GRU(4, 3, batch_first=True), lambda: (wave(2, 5, 4),)),
    "lstm_cell": (lambda: nn.LSTMCell(4, 3), lambda: (wave(2, 4),)),
    "gru_cell": (lambda: nn.GRUCell(4, 3), lambda: (wave(2, 4), wave(2, 3))),
    "rnn_cell": (lambda: nn.RNNCell(4, 3, nonlinearity="relu"), lambda: (wave(2, 4),)),
}


def check(result: Any, name: str) -> None:
    found = flat(result)
    assert len(found) == len(NUMBERS[name])
    for ours, theirs in zip(found, NUMBERS[name]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_torch(name: str) -> None:
    make, args = CASES[name]
    module = Holder(filled(make()))
    quantized = quantization.quantize_dynamic(module, {type(module.inner)})
    assert type(quantized.inner).__module__ == "engine.nn.quantized.dynamic"
    assert type(module.inner).__module__ != "engine.nn.quantized.dynamic"  # the model is copied
    check(quantized(*args()), name)


def test_weights_by_channel_and_of_16_bits() -> None:
    x = wave(5, 40, k=1.3) * 2
    by_channel = quantization.quantize_dynamic(
        Holder(filled(nn.Linear(40, 6))), {nn.Linear: quantization.per_channel_dynamic_qconfig}
    )
    assert by_channel.inner.weight().qscheme() is engine.per_channel_affine
    check(by_channel(x), "per_channel")
    half = quantization.quantize_dynamic(Holder(filled(nn.Linear(40, 6))), dtype=engine.float16)
    assert half.inner.weight().dtype is engine.float16
    check(half(x), "half")


def test_checkpoints_of_torch_load_and_run_and_ours_have_the_same_keys() -> None:
    state = engine.load(io.BytesIO(base64.b64decode(NUMBERS["checkpoint"])))
    model = quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    assert list(model.state_dict()) == list(state)
    model.load_state_dict(state)
    check(model(wave(3, 4)), "checkpoint_y")
    file = io.BytesIO()
    engine.save(model.state_dict(), file)
    file.seek(0)
    again = quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    again.load_state_dict(engine.load(file))
    check(again(wave(3, 4)), "checkpoint_y")
    with pytest.raises(RuntimeError, match="Missing key"):
        again.load_state_dict({})


def test_recurrent_state_is_saved_and_loaded() -> None:
    model = quantization.quantize_dynamic(Holder(filled(nn.LSTM(4, 3))), {nn.LSTM})
    other = quantization.quantize_dynamic(Holder(nn.LSTM(4, 3)), {nn.LSTM})
    other.load_state_dict(model.state_dict())
    x = wave(5, 2, 4)
    assert engine.equal(other(x)[0], model(x)[0])
    assert engine.equal(model(x[:, 0])[0], model(x)[0][:, 0]) or model(x[:, 0])[0].shape == (5, 3)


def test_what_is_chosen_and_how_it_prints() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Linear(3, 2))
    found = quantization.quantize_dynamic(model, {"1.0", "2"})
    kinds = [type(found[0]), type(found[1][0]), type(found[2])]
    assert [k.__module__.rpartition(".")[2] for k in kinds] == ["linear", "dynamic", "dynamic"]
    assert repr(found[2]) == (
        "DynamicQuantizedLinear(in_features=3, out_features=2, dtype=torch.qint8, qscheme=torch.per_tensor_affine)"
    )
    assert not found.training
    same = quantization.quantize_dynamic(model, inplace=True)
    assert same is model
    assert repr(quantization.quantize_dynamic(Holder(nn.LSTM(4, 3, 2)), {nn.LSTM}).inner) == (
        "DynamicQuantizedLSTM(4, 3, num_layers=2)"
    )
    with pytest.raises(ValueError, match="Don't know how to quantize"):
        quantization.quantize_dynamic(model, dtype=engine.int32)


@pytest.mark.parametrize(("n", "k", "m"), [(1, 3, 2), (33, 70, 17), (64, 1500, 40)])
def test_sums_ofinteger_products_are_exact_with_and_without_onednn(
    n: int, k: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.encoded import quantized

    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 128, (n, k)).astype(np.uint8)
    weight = quantized.from_integers(rng.integers(-128, 128, (m, k)).astype(np.int8), 0.1, 3)
    expected = (inputs.astype(np.int64) - 9) @ (weight._q.astype(np.int64) - 3).T
    assert np.array_equal(quantized.integer_products(inputs, 9, weight, True), expected)
    monkeypatch.setattr(quantized, "is_available", lambda: False)
    assert np.array_equal(quantized.integer_products(inputs, 9, weight, True), expected)
