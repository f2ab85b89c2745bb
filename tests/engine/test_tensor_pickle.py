"""pickle and copy of tensors: values, dtype, strides, sharing."""

import copy
import pickle

import pytest

import engine
from engine import nn

DTYPES = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "bool",
    "complex64",
    "complex128",
]


def round_trip(x, protocol=pickle.DEFAULT_PROTOCOL):
    return pickle.loads(pickle.dumps(x, protocol))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_values(name, shape):
    """Every dtype and shape comes back."""
    t = (engine.arange(6)[: max(1, engine.Size(shape).numel())].repeat(1) % 2).to(getattr(engine, name))
    t = t[: engine.Size(shape).numel()].view(shape)
    for clone in (round_trip, copy.copy, copy.deepcopy):
        back = clone(t)
        assert type(back) is engine.Tensor
        assert back.dtype == t.dtype and back.shape == t.shape
        assert back.tolist() == t.tolist()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_protocols(protocol):
    """Every protocol from 2 on."""
    t = engine.arange(6.0).view(2, 3).t()
    back = round_trip(t, protocol)
    assert back.tolist() == t.tolist() and back.stride() == t.stride()


def test_strides_and_offsets():
    """Views keep strides and offset."""
    base = engine.arange(24).view(4, 6)
    for view in (base.t(), base[1:, ::2], base[2], base[:, 3], base[1, 2], base[:, None]):
        for clone in (round_trip, copy.deepcopy):
            back = clone(view)
            assert back.tolist() == view.tolist()
            assert back.stride() == view.stride()
            assert back.storage_offset() == view.storage_offset()
            back.zero_()
            assert base.sum().item() == 276


def test_expanded():
    """An expanded tensor stays small."""
    t = engine.ones(1).expand(1000, 1000)
    data = pickle.dumps(t)
    assert len(data) < 2000
    assert pickle.loads(data).stride() == (0, 0)


def test_one_object_stays_one_object():
    """Identity within one pickle."""
    t = engine.ones(2)
    a, b = round_trip([t, t])
    assert a is b
    a, b = copy.deepcopy((t, t))
    assert a is b


def test_requires_grad_and_parameters():
    """requires_grad and the class Parameter are kept."""
    assert round_trip(engine.ones(2, requires_grad=True)).requires_grad
    p = round_trip(nn.Parameter(engine.ones(2)))
    assert type(p) is nn.Parameter and p.requires_grad
    p = copy.deepcopy(nn.Parameter(engine.ones(2), requires_grad=False))
    assert type(p) is nn.Parameter and not p.requires_grad


def test_attributes():
    """Attributes set by the user are kept."""
    t = engine.ones(2)
    t.note = "mine"
    for clone in (round_trip, copy.deepcopy, copy.copy):
        assert clone(t).note == "mine"


def test_deepcopy_shares_as_the_original():
    """Tensors that shared memory still do after one deepcopy."""
    base = engine.zeros(6)
    a, b = copy.deepcopy([base.view(2, 3), base[3:]])
    a[1, 0] = 5
    assert b.tolist() == [5, 0, 0] and base.tolist() == [0] * 6


def test_copy_is_shallow():
    """copy.copy shares the memory."""
    t = engine.zeros(3)
    other = copy.copy(t)
    assert other is not t
    other[0] = 1
    assert t.tolist() == [1, 0, 0]


def test_small_objects():
    """dtypes, devices and sizes."""
    for thing in (engine.float32, engine.int64, engine.device("cpu"), engine.device("cuda:1")):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            assert round_trip(thing, protocol) == thing
        assert copy.deepcopy(thing) == thing
    assert round_trip(engine.float64) is engine.float64
    size = round_trip(engine.Size([2, 3]))
    assert isinstance(size, engine.Size) and size == (2, 3)


def test_hash_and_equality():
    """Tensors hash by identity and compare element by element."""
    a, b = engine.ones(2), engine.ones(2)
    assert hash(a) != hash(b) or a is b
    assert len({a, b, a}) == 2
    assert (a == b).tolist() == [True, True] and engine.equal(a, b)
    assert {a: 1}[a] == 1


def test_modules():
    """A module comes back with its parameters, buffers and hooks' order."""
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh())
    model.eval()
    x = engine.ones(4, 2)
    for clone in (round_trip, copy.deepcopy):
        back = clone(model)
        assert list(back.state_dict()) == list(model.state_dict())
        assert back(x).tolist() == model(x).tolist()
        assert back[0].weight.data_ptr() != model[0].weight.data_ptr()
        assert not back.training
