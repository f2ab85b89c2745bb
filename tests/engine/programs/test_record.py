"""Recorded programs: what a function did, as a graph of registry ops that runs."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.dispatch import OPS
from engine.jit import TracerWarning
from engine.nn import functional as F
from engine.programs.record import RecordError, creators, leaf_name, record
from engine.tensor import Tensor, wrap
from tests.engine.samples import Case, cases, tensors_of


def tensor(*shape: int) -> Tensor:
    return wrap(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


def targets(graph_module: Any) -> list[Any]:
    return [n.target for n in graph_module.graph.nodes if n.op == "call_function"]


def same(function: Any, *args: Tensor, **options: Any) -> Any:
    """The recording, which gives what the function gives."""
    made = record(function, tuple(wrap(np.array(a.detach()._array)) for a in args), **options)
    copies = [wrap(np.array(a.detach()._array)) for a in args]
    with engine.no_grad():
        assert engine.allclose(made(*copies), function(*args))
    return made


def test_a_module_becomes_ops_on_parameters_by_name() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
    made = same(model, tensor(2, 1, 4, 4), names=["picture"])
    names = [getattr(t, "op", None) and t.op.name for t in targets(made)]
    assert names[:3] == ["convolution", "batch_norm_eval", "relu"] and names[-1] == "linear"
    assert [n.target for n in made.graph.nodes if n.op == "placeholder"] == ["picture"]
    found = [n.target for n in made.graph.nodes if n.op == "get_attr"]
    assert {"0.weight", "1.running_mean", "4.bias"} <= set(found)
    assert made.get_parameter("4.bias") is model[4].bias and not made.training


def test_nodes_tell_shapes_and_dtypes() -> None:
    made = record(lambda x: (x.max(1), x.size(0) * 2 + x), (tensor(2, 3),))
    by = {n.name: n.meta for n in made.graph.nodes if n.op == "call_function"}
    metas = by[next(n for n in by if n.startswith("max"))]["tensor_meta"]
    assert [tuple(m.shape) for m in metas] == [(2,), (2,)] and metas[1].dtype is engine.int64
    assert by["mul"]["value"] == 4


def test_leaves_stay_whole_and_others_dissolve() -> None:
    def function(x: Tensor) -> Tensor:
        return engine.matmul(F.layer_norm(x, (3,)), x.t())

    whole = same(function, tensor(2, 3), leaves=["layer_norm", "matmul"])
    assert [leaf_name(t) or t.op.name for t in targets(whole)] == ["layer_norm", "t", "matmul"]
    assert not any(map(leaf_name, targets(same(function, tensor(2, 3)))))
    assert F.layer_norm.__code__.co_name == "layer_norm"  # itself again


def test_sizes_are_programs() -> None:
    def function(x: Tensor) -> Tensor:
        n, m = x.shape
        return x.reshape(n * m // 2, -1) + engine.arange(x.numel() // (n * m // 2)) + len(x) * 0

    made = same(function, tensor(4, 6))
    for shape in ((2, 6), (6, 3)):
        x = tensor(*shape)
        assert engine.allclose(made(x), function(x))
    assert operator.floordiv in targets(made)


def test_a_size_is_an_int_for_python() -> None:
    seen: list[Any] = []

    def function(x: Tensor) -> Tensor:
        n = x.size(0)
        seen.extend([isinstance(n, int), n == 4, n / 2, -n, n % 3, range(n)[-1], f"{n}"])
        return x.view(n, -1) if n > 2 else x

    made = record(function, (tensor(4, 6),))
    assert seen == [True, True, 2.0, -4, 1, 3, "4"]
    assert type(made(tensor(4, 6)).shape[0]) is int and type(tensor(2).shape[0]) is int


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone().add_(1).mul_(2),
        lambda x: _written(engine.zeros(2, 3), x),
        lambda x: _written(engine.zeros_like(x), x),
        lambda x: _written(x.new_zeros(x.shape), x),
        lambda x: F.relu(x + 1, inplace=True),
        lambda x: F.relu6(x + 1, inplace=True),
        lambda x: (x + 1).fill_(3.0).zero_().copy_(x),
        lambda x: x.permute(1, 0).detach() + x.t().data + x.detach().t(),
        lambda x: F.dropout(x, training=False).contiguous().float(),
        lambda x: engine.ones(3).cumsum(0) + x,
    ],
)
def test_writes_views_and_aliases(function: Any) -> None:
    same(function, tensor(2, 3))


def _written(into: Tensor, x: Tensor) -> Tensor:
    into[:, 1:] = x[:, :-1]
    return into + into[0]


def test_two_aliases_of_one_value() -> None:
    def function(x: Tensor) -> Tensor:
        x = x * 2
        x.data.shape  # noqa: B018
        return x.detach().clone() + x.data

    made = record(function, (tensor(3),))
    assert made(engine.ones(3)).tolist() == [4, 4, 4]


def test_what_depends_on_no_input_is_computed_once() -> None:
    weight = engine.ones(3, 3)
    made = record(lambda x: x @ (weight * 2).t().exp(), (tensor(2, 3),))
    assert len(targets(made)) == 1 and made.constant_0.shape == (3, 3)


def test_several_results_and_nested_arguments() -> None:
    lstm = nn.LSTM(3, 2).eval()

    def function(pair: Any) -> Any:
        out, (h, c) = lstm(pair[0])
        return {"a": out, "b": [h, c], "n": 3, "parts": pair[1].chunk(2)}

    made = record(function, ((tensor(4, 1, 3), tensor(4)),), leaves=["lstm", "chunk"])
    found = made(tensor(4, 1, 3), tensor(4))
    assert found["n"] == 3 and found["b"][0].shape == (1, 1, 2) and len(found["parts"]) == 2


def test_values_read_in_python_warn_or_are_refused() -> None:
    def function(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x

    with pytest.warns(TracerWarning, match="__bool__"):
        record(function, (engine.ones(2),))
    with pytest.raises(RecordError, match=r"read in Python \(Tensor.__bool__\)"):
        record(function, (engine.ones(2),), strict=True)


def test_what_cannot_be_recorded_is_named() -> None:
    buffer = engine.zeros(2)
    with pytest.raises(RecordError, match="draws random numbers"):
        record(lambda x: x + engine.randn(2), (tensor(2),))
    with pytest.raises(RecordError, match="writes to parameters"):
        record(lambda x: x + buffer.add_(1), (tensor(2),))
    with pytest.raises(ZeroDivisionError):
        record(lambda x: 1 / 0, (tensor(2),))
    assert Tensor.shape.fget.__qualname__.startswith("Tensor")  # as before, also after an error


def test_creators_are_functions_of_the_table() -> None:
    assert all(name in dir(engine) or hasattr(Tensor, name) for name in creators())
    assert "relu" in OPS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [c for c in cases() if c.op is None and c.deterministic], ids=str)
def test_no_function_fixes_the_values_of_its_input(case: Case) -> None:
    """What computes with arrays and is no op would leave nothing but a constant."""
    args, kwargs = case.seeded()
    if not tensors_of([args, kwargs]):
        return
    nodes = record(case.function, tuple(args), dict(kwargs)).graph.nodes
    reached: set[Any] = set()
    for node in nodes:
        if node.op == "placeholder" or reached & set(node.all_input_nodes):
            reached.add(node)
    assert all(node in reached for last in nodes if last.op == "output" for node in last.all_input_nodes)


def test_what_is_made_and_written_to_is_copied_before_it_is_read() -> None:
    def function(x: Tensor) -> Tensor:
        first, second = wrap(np.zeros(3, np.float32)), wrap(np.ones(3, np.float32))
        first.add_(x)
        second.mul_(x)
        return first + second + engine.ones(3)

    made = same(function, tensor(3))
    made.graph.lint()
    assert [node.op for node in made.graph.nodes][:4] == ["placeholder", "get_attr", "get_attr", "get_attr"]
    x = tensor(3)
    assert engine.equal(made(x), made(x))
