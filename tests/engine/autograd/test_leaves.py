"""Leaves, and writing into them (rules LF01-LF07)."""

import copy
import re
import warnings

import pytest

import engine

from ._util import check, leaf, quiet

WRITES = {
    "add_": lambda x: x.add_(1),
    "mul_": lambda x: x.mul_(2),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(3.0),
    "exp_": lambda x: x.exp_(),
    "clamp_": lambda x: x.clamp_(0, 1),
    "copy_": lambda x: x.copy_(engine.zeros(4)),
    "uniform_": lambda x: x.uniform_(),
    "normal_": lambda x: x.normal_(),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, 1.0),
    "scatter_": lambda x: x.scatter_(0, engine.tensor([1]), 7.0),
    "index_fill_": lambda x: x.index_fill_(0, engine.tensor([1]), 7.0),
    "+=": lambda x: x.__iadd__(1),
    "/=": lambda x: x.__itruediv__(2),
}

VIEW_WRITES = {
    "slice": lambda x: x[1:3].add_(1),
    "view": lambda x: x.view(2, 2).mul_(2),
    "unsqueeze": lambda x: x.unsqueeze(0).zero_(),
    "narrow": lambda x: x.narrow(0, 1, 2).fill_(1.0),
    "view of a view": lambda x: x.view(2, 2)[0].exp_(),
    "select": lambda x: x.select(0, 1).add_(1),
    "setitem": lambda x: x.__setitem__(0, 9.0),
    "setitem slice": lambda x: x.__setitem__(slice(1, 3), engine.zeros(2)),
}


def test_lf01_leaves():
    """LF01: tensors made by the user are leaves; results that require grad are not; results that
    do not are.
    """
    data, x = engine.ones(2), engine.ones(2, requires_grad=True)
    assert data.is_leaf and x.is_leaf
    assert engine.nn.Parameter(engine.ones(2)).is_leaf
    for result in (x * 2, x.sum(), x[0], x.view(2, 1), x.clone(), x.double(), x + data):
        assert not result.is_leaf
        assert result.grad_fn is not None
    for result in (data * 2, data.sum(), data[0], x.detach(), x > 0, x.data):
        assert result.is_leaf
        assert result.grad_fn is None
    assert (data * 2).requires_grad_().is_leaf
    assert x.float() is x
    with pytest.raises(AttributeError):
        x.is_leaf = False


@pytest.mark.parametrize("name", WRITES)
def test_lf02_in_place_on_a_leaf(name):
    """LF02: in-place on a leaf that requires grad is an error that says so."""
    x = engine.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    with pytest.raises(
        RuntimeError,
        match="a leaf Variable that requires grad is being used in an in-place operation",
    ):
        WRITES[name](x)
    check(x, [1, 2, 3, 4])
    assert x._version == 0 and x.is_leaf


@pytest.mark.parametrize("name", VIEW_WRITES)
def test_lf03_in_place_on_a_view_of_a_leaf(name):
    """LF03: in-place on a view of a leaf that requires grad is an error."""
    x = engine.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    with pytest.raises(
        RuntimeError,
        match="a view of a leaf Variable that requires grad is being used in an in-place operation",
    ):
        VIEW_WRITES[name](x)
    check(x, [1, 2, 3, 4])
    assert x._version == 0


@pytest.mark.parametrize("name", WRITES)
def test_lf04_under_no_grad(name):
    """LF04: under no_grad in-place on a leaf is allowed, keeps it a leaf and bumps its version."""
    x = engine.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    with engine.no_grad():
        WRITES[name](x)
    assert x.is_leaf and x.requires_grad and x.grad_fn is None
    assert x._version == 1
    (x * 3).sum().backward()
    check(x.grad, [3, 3, 3, 3])


@pytest.mark.parametrize("name", VIEW_WRITES)
def test_lf04_views_under_no_grad(name):
    """LF04: under no_grad in-place on a leaf is allowed, keeps it a leaf and bumps its version."""
    x = engine.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    with engine.no_grad():
        VIEW_WRITES[name](x)
    assert x.is_leaf and x.requires_grad and x._version == 1
    assert x.tolist() != [1, 2, 3, 4]


def test_lf05_a_leaf_without_grad_written_from_one_with():
    """LF05: a leaf without grad becomes a non-leaf when written from something that requires
    grad.
    """
    w = engine.tensor([2.0, 3.0], requires_grad=True)
    x = engine.ones(2)
    assert x.is_leaf
    x.mul_(w)
    assert not x.is_leaf and x.requires_grad and x.grad_fn is not None
    x.sum().backward()
    check(w.grad, [1, 1])
    assert w.grad is not x
    buffer = engine.zeros(3, 2)
    for row in range(3):
        buffer[row] = w * (row + 1)
        assert not buffer.is_leaf
    w.grad = None
    buffer.sum().backward()
    check(w.grad, [6, 6])


def test_lf05_a_leaf_that_requires_grad_is_refused_before_the_write():
    """LF05: a leaf without grad becomes a non-leaf when written from something that requires
    grad.
    """
    w, x = engine.ones(2, requires_grad=True), engine.zeros(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(w)
    check(x, [0, 0])
    assert x.is_leaf and x.grad_fn is None


def test_lf06_data():
    """LF06: x.data shares storage, never requires grad, and writes to it are not seen by
    autograd.
    """
    x = leaf(3)
    before = x.tolist()
    assert x.data.data_ptr() == x.data_ptr()
    assert not x.data.requires_grad and x.data.is_leaf and x.data.grad_fn is None
    y = x * x
    x.data.mul_(2)
    assert x.tolist() == [2 * v for v in before]
    assert x._version == 0
    y.sum().backward()  # the product saved x: its gradient now has the new values, unnoticed
    check(x.grad, [4 * v for v in before])


def test_lf06_data_of_a_non_leaf():
    """LF06: x.data shares storage, never requires grad, and writes to it are not seen by
    autograd.
    """
    x = leaf(3)
    y = x.exp()
    assert not y.data.requires_grad and y.data.is_leaf
    y.data.zero_()
    assert y._version == 0
    y.sum().backward()
    check(x.grad, [0, 0, 0])


def test_lf07_assigning_data():
    """LF07: assigning x.data replaces the values in place of the same tensor object."""
    x = engine.zeros(2, requires_grad=True)
    alias = x
    values = engine.tensor([5.0, 6.0])
    x.data = values
    assert x is alias and x.requires_grad and x.is_leaf
    check(x, [5, 6])
    assert x.data_ptr() == values.data_ptr()
    (x * x).sum().backward()
    check(x.grad, [10, 12])
    x.data = x.data - 0.5 * x.grad
    check(x, [0, 0])
    with quiet():
        x.data = engine.ones(3)
    assert tuple(x.shape) == (3,) and x.requires_grad


def test_errors_about_leaves_and_views_are_torchs():
    """The sentences of torch 2.13 for flags, gradients and attributes that may not be set."""
    x, whole = engine.ones(4, requires_grad=True), engine.ones(2, dtype=engine.int64)
    computed = x * 2
    flags = "you can only change requires_grad flags of leaf variables."
    for call, error, message in (
        (lambda: setattr(computed, "requires_grad", True), RuntimeError, f"^{re.escape(flags)}$"),
        (lambda: setattr(x.view(2, 2), "requires_grad", True), RuntimeError, f"^{re.escape(flags)}$"),
        (lambda: setattr(computed, "requires_grad", False), RuntimeError, "use var_no_grad = var.detach()"),
        (lambda: setattr(x, "requires_grad", 1), RuntimeError, "^requires_grad must be a bool$"),
        (
            lambda: setattr(whole, "requires_grad", True),
            RuntimeError,
            "^only Tensors of floating point and complex dty",
        ),
        (lambda: whole.requires_grad_(), RuntimeError, "^only Tensors of floating point dtype can require gradients$"),
        (lambda: engine.nn.Parameter(whole), RuntimeError, "^Only Tensors of floating point and complex dtype can req"),
        (lambda: x.view(2, 2).detach_(), RuntimeError, r"zero_grad\(\) function in torch/optim/optimizer.py as the so"),
        (lambda: x.view(2, 2).set_(), RuntimeError, "^a view of a leaf Variable that requires grad is being used"),
        (lambda: copy.deepcopy(computed), RuntimeError, "at the moment.  If you were"),
    ):
        with pytest.raises(error, match=message):
            call()
    assert computed.requires_grad_() is computed and not computed.is_leaf


@pytest.mark.parametrize("name", ["is_leaf", "grad_fn", "shape", "dtype", "device", "ndim", "T", "mT", "_version"])
def test_attributes_that_cannot_be_assigned(name):
    for call in (lambda x: setattr(x, name, None), lambda x: delattr(x, name)):
        with pytest.raises(AttributeError, match=f"attribute '{name}' of 'torch._C.TensorBase' objects is not wri"):
            call(engine.ones(2, 2))


def test_the_gradient_of_a_non_leaf_warns():
    x = engine.ones(2, requires_grad=True)
    for computed in (x * 2, x.view(2, 1)):
        with pytest.warns(UserWarning, match="attribute of a Tensor that is not a leaf Tensor is being accessed"):
            assert computed.grad is None
    kept = x * 2
    kept.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is None and kept.grad is None and x.detach().grad is None
        kept.sum().backward()
        assert kept.grad is not None
