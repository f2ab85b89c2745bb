"""Streams and events: what is ordered, and what is reported where it is not."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import engine
from engine import cuda
from tests.engine import standin
from tests.engine.standin.machine import StreamOrderError

pytestmark = pytest.mark.cuda
on_stand_in = pytest.mark.skipif(standin.REAL, reason="a card does not report it")


@on_stand_in
def test_a_missing_wait_is_found(gpu: Any) -> None:
    side = cuda.Stream()
    x = engine.ones(8, device="cuda")
    with cuda.stream(side), pytest.raises(StreamOrderError, match=r"reads memory that stream .* wrote"):
        _ = x + 1
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        y = x + 1
    with pytest.raises(StreamOrderError, match="reads"):
        _ = y * 2
    with pytest.raises(StreamOrderError, match=r"writes memory that stream .* reads"):
        x.zero_()
    cuda.current_stream().wait_stream(side)
    assert (y * 2).tolist() == [4.0] * 8
    x.zero_()


@on_stand_in
def test_memory_used_by_another_stream_is_not_given_away(gpu: Any) -> None:
    side = cuda.Stream()

    def use(keep: bool) -> None:
        x = engine.ones(8, device="cuda")
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            _ = x + 1
        if keep:
            x.record_stream(side)
        del x

    use(keep=True)
    _ = engine.zeros(8, device="cuda")
    cuda.synchronize()
    use(keep=False)
    with pytest.raises(StreamOrderError, match="writes"):
        _ = engine.zeros(8, device="cuda") + 0


def test_events(gpu: Any) -> None:
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="Both events must be recorded before calculating elapsed time"):
        start.elapsed_time(end)
    start.record()
    x = engine.ones(100, device="cuda") * 3
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0 and end.query()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(cuda.Event())
    side = cuda.Stream()
    end.wait(side)
    with cuda.stream(side):
        assert cuda.current_stream() == side
        assert float((x + 1).sum()) == 400
    side.synchronize()
    assert side.query() and cuda.current_stream() == cuda.default_stream()
    assert side.device == engine.device("cuda", 0) and side in {side}


def test_streams_as_contexts_and_current(gpu: Any) -> None:
    side = cuda.Stream(priority=-1)
    with side:
        assert cuda.current_stream() == side
    with cuda.stream(None):
        assert cuda.current_stream() != side
    cuda.set_stream(side)
    assert cuda.current_stream() == side
    cuda.set_stream(cuda.default_stream())


def test_two_devices(two: Any) -> None:
    assert cuda.device_count() == 2 and cuda.current_device() == 0
    x = engine.ones(3, device="cuda:1")
    assert x.device == engine.device("cuda", 1) and x.get_device() == 1
    assert (x * 2).device.index == 1 and cuda.current_device() == 0  # computed where it lies
    y = (x * 2).requires_grad_()
    (y * x).sum().backward()
    assert y.grad.device.index == 1 and y.grad.tolist() == [1.0] * 3
    with cuda.device(1):
        assert engine.zeros(2, device="cuda").device.index == 1
        assert engine.ones(2).cuda().device.index == 1
    with cuda.device_of(x):
        assert cuda.current_device() == 1
    cuda.set_device(1)
    assert cuda.current_device() == 1
    cuda.set_device("cuda:0")
    z = engine.ones(3, device="cuda:0")
    with pytest.raises(
        RuntimeError,
        match="Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!",
    ):
        _ = z + x
    with pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu!"):
        _ = z + engine.ones(3)
    assert (z + x.to("cuda:0")).device.index == 0
    z.copy_(x)
    assert z.tolist() == [1.0] * 3
    linear = engine.nn.Linear(3, 2).to("cuda:1")
    with pytest.raises(RuntimeError, match="on the same device"):
        linear(z)
    assert linear(x).device.index == 1


def test_a_device_that_does_not_exist(gpu: Any) -> None:
    count = cuda.device_count()
    for call in (
        lambda: engine.ones(2, device=f"cuda:{count + 5}"),
        lambda: engine.ones(2).to(f"cuda:{count + 5}"),
        lambda: cuda.set_device(count + 5),
        lambda: cuda.Stream(count + 5),
        lambda: cuda.get_device_properties(count + 5),
    ):
        with pytest.raises(RuntimeError, match=f"CUDA error: invalid device ordinal: cuda:{count + 5} does not exist"):
            call()
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        cuda.synchronize("cpu")
    with pytest.raises(RuntimeError, match="must be cuda device"):
        engine.ones(2).cuda("cpu")


def test_random_numbers_are_those_of_the_cpu(gpu: Any) -> None:
    engine.manual_seed(3)
    here = [engine.rand(5), engine.randn(4), engine.randint(0, 9, (6,))]
    engine.manual_seed(3)
    there = [engine.rand(5, device="cuda"), engine.randn(4, device="cuda"), engine.randint(0, 9, (6,), device="cuda")]
    for a, b in zip(here, there):
        assert engine.allclose(a, b.cpu())
    cuda.manual_seed(11)
    state = cuda.get_rng_state()
    first = engine.rand(3, device="cuda")
    cuda.set_rng_state(state)
    assert engine.equal(first, engine.rand(3, device="cuda"))
    cuda.manual_seed_all(11)
    assert cuda.initial_seed() == 11 and len(cuda.get_rng_state_all()) == cuda.device_count()


def test_names_and_properties(gpu: Any) -> None:
    found = cuda.get_device_properties(0)
    assert found.name and found.total_memory > 0 and cuda.get_device_capability() == (found.major, found.minor)
    assert cuda.get_device_name() == found.name and cuda.is_available() and cuda.is_initialized() and cuda._initialized
    assert "total_memory" in repr(found)
    assert cuda.is_bf16_supported()


def test_map_location(gpu: Any, tmp_path: Any) -> None:
    x = {"a": engine.arange(4.0, device="cuda:0"), "b": engine.ones(2)}
    engine.save(x, tmp_path / "x.pth")
    again = engine.load(tmp_path / "x.pth")
    assert again["a"].is_cuda and not again["b"].is_cuda and engine.equal(again["a"].cpu(), x["a"].cpu())
    assert not engine.load(tmp_path / "x.pth", map_location="cpu")["a"].is_cuda
    assert engine.load(tmp_path / "x.pth", map_location="cuda:0")["b"].is_cuda
    assert engine.load(tmp_path / "x.pth", map_location={"cuda:0": "cpu"})["a"].device.type == "cpu"


def test_a_profile_times_ops_on_the_gpu(gpu: Any) -> None:
    x = engine.ones(300, 300, device="cuda", requires_grad=True)
    with engine.autograd.profiler.profile(use_device="cuda") as found:
        (x @ x).relu().sum().backward()
        _ = engine.ones(3) + 1
    ops = {e.name: e for e in found.function_events}
    assert ops["aten::mm"].cuda_time > 0 and ops["aten::relu"].kernels[0].device == 0
    assert not ops["aten::add"].kernels  # on the CPU
    for e in found.function_events:
        assert e.self_device_time_total >= 0
        assert e.cuda_time_total >= sum(child.cuda_time_total for child in e.cpu_children)
    rows = {row.key: row for row in found.key_averages()}
    assert rows["MmBackward0"].cuda_time_total >= rows["MmBackward0"].self_cuda_time_total
    assert found.function_events.self_cpu_time_total > 0 and "Self CUDA" in found.table()


def test_a_profile_of_a_capture_marks_nothing(gpu: Any) -> None:
    x = engine.ones(3, device="cuda")
    _ = x * 2
    graph = cuda.CUDAGraph()
    with engine.autograd.profiler.profile(use_device="cuda") as found, cuda.graph(graph):
        y = x * 2
    graph.replay()
    assert y.tolist() == [2] * 3 and not any(e.kernels for e in found.function_events)


def test_a_stream_that_is_set_lives_as_long(gpu: Any) -> None:
    before = cuda.current_stream()
    try:
        cuda.set_stream(cuda.Stream())
        number = cuda.current_stream().cuda_stream
        gc.collect()
        for _ in range(2):
            with cuda.graph(cuda.CUDAGraph(), stream=cuda.current_stream()):
                pass
            assert cuda.current_stream().cuda_stream == number != before.cuda_stream
    finally:
        cuda.set_stream(before)
