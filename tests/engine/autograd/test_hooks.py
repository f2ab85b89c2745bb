"""Hooks on tensors, nodes and modules (rules HK01-HK12)."""

import collections
import copy
import io
import pickle
import warnings
import weakref

import pytest

import engine
from engine import nn

from ._util import check, constant, leaf, no_gc, quiet


def test_hk01_every_backward_until_removed():
    """HK01: a tensor hook sees the gradient at every backward until removed; several run in
    order.
    """
    seen = []
    x = leaf(2)
    y = x * 3
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    for factor in (1, 2):
        (y * factor).sum().backward(retain_graph=True)
    assert seen == [[1, 1], [2, 2]]
    handle.remove()
    y.sum().backward()
    assert len(seen) == 2
    check(x.grad, [12, 12])


def test_hk01_in_order():
    """HK01: a tensor hook sees the gradient at every backward until removed; several run in
    order.
    """
    order = []
    x = leaf(2)
    handles = [x.register_hook(lambda g, i=i: order.append(i)) for i in range(4)]
    handles[1].remove()
    x.register_hook(lambda g: order.append("last"))
    (x * 2).sum().backward()
    assert order == [0, 2, 3, "last"]
    handles[1].remove()
    for handle in handles:
        handle.remove()


def test_hk01_grad_runs_them_too():
    """HK01: a tensor hook sees the gradient at every backward until removed; several run in
    order.
    """
    seen = []
    x = leaf(2)
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    engine.autograd.grad(y.sum(), x)
    assert seen == [[1, 1]]


def test_hk02_return_value_replaces():
    """HK02: a hook's return value replaces the gradient; None leaves it; the next hook sees the
    replacement.
    """
    seen = []
    x = leaf(2)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: None)
    y.sum().backward()
    assert seen == [[10, 10]]
    check(x.grad, [22, 22])


def test_hk02_must_be_a_tensor():
    """HK02: a hook's return value replaces the gradient; None leaves it; the next hook sees the
    replacement.
    """
    x = leaf(2)
    y = x * 2
    y.register_hook(lambda g: 3.0)
    with pytest.raises((TypeError, RuntimeError)):
        y.sum().backward()


def test_hk02_several_outputs():
    """HK02: a hook's return value replaces the gradient; None leaves it; the next hook sees the
    replacement.
    """
    x = leaf(4)
    a, b = x.chunk(2)
    b.register_hook(lambda g: g * 7)
    (a + b).sum().backward()
    check(x.grad, [1, 1, 7, 7])


def test_hk03_leaf_hook_sees_the_sum_once():
    """HK03: a hook on a leaf changes what is accumulated, and is called once with the sum."""
    seen = []
    x = leaf(2)
    x.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    (x * 2 + x * 3 + x.view(2)).sum().backward()
    assert seen == [[6, 6]]
    check(x.grad, [12, 12])
    (x * 1).sum().backward()
    assert seen == [[6, 6], [1, 1]]
    check(x.grad, [14, 14])


def test_hk03_after_the_graph_was_built():
    """HK03: a hook on a leaf changes what is accumulated, and is called once with the sum."""
    x = leaf(2)
    y = (x * 2).sum()
    x.register_hook(lambda g: g * 5)
    y.backward()
    check(x.grad, [10, 10])


def test_hk04_without_grad():
    """HK04: no hook on a tensor that does not require grad."""
    for t in (engine.ones(2), leaf(2).detach(), leaf(2) > 0):
        with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that doesn't require gradient"):
            t.register_hook(lambda g: None)


def test_hk05_exceptions():
    """HK05: an exception in a hook comes out of backward."""

    def wrong(g):
        raise ZeroDivisionError("in the hook")

    x = leaf(2)
    y = x * 2
    handle = y.register_hook(wrong)
    with pytest.raises(ZeroDivisionError, match="in the hook"):
        y.sum().backward(retain_graph=True)
    assert x.grad is None
    handle.remove()
    y.sum().backward()
    check(x.grad, [2, 2])
    z = x * x
    z.grad_fn.register_hook(lambda i, o: wrong(None))
    with pytest.raises(ZeroDivisionError):
        z.sum().backward()


def test_hk06_history():
    """HK06: a hook's gradient has no history unless create_graph."""
    seen = []
    x = leaf(2)
    y = x**3
    y.register_hook(lambda g: seen.append((g.requires_grad, engine.is_grad_enabled())))
    z = (y * y).sum()
    engine.autograd.grad(z, x, retain_graph=True)
    engine.autograd.grad(z, x, create_graph=True)
    assert seen == [(False, False), (True, True)]


def test_hk06_a_hook_can_be_differentiated():
    """HK06: a hook's gradient has no history unless create_graph."""
    x = leaf(2)
    y = x * 2
    weight = leaf(2, seed=3)
    y.register_hook(lambda g: g * weight)
    (g,) = engine.autograd.grad(y.sum(), x, create_graph=True)
    check(g, (2 * weight).tolist())
    check(engine.autograd.grad(g.sum(), weight)[0], [2, 2])


def test_hk07_node_hooks():
    """HK07: grad_fn.register_hook gets (grad_inputs, grad_outputs) tuples and can be removed."""
    seen = []
    x, w = leaf(2, seed=1), leaf(2, seed=2)
    y = x * w

    def hook(grad_inputs, grad_outputs):
        assert isinstance(grad_inputs, tuple) and isinstance(grad_outputs, tuple)
        seen.append(([g.tolist() for g in grad_inputs], [g.tolist() for g in grad_outputs]))

    handle = y.grad_fn.register_hook(hook)
    (y * 2).sum().backward(retain_graph=True)
    assert len(seen) == 1
    (by_x, by_w), (out,) = seen[0]
    assert out == [2, 2]
    assert by_x == (2 * w).tolist() and by_w == (2 * x).tolist()
    handle.remove()
    y.sum().backward()
    assert len(seen) == 1


def test_hk07_replaces_grad_inputs():
    """HK07: grad_fn.register_hook gets (grad_inputs, grad_outputs) tuples and can be removed."""
    x, data = leaf(2), constant(2, seed=3)
    y = x * data
    shapes = []

    def hook(grad_inputs, grad_outputs):
        shapes.append([g is None for g in grad_inputs])
        return tuple(g * 10 if g is not None else None for g in grad_inputs)

    y.grad_fn.register_hook(hook)
    y.sum().backward()
    assert shapes == [[False, True]]
    check(x.grad, (10 * data).tolist())


def test_hk07_on_a_leafs_node():
    """HK07: grad_fn.register_hook gets (grad_inputs, grad_outputs) tuples and can be removed."""
    seen = []
    x = leaf(2)
    y = x * 2
    node = y.grad_fn.next_functions[0][0]
    node.register_hook(lambda gi, go: seen.append((gi, [g.tolist() for g in go])))
    y.sum().backward()
    assert seen == [((), [[2, 2]])]


def test_hk08_forward_hooks():
    """HK08: module forward hooks and pre-hooks: arguments, replacement of the output, removal."""
    calls = []
    module = nn.Linear(3, 2)
    x = engine.ones(4, 3)

    def pre(mod, args):
        assert mod is module and isinstance(args, tuple) and len(args) == 1
        calls.append("pre")

    def post(mod, args, output):
        assert mod is module and args[0] is x and tuple(output.shape) == (4, 2)
        calls.append("post")

    first, second = module.register_forward_pre_hook(pre), module.register_forward_hook(post)
    module(x)
    assert calls == ["pre", "post"]
    first.remove()
    module(x)
    assert calls == ["pre", "post", "post"]
    second.remove()
    module(x)
    assert len(calls) == 3


def test_hk08_replacement():
    """HK08: module forward hooks and pre-hooks: arguments, replacement of the output, removal."""
    module = nn.Sigmoid()
    x = engine.zeros(2)
    a = module.register_forward_hook(lambda mod, args, out: out * 4)
    b = module.register_forward_hook(lambda mod, args, out: out + 1)
    check(module(x), [3, 3])
    a.remove()
    check(module(x), [1.5, 1.5])
    b.remove()
    c = module.register_forward_pre_hook(lambda mod, args: args[0] + 100)
    check(module(x), [1, 1])
    c.remove()
    d = module.register_forward_pre_hook(lambda mod, args: (args[0] - 100,))
    check(module(x), [0, 0])
    d.remove()
    check(module(x), [0.5, 0.5])
    assert isinstance(module._forward_hooks, collections.OrderedDict)
    assert len(module._forward_hooks) == len(module._forward_pre_hooks) == 0


def test_hk09_module_backward_hooks():
    """HK09: module backward hooks get (module, grad_input, grad_output) and may replace
    grad_input.
    """

    class Scale(nn.Module):
        def forward(self, x):
            return x * 3

    seen = []
    module, x = Scale(), leaf(2)

    def hook(mod, grad_input, grad_output):
        assert mod is module and isinstance(grad_input, tuple) and isinstance(grad_output, tuple)
        seen.append((grad_input[0].tolist(), grad_output[0].tolist()))

    handle = module.register_backward_hook(hook)
    with quiet():
        (module(x) * 2).sum().backward()
    assert seen == [([6, 6], [2, 2])]
    handle.remove()
    with quiet():
        module(x).sum().backward()
    assert len(seen) == 1
    check(x.grad, [9, 9])


def test_hk09_may_replace_grad_input():
    """HK09: module backward hooks get (module, grad_input, grad_output) and may replace
    grad_input.
    """
    module, x = nn.Tanh(), leaf(2)
    with quiet():
        module.register_backward_hook(lambda mod, gi, go: (go[0] * 100,))
        module(x * 1).sum().backward()
    check(x.grad, [100, 100])


def test_hk09_full_backward_hooks():
    """HK09: module backward hooks get (module, grad_input, grad_output) and may replace
    grad_input.
    """
    module, x = nn.Linear(3, 2).double(), leaf(4, 3)
    seen = []
    handle = module.register_full_backward_hook(lambda mod, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    module(x).sum().backward()
    handle.remove()
    ((gi, go),) = seen
    assert go == engine.ones(4, 2).tolist()
    check(engine.ones(4, 2, dtype=engine.float64).mm(module.weight), gi)
    check(x.grad, gi)


def test_hk10_handles_are_context_managers():
    """HK10: a hook handle works as a context manager."""
    seen = []
    x = leaf(2)
    with x.register_hook(lambda g: seen.append(1)) as handle:
        assert handle is not None
        (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert seen == [1]
    module = nn.ReLU()
    with module.register_forward_hook(lambda mod, args, out: out + 5):
        check(module(engine.zeros(1)), [5])
    check(module(engine.zeros(1)), [0])


@pytest.mark.parametrize("affine", [False, True])
def test_hk11_batch_norm_in_eval_mode(affine):
    """HK11: hooks on eval-mode BatchNorm output work (builtin node)."""
    norm = nn.BatchNorm1d(3, affine=affine, eps=0.0).double().eval()
    x, seen = leaf(4, 3), []
    y = norm(x)
    y.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    node = []
    y.grad_fn.register_hook(lambda gi, go: node.append(go[0].tolist()))
    y.sum().backward()
    assert seen == [engine.ones(4, 3).tolist()]
    assert node == [(engine.ones(4, 3) * 2).tolist()]
    check(x.grad, (engine.ones(4, 3) * 2).tolist())


def test_hk12_a_hook_does_not_keep_its_tensor():
    """HK12: a tensor hook does not keep its tensor alive."""
    with no_gc():
        x = leaf(2)
        y = x * 2
        y.register_hook(lambda g: g * 3)
        z = (y + 1).sum()
        dead = weakref.ref(y)
        del y
        assert dead() is None
        z.backward()
        check(x.grad, [6, 6])


def test_pickling_warns_of_hooks():
    """A hook on a tensor is not saved: a warning says so, unless the hook is marked; Parameters do not warn."""
    from engine.utils.hooks import unserializable_hook, warn_if_has_hooks

    x = engine.ones(2, requires_grad=True)
    assert x._backward_hooks is None
    handle = x.register_hook(lambda g: g)
    computed = x * 2
    computed.register_hook(lambda g: g)
    assert len(x._backward_hooks) == len(computed._backward_hooks) == 1
    for call in (
        lambda: pickle.dumps(x),
        lambda: engine.save(x, io.BytesIO()),
        lambda: pickle.dumps(computed),
        lambda: warn_if_has_hooks(x),
    ):
        with pytest.warns(UserWarning, match="backward hook .* on tensor will not be serialized"):
            call()
    handle.remove()
    x.register_hook(unserializable_hook(lambda g: g))
    module = engine.nn.Linear(2, 2)
    module.weight.register_hook(lambda g: g)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.dumps(x)
        copy.deepcopy(x)
        pickle.dumps(module.weight)
        engine.save(module.state_dict(), io.BytesIO())
    with pytest.warns(UserWarning, match="on tensor will not be serialized"):
        warn_if_has_hooks(module.weight)
