"""no_grad, enable_grad, set_grad_enabled (rules NG01-NG11)."""

import threading

import pytest

import engine
from engine.autograd import Function

from ._util import check, leaf


def test_ng01_no_grad():
    """NG01: no_grad as a context: results do not require grad, have no grad_fn and are leaves."""
    x = leaf(2, 2)
    with engine.no_grad():
        assert not engine.is_grad_enabled()
        results = [x * 2, x.sum(), x.exp(), x.clone(), engine.cat([x, x]), x.max(0)[0], x[[0]]]
        views = [x.t(), x[0], x.view(4), x.unsqueeze(0)]
    assert engine.is_grad_enabled()
    for y in results:
        assert not y.requires_grad and y.grad_fn is None and y.is_leaf
    for y in views:  # a view of a leaf may report its base's requires_grad, but has no history
        assert y.grad_fn is None and y.is_leaf and y.data_ptr() == x.data_ptr()
    assert x.requires_grad
    assert (results[0] + x).requires_grad
    assert engine.autograd.no_grad is engine.no_grad


def test_ng02_decorators():
    """NG02: no_grad and enable_grad as decorators, re-usable and keeping the function's name."""
    x = leaf(2)

    @engine.no_grad()
    def plain(t):
        """Twice."""
        return t * 2

    @engine.enable_grad()
    def tracked(t):
        return t * 2

    for _ in range(3):
        assert not plain(x).requires_grad
        assert engine.is_grad_enabled()
        with engine.no_grad():
            assert tracked(x).requires_grad
            assert not engine.is_grad_enabled()
    assert plain.__name__ == "plain" and plain.__doc__ == "Twice."
    assert tracked.__name__ == "tracked"


def test_ng02_methods_recursion_and_generators():
    """NG02: no_grad and enable_grad as decorators, re-usable and keeping the function's name."""

    class Thing:
        @engine.no_grad()
        def method(self, t, *, depth):
            y = t * 2
            return y if depth == 0 else self.method(y, depth=depth - 1)

        @engine.set_grad_enabled(False)
        def other(self, t):
            return t * 2

    x = leaf(2)
    assert engine.is_grad_enabled()
    assert not Thing().method(x, depth=3).requires_grad
    assert not Thing().other(x).requires_grad
    assert engine.is_grad_enabled()

    @engine.no_grad()
    def numbers():
        for i in range(2):
            assert not engine.is_grad_enabled()
            yield x * i

    for y in numbers():
        assert engine.is_grad_enabled()
        assert not y.requires_grad


def test_ng03_nesting():
    """NG03: nesting: enable_grad inside no_grad and back."""
    x = leaf(2)
    modes = []

    def note():
        modes.append((engine.is_grad_enabled(), (x * 2).requires_grad))

    with engine.no_grad():
        note()
        with engine.enable_grad():
            note()
            with engine.no_grad():
                note()
            note()
        note()
    note()
    assert modes == [(m, m) for m in (False, True, False, True, False, True)]


def test_ng03_one_object_again():
    """NG03: nesting: enable_grad inside no_grad and back."""
    guard = engine.no_grad()
    for _ in range(2):
        with guard:
            assert not engine.is_grad_enabled()
        assert engine.is_grad_enabled()


def test_ng04_set_grad_enabled():
    """NG04: set_grad_enabled as a context and as a function."""
    x = leaf(2)
    for mode in (False, True):
        with engine.set_grad_enabled(mode):
            assert (x * 2).requires_grad is mode
        assert engine.is_grad_enabled()
    try:
        engine.set_grad_enabled(False)
        assert not (x * 2).requires_grad
        engine.set_grad_enabled(True)
        assert (x * 2).requires_grad
        with engine.no_grad():
            engine.set_grad_enabled(True)
            assert (x * 2).requires_grad
        assert (x * 2).requires_grad
    finally:
        engine.set_grad_enabled(True)


def test_ng05_restored_when_the_block_raises():
    """NG05: the mode is restored when the block raises."""
    for guard in (engine.no_grad, lambda: engine.set_grad_enabled(False)):
        with pytest.raises(KeyError), guard():
            raise KeyError
        assert engine.is_grad_enabled()
    with engine.no_grad():
        with pytest.raises(KeyError), engine.enable_grad():
            raise KeyError
        assert not engine.is_grad_enabled()

    @engine.no_grad()
    def fails():
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert engine.is_grad_enabled()


def test_ng06_a_new_thread_starts_enabled():
    """NG06: the mode belongs to the thread: a new thread starts enabled."""
    seen = []
    x = leaf(2)

    def run():
        seen.append((engine.is_grad_enabled(), (x * 2).requires_grad))
        engine.set_grad_enabled(False)

    with engine.no_grad():
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert not engine.is_grad_enabled()
    assert seen == [(True, True)]
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert engine.is_grad_enabled()
    assert len(seen) == 2


def test_ng07_inside_functions():
    """NG07: inside Function.forward grad mode is off; inside backward it is on only under
    create_graph.
    """
    modes = []

    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            modes.append(("forward", engine.is_grad_enabled()))
            assert not (x * 2).requires_grad
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            modes.append(("backward", engine.is_grad_enabled()))
            return grad * 2

    x = leaf(2)
    y = Double.apply(x).sum()
    y.backward(retain_graph=True)
    engine.autograd.grad(y, x, create_graph=True)
    with engine.no_grad():
        engine.autograd.grad(y, x, retain_graph=True)
    assert modes == [
        ("forward", False),
        ("backward", False),
        ("backward", True),
        ("backward", False),
    ]
    assert engine.is_grad_enabled()


def test_ng07_create_graph_under_no_grad():
    """NG07: inside Function.forward grad mode is off; inside backward it is on only under
    create_graph.
    """
    x = leaf(2)
    y = (x**3).sum()
    with engine.no_grad():
        (g,) = engine.autograd.grad(y, x, create_graph=True)
        assert not engine.is_grad_enabled()
    assert g.requires_grad


def test_ng08_versions_under_no_grad():
    """NG08: in-place under no_grad still bumps the version: a saved tensor is then refused."""
    x = leaf(2)
    y = x * 2
    z = y.exp() + y * y
    with engine.no_grad():
        y.add_(1)
    assert y._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_ng09_factories():
    """NG09: factories under no_grad keep requires_grad=True."""
    with engine.no_grad():
        made = [
            engine.zeros(2, requires_grad=True),
            engine.tensor([1.0], requires_grad=True),
            engine.randn(2, requires_grad=True),
            engine.ones(2).requires_grad_(),
            engine.nn.Parameter(engine.ones(2)),
            engine.zeros_like(engine.ones(2), requires_grad=True),
        ]
    assert all(t.requires_grad and t.is_leaf for t in made)
    (made[0] * 2).sum().backward()
    check(made[0].grad, [2, 2])


def test_ng10_a_function_under_no_grad():
    """NG10: a Function under no_grad records nothing."""

    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise AssertionError

    x = leaf(2)
    with engine.no_grad():
        y = Double.apply(x)
    assert not y.requires_grad and y.grad_fn is None and y.is_leaf
    (y + x).sum().backward()
    check(x.grad, [1, 1])


def test_ng11_assignment_into_a_leaf():
    """NG11: no_grad assignment into a leaf keeps it a leaf that requires grad."""
    x = leaf(3)
    with engine.no_grad():
        x[0] = 5
        x[1:] = engine.tensor([6.0, 7.0])
        x += 1
        x.copy_(x * 2)
    assert x.is_leaf and x.requires_grad and x.grad_fn is None
    check(x, [12, 14, 16])
    (x * x).sum().backward()
    check(x.grad, [24, 28, 32])
    with engine.no_grad():
        x -= 0.5 * x.grad
    check(x, [0, 0, 0])
    assert x.is_leaf and x.requires_grad
