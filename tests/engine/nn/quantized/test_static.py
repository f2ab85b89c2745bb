"""Static quantization after training against PyTorch 2.13's numbers, stored in `static_numbers.json`."""

from __future__ import annotations

import copy
import io
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import nn
from engine.nn import intrinsic
from engine.torch_names.ao import quantization
from engine.torch_names.ao.nn import quantized as modules
from tests.engine.nn.quantized import static_case as case

NUMBERS = json.loads((Path(__file__).parent / "static_numbers.json").read_text())


def without_ranges(text: str) -> str:
    return re.sub(r"(min_val|max_val|scale)=[^,)]*", r"\1=", text)


@pytest.mark.parametrize("config", case.CONFIGS)
def test_a_network_as_in_torch(config: str) -> None:
    _, prepared, quantized = case.converted(engine, config)
    expected = NUMBERS[config]
    assert [*quantized.state_dict()] == expected["keys"]
    assert without_ranges(str(prepared)) == without_ranges(expected["prepared"])
    assert without_ranges(str(quantized)) == without_ranges(expected["text"])
    for name, (scale, zero) in expected["parameters"].items():
        module = quantized.get_submodule(name)
        assert (float(module.scale), int(module.zero_point)) == (pytest.approx(scale, rel=1e-5), zero), name
    first, second = quantized(engine.from_numpy(case.wave(2, 3, 12, 12, k=0.53) * 2))
    np.testing.assert_allclose(first.numpy(), expected["first"], atol=1 / 256 + 1e-6)  # a unit
    unit = expected["parameters"]["sum"][0]
    np.testing.assert_allclose(second.flatten()[::7].numpy(), expected["second"], atol=unit * 1.001)
    assert np.mean(np.abs(second.flatten()[::7].numpy() - expected["second"]) > unit / 2) < 0.02


@pytest.mark.parametrize("name", [*NUMBERS["calls"]])
def test_a_function_of_a_quantized_tensor(name: str) -> None:
    ours, theirs = case.calls(engine)[name], NUMBERS["calls"][name]
    assert ours[1:] == [pytest.approx(theirs[1], rel=1e-6), theirs[2]]
    found, expected = np.asarray(ours[0], int), np.asarray(theirs[0], int)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1 and np.mean(found != expected) <= 0.02


@pytest.mark.parametrize("name", [*NUMBERS["observed"]])
def test_an_observer(name: str) -> None:
    scale, zero = case.observed(engine)[name]
    np.testing.assert_allclose(scale, NUMBERS["observed"][name][0], rtol=2e-4)
    assert zero == NUMBERS["observed"][name][1]


@pytest.mark.parametrize("config", ["fbgemm", "qnnpack"])
def test_the_model_itself_stays_and_quantized_results_are_near_those_of_floats(config: str) -> None:
    net, prepared, quantized = case.converted(engine, config)
    assert isinstance(net.conv, intrinsic.ConvReLU2d) and not hasattr(net.conv, "activation_post_process")
    assert type(prepared.fc) is intrinsic.LinearReLU and type(quantized.fc).__name__ == "LinearReLU"
    assert not any(hasattr(module, "qconfig") for module in quantized.modules())
    x = engine.from_numpy(case.wave(2, 3, 12, 12, k=0.53) * 2)
    for floats, integers in zip(net(x), quantized(x)):
        assert float((floats - integers).abs().max()) < 0.05 * float(floats.abs().max())


def test_copies_pickles_and_checkpoints_give_the_same() -> None:
    _, _, quantized = case.converted(engine, "per_channel")
    x = engine.from_numpy(case.wave(2, 3, 12, 12, k=0.53) * 2)
    expected = quantized(x)[0]
    assert engine.equal(copy.deepcopy(quantized)(x)[0], expected)
    conv = pickle.loads(pickle.dumps(quantized.conv))
    assert engine.equal(conv(quantized.quant(x)).int_repr(), quantized.conv(quantized.quant(x)).int_repr())
    file = io.BytesIO()
    engine.save(quantized.state_dict(), file)
    net = case.network(engine)
    net.qconfig = quantization.default_per_channel_qconfig
    other = quantization.convert(quantization.prepare(net))
    assert not engine.equal(other(x)[0], expected)
    file.seek(0)
    other.load_state_dict(engine.load(file))
    assert engine.equal(other(x)[0], expected)
    state = quantized.state_dict()
    with pytest.raises(RuntimeError, match=r"conv\.weight must be a quantized tensor of shape \(8, 3, 3, 3\)"):
        other.load_state_dict({**state, "conv.weight": engine.zeros(8, 3, 3, 3)})
    del state["conv.scale"]
    with pytest.raises(RuntimeError, match=r"conv\.scale"):
        other.load_state_dict(state)


def test_what_is_refused_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match="put a QuantStub before it"):
        modules.Linear(2, 2)(engine.ones(1, 2))
    q = engine.quantize_per_tensor(engine.ones(1, 2), 0.1, 0, engine.quint8)
    with pytest.raises(NotImplementedError, match="dequantize"):
        nn.functional.softmax(q, 1)
    with pytest.raises(NotImplementedError, match="dequantize"):
        q * 2
    with pytest.raises(ValueError, match=r"Input shape must be `\(N, C, H, W\)`"):
        modules.Conv2d(1, 1, 1)(q)
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    model.qconfig = quantization.default_qconfig
    with pytest.raises(NotImplementedError, match="1: static quantization of LayerNorm is not supported"):
        quantization.prepare(model)
    model[1].qconfig = None
    prepared = quantization.prepare(model)
    prepared(engine.ones(1, 2))
    assert type(quantization.convert(prepared)[1]) is nn.LayerNorm
    quantization.propagate_qconfig_(model)
    with pytest.raises(ValueError, match="was not observed: call prepare"):
        quantization.convert(model)
    with pytest.raises(AssertionError, match="Fusion only for eval"):
        quantization.fuse_modules(nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)), ["0", "1"])
    with pytest.raises(AssertionError, match="did not find fuser method"):
        quantization.fuse_modules(nn.Sequential(nn.Linear(1, 1), nn.Sigmoid()).eval(), ["0", "1"])
    with pytest.raises(AssertionError, match="backend: x not supported"):
        quantization.get_default_qconfig("x")
    with pytest.raises(ValueError, match="finite"):
        quantization.HistogramObserver()(engine.tensor([1.0, float("nan")]))


def test_large_sums_are_exact() -> None:
    """2,048 products of 255 and 127 are more than float32 counts one by one."""
    layer = modules.Linear(2048, 1)
    layer.set_weight_bias(engine.quantize_per_tensor(engine.full((1, 2048), 127.0), 1.0, 0, engine.qint8), None)
    layer.scale, layer.zero_point = 2048.0 * 255, 0
    q = engine.quantize_per_tensor(engine.full((1, 2048), 255.0), 1.0, 0, engine.quint8)
    assert layer(q).int_repr().tolist() == [[127]]


def test_hooks_and_wrappers_survive() -> None:
    seen: list[str] = []
    model = quantization.QuantWrapper(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).eval()
    model.module[0].register_forward_hook(lambda *_: seen.append("hook"))
    model.qconfig = quantization.default_qconfig
    made = quantization.quantize(model, lambda m, x: m(x), [engine.ones(3, 2)])
    seen.clear()
    assert made(engine.ones(1, 2)).shape == (1, 2) and seen == ["hook"]
    assert type(made.module[0]) is modules.Linear and type(model.module[0]) is nn.Linear
