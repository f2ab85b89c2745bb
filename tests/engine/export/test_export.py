"""torch.export: the program of a module, with what its inputs are."""

from __future__ import annotations

import io

import pytest

import engine
from engine import export, nn


def test_a_program_of_a_module() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4)).eval()
    program = export.export(model, (engine.randn(2, 3),))
    x = engine.randn(5, 3)
    assert engine.allclose(program.module()(x), model(x))
    assert set(program.graph_signature.parameters) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert set(program.graph_signature.buffers) == {"2.running_mean", "2.running_var"}
    assert len(program.graph_signature.user_inputs) == len(program.graph_signature.user_outputs) == 1
    assert list(program.state_dict) == list(model.state_dict())


def test_what_is_refused() -> None:
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(RuntimeError, match="read in Python"):
        export.export(Branching(), (engine.ones(2),))
    with pytest.raises(TypeError, match="tuple of example positional inputs"):
        export.export(nn.ReLU(), engine.ones(2))
    program = export.export(nn.ReLU(), (engine.ones(2),))
    with pytest.raises(RuntimeError, match=r"exported_program.module\(\)"):
        program(engine.ones(2))
    for refused in (
        program.run_decompositions,
        lambda: export.save(program, io.BytesIO()),
        lambda: export.load("x.pt2"),
    ):
        with pytest.raises(NotImplementedError, match="not supported"):
            refused()


def test_gradients_flow_through_an_exported_program() -> None:
    """Norms and recurrent layers have forms without gradients of their own, which a program must not be fixed to."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTM(4, 5), nn.GRU(5, 4)
            self.norms = nn.Sequential(nn.LayerNorm(4), nn.RMSNorm(4))

        def forward(self, x: engine.Tensor) -> engine.Tensor:
            return self.norms(self.second(self.first(x)[0])[0])

    engine.manual_seed(0)
    net, x = Net().eval(), engine.randn(3, 2, 4)
    program = engine.export.export(net, (x,)).module()
    expected = engine.autograd.grad((net(x) ** 3).sum(), list(net.parameters()))
    names = [n.removeprefix("graph_module.") for n, _ in program.named_parameters()]
    found = dict(zip(names, engine.autograd.grad((program(x) ** 3).sum(), list(program.parameters()))))
    for (name, _), gradient in zip(net.named_parameters(), expected):
        engine.testing.assert_close(found[name], gradient)
