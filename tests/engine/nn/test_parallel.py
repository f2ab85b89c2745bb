"""Copies of modules for several devices, and calls of several modules."""

from __future__ import annotations

import pytest

import engine
from engine import nn
from engine.nn.parallel import parallel_apply, replicate
from engine.nn.parallel.parallel_apply import get_a_var


class Shared(nn.Module):
    """One layer under two names, an empty parameter, a buffer that the call moves."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = self.first
        self.norm = nn.BatchNorm1d(3)
        self.register_parameter("nothing", None)

    def forward(self, x: engine.Tensor, scale: float = 1.0) -> engine.Tensor:
        return self.norm(self.second(self.first(x))) * scale


def test_gradients_of_copies_add_up_in_the_parameters() -> None:
    engine.manual_seed(0)
    module, x = Shared(), engine.randn(4, 3)
    alone = Shared()
    alone.load_state_dict(module.state_dict())
    copies = replicate(module, ["cpu", "cpu"])
    assert all(c.first is c.second and c.nothing is None and not list(c.parameters()) for c in copies)
    assert copies[0].first.weight is not module.first.weight and not copies[0].first.weight.is_leaf
    outputs = parallel_apply(copies, [x[:2], (x[2:],)], [{}, {"scale": 2.0}], ["cpu", "cpu"])
    sum(o.square().sum() for o in outputs).backward()
    (alone(x[:2]).square().sum() + alone(x[2:], 2.0).square().sum()).backward()
    for found, expected in zip(module.parameters(), alone.parameters()):
        assert engine.allclose(found.grad, expected.grad, atol=1e-6)
    assert engine.equal(module.norm.running_mean, alone.norm.running_mean)


def test_detached_copies_have_no_graph() -> None:
    (copy,) = replicate(nn.LSTM(2, 3), ["cpu"], detach=True)
    output, _ = copy(engine.ones(1, 1, 2))
    assert not output.requires_grad and replicate(nn.Linear(1, 1), []) == []


def test_numbers_that_differ_are_refused() -> None:
    module, x = nn.Linear(2, 2), engine.ones(1, 2)
    for extra in ([x, x],), ([x], [{}, {}]), ([x], None, ["cpu", "cpu"]):
        with pytest.raises(AssertionError, match="The number of modules 1 is not equal to the number of"):
            parallel_apply([module], *extra)
    assert get_a_var([1, {"a": (None, x)}]) is x and get_a_var({"a": 1}) is None
