"""Factories: values, dtype, device, shape arguments, errors."""

import numpy as np
import pytest

import engine

from .autograd._util import quiet

INT, FLOAT = "int64", "float32"


@pytest.mark.parametrize(
    "data, dtype, shape, values",
    [
        (1, INT, (), 1),
        (1.5, FLOAT, (), 1.5),
        (True, "bool", (), True),
        (2j, "complex64", (), 2j),
        ([], FLOAT, (0,), []),
        ([[]], FLOAT, (1, 0), [[]]),
        ([1, 2], INT, (2,), [1, 2]),
        ((1, 2), INT, (2,), [1, 2]),
        ([1, 2.0], FLOAT, (2,), [1, 2]),
        ([1.0, 2], FLOAT, (2,), [1, 2]),
        ([True, 2], INT, (2,), [1, 2]),
        ([True, 2.5], FLOAT, (2,), [1, 2.5]),
        ([True, False], "bool", (2,), [True, False]),
        ([1, 2j], "complex64", (2,), [1, 2j]),
        ([[1, 2], [3, 4]], INT, (2, 2), [[1, 2], [3, 4]]),
        ([(1, 2), [3, 4]], INT, (2, 2), [[1, 2], [3, 4]]),
        (range(3), INT, (3,), [0, 1, 2]),
        ([[[1.0]]], FLOAT, (1, 1, 1), [[[1]]]),
        (2**40, INT, (), 2**40),
        (np.float64(2.5), "float64", (), 2.5),
        (np.float32(2.5), FLOAT, (), 2.5),
        (np.int32(3), "int32", (), 3),
        (np.bool_(True), "bool", (), True),
        (np.ones((2, 1)), "float64", (2, 1), [[1], [1]]),
        (np.array([1, 2], np.int16), "int16", (2,), [1, 2]),
        ([np.float64(1), np.float64(2)], "float64", (2,), [1, 2]),
        ([np.array([1, 2]), np.array([3, 4])], INT, (2, 2), [[1, 2], [3, 4]]),
        ([float("inf"), 0], FLOAT, (2,), [float("inf"), 0]),
    ],
)
def test_tensor(data, dtype, shape, values):
    """engine.tensor: the dtype and shape that the data say."""
    with quiet():
        t = engine.tensor(data)
    assert t.dtype == getattr(engine, dtype)
    assert tuple(t.shape) == shape
    assert t.tolist() == values
    assert t.is_contiguous() and t.device.type == "cpu"


def test_tensor_of_tensors():
    """A list of 0-dim tensors stacks, a tensor is copied with a warning."""
    t = engine.tensor([engine.tensor(1.0), engine.tensor(2.0)])
    assert t.tolist() == [1, 2] and t.dtype == engine.float32
    assert engine.tensor([engine.tensor(1), 2.5]).tolist() == [1, 2.5]
    x = engine.ones(2)
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        y = engine.tensor(x)
    y[0] = 5
    assert x.tolist() == [1, 1]


def test_tensor_copies():
    """engine.tensor always copies."""
    a = np.zeros(2)
    t = engine.tensor(a)
    a[0] = 1
    assert t.tolist() == [0, 0]


@pytest.mark.parametrize(
    "data, error, text",
    [
        ([[1], [1, 2]], ValueError, "expected sequence of length 1 at dim 1"),
        ([[1, 2], [1]], ValueError, "expected sequence of length 2 at dim 1"),
        ([1, [2]], TypeError, "not a sequence|must be real number|cannot be converted"),
        ("abc", TypeError, "invalid data type 'str'"),
        (["a"], ValueError, "too many dimensions 'str'"),
        (None, RuntimeError, "NoneType"),
        ({}, RuntimeError, "dict"),
        (object(), RuntimeError, "object"),
        (2**64, RuntimeError, "Overflow"),
    ],
)
def test_tensor_errors(data, error, text):
    """Data that is no array is refused."""
    with pytest.raises((error, TypeError, ValueError), match=None if error is TypeError else text):
        engine.tensor(data)


def test_tensor_with_dtype():
    """dtype=... converts."""
    assert engine.tensor([1.7, -1.7], dtype=engine.int64).tolist() == [1, -1]
    assert engine.tensor([0, 2], dtype=engine.bool).tolist() == [False, True]
    assert engine.tensor([1, 2], dtype=engine.float64).dtype == engine.float64
    assert engine.tensor(3, dtype=float).dtype == engine.float64
    assert engine.tensor(3.5, dtype=int).dtype == engine.int64
    assert engine.tensor([1], dtype=bool).dtype == engine.bool
    assert engine.tensor([1.0], dtype=engine.bfloat16).dtype == engine.bfloat16


def test_as_tensor():
    """as_tensor shares where it can."""
    x = engine.ones(2)
    assert engine.as_tensor(x) is x
    assert engine.as_tensor(x, dtype=engine.float32) is x
    assert engine.as_tensor(x, dtype=engine.float64).dtype == engine.float64
    a = np.zeros(2)
    t = engine.as_tensor(a)
    a[0] = 7
    assert t.tolist() == [7, 0]
    assert engine.as_tensor(a, dtype=engine.float32).tolist() == [7, 0]
    assert engine.as_tensor([1, 2]).dtype == engine.int64
    assert engine.as_tensor(2.5).item() == 2.5


SHAPED = {
    "zeros": (lambda *s, **k: engine.zeros(*s, **k), 0),
    "ones": (lambda *s, **k: engine.ones(*s, **k), 1),
    "empty": (lambda *s, **k: engine.empty(*s, **k), None),
    "rand": (lambda *s, **k: engine.rand(*s, **k), None),
    "randn": (lambda *s, **k: engine.randn(*s, **k), None),
}


@pytest.mark.parametrize("name", SHAPED)
def test_shape_arguments(name):
    """Sizes as numbers, a tuple, a list, a Size, 0-dim tensors or nothing."""
    make, value = SHAPED[name]
    for arguments, shape in [
        ((2, 3), (2, 3)),
        (((2, 3),), (2, 3)),
        (([2, 3],), (2, 3)),
        ((4,), (4,)),
        (((),), ()),
        ((0,), (0,)),
        ((2, 0, 3), (2, 0, 3)),
        ((engine.Size([2, 1]),), (2, 1)),
        ((np.int64(2), 3), (2, 3)),
        ((engine.ones(2, 3).shape,), (2, 3)),
    ]:
        t = make(*arguments)
        assert tuple(t.shape) == shape and t.dtype == engine.float32 and t.is_contiguous()
        if value is not None:
            assert (t == value).all()
    assert make(2, dtype=engine.float64).dtype == engine.float64
    assert make(2, device="cpu").device == engine.device("cpu")
    assert make(2, device=engine.device("cpu")).device.type == "cpu"
    assert tuple(make(size=(2, 3)).shape) == (2, 3)
    with pytest.raises(RuntimeError, match="negative"):
        make(2, -1)
    with pytest.raises(TypeError):
        make(2.5)
    with pytest.raises(TypeError):
        make("a")


def test_integer_factories():
    """zeros, ones and empty take every dtype, rand and randn only floating ones."""
    for name in ("bool", "uint8", "int32", "int64", "float16", "complex64"):
        dtype = getattr(engine, name)
        assert engine.zeros(2, dtype=dtype).dtype == dtype
        assert engine.ones(2, dtype=dtype).tolist() == [1, 1]
    for make in (engine.rand, engine.randn):
        with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
            make(2, dtype=engine.int64)


@pytest.mark.parametrize(
    "arguments, values, dtype",
    [
        ((5,), [0, 1, 2, 3, 4], INT),
        ((2, 5), [2, 3, 4], INT),
        ((0, 10, 3), [0, 3, 6, 9], INT),
        ((5, 0, -2), [5, 3, 1], INT),
        ((0,), [], INT),
        ((3, 3), [], INT),
        ((3.0,), [0, 1, 2], FLOAT),
        ((2.5,), [0, 1, 2], FLOAT),
        ((0, 1, 0.25), [0, 0.25, 0.5, 0.75], FLOAT),
        ((1, 2.5, 0.5), [1, 1.5, 2], FLOAT),
        ((1.0, -1.0, -0.5), [1, 0.5, 0, -0.5], FLOAT),
        ((0, -3, -1), [0, -1, -2], INT),
    ],
)
def test_arange(arguments, values, dtype):
    """arange: integers give int64, a float anywhere the default dtype."""
    t = engine.arange(*arguments)
    assert t.tolist() == values and t.dtype == getattr(engine, dtype)


def test_arange_more():
    """arange with dtype, keywords and errors."""
    assert engine.arange(3, dtype=engine.float64).dtype == engine.float64
    assert engine.arange(0, 3, dtype=engine.int32).dtype == engine.int32
    assert engine.arange(start=1, end=4, step=2).tolist() == [1, 3]
    assert engine.arange(end=2).tolist() == [0, 1]
    assert len(engine.arange(0, 1, 0.1)) == 10
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        engine.arange(0, 3, 0)
    with pytest.raises(RuntimeError, match=r"upper bound and lower bound inconsistent|larger bound"):
        engine.arange(0, 3, -1)


def test_range():
    """range includes its end and is deprecated."""
    with pytest.warns(UserWarning, match="deprecated"):
        t = engine.range(1, 4)
    assert t.tolist() == [1, 2, 3, 4] and t.dtype == engine.float32


def test_linspace_and_logspace():
    """linspace and logspace include both ends exactly."""
    assert engine.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert engine.linspace(3, -3, 4).tolist() == [3, 1, -1, -3]
    assert engine.linspace(2, 9, 1).tolist() == [2]
    assert engine.linspace(0, 1, 0).tolist() == []
    assert engine.linspace(0, 10, 3, dtype=engine.int64).tolist() == [0, 5, 10]
    assert engine.linspace(0.1, 0.7, 7)[-1].item() == np.float32(0.7)
    assert engine.linspace(0, 1, 11, dtype=engine.float64)[3].item() == pytest.approx(0.3)
    assert engine.linspace(start=0, end=1, steps=3).tolist() == [0, 0.5, 1]
    assert engine.logspace(0, 2, 3).tolist() == [1, 10, 100]
    assert engine.logspace(0, 3, 4, base=2).tolist() == [1, 2, 4, 8]
    with pytest.raises(RuntimeError, match="number of steps must be non-negative"):
        engine.linspace(0, 1, -1)


def test_eye_and_full():
    """eye and full: values and dtypes."""
    assert engine.eye(2).tolist() == [[1, 0], [0, 1]]
    assert engine.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert engine.eye(3, 1).tolist() == [[1], [0], [0]]
    assert tuple(engine.eye(0).shape) == (0, 0)
    assert engine.eye(2, dtype=engine.int64).dtype == engine.int64
    assert engine.full((2,), 3).dtype == engine.int64
    assert engine.full((2,), 3.0).dtype == engine.float32
    assert engine.full((2,), True).dtype == engine.bool
    assert engine.full((2,), 1j).dtype == engine.complex64
    assert engine.full((2, 2), 7, dtype=engine.float64).tolist() == [[7, 7], [7, 7]]
    assert engine.full((), 2.5).item() == 2.5
    assert engine.full([1, 2], 1).tolist() == [[1, 1]]
    assert engine.full(size=(1,), fill_value=4).tolist() == [4]


def test_like():
    """*_like take shape, dtype and layout from the tensor."""
    x = engine.zeros(2, 3, dtype=engine.float64)
    for make in (
        engine.zeros_like,
        engine.ones_like,
        engine.empty_like,
        engine.rand_like,
        engine.randn_like,
        lambda t, **k: engine.full_like(t, 5, **k),
    ):
        y = make(x)
        assert y.shape == x.shape and y.dtype == engine.float64
        assert y.data_ptr() != x.data_ptr()
        assert make(x, dtype=engine.float32).dtype == engine.float32
        assert make(x.t()).stride() == (1, 3)
        assert make(x[:, ::2]).is_contiguous()
        assert make(x[:, :0]).numel() == 0
    assert engine.full_like(engine.ones(2, dtype=engine.int64), 3.7).tolist() == [3, 3]
    assert engine.randint_like(x, 5).dtype == engine.float64
    assert engine.ones_like(engine.tensor([True])).dtype == engine.bool


def test_new():
    """new_* take the dtype from the tensor, the shape from the arguments."""
    x = engine.zeros(2, dtype=engine.float64)
    assert x.new_zeros(3).dtype == engine.float64
    assert x.new_zeros((2, 3)).tolist() == [[0] * 3] * 2
    assert x.new_ones(2, 3).tolist() == [[1] * 3] * 2
    assert x.new_ones([1]).tolist() == [1]
    assert tuple(x.new_empty((0, 2)).shape) == (0, 2)
    assert x.new_full((2,), 5).tolist() == [5, 5]
    assert x.new_tensor([1, 2]).dtype == engine.float64
    assert x.new_zeros(2, dtype=engine.int32).dtype == engine.int32
    assert x.new(2, 3).dtype == engine.float64 and tuple(x.new(2, 3).shape) == (2, 3)
    assert x.new([1, 2]).tolist() == [1, 2]
    assert tuple(x.new().shape) == (0,)


def test_old_constructors():
    """Tensor(...), FloatTensor(...) and friends."""
    assert tuple(engine.Tensor().shape) == (0,)
    assert tuple(engine.Tensor(2, 3).shape) == (2, 3)
    assert engine.Tensor([1, 2]).tolist() == [1, 2]
    assert engine.Tensor([1, 2]).dtype == engine.float32
    assert engine.FloatTensor([1, 2]).dtype == engine.float32
    assert engine.DoubleTensor([1, 2]).dtype == engine.float64
    assert engine.LongTensor([1, 2]).dtype == engine.int64
    assert engine.IntTensor([1]).dtype == engine.int32
    assert engine.ByteTensor([1, 0]).dtype == engine.uint8
    assert engine.BoolTensor([True]).dtype == engine.bool
    assert tuple(engine.LongTensor(2, 3).shape) == (2, 3)
    assert engine.HalfTensor([1]).dtype == engine.float16
    assert isinstance(engine.ones(1), engine.FloatTensor)
    assert not isinstance(engine.ones(1), engine.LongTensor)
    assert isinstance(engine.ones(1), engine.Tensor)
    assert engine.is_tensor(engine.ones(1)) and not engine.is_tensor([1])
    assert engine.Tensor(engine.Size([2])).shape == (2,)


def test_random_factories():
    """Ranges, shapes, dtypes and reproducibility of the random factories."""
    engine.manual_seed(3)
    a = [engine.rand(5), engine.randn(5), engine.randint(10, (5,)), engine.randperm(5)]
    engine.manual_seed(3)
    b = [engine.rand(5), engine.randn(5), engine.randint(10, (5,)), engine.randperm(5)]
    for x, y in zip(a, b):
        assert x.tolist() == y.tolist()
    u = engine.rand(1000)
    assert u.min().item() >= 0 and u.max().item() < 1
    i = engine.randint(-2, 3, (1000,))
    assert i.dtype == engine.int64 and set(i.tolist()) == {-2, -1, 0, 1, 2}
    assert engine.randint(3, (2,), dtype=engine.float32).dtype == engine.float32
    assert sorted(engine.randperm(20).tolist()) == list(range(20))
    assert engine.randperm(0).tolist() == [] and engine.randperm(3).dtype == engine.int64
    n = engine.normal(2.0, 0.5, (1000,))
    assert abs(n.mean().item() - 2) < 0.1
    assert tuple(engine.normal(engine.zeros(3), 1.0).shape) == (3,)
    assert engine.bernoulli(engine.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match=r"from.*to|empty range|must be less|positive"):
        engine.randint(3, 3, (2,))


def test_generator():
    """A Generator of one's own is reproducible and leaves the default one alone."""
    g = engine.Generator()
    g.manual_seed(5)
    engine.manual_seed(1)
    first = engine.rand(3, generator=g)
    rest = engine.rand(3)
    engine.manual_seed(1)
    assert engine.rand(3).tolist() == rest.tolist()
    assert engine.rand(3, generator=g.manual_seed(5)).tolist() == first.tolist()
    assert engine.initial_seed() == 1 and g.initial_seed() == 5
    state = engine.get_rng_state()
    x = engine.rand(2)
    engine.set_rng_state(state)
    assert engine.rand(2).tolist() == x.tolist()


def test_triangles_and_meshgrid():
    """tril_indices, triu_indices, meshgrid, cartesian_prod, combinations."""
    assert engine.tril_indices(2, 3).tolist() == [[0, 1, 1], [0, 0, 1]]
    assert engine.triu_indices(2, 3, 1).tolist() == [[0, 0, 1], [1, 2, 2]]
    a, b = engine.meshgrid(engine.arange(2), engine.arange(3), indexing="ij")
    assert a.tolist() == [[0, 0, 0], [1, 1, 1]] and b.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert engine.cartesian_prod(engine.tensor([1, 2]), engine.tensor([3])).tolist() == [
        [1, 3],
        [2, 3],
    ]
    assert engine.combinations(engine.arange(3)).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_devices():
    """Devices: text, parts, equality."""
    d = engine.device("cpu")
    assert d.type == "cpu" and d.index is None and str(d) == "cpu"
    assert repr(d) == "device(type='cpu')"
    assert repr(engine.device("cuda:1")) == "device(type='cuda', index=1)"
    assert str(engine.device("cuda", 0)) == "cuda:0" and engine.device("cuda:0").index == 0
    assert engine.device("cpu") == d and engine.device("cuda:0") != engine.device("cuda:1")
    assert len({engine.device("cpu"), engine.device("cpu")}) == 1
    with pytest.raises(RuntimeError, match=r"(?i)device"):
        engine.device("nonsense")
    x = engine.ones(2)
    assert x.to("cpu") is x and x.cpu() is x and x.to(d) is x and not x.is_cuda
    assert x.get_device() == -1


def test_size():
    """Size is a tuple with numel."""
    s = engine.ones(2, 3).shape
    assert s == (2, 3) and isinstance(s, tuple) and isinstance(s, engine.Size)
    assert repr(s) == "torch.Size([2, 3])" and s.numel() == 6
    assert isinstance(s[:1], engine.Size) and s[0] == 2 and s[-1] == 3
    assert isinstance(s + (4,), tuple) and list(s) == [2, 3] and len(s) == 2
    assert engine.ones(2, 3).size(1) == 3 and engine.ones(2, 3).size(-1) == 3
    assert engine.Size([1, 2]).numel() == 2 and engine.Size([]).numel() == 1
    assert hash(engine.Size([1])) == hash((1,))
    with pytest.raises(IndexError, match="Dimension out of range"):
        engine.ones(2).size(1)
