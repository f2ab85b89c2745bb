"""Array code recorded in the source form: numpy's types, numbers that stay parameters, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from engine.kernels.elementwise import Recorded, collapsed, order_of, recorded
from engine.kernels.trace import Number, Untraceable

F32, BF16, I64, BOOL = np.dtype("float32"), np.dtype(ml_dtypes.bfloat16), np.dtype("int64"), np.dtype(bool)


def record(code: Any, *args: Any, symbolic: bool = True) -> Recorded:
    return recorded("code", code, args, {}, ["dense"] * 8, symbolic)


@pytest.mark.parametrize(
    ("code", "args"),
    [
        (lambda xp, a, b: a + b, (F32, I64)),
        (lambda xp, a: a * 2, (np.dtype("float16"),)),
        (lambda xp, a: a / 2, (I64,)),
        (lambda xp, a: xp.exp(a), (BF16,)),
        (lambda xp, a, b: a < b, (I64, F32)),
        (lambda xp, a: a + 1.5, (I64,)),
        (lambda xp, a: xp.where(a, 1.0, 0.0), (BOOL,)),
        (lambda xp, a, b: xp.where(a > 0, a, b), (F32, np.dtype("float64"))),
        (lambda xp, a: a.astype("float16"), (F32,)),
        (lambda xp, a: ~a, (BOOL,)),
        (lambda xp, a, b: a & b, (BOOL, BOOL)),
        (lambda xp, a: xp.floor(a), (I64,)),
        (lambda xp, a: xp.isfinite(a), (I64,)),
        (lambda xp, a: xp.clip(a, 0, 1), (F32,)),
        (lambda xp, a: -a, (np.dtype("int8"),)),
        (lambda xp, a: xp.sign(a), (I64,)),
    ],
)
def test_types_are_numpys(code: Any, args: Any) -> None:
    values = [np.ones(3, d) for d in args]
    assert record(code, *args).dtypes == [code(np, *values).dtype]


def test_a_number_becomes_a_parameter_and_arithmetic_on_it_is_done_on_the_host() -> None:
    made = record(lambda xp, a, n: a * (1 - n) + n**2, F32, 0.25)
    assert [(type, of([0.5])) for type, of in made.numbers] == [("float32", 0.5), ("float32", 0.25)]
    assert made.fits([7.0]) and not made.guards


def test_a_comparison_becomes_a_guard() -> None:
    def code(xp: Any, a: Any, n: Any) -> Any:
        return a * n if n != 1 and 0 < n < 5 else a + n

    made = record(code, F32, 2.0)
    assert made.fits([3.0]) and not made.fits([1.0]) and not made.fits([6.0])


def test_code_that_wants_the_number_itself_is_recorded_with_constants() -> None:
    def code(xp: Any, a: Any, n: Any) -> Any:
        return a * math.sqrt(n)

    with pytest.raises(Untraceable, match="bare number"):
        record(code, F32, 2.0)
    assert not record(code, F32, 2.0, symbolic=False).numbers


def test_a_number_says_that_it_is_one() -> None:
    seen: list[Any] = []
    record(lambda xp, a, n: seen.append((isinstance(n, float), isinstance(n, int), type(n))) or a + n, F32, 2.0)
    assert seen[-1] == (True, False, Number)


def test_in_place_code_and_out() -> None:
    def code(xp: Any, a: Any, b: Any) -> Any:
        made = a.copy()
        made *= b
        made[a > b] = 7
        return xp.add(made, 1, out=made)

    assert record(code, F32, F32).dtypes == [F32]
    with pytest.raises(Untraceable, match="out= of"):
        record(lambda xp, a: xp.add(a, 1.5, out=a.astype("int64")), F32)


@pytest.mark.parametrize(
    "code",
    [
        lambda xp, a: a[0],
        lambda xp, a: a.sum(),
        lambda xp, a: a if a else -a,
        lambda xp, a: xp.cumsum(a),
        lambda xp, a: a.reshape(-1),
        lambda xp, a: a + np.ones(3),
        lambda xp, a: 3.0,
        lambda xp, a: a.astype("complex64"),
        lambda xp, a: xp.add(a, 1, where=a > 0),
        lambda xp, a: np.exp(a),
    ],
)
def test_what_is_not_element_by_element_is_refused(code: Any) -> None:
    with pytest.raises((Untraceable, TypeError)):
        record(code, F32)


# --- layouts


def test_operands_that_lie_alike_are_one_dim() -> None:
    assert collapsed((4, 5, 6), [(30, 6, 1)] * 3).classes == ("dense",) * 3
    assert collapsed((4, 5, 6), [(30, 6, 1)] * 3).sizes == (120,)
    broadcast = collapsed((4, 5, 6), [(30, 6, 1), (0, 0, 1), (0, 0, 0)])
    assert broadcast.sizes == (20, 6) and broadcast.strides == ((6, 1), (0, 1), (0, 0))
    assert broadcast.numbers() == [6, 6, 1, 1]
    assert collapsed((1, 1), [(7, 7)]).sizes == (1,)


def test_sizes_that_need_64_bits() -> None:
    assert not collapsed((1 << 20,), [(1,)]).wide
    assert collapsed((1 << 31,), [(1,)]).wide and collapsed((3,), [(1 << 31,)]).wide


def test_the_order_of_dims() -> None:
    assert order_of((2, 3), (3, 1)) is None and order_of((2, 3), (1, 2)) == (1, 0)
    assert order_of((2, 3), (0, 1)) is None and order_of((2, 3), (6, 2)) is None
    assert order_of((2, 4, 3, 5), (60, 1, 20, 4)) == (0, 2, 3, 1)
