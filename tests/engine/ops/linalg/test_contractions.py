"""einsum against numpy's over many equations, tensordot, chains, distances."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.autograd.gradcheck import gradcheck, gradgradcheck
from engine.ops.linalg.contractions import multi_dot
from engine.tensor import wrap

rng = np.random.default_rng(0)

EQUATIONS = [
    "ij,jk", "ij,jk->ik", "ij,jk->ki", "ij,jk->ijk", "ij,jk->jki", "ii", "ii->i", "iij->ij",
    "iji->ij", "iii->i", "ij->", "ij->ji", "ba", "aB", "i j -> j i", "...i->...", "ij,...j->...i",
    "...ij,...jk->...ik", "...ij,...jk", "b...,b...->b...", "i...j->j...i", "bij,bjk->bik",
    "bij,bjk->ik", "bij,bkj->bik", "bhid,bhjd->bhij", "i,j->ij", "i,i->", "i,i->i", "ij,kl->ijkl",
    "ij,kj->", "abc,cd,de->abe", "ab,bc,cd,da->", "ij,ij,ij->i", "ij,j", "ijk,ilm,njm,nlk->",
    "a,b,c->abc", "ab,cd->acbd", "ijj,jk->ik", "ij,->ij",
]  # fmt: skip
SIZES = dict(zip("abcdehijklmnB", (2, 3, 2, 3, 2, 2, 3, 3, 2, 2, 3, 2, 3)))


def operands(equation):
    found = []
    for term in equation.replace(" ", "").split("->")[0].split(","):
        before, dots, after = term.partition("...")
        shape = [SIZES[c] for c in before] + ([2, 3] if dots else []) + [SIZES[c] for c in after]
        found.append(wrap(rng.standard_normal(shape)).requires_grad_())
    return found


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_is_numpys(equation):
    tensors = operands(equation)
    result = engine.einsum(equation, *tensors)
    expected = np.einsum(equation.replace(" ", ""), *[t._array for t in tensors])
    if equation == "aB":  # torch sorts capitals first, numpy does too
        assert expected.shape == result.shape
    np.testing.assert_allclose(result.detach().numpy(), expected, atol=1e-12)
    assert gradcheck(lambda *xs: engine.einsum(equation, *xs), tensors, fast_mode=True)


def test_einsum_double_backward():
    x, y = operands("bij,bjk")
    assert gradgradcheck(lambda a, b: engine.einsum("bij,bjk->bik", a, b) ** 2, (x, y), fast_mode=True)


def test_einsum_sublists_lists_and_broadcast_sizes():
    x, y = (wrap(rng.standard_normal(s)) for s in ((2, 3), (3, 4)))
    product = x._array @ y._array
    np.testing.assert_allclose(engine.einsum(x, [0, 1], y, [1, 2]).numpy(), product)
    np.testing.assert_allclose(engine.einsum(x, [0, 1], y, [1, 2], [2, 0]).numpy(), product.T)
    np.testing.assert_allclose(engine.einsum(x, [..., 1], y, [1, 2]).numpy(), product)
    np.testing.assert_allclose(engine.einsum("ij,jk->ik", [x, y]).numpy(), product)
    one = wrap(np.ones((2, 1)))
    np.testing.assert_allclose(engine.einsum("ij,jk->ik", one, y).numpy(), np.tile(y._array.sum(0), (2, 1)))


def test_a_permuting_einsum_is_a_view():
    x = wrap(np.zeros((2, 3)))
    y = engine.einsum("ij->ji", x)
    assert y._base is x
    assert engine.einsum("ij", x) is not x


def test_many_operands_take_a_cheap_order():
    n = 300  # from left to right the first step would need n**4 numbers
    a, b, c = (wrap(rng.standard_normal((n, 2))) for _ in range(3))
    result = engine.einsum("ai,bj,ai,bj->", a, b, a, b)
    np.testing.assert_allclose(result.item(), (a._array**2).sum() * (b._array**2).sum())
    del c


def test_multi_dot_and_tensordot():
    xs = [wrap(rng.standard_normal(s)) for s in ((3, 4), (4, 20), (20, 2), (2, 5))]
    np.testing.assert_allclose(multi_dot(xs).numpy(), np.linalg.multi_dot([x._array for x in xs]))
    a, b = wrap(rng.standard_normal((2, 3, 4))), wrap(rng.standard_normal((4, 3, 5)))
    np.testing.assert_allclose(
        engine.tensordot(a, b, dims=([1, 2], [1, 0])).numpy(),
        np.tensordot(a._array, b._array, ([1, 2], [1, 0])),
    )
    np.testing.assert_allclose(engine.tensordot(a, b, 1).numpy(), np.tensordot(a._array, b._array, 1))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("n", [4, 40])
def test_cdist_is_the_norm_of_differences(p, n):
    x, y = rng.standard_normal((n, 3)), rng.standard_normal((5, 3))
    expected = np.array([[np.linalg.norm(a - b, p) if p else (a != b).sum() for b in y] for a in x])
    if p in (0.5, 1.5):
        expected = (np.abs(x[:, None] - y[None]) ** p).sum(-1) ** (1 / p)
    np.testing.assert_allclose(engine.cdist(wrap(x), wrap(y), p).numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, float("inf")])
def test_the_gradient_of_coinciding_points_is_0(p):
    x = wrap(np.ones((2, 3))).requires_grad_()
    engine.cdist(x, x.detach(), p).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros((2, 3)))


def test_cdist_of_many_rows_needs_no_large_memory():
    x = wrap(rng.standard_normal((3000, 2)))
    assert engine.cdist(x, x, 1.0).shape == (3000, 3000)
