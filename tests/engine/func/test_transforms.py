"""grad, vjp, jvp, jacobians and vmap of one another: torch's stored numbers; what they refuse."""

from __future__ import annotations

import json

import pytest

import engine
from engine import nn
from engine.func import functional_call, grad, jacfwd, jvp, stack_module_state, vjp, vmap
from tests.engine.func import programs

TABLE = json.loads(programs.FILE.read_text("utf-8"))
PROGRAMS = programs.programs(engine)


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "an index a slice"])
def test_numbers(name: str) -> None:
    check(name)


def test_an_index_of_each_slice_is_a_loop() -> None:
    with pytest.warns(UserWarning, match="performance drop"):
        check("an index a slice")


def check(name: str) -> None:
    programs.compare(PROGRAMS[name](), engine.Tensor, TABLE[name])


def test_every_program_has_numbers() -> None:
    assert TABLE.keys() == PROGRAMS.keys()


def test_per_sample_gradients_of_a_network() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 3)).double()
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    x, y = engine.randn(5, 4, dtype=engine.float64), engine.tensor([0, 2, 1, 1, 0])

    def loss(parameters: dict, x: engine.Tensor, y: engine.Tensor) -> engine.Tensor:
        return nn.functional.cross_entropy(functional_call(net, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    for i in range(5):
        net.zero_grad()
        nn.functional.cross_entropy(net(x[i : i + 1]), y[i : i + 1]).backward()
        for name, p in net.named_parameters():
            assert engine.allclose(found[name][i], p.grad), name


def test_an_ensemble() -> None:
    nets = [nn.Linear(3, 2) for _ in range(4)]
    parameters, buffers = stack_module_state(nets)
    x = engine.randn(5, 3)
    found = vmap(lambda p, b: functional_call(nets[0], (p, b), (x,)))(parameters, buffers)
    assert engine.allclose(found, engine.stack([net(x) for net in nets]), atol=1e-6)
    assert parameters["weight"].shape == (4, 2, 3) and parameters["weight"].is_leaf
    with pytest.raises(RuntimeError, match="at least one model"):
        stack_module_state([])


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda x: grad(lambda v: v)(x), "to return a scalar Tensor, got tensor with 1 dims"),
        (lambda x: grad(lambda v: 1.0)(x), "Expected f.* to return a Tensor"),
        (lambda x: grad(engine.sum, argnums=3)(x), "Got argnum=3, but only 1 positional inputs"),
        (lambda x: grad(engine.sum)(engine.tensor([1])), "only Tensors of floating point and complex dtype"),
        (lambda x: jvp(engine.sum, [x], [x]), "Expected primals to be a tuple"),
        (lambda x: jvp(engine.sum, (x,), (x, x)), "same python structure"),
        (lambda x: vjp(engine.sin, x)[1](engine.ones(2)), "Expected cotangent of shape"),
        (lambda x: vmap(lambda v: v + engine.rand(()))(x), "randomness error mode"),
    ],
)
def test_what_is_refused(call: object, sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        call(engine.ones(3))


def test_a_write_into_what_is_not_mapped_is_refused() -> None:
    y = engine.zeros(3)
    with pytest.raises(RuntimeError, match=r"vmap: add_.*is not possible"):
        vmap(lambda v: y.add_(v))(engine.ones(2, 3))
    assert y.tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_random_numbers() -> None:
    x = engine.zeros(4)
    same = vmap(lambda v: v + engine.rand(()), randomness="same")(x)
    different = vmap(lambda v: v + engine.rand(()), randomness="different")(x)
    assert len(set(same.tolist())) == 1 and len(set(different.tolist())) == 4


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_values_that_are_read_make_a_loop() -> None:
    x = engine.tensor([[1.0, 2.0], [-3.0, 1.0]])
    assert vmap(lambda v: v * 2 if v.sum() > 0 else v)(x).tolist() == [[2.0, 4.0], [-3.0, 1.0]]
    assert vmap(lambda v: v + v.max().item())(x).tolist() == [[3.0, 4.0], [-2.0, 2.0]]


def test_functions_are_as_before_afterwards() -> None:
    x = engine.ones(3)
    engine.exp(x)
    code = engine.exp.__code__
    with pytest.raises(ZeroDivisionError):
        vmap(lambda v: engine.exp(v) / (1 // 0))(x)
    vmap(engine.exp)(x)
    assert engine.exp.__code__ is code


def test_a_jacobian_by_columns_in_chunks() -> None:
    x = engine.randn(5, dtype=engine.float64)
    assert engine.allclose(jacfwd(engine.sin, chunk_size=2)(x), engine.diag(x.cos()))
