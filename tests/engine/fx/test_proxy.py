"""Proxies by hand, and what is paid for them."""

from __future__ import annotations

import copy
import gc
import threading

import pytest

import engine
from engine import fx
from engine.fx import _listening
from engine.nn import functional


def test_by_hand() -> None:
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    assert repr(x) == "Proxy(x)" and repr(x.a) == "Proxy(getattr_1)"
    y = engine.relu(x) + x.size(0)
    assert y.node.format_node() == (
        "%add : [num_users=0] = call_function[target=operator.add](args = (%relu, %size), kwargs = {})"
    )
    y.tag = 3
    assert y.tag == 3 and copy.copy(y).node is y.node
    with pytest.raises(TypeError, match="does not support item assignment"):
        x[0] = 1
    with pytest.raises(NotImplementedError, match="argument of type: <class 'object'>"):
        engine.add(x, object())
    with pytest.raises(RuntimeError, match="Keys for dictionaries used as an argument cannot contain a Node"):
        x.foo({x: 1})
    with pytest.raises(TypeError, match=r"tensor\(\): the data are the Proxy"):
        engine.tensor([x])


def test_data_classes_become_calls() -> None:
    import dataclasses

    @dataclasses.dataclass
    class Box:
        value: object

    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    x.put(Box(x))
    assert [(n.op, n.name) for n in graph.nodes] == [
        ("placeholder", "x"),
        ("call_function", "box"),
        ("call_method", "put"),
    ]


def codes() -> dict[str, object]:
    functions = {"relu": functional.relu, "flatten": engine.flatten, "add": engine.add, "cat": engine.cat}
    functions["__add__"] = engine.Tensor.__add__
    functions["expm1"] = engine.expm1
    return {name: f.__code__ for name, f in functions.items()}


def test_functions_get_their_own_code_back() -> None:
    engine.expm1(engine.ones(1))
    engine.add(engine.ones(1), 1)
    gc.collect()
    before = codes()
    x = fx.Proxy(fx.Graph().placeholder("x"))
    during = codes()
    assert all(during[name] is not before[name] for name in before)
    assert engine.add(engine.ones(2), 1).tolist() == [2.0, 2.0]  # a call without one
    assert isinstance(engine.add(engine.ones(2), x), fx.Proxy)
    del x
    gc.collect()
    assert codes() == before and _listening._listener.count == 0


def test_after_a_failed_trace() -> None:
    with pytest.raises(fx.proxy.TraceError):
        fx.symbolic_trace(lambda x: 1 if x > 0 else 2)
    gc.collect()
    assert _listening._listener.count == 0
    assert engine.nn.Linear(2, 2)(engine.ones(1, 2)).shape == (1, 2)


def test_functions_compiled_while_listening() -> None:
    x = fx.Proxy(fx.Graph().placeholder("x"))
    assert engine.logaddexp2(engine.ones(1), engine.ones(1)).tolist() == [2.0]  # perhaps its first call
    assert isinstance(engine.logaddexp2(engine.ones(1), x), fx.Proxy)
    assert isinstance(functional.hinge_embedding_loss(x, engine.ones(1)), fx.Proxy)
    del x
    gc.collect()
    assert engine.logaddexp2(engine.ones(1), engine.ones(1)).tolist() == [2.0]


def test_other_threads_compute() -> None:
    results: list[float] = []
    x = fx.Proxy(fx.Graph().placeholder("x"))
    thread = threading.Thread(target=lambda: results.append(engine.add(engine.ones(3), 1).sum().item()))
    thread.start()
    thread.join()
    assert results == [6.0] and isinstance(x + 1, fx.Proxy)


def test_operators_of_tensors() -> None:
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    t = engine.ones(2)
    assert [(t + x).node.target, (t > x).node.target, t[x].node.target] == ["add", "gt", "__getitem__"]
    assert (3 - x).node.args == (3, x.node)
