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


@pytest.mark.parametrize(
    "read",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, i],
        lambda x, i: x[..., i, :],
        lambda x, i: x[x > 3] * i[0],
        lambda x, i: x.index_put((None, i), x[:, i] + 1),
        lambda x, i: x.clone().index_put_((i,), x[i] + 1, accumulate=True),
        lambda x, i: torch_ops_index(x, i),
    ],
)
def test_an_index_that_is_an_input_stays_one(read) -> None:
    class Model(nn.Module):
        def forward(self, x, i):
            return read(x, i)

    x, first, second = engine.arange(24.0).reshape(3, 4, 2), engine.tensor([1, 1]), engine.tensor([2, 0])
    program = export.export(Model(), (x, first)).module()
    assert engine.equal(program(x, first), read(x, first)) and engine.equal(program(x, second), read(x, second))


def torch_ops_index(x, i):
    return engine.ops.aten._unsafe_index.Tensor(x, [None, i])
