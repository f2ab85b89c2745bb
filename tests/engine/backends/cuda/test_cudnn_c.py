"""Recurrent networks and pooling by libcudnn's C functions: planted faults are found, weights lie where cuDNN says."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends.cuda import cudnn_pool, cudnn_rnn
from engine.backends.cuda.cudnn import CudnnError
from tests.engine import standin
from tests.engine.standin import cudnn_networks

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(standin.REAL, reason="plants faults in the stand-in's calls"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
F = engine.nn.functional


def run() -> list[np.ndarray]:
    """Two layers and directions of sequences that differ in length, a projection, and both kinds of pooling."""
    found = []
    for kind, more in (
        (engine.nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (engine.nn.LSTM, {"proj_size": 2}),
        (engine.nn.GRU, {"bidirectional": True}),
    ):
        engine.manual_seed(0)
        net = kind(3, 4, **more).double()
        x = engine.randn(5, 2, 3, dtype=engine.float64)
        net, x = net.cuda(), x.cuda().requires_grad_()
        y, h = net(engine.nn.utils.rnn.pack_padded_sequence(x, [5, 3]))
        states = h if isinstance(h, tuple) else (h,)
        total = (y.data**2).sum() + sum(s.sin().sum() for s in states)
        found += [y.data, *states, *engine.autograd.grad(total, [x, *net.parameters()])]
    x = engine.tensor(np.random.default_rng(0).standard_normal((2, 3, 7, 6))).cuda().requires_grad_()
    for y in (
        F.max_pool2d(x, (3, 2), (2, 1), (1, 0)),
        F.avg_pool2d(x, (3, 2), (2, 1), (1, 0)),
        F.avg_pool2d(x, (3, 2), (2, 1), (1, 0), count_include_pad=False),
    ):
        found += [y, *engine.autograd.grad((y**2).sum(), x)]
    return [t.detach().cpu().numpy() for t in found]


def at(position: int, change: Any) -> Any:
    return lambda args: [change(a) if i == position else a for i, a in enumerate(args)]


def swapped(i: int, j: int) -> Any:
    def change(args: Any) -> Any:
        args = list(args)
        args[i], args[j] = args[j], args[i]
        return args

    return change


def reverse(values: Any) -> Any:
    return type(values)(*reversed(list(values)))


FAULTS: dict[str, tuple[str, Any]] = {
    "pool: window turned round": ("cudnnSetPoolingNdDescriptor", at(4, reverse)),
    "pool: wrong padding": ("cudnnSetPoolingNdDescriptor", at(5, reverse)),
    "pool: swapped stride and window": ("cudnnSetPoolingNdDescriptor", swapped(4, 6)),
    "pool: padding counted or not": ("cudnnSetPoolingNdDescriptor", at(1, lambda m: {1: 2, 2: 1}.get(m, m))),
    "pool: input and output": ("cudnnPoolingForward", swapped(4, 7)),
    "pool: factors of float32": ("cudnnPoolingForward", at(2, lambda a: ctypes.byref(ctypes.c_float(1)))),
    "pool: result added to what was there": ("cudnnPoolingForward", swapped(2, 5)),
    "pool: gradient and output": ("cudnnPoolingBackward", swapped(4, 6)),
    "tensor: strides turned round": ("cudnnSetTensorNdDescriptor", at(4, reverse)),
    "tensor: wrong type": ("cudnnSetTensorNdDescriptor", at(1, lambda t: 0)),
    "network: another cell": ("cudnnSetRNNDescriptor_v8", at(2, lambda m: 5 - m)),
    "network: no biases": ("cudnnSetRNNDescriptor_v8", at(3, lambda m: 0)),
    "network: one direction": ("cudnnSetRNNDescriptor_v8", at(4, lambda m: 0)),
    "network: wrong type": ("cudnnSetRNNDescriptor_v8", at(6, lambda m: 0)),
    "network: unset compute type": ("cudnnSetRNNDescriptor_v8", at(7, lambda m: 0)),
    "network: one layer": ("cudnnSetRNNDescriptor_v8", at(12, lambda m: 1)),
    "network: no projection": ("cudnnSetRNNDescriptor_v8", at(11, lambda p: 4)),
    "data: lengths turned round": ("cudnnSetRNNDataDescriptor", at(6, reverse)),
    "data: wrong width": ("cudnnSetRNNDataDescriptor", at(5, lambda n: n + 1)),
    "data: another layout": ("cudnnSetRNNDataDescriptor", at(2, lambda n: 0)),
    "forward: for inference": ("cudnnRNNForward", at(2, lambda m: 0)),
    "forward: h and c": ("cudnnRNNForward", swapped(9, 12)),
    "forward: no workspace": ("cudnnRNNForward", at(17, lambda a: 0)),
    "forward: workspace too small": ("cudnnRNNForward", at(16, lambda a: 8)),
    "forward: no reserve": ("cudnnRNNForward", at(19, lambda a: None)),
    "forward: a handle that is none": ("cudnnRNNForward", at(0, lambda a: 1)),
    "backward: gradient and output": ("cudnnRNNBackwardData_v8", swapped(4, 5)),
    "backward: gradients of h and c": ("cudnnRNNBackwardData_v8", swapped(10, 14)),
    "backward: weights overwritten": ("cudnnRNNBackwardWeights_v8", at(2, lambda m: 1)),
    "backward: another reserve": ("cudnnRNNBackwardWeights_v8", lambda args: [*args[:-1], args[-3]]),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By other numbers, an assertion, or a refusal, which switches the route off."""
    wanted = run()
    library = gpu.runtime.state.cudnn
    library._plans.clear()
    name, change = FAULTS[fault]
    plain = type(library.library).__getattr__

    def get(self: Any, asked: str) -> Any:
        function = plain(self, asked)
        return (lambda *args: function(*change(args))) if asked == name else function

    monkeypatch.setattr(type(library.library), "__getattr__", get)
    try:
        found = run()
    except (AssertionError, CudnnError):
        return
    if False in gpu.runtime.state.verdicts.values():
        return
    assert any(a.shape != b.shape or not np.allclose(a, b, 1e-6, 1e-6) for a, b in zip(found, wanted))


def test_a_missing_backward_of_the_data_and_a_stale_reserve_are_found(gpu: Any) -> None:
    with standin.running():
        engine.manual_seed(0)
        net = engine.nn.LSTM(3, 4).cuda()
        y, _ = net(engine.ones(2, 1, 3, device="cuda"))
        y.sum().backward(retain_graph=True)
        first = net.weight_ih_l0.grad.clone()
        y.sum().backward()  # the reserve that was saved has not been written to
        assert engine.allclose(net.weight_ih_l0.grad.cpu(), 2 * first.cpu())


def test_weights_are_laid_and_taken_back(gpu: Any) -> None:
    library = gpu.runtime.state.cudnn
    network = cudnn_rnn.Network("lstm", "float32", 3, 4, 2, 2, 2, True, (2, 1), True, True)
    plan = cudnn_rnn.plan_of(library, network)
    flat = gpu.cupy.arange(plan.length, dtype="float32")
    space = plan.laid(gpu.cupy, flat)
    assert space.nbytes >= plan.weights > flat.nbytes  # the stand-in leaves gaps
    assert (plan.taken(gpu.cupy, space).get() == np.arange(plan.length)).all()
    assert sum(s.count for s in plan.segments) == plan.length
    assert len(plan.segments) < 4 * len(cudnn_networks.NAMES) * 4  # gates of one matrix are one copy
    assert network.out == 2 and network.math == cudnn_rnn.DEFAULT_MATH


def test_descriptors_are_given_back(gpu: Any) -> None:
    from tests.engine.standin import cudnn_c

    library = gpu.runtime.state.cudnn
    run()
    library._plans.clear()
    assert {t.kind for t in cudnn_c.things.values()} == {"handle"}


def test_a_pooling_of_its_own(gpu: Any) -> None:
    library = gpu.runtime.state.cudnn
    x = gpu.cupy.asarray(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4))
    y = gpu.cupy.empty((1, 1, 2, 2), "float32")
    cudnn_pool.forward(library, cudnn_pool.MAX, x, y, (2, 2), (2, 2), (0, 0))
    assert y.get().tolist() == [[[[5, 7], [13, 15]]]]
    with pytest.raises(CudnnError, match="cudnnPoolingForward"):
        cudnn_pool.forward(library, cudnn_pool.MAX, x, y, (3, 3), (2, 2), (0, 0))
