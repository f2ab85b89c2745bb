"""Factories, conversions and legacy types: stored answers of torch 2.13, and what these alone do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.ops.stored import answer, stored


@pytest.mark.parametrize("expression, expected", stored("creation"), ids=lambda v: v[:60] if isinstance(v, str) else "")
def test_as_torch(expression: str, expected: Any) -> None:
    assert answer(expression) == expected


def test_from_numpy_shares_memory_both_ways() -> None:
    array = np.arange(6.0).reshape(2, 3)
    tensor = engine.from_numpy(array)
    tensor[0, 0] = 9
    assert array[0, 0] == 9
    array[1, 2] = -1
    assert tensor[1, 2].item() == -1
    assert engine.as_tensor(array)._array is array
    assert engine.tensor(array)._array is not array


def test_dlpack_both_ways() -> None:
    tensor = engine.arange(4.0)
    array = np.from_dlpack(tensor)
    array_tensor = engine.from_dlpack(np.arange(3))
    assert array.tolist() == [0, 1, 2, 3] and np.shares_memory(array, tensor._array)
    assert array_tensor.tolist() == [0, 1, 2] and array_tensor.dtype is engine.int64
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="require gradient"):
        engine.ones(2, requires_grad=True).__dlpack__()


def test_default_dtype_and_tensor_type() -> None:
    try:
        engine.set_default_tensor_type("torch.DoubleTensor")
        assert engine.zeros(1).dtype is engine.float64 and engine.tensor(1.5).dtype is engine.float64
        with pytest.raises(TypeError, match="only floating-point types are supported"):
            engine.set_default_tensor_type(engine.LongTensor)
    finally:
        engine.set_default_tensor_type(engine.FloatTensor)
    assert engine.zeros(1).dtype is engine.float32


def test_legacy_types_know_their_own() -> None:
    assert isinstance(engine.zeros(1), engine.FloatTensor)
    assert not isinstance(engine.zeros(1), engine.LongTensor)
    assert engine.FloatTensor.dtype is engine.float32
    assert engine.zeros(2).type(engine.LongTensor).dtype is engine.int64


def test_logspace_of_16_bits_rounds_the_ends_and_their_distance():
    """Torch's numbers: the exponents between the ends are not rounded."""
    half, brain = engine.float16, engine.bfloat16
    assert engine.logspace(4.3, 4, 4, base=5.0, dtype=brain).tolist() == [1032, 872, 740, 624]
    assert engine.logspace(0.1, 2.7, 7, dtype=brain).tolist() == [1.2578125, 3.421875, 9.3125, 25, 68, 185, 504]
    assert engine.logspace(4.3, 4, 4, base=5.0, dtype=half).tolist() == [1014, 863, 734.5, 625]
    assert engine.logspace(4.3, 4, 1, base=5.0, dtype=brain).item() == 1012


FACTORIES: dict[str, Any] = {
    **{name: lambda name=name: getattr(engine, name)(3) for name in ("zeros", "ones", "empty", "eye", "arange")},
    **{name: lambda name=name: getattr(engine, name)(3) for name in ("rand", "randn", "randperm")},
    **{
        f"{name}_window": lambda name=name: getattr(engine, f"{name}_window")(3)
        for name in ("hann", "hamming", "kaiser")
    },
    **{f"{name}_window": lambda name=name: getattr(engine, f"{name}_window")(3) for name in ("blackman", "bartlett")},
    **{name: lambda name=name: getattr(engine, name)(0, 1, 3) for name in ("linspace", "logspace")},
    **{name: lambda name=name: getattr(engine, name)(3, 3) for name in ("tril_indices", "triu_indices")},
    **{name: lambda name=name: getattr(engine, name)([1.0]) for name in ("tensor", "as_tensor", "asarray")},
    "full": lambda: engine.full((3,), 1.0),
    "randint": lambda: engine.randint(3, (2,)),
    "scalar_tensor": lambda: engine.scalar_tensor(1.0),
    "empty_strided": lambda: engine.empty_strided((2,), (1,)),
    "empty_permuted": lambda: engine.empty_permuted((2, 3), (1, 0)),
    "fftfreq": lambda: engine.fft.fftfreq(5),
    "rfftfreq": lambda: engine.fft.rfftfreq(5),
    "gaussian": lambda: engine.signal.windows.gaussian(5, std=1.0),
    "general_hamming": lambda: engine.signal.windows.general_hamming(5),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_make_what_they_make_on_the_default_device(name: str) -> None:
    with engine.device("meta"):
        assert FACTORIES[name]().device.type == "meta"
    assert FACTORIES[name]().device.type == "cpu"


@pytest.mark.parametrize("rows", [0, 1, 3, 5])
@pytest.mark.parametrize("columns", [0, 1, 4, 7])
def test_places_of_triangles(rows: int, columns: int) -> None:
    for offset in (-9, -3, -1, 0, 1, 2, 8):
        whole = np.ones((rows, columns))
        for found, of in ((engine.tril_indices, np.tril), (engine.triu_indices, np.triu)):
            got = found(rows, columns, offset)
            assert got.dtype == engine.int64 and np.array_equal(got.numpy(), np.nonzero(of(whole, offset)))
            assert engine.equal(found(rows, columns, offset, dtype=engine.float32), got.float())


def test_long_lines_are_those_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in (1 << 15, 100_001):
        made = engine.linspace(-1.3, 7.7, steps)
        with monkeypatch.context() as here:
            here.setattr("engine.ops.ranges._MANY", 1 << 60)
            want = engine.linspace(-1.3, 7.7, steps)
        assert engine.equal(made, want) and made[-1] == engine.tensor(7.7)
