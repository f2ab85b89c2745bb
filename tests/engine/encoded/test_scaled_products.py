"""Products of 8-bit floats: the numbers and the errors of torch 2.13 (CPU)."""

from __future__ import annotations

import pytest

import engine
import engine.nn.functional as F
from engine.encoded.float8 import Float8Tensor

E4, E5 = engine.float8_e4m3fn, engine.float8_e5m2
TENSOR, ROW = F.ScalingType.TensorWise, F.ScalingType.RowWise
ONE = engine.ones(1)


def matrices(a=E4, b=E4, size=1.0):
    """(3, 4) and (4, 2), whose values are exact in both dtypes."""
    left = engine.tensor([[1.0, -2.0, 0.5, 3.0], [0.25, 1.5, -1.0, 2.0], [-0.75, 0.5, 4.0, -6.0]]) * size
    right = engine.tensor([[0.5, 1.0], [-1.25, 2.0], [3.0, -0.5], [1.75, 0.125]])
    return left.to(a), right.to(b)


@pytest.mark.parametrize("kinds", [(E4, E4), (E4, E5), (E5, E4), (E5, E5)])
def test_one_scale_for_each_matrix(kinds):
    a, b = matrices(*kinds)
    found = engine._scaled_mm(a, b, engine.tensor(0.5), engine.tensor(3.0), out_dtype=engine.float32)
    assert engine.equal(found, (a.float() @ b.float()) * 1.5)
    bias = engine.tensor([1.0, -2.0])
    biased = engine._scaled_mm(a, b, engine.tensor(0.5), engine.tensor(3.0), bias, out_dtype=engine.float32)
    assert engine.equal(biased, found + bias)
    plain = engine._scaled_mm(a, b, engine.tensor(0.5), engine.tensor(3.0))
    assert type(plain) is Float8Tensor and plain.dtype is kinds[0]
    assert plain.tolist() == found.to(kinds[0]).tolist()


def test_torchs_numbers():
    a, b = matrices()
    arguments = (a, b, engine.tensor(0.3), engine.tensor(0.7), engine.tensor([0.1, 0.2]))
    found = engine._scaled_mm(*arguments, out_dtype=engine.float32)
    # torch._scaled_mm(a, b, torch.tensor(0.3), torch.tensor(0.7), torch.tensor([0.1, 0.2]), out_dtype=torch.float32)
    wanted = [[2.1475000, -0.4037500], [-0.1624999, 1.0400000], [0.2049998, -0.3249999]]
    assert found.tolist() == [pytest.approx(row, abs=1e-6) for row in wanted]
    # the same with scale_result=torch.tensor(0.5), which counts for 8 bits alone
    eight = engine._scaled_mm(*arguments, scale_result=engine.tensor(0.5), out_dtype=E4)
    assert eight.tolist() == [[4.5, -0.8125], [-0.3125, 2.0], [0.40625, -0.625]]
    assert engine.equal(engine._scaled_mm(*arguments, scale_result=engine.tensor(0.5), out_dtype=engine.float32), found)


def test_a_scale_for_each_row_and_column():
    a, b = matrices()
    rows, columns = engine.tensor([[1.0], [2.0], [0.5]]), engine.tensor([[3.0, 0.25]])
    wanted = (a.float() * rows) @ (b.float() * columns)
    assert engine.equal(engine._scaled_mm(a, b, rows, columns, out_dtype=engine.float32), wanted)
    found = engine._scaled_mm_v2(a, b, [rows], [ROW], [0], [columns], [1], [0], None, engine.bfloat16)
    assert engine.equal(found, wanted.bfloat16())
    assert engine.equal(F.scaled_mm(a, b, rows, ROW, columns, [ROW], output_dtype=engine.float32), wanted)


def test_the_default_dtypes():
    a, b = matrices()
    assert F.scaled_mm(a, b, ONE, TENSOR, [ONE], TENSOR).dtype is engine.bfloat16
    assert F.scaled_mm(a, b, ONE, TENSOR, ONE, TENSOR, output_dtype=None).dtype is E4
    assert engine._scaled_mm_v2(a, b, [ONE], [0], [0], [ONE], [0], [0], None, engine.int32).dtype is engine.int32


def test_a_sum_beyond_the_range_is_the_largest_value():
    a, b = matrices(size=64.0)
    assert engine._scaled_mm(a, b, engine.tensor(8.0), ONE)[0].tolist() == [448.0, -448.0]
    huge = engine._scaled_mm(a, b, engine.tensor(1e6), ONE, out_dtype=E5)
    assert huge[0].tolist() == [57344.0, -57344.0]


def test_out():
    a, b = matrices()
    out = engine.empty(0)
    assert engine._scaled_mm(a, b, ONE, ONE, out_dtype=engine.float32, out=out) is out
    assert engine.equal(out, a.float() @ b.float())
    eight = engine.zeros(3, 2).to(E4)
    assert engine._scaled_mm(a, b, ONE, ONE, out=eight) is eight
    assert eight.tolist() == out.to(E4).tolist()
    with pytest.raises(RuntimeError, match=r"dtype torch\.float8_e4m3fn, but got torch\.float32"):
        engine._scaled_mm(a, b, ONE, ONE, out=out)
    with pytest.raises(RuntimeError, match=r"shape \[3, 2\], but got \[3, 1\]"):
        engine._scaled_mm(a, b, ONE, ONE, out=eight[:, :1])


A, B = matrices()
THREE, TWO = engine.ones(3, 1), engine.ones(1, 2)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: engine._scaled_mm(A, A, ONE, ONE), RuntimeError, r"cannot be multiplied \(3x4 and 3x4\)$"),
        (lambda: engine._scaled_mm(A[0], B, ONE, ONE), RuntimeError, "mat1 must be a matrix"),
        (lambda: engine._scaled_mm(A, B, ONE, ONE, engine.ones(3)), RuntimeError, "Bias must be size 2 but got 3"),
        (lambda: engine._scaled_mm(A, B, THREE, ONE), ValueError, r"scale_b must have shape \[1, 2\], got \[1\]"),
        (lambda: engine._scaled_mm(A, B, ONE.double(), ONE), ValueError, "Invalid scaling configuration"),
        (lambda: engine._scaled_mm(A.float(), B, ONE, ONE), ValueError, "Invalid scaling configuration"),
        (lambda: F.scaled_mm(A, B, THREE, ROW, ONE, TENSOR), ValueError, "Invalid scaling configuration"),
        (lambda: F.scaled_mm(A, B, THREE, TENSOR, ONE, TENSOR), ValueError, "scale_a must have 1 Float element"),
        (lambda: F.scaled_mm(A, B, [ONE, ONE], TENSOR, ONE, TENSOR), ValueError, "Invalid scaling configuration"),
        (
            lambda: F.scaled_mm(A, B, ONE, F.ScalingType.BlockWise1x128, ONE, F.ScalingType.BlockWise1x128),
            ValueError,
            "Invalid scaling configuration",
        ),
        (
            lambda: F.scaled_mm(A, B, ONE, TENSOR, ONE, TENSOR, F.SwizzleType.SWIZZLE_32_4_4),
            ValueError,
            "CPU does not support swizzle",
        ),
        (
            lambda: F.scaled_mm(A, B, ONE, TENSOR, ONE, TENSOR, contraction_dim=(0, 1)),
            ValueError,
            r"\(3x4 and 4x2\) with contraction dims mat_a: 0, mat_b: 1",
        ),
        (lambda: F.scaled_mm(A, B, ONE, TENSOR, ONE, TENSOR, contraction_dim=[1]), ValueError, "exactly 2 elements"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize(
    ("name", "wanted"),  # bytes that torch 2.13 gives
    [
        ("float8_e4m3fn", [0, 128, 126, 126, 126, 126, 126, 254, 127, 60, 68, 76]),
        ("float8_e5m2", [0, 128, 95, 95, 95, 123, 124, 252, 127, 62, 66, 70]),
        ("float8_e8m0fnu", [0, 0, 136, 136, 136, 143, 255, 255, 255, 128, 129, 130]),
    ],
)
@pytest.mark.parametrize("source", [engine.float32, engine.float64])
def test_conversion_from_wider_floats(name, wanted, source):
    inf, nan = float("inf"), float("nan")
    values = engine.tensor([0.0, -0.0, 448.0, 449.0, 464.0, 61439.0, inf, -inf, nan, 1.5, 3.0, 6.0]).to(source)
    found = values.to(getattr(engine, name))
    assert found.view(engine.uint8).tolist() == wanted
    assert values.to(found).view(engine.uint8).tolist() == wanted  # `to(other)`


def test_conversion_keeps_shape_and_refuses_to_lose_a_gradient():
    assert engine.ones(2, 3, dtype=engine.int64).type(E5).tolist() == [[1.0] * 3] * 2
    x = engine.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"convert tensor\.detach\(\)"):
        x.to(E4)
    with engine.no_grad():
        assert x.to(E4).dtype is E4
