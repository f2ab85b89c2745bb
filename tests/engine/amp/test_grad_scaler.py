"""GradScaler: scaling, skipped steps, growth; on the CPU and on CUDA."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engine
from engine.amp import GradScaler
from tests.engine import standin


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "cpu":
        yield "cpu"
        return
    with standin.running():
        yield "cuda"


def parameter(where: str) -> tuple[Any, Any]:
    p = engine.tensor([1.0, 2.0], device=where, requires_grad=True)
    return p, engine.optim.SGD([p], lr=0.5)


def test_a_step_is_as_without_it(where: str) -> None:
    p, optimizer = parameter(where)
    scaler = GradScaler(where, init_scale=1024.0)
    scaler.scale((p * p).sum()).backward()
    assert p.grad.tolist() == [2048.0, 4096.0]
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [2.0, 4.0]
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.0, 0.0] and scaler.get_scale() == 1024.0


def test_inf_skips_the_step_and_shrinks(where: str) -> None:
    p, optimizer = parameter(where)
    scaler = GradScaler(where, init_scale=8.0, growth_interval=2)
    for bad in (float("inf"), float("nan")):
        scaler.scale((p * bad).sum()).backward()
        assert scaler.step(optimizer) is None
        scaler.update()
        optimizer.zero_grad()
    assert p.tolist() == [1.0, 2.0] and scaler.get_scale() == 2.0
    for _ in range(2):
        scaler.scale(p.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert p.tolist() == [0.0, 1.0] and scaler.get_scale() == 4.0  # grew after two good ones
    scaler.update(16.0)
    assert scaler.get_scale() == 16.0


def test_order_of_calls(where: str) -> None:
    p, optimizer = parameter(where)
    scaler = GradScaler(where)
    with pytest.raises(AssertionError, match="Attempted unscale_ but _scale is None"):
        scaler.unscale_(optimizer)
    scaler = GradScaler(where)
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="has already been called on this optimizer since the last update"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: None)
    with pytest.raises(AssertionError, match="may only be pickled at the beginning"):
        pickle.dumps(scaler)
    scaler.update()
    assert copy.deepcopy(scaler).get_scale() == 65536.0
    h = engine.ones(2, dtype=engine.float16, device=where, requires_grad=True)
    scaler.scale(h.sum().float() * 1e-6).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(engine.optim.SGD([h], lr=1.0))


def test_states(where: str) -> None:
    scaler = GradScaler(where, 4.0, 3.0, 0.25, 7)
    state = scaler.state_dict()
    assert state == {
        "scale": 4.0,
        "growth_factor": 3.0,
        "backoff_factor": 0.25,
        "growth_interval": 7,
        "_growth_tracker": 0,
    }
    other = GradScaler(where)
    other.load_state_dict(state)
    assert other.state_dict() == state and other.get_growth_interval() == 7
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        other.load_state_dict({})
    for wrong, text in (((1.0, 1.0), "growth factor must be > 1.0"), ((1.0, 2.0, 1.0), "backoff factor must be < 1.0")):
        with pytest.raises(ValueError, match=text):
            GradScaler(where, *wrong)


def test_disabled() -> None:
    p, optimizer = parameter("cpu")
    scaler = GradScaler("cpu", enabled=False)
    loss = p.sum()
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5, 1.5]


def test_without_cuda_one_for_cuda_is_off() -> None:
    if engine.cuda.is_available():
        return
    with pytest.warns(UserWarning, match="GradScaler is enabled, but CUDA is not available.  Disabling."):
        assert not engine.amp.GradScaler().is_enabled()


@pytest.mark.cuda
def test_scaled_gradients_of_a_graph_are_stepped_on_outside() -> None:
    with standin.running():
        p, optimizer = parameter("cuda")
        scaler = GradScaler("cuda", init_scale=8.0)
        factor = engine.ones(2, device="cuda")
        graph = engine.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="cannot hold of GradScaler the first scale"), engine.cuda.graph(graph):
            scaler.scale((p * factor).sum())
        scaler.scale((p * factor).sum()).backward()  # not captured
        optimizer.zero_grad(set_to_none=False)
        graph = engine.cuda.CUDAGraph()
        with engine.cuda.graph(graph):
            p.grad.zero_()
            scaler.scale((p * factor).sum()).backward()
        for given, wanted, scale in ((2.0, [0.0, 1.0], 8.0), (float("inf"), [0.0, 1.0], 4.0), (1.0, [-0.5, 0.5], 4.0)):
            factor.fill_(given)
            with np.errstate(all="ignore"):
                graph.replay()
            scaler.step(optimizer)
            scaler.update()
            assert p.tolist() == wanted and scaler.get_scale() == scale
        for call, word in ((lambda: scaler.step(optimizer), "step"), (scaler.update, "update")):
            with (
                pytest.raises(RuntimeError, match=f"cannot hold of GradScaler {word}.* after each replay"),
                engine.cuda.graph(engine.cuda.CUDAGraph()),
            ):
                call()
