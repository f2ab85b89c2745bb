"""Complex numbers of two 16-bit floats: made, taken apart, converted, copied and added, with gradients."""

from __future__ import annotations

import warnings

import ml_dtypes
import pytest

import engine
from engine.core import dtypes

pytestmark = pytest.mark.skipif(not hasattr(ml_dtypes, "complex32"), reason="ml_dtypes has complex32 from 0.6 on")
NUMBERS = [1 + 2j, 3 - 4j]


def made(requires_grad: bool = False) -> engine.Tensor:
    return engine.tensor(NUMBERS, dtype=engine.complex32, requires_grad=requires_grad)


def test_made_and_read() -> None:
    x = made()
    assert x.dtype is engine.complex32 and x.is_complex() and x.element_size() == 4
    assert x.tolist() == NUMBERS and x[1].item() == NUMBERS[1]
    assert repr(x) == "tensor([1.+2.j, 3.-4.j], dtype=torch.complex32)"
    assert engine.full((2,), 2j, dtype=engine.chalf).tolist() == [2j, 2j]
    engine.manual_seed(0)
    drawn = engine.randn(4000, dtype=engine.chalf)
    assert drawn.dtype is engine.chalf and 0.9 < float((drawn.cfloat().abs() ** 2).mean()) < 1.1


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float32", "float16", "bfloat16", "int64", "bool"])
def test_converted_both_ways(dtype: str) -> None:
    kind = getattr(dtypes, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the imaginary part is lost
        there = made().to(kind)
        wanted = engine.tensor(NUMBERS).to(kind)
    assert there.dtype is kind and there.tolist() == wanted.tolist()
    assert there.chalf().tolist() == wanted.to(dtypes.complex64).tolist()


def test_copied_into_a_bool() -> None:
    target = engine.zeros(2, dtype=engine.bool).copy_(made())
    assert target.to(engine.int64).tolist() == [1, 1]


def test_parts_share_memory() -> None:
    x = made()
    assert x.real.tolist() == [1, 3] and x.imag.tolist() == [2, -4] and x.real.dtype is engine.half
    x.imag.fill_(7)
    assert x.tolist() == [1 + 7j, 3 + 7j]
    pairs = engine.view_as_real(x)
    pairs[0, 0] = 5
    assert pairs.dtype is engine.half and x[0].item() == 5 + 7j
    back = engine.view_as_complex(pairs)
    back[1] = 1j
    assert back.dtype is engine.complex32 and x[1].item() == 1j
    assert engine.complex(engine.ones(2).half(), engine.tensor([2.0, 3]).half()).tolist() == [1 + 2j, 1 + 3j]
    assert x.t()[::2].real.tolist() == [5]


def test_arithmetic_and_types() -> None:
    x, exact = made(), engine.tensor(NUMBERS)
    for call in (
        lambda a: a + a,
        lambda a: a * a,
        lambda a: a - 1,
        lambda a: a * 2j,
        lambda a: a + 1.5,
        lambda a: -a,
        lambda a: a.conj(),
        lambda a: engine.cat([a, a]),
        lambda a: a.sum(),
        lambda a: a.mean(),
    ):
        found = call(x)
        assert found.dtype is engine.complex32
        assert found.tolist() == call(exact).chalf().tolist()
    assert x.abs().dtype is engine.half and x.abs().tolist() == exact.abs().half().tolist()
    assert (x + engine.ones(2)).dtype is engine.complex64 and (x + engine.ones(2).half()).dtype is engine.complex32
    assert (x == x).all() and not (x == x.conj()).any()
    assert x.var().item() == pytest.approx(exact.var().item())
    many = engine.full((40_000,), 0.25 + 0.5j, dtype=engine.chalf)
    assert many.sum().item() == 10_000 + 20_000j  # 16 bits would stop at 512


def test_what_has_no_order_is_refused() -> None:
    x = made()
    for call in (lambda: x < x, x.sort, x.max, lambda: x.cummax(0), lambda: engine.clamp(x, 0)):
        with pytest.raises((NotImplementedError, RuntimeError), match=r"ComplexHalf|complex"):
            call()


def test_gradients() -> None:
    x = engine.tensor(NUMBERS, requires_grad=True)
    y = engine.tensor(NUMBERS, requires_grad=True)
    (x.chalf() * (1 + 1j)).abs().sum().backward()
    (y * (1 + 1j)).abs().sum().backward()
    engine.testing.assert_close(x.grad, y.grad, rtol=2e-3, atol=2e-3)
    a, b = (engine.tensor([1.0, 2], requires_grad=True) for _ in range(2))
    engine.complex(a.half(), b.half()).cfloat().backward(engine.tensor([1 + 2j, 3 + 4j]))
    assert a.grad.tolist() == [1, 3] and b.grad.tolist() == [2, 4]
    leaf = made(requires_grad=True)
    engine.view_as_real(leaf).sum().backward()
    assert leaf.grad.dtype is engine.complex32 and leaf.grad.tolist() == [1 + 1j, 1 + 1j]


def test_an_old_ml_dtypes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ml_dtypes, "complex32")
    monkeypatch.setattr(dtypes.complex32, "_np", None)
    with pytest.raises(TypeError, match=r"torch.complex32 is not supported: it takes ml_dtypes 0.6 or newer"):
        engine.ones(2).chalf()
