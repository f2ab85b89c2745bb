"""Deep graphs, each in a process of its own (rules DG01-DG08)."""

import pytest

from ._iso import isolated

pytestmark = pytest.mark.long


def test_dg01_backward_through_a_long_chain():
    """DG01: backward through a chain of 100,000 nodes: no recursion error."""
    isolated("""
        import sys
        import engine
        sys.setrecursionlimit(1000)
        x = engine.ones(1, requires_grad=True)
        y = x
        for i in range(100_000):
            y = y + 1 if i % 2 else y * 1
        y.backward()
        assert x.grad.tolist() == [1.0]
        z = x
        for i in range(100_000):
            z = z + x
        z.backward()
        assert x.grad.tolist() == [100_002.0], x.grad
    """)


def test_dg02_dropping_a_long_chain():
    """DG02: dropping a chain of 100,000 nodes without backward: no crash."""
    isolated("""
        import gc
        import engine
        for collect in (True, False):
            (gc.enable if collect else gc.disable)()
            x = engine.ones(1, requires_grad=True)
            y = x
            for _ in range(100_000):
                y = y * 1.0
            del y
            y = x
            for _ in range(100_000):
                y = y + 1
            node = y.grad_fn
            del y
            del node
            kept = [x * 2]
            for _ in range(100_000):
                kept[0] = kept[0].tanh()
            kept.clear()
        print("alive")
    """)


def test_dg02_at_the_end_of_the_process():
    """DG02: dropping a chain of 100,000 nodes without backward: no crash."""
    isolated("""
        import engine
        x = engine.ones(1, requires_grad=True)
        y = x
        for _ in range(100_000):
            y = y * 1
    """)


@pytest.mark.long
def test_dg03_skips_and_in_place_adds():
    """DG03: dropping a deep graph with skips and in-place adds."""
    isolated("""
        import engine
        x = engine.ones(2, requires_grad=True)
        y = x * 1
        history = [y] * 5
        for i in range(30_000):
            z = history[0] * 0.5
            z += history[-1]
            z += history[2] * 0.1
            z[0] += 1
            history = history[1:] + [z.tanh()]
        del z
        history.clear()
        del y
        z = x * 1
        for i in range(20_000):
            z += x
            z.mul_(1.0)
        view = z[:1]
        for i in range(20_000):
            view.add_(1)
        del z
        del view
        print("alive")
    """)


def test_dg04_python_functions():
    """DG04: a deep chain of Python Functions can be dropped and walked backward."""
    isolated("""
        import engine
        from engine.autograd import Function

        class Step(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 1.0

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 1.0

        def chain(n):
            x = engine.ones(1, requires_grad=True)
            y = x
            for _ in range(n):
                y = Step.apply(y)
            return x, y

        x, y = chain(50_000)
        del y
        x, y = chain(50_000)
        y.backward()
        assert x.grad.tolist() == [1.0]
        del y
        x, y = chain(20_000)
        node, depth = y.grad_fn, 0
        while node.next_functions:
            node, depth = node.next_functions[0][0], depth + 1
        assert depth == 20_000, depth
    """)


@pytest.mark.long
def test_dg05_a_freed_graph():
    """DG05: a freed graph after backward is dropped as flatly as an unused one."""
    isolated("""
        import engine
        x = engine.ones(1, requires_grad=True)
        for op in (lambda t: t * 1.0, lambda t: t.sin(), lambda t: t + 1):
            y = x
            for _ in range(60_000):
                y = op(y)
            y.backward()
            del y
        y = x
        for _ in range(60_000):
            y = y * x
        y.backward(retain_graph=True)
        y.backward()
        del y
        print("alive")
    """)


def test_dg06_double_backward():
    """DG06: double backward through a chain of 3,000 nodes."""
    isolated("""
        import engine
        x = engine.tensor([1.0], dtype=engine.float64, requires_grad=True)
        y = x * x
        for _ in range(3_000):
            y = y * 1.0 + 0.0
        (g,) = engine.autograd.grad(y, x, create_graph=True)
        assert g.item() == 2.0, g
        (h,) = engine.autograd.grad(g, x, create_graph=True)
        assert h.item() == 2.0, h
        z = x
        for _ in range(3_000):
            z = z.sin()
        (g,) = engine.autograd.grad(z, x, create_graph=True)
        (h,) = engine.autograd.grad(g, x)
        assert abs(h.item()) < 1.0
        del y, z, g, h
        print("alive")
    """)


def test_dg07_linear_cost():
    """DG07: cost of backward is linear in the graph (twice the nodes, less than four times the
    time).
    """
    isolated("""
        import gc
        import time
        import engine

        gc.disable()

        def cost(n):
            best = float("inf")
            for _ in range(5):
                x = engine.ones(4, requires_grad=True)
                y = x
                for i in range(n):
                    y = y * 1.5 + x if i % 2 else y - x
                start = time.process_time()
                y.sum().backward()
                best = min(best, time.process_time() - start)
            return best

        cost(500)
        ratios = []
        for attempt in range(3):
            ratios.append(cost(8_000) / cost(4_000))
            if ratios[-1] < 4:
                break
        else:
            raise AssertionError(ratios)
    """)


def test_dg08_diamonds():
    """DG08: a diamond of depth 40 is walked once per node, not once per path."""
    isolated("""
        import engine
        from engine.autograd import Function

        count = [0]

        class Counted(Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                count[0] += 1
                return grad

        x = engine.ones(1, dtype=engine.float64, requires_grad=True)
        y = x
        for _ in range(40):
            y = Counted.apply(y)
            y = y * 0.5 + y * 0.5
        y.backward(retain_graph=True)
        assert count == [40], count
        assert x.grad.tolist() == [1.0]
        (g,) = engine.autograd.grad(y, x, create_graph=True)
        assert count == [80] and g.tolist() == [1.0]
        z = x
        for _ in range(40):
            z = z * z
        engine.autograd.grad(z, x, create_graph=True)
        seen, queue = set(), [y.grad_fn]
        while queue:
            node = queue.pop()
            if node is not None and node not in seen:
                seen.add(node)
                queue.extend(n for n, _ in node.next_functions)
        assert 40 * 3 < len(seen) <= 40 * 5, len(seen)
    """)
