"""Hooks on what is saved for backward, copies that may be written to, hooks on several gradients."""

from __future__ import annotations

from typing import Any

import pytest

import engine
from engine.autograd import graph


def work(x: Any, w: Any) -> Any:
    y = engine.nn.functional.layer_norm((x @ w).exp().sin(), (5,))
    return (engine.cat([y, y * 2]).relu().pow(3)).sum()


def leaves() -> tuple[Any, Any]:
    engine.manual_seed(5)
    return engine.randn(3, 4, requires_grad=True), engine.randn(4, 5, requires_grad=True)


def test_what_is_saved_goes_through_the_hooks() -> None:
    x, w = leaves()
    expected = engine.autograd.grad(work(x, w), [x, w])
    packed, unpacked = [], []

    def pack(tensor: Any) -> Any:
        packed.append(tuple(tensor.shape))
        return tensor.numpy().copy()

    def unpack(array: Any) -> Any:
        unpacked.append(array.shape)
        return engine.from_numpy(array)

    with graph.saved_tensors_hooks(pack, unpack):
        y = work(x, w)
    assert (3, 4) in packed and not unpacked
    found = engine.autograd.grad(y, [x, w])
    assert all(engine.equal(f, e) for f, e in zip(found, expected)) and sorted(unpacked) == sorted(packed)


def test_second_derivatives_pass() -> None:
    x, w = leaves()
    first = engine.autograd.grad(work(x, w), [x, w], create_graph=True)
    expected = engine.autograd.grad(first[0].sum(), [x, w])
    with graph.save_on_cpu():
        y = work(x, w)
    first = engine.autograd.grad(y, [x, w], create_graph=True)
    assert all(engine.allclose(f, e) for f, e in zip(engine.autograd.grad(first[0].sum(), [x, w]), expected))


def test_the_innermost_hooks_count_and_functions_are_as_before_afterwards() -> None:
    x = engine.ones(2, requires_grad=True)
    (x * x).sin()
    code, seen = engine.sin.__code__, []
    with graph.saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t):
        with graph.saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda t: t):
            x.sin()
        x.sin()
    assert seen == ["inner", "outer"] and engine.sin.__code__ is code
    assert type(x.sin().grad_fn).__name__ == "SinBackward0"


def test_copies_may_be_written_to() -> None:
    x = engine.ones(2, requires_grad=True)
    with graph.allow_mutation_on_saved_tensors():
        y = x * 2
        z = y * y
        y.add_(1)
    z.sum().backward()
    assert x.grad.tolist() == [8.0, 8.0]


def test_a_second_backward_and_switched_off_hooks_raise() -> None:
    x = engine.ones(2, requires_grad=True)
    with graph.save_on_cpu():
        y = x.sin().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.sin().sum()
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        y.backward()


def test_a_hook_on_several_gradients() -> None:
    a, b, c = (engine.ones(2, requires_grad=True) for _ in range(3))
    seen: list[Any] = []
    handle = graph.register_multi_grad_hook((a, b, c), lambda g: seen.append([x is not None for x in g]))
    (a * 2 + b).sum().backward()
    (a + b + c).sum().backward()
    handle.remove()
    (a + b).sum().backward()
    assert seen == [[True, True, False], [True, True, True]]
    first: list[Any] = []
    graph.register_multi_grad_hook((a, b), lambda g: first.append(g.shape), mode="any")
    (a + b * 3).sum().backward()
    assert first == [(2,)]
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        graph.register_multi_grad_hook((a,), print, mode="some")


def test_gradients_of_a_batch() -> None:
    x = engine.randn(3, requires_grad=True)
    found = engine.autograd.grad(x.sin(), x, engine.eye(3), is_grads_batched=True)[0]
    assert engine.allclose(found, engine.diag(x.cos()))


def test_a_hook_that_writes_to_what_it_packs_is_refused() -> None:
    x = engine.ones(3, requires_grad=True)
    with (
        graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t),
        pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"),
    ):
        x.exp()


def test_contexts_of_copies_do_not_nest() -> None:
    with (
        graph.allow_mutation_on_saved_tensors(),
        pytest.raises(RuntimeError, match="allow_mutation_on_saved_tensors contexts cannot be nested"),
        graph.allow_mutation_on_saved_tensors(),
    ):
        pass
    with graph.allow_mutation_on_saved_tensors():
        pass


def test_a_result_that_is_computed_again_is_packed_as_a_copy() -> None:
    x = engine.randn(1, 1, 4, 4, requires_grad=True)
    packed: list[int] = []
    with engine.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t.data_ptr()), t)[1], lambda t: t):
        found = engine.nn.functional.max_pool2d(x * 1, 2)
    assert found.data_ptr() not in packed
    with engine.no_grad():
        found.fill_(99.0)
    found.sum().backward()
    assert x.grad.sum() == 4
