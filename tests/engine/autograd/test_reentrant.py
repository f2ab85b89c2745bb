"""Backward inside a backward (rules RE01-RE03)."""

import engine
from engine.autograd import Function

from ._iso import isolated
from ._util import check, leaf


class Inner(Function):
    """x * x, whose backward runs a backward of its own."""

    @staticmethod
    def forward(ctx, x):
        with engine.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = (ctx.x * ctx.x).sum()
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, grad):
        with engine.enable_grad():
            ctx.y.backward()
        return ctx.x.grad * grad


def test_re01_backward_inside_backward():
    """RE01: backward inside a backward."""
    x = leaf(3)
    y = Inner.apply(x * 2) * 3 + x.sum()
    y.backward()
    check(x.grad, (24 * x + 1).tolist())


def test_re01_grad_inside_backward():
    """RE01: backward inside a backward."""

    class Newton(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            with engine.enable_grad():
                copy = x.detach().requires_grad_()
                (g,) = engine.autograd.grad((copy**3).sum(), copy)
            assert not engine.is_grad_enabled()
            return g * grad

    x = leaf(3)
    (Newton.apply(x) + Newton.apply(x * 2)).sum().backward()
    check(x.grad, (3 * x**2 + 24 * x**2).tolist())


def test_re01_inside_a_hook():
    """RE01: backward inside a backward."""
    x, w = leaf(2, seed=1), leaf(2, seed=2)
    side = (w * 3).sum()
    y = x * 2

    def hook(g):
        side.backward(retain_graph=True)

    y.register_hook(hook)
    (y * y).sum().backward()
    check(x.grad, (8 * x).tolist())
    check(w.grad, [3, 3])


def test_re01_an_inner_error_comes_out_and_all_works_again():
    """RE01: backward inside a backward."""

    class Failing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            with engine.enable_grad():
                engine.ones(()).backward()

    x = leaf(2)
    try:
        Failing.apply(x).sum().backward()
    except RuntimeError as error:
        assert "does not require grad" in str(error)
    else:
        raise AssertionError
    (x * 2).sum().backward()
    check(x.grad, [2, 2])


def test_re02_nested_deep():
    """RE02: reentrant backward nested 60 deep."""
    isolated("""
        import engine
        from engine.autograd import Function

        class Nest(Function):
            @staticmethod
            def forward(ctx, x, depth):
                ctx.depth = depth
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                if ctx.depth == 0:
                    return grad, None
                with engine.enable_grad():
                    t = grad.detach().clone().requires_grad_()
                    Nest.apply(t, ctx.depth - 1).sum().backward()
                assert t.grad.tolist() == [1.0, 1.0]
                return grad + t.grad * 0, None

        x = engine.ones(2, requires_grad=True)
        Nest.apply(x, 60).sum().backward()
        assert x.grad.tolist() == [1.0, 1.0]
    """)


def test_re03_into_a_leaf_of_the_outer_graph():
    """RE03: a reentrant backward may accumulate into a leaf of the outer graph."""
    x, w = leaf(2, seed=1), leaf(2, seed=2)

    class Reach(Function):
        @staticmethod
        def forward(ctx, t):
            return t.clone()

        @staticmethod
        def backward(ctx, grad):
            with engine.enable_grad():
                (w * 5).sum().backward()
            return grad

    (Reach.apply(x * w) + w).sum().backward()
    check(w.grad, (x + 6).tolist())
    check(x.grad, w.tolist())
