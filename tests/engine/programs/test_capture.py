"""`engine.compile(step, mode="reduce-overhead")`: whole steps as graphs, with every optimizer, as without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import engine
from engine import optim
from engine.nn import functional as F
from engine.programs import capture
from tests.engine import shim, standin

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def own() -> Iterator[Any]:
    """The backend with own kernels: the optimizer's reads the numbers of each replay."""
    if shim.MISSING and not standin.REAL:
        pytest.skip(shim.MISSING)
    with standin.running(kernels=True) as backend:
        yield backend


def made(kind: Any, **options: Any) -> tuple[Any, Any]:
    engine.manual_seed(0)
    net = engine.nn.Sequential(
        engine.nn.Linear(6, 8), engine.nn.LayerNorm(8), engine.nn.GELU(), engine.nn.Dropout(0.2), engine.nn.Linear(8, 3)
    ).cuda()
    return net, kind(net.parameters(), **options)


def trained(kind: Any, options: dict[str, Any], captured: bool, keep: bool, steps: int = 7) -> tuple[list[float], Any]:
    """Losses of some steps under a schedule, and the network."""
    engine.manual_seed(3)
    batches = [(engine.rand(5, 6).cuda(), engine.randint(0, 3, (5,)).cuda()) for _ in range(steps)]
    net, optimizer = made(kind, **options)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.7)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad(set_to_none=not keep)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = engine.compile(step, mode="reduce-overhead") if captured else step
    engine.manual_seed(4)
    losses = []
    for x, y in batches:
        losses.append(run(x, y).item())
        schedule.step()
    return losses, (net, optimizer)


KINDS = [
    (optim.SGD, {"lr": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (optim.Adam, {"lr": 0.01}),
    (optim.Adam, {"lr": 0.01, "capturable": True}),
    (optim.AdamW, {"lr": 0.01, "amsgrad": True}),
    (optim.AdamW, {"lr": 0.01, "fused": True}),
    (optim.RMSprop, {"lr": 0.01, "centered": True}),
    (optim.Adagrad, {"lr": 0.1}),
    (optim.NAdam, {"lr": 0.01}),
    (optim.RAdam, {"lr": 0.01}),
    (optim.Adamax, {"lr": 0.01}),
    (optim.Adadelta, {}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=lambda v: getattr(v, "__name__", None) or "-".join(v))
@pytest.mark.long
@pytest.mark.parametrize("keep", [False, True])
def test_a_captured_step_trains_as_one_without_a_graph(kind: Any, options: dict[str, Any], keep: bool) -> None:
    plain, (net, optimizer) = trained(kind, options, False, keep)
    found, (twin, other) = trained(kind, options, True, keep)
    assert found == pytest.approx(plain, rel=1e-6)
    for a, b in zip(net.parameters(), twin.parameters()):
        assert engine.allclose(a, b, 1e-5, 1e-7)
    for one, two in zip(optimizer.state.values(), other.state.values()):
        if "step" in one:
            assert float(one["step"]) == float(two["step"]) == 7


@pytest.mark.long
def test_calls_become_replays() -> None:
    runs = []

    @engine.compile(mode="reduce-overhead")
    def twice(x: Any, k: float = 2.0) -> Any:
        runs.append(k)
        return {"y": x * k, "n": (x.sum(), "text")}

    for n in range(6):
        x = engine.full((3,), float(n), device="cuda")
        found = twice(x)
        assert found["y"].tolist() == [2.0 * n] * 3 and found["n"][0].item() == 3 * n and found["n"][1] == "text"
    assert len(runs) == capture.WARM_UPS + 1 and twice.__name__ == "twice"
    assert twice(x, 3.0)["y"].tolist() == [15.0] * 3 and runs[-1] == 3.0  # another number, another graph
    assert twice(engine.ones(2, device="cuda"))["y"].tolist() == [2.0] * 2  # another shape
    assert twice(engine.ones(2))["y"].tolist() == [2.0] * 2  # on the CPU it is itself


@pytest.mark.long
@pytest.mark.parametrize(
    "inside", [lambda t: t.item(), lambda t: bool(t > 0), lambda t: t.cpu(), lambda t: engine.cuda.synchronize()]
)
def test_a_host_sync_inside_is_named_and_nothing_is_computed(inside: Any) -> None:
    w = engine.zeros(1, device="cuda")

    @engine.compile(mode="reduce-overhead")
    def step(x: Any) -> Any:
        w.add_(1)
        inside(x.sum())
        return x

    x = engine.ones(3, device="cuda")
    for _ in range(capture.WARM_UPS):
        step(x)
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing") as caught:
        step(x)
    assert "while test_a_host_sync" in caught.value.__notes__[0] and "reduce-overhead" in caught.value.__notes__[0]
    assert w.item() == capture.WARM_UPS and not engine.cuda.is_current_stream_capturing()


@pytest.mark.long
def test_state_that_is_made_in_the_capture_is_refused() -> None:
    net, optimizer = made(optim.Adam)
    net(engine.rand(2, 6).cuda()).sum().backward()
    graph = engine.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="Adam makes its state in its first step"), engine.cuda.graph(graph):
        optimizer.step()
    optimizer.step()
    assert float(next(iter(optimizer.state.values()))["step"]) == 1


def test_an_option_that_changes_the_code_is_refused_at_the_replay() -> None:
    net, optimizer = made(optim.SGD, lr=0.1)
    for p in net.parameters():
        p.grad = engine.ones_like(p)
    optimizer.step()
    graph = engine.cuda.CUDAGraph()
    with engine.cuda.graph(graph):
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.5
    before = net[0].bias[0].item()
    graph.replay()
    assert net[0].bias[0].item() == pytest.approx(before - 0.5)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(RuntimeError, match="capture it anew"):
        graph.replay()
    assert net[0].bias[0].item() == pytest.approx(before - 0.5)


@pytest.mark.long
def test_without_the_kernel_numbers_that_change_are_refused() -> None:
    if standin.REAL:
        pytest.skip("takes the kernels away")
    with standin.running(kernels=False):
        net, optimizer = made(optim.Adam)
        for p in net.parameters():
            p.grad = engine.ones_like(p)
        optimizer.step()
        graph = engine.cuda.CUDAGraph()
        with engine.cuda.graph(graph):
            optimizer.step()
        graph.replay()
        with pytest.raises(RuntimeError, match="captured step of Adam does not use the engine's own kernel"):
            graph.replay()
        assert float(next(iter(optimizer.state.values()))["step"]) == 2
