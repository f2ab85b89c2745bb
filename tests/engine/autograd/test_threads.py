"""Several threads (rules TH01-TH04)."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import engine
from engine.autograd import Function

from ._util import check, leaf


def test_th01_separate_graphs():
    """TH01: backward of separate graphs from several threads."""

    def work(seed):
        x = leaf(4, 4, seed=seed)
        for _ in range(20):
            x.grad = None
            y = x
            for _ in range(10):
                y = (y.mm(x) * 0.1).tanh() + x
            y.sum().backward()
        return x.grad

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(8)))
    for seed, result in enumerate(results):
        check(result, work(seed).tolist(), 1e-9)


def test_th02_a_shared_leaf():
    """TH02: threads that share a leaf lose no gradient."""
    x = leaf(3)
    threads, barrier = 4, threading.Barrier(4)

    def work(_):
        graphs = [(x * 2).sum() for _ in range(50)]
        barrier.wait()
        for y in graphs:
            y.backward()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    check(x.grad, [400, 400, 400])


def test_th03_forward_here_backward_there():
    """TH03: forward in one thread, backward in another."""
    x = leaf(3)
    y = (x.exp() * x).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    check(x.grad, (x.exp() * (x + 1)).tolist())
    with ThreadPoolExecutor(1) as pool:
        z = pool.submit(lambda: (x * x).sum()).result()
        w = pool.submit(lambda: (z * 2, x.sin())).result()
    x.grad = None
    (w[0] + w[1].sum()).backward()
    check(x.grad, (4 * x + x.cos()).tolist())


def test_th03_under_the_other_threads_mode():
    """TH03: forward in one thread, backward in another."""
    x = leaf(2)
    with engine.no_grad(), ThreadPoolExecutor(1) as pool:
        y = pool.submit(lambda: (x * 3).sum()).result()
    assert y.requires_grad
    y.backward()
    check(x.grad, [3, 3])


def test_th04_errors_stay_in_their_thread():
    """TH04: an error in one thread's backward does not reach another."""

    class Failing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("mine")

    barrier = threading.Barrier(2)

    def bad():
        y = Failing.apply(leaf(2)).sum()
        barrier.wait()
        for _ in range(20):
            with pytest.raises(KeyError, match="mine"):
                y.backward()
        return engine.is_grad_enabled()

    def good():
        x = leaf(2)
        barrier.wait()
        for _ in range(20):
            (x * x).sum().backward()
        return x

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(bad), pool.submit(good)
        assert first.result() is True
        x = second.result()
    check(x.grad, (40 * x).tolist())
