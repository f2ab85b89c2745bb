"""Ops by cuDNN, on the stand-in: which samples and modules go there, what is left to the fallbacks, captured graphs.

Values of all samples and modules are compared in tests/engine/backends/cuda/test_everything.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import engine
import engine.ops.cuda  # registers its routes
import engine.ops.cudnn  # registers its routes
from engine import cuda
from engine.backends import cudnn as settings
from engine.backends.cuda import flags, routes
from engine.dispatch import OPS
from tests.engine import standin
from tests.engine.standin import cudnn_graphs

pytestmark = pytest.mark.cuda
F = engine.nn.functional
only_here = pytest.mark.skipif(standin.REAL, reason="counts calls of the stand-in")


@pytest.fixture
def gpu() -> Iterator[Any]:
    with standin.running() as backend:
        cudnn_graphs.calls.clear()
        yield backend


def real(*shape: int, seed: int = 0, dtype: Any = engine.float64) -> Any:
    return engine.tensor(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def both(function: Any, *inputs: Any, rate: float = 1e-10) -> None:
    """Values and gradients of a function on the GPU are those on the CPU."""

    def outcome(where: str) -> list[Any]:
        leaves = [t.detach().to(where).requires_grad_(t.is_floating_point()) for t in inputs]
        results = function(*leaves)
        results = list(results) if isinstance(results, tuple | list) else [results]
        total = sum((r.double() ** 2).sum() for r in results if r.is_floating_point())
        return [*results, *engine.autograd.grad(total, [t for t in leaves if t.requires_grad])]

    for a, b in zip(outcome("cuda"), outcome("cpu")):
        assert a.dtype is b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.detach().cpu().double().numpy(), b.detach().double().numpy(), rate, rate)


CONVOLUTIONS: dict[str, Any] = {
    "1d": lambda x, w: F.conv1d(x[:, :, 0], w[:, :, 0], stride=2, padding=1, dilation=2),
    "2d": lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
    "3d": lambda x, w: F.conv3d(x[:, :, None].expand(-1, -1, 3, -1, -1), w[:, :, None], padding=(1, 1, 0)),
    "grouped": lambda x, w: F.conv2d(x, w[:, :2], groups=2),
    "depthwise": lambda x, w: F.conv2d(x, w[:4, :1], groups=4),
    "transposed 1d": lambda x, w: F.conv_transpose1d(x[:, :, 0], w[:4, :, 0], stride=2, output_padding=1),
    "transposed 2d": lambda x, w: F.conv_transpose2d(x, w[:4], w[0, :, 0, 0], stride=2, padding=1, dilation=(1, 2)),
    "transposed grouped": lambda x, w: F.conv_transpose2d(x, w[:4], stride=(1, 2), groups=2),
    "with bias": lambda x, w: F.conv2d(x, w, w[:, 0, 0, 0]),
    "channels last": lambda x, w: F.conv2d(x.to(memory_format=engine.channels_last), w, w[:, 0, 0, 0], padding=1),
    "a view that is not aligned": lambda x, w: F.conv2d(x.reshape(-1)[1:505].reshape(2, 4, 9, 7), w),
    "one sample, one channel": lambda x, w: F.conv2d(x[:1, :1], w[:, :1]),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, dtype: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = getattr(engine, dtype)
    rate = {"float64": 1e-10, "float32": 1e-4, "float16": 0.1, "bfloat16": 0.8}[dtype]
    monkeypatch.setattr(settings, "allow_tf32", False)
    both(CONVOLUTIONS[name], real(2, 4, 9, 8, dtype=kind), real(6, 4, 3, 2, seed=1, dtype=kind), rate=rate)
    if not standin.REAL and dtype == "float64":
        assert not cudnn_graphs.calls  # alpha and beta come in float32 from the frontend
    elif not standin.REAL:
        assert len(cudnn_graphs.calls) >= 3 and all(c.startswith("conv") for c in cudnn_graphs.calls)


@pytest.mark.parametrize("kind", ["forward", "gradients"])
def test_tf32_has_its_eleven_bits(kind: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "allow_tf32", True)
    x, w = (
        engine.randn(*s, generator=engine.Generator().manual_seed(n))
        for n, s in enumerate(((2, 8, 9, 8), (6, 8, 3, 3)))
    )
    given = [t.cuda().requires_grad_() for t in (x, w)]
    wide = [t.double().requires_grad_() for t in (x, w)]
    found, wanted = F.conv2d(*given), F.conv2d(*wide)
    if kind == "gradients":
        found = engine.cat([g.flatten() for g in engine.autograd.grad(found.pow(2).sum(), given)])
        wanted = engine.cat([g.flatten() for g in engine.autograd.grad(wanted.pow(2).sum(), wide)])
    assert float((found.cpu() - wanted).norm() / wanted.norm()) < 2e-3


@only_here
def test_a_bias_is_part_of_the_graph_for_16_bit_types_and_channels_last(gpu: Any) -> None:
    x, w, b = real(2, 4, 5, 5), real(8, 4, 3, 3, seed=1), real(8, seed=2)
    for dtype, last, fused in (
        (engine.float16, True, True),
        (engine.float16, False, False),
        (engine.float32, True, False),
    ):
        gpu.runtime.state.cudnn._plans.clear()
        given = x.to(dtype).cuda()
        given = given.to(memory_format=engine.channels_last) if last else given
        y = F.conv2d(given, w.to(dtype).cuda(), b.to(dtype).cuda())
        plans = [p for p in gpu.runtime.state.cudnn._plans.values() if p is not None]
        assert ["bias" in [n for n, *_ in p.graph.nodes] for p in plans] == [fused]
        assert y.is_contiguous(memory_format=engine.channels_last) == last


@only_here
def test_what_cudnn_does_not_serve_is_left_to_products(gpu: Any) -> None:
    for make in (
        lambda: F.conv2d(
            engine.ones(1, 2, 3, 3, dtype=engine.complex64).cuda(),
            engine.ones(1, 2, 2, 2, dtype=engine.complex64).cuda(),
        ),
        lambda: F.conv2d(engine.ones(0, 2, 3, 3).cuda(), engine.ones(1, 2, 2, 2).cuda()),
        lambda: F.max_pool2d(real(1, 2, 5, 5).cuda(), 2, dilation=2),
        lambda: F.max_pool2d(real(1, 2, 6, 6).cuda(), 3, 2, ceil_mode=True),
        lambda: F.avg_pool2d(real(1, 2, 6, 6).cuda(), 2, divisor_override=3),
        lambda: F.adaptive_avg_pool2d(real(1, 2, 7, 7).cuda(), 3),
        lambda: F.scaled_dot_product_attention(*[real(1, 2, 4, 8).cuda()] * 3),
        lambda: F.scaled_dot_product_attention(*[real(1, 2, 4, 8, dtype=engine.float16).cuda()] * 3, dropout_p=0.5),
        lambda: F.scaled_dot_product_attention(*[real(1, 2, 4, 7, dtype=engine.float16).cuda()] * 3),
        lambda: F.scaled_dot_product_attention(*[real(2, 4, 8, dtype=engine.float16).cuda()] * 3),
    ):
        make()
    assert not cudnn_graphs.calls
    assert not {"cudnnPoolingForward"} & set(gpu.runtime.state.cudnn.library.calls)
    with pytest.raises(RuntimeError, match="expected input"):
        F.conv2d(real(1, 3, 4, 4).cuda(), real(1, 2, 2, 2).cuda())


POOLS: dict[str, Any] = {
    "max": lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0)),
    "max with ties": lambda x: F.max_pool2d((x > 0).to(x.dtype) * (x - x.detach() + 1), 3, 2, 1),
    "max 1d": lambda x: F.max_pool1d(x[0], 2),
    "max 3d": lambda x: F.max_pool3d(x[:, None], 2),
    "max channels last": lambda x: F.max_pool2d(x.to(memory_format=engine.channels_last), 2),
    "max with indices": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "mean": lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 0)),
    "mean without padding": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "mean 3d": lambda x: F.avg_pool3d(x[:, None], 2, 1),
    "mean channels last": lambda x: F.avg_pool2d(x.to(memory_format=engine.channels_last), 2),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling(name: str, gpu: Any) -> None:
    both(POOLS[name], real(2, 4, 8, 7))
    if not standin.REAL:
        assert "cudnnPoolingForward" in gpu.runtime.state.cudnn.library.calls


def test_a_maximum_hands_nan_on(gpu: Any) -> None:
    x = real(1, 1, 4, 4)
    x[0, 0, 1, 1] = float("nan")
    found = F.max_pool2d(x.cuda(), 2).cpu()
    assert engine.equal(found.isnan(), F.max_pool2d(x, 2).isnan()) and found.isnan().sum() == 1


@pytest.mark.parametrize("masked", ["", "causal", "bool", "float", "causal and bool", "one row", "shared keys"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention(dtype: str, masked: str, gpu: Any) -> None:
    kind = getattr(engine, dtype)
    shared = masked == "shared keys"
    q, k, v = (real(2, 2 if shared and i else 4, 6, 16, seed=i, dtype=kind) for i in range(3))
    mask = None
    if "bool" in masked or masked in ("float", "one row"):
        mask = real(1, 1, 1 if masked == "one row" else 6, 6, seed=9) > -0.3
        mask[..., 0, :] = masked == "one row"  # else a query that sees nothing
        if masked == "float":
            mask = engine.zeros(mask.shape, dtype=kind).masked_fill(~mask, -float("inf"))

    def call(a: Any, b: Any, c: Any) -> Any:
        m = None if mask is None else mask.to(a.device)
        return F.scaled_dot_product_attention(a, b, c, m, is_causal="causal" in masked, enable_gqa=shared)

    both(call, q, k, v, rate=2e-2 if dtype == "float16" else 0.15)
    if not standin.REAL:
        assert cudnn_graphs.calls == ["sdpa", "sdpa_backward"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_mask_of_another_type_is_left_to_products_both_ways(dtype: str, gpu: Any) -> None:
    from engine.ops.attention import fused

    q, k, v = (real(1, 2, 6, 16, seed=i, dtype=getattr(engine, dtype)) for i in range(3))
    mask = engine.zeros(1, 1, 6, 6).masked_fill(real(1, 1, 6, 6, seed=9) > 0.3, -float("inf"))
    mask[..., 0, :] = -float("inf")
    both(lambda *x: fused.fused_attention(*x, mask.to(x[0].device), False, 0.25)[0], q, k, v, rate=0.15)
    assert not cudnn_graphs.calls


@only_here
def test_heads_inside_a_packed_projection_are_not_copied(gpu: Any) -> None:
    packed = real(2, 8, 3, 2, 16, dtype=engine.float16).cuda()
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    F.scaled_dot_product_attention(q, k, v)
    before = cuda.memory_stats()["allocation.all.allocated"]
    found = F.scaled_dot_product_attention(q, k, v)
    # output, statistics, workspace
    assert cuda.memory_stats()["allocation.all.allocated"] == before + 3
    assert found.transpose(1, 2).is_contiguous()


@only_here
def test_attention_is_chosen_by_its_settings(gpu: Any) -> None:
    q = real(1, 2, 8, 16, dtype=engine.float16).cuda()
    nn = engine.nn.attention
    for context, wanted in (
        (nn.sdpa_kernel(nn.SDPBackend.MATH), False),
        (nn.sdpa_kernel([nn.SDPBackend.CUDNN_ATTENTION]), True),
        (settings.flags(enabled=False), False),
    ):
        cudnn_graphs.calls.clear()
        with context:
            F.scaled_dot_product_attention(q, q, q)
        assert bool(cudnn_graphs.calls) == wanted
    assert flags.cudnn_sdp_enabled()
    with engine.autocast("cuda", dtype=engine.bfloat16):
        found = F.scaled_dot_product_attention(*[q.float()] * 3)
    assert found.dtype is engine.bfloat16 and cudnn_graphs.calls


def test_double_backward_of_attention(gpu: Any) -> None:
    q, k, v = (real(1, 2, 8, 8, seed=i, dtype=engine.float16) for i in range(3))

    def call(*leaves: Any) -> Any:
        y = F.scaled_dot_product_attention(*leaves, is_causal=True)
        return engine.autograd.grad((y**2).sum(), leaves, create_graph=True)

    both(call, q, k, v, rate=0.2)


NETWORKS: dict[str, Any] = {
    "lstm": (engine.nn.LSTM, {}),
    "two layers both ways": (engine.nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "projected": (engine.nn.LSTM, {"proj_size": 3, "num_layers": 2}),
    "gru": (engine.nn.GRU, {"bidirectional": True}),
    "without biases": (engine.nn.GRU, {"bias": False, "num_layers": 2}),
    "tanh": (engine.nn.RNN, {}),
    "relu": (engine.nn.RNN, {"nonlinearity": "relu", "num_layers": 2}),
    "dropout": (engine.nn.LSTM, {"num_layers": 3, "dropout": 0.4}),
    "batch first": (engine.nn.LSTM, {"batch_first": True}),
}


@pytest.mark.parametrize("how", ["batch", "packed", "inference", "one sequence"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, how: str, gpu: Any) -> None:
    kind, more = NETWORKS[name]
    x = real(5, 5, 4)

    def outcome(where: str) -> list[Any]:
        engine.manual_seed(1)
        net = kind(4, 6, **more).double().to(where).train(how != "inference")
        given = x.to(where).requires_grad_(how != "inference")
        engine.manual_seed(2)
        if how == "packed":
            rnn = engine.nn.utils.rnn
            lengths = engine.tensor([5, 4, 4, 2, 1])
            y, h = net(rnn.pack_padded_sequence(given, lengths, batch_first="batch_first" in more))
            y = y.data
        elif how == "inference":
            with engine.no_grad():
                y, h = net(given)
        else:
            y, h = net(given[0] if how == "one sequence" else given)
        states = list(h) if isinstance(h, tuple) else [h]
        if how == "inference":
            return [y, *states]
        total = (y**2).sum() + sum(s.sin().sum() for s in states)
        return [y, *states, *engine.autograd.grad(total, [given, *net.parameters()])]

    for a, b in zip(outcome("cuda"), outcome("cpu")):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().numpy(), 1e-10, 1e-10)
    if not standin.REAL:
        calls = gpu.runtime.state.cudnn.library.calls
        assert "cudnnRNNForward" in calls and ("cudnnRNNBackwardData_v8" in calls) == (how != "inference")


@only_here
def test_networks_step_by_step_without_cudnn() -> None:
    with standin.running(cudnn=False) as backend:
        assert backend.runtime.state.cudnn is None
        engine.manual_seed(0)
        net = engine.nn.LSTM(3, 4, bidirectional=True)
        x = engine.ones(4, 2, 3)
        wanted = net(x)[0]
        assert engine.allclose(net.cuda()(x.cuda())[0].cpu(), wanted, 1e-5, 1e-6)


def test_autocast_of_a_network(gpu: Any) -> None:
    net = engine.nn.LSTM(4, 8, num_layers=2).cuda()
    x = real(3, 2, 4, dtype=engine.float32).cuda()
    wanted = net(x)[0]
    with engine.autocast("cuda"):
        found, (h, _) = net(x)
    assert found.dtype is engine.float16 and h.dtype is engine.float16
    assert engine.allclose(found.float(), wanted, 1e-2, 1e-2)
    found.float().sum().backward()
    assert net.weight_ih_l0.grad.dtype is engine.float32


@pytest.mark.long
def test_a_training_step_is_captured(gpu: Any) -> None:
    """Convolution, pooling, LSTM and attention, forward and backward, in a graph, as the same without one."""

    class Net(engine.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = engine.nn.Conv2d(2, 8, 3, padding=1)
            self.rnn = engine.nn.LSTM(16, 8, num_layers=2, bidirectional=True)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(self.conv(x), 2)
            y = self.rnn(x.flatten(2).transpose(0, 1))[0]
            heads = y.unflatten(2, (2, 8)).permute(1, 2, 0, 3).to(engine.float16)
            return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).float()

    def make() -> tuple[Any, Any]:
        engine.manual_seed(0)
        net = Net().cuda()
        return net, engine.optim.SGD(net.parameters(), lr=0.1)

    def step(net: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    draws = [real(3, 2, 8, 8, seed=i, dtype=engine.float32).cuda() for i in range(4)]
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
    assert losses == pytest.approx(plain, rel=1e-4)


@only_here
@pytest.mark.parametrize("name", ["cudnn convolution", "cudnn pooling", "cudnn attention", "cudnn rnn"])
def test_every_route_passes_its_own_check(name: str, gpu: Any) -> None:
    found = routes.measure(routes.ROUTES[name])
    assert found["verdict"] == "ok", found
    with settings.flags(enabled=False):
        assert not routes.ROUTES[name].ready()


def test_the_count_of_ops_by_cudnn(gpu: Any) -> None:
    """What `make test-cuda` prints."""
    served = sorted(name for name, record in OPS.items() if "cudnn" in record.kernels)
    print(f"\nops with a kernel of cuDNN: {len(served)}: {' '.join(served)}")
    assert len(served) == 13
