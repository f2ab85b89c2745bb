"""torch.profiler: schedules, what is recorded in which step, and traces."""

from __future__ import annotations

import gzip
import json

import pytest

import engine
from engine.core import tensor_messages
from engine.torch_names.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)


def test_schedule():
    actions = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    letters = "".join({0: "-", 1: "w", 2: "r", 3: "s"}[actions(i).value] for i in range(11))
    assert letters == "--wrs-wrs--"
    with pytest.warns(UserWarning, match="won't be using warmup"):
        endless = schedule(wait=1, warmup=0, active=1, skip_first_wait=1)
    assert [endless(i) for i in range(3)] == [
        ProfilerAction.RECORD_AND_SAVE,
        ProfilerAction.NONE,
        ProfilerAction.RECORD_AND_SAVE,
    ]
    for bad in ({"active": 0}, {"wait": -1}):
        with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
            schedule(**{"wait": 0, "warmup": 0, "active": 1, **bad})


def test_everything_without_a_schedule():
    x = engine.ones(3)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof, record_function("mine"):
        x.mul(2)
    names = [event.name for event in prof.events()]
    assert names[0] == "mine" and "aten::mul" in names
    assert "aten::mul" in prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=5)


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears")
def test_steps():
    x, seen = engine.ones(3), []

    def ready(prof):
        seen.append({(e.name, e.count) for e in prof.key_averages()} | {("step", prof.step_num)})

    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready) as prof:
        for step in range(8):
            (engine.exp if step % 4 == 0 else engine.sin)(x)
            prof.step()
    assert [sorted(one) for one in seen] == [
        [("ProfilerStep*", 2), ("aten::sin", 2), ("step", 4)],
        [("ProfilerStep*", 2), ("aten::sin", 2), ("step", 8)],
    ]
    assert prof.key_averages()[0].count == 2  # no further cycle has begun


def test_a_new_cycle_begins_with_nothing(monkeypatch):
    monkeypatch.setattr(tensor_messages, "_warned", set())
    prof = profile(schedule=schedule(wait=1, warmup=1, active=1))
    with pytest.warns(UserWarning, match="clears events at the end of each cycle") as said, prof:
        for _ in range(7):
            engine.ones(3).sin()
            prof.step()
        assert prof.current_action is ProfilerAction.WARMUP
    assert len(said) == 1 and not prof.key_averages()


def test_start_and_stop():
    prof = profile()
    with pytest.raises(RuntimeError, match="recorded nothing yet"):
        prof.events()
    prof.start()
    engine.ones(2).neg()
    prof.stop()
    count = len(prof.events())
    engine.ones(2).neg()
    assert count == len(prof.events()) > 0


def test_traces(tmp_path):
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "log"), "me", use_gzip=True)) as prof:
        engine.ones(2).neg()
    (file,) = (tmp_path / "log").iterdir()
    assert file.name.startswith("me.") and file.name.endswith(".pt.trace.json.gz")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert json.loads(gzip.decompress(file.read_bytes())) == json.loads((tmp_path / "trace.json").read_text())


def test_activities():
    assert ProfilerActivity.CPU in supported_activities()
    with pytest.raises(AssertionError, match="No valid profiler activities"):
        profile(activities=[])


def test_flops_and_arrows(tmp_path):
    """A multiplication and an addition count as two; an op and its backward node have one number."""
    net = engine.nn.Sequential(
        engine.nn.Conv2d(3, 4, 3), engine.nn.ReLU(), engine.nn.Flatten(), engine.nn.Linear(16, 5)
    )
    x = engine.randn(2, 3, 4, 4)
    with profile(with_flops=True) as prof:
        net(x).sum().backward()
    averages = {e.key: e for e in prof.key_averages()}
    assert averages["aten::convolution"].flops == 2 * 2 * 4 * 2 * 2 * 27
    assert averages["aten::linear"].flops == 2 * 2 * 16 * 5 and averages["aten::relu"].flops == 0
    assert "Total KFLOPs" in prof.key_averages().table() and "--" in prof.key_averages().table()
    assert prof.events().total_average().flops == sum(e.flops for e in averages.values())
    forward = {e.sequence_nr: e.name for e in prof.events() if e.name.startswith("aten::")}
    pairs = {(forward[e.sequence_nr], e.name) for e in prof.events() if e.name.endswith("Backward0")}
    assert pairs == {
        ("aten::convolution", "ConvolutionBackward0"),
        ("aten::relu", "ReluBackward0"),
        ("aten::view", "ViewBackward0"),
        ("aten::linear", "AddmmBackward0"),
        ("aten::sum", "SumBackward0"),
    }
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    begins, ends = ({e["id"]: e for e in events if e["ph"] == end} for end in "sf")
    assert len(begins) == 5 and begins.keys() == ends.keys()
    assert all(begins[i]["ts"] < ends[i]["ts"] and ends[i]["bp"] == "e" for i in begins)


def test_without_flops_there_are_none():
    with profile() as prof:
        engine.ones(2, 2) @ engine.ones(2, 2)
    assert prof.events()[0].flops is None and "FLOPs" not in prof.key_averages().table()


@pytest.mark.parametrize("use_cuda", [True, False])
def test_use_cuda_is_deprecated(use_cuda: bool) -> None:
    activity = ProfilerActivity
    with pytest.warns(FutureWarning, match="^`use_cuda` is deprecated, use `activities` argument instead$") as found:
        prof = profile(activities=[activity.CPU], use_cuda=use_cuda)
    assert prof.activities == {activity.CPU} and [w.filename for w in found] == [__file__]
    with pytest.warns(FutureWarning), pytest.raises(AssertionError, match="No valid profiler activities found"):
        profile(activities=[activity.CUDA], use_cuda=False)
