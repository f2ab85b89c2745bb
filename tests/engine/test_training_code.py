"""What training programs of public repositories do: torch's old orders, sparse tables, settings that are read back."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.core import tensor_messages
from engine.nn import functional as F


@pytest.fixture(autouse=True)
def warnings_are_given_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_messages, "always", [True])


@pytest.mark.parametrize("name", ["add", "sub", "addcmul", "addcdiv"])
@pytest.mark.parametrize("inplace", [False, True])
def test_the_factor_may_come_before_the_tensors(name: str, inplace: bool) -> None:
    x, a, b = engine.tensor([1.0, 2.0]), engine.tensor([3.0, 5.0]), engine.tensor([2.0, 4.0])
    rest = (a,) if name in ("add", "sub") else (a, b)
    key = "alpha" if name in ("add", "sub") else "value"
    called = name + "_" * inplace
    expected = getattr(x.clone(), called)(*rest, **{key: -0.5})
    with pytest.warns(UserWarning, match=f"This overload of {called} is deprecated"):
        found = getattr(x.clone(), called)(-0.5, *rest)
    assert engine.equal(found, expected)
    with pytest.raises(TypeError, match=rf"{called}\(\) takes"):
        getattr(x.clone(), called)(*rest, x)


def test_the_old_order_has_gradients_and_out() -> None:
    x, y = engine.ones(2, requires_grad=True), engine.ones(2, requires_grad=True)
    out = engine.empty(2)
    with pytest.warns(UserWarning, match="deprecated"):
        engine.add(x, 3, y).sum().backward()
        engine.add(x.detach(), 3, y.detach(), out=out)
    assert y.grad.tolist() == [3.0, 3.0] and out.tolist() == [4.0, 4.0]


def test_a_sparse_table_gets_the_rows_that_were_used() -> None:
    table = nn.Embedding(5, 2, padding_idx=2, sparse=True)
    table(engine.tensor([1, 2, 1])).sum().backward()
    grad = table.weight.grad
    assert grad.is_sparse and grad._indices().tolist() == [[1, 1]] and grad._values().tolist() == [[1, 1], [1, 1]]
    (table(engine.tensor([0])) + table(engine.tensor([3]))).sum().backward()
    assert sorted({*table.weight.grad._indices().tolist()[0]}) == [0, 1, 3]
    before = table.weight.detach().clone()
    engine.optim.SparseAdam(table.parameters()).step()
    moved = (table.weight != before).any(1)
    assert moved.tolist() == [True, True, False, True, False]
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam"):
        engine.optim.Adam(table.parameters()).step()
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse gradients"):
        F.embedding(engine.tensor([1]), table.weight, scale_grad_by_freq=True, sparse=True).sum().backward()


def test_a_sparse_and_a_dense_gradient_add_up() -> None:
    table = nn.Embedding(3, 2, sparse=True)
    (table(engine.tensor([1])).sum() + table.weight.sum()).backward()
    assert table.weight.grad.tolist() == [[1, 1], [2, 2], [1, 1]]
    table(engine.tensor([0])).sum().backward()
    assert table.weight.grad.tolist() == [[2, 2], [2, 2], [1, 1]]


def test_attention_takes_a_mask_that_is_causal_too() -> None:
    q = engine.randn(1, 2, 4, 3)
    mask = engine.tensor(np.eye(4, dtype=np.float32))
    later = engine.full((4, 4), float("-inf")).triu(1)
    found = F.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=True)
    assert engine.allclose(found, F.scaled_dot_product_attention(q, q, q, attn_mask=mask + later))
    seen = F.scaled_dot_product_attention(q, q, q, attn_mask=mask.bool() | (mask == 0), is_causal=True)
    assert engine.allclose(seen, F.scaled_dot_product_attention(q, q, q, is_causal=True))


def test_settings_are_read_back() -> None:
    from engine.torch_names import _top_level as top

    try:
        top.use_deterministic_algorithms(True, warn_only=True)
        assert top.are_deterministic_algorithms_enabled() and top.is_deterministic_algorithms_warn_only_enabled()
        assert top.get_deterministic_debug_mode() == 1
        top.set_deterministic_debug_mode("error")
        assert not top.is_deterministic_algorithms_warn_only_enabled()
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            top.set_deterministic_debug_mode("loud")
        top.set_float32_matmul_precision("high")
        assert top.get_float32_matmul_precision() == "high"
    finally:
        top.use_deterministic_algorithms(False)
        top.set_float32_matmul_precision("highest")


def test_a_scaler_leaves_out_a_step_that_is_not_finite() -> None:
    layer = nn.Linear(2, 1)
    step, scaler = engine.optim.SGD(layer.parameters(), 1.0), engine.amp.GradScaler("cpu")
    before = layer.weight.detach().clone()
    scaler.scale(layer(engine.ones(1, 2)).sum() * float("inf")).backward()
    scaler.step(step)
    scaler.update()
    assert engine.equal(layer.weight, before)
    step.zero_grad()
    scaler.scale(layer(engine.ones(1, 2)).sum()).backward()
    scaler.step(step)
    assert not engine.equal(layer.weight, before)


def test_the_output_of_a_module_with_full_hooks_is_not_written_to() -> None:
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *_: None)
    for write in (lambda y: y.add_(1), lambda y: y[0].add_(1)):
        with pytest.raises(RuntimeError, match="Output 0 of BackwardHookFunction is a view and is being modified"):
            write(layer(engine.ones(1, 2, requires_grad=True)))


def test_skip_init_draws_nothing() -> None:
    engine.manual_seed(3)
    expected = engine.rand(2)
    engine.manual_seed(3)
    layer = nn.utils.skip_init(nn.Linear, 3, 4, bias=False)
    assert engine.equal(engine.rand(2), expected)
    assert layer.weight.shape == (4, 3) and layer.weight.device.type == "cpu" and layer.bias is None


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_interpolation_keeps_channels_last(mode: str) -> None:
    x = engine.randn(1, 3, 4, 4)
    found = F.interpolate(x.contiguous(memory_format=engine.channels_last), scale_factor=2, mode=mode)
    assert found.is_contiguous(memory_format=engine.channels_last)
    assert engine.allclose(found, F.interpolate(x, scale_factor=2, mode=mode))


def test_the_gradient_of_a_weight_lies_as_the_weight() -> None:
    layer = nn.Conv2d(3, 4, 3).to(memory_format=engine.channels_last)
    layer(engine.randn(1, 3, 5, 5)).sum().backward()
    assert layer.weight.grad.stride() == layer.weight.stride() == (27, 1, 9, 3)


def test_a_trace_has_its_events_under_their_name(tmp_path: Any) -> None:
    with engine.autograd.profiler.profile() as found:
        engine.ones(2).exp()
    found.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["schemaVersion"] == 1 and [e for e in trace["traceEvents"] if e["name"].endswith("exp")]


def test_error_texts() -> None:
    x = engine.ones(2, requires_grad=True)
    y = x.sigmoid()
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"which is output 0 of Sigmoid, is at version 1; expected version 0"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="The differentiated Tensor at index 1 appears to not have been used"):
        engine.autograd.grad(x.sum(), [x, engine.ones(2, requires_grad=True)])
    with pytest.raises(RuntimeError) as error:
        engine.linalg.cholesky(-engine.eye(2))
    assert type(error.value).__name__ == "_LinAlgError"


def test_tensorboard_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "engine.utils.tensorboard", raising=False)
    with pytest.raises(ImportError, match="tensorboard"):
        importlib.import_module("engine.utils.tensorboard")
