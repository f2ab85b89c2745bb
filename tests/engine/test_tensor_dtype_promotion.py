"""Result dtypes: torch 2.13's promotion, for all pairs."""

import copy
import pickle
import re

import numpy as np
import pytest

import engine

NAMES = {
    "b": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
NUMBERS = {"True": True, "1": 1, "1.0": 1.0, "1j": 1j}

# row (with dimensions) * column (with dimensions); the same for 0-dim * 0-dim
PAIRS = """
     |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
   b |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
  u8 |   u8   u8  i16  i16  i32  i64  f16   bf  f32  f64  c64 c128
  i8 |   i8  i16   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
 i16 |  i16  i16  i16  i16  i32  i64  f16   bf  f32  f64  c64 c128
 i32 |  i32  i32  i32  i32  i32  i64  f16   bf  f32  f64  c64 c128
 i64 |  i64  i64  i64  i64  i64  i64  f16   bf  f32  f64  c64 c128
 f16 |  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64  c64 c128
  bf |   bf   bf   bf   bf   bf   bf  f32   bf  f32  f64  c64 c128
 f32 |  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  c64 c128
 f64 |  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64 c128 c128
 c64 |  c64  c64  c64  c64  c64  c64  c64  c64  c64 c128  c64 c128
c128 | c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""

# row (with dimensions) * column (0-dim)
WITH_ZERO_DIM = """
     |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
   b |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
  u8 |   u8   u8   u8   u8   u8   u8  f16   bf  f32  f64  c64 c128
  i8 |   i8   i8   i8   i8   i8   i8  f16   bf  f32  f64  c64 c128
 i16 |  i16  i16  i16  i16  i16  i16  f16   bf  f32  f64  c64 c128
 i32 |  i32  i32  i32  i32  i32  i32  f16   bf  f32  f64  c64 c128
 i64 |  i64  i64  i64  i64  i64  i64  f16   bf  f32  f64  c64 c128
 f16 |  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16    ?    ?
  bf |   bf   bf   bf   bf   bf   bf   bf   bf   bf   bf  c64  c64
 f32 |  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  c64  c64
 f64 |  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64 c128 c128
 c64 |  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64  c64
c128 | c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""

# row (with or without dimensions) * Python number
WITH_NUMBER = """
     | True    1  1.0   1j
   b |    b  i64  f32  c64
  u8 |   u8   u8  f32  c64
  i8 |   i8   i8  f32  c64
 i16 |  i16  i16  f32  c64
 i32 |  i32  i32  f32  c64
 i64 |  i64  i64  f32  c64
 f16 |  f16  f16  f16    ?
  bf |   bf   bf   bf  c64
 f32 |  f32  f32  f32  c64
 f64 |  f64  f64  f64 c128
 c64 |  c64  c64  c64  c64
c128 | c128 c128 c128 c128
"""

# dtype of a function of one tensor; ! is an error
UNARY = """
                   |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
           x.exp() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
          x.sqrt() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
           x.sin() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
       x.sigmoid() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
          x.tanh() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
           x.log() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
           x.erf() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64    !    !
    x.reciprocal() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
         x.rsqrt() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
           x.abs() |    !   u8   i8  i16  i32  i64  f16   bf  f32  f64  f32  f64
           x.neg() |    !   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
          x.sign() |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64    !    !
         x.floor() |    !   u8   i8  i16  i32  i64  f16   bf  f32  f64    !    !
         x.round() |    !   u8   i8  i16  i32  i64  f16   bf  f32  f64    !    !
        x.square() |  i64   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
    engine.relu(x) |    !   u8   i8  i16  i32  i64  f16   bf  f32  f64    !    !
           x.sum() |  i64  i64  i64  i64  i64  i64  f16   bf  f32  f64  c64 c128
          x.prod() |  i64  i64  i64  i64  i64  i64  f16   bf  f32  f64  c64 c128
       x.cumsum(0) |  i64  i64  i64  i64  i64  i64  f16   bf  f32  f64  c64 c128
      x.cumprod(0) |  i64  i64  i64  i64  i64  i64  f16   bf  f32  f64  c64 c128
          x.mean() |    !    !    !    !    !    !  f16   bf  f32  f64  c64 c128
           x.std() |    !    !    !    !    !    !  f16   bf  f32  f64  f32  f64
           x.max() |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64    !    !
        x.argmax() |    !  i64  i64  i64  i64  i64  i64  i64  i64  i64    !    !
      x.softmax(0) |    !    !    !    !    !    !  f16   bf  f32  f64    !    !
         x.isnan() |    b    b    b    b    b    b    b    b    b    b    b    b
   x.logical_not() |    b    b    b    b    b    b    b    b    b    b    b    b
   x.bitwise_not() |    b   u8   i8  i16  i32  i64    !    !    !    !    !    !
         x.clone() |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
          x.norm() |    !    !    !    !    !    !  f16   bf  f32  f64  f32  f64
    x.logsumexp(0) |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
           x.any() |    b   u8    b    b    b    b    b    b    b    b    b    b
           x.all() |    b   u8    b    b    b    b    b    b    b    b    b    b
    engine.real(x) |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  f32  f64
   engine.angle(x) |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  f32  f64
          x.ceil() |    !   u8   i8  i16  i32  i64  f16   bf  f32  f64    !    !
         x.trunc() |    !   u8   i8  i16  i32  i64  f16   bf  f32  f64    !    !
          x.frac() |    !    !    !    !    !    !  f16   bf  f32  f64    !    !
         x.expm1() |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64  c64 c128
  engine.lgamma(x) |  f32  f32  f32  f32  f32  f32  f16   bf  f32  f64    !    !
      x.clamp(0,1) |  i64   u8   i8  i16  i32  i64  f16   bf  f32  f64    !    !
"""

# dtype of a function of x (first line) and y (second line); ! is an error
BINARY = """
                       |    b   u8   u8  i32  i64  i64  i64  f16  f16  f32  f32    b  f64  c64   bf
                       |    b    b   i8  i64  i64  f32    b   bf  f32  f64  f32  f16  c64  i64   bf
                   x+y |    b   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16 c128  c64   bf
                   x-y |    !    !  i16  i64  i64  f32    !  f32  f32  f64  f32    ! c128  c64   bf
                   x/y |  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  f32  f16 c128  c64   bf
                  x//y |    !   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16    !    !   bf
                   x%y |    !   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16    !    !   bf
                  x**y |    !   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16 c128  c64   bf
                   x&y |    b   u8  i16  i64  i64    !  i64    !    !    !    !    !    !    !    !
                  x<<y |    !   u8  i16  i64  i64    !  i64    !    !    !    !    !    !    !    !
                   x<y |    b    b    b    b    b    b    b    b    b    b    b    b    !    !    b
                  x==y |    b    b    b    b    b    b    b    b    b    b    b    b    b    b    b
       engine.max(x,y) |    b   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16    !    !   bf
     engine.atan2(x,y) |  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  f32  f16    !    !   bf
      engine.fmod(x,y) |    !   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16    !    !   bf
engine.where(x==y,x,y) |    b   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16 c128  c64   bf
     engine.cat([x,y]) |    b   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16 c128  c64   bf
   engine.stack([x,y]) |    b   u8  i16  i64  i64  f32  i64  f32  f32  f64  f32  f16 c128  c64   bf
      x.true_divide(y) |  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64  f32  f16 c128  c64   bf
  engine.lerp(x,y,0.5) |    !    !    !    !    !    !    !    !    !    !  f32    !    !    !   bf
"""

# whether row.add_(column) is allowed (y)
IN_PLACE = """
     |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
   b |    y    .    .    .    .    .    .    .    .    .    .    .
  u8 |    y    y    y    y    y    y    .    .    .    .    .    .
  i8 |    y    y    y    y    y    y    .    .    .    .    .    .
 i16 |    y    y    y    y    y    y    .    .    .    .    .    .
 i32 |    y    y    y    y    y    y    .    .    .    .    .    .
 i64 |    y    y    y    y    y    y    .    .    .    .    .    .
 f16 |    y    y    y    y    y    y    y    y    y    y    .    .
  bf |    y    y    y    y    y    y    y    y    y    y    .    .
 f32 |    y    y    y    y    y    y    y    y    y    y    .    .
 f64 |    y    y    y    y    y    y    y    y    y    y    .    .
 c64 |    y    y    y    y    y    y    y    y    y    y    y    y
c128 |    y    y    y    y    y    y    y    y    y    y    y    y
"""

# whether can_cast(row, column) (y)
CAN_CAST = """
     |    b   u8   i8  i16  i32  i64  f16   bf  f32  f64  c64 c128
   b |    y    y    y    y    y    y    y    y    y    y    y    y
  u8 |    .    y    y    y    y    y    y    y    y    y    y    y
  i8 |    .    y    y    y    y    y    y    y    y    y    y    y
 i16 |    .    y    y    y    y    y    y    y    y    y    y    y
 i32 |    .    y    y    y    y    y    y    y    y    y    y    y
 i64 |    .    y    y    y    y    y    y    y    y    y    y    y
 f16 |    .    .    .    .    .    .    y    y    y    y    y    y
  bf |    .    .    .    .    .    .    y    y    y    y    y    y
 f32 |    .    .    .    .    .    .    y    y    y    y    y    y
 f64 |    .    .    .    .    .    .    y    y    y    y    y    y
 c64 |    .    .    .    .    .    .    .    .    .    .    y    y
c128 |    .    .    .    .    .    .    .    .    .    .    y    y
"""


def dtype_of(short):
    return getattr(engine, NAMES[short])


def cells(table):
    """(row, column, value) of each cell of a table."""
    head, *rows = table.strip("\n").split("\n")
    columns = head.split("|")[1].split()
    for row in rows:
        name, values = row.split("|")
        for column, value in zip(columns, values.split(), strict=True):
            if value != "?":  # complex32, which numpy lacks
                yield name.strip(), column, value


def rows_of(table):
    return sorted({row for row, _, _ in cells(table)})


def of(short, *shape):
    return engine.ones(shape, dtype=dtype_of(short))


@pytest.mark.parametrize("row", rows_of(PAIRS))
def test_pairs(row):
    """Two tensors of one kind: the higher category, then the wider type."""
    for name, column, expected in cells(PAIRS):
        if name == row:
            expected = dtype_of(expected)
            assert (of(row, 2) * of(column, 2)).dtype == expected, column
            assert (of(row) * of(column)).dtype == expected, column
            assert engine.promote_types(dtype_of(row), dtype_of(column)) == expected, column
            assert engine.result_type(of(row, 2), of(column, 3, 1)) == expected, column
            assert engine.cat([of(row, 2), of(column, 2)]).dtype == expected, column


@pytest.mark.parametrize("row", rows_of(WITH_ZERO_DIM))
def test_zero_dim(row):
    """A 0-dim tensor decides only if its category is higher."""
    for name, column, expected in cells(WITH_ZERO_DIM):
        if name == row:
            expected = dtype_of(expected)
            assert (of(row, 2) * of(column)).dtype == expected, column
            assert (of(column) * of(row, 2)).dtype == expected, column
            assert (of(row, 2) + of(column)).dtype == expected, column
            assert engine.result_type(of(row, 2), of(column)) == expected, column
            assert (of(row, 0) * of(column)).dtype == expected, column


@pytest.mark.parametrize("row", rows_of(WITH_NUMBER))
def test_numbers(row):
    """A Python number decides only if its category is higher, and then by the default dtype."""
    for name, column, expected in cells(WITH_NUMBER):
        if name == row:
            number, expected = NUMBERS[column], dtype_of(expected)
            assert (of(row, 2) * number).dtype == expected, column
            assert (number * of(row, 2)).dtype == expected, column
            assert (of(row) * number).dtype == expected, column
            assert (of(row, 2) + number).dtype == expected, column
            assert engine.result_type(of(row, 2), number) == expected, column


def test_default_dtype_matters_for_numbers():
    """An integer tensor and a float give the default dtype."""
    try:
        engine.set_default_dtype(engine.float64)
        assert (engine.ones(2, dtype=engine.int64) * 1.5).dtype == engine.float64
        assert (engine.ones(2, dtype=engine.int64) / 2).dtype == engine.float64
        assert (engine.ones(2, dtype=engine.float32) * 1.5).dtype == engine.float32
        assert engine.ones(2, dtype=engine.int64).exp().dtype == engine.float64
        assert (engine.ones(2, dtype=engine.int64) * 1j).dtype == engine.complex128
    finally:
        engine.set_default_dtype(engine.float32)


def attempt(source, **names):
    """The dtype of what `source` gives, None if it raises."""
    try:
        return eval(source, {"engine": engine, **names}).dtype
    except (RuntimeError, TypeError, NotImplementedError):
        return None


@pytest.mark.parametrize("source", rows_of(UNARY))
def test_one_tensor(source):
    """Functions of floating values make integers floating, sums widen to int64."""
    for name, column, expected in cells(UNARY):
        if name == source:
            wanted = None if expected == "!" else dtype_of(expected)
            assert attempt(source, x=of(column, 3)) == wanted, column


def binary_cases():
    lines = BINARY.strip("\n").split("\n")
    first, second = (line.split("|")[1].split() for line in lines[:2])
    for line in lines[2:]:
        source, values = line.split("|") if line.count("|") == 1 else line.rsplit("|", 1)
        yield source.strip(), list(zip(first, second, values.split(), strict=True))


@pytest.mark.parametrize("source, expectations", list(binary_cases()))
def test_two_tensors(source, expectations):
    """Operators and functions of two tensors."""
    for a, b, expected in expectations:
        wanted = None if expected == "!" else dtype_of(expected)
        assert attempt(source, x=of(a, 2), y=of(b, 2)) == wanted, (a, b)


@pytest.mark.parametrize("row", rows_of(IN_PLACE))
def test_in_place(row):
    """An in-place result keeps the target's dtype, a higher category is refused."""
    for name, column, allowed in cells(IN_PLACE):
        if name != row:
            continue
        target = of(row, 2)
        if allowed == "y":
            assert target.add_(of(column, 2)) is target
            assert target.dtype == dtype_of(row)
        else:
            with pytest.raises(RuntimeError, match=r"result type .* can't be cast to the desired"):
                target.add_(of(column, 2))
            assert target.tolist() == of(row, 2).tolist()


@pytest.mark.parametrize("row", rows_of(CAN_CAST))
def test_can_cast(row):
    """can_cast allows what does not lower the category."""
    for name, column, allowed in cells(CAN_CAST):
        if name == row:
            assert engine.can_cast(dtype_of(row), dtype_of(column)) is (allowed == "y"), column


def test_messages():
    """The refusals say what torch says."""
    ints = engine.ones(2, dtype=engine.int64)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        ints.div_(2)
    with pytest.raises(RuntimeError, match="result type Float can't be cast"):
        ints += 1.5
    with pytest.raises(RuntimeError, match="result type Double can't be cast"):
        engine.add(engine.ones(2, dtype=engine.float64), 1, out=ints)
    with pytest.raises(RuntimeError, match=r"mean\(\): could not infer output dtype"):
        ints.mean()
    with pytest.raises(RuntimeError, match="Subtraction, the `-` operator, with two bool tensors"):
        _ = engine.tensor([True]) - engine.tensor([True])
    with pytest.raises(RuntimeError, match="Negation, the `-` operator, on a bool tensor"):
        _ = -engine.tensor([True])
    with pytest.raises(RuntimeError, match="same dtype"):
        engine.mm(engine.ones(2, 2), engine.ones(2, 2, dtype=engine.float64))


def test_in_place_with_numbers():
    """In place a number of the same or a lower category keeps the dtype."""
    x = engine.ones(2, dtype=engine.int32)
    x += 2
    x *= True
    x //= 2
    assert x.tolist() == [1, 1] and x.dtype == engine.int32
    h = engine.ones(2, dtype=engine.float16)
    h += 0.5
    h *= engine.tensor(2.0, dtype=engine.float64)
    assert h.tolist() == [3, 3] and h.dtype == engine.float16


def test_division():
    """/ is true division for every dtype, // floors, % takes the sign of the divisor."""
    a, b = engine.tensor([7, -7, 7, -7]), engine.tensor([2, 2, -2, -2])
    assert (a / b).tolist() == [3.5, -3.5, -3.5, 3.5]
    assert (a / b).dtype == engine.float32
    assert (a // b).tolist() == [3, -4, -4, 3] and (a // b).dtype == engine.int64
    assert (a % b).tolist() == [1, 1, -1, -1]
    assert (a // 2).tolist() == [3, -4, 3, -4]
    assert (a.float() // 2).tolist() == [3.0, -4.0, 3.0, -4.0]
    assert engine.fmod(a, b).tolist() == [1, -1, 1, -1]
    assert engine.div(a, b, rounding_mode="trunc").tolist() == [3, -3, -3, 3]
    assert engine.div(a, b, rounding_mode="floor").tolist() == [3, -4, -4, 3]
    assert (7 / engine.tensor(2)).item() == 3.5 and (7 // engine.tensor(2)).item() == 3
    assert (engine.tensor(1) / 0).item() == float("inf")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        _ = engine.tensor([1]) // 0


def test_integer_overflow_wraps():
    """Integers wrap around."""
    assert (engine.tensor([250], dtype=engine.uint8) + 10).tolist() == [4]
    assert (engine.tensor([127], dtype=engine.int8) + 1).tolist() == [-128]
    assert (engine.tensor([100], dtype=engine.int8) * 2).tolist() == [-56]
    assert (-engine.tensor([1], dtype=engine.uint8)).tolist() == [255]
    assert engine.tensor([2**31 - 1], dtype=engine.int32).add(1).tolist() == [-(2**31)]
    assert engine.tensor([100, 100, 100], dtype=engine.uint8).sum().item() == 300
    assert engine.tensor([True, True]).sum().item() == 2


def test_bool_arithmetic():
    """Bools add as or, multiply as and; with numbers they are 0 and 1."""
    t, f = engine.tensor([True]), engine.tensor([False])
    assert (t + t).tolist() == [True] and (t * f).tolist() == [False]
    assert (t + 1).tolist() == [2] and (t * 2.5).tolist() == [2.5]
    assert (t / t).tolist() == [1.0]
    assert (t & f).tolist() == [False] and (t | f).tolist() == [True] and (t ^ t).tolist() == [False]
    assert (~t).tolist() == [False] and (~engine.tensor([5])).tolist() == [-6]


def test_comparisons_give_bool():
    """Comparisons compare in the common type and give bool."""
    a = engine.tensor([1, 2, 3])
    for result in (a < 2.5, a == engine.tensor([1.0, 2.5, 3.0]), a >= True, a != a, a < 2):
        assert result.dtype == engine.bool
    assert (a < 2.5).tolist() == [True, True, False]
    assert (engine.tensor([255], dtype=engine.uint8) > engine.tensor([-1], dtype=engine.int8)).item()


def test_casts():
    """Casting methods, and values that leave the range."""
    x = engine.tensor([1.9, -1.9, 0.0])
    assert x.long().tolist() == [1, -1, 0] and x.int().dtype == engine.int32
    assert x.bool().tolist() == [True, True, False]
    assert x.short().dtype == engine.int16 and x.char().dtype == engine.int8
    assert x.byte()[0].item() == 1 and x.byte().dtype == engine.uint8
    assert x.half().dtype == engine.float16 and x.double().dtype == engine.float64
    assert x.to(engine.int64).tolist() == [1, -1, 0]
    assert x.type(engine.int64).dtype == engine.int64 and x.type() == "torch.FloatTensor"
    assert x.type_as(engine.tensor([1])).dtype == engine.int64
    assert x.to(engine.tensor([1])).dtype == engine.int64
    assert x.to(engine.float32) is x and x.float() is x
    assert x.to(engine.float32, copy=True) is not x
    assert engine.tensor([300]).to(engine.uint8).tolist() == [44]
    assert engine.tensor([float("nan")]).bool().tolist() == [True]
    assert engine.tensor([1e-45]).bool().tolist() == [True]
    assert engine.tensor([70000.0]).half().tolist() == [float("inf")]
    assert engine.tensor([1.0 + 2**-9]).bfloat16().tolist() == [1.0]


def test_precision_of_float32_numbers():
    """A float32 tensor times a number is computed in float32."""
    x = engine.tensor([0.1])
    assert (x * 3).item() == float(np.float32(0.1) * np.float32(3))
    assert (x + 0.2).item() == float(np.float32(0.1) + np.float32(0.2))
    assert (x * engine.tensor(3.0, dtype=engine.float64)).dtype == engine.float32
    assert engine.tensor([16777216.0]).add(1).item() == 16777216.0


def test_pow():
    """Powers of integers stay integers, negative exponents are refused."""
    a = engine.tensor([2, 3])
    assert (a**2).tolist() == [4, 9] and (a**2).dtype == engine.int64
    assert (a**0.5).dtype == engine.float32 and (2**a).tolist() == [4, 8]
    assert (2.0**a).dtype == engine.float32
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        _ = a**-1
    assert (a.float() ** -1).tolist() == [0.5, float(np.float32(1 / 3))]


def test_unsigned_types():
    """uint16, uint32 and uint64 exist; mixing them with signed ones is refused."""
    for name in ("uint16", "uint32", "uint64"):
        dtype = getattr(engine, name)
        assert engine.tensor([1, 2], dtype=dtype).tolist() == [1, 2]
        assert engine.promote_types(dtype, dtype) == dtype
        assert engine.promote_types(dtype, engine.float32) == engine.float32
        assert not dtype.is_signed


def test_dtype_attributes():
    """Names, sizes and flags of the dtypes."""
    assert engine.float is engine.float32 and engine.double is engine.float64
    assert engine.half is engine.float16 and engine.long is engine.int64
    assert engine.int is engine.int32 and engine.short is engine.int16
    sizes = {
        "bool": 1,
        "uint8": 1,
        "int16": 2,
        "int32": 4,
        "int64": 8,
        "float16": 2,
        "bfloat16": 2,
        "float32": 4,
        "float64": 8,
        "complex64": 8,
        "complex128": 16,
    }
    for name, size in sizes.items():
        dtype = getattr(engine, name)
        assert dtype.itemsize == size and engine.zeros(1, dtype=dtype).element_size() == size
        assert repr(dtype) == f"torch.{name}"
        assert dtype.is_floating_point is ("float" in name)
        assert dtype.is_complex is ("complex" in name)
    assert engine.is_floating_point(engine.ones(1)) and not engine.is_complex(engine.ones(1))
    assert engine.finfo(engine.float32).eps == 2**-23
    assert engine.finfo(engine.float16).max == 65504.0
    assert engine.finfo(engine.bfloat16).tiny == 2**-126
    assert engine.iinfo(engine.int8).min == -128 and engine.iinfo(engine.int64).max == 2**63 - 1


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(float, engine.float64), (int, engine.int64), (bool, engine.bool), (complex, engine.complex128)],
)
def test_types_of_python_are_dtypes(given: type, wanted: engine.dtype) -> None:
    x = engine.ones(2, 3)
    for made in (
        x.to(given),
        x.to(dtype=given),
        x.to("cpu", given),
        x.to(given, copy=True),
        engine.zeros(2, dtype=given),
        engine.tensor([1, 0], dtype=given),
        engine.as_tensor([1], dtype=given),
        engine.as_tensor(x, dtype=given),
        engine.asarray([1], dtype=given),
        engine.zeros_like(x, dtype=given),
        x.new_tensor([1], dtype=given),
        engine.scalar_tensor(1, dtype=given),
        x.sum(dtype=given),
        engine.sum(x, 0, dtype=given),
        x.prod(dtype=given),
    ):
        assert made.dtype is wanted
    assert engine.promote_types(given, wanted) is wanted
    assert engine.can_cast(given, wanted)
    assert engine.zeros(2, dtype=wanted).view(given).dtype is wanted


def test_types_of_python_are_dtypes_where_numbers_are_real() -> None:
    x = engine.ones(2, 3)
    assert engine.nn.functional.softmax(x, -1, dtype=float).dtype is engine.float64
    assert engine.norm(x, dtype=float).dtype is x.mean(dtype=float).dtype is engine.float64
    assert engine.nn.Linear(2, 2).to(float).weight.dtype is engine.float64
    assert (engine.finfo(float).bits, engine.iinfo(int).bits) == (64, 64)


def test_other_types_are_no_dtypes() -> None:
    x = engine.ones(2, 3)
    with pytest.raises(ValueError, match=r"^invalid type: 'float'$"):
        x.type(float)
    with pytest.raises(TypeError, match=r"^sum\(\) received an invalid combination of arguments"):
        x.sum(dtype=str)
    with pytest.raises(TypeError, match=r"^to\(\) received an invalid combination of arguments - got \(type\)"):
        x.to(str)


def test_limits_of_one_dtype_are_equal_and_cannot_be_assigned():
    for kind, one, other in (
        (engine.finfo, engine.float32, engine.float64),
        (engine.finfo, engine.bfloat16, engine.float16),
        (engine.iinfo, engine.int8, engine.uint8),
    ):
        limits = kind(one)
        assert limits == kind(one) and limits != kind(other) and limits != 1
        assert pickle.loads(pickle.dumps(limits)) == limits == copy.copy(limits)
        with pytest.raises(TypeError, match="unhashable"):
            hash(limits)
        with pytest.raises(AttributeError, match=f"attribute 'max' of 'torch.{kind.__name__}' objects is not writable"):
            limits.max = 1
    assert engine.finfo() == engine.finfo(engine.get_default_dtype()) == engine.finfo(engine.complex64)
    assert engine.finfo(engine.int32.to_complex()) != engine.iinfo(engine.int32)
    resolution = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-15, "float8_e5m2": 1.0}
    assert {name: engine.finfo(getattr(engine, name)).resolution for name in resolution} == pytest.approx(resolution)
    assert (engine.iinfo(engine.quint8).max, engine.iinfo(engine.int64).min) == (255, -(2**63))
    for call, message in (
        (lambda: engine.finfo("float32"), "argument 'type' (position 1) must be torch.dtype, not str"),
        (lambda: engine.iinfo(engine.bool), "torch.bool is not supported by torch.iinfo"),
        (lambda: engine.iinfo(engine.half), "Use torch.finfo to handle 'torch.float16'"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            call()


@pytest.mark.parametrize("size", [3, 1 << 17])
@pytest.mark.parametrize("dtype", [engine.float32, engine.float16, engine.bfloat16, engine.int32, engine.uint8])
def test_a_number_times_alpha_gives_way_to_the_tensors_dtype(dtype: engine.dtype, size: int) -> None:
    x = engine.full((size,), 9, dtype=dtype)
    for name, expected in (("add", 13), ("sub", 5), ("rsub", -16), ("subtract", 5)):
        found = getattr(engine, name)(x, 2, alpha=2)
        assert found.dtype is dtype and (found == engine.tensor(expected).to(dtype)).all()
    assert x.add_(2, alpha=2).dtype is dtype and x[0] == 13
