"""Products of tensors by cublasLt: every layout without needless copies, types, TF32, biases, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine import cuda
from tests.engine import standin

pytestmark = pytest.mark.cuda


def real(*shape: int, seed: int = 0, dtype: Any = engine.float64) -> engine.Tensor:
    return engine.tensor(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


LAYOUTS: dict[str, Any] = {
    "plain": lambda: (real(5, 7), real(7, 3)),
    "transposed": lambda: (real(7, 5).t(), real(3, 7).t()),
    "rows apart": lambda: (real(5, 14)[:, :7], real(7, 9)[:, 3:6]),
    "every other row": lambda: (real(10, 7)[::2], real(14, 3)[::2]),
    "every other column": lambda: (real(5, 14)[:, ::2], real(7, 6)[:, ::2]),
    "batch": lambda: (real(4, 5, 7), real(4, 7, 3)),
    "batch of transposed": lambda: (real(4, 7, 5).transpose(1, 2), real(4, 3, 7).transpose(1, 2)),
    "one for all": lambda: (real(4, 5, 7), real(7, 3)),
    "all for one": lambda: (real(5, 7), real(4, 7, 3)),
    "broadcast": lambda: (real(2, 1, 5, 7), real(1, 3, 7, 4)),
    "expanded": lambda: (real(1, 5, 7).expand(4, 5, 7), real(4, 7, 3)),
    "heads of a packed projection": lambda: (
        real(2, 5, 3, 4, 6)[:, :, 0].permute(0, 2, 1, 3),
        real(2, 5, 3, 4, 6)[:, :, 1].permute(0, 2, 3, 1),
    ),
    "one row": lambda: (real(1, 7), real(7, 3)),
    "one column": lambda: (real(5, 7), real(7, 1)),
    "one element": lambda: (real(5, 1), real(1, 3)),
    "column of a wider matrix": lambda: (real(5, 7), real(7, 4)[:, 1:2]),
    "row of a wider matrix": lambda: (real(4, 9)[2:3, :7], real(7, 3)),
    "no inner elements": lambda: (real(5, 0), real(0, 3)),
    "nothing": lambda: (real(0, 7), real(7, 3)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, gpu: Any) -> None:
    a, b = LAYOUTS[name]()
    x, y = _moved(a), _moved(b)
    assert x.stride() == a.stride() and y.stride() == b.stride()
    assert np.allclose((x @ y).cpu(), a @ b, 1e-12, 1e-12)


def _moved(t: engine.Tensor) -> engine.Tensor:
    """On the GPU with the same strides: the whole memory goes, and is seen alike."""
    whole = engine.tensor(np.asarray(t.untyped_storage()._memory.flat(t.dtype))).cuda()
    return whole.as_strided(t.shape, t.stride(), t.storage_offset())


@pytest.mark.skipif(standin.REAL, reason="counts calls of the stand-in")
def test_views_are_not_copied(gpu: Any) -> None:
    for name in ("transposed", "rows apart", "batch of transposed", "one for all", "every other row"):
        a, b = (_moved(t) for t in LAYOUTS[name]())
        _ = a @ b  # the workspace is there
        before = cuda.memory_stats()["allocation.all.allocated"]
        _ = a @ b
        assert cuda.memory_stats()["allocation.all.allocated"] == before + 1, name


@pytest.mark.parametrize("dtype", [engine.float16, engine.bfloat16, engine.float32, engine.float64], ids=str)
def test_types(dtype: Any, gpu: Any) -> None:
    a, b = real(3, 8, 16, dtype=dtype), real(3, 16, 4, seed=1, dtype=dtype)
    found = a.cuda() @ b.cuda()
    assert found.dtype is dtype
    assert engine.allclose(found.cpu().double(), (a.double() @ b.double()), 2e-2, 2e-2)


@pytest.mark.skipif(standin.REAL, reason="asks the stand-in")
def test_tf32_is_asked_for_only_when_allowed(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = real(4, 4, dtype=engine.float32).cuda()
    _ = x @ x
    monkeypatch.setattr(engine.backends.cuda.matmul, "allow_tf32", True)
    _ = x @ x
    _ = x.double() @ x.double()
    assert gpu.runtime.state.blas.computes[-3:] == [68, 77, 70]


def test_a_network_trains_in_a_graph(gpu: Any) -> None:
    """Forward, backward and step of a network with matrix products, captured, as the same without a graph."""

    def make() -> tuple[Any, Any]:
        engine.manual_seed(0)
        net = engine.nn.Sequential(engine.nn.Linear(6, 8), engine.nn.Tanh(), engine.nn.Linear(8, 2)).double().cuda()
        return net, engine.optim.SGD(net.parameters(), lr=0.1)

    def step(net: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    draws = [real(5, 6, seed=i).cuda() for i in range(4)]
    net, optimizer = make()
    plain = [step(net, optimizer, x).item() for x in draws]
    net, optimizer = make()
    x = draws[0].clone()
    losses = [step(net, optimizer, x).item()]
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        loss = step(net, optimizer, x)
    for d in draws[1:]:
        x.copy_(d)
        graph.replay()
        losses.append(loss.item())
    assert losses == pytest.approx(plain, rel=1e-12)


def test_linear_adds_its_bias_in_the_product(gpu: Any) -> None:
    x, w, b = (real(*s, seed=n, dtype=engine.float32) for n, s in enumerate(((4, 5, 7), (3, 7), (3,))))
    found = engine.nn.functional.linear(x.cuda(), w.cuda(), b.cuda())
    assert engine.allclose(found.cpu(), engine.nn.functional.linear(x, w, b), 1e-5, 1e-6)


def test_where_cublaslt_is_off_cupys_wrapper_computes(gpu: Any) -> None:
    from engine.backends.cuda import routes

    x = real(4, 5).cuda()
    routes.switch("cublasLt", False)
    calls = gpu.runtime.state.blas.calls if not standin.REAL else 0
    assert engine.allclose((x @ x.t()).cpu(), x.cpu() @ x.cpu().t())
    assert standin.REAL or gpu.runtime.state.blas.calls == calls
    routes.switch("cublasLt", None)


def test_products_of_one_graph_share_a_workspace(gpu: Any) -> None:
    x = real(8, 8).cuda()
    _ = x @ x
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = x
        for _ in range(5):
            y = y @ x
    assert len(graph._recording.spaces) == 1 or standin.REAL  # for small products a card may choose to need none
    graph.replay()
    assert engine.allclose(y.cpu(), engine.linalg.matrix_power(x.cpu(), 6))
