"""Products of matrices as they lie, generated: against numpy in float64 and the ops' own code; what they leave."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu import threads
from engine.kernels import processor
from engine.ops.generated import comparison
from engine.ops.products import generated as products
from tests.engine.ops.generated.test_layers import agree, arrays
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]
SIZES = [(1, 6, 40), (2, 1, 4), (7, 3, 5), (13, 17, 9), (31, 33, 100), (100, 5, 67), (5, 100, 130)]  # n, k, m
NEAR = {"float32": 2e-5, "float64": 1e-12}


def matrix(lead: tuple[int, ...], rows: int, columns: int, turned: bool, dtype: str) -> np.ndarray:
    """A matrix for each of a batch, by columns where it is turned."""
    (made,) = arrays((*lead, *((columns, rows) if turned else (rows, columns))), dtype=dtype)
    return made.swapaxes(-1, -2) if turned else made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "k", "m"), SIZES)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_any_layout(lead: tuple[int, ...], n: int, k: int, m: int, dtype: str) -> None:
    for turned, of_right, bias_of in itertools.product((False, True), (False, True), ("", "rows", "columns")):
        a, b = matrix(lead, n, k, turned, dtype), matrix(lead, k, m, of_right, dtype)
        (bias,) = arrays((n if bias_of == "rows" else m,), dtype=dtype) if bias_of else (None,)
        got = products.multiplied(np, a, b, bias, bias_of or "columns")
        want = a.astype("float64") @ b.astype("float64")
        if bias is not None:
            want += bias[:, None] if bias_of == "rows" else bias
        assert got.dtype == dtype and got.flags.c_contiguous
        np.testing.assert_allclose(got, want, atol=NEAR[dtype] * k**0.5, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_columns(m: int, dtype: str) -> None:
    for turned, of_right, biased in itertools.product((False, True), repeat=3):
        a, b = matrix((), 9, 300, turned, dtype), matrix((), 300, m, of_right, dtype)
        (bias,) = arrays((m,), dtype=dtype) if biased else (None,)
        want = a.astype("float64") @ b.astype("float64") + (0 if bias is None else bias)
        np.testing.assert_allclose(products.multiplied(np, a, b, bias), want, atol=20 * NEAR[dtype], rtol=0)


def test_a_row_is_the_same_whatever_it_is_a_part_of(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = matrix((), 97, 83, False, "float32"), matrix((), 83, 71, True, "float32")
    whole = products.multiplied(np, a, b)
    for first, last in ((0, 2), (5, 12), (90, 97)):
        assert (products.multiplied(np, a[first:last], b) == whole[first:last]).all()
    assert (products.multiplied(np, a, b[:, :67]) == whole[:, :67]).all()
    before = threads.get_num_threads()
    monkeypatch.setattr(products, "_SHARED", 1)
    try:
        for count in (1, 2, 3):
            threads.set_num_threads(count)
            assert (products.multiplied(np, a, b) == whole).all()
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "k", "m"), [(16, 1, 16), (33, 5, 40), (100, 130, 67), (17, 64, 200), (129, 65, 33)])
def test_copies_of_large_matrices(n: int, k: int, m: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of the right matrix, tiles of a left one that lies by columns; threads that share rows, or columns."""
    before = threads.get_num_threads()
    for name, value in (("_LARGE", 0), ("_COPIED", 1), ("_SHARED", 1)):
        monkeypatch.setattr(products, name, value)
    try:
        for turned, of_right, count, rows in itertools.product((False, True), (False, True), (1, 2), (0, 1 << 10)):
            threads.set_num_threads(count)
            monkeypatch.setattr(products, "_ROWS", rows)
            a, b = matrix((), n, k, turned, dtype), matrix((), k, m, of_right, dtype)
            (bias,) = arrays((m,), dtype=dtype)
            want = a.astype("float64") @ b.astype("float64")
            for given in (None, bias):
                got = products.multiplied(np, a, b, given)
                expected = want if given is None else want + given
                np.testing.assert_allclose(got, expected, atol=NEAR[dtype] * k**0.5, rtol=0)
    finally:
        threads.set_num_threads(before)


def test_the_gradient_of_a_weight_is_tried_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MOST", 1)
    (a, b) = arrays((200, 100), (200, 40))
    assert products.multiplied(np, a.T.copy(), b) is NotImplemented
    np.testing.assert_allclose(products.multiplied(np, a.T, b), a.T.astype("float64") @ b, atol=1e-3)


def test_windows_and_matrices_that_all_share() -> None:
    """Rows of a larger matrix, a factor that is the same in all products, one with steps along its rows."""
    (x,) = arrays((4, 40, 60))
    whole = x[:, 3:20, 5:37]
    assert not whole.flags.c_contiguous
    shared = np.broadcast_to(x[0, :32, :20], (4, 32, 20))
    np.testing.assert_allclose(products.multiplied(np, whole, shared), whole @ shared, atol=1e-4)
    stepped = x[:, ::2, ::3]
    np.testing.assert_allclose(products.multiplied(np, stepped, x[:, :20]), stepped @ x[:, :20], atol=1e-4)


def test_what_is_left_to_libraries() -> None:
    a, b = arrays((8, 16), (16, 8))
    assert products.multiplied(np, a[None], b[None, :, :3]) is NotImplemented  # few columns, of batches
    assert products.multiplied(np, a, b[:, :3], a[:, 0].copy(), "rows") is NotImplemented
    assert products.multiplied(np, a, b[:, :1].astype("float64")) is NotImplemented
    assert products.multiplied(np, a, np.ascontiguousarray(np.tile(b, 2))[:, ::2]) is NotImplemented  # steps
    assert products.multiplied(np, a, b.astype("float64")) is NotImplemented
    assert products.multiplied(np, a.astype("float16"), b.astype("float16")) is NotImplemented
    assert products.multiplied(np, a[:0], b) is NotImplemented


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ops(dtype: str) -> None:
    a, b, c = arrays((9, 20), (20, 12), (12,), dtype=dtype)
    agree("mm", a, b)
    agree("mm", b.T, a.T)
    agree("linear", a, np.ascontiguousarray(b.T), c)
    agree("linear", a, np.ascontiguousarray(b.T))
    agree("linear", a.reshape(3, 3, 20), np.ascontiguousarray(b.T), c)
    agree("addmm", c, a, b)
    assert left("addmm", c, a, b, beta=0.5)
    assert left("addmm", np.broadcast_to(c, (9, 12)), a, b)
    x, y, z = arrays((2, 3, 5, 8), (2, 3, 8, 6), (8, 6), dtype=dtype)
    agree("batched", x, y)
    agree("batched", x.swapaxes(1, 2), np.ascontiguousarray(y[:, :1].repeat(5, 1)))
    agree("batched", x, z)
    assert left("batched", x, y[:1])
    agree("bmm", x[0], y[0])
    agree("linear_each", x[0], np.ascontiguousarray(y[0].swapaxes(1, 2)))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_values_that_are_not_finite(value: Any) -> None:
    a, b = arrays((9, 20), (20, 12))
    a[2, 3] = b[5, 7] = value
    with np.errstate(all="ignore"):
        agree("mm", a, b)


def test_products_that_cancel_are_compared_by_what_was_added_up() -> None:
    """Rows of 300 and the differences of their neighbours: results are rounding alone, in any order another."""
    r = np.random.default_rng(0)
    basis = np.linalg.qr(r.standard_normal((64, 64)))[0]
    a, b = (np.float32(300 * basis[:, :32].T), np.float32(300 * basis[:, 32:]))
    got, want = products.multiplied(np, a, b), products.multiplied(np, a[:, ::-1].copy(), b[::-1].copy())
    assert 0 < abs(want).max() < 1 and comparison.difference(want, got) is not None
    assert comparison.difference(want, got, comparison.largest_of([a, b], True), a.size) is None
    assert comparison.largest_of([a, np.float32([0.5])], True) == comparison.largest_of([a]) == abs(a).max()
    assert comparison.largest_of([]) == 0
