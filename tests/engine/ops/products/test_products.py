"""Products against numpy: ranks, dtypes, strides, factors, gradients that the registry's samples do not reach."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import engine
from engine.autograd.gradcheck import gradcheck
from engine.ops.products import linear
from engine.tensor import wrap

rng = np.random.default_rng(0)


def leaf(*shape, dtype="float64"):
    return wrap(rng.standard_normal(shape).astype(dtype)).requires_grad_()


SHAPES = [
    (3,),
    (3, 3),
    (2, 3),
    (3, 2),
    (2, 3, 3),
    (1, 3, 2),
    (4, 1, 3, 3),
    (0, 3),
    (3, 0),
    (0, 2, 3),
]


def fits(a, b):
    try:
        np.matmul(np.zeros(a), np.zeros(b))
    except ValueError:
        return False
    return True


PAIRS = [(a, b) for a, b in itertools.product(SHAPES, SHAPES) if fits(a, b)]


@pytest.mark.parametrize("a, b", PAIRS, ids=str)
def test_matmul_of_every_rank_is_numpys_and_has_its_gradient(a, b):
    x, y = leaf(*a), leaf(*b)
    result = x @ y
    expected = x._array @ y._array
    assert result._array.shape == expected.shape
    np.testing.assert_allclose(result.detach().numpy(), expected, atol=1e-13)
    assert gradcheck(engine.matmul, (x, y), fast_mode=True)


def test_names_of_nodes():
    x, y = leaf(2, 3), leaf(3, 2)
    assert (x @ y).grad_fn.name() == "MmBackward0"
    assert engine.matmul(x[0], y[:, 0]).grad_fn.name() == "DotBackward0"
    assert linear(x, leaf(4, 3), leaf(4)).grad_fn.name() == "AddmmBackward0"


def test_operator_refuses_numbers():
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for @: 'Tensor' and 'int'"):
        leaf(3) @ 2


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integer_products_wrap_round(dtype):
    x = wrap(np.full((2, 3), 255, dtype))
    np.testing.assert_array_equal(engine.mm(x, x.t()).numpy(), x._array @ x._array.T)
    np.testing.assert_array_equal(linear(x, x).numpy(), x._array @ x._array.T)


@pytest.mark.parametrize("dtype", [engine.float16, engine.bfloat16])
def test_half_products_are_rounded_once(dtype):
    x = wrap(rng.standard_normal((5, 400))).to(dtype)
    exact = x.double() @ x.double().t()
    assert engine.equal(x @ x.t(), exact.float().to(dtype))
    assert (x @ x[0]).dtype is dtype
    assert engine.bmm(x[None], x.t()[None]).dtype is dtype
    assert linear(x, x, x[:, 0]).dtype is dtype
    assert engine.addmm(x[:, 0], x, x.t()).dtype is dtype


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a[::2, ::2],
        lambda a: np.broadcast_to(a[:1, :1], (4, 4)),
        lambda a: a[::-1, ::-1][:4, :4],
        lambda a: np.swapaxes(a[::2, ::2], 0, 1),
    ],
)
def test_any_strides(make):
    a = make(rng.standard_normal((8, 8)))
    np.testing.assert_allclose(engine.mm(wrap(a), wrap(a)).numpy(), a @ a, atol=1e-12)
    np.testing.assert_allclose(engine.bmm(wrap(a[None]), wrap(a[None])).numpy()[0], a @ a, atol=1e-12)
    np.testing.assert_allclose(linear(wrap(a), wrap(a)).numpy(), a @ a.T, atol=1e-12)


def test_gradient_of_a_weight_is_contiguous():
    x, weight = leaf(5, 3), leaf(4, 3)
    linear(x, weight).sum().backward()
    assert weight.grad.is_contiguous()
    np.testing.assert_allclose(weight.grad.numpy(), np.tile(x._array.sum(0), (4, 1)))


def test_beta_0_ignores_nan():
    nan = wrap(np.full((2, 2), np.nan))
    x = wrap(np.ones((2, 2)))
    for result in (
        engine.addmm(nan, x, x, beta=0),
        engine.addr(nan, x[0], x[0], beta=0),
        engine.addmv(nan[0], x, x[0], beta=0),
        engine.addbmm(nan, x[None], x[None], beta=0),
        engine.baddbmm(nan, x[None], x[None], beta=0),
    ):
        assert not np.isnan(result.numpy()).any()
    assert np.isnan(engine.addmm(x, nan, nan, alpha=0).numpy()).all()


def test_forms_of_torch_0_4():
    x, y, z = (wrap(rng.standard_normal((2, 2))) for _ in range(3))
    expected = 2 * x._array + 3 * (y._array @ z._array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(engine.addmm(2, x, 3, y, z).numpy(), expected)
        np.testing.assert_allclose(x.addmm(2, 3, y, z).numpy(), expected)
        np.testing.assert_allclose(engine.addmm(2, x, y, z).numpy(), 2 * x._array + y._array @ z._array)
    engine.set_warn_always(True)  # else each overload warns once a process
    try:
        with pytest.warns(UserWarning, match="deprecated"):
            x.clone().addmm_(2, 3, y, z)
    finally:
        engine.set_warn_always(False)


def test_in_place_of_another_shape_is_refused_before_the_write():
    x = wrap(np.zeros(3))
    with pytest.raises(
        RuntimeError,
        match=r"Bad in-place call: input tensor size \[3\] and output tensor size \[2, 3\]",
    ):
        x.addmm_(wrap(np.ones((2, 3))), wrap(np.ones((3, 3))))
    assert x._version == 0


def test_linear_in_place_on_its_result_keeps_gradients():
    x, weight, bias = leaf(2, 3), leaf(4, 3), leaf(4)
    y = linear(x, weight, bias)
    y *= 2
    y.sum().backward()
    np.testing.assert_allclose(bias.grad.numpy(), np.full(4, 4.0))


@pytest.mark.parametrize("call", ["mm", "matmul"])
def test_out_is_resized(call):
    out = wrap(np.empty(0))
    x = wrap(rng.standard_normal((2, 3)))
    assert getattr(engine, call)(x, x.t(), out=out) is out
    np.testing.assert_allclose(out.numpy(), x._array @ x._array.T)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5000, 3, 3), (5000, 3, 2)),
        ((300, 1, 4), (300, 4, 1)),
        ((260, 2, 1), (260, 1, 2)),
        ((2, 1, 3, 3), (2, 400, 3, 1)),
        ((3, 3), (500, 3, 3)),
        ((5000, 4, 4), (5000, 4, 4)),
    ],
)
def test_many_products_of_few_elements(left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in (left, right))
    wide = np.result_type(dtype, "float64")
    expected = (a.astype(wide) @ b.astype(wide)).astype(dtype)
    turned = np.swapaxes(np.ascontiguousarray(np.swapaxes(a, -1, -2)), -1, -2)
    for x in (a, turned):
        found = engine.matmul(wrap(x), wrap(b)).numpy()
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    if a.ndim == b.ndim == 3:
        np.testing.assert_array_equal(engine.bmm(wrap(a), wrap(b)).numpy(), engine.matmul(wrap(a), wrap(b)).numpy())
