"""What the registry tests do not show of elementwise ops: dtypes, numbers, refusals, edges.

Numbers and sentences of torch 2.13.
"""
# ruff: noqa: E501

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest

import engine
from engine import tensor
from tests.engine.ops.answers import check_error, check_gradients, check_value

F32 = tensor([1.5, -0.5, 2.0])
I64 = tensor([3, -2, 5])
U8 = tensor([1, 2, 200], dtype=engine.uint8)
B = tensor([True, False, True])
C64 = tensor([1 + 2j, -1j, 3 - 1j])
F16 = tensor([1.5, -0.5, 2.0], dtype=engine.float16)
BF16 = tensor([1.5, -0.5, 2.0], dtype=engine.bfloat16)
F64 = tensor([0.5, 2.0, -1.0], dtype=engine.float64)
I32 = tensor([2, 7, -4], dtype=engine.int32)

VALUES: list[Any] = [
    (lambda: I64 / 2, "float32", [1.5, -1.0, 2.5]),
    (lambda: I64 / I32, "float32", [1.5, -0.2857143, -1.25]),
    (lambda: 1 / I64, "float32", [0.33333334, -0.5, 0.2]),
    (lambda: I64 * 2.5, "float32", [7.5, -5.0, 12.5]),
    (lambda: I64 + F16, "float16", [4.5, -2.5, 7.0]),
    (lambda: I32 * F64[0], "float64", [1.0, 3.5, -2.0]),
    (lambda: F32 * F64[0], "float32", [0.75, -0.25, 1.0]),
    (lambda: B + B, "bool", [True, False, True]),
    (lambda: B * 2, "int64", [2, 0, 2]),
    (lambda: U8 + 300, "uint8", [45, 46, 244]),
    (lambda: U8 * 2, "uint8", [2, 4, 144]),
    (lambda: F16 * 0.1, "float16", [0.15002441, -0.049987793, 0.19995117]),
    (lambda: BF16 * 0.1, "bfloat16", [0.15039062, -0.050048828, 0.20019531]),
    (lambda: C64 * F32, "complex64", [(1.5 + 3j), 0.5j, (6 - 2j)]),
    (lambda: C64 / C64, "complex64", [(1 + 0j), (1 - 0j), (1 + 0j)]),
    (lambda: F32 * 1j, "complex64", [1.5j, (-0 - 0.5j), 2j]),
    (lambda: 2 ** I64.abs(), "int64", [8, 4, 32]),
    (lambda: I64**2, "int64", [9, 4, 25]),
    (lambda: F32**3, "float32", [3.375, -0.125, 8.0]),
    (lambda: B**2, "int64", [1, 0, 1]),
    (lambda: I64 ** tensor([-1, -2, 0]), "int64", [0, 0, 1]),
    (lambda: F64**-0.5, "float64", [1.414213562373, 0.7071067811865, nan]),
    (lambda: I64 // 2, "int64", [1, -1, 2]),
    (lambda: -7 // I64, "int64", [-3, 3, -2]),
    (lambda: F32 // 0.3, "float32", [4.0, -2.0, 6.0]),
    (lambda: I64 % 4, "int64", [3, 2, 1]),
    (lambda: F32 % -0.7, "float32", [-0.59999996, -0.5, -0.099999964]),
    (lambda: 7 % F32, "float32", [1.0, 0.0, 1.0]),
    (lambda: engine.div(I64, 2, rounding_mode="floor"), "int64", [1, -1, 2]),
    (lambda: engine.div(I64, 2, rounding_mode="trunc"), "int64", [1, -1, 2]),
    (lambda: engine.div(F32, 0.3, rounding_mode="trunc"), "float32", [5.0, -1.0, 6.0]),
    (lambda: engine.fmod(I64, 2), "int64", [1, 0, 1]),
    (lambda: engine.add(F32, I64, alpha=2), "float32", [7.5, -4.5, 12.0]),
    (lambda: engine.add(B, B, alpha=True), "bool", [True, False, True]),
    (lambda: engine.addcmul(I64, I64, I64, value=2), "int64", [21, 6, 55]),
    (lambda: engine.clamp(I64, 0.5), "float32", [3.0, 0.5, 5.0]),
    (lambda: engine.clamp(F32, 1.0, 0.0), "float32", [0.0, 0.0, 0.0]),
    (lambda: engine.clamp(F32, min=tensor(0.0), max=1), "float32", [1.0, 0.0, 1.0]),
    (lambda: engine.where(B, F32, I64), "float32", [1.5, -2.0, 2.0]),
    (lambda: engine.where(B, 1, 0), "int64", [1, 0, 1]),
    (lambda: engine.where(B, 1.5, U8), "float32", [1.5, 2.0, 1.5]),
    (lambda: engine.maximum(F32, I64), "float32", [3.0, -0.5, 5.0]),
    (lambda: engine.fmax(tensor([nan, 1.0]), tensor([2.0, nan])), "float32", [2.0, 1.0]),
    (lambda: engine.maximum(tensor([nan, 1.0]), tensor([2.0, nan])), "float32", [nan, nan]),
    (lambda: engine.sign(tensor([nan, -0.0, -2.0])), "float32", [0.0, 0.0, -1.0]),
    (
        lambda: engine.sgn(C64),
        "complex64",
        [(0.44721359 + 0.89442718j), (-0 - 1j), (0.948683262 - 0.316227764j)],
    ),
    (lambda: engine.abs(C64), "float32", [2.236068, 1.0, 3.1622777]),
    (lambda: engine.angle(C64), "float32", [1.1071488, -1.5707964, -0.32175055]),
    (lambda: engine.angle(tensor([-1, 0])), "float32", [3.1415927, 0.0]),
    (lambda: engine.sigmoid(I64), "float32", [0.95257413, 0.11920292, 0.99330717]),
    (lambda: engine.sigmoid(tensor([-800.0, 800.0])), "float32", [0.0, 1.0]),
    (lambda: engine.exp(B), "float32", [2.7182817, 1.0, 2.7182817]),
    (lambda: engine.sqrt(tensor([-1.0, 0.0])), "float32", [nan, 0.0]),
    (lambda: engine.round(tensor([0.5, 1.5, 2.5, -0.5])), "float32", [0.0, 2.0, 2.0, -0.0]),
    (lambda: engine.round(tensor([1.2345, -6.789]), decimals=2), "float32", [1.23, -6.79]),
    (lambda: engine.frac(F32), "float32", [0.5, -0.5, 0.0]),
    (lambda: engine.trunc(I64), "int64", [3, -2, 5]),
    (
        lambda: engine.nan_to_num(tensor([nan, inf, -inf])),
        "float32",
        [0.0, 3.4028235e38, -3.4028235e38],
    ),
    (
        lambda: engine.xlogy(tensor([0.0, 0.0, 2.0]), tensor([0.0, nan, 3.0])),
        "float32",
        [0.0, nan, 2.1972246],
    ),
    (
        lambda: engine.logaddexp(tensor([-inf, 800.0]), tensor([-inf, 801.0])),
        "float32",
        [-inf, 801.31323],
    ),
    (lambda: engine.heaviside(tensor([-1.0, 0.0, 2.0]), tensor(0.5)), "float32", [0.0, 0.5, 1.0]),
    (lambda: engine.copysign(I64, -0.0), "float32", [-3.0, -2.0, -5.0]),
    (lambda: engine.hypot(tensor([3e30]), tensor([4e30])), "float32", [4.9999999e30]),
    (lambda: engine.atan2(I64, I32), "float32", [0.98279375, -0.27829966, 2.2455373]),
    (lambda: engine.lerp(F32, F32 * 3, 0.9), "float32", [4.1999998, -1.4, 5.5999999]),
    (lambda: engine.float_power(I64, 2), "float64", [9.0, 4.0, 25.0]),
    (lambda: engine.gcd(I64, tensor(15)), "int64", [3, 1, 5]),
    (lambda: engine.lcm(I64, tensor(4)), "int64", [12, 4, 20]),
    (lambda: I64 & 6, "int64", [2, 6, 4]),
    (lambda: ~I64, "int64", [-4, 1, -6]),
    (lambda: ~B, "bool", [False, True, False]),
    (lambda: I64 << 2, "int64", [12, -8, 20]),
    (lambda: I64 >> 1, "int64", [1, -1, 2]),
    (lambda: engine.logical_xor(F32, B), "bool", [False, True, False]),
    (
        lambda: engine.erf(tensor([0.5, -2.0, 5.0], dtype=engine.float64)),
        "float64",
        [0.520499877813, -0.995322265019, 0.9999999999985],
    ),
    (
        lambda: engine.erfc(tensor([0.5, 5.0, 20.0], dtype=engine.float64)),
        "float64",
        [0.479500122187, 1.537459794428e-12, 5.395865611608e-176],
    ),
    (
        lambda: engine.erfinv(tensor([0.5, -0.999999, 1.0], dtype=engine.float64)),
        "float64",
        [0.4769362762045, -3.458910737275, inf],
    ),
    (
        lambda: engine.lgamma(tensor([0.5, 30.5, -1.5, -2.0], dtype=engine.float64)),
        "float64",
        [0.5723649429247, 72.95347118417, 0.8600470153765, inf],
    ),
    (
        lambda: engine.digamma(tensor([0.5, 30.5, -1.5], dtype=engine.float64)),
        "float64",
        [-1.963510026021, 3.401243668962, 0.7031566406452],
    ),
    (
        lambda: engine.mvlgamma(tensor([3.0, 4.5], dtype=engine.float64), 3),
        "float64",
        [2.694924879807, 7.163564471192],
    ),
    (
        lambda: engine.logit(tensor([0.2, 0.9], dtype=engine.float64)),
        "float64",
        [-1.38629436112, 2.197224577336],
    ),
    (lambda: engine.sinc(tensor([0.0, 0.5, 1.0])), "float32", [1.0, 0.63661975, -2.7827534e-08]),
    (
        lambda: engine.i0(tensor([0.0, 3.0, 10.0], dtype=engine.float64)),
        "float64",
        [1.0, 4.880792585865, 2815.716628466],
    ),
    (
        lambda: engine.special.ndtri(tensor([0.3, 1e-10], dtype=engine.float64)),
        "float64",
        [-0.524400512708, -6.361340902404],
    ),
    (
        lambda: engine.special.zeta(tensor([2.0, 3.5], dtype=engine.float64), tensor([1.0, 0.3], dtype=engine.float64)),
        "float64",
        [1.644934066848, 68.10265605243],
    ),
    (
        lambda: engine.special.gammainc(
            tensor([2.0, 30.0], dtype=engine.float64), tensor([1.0, 35.0], dtype=engine.float64)
        ),
        "float64",
        [0.2642411176571, 0.8229545476768],
    ),
    (lambda: engine.view_as_real(C64), "float32", [[1.0, 2.0], [-0.0, -1.0], [3.0, -1.0]]),
    (lambda: engine.complex(F32, F32), "complex64", [(1.5 + 1.5j), (-0.5 - 0.5j), (2 + 2j)]),
]
ERRORS: list[Any] = [
    (
        lambda: B - B,
        RuntimeError,
        "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.",
    ),
    (
        lambda: B - F32,
        RuntimeError,
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.",
    ),
    (
        lambda: 1 - B,
        RuntimeError,
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.",
    ),
    (
        lambda: -B,
        RuntimeError,
        "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.",
    ),
    (
        lambda: engine.add(I64, I64, alpha=1.5),
        RuntimeError,
        "For integral input tensors, argument alpha must not be a floating point number.",
    ),
    (
        lambda: engine.add(I64, I64, alpha=True),
        RuntimeError,
        "Boolean alpha only supported for Boolean results.",
    ),
    (lambda: I64 // 0, RuntimeError, "ZeroDivisionError"),
    (
        lambda: engine.div(I64, 2, rounding_mode="up"),
        RuntimeError,
        "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found 'up'",
    ),
    (lambda: I64**-1, RuntimeError, "Integers to negative integer powers are not allowed."),
    (lambda: B**B, NotImplementedError, "\"pow\" not implemented for 'Bool'"),
    (lambda: F32 + "a", TypeError, "unsupported operand type(s) for +: 'Tensor' and 'str'"),
    (
        lambda: F32 + tensor([1.0, 2.0]),
        RuntimeError,
        "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 0",
    ),
    (
        lambda: I64.exp_(),
        RuntimeError,
        "result type Float can't be cast to the desired output type Long",
    ),
    (
        lambda: I64.div_(2),
        RuntimeError,
        "result type Float can't be cast to the desired output type Long",
    ),
    (
        lambda: I64.add_(1.5),
        RuntimeError,
        "result type Float can't be cast to the desired output type Long",
    ),
    (
        lambda: F32.add_(engine.ones(2, 3)),
        RuntimeError,
        "output with shape [3] doesn't match the broadcast shape [2, 3]",
    ),
    (lambda: F32 & 1, NotImplementedError, "\"bitwise_and_cpu\" not implemented for 'Float'"),
    (
        lambda: ~F32,
        TypeError,
        "~ (operator.invert) is only implemented on integer and Boolean-type tensors",
    ),
    (
        lambda: engine.bitwise_left_shift(F32, 1),
        NotImplementedError,
        "\"lshift_cpu\" not implemented for 'Float'",
    ),
    (lambda: engine.gcd(F32, F32), NotImplementedError, "\"gcd_cpu\" not implemented for 'Float'"),
    (
        lambda: engine.sign(C64),
        NotImplementedError,
        "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead.",
    ),
    (lambda: engine.floor(C64), NotImplementedError, "floor is not supported for complex inputs"),
    (lambda: engine.floor(B), NotImplementedError, "\"floor_vml_cpu\" not implemented for 'Bool'"),
    (lambda: engine.frac(I64), NotImplementedError, "\"frac_cpu\" not implemented for 'Long'"),
    (
        lambda: engine.hypot(I64, I64),
        NotImplementedError,
        "\"hypot_cpu\" not implemented for 'Long'",
    ),
    (
        lambda: engine.atan2(F32, 2),
        TypeError,
        "atan2(): argument 'other' (position 2) must be Tensor, not int",
    ),
    (
        lambda: engine.maximum(F32, 2),
        TypeError,
        "maximum(): argument 'other' (position 2) must be Tensor, not int",
    ),
    (
        lambda: engine.maximum(C64, C64),
        RuntimeError,
        "maximum not implemented for complex tensors.",
    ),
    (
        lambda: engine.clamp(F32),
        RuntimeError,
        "torch.clamp: At least one of 'min' or 'max' must not be None",
    ),
    (lambda: engine.clamp(C64, 0), NotImplementedError, "clamp is not supported for complex types"),
    (
        lambda: engine.clamp(F32, tensor([0.0]), 1),
        TypeError,
        "clamp() received an invalid combination of arguments - got (Tensor, Tensor, int), but expected one of:",
    ),
    (
        lambda: engine.where(F32, F32, F32),
        RuntimeError,
        "where expected condition to be a boolean tensor, but got a tensor with dtype Float",
    ),
    (
        lambda: engine.lerp(F32, F64, 0.5),
        RuntimeError,
        "expected dtype float for `end` but got dtype double",
    ),
    (
        lambda: engine.lerp(I64, I64, 0.5),
        NotImplementedError,
        "\"lerp_kernel_scalar\" not implemented for 'Long'",
    ),
    (
        lambda: engine.heaviside(F32, I64),
        RuntimeError,
        "heaviside is not yet implemented for tensors with different dtypes.",
    ),
    (
        lambda: engine.addcdiv(I64, I64, I64),
        RuntimeError,
        "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: (input + value * tensor1 / tensor2), for all dtypes.",
    ),
    (
        lambda: engine.imag(F32),
        RuntimeError,
        "imag is not implemented for tensors with non-complex dtypes.",
    ),
    (
        lambda: engine.view_as_complex(engine.ones(3, 3)),
        RuntimeError,
        "Tensor must have a last dimension of size 2",
    ),
    (
        lambda: engine.complex(F32, I64),
        RuntimeError,
        "Expected both inputs to be Half, Float or Double tensors but got Float and Long",
    ),
    (
        lambda: engine.erf(C64),
        NotImplementedError,
        "\"erf_vml_cpu\" not implemented for 'ComplexFloat'",
    ),
    (
        lambda: engine.polygamma(-1, F32),
        RuntimeError,
        "polygamma(n, x) does not support negative n.",
    ),
    (
        lambda: engine.mul("a", F32),
        TypeError,
        "mul(): argument 'input' (position 1) must be Tensor, not str",
    ),
]
GRADIENTS: list[Any] = [
    (lambda x: x.clamp(-1.0, 2.0), [[-1.0, 0.0, 2.0, 3.0]], [[1.0, 1.0, 1.0, 0.0]]),
    (lambda x: x.clamp(2.0, -1.0), [[-1.0, 0.0, 2.0, 3.0]], [[0.0, 0.0, 0.0, 0.0]]),
    (
        lambda x, y, z: engine.clamp(x, y, z),
        [[1.0, 5.0, -5.0], [1.0, 0.0, 0.0], [2.0, 2.0, 2.0]],
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
    ),
    (lambda x: x.abs(), [[-1.0, 0.0, 2.0]], [[-1.0, 0.0, 1.0]]),
    (
        lambda x, y: engine.maximum(x, y),
        [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]],
        [[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]],
    ),
    (
        lambda x, y: engine.minimum(x, y),
        [[1.0, nan, 3.0], [1.0, 3.0, 2.0]],
        [[0.5, 1.0, 0.0], [0.5, 1.0, 1.0]],
    ),
    (
        lambda x, y: engine.fmax(x, y),
        [[1.0, nan, 3.0], [1.0, 3.0, nan]],
        [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
    ),
    (lambda x: x**0, [[0.0, 2.0]], [[0.0, 0.0]]),
    (
        lambda x, y: x**y,
        [[0.0, 0.0, 2.0], [2.0, 0.0, 3.0]],
        [[0.0, 0.0, 12.0], [0.0, 0.0, 5.54517744448]],
    ),
    (lambda x: 0**x, [[0.0, 2.0]], [[0.0, 0.0]]),
    (lambda x: x**0.5, [[0.0, 4.0]], [[inf, 0.25]]),
    (lambda x: x.sqrt(), [[0.0, 4.0]], [[inf, 0.25]]),
    (lambda x: engine.where(x > 0, x.log(), x), [[-1.0, 2.0]], [[1.0, 0.5]]),
    (lambda x, y: engine.atan2(x, y), [[0.0, 1.0], [0.0, 1.0]], [[0.0, 0.5], [-0.0, -0.5]]),
    (
        lambda x, y: engine.xlogy(x, y),
        [[0.0, 2.0], [0.0, 3.0]],
        [[0.0, 1.098612288668], [nan, 0.6666666666667]],
    ),
    (lambda x: x.sinc(), [[0.0, 0.5]], [[0.0, -1.273239544735]]),
    (lambda x, y: x % y, [[5.5, -5.5], [2.0, 2.0]], [[1.0, 1.0], [-2.0, 3.0]]),
    (lambda x, y: x.fmod(y), [[5.5, -5.5], [2.0, 2.0]], [[1.0, 1.0], [-2.0, 2.0]]),
    (lambda x: x.logit(), [[0.0, 0.5, 2.0]], [[inf, 4.0, nan]]),
    (lambda x: x.nan_to_num(), [[nan, inf, 1.0]], [[0.0, 0.0, 1.0]]),
    (
        lambda x, y: engine.hypot(x, y),
        [[3.0, 5.0], [4.0, 12.0]],
        [[0.6, 0.3846153846154], [0.8, 0.9230769230769]],
    ),
    (lambda x: x.round() + x.floor() + x.sign(), [[1.5, 2.0]], [[0.0, 0.0]]),
    (
        lambda x, y: engine.copysign(x, y),
        [[0.0, 2.0, -2.0], [1.0, -1.0, -1.0]],
        [[0.0, -1.0, 1.0], [0.0, 0.0, 0.0]],
    ),
]


@pytest.mark.parametrize(("call", "dtype", "expected"), VALUES)
def test_values_and_dtypes(call: Any, dtype: str, expected: Any) -> None:
    check_value(call, dtype, expected)


@pytest.mark.parametrize(("call", "error", "sentence"), ERRORS)
def test_errors(call: Any, error: type[Exception], sentence: str) -> None:
    check_error(call, error, sentence)


@pytest.mark.parametrize(("call", "values", "expected"), GRADIENTS)
def test_gradients_at_ties_zeros_and_bounds(call: Any, values: Any, expected: Any) -> None:
    check_gradients(call, values, expected)


def test_a_number_over_a_tensor_is_rounded_as_torchs() -> None:
    """number / tensor is reciprocal times number: two roundings."""
    x = engine.arange(1, 2000, dtype=engine.float32)
    want = (np.float32(1) / x.numpy()) * np.float32(255)
    assert np.array_equal((255 / x).numpy(), want) and not np.array_equal(want, np.float32(255) / x.numpy())
    assert (5 / engine.tensor([2, 0])).tolist() == [2.5, float("inf")]
    assert (2j / engine.tensor([1.0, 2.0])).dtype is engine.complex64


@pytest.mark.parametrize(
    ("input", "other", "wanted"),
    [
        ("bfloat16", "bfloat16", "bfloat16"),
        ("bfloat16", "int64", "bfloat16"),
        ("int64", "bfloat16", "bfloat16"),
        ("bfloat16", "float32", "float32"),
        ("bfloat16", "float16", "float32"),
        ("float16", "int64", "float16"),
    ],
)
def test_ldexp_of_narrow_floats(input: str, other: str, wanted: str) -> None:
    """The power of two in bfloat16 was computed, and returned, in float32."""
    a, b = engine.tensor([1, 3], dtype=getattr(engine, input)), engine.tensor([2, -1], dtype=getattr(engine, other))
    found = engine.ldexp(a, b)
    assert found.dtype is getattr(engine, wanted) and found.tolist() == [4.0, 1.5]
    if a.is_floating_point():
        assert engine.ldexp(a.requires_grad_(), b).dtype is found.dtype
