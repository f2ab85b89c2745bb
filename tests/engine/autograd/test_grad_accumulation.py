""".grad: who has one, how it adds up, whose memory it is (rules GA01-GA16)."""

import weakref

import numpy as np
import pytest

import engine
from engine.autograd import Function, graph

from ._util import check, constant, grad_of, leaf, no_gc, quiet


def test_ga01_accumulates():
    """GA01: .grad is None at first, is set by backward, and is added to by the next one."""
    x = engine.tensor([1.0, 2.0], requires_grad=True)
    assert x.grad is None
    (x * 3).sum().backward()
    check(x.grad, [3, 3])
    (x * x).sum().backward()
    check(x.grad, [5, 7])
    x.grad = None
    (x * 2).sum().backward()
    check(x.grad, [2, 2])
    x.grad.zero_()
    (x * 2).sum().backward()
    check(x.grad, [2, 2])


def test_ga02_in_place_without_create_graph():
    """GA02: accumulation is in place without create_graph, out of place with it."""
    x = leaf(2)
    (x * x).sum().backward()
    first, pointer, before = x.grad, x.grad.data_ptr(), x.grad.clone()
    (x * x).sum().backward()
    assert x.grad is first and x.grad.data_ptr() == pointer
    check(first, (2 * before).tolist())


def test_ga02_sparse_gradients_are_added_in_place():
    """GA02: also where a sparse gradient is added to a sparse or to a dense `.grad`."""
    table = engine.nn.Embedding(10, 3, sparse=True)
    rows = engine.tensor([7, 1, 3])
    table(rows).sum().backward()
    first = table.weight.grad
    table(rows).sum().backward()
    assert table.weight.grad is first and first.is_sparse
    table(rows + 1).sum().backward()
    assert table.weight.grad is first and first.to_dense().sum() == 27
    table.weight.grad = mine = engine.ones(10, 3)
    table(rows).sum().backward()
    assert table.weight.grad is mine and mine.sum() == 39
    with quiet():
        table(rows).sum().backward(create_graph=True)
    assert table.weight.grad is not mine and mine.sum() == 39


def test_ga02_out_of_place_with_create_graph():
    """GA02: accumulation is in place without create_graph, out of place with it."""
    x = leaf(2)
    with quiet():
        (x * x).sum().backward(create_graph=True)
        first, before = x.grad, x.grad.tolist()
        (x * x).sum().backward(create_graph=True)
    assert x.grad is not first and x.grad.data_ptr() != first.data_ptr()
    check(first, before)
    check(x.grad, [2 * v for v in before])
    x.grad = None


def test_ga02_a_gradient_given_by_the_user_is_added_to_in_place():
    """GA02: accumulation is in place without create_graph, out of place with it."""
    x = engine.ones(2, requires_grad=True)
    mine = engine.full((2,), 10.0)
    x.grad = mine
    (x * 2).sum().backward()
    assert x.grad is mine
    check(mine, [12, 12])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (2, 0, 3)])
def test_ga03_shape_dtype_device(dtype, shape):
    """GA03: .grad has the shape, dtype and device of its tensor."""
    x = engine.ones(shape, dtype=getattr(engine, dtype), requires_grad=True)
    for f in (lambda: x.sum(), lambda: (x.float() * 2).sum(), lambda: (x.double() * x).sum()):
        x.grad = None
        f().backward()
        assert x.grad.shape == x.shape
        assert x.grad.dtype == x.dtype
        assert x.grad.device == x.device


def test_ga04_history_of_grad():
    """GA04: .grad does not require grad; with create_graph it does and has a grad_fn."""
    x = leaf(3)
    (x**3).sum().backward()
    assert not x.grad.requires_grad and x.grad.grad_fn is None and x.grad.is_leaf
    x.grad = None
    with quiet():
        (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad and x.grad.grad_fn is not None
    g, x.grad = x.grad, None
    g.sum().backward()
    check(x.grad, (6 * x).tolist())


def test_ga05_non_leaf_keeps_none():
    """GA05: non-leaf tensors keep no .grad unless retain_grad() was called."""
    x = leaf(2)
    y = x * 2
    z = y * y
    kept = z + 1
    kept.retain_grad()
    kept.sum().backward()
    assert grad_of(y) is None and grad_of(z) is None
    check(kept.grad, [1, 1])
    check(x.grad, (8 * x).tolist())


def test_ga06_retain_grad():
    """GA06: retain_grad() may be called twice, accumulates like a leaf, is a no-op on leaves,
    errors without grad.
    """
    x = leaf(2)
    y = x * 2
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    (y * 3).sum().backward(retain_graph=True)
    check(y.grad, [3, 3])
    (y * 3).sum().backward()
    check(y.grad, [6, 6])
    check(x.grad, [12, 12])
    x.retain_grad()
    assert not x.retains_grad
    for t in (engine.ones(2), x.detach()):
        with pytest.raises(RuntimeError, match="can't retain_grad on Tensor that has requires"):
            t.retain_grad()


def test_ga06_retain_grad_and_hooks():
    """GA06: retain_grad() may be called twice, accumulates like a leaf, is a no-op on leaves,
    errors without grad.
    """
    x = leaf(2)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    check(y.grad, [100, 100])
    check(x.grad, [200, 200])


def test_ga07_no_cycle():
    """GA07: retain_grad does not keep the tensor alive in a cycle."""
    with no_gc():
        x = leaf(2)
        y = x * 2
        y.retain_grad()
        z = y.exp().sum()
        z.backward()
        assert y.grad is not None
        dead = weakref.ref(y)
        del y, z
        assert dead() is None


def test_ga07_unused_before_backward():
    """GA07: retain_grad does not keep the tensor alive in a cycle."""
    with no_gc():
        x = leaf(2)
        y = x + 2
        y.retain_grad()
        z = (y + 1).sum()
        dead = weakref.ref(y)
        del y
        assert dead() is None
        z.backward()
        check(x.grad, [1, 1])


def test_ga08_assignment():
    """GA08: .grad can be assigned, cleared with None and deleted; wrong shape, dtype, type or
    itself is refused.
    """
    x = engine.ones(2, 3, requires_grad=True)
    g = engine.full((2, 3), 4.0)
    x.grad = g
    assert x.grad is g
    x.grad = None
    assert x.grad is None
    x.grad = g
    del x.grad
    assert x.grad is None
    with pytest.raises(RuntimeError, match="size"):
        x.grad = engine.ones(3, 2)
    with pytest.raises(RuntimeError, match="type"):
        x.grad = engine.ones(2, 3, dtype=engine.float64)
    with pytest.raises(TypeError):
        x.grad = 1.0
    with pytest.raises(RuntimeError, match="own grad"):
        x.grad = x
    assert x.grad is None
    y = engine.ones(2)
    y.grad = engine.ones(2)
    check(y.grad, [1, 1])


@pytest.mark.parametrize("index", range(5))
def test_ga09_two_leaves_never_share_a_buffer(index):
    """GA09: two leaves never share one gradient buffer."""
    a, b = leaf(3, seed=1), leaf(3, seed=2)
    f = [
        lambda: a + b,
        lambda: a - (-b),
        lambda: engine.stack([a, b]),
        lambda: a.view(3) + b.clone(),
        lambda: (a + b) + (b + a),
    ][index]
    f().sum().backward()
    assert a.grad.data_ptr() != b.grad.data_ptr()
    before = b.grad.tolist()
    a.grad.mul_(100)
    check(b.grad, before)


def test_ga09_a_function_returning_one_gradient_twice():
    """GA09: two leaves never share one gradient buffer."""

    class Add(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

    a, b = leaf(3, seed=1), leaf(3, seed=2)
    Add.apply(a, b).backward(engine.ones(3, dtype=engine.float64))
    a.grad.zero_()
    check(b.grad, [1, 1, 1])


@pytest.mark.parametrize("index", range(4))
def test_ga10_the_callers_gradient_is_not_aliased(index):
    """GA10: the caller's gradient tensor is not aliased by .grad."""
    x = leaf(3)
    f = [lambda: x.view(3), lambda: x + 1, lambda: x.clone(), lambda: x][index]
    g = constant(3, seed=9)
    values = g.tolist()
    f().backward(g)
    f().backward(g)
    check(g, values)
    check(x.grad, [2 * v for v in values])
    assert x.grad.data_ptr() != g.data_ptr()
    g.zero_()
    check(x.grad, [2 * v for v in values])


def test_ga11_expanded_gradients_become_buffers():
    """GA11: a gradient that is an expanded view is made a real buffer in .grad."""
    x = leaf(2, 3)
    x.sum().backward()
    assert x.grad.stride() == (3, 1)
    x.grad[0, 0] = 7
    check(x.grad, [[7, 1, 1], [1, 1, 1]])
    y = leaf(4)
    y.backward(engine.ones(1, dtype=engine.float64).expand(4))
    assert y.grad.stride() == (1,)
    y.grad[1] = 5
    check(y.grad, [1, 5, 1, 1])
    z = leaf(2, 2)
    z.mean(0).sum().backward()
    z.grad += 1
    check(z.grad, [[1.5, 1.5], [1.5, 1.5]])


@pytest.mark.parametrize("index", range(5))
def test_ga12_layout(index):
    """GA12: a contiguous leaf gets a contiguous gradient (also through a transpose)."""
    x = leaf(2, 3, 4)
    f = [
        lambda: x.transpose(0, 2) * constant(4, 3, 2),
        lambda: x.permute(1, 2, 0).exp(),
        lambda: x.view(6, 4).t() * constant(4, 6),
        lambda: x[:, :, 1:3],
        lambda: x.expand(5, 2, 3, 4).transpose(0, 3).sin(),
    ][index]
    f().sum().backward()
    assert x.grad.is_contiguous()
    assert x.grad.stride() == x.stride()
    y = leaf(3, 5)
    y.t().backward(constant(5, 3))
    assert y.grad.is_contiguous()


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4), (3, 1), (3, 4), (1, 1, 1), (2, 1, 4), (2, 3, 1)])
def test_ga13_broadcast_inputs(shape):
    """GA13: the gradient of a broadcast input is summed to its shape."""
    x, y = leaf(*shape, seed=1), leaf(2, 3, 4, seed=2)
    weight = constant(2, 3, 4, seed=3)
    for f in (
        lambda: x + y,
        lambda: y + x,
        lambda: x * y,
        lambda: y - x,
        lambda: engine.max(x, y),
        lambda: x / (y + 5),
        lambda: x.expand(2, 3, 4) * y,
        lambda: engine.where(y > 0, x, y),
    ):
        x.grad = y.grad = None
        (f() * weight).sum().backward()
        assert x.grad.shape == x.shape and y.grad.shape == y.shape
    x.grad = None
    (x + y).backward(weight)
    expected = weight.clone()
    while expected.dim() > len(shape):
        expected = expected.sum(0)
    for dim, size in enumerate(shape):
        if size == 1:
            expected = expected.sum(dim, keepdim=True)
    check(x.grad, expected.tolist())


@pytest.mark.parametrize("shape", [(3, 300, 1000), (1, 256, 40, 40), (2, 5, 60_000)])
def test_ga12_large_gradients_that_lie_otherwise(shape):
    """GA12: gradients of views, transposed and expanded, become contiguous buffers, in C order."""
    x = engine.randn(*shape, requires_grad=True)
    weight = engine.randn(*reversed(shape))
    (x.permute(*reversed(range(x.dim()))) * 1).backward(weight)
    assert x.grad.is_contiguous() and engine.equal(x.grad, weight.permute(*reversed(range(x.dim()))))
    x.grad = None
    some = engine.randn(*shape[:-1])
    x.sum(-1).backward(some)
    assert x.grad.is_contiguous() and engine.equal(x.grad, some[..., None].expand(shape))


def test_ga14_many_uses_add_up():
    """GA14: gradients of many uses of one tensor add up."""
    x = leaf(3)
    y = x + x
    y = y + x * 2
    y = y + sum(x for _ in range(10))
    y = y + engine.cat([x, x]).view(2, 3).sum(0)
    y.sum().backward()
    check(x.grad, [16, 16, 16])
    x.grad = None
    (x * x * x).sum().backward()
    check(x.grad, (3 * x * x).tolist())
    x.grad = None
    engine.stack([x] * 4).sum().backward()
    check(x.grad, [4, 4, 4])


def test_ga15_waiting_buffers_are_not_aliased():
    """GA15: buffers of gradients waiting in the engine are not aliased (a gradient handed to two
    nodes stays right).
    """

    class Fan(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

    a, b = leaf(3, seed=1), leaf(3, seed=2)
    p, q = a * 2, b * 3
    out = Fan.apply(p, q) + p * 10
    out.sum().backward()
    check(a.grad, [22, 22, 22])
    check(b.grad, [3, 3, 3])


def test_ga15_a_hook_may_keep_what_it_saw():
    """GA15: buffers of gradients waiting in the engine are not aliased (a gradient handed to two
    nodes stays right).
    """
    seen = []
    x = leaf(2)
    y = x * 1
    y.register_hook(lambda g: seen.append(g))
    z = y + 0
    z.register_hook(lambda g: seen.append(g))
    (z + y * 5).backward(engine.ones(2, dtype=engine.float64))
    check(seen[0], [1, 1])
    check(seen[1], [6, 6])
    check(x.grad, [6, 6])


def test_ga15_the_same_gradient_for_several_roots():
    """GA15: buffers of gradients waiting in the engine are not aliased (a gradient handed to two
    nodes stays right).
    """
    a = leaf(2)
    g = engine.ones(2, dtype=engine.float64)
    p, q = a * 2, a * 3
    engine.autograd.backward([p, q, p + q], [g, g, g])
    check(a.grad, [10, 10])
    check(g, [1, 1])


def test_ga16_backward_under_no_grad():
    """GA16: backward may be called under no_grad for a graph built outside."""
    x = leaf(2)
    y = (x * x).sum()
    with engine.no_grad():
        y.backward()
    check(x.grad, (2 * x).tolist())
    z = (x * x).sum()
    with engine.no_grad():
        (g,) = engine.autograd.grad(z, x)
    check(g, (2 * x).tolist())


def test_a_gradient_under_another_shape_is_taken_over_unless_somebody_sees_its_memory() -> None:
    x = engine.randn(4, 6, requires_grad=True)
    shuffled = lambda: x.view(2, 2, 6).transpose(0, 1).reshape(4, 6)
    seen = []
    taken = graph._shows_all
    for held in (False, True):
        y = shuffled()
        given = engine.arange(24.0).reshape(4, 6)
        if held:
            handle = y.register_hook(lambda g: seen.append(g) or None)
        y.backward(given)
        want = given.view(2, 2, 6).transpose(0, 1).reshape(4, 6)
        assert engine.equal(x.grad, want)
        x.grad.mul_(2)
        assert engine.equal(given, engine.arange(24.0).reshape(4, 6)), "what the user gave is left as it is"
        x.grad = None
    handle.remove()
    y = x.view(24)
    given = engine.arange(24.0)
    y.backward(given)  # the gradient of x shows the memory of `given`
    x.grad.zero_()
    assert engine.equal(given, engine.arange(24.0))
    assert engine.equal(seen[0], engine.arange(24.0).reshape(4, 6))

    array = np.arange(6.0)
    view = array.reshape(2, 3)
    assert not taken(view), "a name holds the memory"
    owner = [np.arange(6.0).reshape(2, 3)]
    assert taken(owner[0])
    assert not taken(owner[0][:1]), "a part"
