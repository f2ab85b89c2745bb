"""Captured graphs on the stand-in: replay, private memory, and what a capture refuses."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import engine
from engine import cuda
from tests.engine import shim, standin

pytestmark = pytest.mark.cuda


def test_replay(gpu: Any) -> None:
    x = engine.ones(4, device="cuda")
    g = cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="Called CUDAGraph::replay without a preceding successful capture"):
        g.replay()
    assert not cuda.is_current_stream_capturing()
    with cuda.graph(g):
        assert cuda.is_current_stream_capturing()
        y = (x * 2 + 1).exp()
        x.add_(1)
    assert x.tolist() == [1.0] * 4  # nothing was executed
    g.replay()
    assert engine.allclose(y.cpu(), engine.full((4,), 3.0).exp()) and x.tolist() == [2.0] * 4
    x.copy_(engine.zeros(4, device="cuda"))
    g.replay()
    assert engine.allclose(y.cpu(), engine.ones(4).exp())


@pytest.mark.long
def test_memory_of_a_graph_is_its_own(gpu: Any) -> None:
    x = engine.ones(4, device="cuda")
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        y = (x * 3) * (x + 1)  # both factors are freed at once, and needed by each replay
    gc.collect()
    others = [engine.full((4,), float(i), device="cuda") for i in range(8)]
    g.replay()
    assert y.tolist() == [6.0] * 4
    assert [t[0].item() for t in others] == [float(i) for i in range(8)]
    again = cuda.CUDAGraph()
    with cuda.graph(again, pool=g.pool()):
        z = y + 1
    g.replay()
    again.replay()
    assert z.tolist() == [7.0] * 4


@pytest.mark.long
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: bool(x.sum() > 0),
        lambda x: engine.ones(3).cuda(),
        lambda x: cuda.synchronize(),
        lambda x: float(x[0]),
    ],
)
def test_what_needs_the_host_is_refused(call: Any, gpu: Any) -> None:
    x = engine.ones(4, device="cuda")
    g = cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"), cuda.graph(g):
        call(x + 1)
    assert not cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        g.replay()
    assert (x + 1).tolist() == [2.0] * 4  # the stream is usable again


def test_the_default_stream_is_refused(gpu: Any) -> None:
    with pytest.raises(RuntimeError, match="CUDA graphs must be captured on a non-default stream"):
        cuda.CUDAGraph().capture_begin()


@pytest.mark.long
def test_a_train_step(gpu: Any) -> None:
    """Forward, backward and an optimizer's step in one graph, as the same steps without one."""

    def model() -> tuple[Any, Any]:
        engine.manual_seed(0)
        w = engine.randn(3, 4, dtype=engine.float64).cuda().requires_grad_()
        return w, engine.optim.SGD([w], lr=0.1, momentum=0.9)

    def step(w: Any, optimizer: Any, x: Any) -> Any:
        loss = ((w * x).tanh().sum(1) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss

    draws = [engine.randn(3, 4, dtype=engine.float64).cuda() for _ in range(4)]
    w, optimizer = model()
    plain = [step(w, optimizer, x).item() for x in (*draws[:2], *draws)]
    wanted = w.detach().cpu()
    w, optimizer = model()
    x = draws[0].clone()
    losses = []
    for d in draws[:2]:  # warm up: gradients and momentum exist
        x.copy_(d)
        losses.append(step(w, optimizer, x).item())
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        loss = step(w, optimizer, x)
    for d in draws:
        x.copy_(d)
        g.replay()
        losses.append(loss.item())
    assert losses == pytest.approx(plain, rel=1e-12)
    assert engine.allclose(w.detach().cpu(), wanted)


@pytest.mark.long
def test_graphed_callables(gpu: Any) -> None:
    class Scale(engine.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = engine.nn.Parameter(engine.linspace(-1, 1, 4, device="cuda"))

        def forward(self, x: Any) -> Any:
            return (x * self.w).sin()

    module = Scale()
    x = engine.randn(3, 4, device="cuda", requires_grad=True)
    graphed = cuda.make_graphed_callables(Scale(), (x,))
    for _ in range(2):
        y = engine.randn(3, 4, device="cuda", requires_grad=True)
        results = []
        for m in (module, graphed):
            y.grad = m.w.grad = None
            m(y).pow(2).sum().backward()
            results.append((m(y).detach().clone().cpu(), y.grad.cpu(), m.w.grad.cpu()))
        for a, b in zip(*results):
            assert engine.allclose(a, b)
    with pytest.raises(RuntimeError, match=r"the graph was captured for \(3, 4\)"):
        graphed(engine.randn(2, 4, device="cuda"))
    graphed.eval()
    assert graphed(engine.randn(2, 4, device="cuda")).shape == (2, 4)  # the other mode is not captured
    double = cuda.make_graphed_callables(lambda t: t * 2, (engine.ones(2, device="cuda"),))
    assert double(engine.tensor([3.0, 4.0], device="cuda")).tolist() == [6.0, 8.0]


# --- random numbers: Note [Random numbers in graphs] in engine/ops/random/cuda.py


@pytest.fixture
def own() -> Any:
    """The backend with own kernels, which draw on the device."""
    if shim.MISSING and not standin.REAL:
        pytest.skip(shim.MISSING)
    with standin.running(kernels=True) as backend:
        yield backend


def _drawn(x: Any) -> list[Any]:
    """Draws of every kind of kernel, with gradients."""
    F = engine.nn.functional
    w = x.detach().requires_grad_()
    dropped = F.dropout(w, 0.4)
    (grad,) = engine.autograd.grad(dropped.sum(), [w])
    like = [engine.rand_like(x), engine.randn_like(x), engine.bernoulli(x.clamp(0, 1))]
    made = [engine.randint(0, 1000, (7,), device=x.device), engine.rand(5, device=x.device, dtype=engine.float64)]
    return [dropped.detach(), grad, *like, *made, x.clone().uniform_(2, 3), x.clone().exponential_()]


@pytest.mark.long
def test_random_numbers_of_replays_are_those_of_the_cpu(own: Any) -> None:
    x = engine.linspace(0, 2, 33).cuda()
    _drawn(x)  # kernels are compiled
    engine.manual_seed(2**63 + 11)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        found = _drawn(x)
    rounds = []
    for _ in range(3):
        graph.replay()
        rounds.append([t.cpu() for t in found])
    outside = engine.rand(4, device="cuda").cpu()  # goes on where the replays ended
    engine.manual_seed(2**63 + 11)
    for got in rounds:
        for g, w in zip(got, _drawn(x.cpu()), strict=True):
            assert engine.allclose(g, w, 1e-5, 1e-6), (g, w)
    assert (outside == engine.rand(4)).all()
    assert not engine.allclose(rounds[0][0], rounds[1][0])


@pytest.mark.long
def test_a_generator_of_ones_own_and_a_seed_between_replays(own: Any) -> None:
    generator = engine.Generator("cuda").manual_seed(5)
    engine.rand(8, device="cuda", generator=generator)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = engine.rand(8, device="cuda", generator=generator)
    graph.replay()
    generator.manual_seed(9)
    graph.replay()
    assert (y.cpu() == engine.rand(8, generator=engine.Generator().manual_seed(9))).all()
    first = y.cpu()
    generator.manual_seed(9)
    graph.replay()
    assert (y.cpu() == first).all()


@pytest.mark.long
def test_make_graphed_callables_draws_anew(own: Any) -> None:
    net = engine.nn.Sequential(engine.nn.Linear(6, 6), engine.nn.Dropout(0.5)).cuda()
    x = engine.rand(4, 6).cuda()
    net = cuda.make_graphed_callables(net, (x,))
    first, second = net(x).detach().clone(), net(x).detach().clone()
    assert ((first == 0) != (second == 0)).any()


@pytest.mark.long
def test_without_own_kernels_a_draw_in_a_graph_says_why_it_cannot_be(gpu: Any) -> None:
    if standin.REAL or standin.KERNELS:
        pytest.skip("own kernels draw")
    graph = cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"), cuda.graph(graph):
        engine.rand(3, device="cuda")
