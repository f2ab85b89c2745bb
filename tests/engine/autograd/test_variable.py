"""Variable, pickle, deepcopy, dir (rules VR01-VR04)."""

import copy
import pickle

import pytest

import engine
from engine import nn
from engine.autograd import Variable

from ._util import check, leaf, quiet


def test_vr01_variable():
    """VR01: Variable(t) gives a Tensor that shares data; isinstance works both ways."""
    data = engine.ones(2)
    v = Variable(data)
    assert isinstance(v, engine.Tensor) and type(v) is engine.Tensor
    assert v.data_ptr() == data.data_ptr()
    assert isinstance(data, Variable) and isinstance(v, Variable)
    assert not isinstance([1.0], Variable) and not isinstance(3, Variable)
    assert not v.requires_grad
    w = Variable(data, requires_grad=True)
    assert w.requires_grad and w.is_leaf and not data.requires_grad
    (w * 3).sum().backward()
    check(w.grad, [3, 3])
    assert not Variable(leaf(2)).requires_grad or Variable(leaf(2)).is_leaf


def test_vr01_old_idioms():
    """VR01: Variable(t) gives a Tensor that shares data; isinstance works both ways."""
    x = Variable(engine.tensor([1.0, 2.0]), requires_grad=True)
    y = (x * x).sum()
    y.backward()
    check(x.grad.data, [2, 4])
    assert y.data.item() == 5
    assert isinstance(nn.Parameter(engine.ones(1)), Variable)


def _round_trip(t):
    return pickle.loads(pickle.dumps(t))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_vr02_pickle(protocol):
    """VR02: pickle keeps values and requires_grad, drops history and .grad's graph."""
    for t in (engine.ones(2), leaf(2, 3), leaf(2, 3).t(), engine.tensor(5), leaf(4)[1:3]):
        back = pickle.loads(pickle.dumps(t, protocol=protocol))
        assert back.tolist() == t.tolist()
        assert back.dtype == t.dtype and back.stride() == t.stride()
        assert back.requires_grad is t.requires_grad
        assert back.grad_fn is None and back.is_leaf


def test_vr02_no_history_no_grad():
    """VR02: pickle keeps values and requires_grad, drops history and .grad's graph."""
    x = leaf(2)
    (x * x).sum().backward()
    back = _round_trip(x)
    assert back.requires_grad and back.is_leaf
    assert back.grad is None or not back.grad.requires_grad
    y = _round_trip(x * 2)
    assert y.grad_fn is None and y.is_leaf and y.requires_grad
    check(y, (2 * x).tolist())
    (y * 3).sum().backward()
    check(y.grad, [3, 3])


def test_vr02_parameters_and_modules():
    """VR02: pickle keeps values and requires_grad, drops history and .grad's graph."""
    p = _round_trip(nn.Parameter(engine.ones(2), requires_grad=False))
    assert isinstance(p, nn.Parameter) and not p.requires_grad
    model = nn.Linear(2, 3)
    back = _round_trip(model)
    assert isinstance(back.weight, nn.Parameter) and back.weight.requires_grad
    check(back.weight, model.weight.tolist())


def test_vr03_deepcopy_of_leaves():
    """VR03: deepcopy: leaves yes (with .grad), non-leaves are refused."""
    x = leaf(2)
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    assert y is not x and y.requires_grad and y.is_leaf
    assert y.data_ptr() != x.data_ptr() and y.grad.data_ptr() != x.grad.data_ptr()
    check(y, x.tolist())
    check(y.grad, x.grad.tolist())
    assert not copy.deepcopy(x.detach()).requires_grad
    p = copy.deepcopy(nn.Parameter(engine.ones(2)))
    assert isinstance(p, nn.Parameter) and p.requires_grad


def test_vr03_memo_and_modules():
    """VR03: deepcopy: leaves yes (with .grad), non-leaves are refused."""
    x = leaf(2)
    a, b = copy.deepcopy([x, x])
    assert a is b and a is not x
    model = nn.Linear(2, 2)
    model(engine.ones(1, 2)).sum().backward()
    twin = copy.deepcopy(model)
    with engine.no_grad():
        twin.weight.zero_()
    assert bool(model.weight.detach().any()) and not twin.weight.detach().any()


def test_vr03_views_keep_sharing():
    """VR03: deepcopy: leaves yes (with .grad), non-leaves are refused."""
    base = engine.zeros(4)
    a, b = copy.deepcopy([base, base[1:]])
    a[2] = 5
    check(b, [0, 5, 0])
    check(base, [0, 0, 0, 0])


def test_vr03_non_leaves_are_refused():
    """VR03: deepcopy: leaves yes (with .grad), non-leaves are refused."""
    x = leaf(2)
    message = r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol"
    for t in (x * 2, x[0], x.t()):
        with pytest.raises(RuntimeError, match=message):
            copy.deepcopy(t)


def test_vr03_shallow_copy():
    """VR03: deepcopy: leaves yes (with .grad), non-leaves are refused."""
    x = leaf(2)
    y = copy.copy(x)
    assert y.data_ptr() == x.data_ptr() and y.requires_grad


def test_vr04_dir():
    """VR04: dir() lists only attributes that exist."""
    for t in (leaf(2, 2), engine.ones(2, 2), leaf(2, 2) * 2):
        names = dir(t)
        assert {"add", "add_", "backward", "grad", "requires_grad", "shape"} <= set(names)
        assert "volatile" not in names
        missing = []
        with quiet():
            for name in names:
                try:
                    getattr(t, name)
                except AttributeError:
                    missing.append(name)
                except (RuntimeError, NotImplementedError):
                    pass  # it exists, but not for this tensor
        assert missing == []
