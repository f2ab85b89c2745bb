"""numpy and DLPack: shared memory, conversions, numbers."""

import operator

import numpy as np
import pytest

import engine

from .autograd._util import quiet

DTYPES = {
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "bool": np.bool_,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
}


@pytest.mark.parametrize("name", DTYPES)
def test_from_numpy(name):
    """from_numpy keeps dtype and shape and shares memory both ways."""
    array = np.array([[1, 0], [0, 1]], DTYPES[name])
    t = engine.from_numpy(array)
    assert t.dtype == getattr(engine, name) and t.tolist() == array.tolist()
    assert t.data_ptr() == array.ctypes.data
    array[0, 1] = 1
    assert t[0, 1].item() == 1
    t[1, 0] = 1
    assert array[1, 0] == 1
    assert not t.requires_grad and t.is_leaf


@pytest.mark.parametrize("name", DTYPES)
def test_numpy(name):
    """numpy() keeps dtype, shape and strides and shares memory both ways."""
    t = engine.zeros(2, 3, dtype=getattr(engine, name))
    array = t.numpy()
    assert array.dtype == DTYPES[name] and array.shape == (2, 3)
    t[0, 0] = 1
    assert array[0, 0] == 1
    array[1, 1] = 1
    assert t[1, 1].item() == 1
    assert t.t().numpy().strides == array.T.strides


def test_layouts_from_numpy():
    """Strided, transposed, empty and 0-dim arrays."""
    base = np.arange(24.0).reshape(4, 6)
    for array in (
        base.T,
        base[::2, 1::3],
        base[1:],
        base[:, 2],
        base[:0],
        np.array(3.0),
        base[None],
    ):
        t = engine.from_numpy(array)
        assert tuple(t.shape) == array.shape
        np.testing.assert_array_equal(t.numpy(), array)
        if array.size:
            assert t.data_ptr() == array.ctypes.data
            for size, step, stride in zip(array.shape, array.strides, t.stride()):
                assert size == 1 or stride == step // 8
    with pytest.raises(ValueError, match="negative"):
        engine.from_numpy(base[::-1])
    assert engine.from_numpy(base[::-1].copy())[0, 0].item() == 18


def test_from_numpy_errors():
    """Other objects and dtypes are refused."""
    with pytest.raises(TypeError):
        engine.from_numpy([1, 2])
    for array in (np.array(["a"]), np.array([object()]), np.array([1], "datetime64[s]")):
        with pytest.raises(TypeError, match=r"can't convert np\.ndarray of type"):
            engine.from_numpy(array)


def test_read_only_arrays():
    """A read-only array is shared with a warning."""
    array = np.zeros(2)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable|not writeable"):
        t = engine.from_numpy(array)
    assert t.tolist() == [0, 0]


def test_numpy_refuses():
    """numpy() of what requires grad or numpy lacks."""
    x = engine.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [1, 1]
    assert x.detach().numpy().tolist() == [1, 1]
    with pytest.raises(TypeError, match="BFloat16"):
        engine.ones(2, dtype=engine.bfloat16).numpy()


def test_array_protocol():
    """np.asarray shares, np.array copies, dtype converts."""
    t = engine.arange(3.0)
    shared = np.asarray(t)
    shared[0] = 9
    assert t[0].item() == 9
    with quiet():
        copy = np.array(t)
    copy[1] = 9
    assert t[1].item() == 1
    assert np.asarray(t, dtype=np.int64).tolist() == [9, 1, 2]
    assert np.sum(t.numpy()) == 12
    with quiet():
        assert np.stack([t, t]).shape == (2, 3)
        assert np.array([engine.tensor(1), engine.tensor(2)]).tolist() == [1, 2]
    np.testing.assert_array_equal(np.asarray(t.view(3, 1)), [[9], [1], [2]])


def test_numpy_functions_give_tensors():
    """A numpy ufunc applied to a tensor gives its values."""
    with quiet():
        result = np.exp(engine.zeros(2))
        assert np.asarray(result).tolist() == [1, 1]
        assert np.asarray(np.maximum(engine.ones(2), 3)).tolist() == [3, 3]


def test_tensor_with_array_operands():
    """tensor * array: the tensor's operator wins on its left."""
    t, array = engine.ones(2, dtype=engine.float64), np.array([2.0, 3.0])
    result = t * engine.from_numpy(array)
    assert result.tolist() == [2, 3]
    assert (t * np.float64(2)).tolist() == [2, 2]
    assert (np.float64(2) * engine.tensor(1.5).item()) == 3
    assert (engine.ones(2) * np.float32(3)).dtype == engine.float32
    assert (engine.ones(2, dtype=engine.int64) + np.int64(1)).dtype == engine.int64


def test_item_and_numbers():
    """One-element tensors become Python numbers."""
    assert engine.tensor([[2.5]]).item() == 2.5 and type(engine.tensor(2.5).item()) is float
    assert type(engine.tensor(2).item()) is int and type(engine.tensor(True).item()) is bool
    assert type(engine.tensor(1j).item()) is complex
    assert float(engine.tensor([2])) == 2.0 and int(engine.tensor(2.9)) == 2
    assert bool(engine.tensor([0.0])) is False and bool(engine.tensor(3)) is True
    assert complex(engine.tensor(2.0)) == 2 + 0j
    assert operator.index(engine.tensor(4)) == 4
    assert round(float(engine.tensor(2.567)), 2) == 2.57
    for wrong in (engine.ones(2), engine.ones(0)):
        with pytest.raises(RuntimeError, match="elements cannot be converted to Scalar"):
            wrong.item()
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            float(wrong)
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        bool(engine.ones(2))
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with no values is ambiguous"):
        bool(engine.ones(0))


def test_tolist():
    """tolist gives nested lists of Python numbers."""
    assert engine.tensor(3).tolist() == 3
    assert engine.arange(4).view(2, 2).tolist() == [[0, 1], [2, 3]]
    assert engine.zeros(2, 0).tolist() == [[], []]
    assert type(engine.tensor([1.5]).tolist()[0]) is float
    assert type(engine.tensor([True]).tolist()[0]) is bool
    assert engine.tensor([0.1]).tolist() == [float(np.float32(0.1))]
    assert engine.tensor([1.5], dtype=engine.bfloat16).tolist() == [1.5]
    assert engine.arange(6).view(2, 3).t().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_dlpack_with_numpy():
    """np.from_dlpack and from_dlpack share memory."""
    t = engine.arange(4.0)
    array = np.from_dlpack(t)
    t[0] = 7
    assert array.tolist() == [7, 1, 2, 3]
    source = np.arange(6.0).reshape(2, 3)
    back = engine.from_dlpack(source)
    source[1, 1] = 50
    assert back[1, 1].item() == 50 and back.dtype == engine.float64
    assert engine.from_dlpack(source.T).stride() == (1, 3)


def test_dlpack_capsules():
    """utils.dlpack: to_dlpack and from_dlpack round trip."""
    from engine.utils import dlpack

    t = engine.arange(6, dtype=engine.int32).view(2, 3)
    back = dlpack.from_dlpack(dlpack.to_dlpack(t))
    assert back.tolist() == t.tolist() and back.dtype == engine.int32
    back[0, 0] = 9
    assert t[0, 0].item() == 9
    assert t.__dlpack_device__()[0] == 1
    with pytest.raises((RuntimeError, BufferError), match="require"):
        np.from_dlpack(engine.ones(2, requires_grad=True))


def test_memory_outlives_the_owner():
    """The shared memory lives as long as either side."""
    t = engine.from_numpy(np.full(1000, 3.0))
    assert t.sum().item() == 3000
    array = engine.full((1000,), 4.0).numpy()
    assert array.sum() == 4000
    view = engine.full((1000,), 5.0)[10:20].numpy()
    assert view.sum() == 50


def test_frombuffer():
    """frombuffer reads memory of bytes-like objects."""
    data = bytearray(np.array([1, 2, 3], np.int32).tobytes())
    t = engine.frombuffer(data, dtype=engine.int32)
    assert t.tolist() == [1, 2, 3]
    data[0] = 9
    assert t[0].item() == 9
    assert engine.frombuffer(data, dtype=engine.int32, count=1, offset=4).tolist() == [2]


def test_byte_order():
    """Arrays of the other byte order are refused by from_numpy."""
    with pytest.raises((TypeError, ValueError), match="byte order"):
        engine.from_numpy(np.array([1, 2], ">i4"))
