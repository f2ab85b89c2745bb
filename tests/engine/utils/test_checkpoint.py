"""engine.utils.checkpoint without re-entry: what the rule tests (autograd/test_checkpoint.py) leave open."""

import weakref

import pytest

import engine
from engine.utils.checkpoint import CheckpointError, checkpoint


def leaf(values):
    return engine.tensor(values, dtype=engine.float64, requires_grad=True)


def test_grad_and_double_backward():
    x, w = leaf([0.3, 0.7]), leaf([2.0, 3.0])

    def f(t):
        return (t.exp() * w).tanh() * t

    plain = engine.autograd.grad(f(x).sum(), (x, w), create_graph=True)
    twice = engine.autograd.grad((plain[0] ** 2).sum() + plain[1].sum(), (x, w))
    out = checkpoint(f, x, use_reentrant=False)
    assert type(out.grad_fn).__name__ == "CheckpointNode"
    again = engine.autograd.grad(out.sum(), (x, w), create_graph=True)
    again_twice = engine.autograd.grad((again[0] ** 2).sum() + again[1].sum(), (x, w))
    for a, b in zip(plain + twice, again + again_twice):
        assert engine.allclose(a, b)
    assert x.grad is None and w.grad is None


def test_hooks_of_inputs_run_once_and_paths_do_not_mix():
    x = leaf([0.5])
    y = x * 3
    calls = []
    x.register_hook(lambda g: calls.append("x"))
    y.register_hook(lambda g: calls.append("y"))
    checkpoint(lambda a, b: a * b, x, y, use_reentrant=False).backward(leaf([1.0]).detach())
    assert sorted(calls) == ["x", "y"]
    assert x.grad.tolist() == [3.0]


def test_keeps_nothing_between():
    seen = []

    def f(t):
        between = t.exp()
        seen.append(weakref.ref(between))
        return between.sin().sum()

    out = checkpoint(f, leaf([1.0]), use_reentrant=False)
    assert seen[0]() is None
    out.backward()


def test_nested_containers():
    x = leaf([2.0])
    out = checkpoint(lambda d: {"a": [d["x"] ** 2], "b": 4}, {"x": x}, use_reentrant=False)
    assert out["b"] == 4
    out["a"][0].backward()
    assert x.grad.tolist() == [4.0]


def test_second_backward_is_refused():
    x = leaf([2.0])
    out = checkpoint(lambda t: t**2, x, use_reentrant=False)
    out.backward(retain_graph=True)
    out.backward()
    assert x.grad.tolist() == [8.0]
    with pytest.raises(RuntimeError, match="a second time"):
        out.backward()


def test_other_shape_at_the_second_run():
    sizes = [1, 2]
    x = leaf([2.0])
    out = checkpoint(lambda t: t.expand(sizes.pop(0)) * 2, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="different metadata"):
        out.sum().backward()


def test_contexts():
    log = []

    class Note:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append(self.name)

        def __exit__(self, *exc):
            pass

    x = leaf([2.0])
    out = checkpoint(lambda t: t * 2, x, use_reentrant=False, context_fn=lambda: (Note("first"), Note("again")))
    assert log == ["first"]
    out.backward()
    assert log == ["first", "again"]
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(lambda t: t, x, use_reentrant=True, context_fn=lambda: None)


def test_reentrant_refuses_grad_and_keywords():
    x = leaf([2.0])
    out = checkpoint(lambda t: t * 2, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)"):
        engine.autograd.grad(out, x)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: power"):
        checkpoint(lambda t: t, x, use_reentrant=True, power=2)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(lambda t: t, x)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(lambda t: t * 2, engine.ones(1), use_reentrant=True)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # the inner one's, as in torch
def test_nested_both_ways():
    for outer in (True, False):
        for inner in (True, False):
            x = leaf([0.4])
            out = checkpoint(
                lambda t, inner=inner: checkpoint(engine.sin, t.exp(), use_reentrant=inner) * t,
                x,
                use_reentrant=outer,
            )
            out.backward()
            y = leaf([0.4])
            (y.exp().sin() * y).backward()
            assert engine.allclose(x.grad, y.grad)
