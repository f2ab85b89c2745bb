"""detach, clone, numpy (rules DT01-DT07)."""

import numpy as np
import pytest

import engine

from ._util import check, leaf


def test_dt01_detach():
    """DT01: detach(): same storage, no grad_fn, not requiring grad, a leaf."""
    x = leaf(2, 3)
    for t in (x, x * 2, x.t(), x[0]):
        d = t.detach()
        assert d is not t
        assert d.data_ptr() == t.data_ptr()
        assert d.stride() == t.stride() and d.storage_offset() == t.storage_offset()
        assert not d.requires_grad and d.grad_fn is None and d.is_leaf and d.grad is None
    y = (x * 2).detach().requires_grad_()
    (y * y).sum().backward()
    assert x.grad is None
    check(y.grad, (4 * x).tolist())


def test_dt01_gradients_stop():
    """DT01: detach(): same storage, no grad_fn, not requiring grad, a leaf."""
    x = leaf(2)
    (x * x.detach()).sum().backward()
    check(x.grad, x.tolist())


def test_dt02_shared_version():
    """DT02: detach() shares the version counter: writing to it is seen by the correctness check."""
    x = leaf(3)
    y = x.exp()
    d = y.detach()
    assert d._version == y._version == 0
    d.zero_()
    assert d._version == y._version == 1
    check(y, [0, 0, 0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_dt02_of_a_leaf():
    """DT02: detach() shares the version counter: writing to it is seen by the correctness check."""
    x = leaf(3)
    y = (x * x).sum()
    x.detach().mul_(2)
    assert x._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_dt02_the_other_way():
    """DT02: detach() shares the version counter: writing to it is seen by the correctness check."""
    y = leaf(3) * 2
    d = y.detach().requires_grad_()
    z = d.sin().sum()
    with engine.no_grad():
        y.add_(1)
    assert d._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_dt03_detach_in_place():
    """DT03: detach_() cuts the tensor from its graph in place."""
    x = leaf(2)
    y = x * 2
    z = y * 3
    assert y.detach_() is y
    assert not y.requires_grad and y.grad_fn is None and y.is_leaf
    z.sum().backward()
    check(x.grad, [6, 6])
    y.requires_grad_()
    (y * y).sum().backward()
    check(y.grad, (4 * x).tolist())
    check(x.grad, [6, 6])
    x.detach_()
    assert not x.requires_grad


def test_dt04_detach_in_place_of_a_view():
    """DT04: detach_() of a view is an error that says view."""
    y = leaf(4) * 2
    for view in (y[:2], y.view(2, 2), y[0], y.view(2, 2).t()):
        with pytest.raises(RuntimeError, match=r"Can't detach views in-place. Use detach\(\) instead"):
            view.detach_()
        assert view.requires_grad
    assert not y[:2].detach().requires_grad


def test_dt05_detaching_a_base():
    """DT05: detaching a base does not detach its view."""
    x = leaf(4)
    y = x * 2
    view = y[:2]
    y.detach_()
    assert view.requires_grad and view.grad_fn is not None
    view.sum().backward()
    check(x.grad, [2, 2, 0, 0])


def test_dt06_clone():
    """DT06: clone() stays in the graph; its storage is its own."""
    x = leaf(2, 3)
    y = x.clone()
    assert y.data_ptr() != x.data_ptr() and y.grad_fn is not None and y.requires_grad
    y.mul_(5)
    y.sum().backward()
    check(x.grad, np.full((2, 3), 5.0))
    assert x._version == 0
    assert not x.detach().clone().requires_grad
    assert x.t().clone().stride() == x.t().stride()


def test_dt07_numpy():
    """DT07: numpy() of a tensor that requires grad is refused; of its detach() shares memory."""
    x = leaf(3)
    message = r"Can't call numpy\(\) on Tensor that requires grad. Use tensor.detach\(\).numpy\(\)"
    for t in (x, x * 2):
        with pytest.raises(RuntimeError, match=message):
            t.numpy()
        with pytest.raises(RuntimeError, match=message):
            np.asarray(t)
    array = x.detach().numpy()
    array[0] = 42
    assert x[0].item() == 42
    with engine.no_grad():
        x[1] = 43
    assert array[1] == 43
